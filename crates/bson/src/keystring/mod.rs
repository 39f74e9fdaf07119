//! KeyString: index keys as bytes whose plain order is the comparison order.
//!
//! A key is the concatenation of its fields' encodings, each of them inverted if its field is
//! descending. Invariants:
//!
//! - `memcmp` of two keys of one pattern is `compare` field by field, directions applied; values
//!   that are equal have equal bytes.
//! - Every field's encoding is prefix-free, inverted or not, so keys need no terminator and a record
//!   id may follow ([`record_id`]).
//! - No field begins with 0x00 or 0xFF, so a bound behind everything that begins with some fields is
//!   those fields and 0xFF ([`Discriminator`]).
//! - What the bytes leave out (int, long, double or decimal; a decimal's trailing zeros; the sign of
//!   zero; string or symbol) stands in the type bits, empty for the commonest types. With them,
//!   [`decode`] gives the very values back, except that missing becomes undefined and the payloads
//!   of NaNs are lost.
//!
//! | first byte | field | then |
//! |---|---|---|
//! | 0x0A | MinKey | |
//! | 0x0F | undefined, missing | |
//! | 0x14 | null | |
//! | 0x1E–0x33 | numbers | see [`number`] |
//! | 0x3C | string, symbol | text |
//! | 0x46 | object | for each element canonical type + 1, name, value; 0x00 |
//! | 0x50 | array | values; 0x00 |
//! | 0x5A | binary data | length, subtype, bytes |
//! | 0x64 | ObjectId | 12 bytes |
//! | 0x6E, 0x6F | false, true | |
//! | 0x78 | date | 8 bytes, sign bit inverted |
//! | 0x82 | timestamp | 8 bytes |
//! | 0x8C | regular expression | text, text |
//! | 0x96 | DBPointer | length, bytes, 12 bytes |
//! | 0xA0 | code | text |
//! | 0xAA | code with scope | text, object's content |
//! | 0xF0 | MaxKey | |
//!
//! Integers are big-endian. Text ends in 0x00; within it 0x00 is 0x01 0x01 and 0x01 is 0x01 0x02. A
//! length below 255 is one byte, else 0xFF and four bytes.
//!
//! The idea is that of MongoDB's KeyString; the encoding is not the same.

mod decode;
pub mod number;
pub mod record_id;
mod type_bits;

#[cfg(test)]
mod tests;

pub use decode::decode;
pub use record_id::{append_record_id, decode_record_id_at_end, strip_record_id};
pub use type_bits::TypeBits;

use crate::doc::{Doc, Elem};
use crate::not_utf8::{self, Parts};
use crate::types::Type;
use crate::value::Value;

/// What follows the fields of a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discriminator {
    /// Nothing: the key itself.
    Inclusive,
    /// Before every key that begins with these fields.
    ExclusiveBefore,
    /// Behind every key that begins with these fields.
    ExclusiveAfter,
}

/// Builds keys one after the other in a buffer that it keeps.
#[derive(Clone, Default, Debug)]
pub struct KeyStringBuilder {
    bytes: Vec<u8>,
    bits: TypeBits,
}

impl KeyStringBuilder {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a new key.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bits.clear();
    }

    /// Appends a field.
    pub fn append(&mut self, value: &Value<'_>, descending: bool) -> &mut Self {
        append_value(&mut self.bytes, &mut self.bits, value, descending);
        self
    }

    /// Appends a field straight from a document.
    pub fn append_elem(&mut self, elem: Elem<'_>, descending: bool) -> &mut Self {
        append_elem(&mut self.bytes, &mut self.bits, elem, descending);
        self
    }

    /// Completes a bound.
    pub fn finish(&mut self, discriminator: Discriminator) -> &mut Self {
        if discriminator == Discriminator::ExclusiveAfter {
            self.bytes.push(AFTER);
        }
        self
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key's type bits; empty for the commonest types.
    pub fn type_bits(&self) -> &[u8] {
        self.bits.as_bytes()
    }

    /// A copy of the key's bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}

/// Above every first byte of a field.
const AFTER: u8 = 0xFF;

/// First bytes of fields; numbers have theirs in [`number`].
pub(crate) mod tag {
    pub const MIN_KEY: u8 = 0x0A;
    pub const UNDEFINED: u8 = 0x0F;
    pub const NULL: u8 = 0x14;
    pub const STRING: u8 = 0x3C;
    pub const OBJECT: u8 = 0x46;
    pub const ARRAY: u8 = 0x50;
    pub const BINARY: u8 = 0x5A;
    pub const OBJECT_ID: u8 = 0x64;
    pub const FALSE: u8 = 0x6E;
    pub const TRUE: u8 = 0x6F;
    pub const DATE: u8 = 0x78;
    pub const TIMESTAMP: u8 = 0x82;
    pub const REGEX: u8 = 0x8C;
    pub const DB_POINTER: u8 = 0x96;
    pub const CODE: u8 = 0xA0;
    pub const CODE_WITH_SCOPE: u8 = 0xAA;
    pub const MAX_KEY: u8 = 0xF0;
    /// Ends objects and arrays.
    pub const END: u8 = 0x00;
}

/// Levels of nesting that encoding recurses into. What is deeper is encoded with a list of the open documents.
const RECURSION_MAX: u32 = 24;

/// Appends a field to a key's bytes and type bits.
pub fn append_value(out: &mut Vec<u8>, bits: &mut TypeBits, value: &Value<'_>, descending: bool) {
    let start = out.len();
    put_value(out, bits, value, 0);
    if descending {
        invert(out, start);
    }
}

/// Appends a field straight from a document.
#[inline]
pub fn append_elem(out: &mut Vec<u8>, bits: &mut TypeBits, elem: Elem<'_>, descending: bool) {
    let start = out.len();
    put_elem(out, bits, elem, 0);
    if descending {
        invert(out, start);
    }
}

fn invert(out: &mut [u8], start: usize) {
    for byte in &mut out[start..] {
        *byte = !*byte;
    }
}

/// The commonest types from their raw bytes, the others as values.
#[inline]
fn put_elem(out: &mut Vec<u8>, bits: &mut TypeBits, elem: Elem<'_>, depth: u32) {
    let raw = elem.value_bytes();
    match elem.ty() {
        Type::ObjectId => put_tagged(out, tag::OBJECT_ID, raw),
        Type::Int32 => {
            if let Some(bytes) = raw.first_chunk() {
                number::put_int32(out, bits, i32::from_le_bytes(*bytes));
            }
        }
        Type::String => {
            bits.push(0, 1);
            out.push(tag::STRING);
            put_text(out, raw.get(4..raw.len().saturating_sub(1)).unwrap_or_default());
        }
        _ => put_value(out, bits, &elem.value(), depth),
    }
}

fn put_value(out: &mut Vec<u8>, bits: &mut TypeBits, value: &Value<'_>, depth: u32) {
    match value {
        Value::Missing | Value::Undefined => out.push(tag::UNDEFINED),
        Value::MinKey => out.push(tag::MIN_KEY),
        Value::MaxKey => out.push(tag::MAX_KEY),
        Value::Null => out.push(tag::NULL),
        Value::Bool(v) => out.push(if *v { tag::TRUE } else { tag::FALSE }),
        Value::Int32(v) => number::put_int32(out, bits, *v),
        Value::Int64(v) => number::put_int64(out, bits, *v),
        Value::Double(v) => number::put_double(out, bits, *v),
        Value::Decimal128(v) => number::put_decimal(out, bits, *v),
        Value::String(v) => {
            bits.push(0, 1);
            out.push(tag::STRING);
            put_text(out, v.as_bytes());
        }
        Value::Symbol(v) => {
            bits.push(1, 1);
            out.push(tag::STRING);
            put_text(out, v.as_bytes());
        }
        Value::Document(v) => {
            out.push(tag::OBJECT);
            put_members(out, bits, v.as_doc(), true, depth);
        }
        Value::Array(v) => {
            out.push(tag::ARRAY);
            put_members(out, bits, v.as_doc(), false, depth);
        }
        Value::Binary { subtype, bytes } => {
            out.push(tag::BINARY);
            put_length(out, bytes.len());
            out.push(*subtype);
            out.extend_from_slice(bytes);
        }
        Value::ObjectId(v) => put_tagged(out, tag::OBJECT_ID, v),
        Value::DateTime(v) => {
            put_tagged(out, tag::DATE, &((*v as u64) ^ (1 << 63)).to_be_bytes());
        }
        Value::Timestamp(v) => {
            let whole = u64::from(v.seconds) << 32 | u64::from(v.increment);
            put_tagged(out, tag::TIMESTAMP, &whole.to_be_bytes());
        }
        Value::Regex { pattern, options } => {
            out.push(tag::REGEX);
            put_text(out, pattern.as_bytes());
            put_text(out, options.as_bytes());
        }
        Value::DbPointer { namespace, id } => {
            out.push(tag::DB_POINTER);
            put_length(out, namespace.len());
            out.extend_from_slice(namespace.as_bytes());
            out.extend_from_slice(id);
        }
        Value::Code(v) => {
            out.push(tag::CODE);
            put_text(out, v.as_bytes());
        }
        Value::CodeWithScope { code, scope } => {
            out.push(tag::CODE_WITH_SCOPE);
            put_text(out, code.as_bytes());
            put_members(out, bits, scope.as_doc(), true, depth);
        }
        Value::NotUtf8 { ty, bytes } => put_not_utf8(out, bits, *ty, bytes, depth),
    }
}

/// As [`put_value`], from the raw bytes of a value with text.
#[cold]
fn put_not_utf8(out: &mut Vec<u8>, bits: &mut TypeBits, ty: Type, bytes: &[u8], depth: u32) {
    match not_utf8::parts(ty, bytes) {
        Some(Parts::Text(text)) => {
            if ty != Type::Code {
                bits.push(u32::from(ty == Type::Symbol), 1);
            }
            out.push(if ty == Type::Code { tag::CODE } else { tag::STRING });
            put_text(out, text);
        }
        Some(Parts::Regex(pattern, options)) => {
            out.push(tag::REGEX);
            put_text(out, pattern);
            put_text(out, options);
        }
        Some(Parts::DbPointer(namespace, id)) => {
            out.push(tag::DB_POINTER);
            put_length(out, namespace.len());
            out.extend_from_slice(namespace);
            out.extend_from_slice(&id);
        }
        Some(Parts::CodeWithScope(code, scope)) => {
            out.push(tag::CODE_WITH_SCOPE);
            put_text(out, code);
            put_members(out, bits, scope, true, depth);
        }
        None => out.push(tag::UNDEFINED),
    }
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

fn put_members(out: &mut Vec<u8>, bits: &mut TypeBits, doc: Doc<'_>, names: bool, depth: u32) {
    if depth >= RECURSION_MAX {
        return put_members_deep(out, bits, doc, names);
    }
    for elem in doc {
        if names {
            put_name(out, elem);
        }
        put_elem(out, bits, elem, depth + 1);
    }
    out.push(tag::END);
}

fn put_name(out: &mut Vec<u8>, elem: Elem<'_>) {
    out.push(elem.ty().canonical() + 1);
    put_text(out, elem.key_bytes());
}

/// As [`put_members`], without recursion.
#[cold]
fn put_members_deep(out: &mut Vec<u8>, bits: &mut TypeBits, doc: Doc<'_>, names: bool) {
    let mut open = vec![(doc.iter(), names)];
    while let Some((elems, names)) = open.last_mut() {
        kauri_base::work::tick_infallible(1);
        let Some(elem) = elems.next() else {
            out.push(tag::END);
            open.pop();
            continue;
        };
        if *names {
            put_name(out, elem);
        }
        match (elem.ty(), elem.as_doc()) {
            (Type::Document, Some(inner)) => {
                out.push(tag::OBJECT);
                open.push((inner.iter(), true));
            }
            (Type::Array, Some(inner)) => {
                out.push(tag::ARRAY);
                open.push((inner.iter(), false));
            }
            (Type::CodeWithScope, ..) => match not_utf8::parts(elem.ty(), elem.value_bytes()) {
                Some(Parts::CodeWithScope(code, scope)) => {
                    out.push(tag::CODE_WITH_SCOPE);
                    put_text(out, code);
                    open.push((scope.iter(), true));
                }
                _ => out.push(tag::UNDEFINED),
            },
            _ => put_elem(out, bits, elem, 0),
        }
    }
}

/// Within text: announces a byte that may not stand there as such.
pub(crate) const ESCAPE: u8 = 0x01;

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    if text.iter().all(|b| *b > ESCAPE) {
        out.extend_from_slice(text);
    } else {
        for &byte in text {
            match byte {
                0 | ESCAPE => out.extend_from_slice(&[ESCAPE, byte + 1]),
                _ => out.push(byte),
            }
        }
    }
    out.push(0);
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 0xFF => out.push(short),
        _ => {
            out.push(0xFF);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}
