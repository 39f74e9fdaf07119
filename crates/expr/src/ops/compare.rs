//! `$cmp`, `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`: the comparison order, across types.

use crate::eval::Env;
use crate::node::{Call, Node};
use kauri_base::Result;
use kauri_bson::{Elem, Value};
use std::cmp::Ordering;

/// Compares two values as expressions do. The one place where a collation would come in.
#[inline]
pub(crate) fn order(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    kauri_bson::compare(a, b)
}

/// The same for elements of documents or arrays, names ignored.
#[inline]
pub(crate) fn elem_order(a: Elem<'_>, b: Elem<'_>) -> Ordering {
    kauri_bson::compare::compare_elem_values(a, b)
}

/// Whether an element equals a value.
#[inline]
pub(crate) fn elem_is(a: Elem<'_>, b: &Value<'_>) -> bool {
    kauri_bson::compare::compare_elem_with(a, b).is_eq()
}

#[inline]
fn sides(call: &Call, env: Env<'_>) -> Result<Ordering> {
    match call.args.as_ref() {
        // A constant is looked at where it is.
        [a, Node::Literal(b)] => Ok(order(&a.eval(env)?, b)),
        [a, b] => {
            let a = a.eval(env)?;
            Ok(order(&a, &b.eval(env)?))
        }
        _ => Ok(Ordering::Equal),
    }
}

pub(crate) fn cmp<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Int32(sides(call, env)? as i32))
}

pub(crate) fn eq<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(sides(call, env)?.is_eq()))
}

pub(crate) fn ne<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(sides(call, env)?.is_ne()))
}

pub(crate) fn gt<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(sides(call, env)?.is_gt()))
}

pub(crate) fn gte<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(sides(call, env)?.is_ge()))
}

pub(crate) fn lt<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(sides(call, env)?.is_lt()))
}

pub(crate) fn lte<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Bool(sides(call, env)?.is_le()))
}
