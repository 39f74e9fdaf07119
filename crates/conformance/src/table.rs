//! A collection with indexes, maintained as the catalog does, over generated documents: the key changes of each
//! statement follow from the documents before and after.

use super::inspect::{self, Reader, Stored};
use kauri_base::{CollectionId, CommitSeq, IndexId, RecordId};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_storage::error::StorageError;
use kauri_storage::unit::{OpKind, WriteUnit};
use kauri_storage::{CommitTicket, IndexSpec, KeyGenerator, RecordStore, StorageEngine};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A document `{k: …, u: …, s: …}`.
pub fn doc(k: i64, u: i64, s: &str) -> Vec<u8> {
    DocBuf::build(|w| {
        w.put("k", k);
        w.put("u", u);
        w.put("s", s);
    })
    .into_vec()
}

/// The number under this name in a document, 0 if it does not exist.
pub fn number(doc: &[u8], field: &str) -> i64 {
    match Doc::from_bytes(doc).map(|doc| doc.value(field)) {
        Ok(Value::Int64(number)) => number,
        _ => 0,
    }
}

/// The key that [`FieldKeys`] makes of a number.
pub fn key(number: i64) -> [u8; 8] {
    ((number as u64) ^ (1 << 63)).to_be_bytes()
}

/// Generates keys of one field: of a number its order-preserving bytes, of a string its bytes, of an array one per
/// element, none otherwise. The type bits are the BSON type.
pub struct FieldKeys {
    field: &'static str,
    /// Whether the index has the keys of all documents.
    complete: AtomicBool,
}

impl KeyGenerator for FieldKeys {
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> kauri_base::Result<()> {
        let mut emit_one = |value: &Value<'_>| match value {
            Value::Int64(number) => emit(&key(*number), &[18]),
            Value::String(text) => emit(text.as_bytes(), &[2]),
            _ => {}
        };
        match doc.value(self.field) {
            Value::Array(values) => values.iter().for_each(|elem| emit_one(&elem.value())),
            value => emit_one(&value),
        }
        Ok(())
    }

    fn image_tag(&self) -> Option<u64> {
        let tag = self.field.bytes().fold(7, |tag: u64, byte| tag << 8 | u64::from(byte));
        self.complete.load(Ordering::SeqCst).then_some(tag)
    }
}

/// One index of a [`Table`].
#[derive(Clone)]
pub struct TableIndex {
    /// Its definition.
    pub spec: IndexSpec,
    /// Its key generator.
    pub generator: Arc<FieldKeys>,
}

impl TableIndex {
    /// An index over one field.
    pub fn new(id: u32, unique: bool, field: &'static str) -> Self {
        TableIndex {
            spec: IndexSpec { id: IndexId(id), unique },
            generator: Arc::new(FieldKeys { field, complete: AtomicBool::new(false) }),
        }
    }

    /// Says that the index has the keys of all documents: engines may keep images of it.
    pub fn set_complete(&self) {
        self.generator.complete.store(true, Ordering::SeqCst);
    }
}

/// A collection and its indexes.
#[derive(Clone)]
pub struct Table {
    /// The engine that has it.
    pub engine: Arc<dyn StorageEngine>,
    /// Its id.
    pub id: CollectionId,
    /// Its indexes.
    pub indexes: Vec<TableIndex>,
}

impl Table {
    /// Creates it.
    pub fn create(engine: &Arc<dyn StorageEngine>, id: u32, indexes: &[TableIndex]) -> Table {
        let table = Table::new(engine, id, indexes);
        let mut unit = WriteUnit::new();
        table.create_in(&mut unit);
        table.commit(&mut unit);
        indexes.iter().for_each(TableIndex::set_complete);
        table
    }

    /// A description of one that is there already, or not yet.
    pub fn new(engine: &Arc<dyn StorageEngine>, id: u32, indexes: &[TableIndex]) -> Table {
        Table { engine: engine.clone(), id: CollectionId(id), indexes: indexes.to_vec() }
    }

    /// Adds its creation to a unit.
    pub fn create_in(&self, unit: &mut WriteUnit<'_>) {
        unit.push(self.id, RecordId(0), OpKind::CreateStore);
        for index in &self.indexes {
            self.create_index_in(unit, index);
        }
    }

    /// Adds an index's creation to a unit.
    pub fn create_index_in(&self, unit: &mut WriteUnit<'_>, index: &TableIndex) {
        let (spec, generator) = (index.spec, index.generator.clone());
        unit.push(self.id, RecordId(0), OpKind::CreateIndex { spec, generator });
    }

    /// Attaches its indexes to an engine that was opened again.
    pub fn attach(&self) {
        for index in &self.indexes {
            index.set_complete();
            self.engine
                .attach_index(self.id, index.spec, index.generator.clone())
                .unwrap_or_else(|error| panic!("attaching {:?}: {error}", index.spec.id));
        }
    }

    /// Adds an insert, with its keys, to a unit.
    pub fn insert_in(&self, unit: &mut WriteUnit<'_>, doc: &[u8]) -> usize {
        let op = unit.insert(self.id, doc.to_vec());
        self.keys_in(unit, None, Some(doc));
        op
    }

    /// Adds an update of a record that was read, with its keys, to a unit.
    pub fn update_in(
        &self,
        unit: &mut WriteUnit<'_>,
        id: RecordId,
        old: &Stored,
        doc: &[u8],
    ) -> usize {
        let op = unit.update(self.id, id, old.version, doc.to_vec());
        self.keys_in(unit, Some(&old.doc), Some(doc));
        op
    }

    /// Adds a delete of a record that was read, with its keys, to a unit.
    pub fn delete_in(&self, unit: &mut WriteUnit<'_>, id: RecordId, old: &Stored) -> usize {
        let op = unit.delete(self.id, id, old.version);
        self.keys_in(unit, Some(&old.doc), None);
        op
    }

    fn keys_in(&self, unit: &mut WriteUnit<'_>, old: Option<&[u8]>, new: Option<&[u8]>) {
        for index in &self.indexes {
            let keys = |doc: Option<&[u8]>| {
                doc.map_or_else(BTreeMap::new, |doc| inspect::generate(&*index.generator, doc))
            };
            let (old, new) = (keys(old), keys(new));
            for (key, bits) in &old {
                if !new.contains_key(key) {
                    unit.key(index.spec.id, false, index.spec.unique, key, bits);
                }
            }
            for (key, bits) in &new {
                if old.get(key) != Some(bits) {
                    unit.key(index.spec.id, true, index.spec.unique, key, bits);
                }
            }
        }
    }

    /// Adds the filling of a new index for one record to a unit.
    pub fn backfill_in(
        &self,
        unit: &mut WriteUnit<'_>,
        index: &TableIndex,
        id: RecordId,
        record: &Stored,
    ) {
        unit.push(self.id, id, OpKind::Backfill { seen: record.version });
        for (key, bits) in inspect::generate(&*index.generator, &record.doc) {
            unit.key(index.spec.id, true, index.spec.unique, &key, &bits);
        }
    }

    /// Commits a unit that must succeed.
    pub fn commit(&self, unit: &mut WriteUnit<'_>) -> CommitTicket {
        self.engine.commit(unit).unwrap_or_else(|error| panic!("commit: {error}"))
    }

    /// Inserts one document.
    pub fn insert(&self, doc: &[u8]) -> RecordId {
        self.try_insert(doc).unwrap_or_else(|error| panic!("insert: {error}"))
    }

    /// Inserts one document, if the engine takes it.
    pub fn try_insert(&self, doc: &[u8]) -> Result<RecordId, StorageError> {
        let mut unit = WriteUnit::new();
        let op = self.insert_in(&mut unit, doc);
        self.engine.commit(&mut unit)?;
        Ok(unit.ops[op].record)
    }

    /// Replaces a record's document; the record must exist, without another writer.
    pub fn update(&self, id: RecordId, doc: &[u8]) -> CommitSeq {
        let mut unit = WriteUnit::new();
        self.update_in(&mut unit, id, &self.record(id), doc);
        self.commit(&mut unit).seq
    }

    /// Deletes a record; the record must exist, without another writer.
    pub fn delete(&self, id: RecordId) {
        let mut unit = WriteUnit::new();
        self.delete_in(&mut unit, id, &self.record(id));
        self.commit(&mut unit);
    }

    /// Its record store, which must exist.
    pub fn store(&self) -> Arc<dyn RecordStore> {
        self.engine.record_store(self.id).unwrap_or_else(|| panic!("{:?} is gone", self.id))
    }

    /// A record as a reader that enters now sees it.
    pub fn get(&self, id: RecordId) -> Option<Stored> {
        let mut reader = Reader::new(&*self.engine);
        reader.get(&*self.store(), id).unwrap_or_else(|error| panic!("get {id}: {error}"))
    }

    /// A record that must be there.
    pub fn record(&self, id: RecordId) -> Stored {
        self.get(id).unwrap_or_else(|| panic!("{id} is gone"))
    }

    /// All its records.
    pub fn records(&self) -> BTreeMap<RecordId, Stored> {
        inspect::records(&*self.engine, self.id).unwrap_or_else(|error| panic!("scan: {error}"))
    }

    /// The first record with this number in the index.
    pub fn find(&self, index: &TableIndex, number: i64) -> Option<RecordId> {
        let found = self.engine.index(index.spec.id)?;
        let mut reader = Reader::new(&*self.engine);
        reader.find(&*found, &key(number)).unwrap_or_else(|error| panic!("find: {error}"))
    }

    /// Checks that its indexes are what its records give, and that its statistics add up.
    pub fn check(&self) {
        let records = self.records();
        for index in &self.indexes {
            let (id, generator) = (index.spec.id, &*index.generator);
            inspect::check_index_of(&*self.engine, &records, id, generator)
                .unwrap_or_else(|error| panic!("checking {id:?}: {error}"));
        }
        let stats = self.store().stats().unwrap_or_else(|error| panic!("stats: {error}"));
        assert_eq!(stats.records, records.len() as u64, "{:?} miscounts its records", self.id);
        let bytes: usize = records.values().map(|record| record.doc.len()).sum();
        assert_eq!(stats.bytes, bytes as u64, "{:?} miscounts its bytes", self.id);
    }
}
