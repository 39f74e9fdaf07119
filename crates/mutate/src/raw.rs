//! Writes elements directly into a buffer; values kept as raw bytes.

use kauri_base::{Result, work};
use kauri_bson::{Doc, Elem, Type, Value, writer::put_value_bytes};

/// A value as its type and raw bytes, owned: an operand that is written as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawValue {
    ty: Type,
    bytes: Box<[u8]>,
}

impl RawValue {
    pub(crate) fn of_elem(elem: Elem<'_>) -> RawValue {
        RawValue { ty: elem.ty(), bytes: elem.value_bytes().into() }
    }

    pub(crate) fn ty(&self) -> Type {
        self.ty
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn value(&self) -> Value<'_> {
        Value::from_raw(self.ty, &self.bytes)
    }

    /// Whether the element holds exactly this value, type and bytes.
    pub(crate) fn is_same(&self, elem: Elem<'_>) -> bool {
        self.ty == elem.ty() && *self.bytes == *elem.value_bytes()
    }
}

/// Appends type byte and name.
#[inline]
pub(crate) fn put_header(out: &mut Vec<u8>, ty: Type, key: &[u8]) {
    out.push(ty as u8);
    out.extend_from_slice(key);
    out.push(0);
}

/// Appends an element of raw value bytes.
#[inline]
pub(crate) fn put_raw(out: &mut Vec<u8>, ty: Type, key: &[u8], bytes: &[u8]) {
    put_header(out, ty, key);
    out.extend_from_slice(bytes);
}

/// Copies an element.
#[inline]
pub(crate) fn put_elem(out: &mut Vec<u8>, elem: Elem<'_>) {
    put_raw(out, elem.ty(), elem.key_bytes(), elem.value_bytes());
}

/// Appends an element; `Missing` appends nothing.
pub(crate) fn put_value(out: &mut Vec<u8>, key: &[u8], value: &Value<'_>) {
    let Some(ty) = value.ty() else { return };
    put_header(out, ty, key);
    put_value_bytes(out, value);
}

/// Begins a document: appends room for its length. Gives where it starts.
#[inline]
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Ends the document that [`begin`] began.
#[inline]
pub(crate) fn end(out: &mut Vec<u8>, start: usize) {
    out.push(0);
    // Lengths of 2 GiB are far beyond what callers let grow.
    let length = (out.len() - start) as i32;
    if let Some(field) = out.get_mut(start..start + 4) {
        field.copy_from_slice(&length.to_le_bytes());
    }
}

/// The size of an element in its document.
#[inline]
pub(crate) fn elem_size(elem: Elem<'_>) -> usize {
    1 + elem.key_bytes().len() + 1 + elem.value_bytes().len()
}

/// A buffer that holds an array position's name.
pub(crate) struct IndexName {
    digits: [u8; 20],
    start: usize,
}

impl IndexName {
    pub(crate) fn new(mut number: u64) -> IndexName {
        let mut digits = [0; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return IndexName { digits, start };
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

/// Appends an array of these elements' values, numbered anew, without a header.
pub(crate) fn put_array<'e>(
    out: &mut Vec<u8>,
    elems: impl Iterator<Item = (Type, &'e [u8])>,
) -> Result<()> {
    let start = begin(out);
    for (index, (ty, bytes)) in elems.enumerate() {
        work::tick_bytes(64 + bytes.len())?;
        put_raw(out, ty, IndexName::new(index as u64).as_bytes(), bytes);
    }
    end(out, start);
    Ok(())
}

/// Levels of documents and arrays in a value: 0 for a scalar, 1 for `{}`.
pub(crate) fn depth_of(ty: Type, bytes: &[u8]) -> usize {
    if !matches!(ty, Type::Document | Type::Array) {
        return 0;
    }
    // A stack of our own: the input's depth must not be the thread's.
    let mut deepest = 1;
    let mut stack = vec![Doc::from_bytes(bytes).unwrap_or(Doc::EMPTY).iter()];
    while let Some(iter) = stack.last_mut() {
        work::tick_infallible(1);
        match iter.next() {
            Some(elem) => {
                if let Some(doc) = elem.as_doc() {
                    stack.push(doc.iter());
                    deepest = deepest.max(stack.len());
                }
            }
            None => {
                stack.pop();
            }
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{array, doc};

    #[test]
    fn depth_counts_documents_and_arrays() {
        let depth = |value: Value<'_>| {
            let doc = doc! { "v" => value };
            let elem = doc.as_doc().first().map(|e| depth_of(e.ty(), e.value_bytes()));
            elem.unwrap_or(usize::MAX)
        };
        assert_eq!(depth(1.into()), 0);
        assert_eq!(depth(doc! {}.into()), 1);
        assert_eq!(depth(doc! { "a" => array![1, doc! { "b" => 1 }], "c" => 1 }.into()), 3);
    }

    #[test]
    fn index_names() {
        for n in [0u64, 9, 10, 4_294_967_295, u64::MAX] {
            assert_eq!(IndexName::new(n).as_bytes(), n.to_string().as_bytes());
        }
    }
}
