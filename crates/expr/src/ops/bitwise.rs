//! `$bitAnd`, `$bitOr`, `$bitXor`, `$bitNot`.

use crate::eval::Env;
use crate::node::Call;
use kauri_base::{Result, bail};
use kauri_bson::Value;

pub(crate) fn and<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    fold(call, env, -1, |a, b| a & b)
}

pub(crate) fn or<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    fold(call, env, 0, |a, b| a | b)
}

pub(crate) fn xor<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    fold(call, env, 0, |a, b| a ^ b)
}

/// A long among the operands makes the result one.
fn fold<'t>(
    call: &'t Call,
    env: Env<'t>,
    identity: i64,
    combine: impl Fn(i64, i64) -> i64,
) -> Result<Value<'t>> {
    let (mut bits, mut long, mut null) = (identity, false, false);
    for node in &call.args {
        match node.eval(env)? {
            Value::Int32(v) => bits = combine(bits, i64::from(v)),
            Value::Int64(v) => {
                bits = combine(bits, v);
                long = true;
            }
            value if value.is_nullish() => null = true,
            value => bail!(
                TypeMismatch,
                "{} only supports int and long operands, not {}.",
                call.op.name,
                value.type_name()
            ),
        }
    }
    Ok(match (null, long) {
        (true, _) => Value::Null,
        (_, true) => Value::Int64(bits),
        _ => Value::Int32(bits as i32),
    })
}

pub(crate) fn not<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    match call.arg(0, env)? {
        Value::Int32(v) => Ok(Value::Int32(!v)),
        Value::Int64(v) => Ok(Value::Int64(!v)),
        value if value.is_nullish() => Ok(Value::Null),
        value => {
            bail!(TypeMismatch, "$bitNot only supports int and long, not: {}.", value.type_name())
        }
    }
}
