//! Building an index that the catalog knows of from the records, at the start.

use crate::btree::BTree;
use crate::collection::Collection;
use crate::core::Core;
use crate::index::Index;
use crate::read::{self, Lookup};
use crate::readahead::Look;
use kauri_base::log::{self, Attr};
use kauri_base::{Access, CollectionId, RecordId};
use kauri_bson::Doc;
use kauri_medium::Guard;
use kauri_storage::{IndexSpec, KeyGenerator, StorageError};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Records between two log lines.
const PROGRESS_RECORDS: u64 = 10_000_000;
/// Records looked at under one entry of the guard.
const BATCH_RECORDS: usize = 256;

/// Keys of many records, one after the other.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

struct Entry {
    start: usize,
    key_len: u32,
    bits_len: u32,
    record: RecordId,
}

impl Keys {
    fn push(&mut self, key: &[u8], bits: &[u8], record: RecordId) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(bits);
        let (key_len, bits_len) = (key.len() as u32, bits.len() as u32);
        self.entries.push(Entry { start, key_len, bits_len, record });
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start..entry.start + entry.key_len as usize]
    }

    fn bits(&self, entry: &Entry) -> &[u8] {
        let start = entry.start + entry.key_len as usize;
        &self.bytes[start..start + entry.bits_len as usize]
    }

    fn sort(&mut self) {
        let Keys { bytes, entries } = self;
        let key = |e: &Entry| &bytes[e.start..e.start + e.key_len as usize];
        entries.sort_unstable_by(|a, b| key(a).cmp(key(b)).then(a.record.cmp(&b.record)));
        entries.dedup_by(|a, b| a.record == b.record && key(a) == key(b));
    }

    /// A record whose key another one has too.
    fn duplicate(&self) -> Option<RecordId> {
        let pair = self.entries.windows(2).find(|pair| match pair {
            [a, b] => self.key(a) == self.key(b),
            _ => false,
        })?;
        pair.last().map(|entry| entry.record)
    }
}

impl Core {
    /// See [`kauri_storage::StorageEngine::attach_index`].
    pub fn attach_index(
        &self,
        collection: CollectionId,
        spec: IndexSpec,
        generator: &dyn KeyGenerator,
    ) -> Result<(), StorageError> {
        let started = self.options.clock.monotonic();
        let store =
            self.registry.store(collection).ok_or(StorageError::StaleCatalog(collection))?;
        let mut keys = self.generate_keys(&store, generator)?;
        keys.sort();
        if spec.unique
            && let Some(record) = keys.duplicate()
        {
            return Err(StorageError::Corruption {
                collection: Some(collection),
                record: Some(record),
                message: format!("a duplicate key in the unique index {}", spec.id.0),
            });
        }
        let entries = keys.entries.iter().map(|e| (keys.key(e), e.record, keys.bits(e)));
        let index = Index::new(spec, collection, BTree::from_sorted(entries));
        self.registry.write().indexes.insert(spec.id, Arc::new(index));
        let elapsed = self.options.clock.monotonic().saturating_sub(started);
        log::info(
            "INDEX",
            6_200_005,
            "initandlisten",
            "Built an index from its collection",
            Attr::new()
                .num("collection", collection.0)
                .num("index", spec.id.0)
                .num("entries", keys.entries.len())
                .num("durationMicros", elapsed.as_micros()),
        );
        Ok(())
    }

    fn generate_keys(
        &self,
        store: &Collection,
        generator: &dyn KeyGenerator,
    ) -> Result<Keys, StorageError> {
        let mut guard = self.domain.register();
        let mut keys = Keys::default();
        let (mut next, mut done) = (0, 0);
        let mut batch = Vec::with_capacity(BATCH_RECORDS);
        loop {
            guard.enter();
            batch.clear();
            let mut look = Look::default();
            store.slots.walk(&guard, next, false, |id, slot| {
                if slot.is_live() {
                    look.at(id, slot, batch.len() < BATCH_RECORDS);
                    if batch.len() == BATCH_RECORDS {
                        return false;
                    }
                    batch.push(RecordId(id));
                }
                true
            });
            look.read_ahead(self, &guard, store, false);
            for record in &batch {
                self.generate_for(&mut guard, store, *record, generator, &mut keys)?;
            }
            guard.leave();
            let Some(last) = batch.last() else { return Ok(keys) };
            next = last.0 + 1;
            let before = done / PROGRESS_RECORDS;
            done += batch.len() as u64;
            if done / PROGRESS_RECORDS > before {
                let of = store.records.load(Ordering::Relaxed);
                let attr =
                    Attr::new().num("collection", store.id.0).num("records", done).num("of", of);
                log::info("INDEX", 6_200_006, "initandlisten", "Building an index", attr);
            }
        }
    }

    fn generate_for(
        &self,
        guard: &mut Guard,
        store: &Collection,
        record: RecordId,
        generator: &dyn KeyGenerator,
        keys: &mut Keys,
    ) -> Result<(), StorageError> {
        loop {
            let ticket = match read::document(self, guard, store, record)? {
                Access::Ready(Lookup::Nothing) => return Ok(()),
                Access::Ready(Lookup::Found((_, bytes))) => {
                    let corrupt = |error: kauri_base::Error| StorageError::Corruption {
                        collection: Some(store.id),
                        record: Some(record),
                        message: error.message().to_owned(),
                    };
                    let doc = Doc::from_bytes(bytes).map_err(corrupt)?;
                    return generator
                        .generate(doc, &mut |key, bits| keys.push(key, bits, record))
                        .map_err(corrupt);
                }
                Access::WouldBlock(ticket) => ticket,
            };
            guard.leave();
            let waited = ticket.wait();
            guard.enter();
            waited.map_err(|error| StorageError::Io(error.to_string()))?;
        }
    }
}
