//! Which stores and indexes there are.

use crate::collection::Collection;
use crate::index::Index;
use crate::lock;
use kauri_base::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use kauri_base::{CollectionId, IndexId};
use std::collections::BTreeMap;

/// The existing stores and indexes.
#[derive(Default)]
pub struct Registry {
    maps: RwLock<Maps>,
    ddl: Mutex<()>,
    /// Dropped stores whose records still count as live.
    dropped: Mutex<Vec<Arc<Collection>>>,
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
    /// Held by units that create or drop something, before any latch.
    pub fn lock_ddl(&self) -> MutexGuard<'_, ()> {
        lock(&self.ddl)
    }

    /// A store has been dropped; the cleaner stops counting its records.
    pub fn note_dropped(&self, store: Arc<Collection>) {
        lock(&self.dropped).push(store);
    }

    /// The stores that have been dropped since this was last asked.
    pub fn take_dropped(&self) -> Vec<Arc<Collection>> {
        std::mem::take(&mut lock(&self.dropped))
    }

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
