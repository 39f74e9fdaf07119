//! The in-memory engine: `--storageEngine ephemeralForTest`, and the oracle that tests compare other engines with.
//!
//! It uses ordered maps under one lock, so that it is easy to review. Every access is `Ready`, commits need no
//! wait, and nothing survives the process. Readers see the newest version of each record. A held snapshot is a
//! reference to the maps; the next commit copies the maps.
//!
//! | module | holds |
//! |---|---|
//! | `pending_log` | units of a replicated log |
//! | `state` | the maps; checking and applying units |
//! | `unit` | the recovery unit, which keeps alive what was read through it |

mod pending_log;
mod state;
mod unit;

use crate::claims::Claims;
use crate::commit_ticket::CommitTicket;
use crate::engine::{
    HeldFiles, Maintenance, RecordStore, RecordStoreStats, RecoveryUnit, SortedDataInterface,
    Space, StorageEngine, find_by_scan,
};
use crate::error::StorageError;
use crate::index_spec::{IndexSpec, KeyGenerator};
use crate::pending_log::PendingLog;
use crate::record::Record;
use crate::scan::{Direction, IndexScan, RecordScan};
use crate::unit::WriteUnit;
use kauri_base::sync::atomic::{AtomicU32, Ordering};
use kauri_base::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use kauri_base::{Access, CollectionId, CommitSeq, IndexId, RecordId};
use kauri_bson::{Doc, DocWriter};
use pending_log::Pending;
use state::{IndexState, State, StoreState};
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
    /// Number of holds of files. There are no files, but commits are refused as the contract says. Changed with the
    /// state locked for writing.
    held: AtomicU32,
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

impl Shared {
    /// The state, to change it. Fails while files are held.
    fn write_unless_held(&self) -> Result<RwLockWriteGuard<'_, Arc<State>>, StorageError> {
        let state = self.write();
        match self.held.load(Ordering::Relaxed) {
            0 => Ok(state),
            _ => Err(StorageError::FilesHeld),
        }
    }

    fn hold(&self) {
        let _state = self.write();
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    fn let_go(&self) {
        let _state = self.write();
        self.held.fetch_sub(1, Ordering::Relaxed);
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
        let collection = self.shared.read().indexes.get(&id)?.collection;
        Some(Arc::new(Index { shared: self.shared.clone(), id, collection }))
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
        let mut state = self.shared.write_unless_held()?;
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

    fn visible(&self) -> CommitSeq {
        self.shared.read().seq
    }

    fn flush(&self) {}

    fn sync(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn hold_files(&self) -> Result<HeldFiles, StorageError> {
        self.shared.hold();
        let shared = self.shared.clone();
        Ok(HeldFiles::new(move || shared.let_go()))
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
        let store = self.find_in(&state)?;
        if let Some(writes) = unit.writes()
            && let Some(record) = writes.record(self.id, id)?
        {
            return Ok(Access::Ready(record));
        }
        let Some(version) = store.records.get(&id) else {
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
        let store = self.find_in(&state)?;
        match unit.writes() {
            None => fill_from(store, scan),
            Some(writes) => {
                return writes.fill_records(self.id, scan, |scan| {
                    fill_from(store, scan);
                    Ok(Access::Ready(()))
                });
            }
        }
        Ok(Access::Ready(()))
    }

    fn stats(&self) -> Result<RecordStoreStats, StorageError> {
        let state = self.shared.read();
        let store = self.find_in(&state)?;
        Ok(RecordStoreStats {
            records: store.records.len() as u64,
            bytes: store.bytes,
            storage_bytes: store.bytes,
        })
    }
}

impl Store {
    fn find_in<'s>(&self, state: &'s State) -> Result<&'s StoreState, StorageError> {
        let dropped = StorageError::Dropped { collection: self.id, index: None };
        state.stores.get(&self.id).ok_or(dropped)
    }
}

fn fill_from(store: &StoreState, scan: &mut RecordScan) {
    let (direction, position) = (scan.direction(), scan.position());
    let records = &store.records;
    scan.refill(|batch, wanted| match direction {
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
    });
}

struct Index {
    shared: Arc<Shared>,
    id: IndexId,
    collection: CollectionId,
}

impl Index {
    fn find_in<'s>(&self, state: &'s State) -> Result<&'s IndexState, StorageError> {
        let dropped = StorageError::Dropped { collection: self.collection, index: Some(self.id) };
        state.indexes.get(&self.id).ok_or(dropped)
    }
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
        if unit.writes().is_some() {
            return find_by_scan(self, ru, key);
        }
        let state = unit.index_view(self.id)?;
        let records = self.find_in(&state)?.keys.get(key);
        Ok(Access::Ready(records.and_then(|records| records.keys().next().copied())))
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut IndexScan,
    ) -> Result<Access<()>, StorageError> {
        let unit = EphemeralUnit::of(ru)?;
        let state = unit.index_view(self.id)?;
        let index = self.find_in(&state)?;
        let fill = |scan: &mut IndexScan| {
            index.fill(scan);
            Ok(Access::Ready(()))
        };
        match unit.writes() {
            None => fill(scan),
            Some(writes) => writes.fill_index(self.id, scan, fill),
        }
    }

    fn entries(&self) -> Result<u64, StorageError> {
        self.find_in(&self.shared.read()).map(|index| index.entries)
    }

    fn bytes(&self) -> Result<u64, StorageError> {
        self.find_in(&self.shared.read()).map(|index| index.bytes)
    }
}
