//! Operators without a family: sizes, `$rand`, `$meta`, timestamps, operators that the server refuses.

use crate::eval::Env;
use crate::node::{Call, Node, Prepared};
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use kauri_base::{Result, bail};
use kauri_bson::Value;

pub(crate) fn binary_size<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let value = call.arg(0, env)?;
    if let Some(text) = value.string_bytes() {
        return Ok(Value::Int32(text.len() as i32));
    }
    match value {
        Value::Binary { bytes, .. } => Ok(Value::Int32(bytes.len() as i32)),
        value if value.is_nullish() => Ok(Value::Null),
        value => bail!(
            51276,
            "$binarySize requires a string or BinData argument, found: {}",
            value.type_name()
        ),
    }
}

pub(crate) fn bson_size<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let value = call.arg(0, env)?;
    match value.as_document() {
        Some(doc) => Ok(Value::Int32(doc.as_bytes().len() as i32)),
        None if value.is_nullish() => Ok(Value::Null),
        None => bail!(31393, "$bsonSize requires a document input, found: {}", value.type_name()),
    }
}

pub(crate) fn parse_rand(_: &mut Parser<'_>, op: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let (Value::Document(doc) | Value::Array(doc)) = arg else {
        bail!(10065, "invalid parameter: expected an object ($rand)");
    };
    if !doc.as_doc().is_empty() {
        bail!(3040501, "$rand does not currently accept arguments");
    }
    Ok(parse::call(op, vec![]))
}

pub(crate) fn rand<'t>(_: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Some(random) = env.cx.random else {
        bail!(InternalError, "no source of randomness for $rand here");
    };
    // 53 random bits: every double of that spacing in [0, 1).
    Ok(Value::Double((random.next_u64() >> 11) as f64 / (1u64 << 53) as f64))
}

pub(crate) fn ts_second<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    match call.arg(0, env)? {
        Value::Timestamp(time) => Ok(Value::Int64(i64::from(time.seconds))),
        value if value.is_nullish() => Ok(Value::Null),
        value => bail!(
            5687301,
            " Argument to $tsSecond must be a timestamp, but is {}",
            value.type_name()
        ),
    }
}

pub(crate) fn ts_increment<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    match call.arg(0, env)? {
        Value::Timestamp(time) => Ok(Value::Int64(i64::from(time.increment))),
        value if value.is_nullish() => Ok(Value::Null),
        value => bail!(
            5687302,
            " Argument to $tsIncrement must be a timestamp, but is {}",
            value.type_name()
        ),
    }
}

pub(crate) fn to_hashed_index_key<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Int64(crate::hashed::hash_key(&call.arg(0, env)?)))
}

/// The names that `$meta` knows.
const META: [&str; 13] = [
    "textScore",
    "randVal",
    "searchScore",
    "searchHighlights",
    "geoNearDistance",
    "geoNearPoint",
    "recordId",
    "indexKey",
    "sortKey",
    "searchScoreDetails",
    "vectorSearchScore",
    "score",
    "scoreDetails",
];

pub(crate) fn parse_meta(_: &mut Parser<'_>, op: &'static Op, arg: &Value<'_>) -> Result<Node> {
    let arg = arg.lossy();
    let Some(name) = arg.as_str() else {
        bail!(17307, "$meta only supports string arguments");
    };
    if !META.contains(&name) {
        bail!(17308, "Unsupported argument to $meta: {name}");
    }
    Ok(parse::prepared_call(op, vec![], Prepared::Name(name.to_owned())))
}

pub(crate) fn meta<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Prepared::Name(name) = &call.prepared else { return Ok(Value::Missing) };
    Ok(env.cx.meta.map_or(Value::Missing, |source| source.meta(name)))
}

/// Server-side JavaScript, which this server has not.
pub(crate) fn parse_javascript(_: &mut Parser<'_>, op: &'static Op, _: &Value<'_>) -> Result<Node> {
    bail!(
        31264,
        "{} requires server-side JavaScript, which is not available on this server",
        op.name
    )
}

/// Is never reached: such operators are refused when they are parsed.
pub(crate) fn none<'t>(_: &'t Call, _: Env<'t>) -> Result<Value<'t>> {
    Ok(Value::Missing)
}
