//! Values with text that is not UTF-8: [`Value::NotUtf8`].
//!
//! Stored strings are bytes to MongoDB. Such a value keeps its raw bytes, is written back unchanged, and orders,
//! encodes and hashes by its bytes. Only code that prints a value replaces characters, by [`Value::lossy`].
//!
//! Invariant: `ty` is a type with text, `bytes` are framed as the type requires, and a part of the text is not
//! UTF-8. So a value has one representation, and `PartialEq` of `Value` stays correct.

use crate::doc::Doc;
use crate::types::Type;
use crate::value::Value;
use kauri_base::{Error, ErrorCode, Result};
use std::borrow::Cow;

/// The parts of a raw value of a type with text.
pub(crate) enum Parts<'a> {
    /// String, symbol, code.
    Text(&'a [u8]),
    /// Pattern and options.
    Regex(&'a [u8], &'a [u8]),
    /// Namespace and id.
    DbPointer(&'a [u8], [u8; 12]),
    CodeWithScope(&'a [u8], Doc<'a>),
}

/// The parts of these raw bytes. `None` for other types and where the bytes are not framed.
pub(crate) fn parts(ty: Type, bytes: &[u8]) -> Option<Parts<'_>> {
    Some(match ty {
        Type::String | Type::Symbol | Type::Code => Parts::Text(framed_text(bytes)?),
        Type::Regex => {
            let mut parts = bytes.split(|byte| *byte == 0);
            let (pattern, options) = (parts.next()?, parts.next()?);
            let framed = parts.next()?.is_empty() && parts.next().is_none();
            framed.then_some(Parts::Regex(pattern, options))?
        }
        Type::DbPointer => {
            let (namespace, id) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
            Parts::DbPointer(framed_text(namespace)?, id.try_into().ok()?)
        }
        Type::CodeWithScope => {
            let rest = bytes.get(4..)?;
            let length = i32::from_le_bytes(*rest.first_chunk()?);
            let end = usize::try_from(length).ok()?.checked_add(4)?;
            let (code, scope) = rest.split_at_checked(end)?;
            Parts::CodeWithScope(framed_text(code)?, Doc::from_bytes(scope).ok()?)
        }
        _ => return None,
    })
}

fn framed_text(bytes: &[u8]) -> Option<&[u8]> {
    let (length, text) = bytes.split_first_chunk()?;
    let framed = usize::try_from(i32::from_le_bytes(*length)).ok()? == text.len();
    let (last, text) = text.split_last()?;
    (framed && *last == 0).then_some(text)
}

/// The value of raw bytes that are no value with UTF-8 text.
#[cold]
pub(crate) fn from_raw(ty: Type, bytes: &[u8]) -> Value<'_> {
    match parts(ty, bytes) {
        Some(_) => Value::NotUtf8 { ty, bytes: Cow::Borrowed(bytes) },
        None => Value::Missing,
    }
}

impl<'a> Value<'a> {
    /// A string of these bytes.
    pub fn string_of_bytes(bytes: impl Into<Cow<'a, [u8]>>) -> Value<'a> {
        Self::text_of_bytes(Type::String, bytes.into())
    }

    /// A string, symbol or code of these bytes.
    pub(crate) fn text_of_bytes(ty: Type, bytes: Cow<'a, [u8]>) -> Value<'a> {
        let text = match bytes {
            Cow::Borrowed(bytes) => {
                std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| bytes.into())
            }
            Cow::Owned(bytes) => {
                String::from_utf8(bytes).map(Cow::Owned).map_err(|e| e.into_bytes())
            }
        };
        match (ty, text) {
            (Type::Symbol, Ok(text)) => Value::Symbol(text),
            (Type::Code, Ok(text)) => Value::Code(text),
            (_, Ok(text)) => Value::String(text),
            (ty, Err(text)) => {
                let mut bytes = Vec::with_capacity(4 + text.len() + 1);
                bytes.extend_from_slice(&(text.len() as i32 + 1).to_le_bytes());
                bytes.extend_from_slice(&text);
                bytes.push(0);
                Value::NotUtf8 { ty, bytes: Cow::Owned(bytes) }
            }
        }
    }

    /// The bytes of a string (not of a symbol or code), UTF-8 or not.
    pub fn string_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::String(text) => Some(text.as_bytes()),
            Value::NotUtf8 { ty: Type::String, bytes } => framed_text(bytes),
            _ => None,
        }
    }

    /// As [`Value::string_bytes`], borrowed for as long as the value borrows.
    pub fn into_string_bytes(self) -> std::result::Result<Cow<'a, [u8]>, Value<'a>> {
        match self {
            Value::String(Cow::Borrowed(text)) => Ok(Cow::Borrowed(text.as_bytes())),
            Value::String(Cow::Owned(text)) => Ok(Cow::Owned(text.into_bytes())),
            Value::NotUtf8 { ty: Type::String, bytes: Cow::Borrowed(bytes) } => {
                Ok(Cow::Borrowed(framed_text(bytes).unwrap_or_default()))
            }
            Value::NotUtf8 { ty: Type::String, bytes: Cow::Owned(bytes) } => {
                Ok(Cow::Owned(framed_text(&bytes).unwrap_or_default().to_vec()))
            }
            other => Err(other),
        }
    }

    /// The bytes of a string, symbol or code, UTF-8 or not.
    pub fn text_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::String(text) | Value::Symbol(text) | Value::Code(text) => Some(text.as_bytes()),
            Value::NotUtf8 { ty: Type::String | Type::Symbol | Type::Code, bytes } => {
                framed_text(bytes)
            }
            _ => None,
        }
    }

    /// The value to print: what is not UTF-8 becomes U+FFFD. Never to be stored or compared.
    pub fn lossy(&self) -> Value<'_> {
        let Value::NotUtf8 { ty, bytes } = self else { return self.borrow() };
        let text = String::from_utf8_lossy;
        match parts(*ty, bytes) {
            Some(Parts::Text(v)) if *ty == Type::Symbol => Value::Symbol(text(v)),
            Some(Parts::Text(v)) if *ty == Type::Code => Value::Code(text(v)),
            Some(Parts::Text(v)) => Value::String(text(v)),
            Some(Parts::Regex(pattern, options)) => {
                Value::Regex { pattern: text(pattern), options: text(options) }
            }
            Some(Parts::DbPointer(namespace, id)) => {
                Value::DbPointer { namespace: text(namespace), id }
            }
            Some(Parts::CodeWithScope(code, scope)) => {
                Value::CodeWithScope { code: text(code), scope: scope.into() }
            }
            None => Value::Missing,
        }
    }

    /// Whether a part of its own text (not of what is within) is not UTF-8.
    pub fn is_not_utf8(&self) -> bool {
        matches!(self, Value::NotUtf8 { .. })
    }
}

/// Code and scope of the raw bytes of code with scope, whether the code is UTF-8 or not.
pub fn code_and_scope(bytes: &[u8]) -> Option<(&[u8], Doc<'_>)> {
    match parts(Type::CodeWithScope, bytes)? {
        Parts::CodeWithScope(code, scope) => Some((code, scope)),
        _ => None,
    }
}

/// Fails where the value is text that should name a namespace and is not UTF-8.
pub fn refuse_as_namespace(value: &Value<'_>) -> Result<()> {
    match value {
        Value::NotUtf8 { ty: Type::String, .. } => Err(namespace_error(value)),
        _ => Ok(()),
    }
}

/// The error for a string that names a namespace and is not UTF-8.
pub fn namespace_error(name: &Value<'_>) -> Error {
    let name = String::from_utf8_lossy(name.string_bytes().unwrap_or_default());
    let message = format!("Invalid namespace specified '{name}': it is not valid UTF-8");
    Error::new(ErrorCode::InvalidNamespace, message)
}

/// Fails where the value is a string that is not UTF-8, which `what` must be: a name or a path. What is one of a
/// few known words is compared by [`Value::lossy`] instead, and is none of them.
pub fn refuse(value: &Value<'_>, what: &str) -> Result<()> {
    match value {
        Value::NotUtf8 { ty: Type::String, .. } => Err(error(what)),
        _ => Ok(()),
    }
}

/// The error for text that must be UTF-8: a name or a path that came as a string.
pub fn error(what: &str) -> Error {
    Error::new(ErrorCode::InvalidBSON, format!("{what} is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DocBuf, compare, doc, equal, extjson, hash_value, shell, validate};
    use std::cmp::Ordering;
    use std::hash::{DefaultHasher, Hasher};

    /// 0xFF, a lone continuation, half a surrogate pair, an overlong form, a cut character; zeros inside.
    const BAD: [&[u8]; 7] =
        [b"\xFF", b"a\x80b", b"\xED\xA0\x80", b"\xC0\x80", b"x\xE2\x82", b"\xFF\0\xFE", b"\0\xFF"];

    fn framed(text: &[u8]) -> Vec<u8> {
        [&(text.len() as i32 + 1).to_le_bytes(), text, &[0]].concat()
    }

    /// Raw values of every type with text, the text being this.
    fn with_text(text: &[u8]) -> Vec<(Type, Vec<u8>)> {
        let scope = doc! { "x" => 1 };
        let code = framed(text);
        let length = (4 + code.len() + scope.as_bytes().len()) as i32;
        let mut all = vec![
            (Type::String, framed(text)),
            (Type::Symbol, framed(text)),
            (Type::Code, framed(text)),
            (Type::DbPointer, [framed(text), vec![7; 12]].concat()),
            (Type::CodeWithScope, [&length.to_le_bytes(), &*code, scope.as_bytes()].concat()),
        ];
        if !text.contains(&0) {
            all.push((Type::Regex, [text, b"\0i\0"].concat()));
            all.push((Type::Regex, [b"i\0", text, b"\0"].concat()));
        }
        all
    }

    #[test]
    fn text_that_is_not_utf8_is_accepted_and_written_back_unchanged() {
        for (ty, raw) in BAD.into_iter().flat_map(with_text) {
            let doc = DocBuf::build(|w| w.put_raw(b"a", ty, &raw));
            let valid = validate(doc.as_bytes(), 100).unwrap();
            let value = valid.value("a");
            assert!(value.is_not_utf8(), "{value:?}");
            assert_eq!(value.ty(), Some(ty));
            assert_eq!(value.type_name(), ty.alias());
            assert_eq!(doc! { "a" => value.clone() }, doc);
            assert_eq!(doc! { "a" => value.clone().into_owned() }, doc);
            assert_eq!(doc! { "a" => value.borrow() }, doc);
            assert_eq!(value.as_str(), None);
        }
    }

    #[test]
    fn valid_text_has_no_second_representation() {
        for (ty, raw) in [&b""[..], b"a", b"\xC3\xA9", b"a\0b"].into_iter().flat_map(with_text) {
            assert!(!Value::from_raw(ty, &raw).is_not_utf8(), "{ty:?}");
        }
        assert_eq!(Value::string_of_bytes(&b"ab"[..]), Value::from("ab"));
        assert_eq!(Value::string_of_bytes(b"ab".to_vec()), Value::from("ab"));
    }

    #[test]
    fn badly_framed_text_is_refused() {
        for (ty, raw) in with_text(b"\xFF") {
            for length in 0..raw.len() {
                assert!(!Value::from_raw(ty, &raw[..length]).is_not_utf8(), "{ty:?} {length}");
            }
            let mut long = raw.clone();
            long.push(0);
            assert!(Value::from_raw(ty, &long).is_missing(), "{ty:?}");
        }
        assert!(Value::from_raw(Type::String, b"\x02\0\0\0\xFF\x01").is_missing());
        assert!(Value::from_raw(Type::Int32, b"\xFF").is_missing());
    }

    #[test]
    fn string_bytes_are_returned_unchanged() {
        for text in BAD.into_iter().chain([&b"ab"[..]]) {
            let value = Value::string_of_bytes(text);
            assert_eq!(value.string_bytes(), Some(text));
            assert_eq!(value.text_bytes(), Some(text));
            assert_eq!(value.clone().into_string_bytes().unwrap(), text);
            assert_eq!(value.into_owned().into_string_bytes().unwrap(), text);
            let symbol = framed(text);
            let symbol = Value::from_raw(Type::Symbol, &symbol);
            assert_eq!((symbol.string_bytes(), symbol.text_bytes()), (None, Some(text)));
            assert!(symbol.into_string_bytes().is_err());
        }
    }

    #[test]
    fn text_that_is_not_utf8_orders_and_hashes_by_its_bytes() {
        let hash = |value: &Value<'_>| {
            let mut hasher = DefaultHasher::new();
            hash_value(value, &mut hasher);
            hasher.finish()
        };
        let texts: Vec<&[u8]> = BAD.into_iter().chain([&b"a"[..], b"\xEF\xBF\xBD", b"z"]).collect();
        for a in &texts {
            for b in &texts {
                for (index, ((ty, a_raw), (_, b_raw))) in
                    with_text(a).into_iter().zip(with_text(b)).enumerate()
                {
                    let (a_value, b_value) =
                        (Value::from_raw(ty, &a_raw), Value::from_raw(ty, &b_raw));
                    let order = match ty {
                        Type::DbPointer => a.len().cmp(&b.len()).then(a.cmp(b)),
                        _ => a.cmp(b),
                    };
                    assert_eq!(compare(&a_value, &b_value), order, "{index} {a:?} {b:?}");
                    assert_eq!(equal(&a_value, &b_value), order == Ordering::Equal);
                    assert_eq!(hash(&a_value) == hash(&b_value), order == Ordering::Equal);
                }
            }
            let raw = framed(a);
            let (string, symbol) =
                (Value::from_raw(Type::String, &raw), Value::from_raw(Type::Symbol, &raw));
            assert!(equal(&string, &symbol));
            assert_eq!(hash(&string), hash(&symbol));
        }
    }

    #[test]
    fn only_printing_replaces_characters() {
        let value = Value::string_of_bytes(&b"a\xFFb"[..]);
        assert_eq!(shell::value_to_string(&value), "\"a\u{FFFD}b\"");
        let long = Value::string_of_bytes(vec![0xFF; 500]);
        assert!(shell::value_to_string(&long).ends_with("...\""));
        let mut json = String::new();
        extjson::write_value(&mut json, &value, extjson::Format::Relaxed);
        assert_eq!(json, "\"a\u{FFFD}b\"");
        for (ty, raw) in BAD.into_iter().flat_map(with_text) {
            let doc = DocBuf::build(|w| w.put_raw(b"a", ty, &raw));
            assert!(shell::doc_to_string(doc.as_doc()).contains('\u{FFFD}'));
            let text = extjson::doc_to_json(doc.as_doc(), extjson::Format::Canonical);
            assert!(text.contains('\u{FFFD}'), "{text}");
            assert!(format!("{doc:?}").contains("NotUtf8"), "{doc:?}");
        }
    }
}
