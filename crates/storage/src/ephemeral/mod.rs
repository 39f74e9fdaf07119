//! The in-memory engine: `--storageEngine ephemeralForTest`, and the oracle that tests compare
//! other engines with.
//!
//! Plain ordered maps under one lock, so that it is easy to see that it is right. Everything is
//! `Ready`, commits need no waiting, and nothing survives the process. Readers see the newest
//! version of each record.
//!
//! | module | holds |
//! |---|---|
//! | `state` | the maps, and how a unit is checked and applied |
//! | `unit` | the recovery unit, which keeps alive what was read through it |

mod state;
mod unit;

use crate::engine::{
    CommitTicket, IndexSpec, KeyGenerator, Maintenance, Record, RecordStore, RecordStoreStats,
    RecoveryUnit, SortedDataInterface, Space, StorageEngine,
};
use crate::error::StorageError;
use crate::scan::{Direction, IndexScan, RecordScan};
use crate::unit::WriteUnit;
use kauri_base::{Access, CollectionId, IndexId, RecordId};
use kauri_bson::{Doc, DocWriter};
use state::State;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use unit::EphemeralUnit;

/// The engine. Dropping the last handle drops the data.
#[derive(Default)]
pub struct EphemeralEngine {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: RwLock<State>,
}

impl Shared {
    // A panic under the lock is a bug of this module; what others may read is whole all the same,
    // since a unit is checked before anything is changed.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
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
        self.shared.write().attach_index(collection, spec, &*generator)
    }

    fn definition_number(&self, id: CollectionId) -> Option<u64> {
        self.shared.read().stores.get(&id).map(|store| store.definition)
    }

    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        let seq = self.shared.write().commit(unit)?;
        Ok(CommitTicket::new(seq, None, None))
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
        let state = self.shared.read();
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
        EphemeralUnit::of(ru)?;
        let (direction, position) = (scan.direction(), scan.position());
        let state = self.shared.read();
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
        EphemeralUnit::of(ru)?;
        let state = self.shared.read();
        let records = state.indexes.get(&self.id).and_then(|index| index.keys.get(key));
        Ok(Access::Ready(records.and_then(|records| records.keys().next().copied())))
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut IndexScan,
    ) -> Result<Access<()>, StorageError> {
        EphemeralUnit::of(ru)?;
        let state = self.shared.read();
        match state.indexes.get(&self.id) {
            Some(index) => index.fill(scan),
            None => scan.refill(|_, _| {}),
        }
        Ok(Access::Ready(()))
    }

    fn entries(&self) -> u64 {
        self.shared.read().indexes.get(&self.id).map_or(0, |index| index.entries)
    }

    fn bytes(&self) -> u64 {
        self.shared.read().indexes.get(&self.id).map_or(0, |index| index.bytes)
    }
}
