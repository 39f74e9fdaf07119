//! Writes documents directly into a byte buffer (often a reply).
//!
//! A writer completes its document (length, final zero) when it is dropped, so a document cannot stay open. Nested
//! writers borrow their parent, so they are dropped before the parent is written to again.

use crate::doc::{Doc, Elem};
use crate::types::Type;
use crate::value::Value;

/// Writes one document at the end of a buffer.
pub struct DocWriter<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> DocWriter<'b> {
    /// Begins a document at the end of `out`.
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        DocWriter { out, start }
    }

    /// Bytes written so far, without the final zero.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Whether no element has been written.
    pub fn is_empty(&self) -> bool {
        self.len() == 4
    }

    /// Removes all elements written so far.
    pub fn clear(&mut self) {
        self.out.truncate(self.start + 4);
    }

    /// Adds an element; `Missing` adds nothing.
    pub fn put<'v>(&mut self, key: &str, value: impl Into<Value<'v>>) {
        put_value(self.out, key.as_bytes(), &value.into());
    }

    /// Adds an element; `Missing` adds nothing.
    pub fn put_value(&mut self, key: &str, value: &Value<'_>) {
        put_value(self.out, key.as_bytes(), value);
    }

    /// Copies an element.
    pub fn put_elem(&mut self, elem: Elem<'_>) {
        self.put_raw(elem.key_bytes(), elem.ty(), elem.value_bytes());
    }

    /// Copies an element under another name.
    pub fn put_elem_as(&mut self, key: &str, elem: Elem<'_>) {
        self.put_raw(key.as_bytes(), elem.ty(), elem.value_bytes());
    }

    /// Adds an element of raw value bytes, which must be valid for the type.
    pub fn put_raw(&mut self, key: &[u8], ty: Type, value: &[u8]) {
        put_header(self.out, ty, key);
        self.out.extend_from_slice(value);
    }

    /// Copies all elements of a document.
    pub fn put_all(&mut self, doc: Doc<'_>) {
        let bytes = doc.as_bytes();
        self.out.extend_from_slice(&bytes[4..bytes.len() - 1]);
    }

    /// Begins an embedded document, which ends when the returned writer is dropped.
    pub fn document(&mut self, key: &str) -> DocWriter<'_> {
        put_header(self.out, Type::Document, key.as_bytes());
        DocWriter::new(self.out)
    }

    /// Begins an embedded array, which ends when the returned writer is dropped.
    pub fn array(&mut self, key: &str) -> ArrayWriter<'_> {
        put_header(self.out, Type::Array, key.as_bytes());
        ArrayWriter::new(self.out)
    }
}

impl Drop for DocWriter<'_> {
    fn drop(&mut self) {
        self.out.push(0);
        // A document of 2 GiB or more cannot be: every producer is bounded far below.
        let length = (self.out.len() - self.start) as i32;
        self.out[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Writes one array at the end of a buffer.
pub struct ArrayWriter<'b> {
    doc: DocWriter<'b>,
    next: u32,
}

impl<'b> ArrayWriter<'b> {
    /// Begins an array at the end of `out`.
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        ArrayWriter { doc: DocWriter::new(out), next: 0 }
    }

    /// The number of elements so far.
    pub fn count(&self) -> usize {
        self.next as usize
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.doc.len()
    }

    /// Whether no element has been written.
    pub fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// Adds a value; `Missing` becomes null, so that positions stay.
    pub fn push<'v>(&mut self, value: impl Into<Value<'v>>) {
        self.push_value(&value.into());
    }

    /// Adds a value; `Missing` becomes null, so that positions stay.
    pub fn push_value(&mut self, value: &Value<'_>) {
        let key = DecimalKey::new(self.next);
        let value = if value.is_missing() { &Value::Null } else { value };
        put_value(self.doc.out, key.as_bytes(), value);
        self.next += 1;
    }

    /// Copies an element's value.
    pub fn push_elem(&mut self, elem: Elem<'_>) {
        self.push_raw(elem.ty(), elem.value_bytes());
    }

    /// Adds raw value bytes, which must be valid for the type.
    pub fn push_raw(&mut self, ty: Type, value: &[u8]) {
        let key = DecimalKey::new(self.next);
        self.doc.put_raw(key.as_bytes(), ty, value);
        self.next += 1;
    }

    /// Adds a document.
    pub fn push_doc(&mut self, doc: Doc<'_>) {
        self.push_raw(Type::Document, doc.as_bytes());
    }

    /// Begins a document element.
    pub fn document(&mut self) -> DocWriter<'_> {
        let key = DecimalKey::new(self.next);
        self.next += 1;
        put_header(self.doc.out, Type::Document, key.as_bytes());
        DocWriter::new(self.doc.out)
    }

    /// Begins an array element.
    pub fn array(&mut self) -> ArrayWriter<'_> {
        let key = DecimalKey::new(self.next);
        self.next += 1;
        put_header(self.doc.out, Type::Array, key.as_bytes());
        ArrayWriter::new(self.doc.out)
    }
}

fn put_header(out: &mut Vec<u8>, ty: Type, key: &[u8]) {
    debug_assert!(!key.contains(&0), "a name cannot hold a zero byte");
    out.push(ty as u8);
    out.extend_from_slice(key);
    out.push(0);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn put_value(out: &mut Vec<u8>, key: &[u8], value: &Value<'_>) {
    let Some(ty) = value.ty() else { return };
    put_header(out, ty, key);
    put_value_bytes(out, value);
}

/// Appends the raw bytes of a value, without type byte and name.
pub fn put_value_bytes(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Missing | Value::MinKey | Value::MaxKey | Value::Null | Value::Undefined => {}
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::Int32(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Int64(v) | Value::DateTime(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Decimal128(v) => out.extend_from_slice(&v.0),
        Value::String(v) | Value::Symbol(v) | Value::Code(v) => put_text(out, v),
        Value::Document(v) | Value::Array(v) => out.extend_from_slice(v.as_bytes()),
        Value::Binary { subtype, bytes } => {
            out.extend_from_slice(&(bytes.len() as i32).to_le_bytes());
            out.push(*subtype);
            out.extend_from_slice(bytes);
        }
        Value::ObjectId(v) => out.extend_from_slice(v),
        Value::Timestamp(v) => {
            out.extend_from_slice(&v.increment.to_le_bytes());
            out.extend_from_slice(&v.seconds.to_le_bytes());
        }
        Value::Regex { pattern, options } => {
            for part in [pattern, options] {
                out.extend_from_slice(part.as_bytes());
                out.push(0);
            }
        }
        Value::DbPointer { namespace, id } => {
            put_text(out, namespace);
            out.extend_from_slice(id);
        }
        Value::CodeWithScope { code, scope } => {
            let length = 4 + 4 + code.len() + 1 + scope.as_bytes().len();
            out.extend_from_slice(&(length as i32).to_le_bytes());
            put_text(out, code);
            out.extend_from_slice(scope.as_bytes());
        }
        Value::NotUtf8 { bytes, .. } => out.extend_from_slice(bytes),
    }
}

/// An array index as text, without an allocation.
struct DecimalKey {
    digits: [u8; 10],
    start: usize,
}

impl DecimalKey {
    fn new(mut number: u32) -> Self {
        let mut digits = [0; 10];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return DecimalKey { digits, start };
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

/// `doc! { "a" => 1, "b" => doc! { "c" => "x" }, "d" => array![1, 2] }`: an owned raw document.
#[macro_export]
macro_rules! doc {
    ($($key:expr => $value:expr),* $(,)?) => {{
        #[allow(unused_mut, unused_variables)]
        let buf = $crate::DocBuf::build(|w| { $(w.put($key, $value);)* });
        buf
    }};
}

/// `array![1, "x", doc! { }]`: an owned array value.
#[macro_export]
macro_rules! array {
    ($($value:expr),* $(,)?) => {
        $crate::Value::array([$($crate::Value::from($value)),*])
    };
}

#[cfg(test)]
mod tests {
    use crate::{DocBuf, Type, Value};

    #[test]
    fn every_type_survives_a_round_trip() {
        let values = vec![
            Value::MinKey,
            Value::MaxKey,
            Value::Null,
            Value::Undefined,
            Value::Bool(true),
            Value::Int32(-5),
            Value::Int64(i64::MIN),
            Value::Double(-0.5),
            Value::Decimal128(crate::Decimal128([7; 16])),
            Value::String("é".into()),
            Value::Symbol("s".into()),
            Value::Code("f()".into()),
            Value::Document(doc! { "x" => 1 }.into()),
            array![1, "two", doc! {}],
            Value::Binary { subtype: 4, bytes: vec![1, 2, 3].into() },
            Value::ObjectId([9; 12]),
            Value::DateTime(-1),
            Value::Timestamp(kauri_base::Timestamp { seconds: 3, increment: 4 }),
            Value::Regex { pattern: "^a".into(), options: "i".into() },
            Value::DbPointer { namespace: "a.b".into(), id: [1; 12] },
            Value::CodeWithScope { code: "g".into(), scope: doc! { "y" => 2 }.into() },
        ];
        let doc = DocBuf::build(|w| {
            for (i, value) in values.iter().enumerate() {
                w.put_value(&i.to_string(), value);
            }
        });
        let read: Vec<Value<'_>> = doc.as_doc().iter().map(|e| e.value()).collect();
        assert_eq!(read, values);
        let owned = DocBuf::from_vec(doc.as_bytes().to_vec()).unwrap();
        assert_eq!(owned, doc);
    }

    #[test]
    fn agrees_with_the_bson_crate() {
        let theirs = bson::doc! { "a": 1, "b": [ "x", { "c": 2.5 } ], "d": { "e": null } };
        let ours = doc! {
            "a" => 1,
            "b" => array!["x", doc! { "c" => 2.5 }],
            "d" => doc! { "e" => Value::Null },
        };
        let mut bytes = Vec::new();
        theirs.to_writer(&mut bytes).unwrap();
        assert_eq!(ours.as_bytes(), bytes);
        assert_eq!(ours.as_doc().get("b").map(|e| e.ty()), Some(Type::Array));
    }

    #[test]
    fn a_truncated_document_ends_early_without_a_panic() {
        let whole = doc! { "a" => "text", "b" => doc! { "c" => 1 } }.into_vec();
        for position in 4..whole.len() - 1 {
            for byte in [0, 1, 0x7F, 0xFF] {
                let mut bytes = whole.clone();
                bytes[position] = byte;
                let buf = DocBuf::from_vec(bytes).unwrap();
                let _ = format!("{buf:?}");
            }
        }
    }
}
