//! `$dateToString`, `$dateFromString`.

use crate::date::format::{self, Use};
use crate::date::text::{self, Offset};
use crate::date::time_zone::TimeZone;
use crate::eval::Env;
use crate::node::{Call, Node};
use crate::numeric::value_text;
use crate::ops::date::{check_zone, to_ms, zone_arg};
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use crate::value;
use kauri_base::{Error, ErrorCode, Result, bail, work};
use kauri_bson::Value;
use std::borrow::Cow;

/// Arguments in order: date, timezone, format, onNull.
pub(crate) fn parse_to_string(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(18629, "$dateToString only supports an object as its argument");
    };
    let args = parser.named(doc, &["date", "timezone", "format", "onNull"], |field| {
        Error::location(18534, format!("Unrecognized argument to $dateToString: {field}"))
    })?;
    if args.first().is_none_or(Node::is_absent) {
        bail!(18628, "Missing 'date' parameter to $dateToString");
    }
    Ok(parse::call(op, args))
}

pub(crate) fn prepare_to_string(call: &mut Call) -> Result<()> {
    check_zone(call, 1)?;
    match call.args.get(2) {
        Some(Node::Literal(value)) => to_string_format(value).map(drop),
        _ => Ok(()),
    }
}

/// The format; `None` where it is null.
fn to_string_format<'v>(value: &'v Value<'_>) -> Result<Option<&'v str>> {
    match value {
        Value::String(text) => {
            work::tick_bytes(text.len())?;
            format::check(text, Use::Writing)?;
            Ok(Some(text))
        }
        value if value.is_nullish() => Ok(None),
        value => bail!(
            18533,
            "$dateToString requires that 'format' be a string, found: {} with value {}",
            value.type_name(),
            value_text(value)
        ),
    }
}

pub(crate) fn to_string<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let date = call.arg(0, env)?;
    let given = match call.args.get(2) {
        None | Some(Node::Absent) => None,
        Some(node) => Some(node.eval(env)?),
    };
    let format = match &given {
        Some(value) => Some(to_string_format(value)?),
        None => None,
    };
    let zone = zone_arg(call, 1, env)?;
    if date.is_nullish() {
        return match call.args.get(3) {
            None | Some(Node::Absent) => Ok(Value::Null),
            Some(on_null) => on_null.eval(env),
        };
    }
    let Some(zone) = zone else { return Ok(Value::Null) };
    let format = match format {
        Some(Some(format)) => format,
        Some(None) => return Ok(Value::Null),
        None => format::iso(&zone),
    };
    value::text(format::write(to_ms(&date)?, &zone, format)?)
}

/// Arguments in order: dateString, timezone, format, onNull, onError.
pub(crate) fn parse_from_string(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(
            40540,
            "$dateFromString only supports an object as an argument, found: {}",
            arg.type_name()
        );
    };
    let names = ["dateString", "timezone", "format", "onNull", "onError"];
    let args = parser.named(doc, &names, |field| {
        Error::location(40541, format!("Unrecognized argument to $dateFromString: {field}"))
    })?;
    if args.first().is_none_or(Node::is_absent) {
        bail!(40542, "Missing 'dateString' parameter to $dateFromString");
    }
    Ok(parse::call(op, args))
}

pub(crate) fn prepare_from_string(call: &mut Call) -> Result<()> {
    check_zone(call, 1)?;
    match call.args.get(2) {
        Some(Node::Literal(value)) => from_string_format(value).map(drop),
        _ => Ok(()),
    }
}

fn from_string_format<'v>(value: &'v Value<'_>) -> Result<Option<&'v str>> {
    match value {
        Value::String(text) => {
            format::check(text, Use::Reading)?;
            Ok(Some(text))
        }
        value if value.is_nullish() => Ok(None),
        value => bail!(
            40684,
            "$dateFromString requires that 'format' be a string, found: {} with value {}",
            value.type_name(),
            value_text(value)
        ),
    }
}

pub(crate) fn from_string<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let given = match call.args.get(2) {
        None | Some(Node::Absent) => None,
        Some(node) => Some(node.eval(env)?),
    };
    let format = match &given {
        Some(value) => Some(from_string_format(value)?),
        None => None,
    };
    let text = call.arg(0, env)?;
    if text.is_nullish() {
        return match call.args.get(3) {
            None | Some(Node::Absent) => Ok(Value::Null),
            Some(on_null) => on_null.eval(env),
        };
    }
    let Some(zone) = zone_arg(call, 1, env)? else { return Ok(Value::Null) };
    let format = match format {
        Some(None) => return Ok(Value::Null),
        other => other.flatten(),
    };
    let read = match &text {
        Value::String(text) => parse_date(text, format, &zone),
        text if text.string_bytes().is_some() => Err(Error::new(
            ErrorCode::ConversionFailure,
            format!("Error parsing date string {}; it is not valid UTF-8", value_text(text)),
        )),
        other => Err(Error::new(
            ErrorCode::ConversionFailure,
            format!(
                "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
                other.type_name(),
                value_text(other)
            ),
        )),
    };
    match (read, call.args.get(4)) {
        (Ok(ms), _) => Ok(Value::DateTime(ms)),
        (Err(error), Some(on_error))
            if error.code() == ErrorCode::ConversionFailure && !on_error.is_absent() =>
        {
            on_error.eval(env)
        }
        (Err(error), _) => Err(error),
    }
}

/// Reads a date, by a format or freely. A zone in the text and one beside it are too many.
pub(crate) fn parse_date(text: &str, format: Option<&str>, zone: &TimeZone) -> Result<i64> {
    let failed = |reason: &str| {
        let message = format!("Error parsing date string '{}'; {reason}", shortened(text));
        Error::new(ErrorCode::ConversionFailure, message)
    };
    let moment = match format {
        Some(format) => format::read(text, format),
        None => text::read(text),
    };
    let moment = moment.map_err(|reason| failed(&reason))?;
    if !zone.is_utc() {
        match moment.offset {
            None => {}
            Some(Offset::Seconds(_)) => {
                return Err(failed(
                    "you cannot pass in a date/time string with GMT offset together with a timezone argument",
                ));
            }
            Some(Offset::Named(_)) => {
                return Err(failed(
                    "you cannot pass in a date/time string with time zone information together with a timezone argument",
                ));
            }
        }
    }
    moment.to_utc(zone).ok_or_else(|| failed("the date is out of range"))
}

fn shortened(text: &str) -> Cow<'_, str> {
    const LENGTH_MAX: usize = 100;
    match text.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}...", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}
