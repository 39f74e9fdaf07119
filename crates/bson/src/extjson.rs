//! Writes MongoDB Extended JSON v2, for log lines, diagnostics and tools.
//!
//! Canonical keeps every type. Relaxed prints numbers and dates as JSON readers expect them, and UUIDs by name, as
//! in MongoDB's log. Values nested deeper than [`DEPTH_MAX`], or than the stack allows, print as `"..."`. A
//! document in a log line is truncated to the line's limit ([`log_doc`]).

use crate::doc::{Doc, Elem};
use crate::shell::{write_hex, write_uuid};
use crate::value::Value;
use kauri_base::log::{Attr, attribute_bytes_max, civil_from_days, write_json_string};
use std::fmt::Write as _;

/// Levels of nesting that are printed.
const DEPTH_MAX: u32 = 512;
/// Bytes of the longest value of fixed size.
const DECIMAL_BYTES: usize = 16;

/// Which of the two formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Types before readability.
    Canonical,
    /// Readability before types.
    Relaxed,
}

/// The document as JSON text.
pub fn doc_to_json(doc: Doc<'_>, format: Format) -> String {
    let mut out = String::with_capacity(doc.as_bytes().len() * 2);
    write_doc(&mut out, doc, format);
    out
}

/// Appends the document as JSON text.
pub fn write_doc(out: &mut String, doc: Doc<'_>, format: Format) {
    Writer { out, format, end: usize::MAX }.members(doc, true, 0);
}

/// Adds the document to a log line, up to the limit of attributes. What begins beyond it is left out, and
/// the first such value named by its path, type and size.
pub fn log_doc(attr: Attr, key: &str, doc: Doc<'_>) -> Attr {
    let mut json = String::new();
    let end = attribute_bytes_max();
    let cut = Writer { out: &mut json, format: Format::Relaxed, end }.members(doc, true, 0);
    let mut attr = attr.json(key, json);
    if let Some(cut) = cut {
        attr.cut(key, &cut, doc.as_bytes().len());
    }
    attr
}

/// Appends the value as JSON text; a missing one as `null`.
pub fn write_value(out: &mut String, value: &Value<'_>, format: Format) {
    Writer { out, format, end: usize::MAX }.value(value, 0);
}

/// A JSON object that names the first value that was left out.
type Cut = String;

struct Writer<'o> {
    out: &'o mut String,
    format: Format,
    /// Values that would end beyond this length are left out.
    end: usize,
}

impl Writer<'_> {
    fn members(&mut self, doc: Doc<'_>, names: bool, depth: u32) -> Option<Cut> {
        if depth > DEPTH_MAX || kauri_base::work::check_stack().is_err() {
            self.out.push_str("\"...\"");
            return None;
        }
        self.out.push(if names { '{' } else { '[' });
        let mut cut = None;
        for (i, elem) in doc.iter().enumerate() {
            let start = self.out.len();
            if i > 0 {
                self.out.push(',');
            }
            if names {
                write_json_string(self.out, elem.key());
                self.out.push(':');
            }
            cut = match self.member(elem, depth + 1) {
                Ok(inner) => inner,
                Err(left_out) => {
                    self.out.truncate(start);
                    Some(left_out)
                }
            };
            if let Some(inner) = &mut cut {
                let mut path = String::from("{");
                write_json_string(&mut path, elem.key());
                *inner = format!("{path}:{inner}}}");
                break;
            }
        }
        self.out.push(if names { '}' } else { ']' });
        cut
    }

    /// The member's value. Where there is no room for any of it, an error that tells its type and size.
    fn member(&mut self, elem: Elem<'_>, depth: u32) -> Result<Option<Cut>, Cut> {
        let size = elem.value_bytes().len();
        let left_out = || format!("{{\"type\":\"{}\",\"size\":{size}}}", elem.ty().alias());
        if self.out.len() > self.end {
            return Err(left_out());
        }
        let value = elem.value();
        match &value {
            Value::Document(inner) => return Ok(self.members(inner.as_doc(), true, depth)),
            Value::Array(inner) => return Ok(self.members(inner.as_doc(), false, depth)),
            // Text is never shorter than the bytes of what can be long.
            _ if size > DECIMAL_BYTES && size > self.end - self.out.len() => return Err(left_out()),
            _ => self.value(&value, depth),
        }
        if self.out.len() > self.end { Err(left_out()) } else { Ok(None) }
    }

    fn value(&mut self, value: &Value<'_>, depth: u32) {
        let canonical = self.format == Format::Canonical;
        match value {
            Value::Missing | Value::Null => self.out.push_str("null"),
            Value::MinKey => self.out.push_str("{\"$minKey\":1}"),
            Value::MaxKey => self.out.push_str("{\"$maxKey\":1}"),
            Value::Undefined => self.out.push_str("{\"$undefined\":true}"),
            Value::Bool(v) => self.raw(format_args!("{v}")),
            Value::Int32(v) if canonical => self.raw(format_args!("{{\"$numberInt\":\"{v}\"}}")),
            Value::Int64(v) if canonical => self.raw(format_args!("{{\"$numberLong\":\"{v}\"}}")),
            Value::Int32(v) => self.raw(format_args!("{v}")),
            Value::Int64(v) => self.raw(format_args!("{v}")),
            Value::Double(v) => self.double(*v),
            Value::Decimal128(v) => self.raw(format_args!("{{\"$numberDecimal\":\"{v}\"}}")),
            Value::String(v) => write_json_string(self.out, v),
            Value::Symbol(v) => self.text_under("$symbol", v),
            Value::Code(v) => self.text_under("$code", v),
            Value::Document(v) => drop(self.members(v.as_doc(), true, depth)),
            Value::Array(v) => drop(self.members(v.as_doc(), false, depth)),
            Value::Binary { subtype, bytes } => self.binary(*subtype, bytes),
            Value::ObjectId(v) => self.object_id(v),
            Value::DateTime(v) => self.date(*v),
            Value::Timestamp(v) => self.raw(format_args!(
                "{{\"$timestamp\":{{\"t\":{},\"i\":{}}}}}",
                v.seconds, v.increment
            )),
            Value::Regex { pattern, options } => {
                self.out.push_str("{\"$regularExpression\":{\"pattern\":");
                write_json_string(self.out, pattern);
                self.out.push_str(",\"options\":");
                write_json_string(self.out, options);
                self.out.push_str("}}");
            }
            Value::DbPointer { namespace, id } => {
                self.out.push_str("{\"$dbPointer\":{\"$ref\":");
                write_json_string(self.out, namespace);
                self.out.push_str(",\"$id\":");
                self.object_id(id);
                self.out.push_str("}}");
            }
            Value::CodeWithScope { code, scope } => {
                self.out.push_str("{\"$code\":");
                write_json_string(self.out, code);
                self.out.push_str(",\"$scope\":");
                drop(self.members(scope.as_doc(), true, depth));
                self.out.push('}');
            }
            Value::NotUtf8 { .. } => self.value(&value.lossy(), depth),
        }
    }

    fn raw(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(text);
    }

    fn text_under(&mut self, name: &str, text: &str) {
        self.raw(format_args!("{{\"{name}\":"));
        write_json_string(self.out, text);
        self.out.push('}');
    }

    fn double(&mut self, value: f64) {
        let plain = self.format == Format::Relaxed && value.is_finite();
        if plain {
            return self.raw(format_args!("{value:?}"));
        }
        let special = match value {
            v if v.is_nan() => Some("NaN"),
            f64::INFINITY => Some("Infinity"),
            f64::NEG_INFINITY => Some("-Infinity"),
            _ => None,
        };
        match special {
            Some(name) => self.raw(format_args!("{{\"$numberDouble\":\"{name}\"}}")),
            None => self.raw(format_args!("{{\"$numberDouble\":\"{value:?}\"}}")),
        }
    }

    fn object_id(&mut self, id: &[u8; 12]) {
        self.out.push_str("{\"$oid\":\"");
        write_hex(self.out, id, false);
        self.out.push_str("\"}");
    }

    fn binary(&mut self, subtype: u8, bytes: &[u8]) {
        const UUID: u8 = 4;
        if self.format == Format::Relaxed && subtype == UUID && bytes.len() == 16 {
            self.out.push_str("{\"$uuid\":\"");
            write_uuid(self.out, bytes);
            self.out.push_str("\"}");
            return;
        }
        self.out.push_str("{\"$binary\":{\"base64\":\"");
        write_base64(self.out, bytes);
        self.raw(format_args!("\",\"subType\":\"{subtype:02x}\"}}}}"));
    }

    fn date(&mut self, unix_ms: i64) {
        // The last millisecond of the year 9999.
        const READABLE_MAX: i64 = 253_402_300_799_999;
        if self.format == Format::Canonical || !(0..=READABLE_MAX).contains(&unix_ms) {
            return self.raw(format_args!("{{\"$date\":{{\"$numberLong\":\"{unix_ms}\"}}}}"));
        }
        let (year, month, day) = civil_from_days(unix_ms / 86_400_000);
        let ms = unix_ms % 86_400_000;
        self.raw(format_args!(
            "{{\"$date\":\"{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z\"}}",
            ms / 3_600_000,
            ms / 60_000 % 60,
            ms / 1000 % 60,
            ms % 1000
        ));
    }
}

fn write_base64(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            if i <= chunk.len() {
                out.push(char::from(DIGITS[(word >> (18 - 6 * i) & 63) as usize]));
            } else {
                out.push('=');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doc::DocBuf;
    use crate::value::Decimal128;
    use crate::{array, doc};

    #[test]
    fn a_truncated_document_names_its_first_missing_value() {
        let cut_at = |end: usize, doc: &DocBuf| {
            let mut out = String::new();
            let mut writer = Writer { out: &mut out, format: Format::Relaxed, end };
            let cut = writer.members(doc.as_doc(), true, 0);
            (out, cut)
        };
        let doc =
            doc! { "a" => 1, "b" => array!["xx", doc! { "c" => "y".repeat(50) }, 3], "d" => 4 };
        let whole = format!(r#"{{"a":1,"b":["xx",{{"c":"{}"}},3],"d":4}}"#, "y".repeat(50));
        assert_eq!(cut_at(usize::MAX, &doc), (whole, None));
        let cut = |text: &str, path: &str| (text.to_owned(), Some(path.to_owned()));
        let of_c = r#"{"b":{"1":{"c":{"type":"string","size":55}}}}"#;
        assert_eq!(cut_at(40, &doc), cut(r#"{"a":1,"b":["xx",{}]}"#, of_c));
        let of_xx = r#"{"b":{"0":{"type":"string","size":7}}}"#;
        assert_eq!(cut_at(14, &doc), cut(r#"{"a":1,"b":[]}"#, of_xx));
        assert_eq!(cut_at(1, &doc), cut("{}", r#"{"a":{"type":"int","size":4}}"#));
        // However many values there are, what is written is a little longer than the limit at most.
        let many = DocBuf::build(|out| (0..100_000).for_each(|n| out.put(&format!("f{n}"), n)));
        let (text, path) = cut_at(1000, &many);
        assert!((990..1010).contains(&text.len()), "{}", text.len());
        assert_eq!(path.as_deref(), Some(r#"{"f110":{"type":"int","size":4}}"#));
    }

    #[test]
    fn every_type_in_both_formats() {
        let both = |value: Value<'_>, canonical: &str, relaxed: &str| {
            for (format, expected) in [(Format::Canonical, canonical), (Format::Relaxed, relaxed)] {
                let mut out = String::new();
                write_value(&mut out, &value, format);
                assert_eq!(out, expected, "{value:?}");
            }
        };
        let same = |value: Value<'_>, text: &str| both(value, text, text);
        both(1.into(), r#"{"$numberInt":"1"}"#, "1");
        both(1i64.into(), r#"{"$numberLong":"1"}"#, "1");
        both(1.0.into(), r#"{"$numberDouble":"1.0"}"#, "1.0");
        both((-0.0).into(), r#"{"$numberDouble":"-0.0"}"#, "-0.0");
        same(f64::NAN.into(), r#"{"$numberDouble":"NaN"}"#);
        same(f64::NEG_INFINITY.into(), r#"{"$numberDouble":"-Infinity"}"#);
        same(Decimal128::parse("1E+3").unwrap().into(), r#"{"$numberDecimal":"1E+3"}"#);
        same("a\"\u{1}é".into(), r#""a\"\u0001é""#);
        same(Value::Symbol("s".into()), r#"{"$symbol":"s"}"#);
        same(Value::Code("f".into()), r#"{"$code":"f"}"#);
        let scope = doc! { "x" => "y" }.into();
        same(
            Value::CodeWithScope { code: "f".into(), scope },
            r#"{"$code":"f","$scope":{"x":"y"}}"#,
        );
        same(doc! { "a" => array![true, Value::Null] }.into(), r#"{"a":[true,null]}"#);
        for (bytes, base64) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"\xff\xef\xbe", "/+++"),
        ] {
            let text = format!(r#"{{"$binary":{{"base64":"{base64}","subType":"80"}}}}"#);
            same(Value::Binary { subtype: 0x80, bytes: bytes.into() }, &text);
        }
        both(
            Value::Binary { subtype: 4, bytes: vec![0xAB; 16].into() },
            r#"{"$binary":{"base64":"q6urq6urq6urq6urq6urqw==","subType":"04"}}"#,
            r#"{"$uuid":"abababab-abab-abab-abab-abababababab"}"#,
        );
        same([0xAB; 12].into(), r#"{"$oid":"abababababababababababab"}"#);
        both(
            Value::DateTime(1_356_351_330_501),
            r#"{"$date":{"$numberLong":"1356351330501"}}"#,
            r#"{"$date":"2012-12-24T12:15:30.501Z"}"#,
        );
        same(Value::DateTime(-1), r#"{"$date":{"$numberLong":"-1"}}"#);
        same(
            Value::DateTime(253_402_300_800_000),
            r#"{"$date":{"$numberLong":"253402300800000"}}"#,
        );
        let time = kauri_base::Timestamp { seconds: 5, increment: 6 };
        same(time.into(), r#"{"$timestamp":{"t":5,"i":6}}"#);
        same(
            Value::Regex { pattern: "a/b".into(), options: "i".into() },
            r#"{"$regularExpression":{"pattern":"a/b","options":"i"}}"#,
        );
        same(
            Value::DbPointer { namespace: "a.b".into(), id: [0; 12] },
            r#"{"$dbPointer":{"$ref":"a.b","$id":{"$oid":"000000000000000000000000"}}}"#,
        );
        same(Value::MinKey, r#"{"$minKey":1}"#);
        same(Value::MaxKey, r#"{"$maxKey":1}"#);
        same(Value::Undefined, r#"{"$undefined":true}"#);
    }
}
