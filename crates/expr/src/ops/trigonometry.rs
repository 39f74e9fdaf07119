//! `$sin` and its family.

use crate::decimal_math as decimal;
use crate::eval::Env;
use crate::node::Call;
use crate::numeric::{Num, value_text};
use kauri_base::{Result, bail};
use kauri_bson::{Decimal128, Value};

/// A function of one number: on doubles, on decimals, and the numbers that it takes.
struct Function {
    double: fn(f64) -> f64,
    decimal: fn(Decimal128) -> Decimal128,
    /// Bounds, both included.
    domain: Option<(f64, f64)>,
}

fn apply<'t>(call: &'t Call, env: Env<'t>, function: &Function) -> Result<Value<'t>> {
    let name = call.op.name;
    let value = call.arg(0, env)?;
    let Some(num) = Num::of(&value) else {
        if value.is_nullish() {
            return Ok(Value::Null);
        }
        bail!(28765, "{name} only supports numeric types, not {}", value.type_name());
    };
    let double = num.to_f64();
    if let Some((least, most)) = function.domain
        && !num.is_nan()
        && !(least..=most).contains(&double)
    {
        bail!(
            50989,
            "cannot apply {name} to {}, value must be in [{least},{most}]",
            value_text(&value)
        );
    }
    Ok(match num {
        Num::Decimal(v) => Value::Decimal128((function.decimal)(v)),
        _ => Value::Double((function.double)(double)),
    })
}

/// All finite numbers.
const FINITE: Option<(f64, f64)> = Some((f64::MIN, f64::MAX));

pub(crate) fn sin<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    apply(call, env, &Function { double: f64::sin, decimal: decimal::sin, domain: FINITE })
}

pub(crate) fn cos<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    apply(call, env, &Function { double: f64::cos, decimal: decimal::cos, domain: FINITE })
}

pub(crate) fn tan<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    apply(call, env, &Function { double: f64::tan, decimal: decimal::tan, domain: FINITE })
}

pub(crate) fn asin<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let domain = Some((-1.0, 1.0));
    apply(call, env, &Function { double: f64::asin, decimal: decimal::asin, domain })
}

pub(crate) fn acos<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let domain = Some((-1.0, 1.0));
    apply(call, env, &Function { double: f64::acos, decimal: decimal::acos, domain })
}

pub(crate) fn atan<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    apply(call, env, &Function { double: f64::atan, decimal: decimal::atan, domain: None })
}

pub(crate) fn sinh<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    apply(call, env, &Function { double: f64::sinh, decimal: decimal::sinh, domain: None })
}

pub(crate) fn cosh<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    apply(call, env, &Function { double: f64::cosh, decimal: decimal::cosh, domain: None })
}

pub(crate) fn tanh<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    apply(call, env, &Function { double: f64::tanh, decimal: decimal::tanh, domain: None })
}

pub(crate) fn asinh<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    apply(call, env, &Function { double: f64::asinh, decimal: decimal::asinh, domain: None })
}

pub(crate) fn acosh<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let domain = Some((1.0, f64::INFINITY));
    apply(call, env, &Function { double: f64::acosh, decimal: decimal::acosh, domain })
}

pub(crate) fn atanh<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let domain = Some((-1.0, 1.0));
    apply(call, env, &Function { double: f64::atanh, decimal: decimal::atanh, domain })
}

pub(crate) fn degrees_to_radians<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let function = Function { double: f64::to_radians, decimal: decimal::to_radians, domain: None };
    apply(call, env, &function)
}

pub(crate) fn radians_to_degrees<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let function = Function { double: f64::to_degrees, decimal: decimal::to_degrees, domain: None };
    apply(call, env, &function)
}

pub(crate) fn atan2<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (y, x) = (call.arg(0, env)?, call.arg(1, env)?);
    if y.is_nullish() || x.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(above) = Num::of(&y) else {
        bail!(
            51044,
            "$atan2 only supports numeric types, not {} and {}",
            y.type_name(),
            x.type_name()
        );
    };
    let Some(right) = Num::of(&x) else {
        bail!(
            51045,
            "$atan2 only supports numeric types, not {} and {}",
            y.type_name(),
            x.type_name()
        );
    };
    Ok(if above.is_decimal() || right.is_decimal() {
        Value::Decimal128(decimal::atan2(above.to_decimal(), right.to_decimal()))
    } else {
        Value::Double(above.to_f64().atan2(right.to_f64()))
    })
}
