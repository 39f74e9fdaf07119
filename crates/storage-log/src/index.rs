//! One ordered index, in memory.

use crate::btree::BTree;
use crate::collection::Collection;
use kauri_base::CollectionId;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_storage::{IndexSpec, KeyGenerator, StorageError};

/// See the module's head.
pub struct Index {
    /// Its definition.
    pub spec: IndexSpec,
    /// Its collection.
    pub collection: CollectionId,
    /// Its entries. Changed under the collection's latch only.
    pub keys: BTree,
    store: Arc<Collection>,
    /// Makes its keys.
    pub generator: Arc<dyn KeyGenerator>,
    dropped: AtomicBool,
    /// Number of snapshots taken before it was created: those cannot show it.
    pub created: AtomicU64,
}

impl Index {
    /// An index with these entries.
    pub fn new(
        spec: IndexSpec,
        store: Arc<Collection>,
        keys: BTree,
        generator: Arc<dyn KeyGenerator>,
    ) -> Self {
        Index {
            spec,
            collection: store.id,
            keys,
            generator,
            store,
            dropped: AtomicBool::new(false),
            created: AtomicU64::new(0),
        }
    }

    /// Its collection's store.
    pub fn store(&self) -> &Arc<Collection> {
        &self.store
    }

    /// Whether it is gone.
    #[inline]
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Readers get `Dropped` from now on.
    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Fails if the index is gone. Asked after reading: commits keep the entries up until it is marked.
    #[inline]
    pub fn check_dropped(&self) -> Result<(), StorageError> {
        match self.is_dropped() {
            true => Err(StorageError::Dropped {
                collection: self.collection,
                index: Some(self.spec.id),
            }),
            false => Ok(()),
        }
    }
}
