//! Documents of a collection in record order, read through the cache.

use super::{MadeKeys, Pass, Result, corrupt};
use crate::collection::Collection;
use crate::core::Core;
use crate::keys::Keys;
use crate::read::{self, Lookup};
use crate::readahead::Look;
use crate::slots::PAGE_SLOTS;
use kauri_base::{Access, RecordId};
use kauri_bson::Doc;
use kauri_medium::{Guard, parallel};
use kauri_storage::{KeyGenerator, StorageError};
use std::ops::Range;

/// Records read under one entry of the guard.
const BATCH_RECORDS: usize = 256;
/// Pages of records for which another thread is worth its while.
const PAGES_A_THREAD: usize = 16;

impl Pass<'_> {
    /// The keys of all records.
    pub(super) fn by_records(&self) -> Result<Vec<MadeKeys>> {
        let pages = self.store.slots.page_numbers();
        let threads =
            (pages.len() / PAGES_A_THREAD).clamp(1, self.core.options.open_threads.max(1));
        let shares: Vec<&[u64]> = pages.chunks(pages.len().div_ceil(threads).max(1)).collect();
        parallel::try_map(threads, shares.len(), |n| {
            let mut made = self.no_keys();
            if let Some((first, last)) = shares.get(n).and_then(|p| p.first().zip(p.last())) {
                self.records(first * PAGE_SLOTS..(last + 1) * PAGE_SLOTS, &mut made)?;
            }
            made.sort();
            Ok(made)
        })
    }

    fn records(&self, records: Range<u64>, made: &mut MadeKeys) -> Result<()> {
        let Pass { core, store, .. } = *self;
        let mut guard = core.domain.register();
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
            look.read_ahead(core, &guard, store, false);
            for record in &batch {
                core.with_document(&mut guard, store, *record, |bytes| {
                    made.records += 1;
                    self.generate(made, *record, bytes, |_| true)
                })?;
                if made.is_due() {
                    guard.leave();
                    self.take_memory(made)?;
                    guard.enter();
                }
            }
            guard.leave();
            let Some(last) = batch.last() else { return Ok(()) };
            next = last.0 + 1;
            let done = batch.len() as u64;
            self.progress.add(done, done, |attr| attr.num("collection", store.id.0));
        }
    }
}

impl Core {
    /// Adds the keys of one record.
    pub fn generate_for(
        &self,
        guard: &mut Guard,
        store: &Collection,
        record: RecordId,
        generator: &dyn KeyGenerator,
        keys: &mut Keys,
    ) -> Result<()> {
        self.with_document(guard, store, record, |bytes| {
            let corrupt = |error: kauri_base::Error| corrupt(store, record, error.message());
            let doc = Doc::from_bytes(bytes).map_err(corrupt)?;
            generator.generate(doc, &mut |key, bits| keys.push(key, bits, record)).map_err(corrupt)
        })
    }

    /// Gives a record's document to `take`, if there is one, waiting for it if need be.
    fn with_document(
        &self,
        guard: &mut Guard,
        store: &Collection,
        record: RecordId,
        take: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        loop {
            let ticket = match read::document(self, guard, store, record)? {
                Access::Ready(Lookup::Nothing) => return Ok(()),
                Access::Ready(Lookup::Found((_, bytes))) => return take(bytes),
                Access::WouldBlock(ticket) => ticket,
            };
            guard.leave();
            let waited = ticket.wait();
            guard.enter();
            waited.map_err(|error| StorageError::Io(error.to_string()))?;
        }
    }
}
