//! Prints values as in MongoDB's error messages: `{ a: 1.0, b: "x" }`, `ObjectId('…')`, `new Date(0)`, `[ 1, 2 ]`.
//!
//! Long strings, code and binary data are truncated unless the caller asks for the whole. Values nested deeper than
//! [`DEPTH_MAX`], or than the stack allows, print as `...`.

use crate::doc::{Doc, Elem};
use crate::value::Value;
use kauri_base::work;
use std::fmt::Write as _;

/// Levels of nesting that are printed.
const DEPTH_MAX: u32 = 100;

/// `{ a: 1, b: "x" }`, long texts cut.
pub fn doc_to_string(doc: Doc<'_>) -> String {
    let mut out = String::new();
    write_members(&mut out, doc, true, 0);
    out
}

/// The value alone, long texts cut.
pub fn value_to_string(value: &Value<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out
}

/// `name: value`, long texts cut.
pub fn elem_to_string(elem: Elem<'_>) -> String {
    let mut out = format!("{}: ", elem.key());
    write_value(&mut out, &elem.value(), 0);
    out
}

impl std::fmt::Display for Doc<'_> {
    /// As [`doc_to_string`].
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&doc_to_string(*self))
    }
}

impl std::fmt::Display for Value<'_> {
    /// As [`value_to_string`].
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&value_to_string(self))
    }
}

fn write_members(out: &mut String, doc: Doc<'_>, names: bool, depth: u32) {
    let (open, close) = if names { ("{", "}") } else { ("[", "]") };
    if doc.is_empty() {
        out.push_str(open);
        out.push_str(close);
        return;
    }
    if depth > DEPTH_MAX || kauri_base::work::check_stack().is_err() {
        out.push_str("...");
        return;
    }
    out.push_str(open);
    for (i, elem) in doc.iter().enumerate() {
        work::tick_infallible(2);
        out.push_str(if i == 0 { " " } else { ", " });
        if names {
            out.push_str(elem.key());
            out.push_str(": ");
        }
        write_value(out, &elem.value(), depth + 1);
    }
    out.push(' ');
    out.push_str(close);
}

fn write_value(out: &mut String, value: &Value<'_>, depth: u32) {
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Missing => write!(out, "EOO"),
        Value::MinKey => write!(out, "MinKey"),
        Value::MaxKey => write!(out, "MaxKey"),
        Value::Null => write!(out, "null"),
        Value::Undefined => write!(out, "undefined"),
        Value::Bool(v) => write!(out, "{v}"),
        Value::Int32(v) => write!(out, "{v}"),
        Value::Int64(v) => write!(out, "{v}"),
        Value::Double(v) => {
            write_double(out, *v);
            Ok(())
        }
        Value::Decimal128(v) => write!(out, "{v}"),
        Value::String(v) | Value::Symbol(v) => {
            // MongoDB counts the terminating zero.
            if v.len() + 1 > 160 {
                write!(out, "\"{}...\"", cut(v, 150))
            } else {
                write!(out, "\"{v}\"")
            }
        }
        Value::Code(v) => {
            if v.len() + 1 > 80 {
                write!(out, "{}...", cut(v, 70))
            } else {
                write!(out, "{v}")
            }
        }
        Value::Document(v) => {
            write_members(out, v.as_doc(), true, depth);
            Ok(())
        }
        Value::Array(v) => {
            write_members(out, v.as_doc(), false, depth);
            Ok(())
        }
        Value::Binary { subtype, bytes } => {
            write_binary(out, *subtype, bytes);
            Ok(())
        }
        Value::ObjectId(v) => {
            out.push_str("ObjectId('");
            write_hex(out, v, false);
            write!(out, "')")
        }
        Value::DateTime(v) => write!(out, "new Date({v})"),
        Value::Timestamp(v) => write!(out, "Timestamp({}, {})", v.seconds, v.increment),
        Value::Regex { pattern, options } => write!(out, "/{pattern}/{options}"),
        Value::DbPointer { namespace, id } => {
            let _ = write!(out, "DBRef('{namespace}',");
            write_hex(out, id, false);
            write!(out, ")")
        }
        Value::CodeWithScope { code, scope } => {
            let _ = write!(out, "CodeWScope( {code}, ");
            write_members(out, scope.as_doc(), true, depth);
            write!(out, ")")
        }
        Value::NotUtf8 { .. } => {
            write_value(out, &value.lossy(), depth);
            Ok(())
        }
    };
}

/// The first `length` bytes, or a little less so as not to cut a character.
fn cut(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

fn write_binary(out: &mut String, subtype: u8, bytes: &[u8]) {
    const UUID: u8 = 4;
    if subtype == UUID && bytes.len() == 16 {
        out.push_str("UUID(\"");
        write_uuid(out, bytes);
        out.push_str("\")");
        return;
    }
    let _ = write!(out, "BinData({subtype}, ");
    if bytes.len() > 80 {
        write_hex(out, &bytes[..70], true);
        out.push_str("...)");
    } else {
        write_hex(out, bytes, true);
        out.push(')');
    }
}

/// `8-4-4-4-12` hexadecimal digits.
pub(crate) fn write_uuid(out: &mut String, bytes: &[u8]) {
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
}

/// Two digits a byte.
pub(crate) fn write_hex(out: &mut String, bytes: &[u8], upper: bool) {
    let digits = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    for byte in bytes {
        out.push(char::from(digits[usize::from(byte >> 4)]));
        out.push(char::from(digits[usize::from(byte & 15)]));
    }
}

/// A double with up to 16 digits, as `%.16g` prints it, and `.0` behind what has no point.
pub fn write_double(out: &mut String, value: f64) {
    let start = out.len();
    write_general(out, value, 16);
    if !out[start..].contains(['.', 'E', 'N']) {
        out.push_str(".0");
    }
}

/// C's `%.{digits}g`: the shorter of plain and scientific notation, without trailing zeros.
pub fn write_general(out: &mut String, value: f64, digits: usize) {
    if value.is_nan() {
        out.push_str("nan");
        return;
    }
    if value.is_infinite() {
        out.push_str(if value > 0.0 { "inf" } else { "-inf" });
        return;
    }
    let precision = digits.max(1) - 1;
    let scientific = format!("{value:.precision$e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent > precision as i32 {
        out.push_str(without_trailing_zeros(mantissa));
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    } else {
        let places = (precision as i32 - exponent).max(0) as usize;
        out.push_str(without_trailing_zeros(&format!("{value:.places$}")));
    }
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{array, doc};

    #[test]
    fn values_print_as_in_mongodb() {
        for (value, text) in [
            (doc! { "a" => 1, "b" => "x" }.into(), "{ a: 1, b: \"x\" }"),
            (doc! {}.into(), "{}"),
            (array![1, doc! { "c" => array![] }], "[ 1, { c: [] } ]"),
            (Value::Double(1.0), "1.0"),
            (Value::Double(-0.0), "-0.0"),
            (Value::Double(0.1), "0.1"),
            (Value::Double(1.0 / 3.0), "0.3333333333333333"),
            (Value::Double(123456789.125), "123456789.125"),
            (Value::Double(1e20), "1e+20.0"),
            (Value::Double(1.5e-7), "1.5e-07"),
            (Value::Double(1e16), "1e+16.0"),
            (Value::Double(1e15), "1000000000000000.0"),
            (Value::Double(f64::NAN), "nan.0"),
            (Value::Int64(-3), "-3"),
            (Value::ObjectId([0xAB; 12]), "ObjectId('abababababababababababab')"),
            (Value::DateTime(-5), "new Date(-5)"),
            (Value::Binary { subtype: 0, bytes: vec![0xAB, 1].into() }, "BinData(0, AB01)"),
            (
                Value::Binary { subtype: 4, bytes: vec![0x1F; 16].into() },
                "UUID(\"1f1f1f1f-1f1f-1f1f-1f1f-1f1f1f1f1f1f\")",
            ),
            (Value::Regex { pattern: "^a".into(), options: "i".into() }, "/^a/i"),
            (
                Value::CodeWithScope { code: "f".into(), scope: doc! { "x" => 1 }.into() },
                "CodeWScope( f, { x: 1 })",
            ),
            (Value::MinKey, "MinKey"),
        ] {
            assert_eq!(value_to_string(&value), text);
        }
        let long = Value::from("é".repeat(80));
        assert_eq!(value_to_string(&long), format!("\"{}...\"", "é".repeat(75)));
    }

    #[test]
    fn deep_documents_are_truncated() {
        let mut doc = doc! {};
        for _ in 0..1000 {
            doc = doc! { "a" => doc };
        }
        assert!(doc_to_string(doc.as_doc()).contains("..."));
    }
}
