//! `$type`, `$isNumber`, `$isArray`.

use crate::eval::Env;
use crate::node::Call;
use kauri_base::Result;
use kauri_bson::Value;

pub(crate) fn type_of<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(call.arg(0, env)?.type_name().into())
}

pub(crate) fn is_number<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(call.arg(0, env)?.is_number()))
}

pub(crate) fn is_array<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(call.arg(0, env)?.as_array().is_some()))
}
