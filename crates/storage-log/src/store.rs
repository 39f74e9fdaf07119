//! The record store: documents by id.

use crate::address::Slot;
use crate::collection::Collection;
use crate::core::Core;
use crate::format::record::RecordHeader;
use crate::read::{self, Lookup};
use crate::readahead::Look;
use crate::slots::PAGE_SLOTS;
use crate::unit::{Held, LogUnit};
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_base::{Access, CollectionId, CommitSeq, RecordId};
use kauri_bson::Doc;
use kauri_storage::{
    Direction, Record, RecordScan, RecordStore, RecordStoreStats, RecoveryUnit, StorageError,
};

/// See the module's head.
pub struct Store {
    /// The engine.
    pub core: Arc<Core>,
    /// Its collection.
    pub collection: Arc<Collection>,
}

impl RecordStore for Store {
    fn id(&self) -> CollectionId {
        self.collection.id
    }

    fn get<'g>(
        &self,
        ru: &'g dyn RecoveryUnit,
        id: RecordId,
    ) -> Result<Access<Option<Record<'g>>>, StorageError> {
        let unit = LogUnit::of(ru)?;
        let found = match unit.held() {
            None => read::document(&self.core, unit.guard(), &self.collection, id)?,
            Some(held) => {
                if let Some(written) = held.write_set.record(self.collection.id, id)? {
                    unit.check(held, &self.collection, false)?;
                    return Ok(Access::Ready(written));
                }
                self.document_held(unit, held, id)?
            }
        };
        match found {
            Access::Ready(Lookup::Found((header, bytes))) => {
                let doc = Doc::from_bytes(bytes).map_err(|error| StorageError::Corruption {
                    collection: Some(self.collection.id),
                    record: Some(id),
                    message: error.message().to_owned(),
                })?;
                let record = Record { doc, version: CommitSeq(header.seq) };
                Ok(Access::Ready(Some(record)))
            }
            Access::Ready(Lookup::Nothing) => self.check_dropped().map(|()| Access::Ready(None)),
            Access::WouldBlock(ticket) => Ok(Access::WouldBlock(ticket)),
        }
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut RecordScan,
    ) -> Result<Access<()>, StorageError> {
        let unit = LogUnit::of(ru)?;
        if let Some(held) = unit.held() {
            let filled = held.write_set.fill_records(self.collection.id, scan, |scan| {
                self.fill_held(unit, held, scan);
                Ok(Access::Ready(()))
            });
            unit.check(held, &self.collection, false)?;
            return filled;
        }
        let backward = scan.direction() == Direction::Backward;
        let from = match (scan.position(), backward) {
            (None, false) => Some(0),
            (None, true) => Some(u64::MAX),
            (Some(id), false) => id.0.checked_add(1),
            (Some(id), true) => id.0.checked_sub(1),
        };
        let (guard, slots) = (unit.guard(), &self.collection.slots);
        let mut look = Look::default();
        scan.refill(|batch, wanted| {
            let Some(from) = from else { return };
            slots.walk(guard, from, backward, |id, slot| {
                if slot.is_live() {
                    look.at(id, slot, batch.len() < wanted);
                    if batch.len() == wanted {
                        return false;
                    }
                    batch.push(RecordId(id));
                }
                true
            });
        });
        self.check_dropped()?;
        look.read_ahead(&self.core, guard, &self.collection, backward);
        Ok(Access::Ready(()))
    }

    fn stats(&self) -> Result<RecordStoreStats, StorageError> {
        let stats = self.figures();
        self.check_dropped()?;
        Ok(stats)
    }

    fn engine_stats(&self) -> Option<(&'static str, Vec<(&'static str, u64)>)> {
        let stats = self.figures();
        let in_log = self.collection.physical.load(Ordering::Relaxed);
        let pages = self.collection.slots.page_numbers().len() as u64;
        let fields = vec![
            ("liveRecords", stats.records),
            ("liveBytes", stats.storage_bytes),
            ("recordsInLog", in_log),
            ("outdatedRecordsInLog", in_log.saturating_sub(stats.records)),
            ("addressTableBytes", pages * PAGE_SLOTS * size_of::<Slot>() as u64),
        ];
        Some((crate::format::ENGINE_NAME, fields))
    }
}

impl Store {
    /// Fails if the store was dropped. Called after reading: nothing is freed before the store is marked, so a read
    /// of an unmarked store was complete.
    #[inline]
    fn check_dropped(&self) -> Result<(), StorageError> {
        match self.collection.is_dropped() {
            true => Err(StorageError::Dropped { collection: self.collection.id, index: None }),
            false => Ok(()),
        }
    }

    fn figures(&self) -> RecordStoreStats {
        RecordStoreStats {
            records: self.collection.records.load(Ordering::Relaxed),
            bytes: self.collection.bytes.load(Ordering::Relaxed),
            storage_bytes: self.collection.storage_bytes.load(Ordering::Relaxed),
        }
    }

    /// The document that a held snapshot shows.
    fn document_held<'g>(
        &self,
        unit: &'g LogUnit,
        held: &Held,
        id: RecordId,
    ) -> Result<Access<Lookup<(RecordHeader, &'g [u8])>>, StorageError> {
        let now = self.collection.slots.load(unit.guard(), id.0);
        let slot = self.collection.versions.slot_at(id.0, held.hold.seq, now);
        let found = read::document_at(&self.core, unit.guard(), &self.collection, id, slot);
        // What has been given up meanwhile may have been freed before we came by.
        unit.check(held, &self.collection, false)?;
        found
    }

    fn fill_held(&self, unit: &LogUnit, held: &Held, scan: &mut RecordScan) {
        let view = self.collection.versions.view(held.hold.seq);
        let backward = scan.direction() == Direction::Backward;
        let last = view.limit.saturating_sub(1);
        let from = match (scan.position(), backward) {
            (None, false) => Some(0),
            (None, true) => Some(last),
            (Some(id), false) => id.0.checked_add(1),
            (Some(id), true) => id.0.checked_sub(1).map(|id| id.min(last)),
        };
        scan.refill(|batch, wanted| {
            let Some(from) = from.filter(|from| *from < view.limit) else { return };
            self.collection.slots.walk(unit.guard(), from, backward, |id, slot| {
                if id >= view.limit || batch.len() == wanted {
                    return false;
                }
                if slot.is_live() || view.has_old(id) {
                    batch.push(RecordId(id));
                }
                true
            });
        });
    }
}
