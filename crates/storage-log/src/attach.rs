//! Building an index that the catalog knows of from the records, at the start.

use crate::btree::BTree;
use crate::collection::Collection;
use crate::core::Core;
use crate::index::Index;
use crate::keys::{Keys, Merge};
use crate::read::{self, Lookup};
use crate::readahead::Look;
use crate::recovery::Progress;
use crate::slots::PAGE_SLOTS;
use kauri_base::log::{self, Attr};
use kauri_base::{Access, CollectionId, RecordId};
use kauri_bson::Doc;
use kauri_medium::{Guard, parallel};
use kauri_storage::{IndexSpec, KeyGenerator, StorageError};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Records looked at under one entry of the guard.
const BATCH_RECORDS: usize = 256;
/// Pages of records for which another thread is worth its while.
const PAGES_A_THREAD: usize = 16;

impl Core {
    /// See [`kauri_storage::StorageEngine::attach_index`].
    pub fn attach_index(
        &self,
        collection: CollectionId,
        spec: IndexSpec,
        generator: Arc<dyn KeyGenerator>,
    ) -> Result<(), StorageError> {
        let started = self.options.clock.monotonic();
        let store =
            self.registry.store(collection).ok_or(StorageError::StaleCatalog(collection))?;
        let (keys, message) = match self.load_image(&store, spec, &*generator) {
            Some(keys) => (keys, "Loaded an index from its image"),
            None => {
                let keys = self.build_index(&store, spec, &*generator)?;
                (keys, "Built an index from its collection")
            }
        };
        let entries = keys.entries();
        let index = Arc::new(Index::new(spec, store.clone(), keys, generator));
        self.registry.write().indexes.insert(spec.id, index.clone());
        self.claim_pending_keys(&index)?;
        let elapsed = self.options.clock.monotonic().saturating_sub(started);
        let attr = Attr::new()
            .num("collection", collection.0)
            .num("index", spec.id.0)
            .num("entries", entries)
            .num("durationMicros", elapsed.as_micros());
        log::info("INDEX", 6_200_005, log::STARTUP_CTX, message, attr);
        Ok(())
    }

    /// The index as the documents make it.
    fn build_index(
        &self,
        store: &Collection,
        spec: IndexSpec,
        generator: &dyn KeyGenerator,
    ) -> Result<BTree, StorageError> {
        crate::lock(&self.images).note_built();
        let runs = self.generate_keys(store, generator)?;
        let mut duplicate = None;
        let keys = {
            let mut last: Option<&[u8]> = None;
            let entries = Merge::new(&runs).inspect(|(key, record, _)| {
                if spec.unique && last.replace(*key) == Some(*key) {
                    duplicate.get_or_insert(*record);
                }
            });
            BTree::from_sorted(entries)
        };
        match duplicate {
            None => Ok(keys),
            Some(record) => Err(StorageError::Corruption {
                collection: Some(store.id),
                record: Some(record),
                message: format!("a duplicate key in the unique index {}", spec.id.0),
            }),
        }
    }

    /// The keys of all records, in runs that are each in order.
    fn generate_keys(
        &self,
        store: &Collection,
        generator: &dyn KeyGenerator,
    ) -> Result<Vec<Keys>, StorageError> {
        let of = store.records.load(Ordering::Relaxed);
        let message = "Building an index";
        let progress = Progress::new(&*self.options.clock, "INDEX", message, "records", of);
        let pages = store.slots.page_numbers();
        let threads = (pages.len() / PAGES_A_THREAD).clamp(1, self.options.open_threads.max(1));
        let parts: Vec<&[u64]> = pages.chunks(pages.len().div_ceil(threads).max(1)).collect();
        parallel::try_map(threads, parts.len(), |part| {
            let mut keys = Keys::default();
            if let Some((first, last)) = parts.get(part).and_then(|p| p.first().zip(p.last())) {
                let range = first * PAGE_SLOTS..(last + 1) * PAGE_SLOTS;
                self.generate_part(store, generator, range, &mut keys, &progress)?;
            }
            keys.sort();
            Ok(keys)
        })
    }

    fn generate_part(
        &self,
        store: &Collection,
        generator: &dyn KeyGenerator,
        records: Range<u64>,
        keys: &mut Keys,
        progress: &Progress<'_>,
    ) -> Result<(), StorageError> {
        let mut guard = self.domain.register();
        let mut next = records.start;
        let mut batch = Vec::with_capacity(BATCH_RECORDS);
        loop {
            guard.enter();
            batch.clear();
            let mut look = Look::default();
            store.slots.walk(&guard, next, false, |id, slot| {
                if id >= records.end {
                    return false;
                }
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
                self.generate_for(&mut guard, store, *record, generator, keys)?;
            }
            guard.leave();
            let Some(last) = batch.last() else { return Ok(()) };
            next = last.0 + 1;
            let done = batch.len() as u64;
            progress.add(done, done, |attr| attr.num("collection", store.id.0));
        }
    }

    /// Adds the keys of one record.
    pub fn generate_for(
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
