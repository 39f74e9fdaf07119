//! Reads the whole contents of an engine, for comparison with the expected contents.

use kauri_base::{Access, CollectionId, CommitSeq, IndexId, RecordId};
use kauri_bson::Doc;
use kauri_storage::error::StorageError;
use kauri_storage::scan::{Direction, IndexScan, RecordScan};
use kauri_storage::{KeyGenerator, RecordStore, RecoveryUnit, SortedDataInterface, StorageEngine};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A record that was read: its bytes and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The document.
    pub doc: Vec<u8>,
    /// The commit that wrote it.
    pub version: CommitSeq,
}

/// An index entry that was read. Ordered as in the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The record.
    pub record: RecordId,
    /// The type bits.
    pub type_bits: Vec<u8>,
}

/// A reader that waits for data that is not in memory.
pub struct Reader {
    unit: Box<dyn RecoveryUnit>,
}

impl Reader {
    /// A reader that has entered.
    pub fn new(engine: &dyn StorageEngine) -> Self {
        let mut unit = engine.recovery_unit();
        unit.enter();
        Reader { unit }
    }

    /// A reader that has entered and holds a snapshot of the current commit.
    pub fn hold(engine: &dyn StorageEngine) -> Self {
        let mut unit = engine.recovery_unit();
        unit.hold_snapshot().unwrap_or_else(|error| panic!("holding: {error}"));
        unit.enter();
        Reader { unit }
    }

    /// A reader by this unit, entered.
    pub fn with(mut unit: Box<dyn RecoveryUnit>) -> Self {
        unit.enter();
        Reader { unit }
    }

    /// All records of a store, found by a scan in this direction.
    pub fn records(
        &mut self,
        store: &dyn RecordStore,
        direction: Direction,
    ) -> Result<BTreeMap<RecordId, Stored>, StorageError> {
        let mut records = BTreeMap::new();
        let mut scan = RecordScan::new(direction);
        let mut last = None;
        while let Some(id) = self.next_id(store, &mut scan)? {
            let ordered = last.is_none_or(|last| match direction {
                Direction::Forward => last < id,
                Direction::Backward => last > id,
            });
            assert!(ordered, "a scan gives {id} after {last:?}");
            last = Some(id);
            if let Some(record) = self.get(store, id)? {
                records.insert(id, record);
            }
        }
        Ok(records)
    }

    /// All entries of an index in this direction.
    pub fn entries(
        &mut self,
        index: &dyn SortedDataInterface,
        direction: Direction,
    ) -> Result<Vec<Entry>, StorageError> {
        self.rest(index, &mut IndexScan::new(direction, Vec::new(), Vec::new()))
    }

    /// Its unit, entered.
    pub fn unit(&mut self) -> &mut dyn RecoveryUnit {
        &mut *self.unit
    }

    /// Asks until the answer is `Ready`; waits without the unit.
    pub fn wait<T>(
        &mut self,
        mut ask: impl FnMut(&dyn RecoveryUnit) -> Result<Access<T>, StorageError>,
    ) -> Result<T, StorageError> {
        loop {
            match ask(&*self.unit)? {
                Access::Ready(value) => return Ok(value),
                Access::WouldBlock(ticket) => {
                    self.unit.leave();
                    let waited = ticket.wait();
                    self.unit.enter();
                    waited.map_err(|error| StorageError::Io(error.message().to_owned()))?;
                }
            }
        }
    }

    /// A copy of the record.
    pub fn get(
        &mut self,
        store: &dyn RecordStore,
        id: RecordId,
    ) -> Result<Option<Stored>, StorageError> {
        self.wait(|unit| {
            Ok(store.get(unit, id)?.map(|record| {
                record.map(|r| Stored { doc: r.doc.as_bytes().to_vec(), version: r.version })
            }))
        })
    }

    /// The first record that has this key.
    pub fn find(
        &mut self,
        index: &dyn SortedDataInterface,
        key: &[u8],
    ) -> Result<Option<RecordId>, StorageError> {
        self.wait(|unit| index.find(unit, key))
    }

    /// The scan's next id.
    pub fn next_id(
        &mut self,
        store: &dyn RecordStore,
        scan: &mut RecordScan,
    ) -> Result<Option<RecordId>, StorageError> {
        loop {
            if let Some(id) = scan.next_buffered() {
                return Ok(Some(id));
            }
            if scan.ended() {
                return Ok(None);
            }
            self.wait(|unit| store.fill(unit, scan))?;
        }
    }

    /// The scan's next entry.
    pub fn next_entry(
        &mut self,
        index: &dyn SortedDataInterface,
        scan: &mut IndexScan,
    ) -> Result<Option<Entry>, StorageError> {
        loop {
            if let Some(entry) = scan.next_buffered() {
                return Ok(Some(Entry {
                    key: entry.key.to_vec(),
                    record: entry.record,
                    type_bits: entry.type_bits.to_vec(),
                }));
            }
            if scan.ended() {
                return Ok(None);
            }
            self.wait(|unit| index.fill(unit, scan))?;
        }
    }

    /// The rest of the scan. Entries must come in order, none twice.
    pub fn rest(
        &mut self,
        index: &dyn SortedDataInterface,
        scan: &mut IndexScan,
    ) -> Result<Vec<Entry>, StorageError> {
        let mut entries: Vec<Entry> = Vec::new();
        let expected = match scan.direction() {
            Direction::Forward => Ordering::Less,
            Direction::Backward => Ordering::Greater,
        };
        while let Some(entry) = self.next_entry(index, scan)? {
            if let Some(last) = entries.last() {
                let order = (&last.key, last.record).cmp(&(&entry.key, entry.record));
                assert!(order == expected, "entry {} is out of order", entries.len());
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// All records of a collection that have a document; none if there is no such store. Ids must come
/// in order.
pub fn records(
    engine: &dyn StorageEngine,
    collection: CollectionId,
) -> Result<BTreeMap<RecordId, Stored>, StorageError> {
    let Some(store) = engine.record_store(collection) else { return Ok(BTreeMap::new()) };
    Reader::new(engine).records(&*store, Direction::Forward)
}

/// All entries of an index in order; none if there is no such index.
pub fn entries(engine: &dyn StorageEngine, index: IndexId) -> Result<Vec<Entry>, StorageError> {
    entries_between(engine, index, Direction::Forward, &[], &[])
}

/// The entries of a range of an index, in this direction.
pub fn entries_between(
    engine: &dyn StorageEngine,
    index: IndexId,
    direction: Direction,
    low: &[u8],
    high: &[u8],
) -> Result<Vec<Entry>, StorageError> {
    let Some(index) = engine.index(index) else { return Ok(Vec::new()) };
    let mut scan = IndexScan::new(direction, low.to_vec(), high.to_vec());
    Reader::new(engine).rest(&*index, &mut scan)
}

/// The entries that an index over these records has to have.
pub fn keys_of(records: &BTreeMap<RecordId, Stored>, generator: &dyn KeyGenerator) -> Vec<Entry> {
    let mut entries = BTreeMap::new();
    for (id, record) in records {
        for (key, type_bits) in generate(generator, &record.doc) {
            entries.insert((key, *id), type_bits);
        }
    }
    let entry = |((key, record), type_bits)| Entry { key, record, type_bits };
    entries.into_iter().map(entry).collect()
}

/// The keys and type bits of a document.
pub fn generate(generator: &dyn KeyGenerator, doc: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut keys = BTreeMap::new();
    let doc = Doc::from_bytes(doc).expect("a framed document");
    generator
        .generate(doc, &mut |key, bits| drop(keys.insert(key.to_vec(), bits.to_vec())))
        .expect("the generators of tests take every document");
    keys
}

/// Checks that the index has exactly the entries that these records of its collection give.
pub fn check_index_of(
    engine: &dyn StorageEngine,
    records: &BTreeMap<RecordId, Stored>,
    index: IndexId,
    generator: &dyn KeyGenerator,
) -> Result<(), StorageError> {
    let expected = keys_of(records, generator);
    let found = entries(engine, index)?;
    assert_eq!(found, expected, "{index:?} is not what its collection's records give");
    let counted = engine.index(index).map_or(Ok(0), |index| index.entries())?;
    assert_eq!(counted, found.len() as u64, "{index:?} miscounts its entries");
    Ok(())
}
