//! `$add`, `$subtract`, `$multiply`, `$divide`, `$mod` and the operators of one number.
//!
//! Results take the widest type among the operands; ints and longs widen rather than overflow.

use crate::eval::Env;
use crate::node::{Call, Node};
use crate::numeric::{self, Num, int_or_long};
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::decimal::Rounding;
use kauri_bson::{Decimal128, Value};

/// The sum of two numbers.
pub(crate) fn sum(a: Num, b: Num) -> Num {
    match (a, b) {
        (Num::Int(a), Num::Int(b)) => shrink(i64::from(a) + i64::from(b)),
        (Num::Double(a), Num::Double(b)) => Num::Double(a + b),
        _ if a.is_decimal() || b.is_decimal() => Num::Decimal(a.to_decimal() + b.to_decimal()),
        _ => match longs(a, b).map(|(a, b)| a.checked_add(b)) {
            Some(Some(sum)) => Num::Long(sum),
            _ => Num::Double(a.to_f64() + b.to_f64()),
        },
    }
}

/// Both as longs, if both are whole.
fn longs(a: Num, b: Num) -> Option<(i64, i64)> {
    a.whole().zip(b.whole())
}

/// An int where it fits, else a long.
fn shrink(v: i64) -> Num {
    i32::try_from(v).map_or(Num::Long(v), Num::Int)
}

pub(crate) fn add<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut total = Num::Int(0);
    let mut date: Option<i64> = None;
    for node in &call.args {
        let value = node.eval(env)?;
        match (&value, Num::of(&value)) {
            (_, Some(operand)) => match date {
                Some(ms) => date = Some(date_plus(ms, operand)?),
                None => total = sum(total, operand),
            },
            (Value::DateTime(_), _) if date.is_some() => {
                bail!(16612, "only one date allowed in an $add expression")
            }
            (Value::DateTime(ms), _) => date = Some(date_plus(*ms, total)?),
            _ if value.is_nullish() => return Ok(Value::Null),
            _ => bail!(
                TypeMismatch,
                "$add only supports numeric or date types, not {}",
                value.type_name()
            ),
        }
    }
    Ok(date.map_or_else(|| total.value(), Value::DateTime))
}

/// A date plus a number of milliseconds, which is rounded.
fn date_plus(ms: i64, operand: Num) -> Result<i64> {
    let whole = match operand {
        Num::Decimal(v) => numeric::decimal_to_long(v),
        Num::Double(v) => numeric::double_to_long(v),
        other => other.whole(),
    };
    match whole.and_then(|whole| ms.checked_add(whole)) {
        Some(ms) => Ok(ms),
        None => bail!(Overflow, "date overflow in $add"),
    }
}

pub(crate) fn subtract<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (left, right) = (call.arg(0, env)?, call.arg(1, env)?);
    if let (Some(a), Some(b)) = (Num::of(&left), Num::of(&right)) {
        return Ok(difference(a, b).value());
    }
    if left.is_nullish() || right.is_nullish() {
        return Ok(Value::Null);
    }
    let overflow = || Error::new(ErrorCode::Overflow, "date overflow in $subtract");
    match (&left, &right) {
        (Value::DateTime(a), Value::DateTime(b)) => {
            a.checked_sub(*b).map(Value::Int64).ok_or_else(overflow)
        }
        (Value::DateTime(ms), other) if other.is_number() => {
            let whole = match Num::of(other) {
                Some(Num::Decimal(v)) => numeric::decimal_to_long(v),
                Some(Num::Double(v)) => numeric::double_to_long(v),
                other => other.and_then(Num::whole),
            };
            let ms = whole.and_then(|whole| ms.checked_sub(whole));
            ms.map(Value::DateTime).ok_or_else(overflow)
        }
        _ => bail!(TypeMismatch, "can't $subtract {} from {}", right.type_name(), left.type_name()),
    }
}

/// `a` minus `b`.
pub(crate) fn difference(a: Num, b: Num) -> Num {
    match (a, b) {
        (Num::Int(a), Num::Int(b)) => shrink(i64::from(a) - i64::from(b)),
        (Num::Double(a), Num::Double(b)) => Num::Double(a - b),
        _ if a.is_decimal() || b.is_decimal() => Num::Decimal(a.to_decimal() - b.to_decimal()),
        _ => match longs(a, b).map(|(a, b)| a.checked_sub(b)) {
            Some(Some(difference)) => Num::Long(difference),
            _ => Num::Double(a.to_f64() - b.to_f64()),
        },
    }
}

pub(crate) fn multiply<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let mut total = Num::Int(1);
    for node in &call.args {
        let value = node.eval(env)?;
        match Num::of(&value) {
            Some(operand) => total = product(total, operand),
            None if value.is_nullish() => return Ok(Value::Null),
            None => bail!(
                TypeMismatch,
                "$multiply only supports numeric types, not {}",
                value.type_name()
            ),
        }
    }
    Ok(total.value())
}

/// The product of two numbers.
pub(crate) fn product(a: Num, b: Num) -> Num {
    match (a, b) {
        (Num::Int(a), Num::Int(b)) => shrink(i64::from(a) * i64::from(b)),
        (Num::Double(a), Num::Double(b)) => Num::Double(a * b),
        _ if a.is_decimal() || b.is_decimal() => Num::Decimal(a.to_decimal() * b.to_decimal()),
        _ => match longs(a, b).map(|(a, b)| a.checked_mul(b)) {
            Some(Some(product)) => Num::Long(product),
            _ => Num::Double(a.to_f64() * b.to_f64()),
        },
    }
}

pub(crate) fn divide<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (left, right) = (call.arg(0, env)?, call.arg(1, env)?);
    match (Num::of(&left), Num::of(&right)) {
        (Some(_), Some(b)) if b.is_zero() => bail!(BadValue, "can't $divide by zero"),
        (Some(a), Some(b)) => Ok(quotient(a, b)),
        _ if left.is_nullish() || right.is_nullish() => Ok(Value::Null),
        _ => bail!(
            TypeMismatch,
            "$divide only supports numeric types, not {} and {}",
            left.type_name(),
            right.type_name()
        ),
    }
}

/// `a` divided by `b`, which is not zero.
pub(crate) fn quotient(a: Num, b: Num) -> Value<'static> {
    if a.is_decimal() || b.is_decimal() {
        return Value::Decimal128(a.to_decimal() / b.to_decimal());
    }
    Value::Double(a.to_f64() / b.to_f64())
}

pub(crate) fn modulo<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (left, right) = (call.arg(0, env)?, call.arg(1, env)?);
    let (Some(a), Some(b)) = (Num::of(&left), Num::of(&right)) else {
        if left.is_nullish() || right.is_nullish() {
            return Ok(Value::Null);
        }
        bail!(
            16611,
            "$mod only supports numeric types, not {} and {}",
            left.type_name(),
            right.type_name()
        );
    };
    if b.is_zero() {
        if b.is_decimal() {
            bail!(5733415, "can't $mod by zero");
        }
        bail!(16610, "can't $mod by zero");
    }
    Ok(remainder(a, b))
}

/// The remainder of `a` divided by `b`, which is not zero.
pub(crate) fn remainder(a: Num, b: Num) -> Value<'static> {
    match (a, b) {
        (Num::Int(a), Num::Int(b)) => Value::Int32(a.checked_rem(b).unwrap_or(0)),
        _ if a.is_decimal() || b.is_decimal() => Value::Decimal128(a.to_decimal() % b.to_decimal()),
        // A double among them: its whole value as a long would lose nothing, so the remainder of
        // doubles it is.
        _ => match longs(a, b) {
            Some((a, b)) => Value::Int64(a.checked_rem(b).unwrap_or(0)),
            None => Value::Double(a.to_f64() % b.to_f64()),
        },
    }
}

pub(crate) fn divide_in_group<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    divide(call, env).map_err(|error| match error.code() {
        ErrorCode::BadValue => Error::location(4848401, error.message()),
        _ => error,
    })
}

pub(crate) fn modulo_in_group<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    modulo(call, env).map_err(|error| match error.code().number() {
        16610 | 5733415 => Error::location(4848403, error.message()),
        _ => error,
    })
}

/// Evaluates the one argument to a number; `None` for null.
fn number(call: &Call, env: Env<'_>) -> Result<Option<Num>> {
    let value = call.arg(0, env)?;
    match Num::of(&value) {
        Some(num) => Ok(Some(num)),
        None if value.is_nullish() => Ok(None),
        None => {
            bail!(28765, "{} only supports numeric types, not {}", call.op.name, value.type_name())
        }
    }
}

pub(crate) fn abs<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(match number(call, env)? {
        None => Value::Null,
        Some(Num::Int(v)) => int_or_long(i64::from(v).abs()),
        Some(Num::Long(v)) => match v.checked_abs() {
            Some(v) => Value::Int64(v),
            None => bail!(28680, "can't take $abs of long long min"),
        },
        Some(Num::Double(v)) => Value::Double(v.abs()),
        Some(Num::Decimal(v)) => Value::Decimal128(v.abs()),
    })
}

pub(crate) fn ceil<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(match number(call, env)? {
        None => Value::Null,
        Some(Num::Double(v)) => Value::Double(v.ceil()),
        Some(Num::Decimal(v)) => Value::Decimal128(to_whole(v, Rounding::Ceiling)),
        Some(whole) => whole.value(),
    })
}

pub(crate) fn floor<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(match number(call, env)? {
        None => Value::Null,
        Some(Num::Double(v)) => Value::Double(v.floor()),
        Some(Num::Decimal(v)) => Value::Decimal128(to_whole(v, Rounding::Floor)),
        Some(whole) => whole.value(),
    })
}

/// Infinities, and decimals without a digit to round after the point, become NaN, as in MongoDB.
fn to_whole(v: Decimal128, mode: Rounding) -> Decimal128 {
    if v.is_infinite() { Decimal128::NAN } else { v.quantize(0, mode) }
}

pub(crate) fn exp<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(match number(call, env)? {
        None => Value::Null,
        Some(Num::Decimal(v)) => Value::Decimal128(v.exp()),
        Some(other) => Value::Double(other.to_f64().exp()),
    })
}

/// Whether a number is above zero or NaN: what logarithms take.
fn positive_or_nan(num: Num) -> bool {
    num.is_nan()
        || match num {
            Num::Decimal(v) => !v.is_zero() && !v.is_negative(),
            other => other.to_f64() > 0.0,
        }
}

pub(crate) fn ln<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(match number(call, env)? {
        None => Value::Null,
        Some(num) if !positive_or_nan(num) => bail!(
            28766,
            "$ln's argument must be a positive number, but is {}",
            numeric::value_text(&num.value())
        ),
        // A decimal NaN comes back as a double, here and in the other logarithms.
        Some(Num::Decimal(v)) if !v.is_nan() => Value::Decimal128(v.ln()),
        Some(other) => Value::Double(other.to_f64().ln()),
    })
}

pub(crate) fn log10<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(match number(call, env)? {
        None => Value::Null,
        Some(num) if !positive_or_nan(num) => bail!(
            28761,
            "$log10's argument must be a positive number, but is {}",
            numeric::value_text(&num.value())
        ),
        Some(Num::Decimal(v)) if !v.is_nan() => Value::Decimal128(v.log10()),
        Some(other) => Value::Double(other.to_f64().log10()),
    })
}

pub(crate) fn log<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (value, base) = (call.arg(0, env)?, call.arg(1, env)?);
    if value.is_nullish() || base.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(num) = Num::of(&value) else {
        bail!(28756, "$log's argument must be numeric, not {}", value.type_name());
    };
    let Some(base_num) = Num::of(&base) else {
        bail!(28757, "$log's base must be numeric, not {}", base.type_name());
    };
    if !positive_or_nan(num) {
        bail!(
            28758,
            "$log's argument must be a positive number, but is {}",
            numeric::value_text(&value)
        );
    }
    let one = kauri_bson::equal(&base, &Value::Int32(1));
    if !positive_or_nan(base_num) || one {
        bail!(
            28759,
            "$log's base must be a positive number not equal to 1, but is {}",
            numeric::value_text(&base)
        );
    }
    let nan = num.is_nan() || base_num.is_nan();
    if !nan && (num.is_decimal() || base_num.is_decimal()) {
        return Ok(Value::Decimal128(num.to_decimal().log(base_num.to_decimal())));
    }
    Ok(Value::Double(num.to_f64().ln() / base_num.to_f64().ln()))
}

pub(crate) fn sqrt<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(match number(call, env)? {
        None => Value::Null,
        Some(Num::Decimal(v)) => {
            if v.is_negative() && !v.is_zero() && !v.is_nan() {
                return Err(negative_root());
            }
            Value::Decimal128(v.sqrt())
        }
        Some(other) => {
            let v = other.to_f64();
            if v < 0.0 {
                return Err(negative_root());
            }
            Value::Double(v.sqrt())
        }
    })
}

fn negative_root() -> Error {
    Error::location(28714, "$sqrt's argument must be greater than or equal to 0")
}

pub(crate) fn pow<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (base, exponent) = (call.arg(0, env)?, call.arg(1, env)?);
    if base.is_nullish() || exponent.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(b) = Num::of(&base) else {
        bail!(28762, "$pow's base must be numeric, not {}", base.type_name());
    };
    let Some(e) = Num::of(&exponent) else {
        bail!(28763, "$pow's exponent must be numeric, not {}", exponent.type_name());
    };
    let negative = match e {
        Num::Decimal(v) => v.is_negative() && !v.is_zero() && !v.is_nan(),
        other => other.to_f64() < 0.0,
    };
    if b.is_zero() && negative {
        bail!(28764, "$pow cannot take a base of 0 and a negative exponent");
    }
    if b.is_decimal() || e.is_decimal() {
        return Ok(Value::Decimal128(b.to_decimal().pow(e.to_decimal())));
    }
    let (Some(whole), Some(power)) = (b.whole(), e.whole()) else {
        return Ok(Value::Double(b.to_f64().powf(e.to_f64())));
    };
    let ints = matches!((b, e), (Num::Int(_), Num::Int(_)));
    Ok(match whole_power(whole, power) {
        Some(result) if ints => int_or_long(result),
        Some(result) => Value::Int64(result),
        None => Value::Double(b.to_f64().powf(e.to_f64())),
    })
}

/// A power that is a long, if it is one.
fn whole_power(base: i64, power: i64) -> Option<i64> {
    match (base, power) {
        (1, _) => Some(1),
        (-1, _) => Some(if power % 2 == 0 { 1 } else { -1 }),
        (0, 1..) => Some(0),
        _ => base.checked_pow(u32::try_from(power).ok()?),
    }
}

pub(crate) fn round<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    round_with(call, env, Rounding::HalfEven)
}

pub(crate) fn trunc<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    round_with(call, env, Rounding::Truncate)
}

fn round_with<'t>(call: &'t Call, env: Env<'t>, mode: Rounding) -> Result<Value<'t>> {
    let name = call.op.name;
    let value = call.arg(0, env)?;
    let place = if call.args.len() > 1 { call.arg(1, env)? } else { Value::Int32(0) };
    if value.is_nullish() || place.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(num) = Num::of(&value) else {
        bail!(51081, "{name} only supports numeric types, not {}", value.type_name());
    };
    let whole = numeric::coerce_to_long(&place)?;
    if !kauri_bson::equal(&place, &Value::Int64(whole)) {
        bail!(51082, "precision argument to {name} must be an integral value");
    }
    let Some(place) = i32::try_from(whole).ok().filter(|p| (-20..=100).contains(p)) else {
        bail!(
            51083,
            "cannot apply {name} with precision value {whole} value must be in [-20, 100]"
        );
    };
    round_number(name, num, place, mode)
}

fn round_number(name: &str, num: Num, place: i32, mode: Rounding) -> Result<Value<'static>> {
    Ok(match num {
        Num::Decimal(v) => Value::Decimal128(quantize(v, place, mode)),
        Num::Double(v) if place == 0 || !v.is_finite() => Value::Double(match mode {
            Rounding::Truncate => v.trunc(),
            _ => v.round_ties_even(),
        }),
        Num::Double(v) => {
            let rounded = quantize(Decimal128::from_f64_precise(v), place, mode);
            Value::Double(Num::Decimal(rounded).to_f64())
        }
        whole if place >= 0 => whole.value(),
        whole => {
            let rounded = quantize(whole.to_decimal(), place, mode);
            match (numeric::decimal_to_long(rounded), whole) {
                (Some(v), Num::Int(_)) => int_or_long(v),
                (Some(v), _) => Value::Int64(v),
                (None, _) => bail!(
                    51080,
                    "invalid conversion from Decimal128 result in {name} resulting from arguments: [{}, {place}]",
                    numeric::value_text(&whole.value())
                ),
            }
        }
    })
}

/// Rounds to this many places after the point; numbers that have fewer stay as they are.
fn quantize(v: Decimal128, place: i32, mode: Rounding) -> Decimal128 {
    if !v.is_finite() {
        return v;
    }
    let quantized = v.quantize(-place, mode);
    if quantized.is_nan() { v } else { quantized }
}

/// An array is no list of arguments here.
pub(crate) fn parse_sigmoid(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    Ok(parse::call(op, vec![parser.operand(arg)?]))
}

pub(crate) fn sigmoid<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let value = call.arg(0, env)?;
    let Some(num) = Num::of(&value) else {
        if value.is_nullish() {
            return Ok(Value::Null);
        }
        bail!(TypeMismatch, "$sigmoid only supports numeric types, not {}", value.type_name());
    };
    Ok(match num {
        Num::Decimal(v) => {
            let one = Num::Int(1).to_decimal();
            Value::Decimal128(one / (one + (-v).exp()))
        }
        other => Value::Double(1.0 / (1.0 + (-other.to_f64()).exp())),
    })
}
