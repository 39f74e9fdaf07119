//! Documents of one size with an int64 `_id` and incompressible text, and the operations on them.

use super::subject::Subject;
use crate::workload::Seeded;
use crate::workload::generator::{Uniform, Zipfian};
use crate::workload::record::hash64;
use kauri_base::clock::SeededRandom;
use kauri_base::{Access, CollectionId, Error, ErrorCode, IndexId, RecordId, Result};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_storage::{
    CommitTicket, IndexSpec, KeyGenerator, OpKind, Record, RecordStore, RecoveryUnit,
    SortedDataInterface, StorageEngine, StorageError, WriteUnit,
};
use std::sync::Arc;

/// The collection's id.
pub const COLLECTION: CollectionId = CollectionId(10);
/// Its index's.
pub const INDEX: IndexId = IndexId(20);

/// Makes the key of an int64 `_id`: a type byte and the number.
pub struct IdKeys;

/// The key of an `_id`.
pub fn key(id: i64) -> [u8; 9] {
    let mut key = [0x2B; 9];
    key[1..].copy_from_slice(&((id as u64) ^ (1 << 63)).to_be_bytes());
    key
}

impl KeyGenerator for IdKeys {
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        if let Value::Int64(id) = doc.value("_id") {
            emit(&key(id), &[]);
        }
        Ok(())
    }

    fn image_tag(&self) -> Option<u64> {
        Some(1)
    }

    fn is_of_id(&self) -> bool {
        true
    }
}

/// Writes documents of one size.
pub struct Documents {
    template: Vec<u8>,
    random: SeededRandom,
}

/// Where the template's `_id` stands: behind the length, the type and the name.
const ID_AT: usize = 9;
/// Where its text stands: behind the `_id`, the type, the name and the length.
const TEXT_AT: usize = ID_AT + 8 + 1 + 5 + 4;

impl Documents {
    /// Of this size in bytes.
    pub fn new(bytes: usize, seed: u64) -> Documents {
        let text = "x".repeat(bytes.saturating_sub(TEXT_AT + 2));
        let template = DocBuf::build(|out| {
            out.put("_id", 0i64);
            out.put("text", text.as_str());
        });
        Documents { template: template.into_vec(), random: SeededRandom::new(seed) }
    }

    /// One with this `_id` and new text. Eight letters at a time, since it is made within what is measured.
    pub fn make(&mut self, id: i64) -> &[u8] {
        const SIX_BITS: u64 = u64::from_ne_bytes([63; 8]);
        const FIRST_LETTER: u64 = u64::from_ne_bytes([b'0'; 8]);
        let end = self.template.len().saturating_sub(2);
        if let Some(place) = self.template.get_mut(ID_AT..ID_AT + 8) {
            place.copy_from_slice(&id.to_le_bytes());
        }
        if let Some(text) = self.template.get_mut(TEXT_AT..end) {
            for chunk in text.chunks_mut(8) {
                let letters = (self.random.next_own() & SIX_BITS) + FIRST_LETTER;
                chunk.copy_from_slice(&letters.to_le_bytes()[..chunk.len()]);
            }
        }
        &self.template
    }
}

/// A collection with an index on `_id`, as the layers above use it.
#[derive(Clone)]
pub struct Collection {
    /// The engine.
    pub engine: Arc<dyn StorageEngine>,
    store: Arc<dyn RecordStore>,
    index: Arc<dyn SortedDataInterface>,
}

impl Collection {
    /// Creates it.
    pub fn create(subject: &Subject) -> Result<Collection> {
        Self::create_with(subject, Arc::new(IdKeys))
    }

    /// Creates it, with keys of another kind.
    pub fn create_with(subject: &Subject, generator: Arc<dyn KeyGenerator>) -> Result<Collection> {
        let mut unit = WriteUnit::new();
        unit.push(COLLECTION, RecordId(0), OpKind::CreateStore);
        let spec = IndexSpec { id: INDEX, unique: true };
        unit.push(COLLECTION, RecordId(0), OpKind::CreateIndex { spec, generator });
        subject.engine.commit(&mut unit)?;
        Self::of(subject)
    }

    /// Attaches its index in an engine that was just opened.
    pub fn attach(subject: &Subject) -> Result<Collection> {
        Self::attach_with(subject, Arc::new(IdKeys))
    }

    /// Attaches its index, with keys of another kind.
    pub fn attach_with(subject: &Subject, generator: Arc<dyn KeyGenerator>) -> Result<Collection> {
        let spec = IndexSpec { id: INDEX, unique: true };
        subject.engine.attach_index(COLLECTION, spec, generator)?;
        Self::of(subject)
    }

    fn of(subject: &Subject) -> Result<Collection> {
        let engine = subject.engine.clone();
        let gone = || Error::new(ErrorCode::OperationFailed, "the collection is gone");
        let store = engine.record_store(COLLECTION).ok_or_else(gone)?;
        let index = engine.index(INDEX).ok_or_else(gone)?;
        Ok(Collection { engine, store, index })
    }

    /// Its records.
    pub fn store(&self) -> &dyn RecordStore {
        &*self.store
    }

    /// Its index.
    pub fn index(&self) -> &dyn SortedDataInterface {
        &*self.index
    }

    /// Inserts `count` documents from `first` on, `group` in each unit, flushing after each.
    pub fn load(&self, docs: &mut Documents, first: i64, count: i64, group: i64) -> Result<()> {
        let mut unit = WriteUnit::new();
        let mut next = first;
        while next < first + count {
            unit.clear();
            for id in next..(next + group).min(first + count) {
                unit.insert(COLLECTION, docs.make(id).to_vec());
                unit.key(INDEX, true, true, &key(id), &[]);
            }
            next += group;
            self.commit(&mut unit)?;
        }
        Ok(())
    }

    /// Commits a unit and hands it to the kernel.
    pub fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket> {
        let ticket = self.engine.commit(unit)?;
        self.engine.flush();
        Ok(ticket)
    }

    /// Inserts one document; the ticket to wait for.
    pub fn insert(&self, docs: &mut Documents, id: i64) -> Result<CommitTicket> {
        let mut unit = WriteUnit::new();
        unit.insert(COLLECTION, docs.make(id));
        unit.key(INDEX, true, true, &key(id), &[]);
        Ok(self.engine.commit(&mut unit)?)
    }

    /// Replaces the document with this `_id` by another one of its size; nobody else writes it.
    pub fn update(&self, reader: &mut Reader, docs: &mut Documents, id: i64) -> Result<()> {
        self.update_doc(reader, id, docs.make(id))
    }

    /// Replaces the document with this `_id` by this one; nobody else writes it.
    pub fn update_doc(&self, reader: &mut Reader, id: i64, doc: &[u8]) -> Result<()> {
        let (record, seen) = reader
            .by_id(self, id, |record, found| (record, found.version))?
            .ok_or_else(|| Error::new(ErrorCode::OperationFailed, "a document is missing"))?;
        let mut unit = WriteUnit::new();
        unit.update(COLLECTION, record, seen, doc);
        self.commit(&mut unit).map(drop)
    }

    /// Inserts one document and hands it to the kernel.
    pub fn insert_doc(&self, id: i64, doc: &[u8]) -> Result<()> {
        let mut unit = WriteUnit::new();
        unit.insert(COLLECTION, doc);
        unit.key(INDEX, true, true, &key(id), &[]);
        self.commit(&mut unit).map(drop)
    }
}

/// Reads as one operation after another.
pub struct Reader {
    unit: Box<dyn RecoveryUnit>,
}

impl Reader {
    /// A reader of this engine.
    pub fn new(engine: &dyn StorageEngine) -> Reader {
        Reader { unit: engine.recovery_unit() }
    }

    /// Asks within one snapshot; waits for what is not at hand, then asks anew.
    pub fn ask<T>(
        &mut self,
        mut ask: impl FnMut(&dyn RecoveryUnit) -> std::result::Result<Access<T>, StorageError>,
    ) -> Result<T> {
        loop {
            self.unit.enter();
            let answer = ask(&*self.unit);
            self.unit.leave();
            match answer? {
                Access::Ready(value) => return Ok(value),
                Access::WouldBlock(ticket) => ticket.wait()?,
            }
        }
    }

    /// Finds a document by its `_id` and looks at it.
    pub fn by_id<T>(
        &mut self,
        collection: &Collection,
        id: i64,
        look: impl FnMut(RecordId, &Record<'_>) -> T,
    ) -> Result<Option<T>> {
        self.by_key(collection, &key(id), look)
    }

    /// Finds a document by its key and looks at it.
    pub fn by_key<T>(
        &mut self,
        collection: &Collection,
        key: &[u8],
        mut look: impl FnMut(RecordId, &Record<'_>) -> T,
    ) -> Result<Option<T>> {
        self.ask(|unit| {
            let record = match collection.index.find(unit, key)? {
                Access::Ready(Some(record)) => record,
                Access::Ready(None) => return Ok(Access::Ready(None)),
                Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
            };
            let found = collection.store.get(unit, record)?;
            Ok(found.map(|found| found.map(|found| look(record, &found))))
        })
    }

    /// Looks at a record by its id.
    pub fn record<T>(
        &mut self,
        collection: &Collection,
        id: RecordId,
        mut look: impl FnMut(&Record<'_>) -> T,
    ) -> Result<Option<T>> {
        self.ask(|unit| {
            Ok(collection.store.get(unit, id)?.map(|found| found.map(|found| look(&found))))
        })
    }

    /// Its unit, for what takes many steps.
    pub fn unit(&mut self) -> &mut dyn RecoveryUnit {
        &mut *self.unit
    }
}

/// Which document is next.
pub enum Choice {
    /// All are as likely.
    Uniform(Uniform, Seeded),
    /// Zipf's law with YCSB's exponent, the popular ones scattered by its hash.
    Zipf(Box<Zipfian>, i64, Seeded),
}

impl Choice {
    /// Uniform over `count`.
    pub fn uniform(count: u64, seed: u64) -> Choice {
        Choice::Uniform(Uniform::new(0, count as i64 - 1), Seeded::new(seed))
    }

    /// Zipf .99 over `count`.
    pub fn zipf(count: u64, seed: u64) -> Choice {
        let count = count as i64;
        Choice::Zipf(Box::new(Zipfian::new(0, count - 1)), count, Seeded::new(seed))
    }

    /// The next one.
    pub fn next(&mut self) -> i64 {
        match self {
            Choice::Uniform(uniform, random) => uniform.next(random),
            Choice::Zipf(zipfian, count, random) => hash64(zipfian.next(random)) % *count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_their_size_and_id() {
        let mut docs = Documents::new(1024, 1);
        let one = docs.make(77).to_vec();
        assert_eq!(one.len(), 1024);
        let doc = Doc::from_bytes(&one).expect("a document");
        assert!(matches!(doc.value("_id"), Value::Int64(77)));
        let Value::String(text) = doc.value("text") else { panic!("no text") };
        assert!(text.len() > 950 && text.bytes().all(|byte| byte.is_ascii_graphic()));
        let mut keys = Vec::new();
        IdKeys.generate(doc, &mut |key, _| keys.push(key.to_vec())).expect("keys");
        assert_eq!(keys, [key(77).to_vec()]);
        assert_ne!(docs.make(77), one, "the text is new each time");
    }

    #[test]
    fn zipf_prefers_few() {
        let mut choice = Choice::zipf(100_000, 1);
        let mut counts = vec![0u32; 100_000];
        for _ in 0..200_000 {
            counts[choice.next() as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = counts[..1000].iter().sum();
        let share = f64::from(top) / 200_000.0;
        assert!((0.55..0.72).contains(&share), "the first 1 % have {share}");
    }
}
