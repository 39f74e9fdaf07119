//! A write unit: the changes of one statement, collected first and committed as a whole.
//!
//! The unit borrows documents where possible (the document of an insert stays in the request's buffer), so building
//! a unit copies keys only. A unit may use stores and indexes that it creates itself. Otherwise the order within a
//! unit matters only for the log. A unit changes a record at most once. All removals of keys apply before all
//! additions. Removing a missing entry, or adding an existing entry (with new type bits), is not an error.

use crate::index_spec::{IndexSpec, KeyGenerator};
use kauri_base::sync::Arc;
use kauri_base::{CollectionId, CommitSeq, IndexId, RecordId};
use std::borrow::Cow;
use std::ops::Range;

/// The name and the UUID of a collection that a unit changes. The log of a replica set keeps them with the unit: by
/// then the collection may be renamed, or gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The collection.
    pub collection: CollectionId,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its name with that of its database.
    pub name: String,
}

/// The kind of an operation.
pub enum OpKind<'a> {
    /// A new record. The engine gives it the collection's next id and writes that into
    /// [`WriteOp::record`].
    Insert {
        /// The document.
        doc: Cow<'a, [u8]>,
    },
    /// Another document for a record.
    Update {
        /// The version that the new document was computed from.
        seen: CommitSeq,
        /// The document.
        doc: Cow<'a, [u8]>,
    },
    /// The end of a record.
    Delete {
        /// The version that was read.
        seen: CommitSeq,
    },
    /// Index keys for a record that stays as it is: an index build's work. Not logged.
    Backfill {
        /// The version that the keys were made from.
        seen: CommitSeq,
    },
    /// A new record store, empty. Its id must be new.
    CreateStore,
    /// The end of a record store, of all its records and indexes.
    DropStore,
    /// A new ordered index, empty, on the operation's collection.
    CreateIndex {
        /// Its definition.
        spec: IndexSpec,
        /// Makes its keys, should the engine have to rebuild it.
        generator: Arc<dyn KeyGenerator>,
    },
    /// The end of an index.
    DropIndex {
        /// The index.
        index: IndexId,
    },
    /// The collection's definition changes with this unit: units that were computed from an older
    /// one fail with `StaleCatalog`.
    ChangeDefinition,
}

impl OpKind<'_> {
    fn to_static(&self) -> OpKind<'static> {
        let own = |doc: &Cow<'_, [u8]>| Cow::Owned(doc.to_vec());
        match self {
            OpKind::Insert { doc } => OpKind::Insert { doc: own(doc) },
            OpKind::Update { seen, doc } => OpKind::Update { seen: *seen, doc: own(doc) },
            OpKind::Delete { seen } => OpKind::Delete { seen: *seen },
            OpKind::Backfill { seen } => OpKind::Backfill { seen: *seen },
            OpKind::CreateStore => OpKind::CreateStore,
            OpKind::DropStore => OpKind::DropStore,
            OpKind::CreateIndex { spec, generator } => {
                OpKind::CreateIndex { spec: *spec, generator: generator.clone() }
            }
            OpKind::DropIndex { index } => OpKind::DropIndex { index: *index },
            OpKind::ChangeDefinition => OpKind::ChangeDefinition,
        }
    }

    /// Whether it changes documents only.
    pub fn is_of_document(&self) -> bool {
        matches!(self, OpKind::Insert { .. } | OpKind::Update { .. } | OpKind::Delete { .. })
    }
}

/// One operation of a unit.
pub struct WriteOp<'a> {
    /// The collection.
    pub collection: CollectionId,
    /// The record; for an insert the engine's answer (before the commit: 0).
    pub record: RecordId,
    /// What it does.
    pub kind: OpKind<'a>,
    /// The range of the unit's key changes that belong to this operation.
    keys: Range<usize>,
    /// The range of its note among the key bytes.
    note: Range<usize>,
}

/// An index entry that an operation adds or removes.
#[derive(Clone, Debug)]
pub struct KeyChange {
    /// The index.
    pub index: IndexId,
    /// Added, or removed.
    pub add: bool,
    /// Whether another record may not have the same key (a unique index's key, unless the index
    /// exempts it).
    pub unique: bool,
    key: Range<usize>,
    type_bits: Range<usize>,
}

/// The statements of a session's numbered write that a unit executes. A member of a set executes each once
/// (retryable writes).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberedWrite {
    /// The session (`lsid.id`).
    pub session: [u8; 16],
    /// The session's number for the write (`txnNumber`).
    pub number: i64,
    /// The statements' numbers, with what a retry needs to answer the same; empty for one document that was
    /// inserted, changed or deleted.
    pub statements: Vec<(i32, Vec<u8>)>,
}

/// See the module's head.
#[derive(Default)]
pub struct WriteUnit<'a> {
    /// The operations in order.
    pub ops: Vec<WriteOp<'a>>,
    /// The definitions that the unit was computed from: collection and definition number.
    pub definitions: Vec<(CollectionId, u64)>,
    /// The owner of the [`crate::Claims`] that this unit may conflict with; 0: none.
    pub owner: u64,
    /// The statements that it executes, if its session numbers them.
    pub numbered: Option<Box<NumberedWrite>>,
    /// The collections whose documents it changes, on a member of a replica set.
    pub labels: Vec<Arc<Label>>,
    keys: Vec<KeyChange>,
    key_bytes: Vec<u8>,
}

impl<'a> WriteUnit<'a> {
    /// An empty unit.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty unit that is likely to have one operation.
    pub fn of_one() -> Self {
        WriteUnit {
            ops: Vec::with_capacity(1),
            definitions: Vec::with_capacity(1),
            ..Self::default()
        }
    }

    /// Bytes of the keys that operations add and remove, type bits included.
    pub fn all_key_bytes(&self) -> usize {
        self.key_bytes.len()
    }

    /// The number of these keys.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Says that the unit was computed from this definition of the collection.
    pub fn expect_definition(&mut self, collection: CollectionId, number: u64) {
        if !self.definitions.contains(&(collection, number)) {
            self.definitions.push((collection, number));
        }
    }

    /// Adds an operation; keys added afterwards belong to it. Returns its position.
    pub fn push(&mut self, collection: CollectionId, record: RecordId, kind: OpKind<'a>) -> usize {
        let end = self.keys.len();
        self.ops.push(WriteOp { collection, record, kind, keys: end..end, note: 0..0 });
        self.ops.len() - 1
    }

    /// Adds an insert.
    pub fn insert(&mut self, collection: CollectionId, doc: impl Into<Cow<'a, [u8]>>) -> usize {
        self.push(collection, RecordId(0), OpKind::Insert { doc: doc.into() })
    }

    /// Adds an update of the version that was seen.
    pub fn update(
        &mut self,
        collection: CollectionId,
        record: RecordId,
        seen: CommitSeq,
        doc: impl Into<Cow<'a, [u8]>>,
    ) -> usize {
        self.push(collection, record, OpKind::Update { seen, doc: doc.into() })
    }

    /// Adds a delete of the version that was seen.
    pub fn delete(&mut self, collection: CollectionId, record: RecordId, seen: CommitSeq) -> usize {
        self.push(collection, record, OpKind::Delete { seen })
    }

    /// Adds a key change to the last operation.
    pub fn key(&mut self, index: IndexId, add: bool, unique: bool, key: &[u8], type_bits: &[u8]) {
        let start = self.key_bytes.len();
        self.key_bytes.extend_from_slice(key);
        let middle = self.key_bytes.len();
        self.key_bytes.extend_from_slice(type_bits);
        let end = self.key_bytes.len();
        self.keys.push(KeyChange {
            index,
            add,
            unique,
            key: start..middle,
            type_bits: middle..end,
        });
        if let Some(op) = self.ops.last_mut() {
            op.keys.end = self.keys.len();
        }
    }

    /// Names a collection whose documents it changes.
    pub fn label(&mut self, label: &Arc<Label>) {
        if !self.labels.iter().any(|known| known.collection == label.collection) {
            self.labels.push(label.clone());
        }
    }

    /// Notes what the log of a replica set has to tell of the last operation besides the new document: of a deleted
    /// document its `_id`, of a changed or deleted definition the old one.
    pub fn note(&mut self, note: &[u8]) {
        let start = self.key_bytes.len();
        self.key_bytes.extend_from_slice(note);
        if let Some(op) = self.ops.last_mut() {
            op.note = start..self.key_bytes.len();
        }
    }

    /// The note of an operation of this unit; empty if there is none.
    pub fn note_of(&self, op: &WriteOp<'_>) -> &[u8] {
        self.key_bytes.get(op.note.clone()).unwrap_or(&[])
    }

    /// The key changes of the operation at this position.
    pub fn keys_of(&self, op: usize) -> &[KeyChange] {
        self.ops.get(op).and_then(|op| self.keys.get(op.keys.clone())).unwrap_or(&[])
    }

    /// The bytes of a key.
    pub fn key_bytes(&self, change: &KeyChange) -> &[u8] {
        self.key_bytes.get(change.key.clone()).unwrap_or(&[])
    }

    /// The type bits of a key.
    pub fn type_bits(&self, change: &KeyChange) -> &[u8] {
        self.key_bytes.get(change.type_bits.clone()).unwrap_or(&[])
    }

    /// A copy that borrows nothing.
    pub fn to_static(&self) -> WriteUnit<'static> {
        let op = |op: &WriteOp<'a>| WriteOp {
            collection: op.collection,
            record: op.record,
            kind: op.kind.to_static(),
            keys: op.keys.clone(),
            note: op.note.clone(),
        };
        WriteUnit {
            ops: self.ops.iter().map(op).collect(),
            definitions: self.definitions.clone(),
            owner: self.owner,
            numbered: self.numbered.clone(),
            labels: self.labels.clone(),
            keys: self.keys.clone(),
            key_bytes: self.key_bytes.clone(),
        }
    }

    /// Keeps the first `ops` operations and their keys.
    pub fn truncate(&mut self, ops: usize) {
        self.ops.truncate(ops);
        self.keys.truncate(self.ops.last().map_or(0, |op| op.keys.end));
        let keys = self.keys.last().map_or(0, |key| key.type_bits.end);
        let notes = self.ops.iter().map(|op| op.note.end).max().unwrap_or(0);
        self.key_bytes.truncate(keys.max(notes));
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.definitions.clear();
        self.owner = 0;
        self.numbered = None;
        self.labels.clear();
        self.keys.clear();
        self.key_bytes.clear();
    }
}
