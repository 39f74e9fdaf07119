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

    /// It reads as empty from now on.
    pub fn drop_entries(&self) {
        self.dropped.store(true, Ordering::Release);
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
        if self.is_dropped() {
            return Ok(Access::Ready(None));
        }
        let fetch = |likely: Likely| unit.fetch_ahead(&self.store, likely);
        Ok(Access::Ready(self.keys.first(key, fetch)))
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
        if self.is_dropped() {
            scan.refill(|_, _| {});
        } else {
            self.keys.fill(scan);
        }
        Ok(Access::Ready(()))
    }

    fn entries(&self) -> u64 {
        self.keys.entries()
    }

    fn bytes(&self) -> u64 {
        self.keys.bytes()
    }
}
