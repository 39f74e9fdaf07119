//! One ordered index, in memory.

use crate::btree::{BTree, Likely};
use crate::collection::Collection;
use crate::unit::{Held, LogUnit};
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_base::{Access, CollectionId, IndexId, RecordId};
use kauri_storage::scan::find_by_scan;
use kauri_storage::{
    IndexScan, IndexSpec, KeyGenerator, RecoveryUnit, SortedDataInterface, StorageError,
};

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
    /// The snapshots that had been taken when it was created: those can't show it.
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

    fn fill_held(
        &self,
        unit: &LogUnit,
        held: &Held,
        scan: &mut IndexScan,
    ) -> Result<Access<()>, StorageError> {
        let filled = held.staged.fill_index(self.spec.id, scan, |scan| {
            let index = (self.spec.id, &self.keys);
            self.store.versions.fill_index(index, held.hold.seq, scan)
        });
        let created = self.created.load(Ordering::Acquire) >= held.hold.number;
        unit.check(held, &self.store, created || self.is_dropped())?;
        filled
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
    fn check_dropped(&self) -> Result<(), StorageError> {
        match self.is_dropped() {
            true => Err(StorageError::Dropped {
                collection: self.collection,
                index: Some(self.spec.id),
            }),
            false => Ok(()),
        }
    }
}

impl SortedDataInterface for Index {
    fn id(&self) -> IndexId {
        self.spec.id
    }

    fn find(
        &self,
        ru: &dyn RecoveryUnit,
        key: &[u8],
    ) -> Result<Access<Option<RecordId>>, StorageError> {
        let unit = LogUnit::of(ru)?;
        if unit.held().is_some() {
            return find_by_scan(self, ru, key);
        }
        let fetch = |likely: Likely| unit.fetch_ahead(&self.store, likely);
        let found = self.keys.first(key, fetch);
        self.check_dropped()?;
        Ok(Access::Ready(found))
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut IndexScan,
    ) -> Result<Access<()>, StorageError> {
        let unit = LogUnit::of(ru)?;
        if let Some(held) = unit.held() {
            return self.fill_held(unit, held, scan);
        }
        self.keys.fill(scan);
        self.check_dropped()?;
        Ok(Access::Ready(()))
    }

    fn entries(&self) -> Result<u64, StorageError> {
        let entries = self.keys.entries();
        self.check_dropped()?;
        Ok(entries)
    }

    fn bytes(&self) -> Result<u64, StorageError> {
        let bytes = self.keys.bytes();
        self.check_dropped()?;
        Ok(bytes)
    }
}
