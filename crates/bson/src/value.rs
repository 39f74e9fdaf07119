//! One BSON value, borrowed where possible.

use crate::doc::{Doc, DocBuf, DocCow};
use crate::not_utf8;
use crate::types::Type;
use kauri_base::Timestamp;
use std::borrow::Cow;

/// IEEE 754-2008 decimal128 in BSON's encoding (binary integer decimal, little endian).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal128(pub [u8; 16]);

/// A value of any BSON type, or none.
///
/// `PartialEq` is equality of representation (`Int32(1) != Double(1.0)`); the query language's
/// equality is `compare`.
#[derive(Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value<'a> {
    /// No value: a field that is not there.
    Missing,
    MinKey,
    MaxKey,
    Null,
    Undefined,
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Double(f64),
    Decimal128(Decimal128),
    String(Cow<'a, str>),
    Symbol(Cow<'a, str>),
    Code(Cow<'a, str>),
    Document(DocCow<'a>),
    Array(DocCow<'a>),
    Binary {
        subtype: u8,
        bytes: Cow<'a, [u8]>,
    },
    ObjectId([u8; 12]),
    /// Milliseconds since 1970.
    DateTime(i64),
    Timestamp(Timestamp),
    Regex {
        pattern: Cow<'a, str>,
        options: Cow<'a, str>,
    },
    DbPointer {
        namespace: Cow<'a, str>,
        id: [u8; 12],
    },
    CodeWithScope {
        code: Cow<'a, str>,
        scope: DocCow<'a>,
    },
    /// A string, symbol, code, regular expression or pointer whose text is not UTF-8, as raw value bytes
    /// (see [`crate::not_utf8`]).
    NotUtf8 {
        ty: Type,
        bytes: Cow<'a, [u8]>,
    },
}

impl<'a> Value<'a> {
    /// The value that these bytes hold. Malformed bytes (which validation refuses) give `Missing`; text
    /// that is not UTF-8 gives `NotUtf8`.
    #[inline]
    pub fn from_raw(ty: Type, bytes: &'a [u8]) -> Value<'a> {
        match Self::try_from_raw(ty, bytes) {
            Some(value) => value,
            None => not_utf8::from_raw(ty, bytes),
        }
    }

    #[inline]
    fn try_from_raw(ty: Type, bytes: &'a [u8]) -> Option<Value<'a>> {
        Some(match ty {
            Type::Double => Value::Double(f64::from_le_bytes(bytes.try_into().ok()?)),
            Type::Int32 => Value::Int32(i32::from_le_bytes(bytes.try_into().ok()?)),
            Type::Int64 => Value::Int64(i64::from_le_bytes(bytes.try_into().ok()?)),
            Type::Bool => Value::Bool(*bytes.first()? != 0),
            Type::Null => Value::Null,
            Type::Undefined => Value::Undefined,
            Type::MinKey => Value::MinKey,
            Type::MaxKey => Value::MaxKey,
            Type::String => Value::String(Cow::Borrowed(text(bytes)?)),
            Type::Symbol => Value::Symbol(Cow::Borrowed(text(bytes)?)),
            Type::Code => Value::Code(Cow::Borrowed(text(bytes)?)),
            Type::Document => Value::Document(Doc::from_bytes(bytes).ok()?.into()),
            Type::Array => Value::Array(Doc::from_bytes(bytes).ok()?.into()),
            Type::ObjectId => Value::ObjectId(bytes.try_into().ok()?),
            Type::DateTime => Value::DateTime(i64::from_le_bytes(bytes.try_into().ok()?)),
            Type::Timestamp => {
                let raw = u64::from_le_bytes(bytes.try_into().ok()?);
                Value::Timestamp(Timestamp { seconds: (raw >> 32) as u32, increment: raw as u32 })
            }
            Type::Decimal128 => Value::Decimal128(Decimal128(bytes.try_into().ok()?)),
            Type::Binary => {
                Value::Binary { subtype: *bytes.get(4)?, bytes: Cow::Borrowed(bytes.get(5..)?) }
            }
            Type::Regex => {
                let end = bytes.iter().position(|b| *b == 0)?;
                let options = bytes.get(end + 1..bytes.len() - 1)?;
                Value::Regex {
                    pattern: Cow::Borrowed(std::str::from_utf8(&bytes[..end]).ok()?),
                    options: Cow::Borrowed(std::str::from_utf8(options).ok()?),
                }
            }
            Type::DbPointer => {
                let (namespace, id) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
                Value::DbPointer {
                    namespace: Cow::Borrowed(text(namespace)?),
                    id: id.try_into().ok()?,
                }
            }
            Type::CodeWithScope => {
                let rest = bytes.get(4..)?;
                let length = i32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
                let end = usize::try_from(length).ok()?.checked_add(4)?;
                Value::CodeWithScope {
                    code: Cow::Borrowed(text(rest.get(..end)?)?),
                    scope: Doc::from_bytes(rest.get(end..)?).ok()?.into(),
                }
            }
        })
    }

    /// The type; `None` for `Missing`.
    #[inline]
    pub fn ty(&self) -> Option<Type> {
        Some(match self {
            Value::Missing => return None,
            Value::MinKey => Type::MinKey,
            Value::MaxKey => Type::MaxKey,
            Value::Null => Type::Null,
            Value::Undefined => Type::Undefined,
            Value::Bool(_) => Type::Bool,
            Value::Int32(_) => Type::Int32,
            Value::Int64(_) => Type::Int64,
            Value::Double(_) => Type::Double,
            Value::Decimal128(_) => Type::Decimal128,
            Value::String(_) => Type::String,
            Value::Symbol(_) => Type::Symbol,
            Value::Code(_) => Type::Code,
            Value::Document(_) => Type::Document,
            Value::Array(_) => Type::Array,
            Value::Binary { .. } => Type::Binary,
            Value::ObjectId(_) => Type::ObjectId,
            Value::DateTime(_) => Type::DateTime,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Regex { .. } => Type::Regex,
            Value::DbPointer { .. } => Type::DbPointer,
            Value::CodeWithScope { .. } => Type::CodeWithScope,
            Value::NotUtf8 { ty, .. } => *ty,
        })
    }

    /// The type's alias, `missing` for `Missing`.
    pub fn type_name(&self) -> &'static str {
        self.ty().map_or("missing", Type::alias)
    }

    /// Whether there is no value.
    pub fn is_missing(&self) -> bool {
        matches!(self, Value::Missing)
    }

    /// Missing, null or undefined: what expressions call nullish.
    pub fn is_nullish(&self) -> bool {
        matches!(self, Value::Missing | Value::Null | Value::Undefined)
    }

    /// Whether it is one of the four number types.
    pub fn is_number(&self) -> bool {
        self.ty().is_some_and(Type::is_number)
    }

    /// The same value, borrowing from this one.
    pub fn borrow(&self) -> Value<'_> {
        fn s(text: &str) -> Cow<'_, str> {
            Cow::Borrowed(text)
        }
        fn d<'b>(doc: &'b DocCow<'_>) -> DocCow<'b> {
            DocCow::Borrowed(doc.as_doc())
        }
        match self {
            Value::Missing => Value::Missing,
            Value::MinKey => Value::MinKey,
            Value::MaxKey => Value::MaxKey,
            Value::Null => Value::Null,
            Value::Undefined => Value::Undefined,
            Value::Bool(v) => Value::Bool(*v),
            Value::Int32(v) => Value::Int32(*v),
            Value::Int64(v) => Value::Int64(*v),
            Value::Double(v) => Value::Double(*v),
            Value::Decimal128(v) => Value::Decimal128(*v),
            Value::String(v) => Value::String(s(v)),
            Value::Symbol(v) => Value::Symbol(s(v)),
            Value::Code(v) => Value::Code(s(v)),
            Value::Document(v) => Value::Document(d(v)),
            Value::Array(v) => Value::Array(d(v)),
            Value::Binary { subtype, bytes } => {
                Value::Binary { subtype: *subtype, bytes: Cow::Borrowed(bytes) }
            }
            Value::ObjectId(v) => Value::ObjectId(*v),
            Value::DateTime(v) => Value::DateTime(*v),
            Value::Timestamp(v) => Value::Timestamp(*v),
            Value::Regex { pattern, options } => {
                Value::Regex { pattern: s(pattern), options: s(options) }
            }
            Value::DbPointer { namespace, id } => {
                Value::DbPointer { namespace: s(namespace), id: *id }
            }
            Value::CodeWithScope { code, scope } => {
                Value::CodeWithScope { code: s(code), scope: d(scope) }
            }
            Value::NotUtf8 { ty, bytes } => Value::NotUtf8 { ty: *ty, bytes: Cow::Borrowed(bytes) },
        }
    }

    /// The same value, owning all its bytes.
    pub fn into_owned(self) -> Value<'static> {
        fn s(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        match self {
            Value::Missing => Value::Missing,
            Value::MinKey => Value::MinKey,
            Value::MaxKey => Value::MaxKey,
            Value::Null => Value::Null,
            Value::Undefined => Value::Undefined,
            Value::Bool(v) => Value::Bool(v),
            Value::Int32(v) => Value::Int32(v),
            Value::Int64(v) => Value::Int64(v),
            Value::Double(v) => Value::Double(v),
            Value::Decimal128(v) => Value::Decimal128(v),
            Value::String(v) => Value::String(s(v)),
            Value::Symbol(v) => Value::Symbol(s(v)),
            Value::Code(v) => Value::Code(s(v)),
            Value::Document(v) => Value::Document(v.into_owned()),
            Value::Array(v) => Value::Array(v.into_owned()),
            Value::Binary { subtype, bytes } => {
                Value::Binary { subtype, bytes: Cow::Owned(bytes.into_owned()) }
            }
            Value::ObjectId(v) => Value::ObjectId(v),
            Value::DateTime(v) => Value::DateTime(v),
            Value::Timestamp(v) => Value::Timestamp(v),
            Value::Regex { pattern, options } => {
                Value::Regex { pattern: s(pattern), options: s(options) }
            }
            Value::DbPointer { namespace, id } => Value::DbPointer { namespace: s(namespace), id },
            Value::CodeWithScope { code, scope } => {
                Value::CodeWithScope { code: s(code), scope: scope.into_owned() }
            }
            Value::NotUtf8 { ty, bytes } => {
                Value::NotUtf8 { ty, bytes: Cow::Owned(bytes.into_owned()) }
            }
        }
    }

    /// The text of a string (not of a symbol or code) that is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The embedded document (not an array).
    pub fn as_document(&self) -> Option<Doc<'_>> {
        match self {
            Value::Document(doc) => Some(doc.as_doc()),
            _ => None,
        }
    }

    /// The array's elements as a document view.
    pub fn as_array(&self) -> Option<Doc<'_>> {
        match self {
            Value::Array(doc) => Some(doc.as_doc()),
            _ => None,
        }
    }

    /// An array of these values.
    pub fn array<'v>(values: impl IntoIterator<Item = Value<'v>>) -> Value<'static> {
        let mut bytes = Vec::with_capacity(64);
        let mut writer = crate::writer::ArrayWriter::new(&mut bytes);
        for value in values {
            writer.push(value);
        }
        drop(writer);
        Value::Array(DocBuf::from_vec(bytes).unwrap_or_default().into())
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    let length = i32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let end = usize::try_from(length).ok()?.checked_add(3)?;
    std::str::from_utf8(bytes.get(4..end)?).ok()
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Missing => f.write_str("missing"),
            Value::MinKey => f.write_str("MinKey"),
            Value::MaxKey => f.write_str("MaxKey"),
            Value::Null => f.write_str("null"),
            Value::Undefined => f.write_str("undefined"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Int32(v) => write!(f, "{v}i32"),
            Value::Int64(v) => write!(f, "{v}i64"),
            Value::Double(v) => write!(f, "{v:?}"),
            Value::Decimal128(v) => v.fmt(f),
            Value::String(v) => write!(f, "{v:?}"),
            Value::Symbol(v) => write!(f, "Symbol({v:?})"),
            Value::Code(v) => write!(f, "Code({v:?})"),
            Value::Document(v) => v.fmt(f),
            Value::Array(_) if kauri_base::work::check_stack().is_err() => f.write_str("..."),
            Value::Array(v) => f.debug_list().entries(v.iter().map(|e| e.value())).finish(),
            Value::Binary { subtype, bytes } => write!(f, "BinData({subtype}, {bytes:02x?})"),
            Value::ObjectId(v) => {
                f.write_str("ObjectId(")?;
                v.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
                f.write_str(")")
            }
            Value::DateTime(v) => write!(f, "Date({v})"),
            Value::Timestamp(v) => write!(f, "Timestamp({}, {})", v.seconds, v.increment),
            Value::Regex { pattern, options } => write!(f, "/{pattern}/{options}"),
            Value::DbPointer { namespace, .. } => write!(f, "DBPointer({namespace:?})"),
            Value::CodeWithScope { code, scope } => write!(f, "CodeWithScope({code:?}, {scope:?})"),
            Value::NotUtf8 { ty, bytes } => match not_utf8::code_and_scope(bytes) {
                Some((code, scope)) if *ty == Type::CodeWithScope => {
                    write!(f, "NotUtf8({ty:?}, {code:02x?}, {scope:?})")
                }
                _ => write!(f, "NotUtf8({ty:?}, {bytes:02x?})"),
            },
        }
    }
}

macro_rules! from {
    ($($ty:ty => $variant:ident($v:ident) $conv:expr;)*) => {
        $(impl<'a> From<$ty> for Value<'a> {
            fn from($v: $ty) -> Value<'a> {
                Value::$variant($conv)
            }
        })*
    };
}

from! {
    bool => Bool(v) v;
    i32 => Int32(v) v;
    i64 => Int64(v) v;
    f64 => Double(v) v;
    &'a str => String(v) Cow::Borrowed(v);
    String => String(v) Cow::Owned(v);
    &'a String => String(v) Cow::Borrowed(v.as_str());
    Doc<'a> => Document(v) DocCow::Borrowed(v);
    DocBuf => Document(v) DocCow::Owned(v);
    DocCow<'a> => Document(v) v;
    &'a DocBuf => Document(v) DocCow::Borrowed(v.as_doc());
    Timestamp => Timestamp(v) v;
    [u8; 12] => ObjectId(v) v;
    Decimal128 => Decimal128(v) v;
}
