//! `$and`, `$or`, `$not`.

use crate::eval::Env;
use crate::node::Call;
use kauri_base::Result;
use kauri_bson::Value;

pub(crate) fn and<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    for node in &call.args {
        if !node.eval(env)?.truthy() {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

pub(crate) fn or<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    for node in &call.args {
        if node.eval(env)?.truthy() {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

pub(crate) fn not<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(!call.arg(0, env)?.truthy()))
}
