//! The `_id` of a document if it is short enough for a summary. Recovery builds the index on `_id` from these,
//! without reading documents.
//!
//! A form byte comes first. 0 to 12: an ObjectId that shares that many first bytes with the previous ObjectId of
//! the summary; its other bytes follow. 13 (int32) and 14 (int64): the difference to the previous number, a signed
//! varint. A number takes no bytes if its distance from its record id equals that of the previous number of the
//! same type; the entry's tag says so.

use super::{get_varint, put_varint, unzigzag, zigzag};

const FORM_INT32: u8 = 13;
const FORM_INT64: u8 = 14;
const OBJECT_ID_BYTES: usize = 12;

/// Maximum bytes of an id in a summary.
pub const ID_BYTES_MAX: u32 = 1 + OBJECT_ID_BYTES as u32;

/// Type numbers of BSON.
const INT32: u8 = 0x10;
const INT64: u8 = 0x12;
const OBJECT_ID: u8 = 0x07;
/// The bytes between the type of an `_id` and its value.
const NAME: [u8; 4] = *b"_id\0";
/// Bytes of a document before the value of its first field, if that is `_id`.
const HEAD_BYTES: usize = 4 + 1 + NAME.len();
/// Bytes of a document that has only such an `_id`.
const DOCUMENT_BYTES_MAX: usize = HEAD_BYTES + OBJECT_ID_BYTES + 1;

/// A document's `_id`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Id {
    /// Another type, or not stored.
    #[default]
    Unknown,
    /// An int32.
    Int32(i32),
    /// An int64.
    Int64(i64),
    /// An ObjectId.
    ObjectId([u8; OBJECT_ID_BYTES]),
}

impl Id {
    /// That of a document, whose first field it is.
    #[inline]
    pub fn of_document(bytes: &[u8]) -> Id {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Id::Unknown;
        };
        if head[5..] != NAME {
            return Id::Unknown;
        }
        let id = match head[4] {
            OBJECT_ID => rest.first_chunk().map(|bytes| Id::ObjectId(*bytes)),
            INT64 => rest.first_chunk().map(|bytes| Id::Int64(i64::from_le_bytes(*bytes))),
            INT32 => rest.first_chunk().map(|bytes| Id::Int32(i32::from_le_bytes(*bytes))),
            _ => None,
        };
        id.unwrap_or_default()
    }

    /// A document with nothing else, if it is known.
    pub fn document(self) -> Option<IdDocument> {
        let mut bytes = [0; DOCUMENT_BYTES_MAX];
        let (kind, value_bytes) = match self {
            Id::Unknown => return None,
            Id::Int32(_) => (INT32, 4),
            Id::Int64(_) => (INT64, 8),
            Id::ObjectId(_) => (OBJECT_ID, OBJECT_ID_BYTES),
        };
        let len = HEAD_BYTES + value_bytes + 1;
        bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[4] = kind;
        bytes[5..HEAD_BYTES].copy_from_slice(&NAME);
        let value = &mut bytes[HEAD_BYTES..HEAD_BYTES + value_bytes];
        match self {
            Id::Unknown => {}
            Id::Int32(number) => value.copy_from_slice(&number.to_le_bytes()),
            Id::Int64(number) => value.copy_from_slice(&number.to_le_bytes()),
            Id::ObjectId(id) => value.copy_from_slice(&id),
        }
        Some(IdDocument { bytes, len })
    }
}

/// See [`Id::document`].
pub struct IdDocument {
    bytes: [u8; DOCUMENT_BYTES_MAX],
    len: usize,
}

impl IdDocument {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The reference for the next id.
#[derive(Clone, Copy, Default)]
pub(super) struct IdBefore {
    number: i64,
    /// Its form; 0 before the first one.
    form: u8,
    /// The record id of its document.
    record: u64,
    object_id: [u8; OBJECT_ID_BYTES],
}

impl IdBefore {
    /// The id that a document with this record id has if it *follows*: a number of the same type as the
    /// one before, as far from its record id as that one was from its own.
    #[inline]
    pub(super) fn following(&self, record: u64) -> Option<Id> {
        number_of(self.form, self.number.wrapping_add(record.wrapping_sub(self.record) as i64))
    }

    /// Takes the one that follows as the one before.
    #[inline]
    pub(super) fn follow(&mut self, record: u64) {
        self.number = self.number.wrapping_add(record.wrapping_sub(self.record) as i64);
        self.record = record;
    }

    /// Writes one that is known.
    #[inline]
    pub(super) fn put(&mut self, id: Id, record: u64, out: &mut Vec<u8>) {
        let (form, number) = match id {
            Id::Unknown => return,
            Id::ObjectId(id) => {
                let shared = id.iter().zip(&self.object_id).take_while(|(a, b)| a == b).count();
                out.push(shared as u8);
                out.extend_from_slice(&id[shared..]);
                self.object_id = id;
                return;
            }
            Id::Int32(number) => (FORM_INT32, i64::from(number)),
            Id::Int64(number) => (FORM_INT64, number),
        };
        out.push(form);
        put_varint(out, zigzag(number.wrapping_sub(self.number)));
        (self.number, self.form, self.record) = (number, form, record);
    }

    /// Reads one; `None` if these bytes are none.
    #[inline]
    pub(super) fn get(&mut self, record: u64, bytes: &mut &[u8]) -> Option<Id> {
        let (&form, rest) = bytes.split_first()?;
        *bytes = rest;
        if usize::from(form) <= OBJECT_ID_BYTES {
            let own = self.object_id.get_mut(usize::from(form)..)?;
            let (new, rest) = bytes.split_at_checked(own.len())?;
            own.copy_from_slice(new);
            *bytes = rest;
            return Some(Id::ObjectId(self.object_id));
        }
        let number = self.number.wrapping_add(unzigzag(get_varint(bytes)?));
        (self.number, self.form, self.record) = (number, form, record);
        number_of(form, number)
    }
}

fn number_of(form: u8, number: i64) -> Option<Id> {
    match form {
        FORM_INT32 => i32::try_from(number).ok().map(Id::Int32),
        FORM_INT64 => Some(Id::Int64(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{Doc, DocBuf, Value};

    #[test]
    fn ids_are_told_from_documents_and_back() {
        for (value, expected) in [
            (Value::Int32(-7), Id::Int32(-7)),
            (Value::Int64(i64::MIN), Id::Int64(i64::MIN)),
            (Value::ObjectId([9; 12]), Id::ObjectId([9; 12])),
            (Value::from("text"), Id::Unknown),
            (Value::Double(1.0), Id::Unknown),
        ] {
            let doc = DocBuf::build(|out| {
                out.put_value("_id", &value);
                out.put("text", "something");
            });
            let id = Id::of_document(doc.as_bytes());
            assert_eq!(id, expected);
            if let Some(alone) = id.document() {
                let alone = Doc::from_bytes(alone.bytes()).unwrap();
                assert_eq!(alone.value("_id"), value);
                assert_eq!(alone.count(), 1);
            }
            // Cut off anywhere it is told or not, and never wrong.
            for len in 0..doc.as_bytes().len() {
                let cut = Id::of_document(&doc.as_bytes()[..len]);
                assert!(cut == expected || cut == Id::Unknown);
            }
        }
        let second = kauri_bson::doc! { "a" => 1, "_id" => 2 };
        assert_eq!(Id::of_document(second.as_bytes()), Id::Unknown);
        let longer = kauri_bson::doc! { "_idx" => 2 };
        assert_eq!(Id::of_document(longer.as_bytes()), Id::Unknown);
    }
}
