//! The in-memory engine: `--storageEngine ephemeralForTest`, and the oracle that tests compare
//! other engines with.
//!
//! Plain ordered maps under one lock, so that it is easy to see that it is right. Everything is
//! `Ready`, commits need no waiting, and nothing survives the process. Readers see the newest
//! version of each record; a held snapshot is a reference to the maps as they were, which the next
//! commit therefore copies.
//!
//! | module | holds |
//! |---|---|
//! | `pending` | a replicated log's units |
//! | `state` | the maps, and how a unit is checked and applied |
//! | `unit` | the recovery unit, which keeps alive what was read through it |

mod pending;
mod state;
mod unit;

use crate::claims::Claims;
use crate::engine::{
    CommitTicket, IndexSpec, KeyGenerator, Maintenance, Record, RecordStore, RecordStoreStats,
    RecoveryUnit, SortedDataInterface, Space, StorageEngine,
};
use crate::error::StorageError;
use crate::pending::PendingLog;
use crate::scan::{Direction, IndexScan, RecordScan, find_by_scan};
use crate::unit::WriteUnit;
use kauri_base::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use kauri_base::{Access, CollectionId, IndexId, RecordId};
use kauri_bson::{Doc, DocWriter};
use pending::Pending;
use state::State;
use std::ops::Bound;
use unit::EphemeralUnit;

/// The engine. Dropping the last handle drops the data.
#[derive(Default)]
pub struct EphemeralEngine {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: RwLock<Arc<State>>,
    claims: Arc<Claims>,
    pending: Mutex<Pending>,
}

impl Shared {
    // A panic under the lock is a bug of this module; what others may read is whole all the same,
    // since a unit is checked before anything is changed.
    fn read(&self) -> RwLockReadGuard<'_, Arc<State>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Arc<State>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EphemeralEngine {
    /// An engine without any store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl StorageEngine for EphemeralEngine {
    fn name(&self) -> &'static str {
        "ephemeralForTest"
    }

    fn recovery_unit(&self) -> Box<dyn RecoveryUnit> {
        Box::new(EphemeralUnit::new(self.shared.clone()))
    }

    fn record_store(&self, id: CollectionId) -> Option<Arc<dyn RecordStore>> {
        self.shared.read().stores.contains_key(&id).then(|| {
            let store: Arc<dyn RecordStore> = Arc::new(Store { shared: self.shared.clone(), id });
            store
        })
    }

    fn index(&self, id: IndexId) -> Option<Arc<dyn SortedDataInterface>> {
        self.shared.read().indexes.contains_key(&id).then(|| {
            let index: Arc<dyn SortedDataInterface> =
                Arc::new(Index { shared: self.shared.clone(), id });
            index
        })
    }

    fn stores(&self) -> Vec<CollectionId> {
        self.shared.read().stores.keys().copied().collect()
    }

    fn attach_index(
        &self,
        collection: CollectionId,
        spec: IndexSpec,
        generator: Arc<dyn KeyGenerator>,
    ) -> Result<(), StorageError> {
        Arc::make_mut(&mut *self.shared.write()).attach_index(collection, spec, &*generator)
    }

    fn definition_number(&self, id: CollectionId) -> Option<u64> {
        self.shared.read().stores.get(&id).map(|store| store.definition)
    }

    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        let _pending = self.shared.check_pending(unit)?;
        let mut state = self.shared.write();
        self.shared.claims.check(unit)?;
        let ids = state.check(unit)?;
        let seq = match unit.is_empty() {
            true => state.seq,
            false => Arc::make_mut(&mut *state).apply(unit, &ids),
        };
        Ok(CommitTicket::new(seq, None, None))
    }

    fn check(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        let _pending = self.shared.check_pending(unit)?;
        let state = self.shared.read();
        self.shared.claims.check(unit)?;
        state.check(unit).map(drop)
    }

    fn claims(&self) -> Option<&Arc<Claims>> {
        Some(&self.shared.claims)
    }

    fn pending_log(&self) -> Result<&dyn PendingLog, StorageError> {
        Ok(&*self.shared)
    }

    fn flush(&self) {}

    fn sync(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn maintenance(&self) -> Vec<Maintenance> {
        Vec::new()
    }

    fn write_status(&self, out: &mut DocWriter<'_>) {
        let state = self.shared.read();
        out.put("collections", state.stores.len() as i64);
        out.put("indexes", state.indexes.len() as i64);
        out.put("commits", state.seq.0 as i64);
        out.put("bytes", state.bytes() as i64);
    }

    fn space(&self) -> Space {
        Space { used: self.shared.read().bytes(), ..Space::default() }
    }
}

struct Store {
    shared: Arc<Shared>,
    id: CollectionId,
}

impl RecordStore for Store {
    fn id(&self) -> CollectionId {
        self.id
    }

    fn get<'g>(
        &self,
        ru: &'g dyn RecoveryUnit,
        id: RecordId,
    ) -> Result<Access<Option<Record<'g>>>, StorageError> {
        let unit = EphemeralUnit::of(ru)?;
        let state = unit.store_view(self.id)?;
        if let Some(staged) = unit.staged_changes()
            && let Some(record) = staged.record(self.id, id)?
        {
            return Ok(Access::Ready(record));
        }
        let Some(version) = state.stores.get(&self.id).and_then(|s| s.records.get(&id)) else {
            return Ok(Access::Ready(None));
        };
        let doc = Doc::from_bytes(unit.keep(version.doc.clone())).map_err(|error| {
            StorageError::Corruption {
                collection: Some(self.id),
                record: Some(id),
                message: error.message().to_owned(),
            }
        })?;
        Ok(Access::Ready(Some(Record { doc, version: version.version })))
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut RecordScan,
    ) -> Result<Access<()>, StorageError> {
        let unit = EphemeralUnit::of(ru)?;
        let state = unit.store_view(self.id)?;
        match unit.staged_changes() {
            None => self.fill_from(&state, scan),
            Some(staged) => {
                return staged.fill_records(self.id, scan, |scan| {
                    self.fill_from(&state, scan);
                    Ok(Access::Ready(()))
                });
            }
        }
        Ok(Access::Ready(()))
    }

    fn stats(&self) -> RecordStoreStats {
        let state = self.shared.read();
        state.stores.get(&self.id).map_or_else(RecordStoreStats::default, |store| {
            RecordStoreStats {
                records: store.records.len() as u64,
                bytes: store.bytes,
                storage_bytes: store.bytes,
            }
        })
    }
}

impl Store {
    fn fill_from(&self, state: &State, scan: &mut RecordScan) {
        let (direction, position) = (scan.direction(), scan.position());
        let records = state.stores.get(&self.id).map(|store| &store.records);
        scan.refill(|batch, wanted| {
            let Some(records) = records else { return };
            match direction {
                Direction::Forward => {
                    let start = position.map_or(Bound::Unbounded, Bound::Excluded);
                    let ids = records.range((start, Bound::Unbounded)).map(|(id, _)| *id);
                    batch.extend(ids.take(wanted));
                }
                Direction::Backward => {
                    let end = position.map_or(Bound::Unbounded, Bound::Excluded);
                    let ids = records.range((Bound::Unbounded, end)).map(|(id, _)| *id);
                    batch.extend(ids.rev().take(wanted));
                }
            }
        });
    }
}

struct Index {
    shared: Arc<Shared>,
    id: IndexId,
}

impl SortedDataInterface for Index {
    fn id(&self) -> IndexId {
        self.id
    }

    fn find(
        &self,
        ru: &dyn RecoveryUnit,
        key: &[u8],
    ) -> Result<Access<Option<RecordId>>, StorageError> {
        let unit = EphemeralUnit::of(ru)?;
        if unit.staged_changes().is_some() {
            return find_by_scan(self, ru, key);
        }
        let state = unit.index_view(self.id)?;
        let records = state.indexes.get(&self.id).and_then(|index| index.keys.get(key));
        Ok(Access::Ready(records.and_then(|records| records.keys().next().copied())))
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut IndexScan,
    ) -> Result<Access<()>, StorageError> {
        let unit = EphemeralUnit::of(ru)?;
        let state = unit.index_view(self.id)?;
        let index = state.indexes.get(&self.id);
        let fill = |scan: &mut IndexScan| {
            match index {
                Some(index) => index.fill(scan),
                None => scan.refill(|_, _| {}),
            }
            Ok(Access::Ready(()))
        };
        match unit.staged_changes() {
            None => fill(scan),
            Some(staged) => staged.fill_index(self.id, scan, fill),
        }
    }

    fn entries(&self) -> u64 {
        self.shared.read().indexes.get(&self.id).map_or(0, |index| index.entries)
    }

    fn bytes(&self) -> u64 {
        self.shared.read().indexes.get(&self.id).map_or(0, |index| index.bytes)
    }
}
