//! Conversions to numbers: from numbers of other types, from text, dates and bytes.

use crate::numeric::{Num, value_text};
use crate::ops::convert::failed;
use kauri_base::Result;
use kauri_bson::bid::Parts;
use kauri_bson::decimal::Rounding;
use kauri_bson::{Decimal128, Value};

/// An int; `None` where the type does not convert.
pub(crate) fn to_int(input: &Value<'_>, big_endian: bool) -> Result<Option<i32>> {
    let wide = match input {
        Value::DateTime(_) => return Ok(None),
        Value::Binary { bytes, .. } => {
            return match *bytes_of(bytes, big_endian).as_slice() {
                [a] => Ok(Some(i32::from(i8::from_le_bytes([a])))),
                [a, b] => Ok(Some(i32::from(i16::from_le_bytes([a, b])))),
                [a, b, c, d] => Ok(Some(i32::from_le_bytes([a, b, c, d]))),
                _ => Err(wrong_length(bytes, "int")),
            };
        }
        other => to_long(other, big_endian)?,
    };
    match wide.map(i32::try_from) {
        None => Ok(None),
        Some(Ok(v)) => Ok(Some(v)),
        Some(Err(_)) => Err(overflow(input)),
    }
}

/// A long.
pub(crate) fn to_long(input: &Value<'_>, big_endian: bool) -> Result<Option<i64>> {
    match input {
        Value::Bool(v) => Ok(Some(i64::from(*v))),
        Value::DateTime(ms) => Ok(Some(*ms)),
        Value::String(text) => parse_long(text).map(Some),
        Value::Binary { bytes, .. } => match *bytes_of(bytes, big_endian).as_slice() {
            [a] => Ok(Some(i64::from(i8::from_le_bytes([a])))),
            [a, b] => Ok(Some(i64::from(i16::from_le_bytes([a, b])))),
            [a, b, c, d] => Ok(Some(i64::from(i32::from_le_bytes([a, b, c, d])))),
            [a, b, c, d, e, f, g, h] => Ok(Some(i64::from_le_bytes([a, b, c, d, e, f, g, h]))),
            _ => Err(wrong_length(bytes, "long")),
        },
        other => match Num::of(other) {
            None => Ok(None),
            Some(num) => truncated(num).map(Some).ok_or_else(|| overflow(input)),
        },
    }
}

/// The whole part, if it is a long.
fn truncated(num: Num) -> Option<i64> {
    match num {
        Num::Int(v) => Some(i64::from(v)),
        Num::Long(v) => Some(v),
        Num::Double(v) => Value::Double(v.trunc()).as_i64_exact(),
        Num::Decimal(v) => {
            let whole = v.round_to_integral(Rounding::Truncate);
            matches!(whole.parts(), Parts::Finite { .. })
                .then(|| Value::Decimal128(whole).as_i64_exact())
                .flatten()
        }
    }
}

/// A double.
pub(crate) fn to_double(input: &Value<'_>, big_endian: bool) -> Result<Option<f64>> {
    match input {
        Value::Bool(v) => Ok(Some(f64::from(u8::from(*v)))),
        Value::DateTime(ms) => Ok(Some(*ms as f64)),
        Value::String(text) => parse_double(text).map(Some),
        Value::Binary { bytes, .. } => match *bytes_of(bytes, big_endian).as_slice() {
            [a, b, c, d] => Ok(Some(f64::from(f32::from_le_bytes([a, b, c, d])))),
            [a, b, c, d, e, f, g, h] => Ok(Some(f64::from_le_bytes([a, b, c, d, e, f, g, h]))),
            _ => Err(wrong_length(bytes, "double")),
        },
        Value::Decimal128(v) => {
            let double = Num::Decimal(*v).to_f64();
            if double.is_infinite() && v.is_finite() {
                return Err(failed(format!(
                    "Conversion would overflow target type in $convert with no onError value: {v}"
                )));
            }
            Ok(Some(double))
        }
        other => Ok(Num::of(other).map(Num::to_f64)),
    }
}

/// A decimal.
pub(crate) fn to_decimal(input: &Value<'_>) -> Result<Option<Decimal128>> {
    match input {
        Value::Bool(v) => Ok(Some(Decimal128::from(i64::from(*v)))),
        Value::DateTime(ms) => Ok(Some(Decimal128::from(*ms))),
        Value::String(text) => match Decimal128::parse(text) {
            Ok(v) => Ok(Some(v)),
            Err(error) => Err(unparsed(text, error.message())),
        },
        other => Ok(Num::of(other).map(Num::to_decimal)),
    }
}

fn overflow(input: &Value<'_>) -> kauri_base::Error {
    failed(format!(
        "Conversion would overflow target type in $convert with no onError value: {}",
        value_text(input)
    ))
}

fn wrong_length(bytes: &[u8], to: &str) -> kauri_base::Error {
    failed(format!("Failed to convert binData of {} bytes to {to} in $convert", bytes.len()))
}

fn unparsed(text: &str, reason: &str) -> kauri_base::Error {
    failed(format!(
        "Failed to parse number {} in $convert with no onError value: {reason}",
        value_text(&text.into())
    ))
}

/// At most eight bytes, the lowest first; others as they are.
fn bytes_of(bytes: &[u8], big_endian: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> = bytes.iter().take(9).copied().collect();
    if big_endian {
        bytes.reverse();
    }
    bytes
}

/// Digits with an optional sign, nothing else.
fn parse_long(text: &str) -> Result<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(unparsed(text, "Did not consume whole string."));
    }
    text.parse().map_err(|_| unparsed(text, "Overflow"))
}

fn parse_double(text: &str) -> Result<f64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let value = parse_hex_double(hex).ok_or_else(|| unparsed(text, "Bad digit"))?;
        return Ok(if negative { -value } else { value });
    }
    let value: f64 = text.parse().map_err(|_| unparsed(text, "Did not consume whole string."))?;
    let named = digits.starts_with(|c: char| c.is_ascii_alphabetic());
    if value.is_infinite() && !named {
        return Err(unparsed(text, "Out of range"));
    }
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    if value == 0.0 && mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        return Err(unparsed(text, "Out of range"));
    }
    Ok(value)
}

/// `1.8p1`: C's hexadecimal doubles, without the `0x`.
fn parse_hex_double(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Sixteen significant digits are more than a double holds; the rest only shifts.
    let (mut bits, mut shift, mut sticky) = (0u64, 0i32, false);
    for (digit, behind_point) in
        whole.chars().map(|c| (c, false)).chain(fraction.chars().map(|c| (c, true)))
    {
        let digit = u64::from(digit.to_digit(16)?);
        if bits >> 56 == 0 {
            bits = bits << 4 | digit;
            shift -= if behind_point { 4 } else { 0 };
        } else {
            sticky |= digit != 0;
            shift += if behind_point { 0 } else { 4 };
        }
    }
    let bits = bits | u64::from(sticky);
    let scale = shift.saturating_add(exponent).clamp(-3000, 3000);
    // In two steps, so that a subnormal result is rounded once.
    let half = scale / 2;
    Some(bits as f64 * 2f64.powi(half) * 2f64.powi(scale - half))
}

/// The shortest text that reads back as the same double: `3`, `0.1`, `1e+16`, `5e-324`.
pub(crate) fn double_text(v: f64) -> String {
    if v.is_nan() {
        return "NaN".to_owned();
    }
    if v.is_infinite() {
        return if v > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{v:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => format!("{v}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_read_and_written() {
        let cases = [
            ("+0x1.8p1", Some(3.0)),
            ("-0x1p-1074", Some(-5e-324)),
            ("0xff", Some(255.0)),
            ("0x1.00000000000008p0", Some(1.0)),
            ("0x1.000000000000080001p0", Some(1.0000000000000002)),
            ("0x", None),
            ("0x1p", None),
            ("0x.p0", None),
            ("1.5e3", Some(1500.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("1e309", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            (" 1", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_double(text).ok(), expected, "{text}");
        }
        let cases = [
            (3.0, "3"),
            (-0.0, "-0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e15, "1000000000000000"),
            (1e16, "1e+16"),
            (1e-4, "0.0001"),
            (9e-5, "9e-05"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ];
        for (v, expected) in cases {
            assert_eq!(double_text(v), expected);
        }
    }
}
