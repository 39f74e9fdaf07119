//! `$convert` and its short forms `$toInt`, `$toString`, …

use crate::date::civil::{self, Civil};
use crate::date::time_zone::TimeZone;
use crate::encode;
use crate::eval::Env;
use crate::node::{Call, Node, Prepared};
use crate::numeric::{Num, value_text};
use crate::ops::convert_number as number;
use crate::ops::date::as_ms;
use crate::ops::date_text::parse_date;
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use crate::value;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, Type, Value};

/// How bytes are written as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Auto,
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
}

/// The target of a conversion, and its options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// `None` stands for the type code 0, to which nothing converts.
    ty: Option<Type>,
    subtype: u8,
    format: Option<Format>,
    big_endian: bool,
}

/// Arguments in order: input, to, onError, onNull, format, byteOrder.
pub(crate) fn parse_convert(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(
            FailedToParse,
            "$convert expects an object of named arguments but found: {}",
            arg.type_name()
        );
    };
    let names = ["input", "to", "onError", "onNull", "format", "byteOrder"];
    let args = parser.named(doc, &names, |field| {
        Error::failed_to_parse(format!("$convert found an unknown argument: {field}"))
    })?;
    match args.as_slice() {
        [Node::Absent, ..] => bail!(FailedToParse, "Missing 'input' parameter to $convert"),
        [_, Node::Absent, ..] => bail!(FailedToParse, "Missing 'to' parameter to $convert"),
        _ => Ok(parse::call(op, args)),
    }
}

/// `$toInt` and its like: one argument; the target is prepared.
pub(crate) fn parse_short(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let args = parser.list(arg)?;
    if args.len() != 1 {
        bail!(50723, "{} requires a single argument, got {}", op.name, args.len());
    }
    let (ty, subtype, format) = match op.name {
        "$toBool" => (Type::Bool, 0, None),
        "$toDate" => (Type::DateTime, 0, None),
        "$toDecimal" => (Type::Decimal128, 0, None),
        "$toDouble" => (Type::Double, 0, None),
        "$toInt" => (Type::Int32, 0, None),
        "$toLong" => (Type::Int64, 0, None),
        "$toObjectId" => (Type::ObjectId, 0, None),
        "$toUUID" => (Type::Binary, 4, Some(Format::Uuid)),
        _ => (Type::String, 0, Some(Format::Auto)),
    };
    let target = Target { ty: Some(ty), subtype, format, big_endian: false };
    Ok(parse::prepared_call(op, args, Prepared::Target(target)))
}

pub(crate) fn short<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let Prepared::Target(target) = &call.prepared else { return Ok(Value::Null) };
    let input = call.arg(0, env)?;
    if input.is_nullish() {
        return Ok(Value::Null);
    }
    convert(input, target)
}

pub(crate) fn convert_call<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let (input, to) = (call.arg(0, env)?, call.arg(1, env)?);
    let given = |at: usize| call.args.get(at).filter(|node| !node.is_absent());
    if input.is_nullish() {
        return given(3).map_or(Ok(Value::Null), |on_null| on_null.eval(env));
    }
    if to.is_nullish() {
        return Ok(Value::Null);
    }
    let mut target = target_of(&to)?;
    target.format = format_of(&call.arg(4, env)?)?;
    target.big_endian = byte_order(&call.arg(5, env)?)?;
    match (convert(input, &target), given(2)) {
        (Err(error), Some(on_error)) if error.code().number() != MISSING_FORMAT => {
            on_error.eval(env)
        }
        (result, _) => result,
    }
}

const MISSING_FORMAT: i32 = 4341115;

fn target_of(to: &Value<'_>) -> Result<Target> {
    let plain = |ty| Target { ty, subtype: 0, format: None, big_endian: false };
    let Some(doc) = to.as_document() else {
        return Ok(plain(type_of(to)?));
    };
    let ty = doc.value("type");
    if ty.is_nullish() {
        bail!(FailedToParse, "$convert's 'to' argument must have a 'type'");
    }
    let ty = type_of(&ty)?;
    let subtype = if ty == Some(Type::Binary) { subtype_of(doc)? } else { 0 };
    Ok(Target { subtype, ..plain(ty) })
}

fn type_of(to: &Value<'_>) -> Result<Option<Type>> {
    let to = &to.lossy();
    if let Some(name) = to.as_str() {
        return match Type::from_alias(name) {
            Some(ty) => Ok(Some(ty)),
            None => bail!(BadValue, "Unknown type name: {name}"),
        };
    }
    if !to.is_number() {
        bail!(
            FailedToParse,
            "$convert's 'to' argument must be a string or number, but is {}",
            to.type_name()
        );
    }
    let Some(code) = to.as_i64_exact() else {
        bail!(FailedToParse, "In $convert, numeric 'to' argument is not an integer");
    };
    let byte = match code {
        -1 => Some(Type::MinKey as u8),
        255 => None,
        code => u8::try_from(code).ok(),
    };
    match byte.and_then(Type::from_byte) {
        Some(ty) => Ok(Some(ty)),
        None if code == 0 => Ok(None),
        None => bail!(
            FailedToParse,
            "In $convert, numeric value for 'to' does not correspond to a BSON type: {code}"
        ),
    }
}

fn subtype_of(to: Doc<'_>) -> Result<u8> {
    let value = to.value("subtype");
    if value.is_missing() {
        return Ok(0);
    }
    if !value.is_number() {
        bail!(
            4341108,
            "$convert's 'subtype' argument must be a number, but is {}",
            value.type_name()
        );
    }
    let Some(code) = value.as_i64_exact().filter(|code| i32::try_from(*code).is_ok()) else {
        bail!(4341106, "In $convert, numeric 'subtype' argument is not an integer");
    };
    match u8::try_from(code) {
        Ok(subtype) if subtype <= 9 || subtype >= 128 => Ok(subtype),
        _ => bail!(
            4341107,
            "In $convert, numeric value for 'subtype' does not correspond to a BinData type: {code}"
        ),
    }
}

fn format_of(value: &Value<'_>) -> Result<Option<Format>> {
    if value.is_nullish() {
        return Ok(None);
    }
    let value = value.lossy();
    let Some(name) = value.as_str() else {
        bail!(4341114, "$convert requires that 'format' be a string, found: {}", value.type_name());
    };
    Ok(Some(match name {
        "auto" => Format::Auto,
        "base64" => Format::Base64,
        "base64url" => Format::Base64Url,
        "hex" => Format::Hex,
        "utf8" => Format::Utf8,
        "uuid" => Format::Uuid,
        _ => bail!(4341125, "Invalid 'format' argument for $convert: {name}"),
    }))
}

fn byte_order(value: &Value<'_>) -> Result<bool> {
    if value.is_nullish() {
        return Ok(false);
    }
    match value.lossy().as_str() {
        Some("little") => Ok(false),
        Some("big") => Ok(true),
        Some(name) => bail!(9130002, "Invalid 'byteOrder' argument for $convert: {name}"),
        None => bail!(
            9130001,
            "$convert requires that 'byteOrder' be a string, found: {}",
            value.type_name()
        ),
    }
}

/// A conversion that failed.
pub(crate) fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::ConversionFailure, message)
}

/// Converts a value that is not null.
fn convert<'v>(input: Value<'v>, target: &Target) -> Result<Value<'v>> {
    let unsupported = |input: &Value<'_>, to: &str| {
        let from = input.type_name();
        failed(format!(
            "Unsupported conversion from {from} to {to} in $convert with no onError value"
        ))
    };
    let Some(ty) = target.ty else { return Err(unsupported(&input, "missing")) };
    let is_parsed = !matches!(ty, Type::Bool | Type::String | Type::Binary);
    if is_parsed && input.is_not_utf8() && input.string_bytes().is_some() {
        return Err(failed(format!(
            "Failed to parse '{}' in $convert with no onError value: the string is not valid UTF-8",
            value_text(&input)
        )));
    }
    let converted = match ty {
        Type::Bool => Some(Value::Bool(match &input {
            Value::Bool(v) => *v,
            other => Num::of(other).is_none_or(|num| !num.is_zero()),
        })),
        Type::Int32 => number::to_int(&input, target.big_endian)?.map(Value::Int32),
        Type::Int64 => number::to_long(&input, target.big_endian)?.map(Value::Int64),
        Type::Double => number::to_double(&input, target.big_endian)?.map(Value::Double),
        Type::Decimal128 => number::to_decimal(&input)?.map(Value::Decimal128),
        Type::DateTime => to_date(&input)?.map(Value::DateTime),
        Type::ObjectId => to_object_id(&input)?.map(Value::ObjectId),
        Type::Binary => to_binary(&input, target)?,
        Type::String => match input {
            ref text if text.string_bytes().is_some() => return Ok(input),
            ref other => to_string(other, target.format)?,
        },
        _ => None,
    };
    converted.ok_or_else(|| unsupported(&input, ty.alias()))
}

fn to_date(input: &Value<'_>) -> Result<Option<i64>> {
    Ok(match input {
        Value::Int64(ms) => Some(*ms),
        Value::Double(_) | Value::Decimal128(_) => number::to_long(input, false)?,
        Value::String(text) => Some(parse_date(text, None, &TimeZone::Utc)?),
        other => as_ms(other),
    })
}

fn to_object_id(input: &Value<'_>) -> Result<Option<[u8; 12]>> {
    match input {
        Value::ObjectId(id) => Ok(Some(*id)),
        Value::String(text) => {
            let bytes = (text.len() == 24).then(|| encode::from_hex(text)).flatten();
            match bytes.and_then(|bytes| bytes.try_into().ok()) {
                Some(id) => Ok(Some(id)),
                None => Err(failed(format!(
                    "Failed to parse objectId '{}' in $convert with no onError value: Invalid string length for parsing to OID, expected 24 but found {}",
                    value_text(input),
                    text.len()
                ))),
            }
        }
        _ => Ok(None),
    }
}

fn to_string(input: &Value<'_>, format: Option<Format>) -> Result<Option<Value<'static>>> {
    let text = match input {
        Value::Bool(v) => v.to_string(),
        Value::Int32(v) => v.to_string(),
        Value::Int64(v) => v.to_string(),
        Value::Double(v) => number::double_text(*v),
        Value::Decimal128(v) => v.to_string(),
        Value::ObjectId(id) => encode::hex_lower(id),
        Value::DateTime(ms) => {
            let year = Civil::of_ms(*ms).year;
            if !(0..=9999).contains(&year) {
                bail!(18537, "$convert is only defined on year 0-9999, tried to use year {year}");
            }
            civil::iso_text(*ms)
        }
        Value::Binary { subtype, bytes } => binary_text(*subtype, bytes, format)?,
        _ => return Ok(None),
    };
    value::text(text).map(Some)
}

fn binary_text(subtype: u8, bytes: &[u8], format: Option<Format>) -> Result<String> {
    const UUID: u8 = 4;
    let Some(format) = format else {
        bail!(4341115, "$convert from binData to string needs a 'format'");
    };
    let uuid = || {
        encode::uuid(bytes).filter(|_| subtype == UUID).ok_or_else(|| {
            failed("Input is not a valid UUID: binData of subtype 4 and 16 bytes is needed")
        })
    };
    let length = match format {
        Format::Hex => bytes.len() * 2,
        Format::Utf8 => 0,
        _ => bytes.len().div_ceil(3) * 4,
    };
    if value::check_text(length).is_err() {
        return Err(failed(format!("Resulting string of {length} bytes exceeds the size limit")));
    }
    match format {
        Format::Auto if subtype == UUID && bytes.len() == 16 => uuid(),
        Format::Auto | Format::Base64 => Ok(encode::base64(bytes, false)),
        Format::Base64Url => Ok(encode::base64(bytes, true)),
        Format::Hex => Ok(encode::hex_upper(bytes)),
        Format::Uuid => uuid(),
        Format::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(failed("BinData does not represent a valid UTF-8 string")),
        },
    }
}

fn to_binary<'v>(input: &Value<'v>, target: &Target) -> Result<Option<Value<'v>>> {
    let order = |little: &[u8]| {
        let mut bytes = little.to_vec();
        if target.big_endian {
            bytes.reverse();
        }
        bytes
    };
    let bytes = match input {
        Value::Int32(v) => order(&v.to_le_bytes()),
        Value::Int64(v) => order(&v.to_le_bytes()),
        Value::Double(v) => order(&v.to_le_bytes()),
        text if text.string_bytes().is_some() => {
            text_bytes(text.string_bytes().unwrap_or_default(), target)?
        }
        Value::Binary { subtype, bytes } => {
            if *subtype != target.subtype {
                return Err(failed(
                    "Conversions between different binData subtypes are not supported",
                ));
            }
            return Ok(Some(Value::Binary { subtype: *subtype, bytes: bytes.clone() }));
        }
        _ => return Ok(None),
    };
    Ok(Some(Value::Binary { subtype: target.subtype, bytes: bytes.into() }))
}

fn text_bytes(given: &[u8], target: &Target) -> Result<Vec<u8>> {
    const UUID: u8 = 4;
    let Some(format) = target.format else {
        bail!(4341115, "$convert from string to binData needs a 'format'");
    };
    // A replaced character is in none of the formats that are read as text.
    let text = String::from_utf8_lossy(given);
    let text = &*text;
    let bytes = match format {
        Format::Auto => None,
        Format::Base64 => encode::from_base64(text, false),
        Format::Base64Url => encode::from_base64(text, true),
        Format::Hex => encode::from_hex(text),
        Format::Utf8 => Some(given.to_vec()),
        Format::Uuid => encode::from_uuid(text).filter(|_| target.subtype == UUID),
    };
    // The subtype of UUIDs takes nothing else.
    let fits = |_: &Vec<u8>| target.subtype != UUID || format == Format::Uuid;
    bytes.filter(fits).ok_or_else(|| {
        failed(format!(
            "Failed to convert '{}' to binData in $convert with no onError value: Input is not a valid {format:?} string",
            value_text(&text.into())
        ))
    })
}
