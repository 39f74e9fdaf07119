//! One record store as the engine holds it.
//!
//! Invariant: `records`, `bytes`, ids given out and the definition number change only under the
//! collection's latch (or in recovery, before anybody else is there).

use crate::address::Slot;
use crate::index::Index;
use crate::slots::Slots;
use crate::versions::Versions;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use kauri_base::{CollectionId, IndexId};
use kauri_medium::EpochDomain;
use std::collections::BTreeMap;

/// See the module's head.
pub struct Collection {
    /// Its id.
    pub id: CollectionId,
    /// Where its records are.
    pub slots: Slots,
    /// Taken by commits, in the order of ids, before anything is checked; never across I/O.
    pub latch: Mutex<()>,
    /// What held snapshots need of its past.
    pub versions: Versions,
    /// The snapshots that had been taken when its definition changed last: those can't show it.
    pub changed: AtomicU64,
    /// Whether it is gone.
    pub dropped: AtomicBool,
    /// The number of its definition.
    pub definition: AtomicU64,
    /// Documents.
    pub records: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Their records' bytes in the log.
    pub storage_bytes: AtomicU64,
    /// Its create record, or once it is dropped its drop record: a [`Slot`].
    pub own_record: AtomicU64,
    /// Records of it that are physically in the log, whether they count or not; also those of pending
    /// units, unless these have been dropped.
    pub physical: AtomicU64,
}

impl Collection {
    /// An empty one.
    pub fn new(id: CollectionId, domain: Arc<EpochDomain>) -> Self {
        Collection {
            id,
            slots: Slots::new(domain),
            latch: Mutex::new(()),
            versions: Versions::default(),
            changed: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            definition: AtomicU64::new(0),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            storage_bytes: AtomicU64::new(0),
            own_record: AtomicU64::new(0),
            physical: AtomicU64::new(0),
        }
    }

    /// Whether it is gone.
    #[inline]
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Its own record.
    pub fn own_record(&self) -> Slot {
        Slot(self.own_record.load(Ordering::Acquire))
    }
}

/// What exists.
#[derive(Default)]
pub struct Registry {
    maps: RwLock<Maps>,
    /// Held by units that create or drop something, before any latch.
    pub ddl: Mutex<()>,
}

/// The maps behind a [`Registry`].
#[derive(Default)]
pub struct Maps {
    /// Record stores.
    pub stores: BTreeMap<CollectionId, Arc<Collection>>,
    /// Dropped ones, records of which are still in the log.
    pub graves: BTreeMap<CollectionId, Arc<Collection>>,
    /// Indexes.
    pub indexes: BTreeMap<IndexId, Arc<Index>>,
}

impl Registry {
    /// For looking.
    pub fn read(&self) -> RwLockReadGuard<'_, Maps> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For changing. Short: readers of all collections pass here.
    pub fn write(&self) -> RwLockWriteGuard<'_, Maps> {
        self.maps.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A store by its id.
    pub fn store(&self, id: CollectionId) -> Option<Arc<Collection>> {
        self.read().stores.get(&id).cloned()
    }

    /// A store by its id, dropped or not.
    pub fn store_or_grave(&self, id: CollectionId) -> Option<Arc<Collection>> {
        let maps = self.read();
        maps.stores.get(&id).or_else(|| maps.graves.get(&id)).cloned()
    }
}
