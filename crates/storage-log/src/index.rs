//! One ordered index, in memory.

use crate::btree::BTree;
use crate::unit::LogUnit;
use kauri_base::{Access, CollectionId, IndexId, RecordId};
use kauri_storage::{IndexScan, IndexSpec, RecoveryUnit, SortedDataInterface, StorageError};
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's head.
pub struct Index {
    /// Its definition.
    pub spec: IndexSpec,
    /// Its collection.
    pub collection: CollectionId,
    /// Its entries. Changed under the collection's latch only.
    pub keys: BTree,
    dropped: AtomicBool,
}

impl Index {
    /// An index with these entries.
    pub fn new(spec: IndexSpec, collection: CollectionId, keys: BTree) -> Self {
        Index { spec, collection, keys, dropped: AtomicBool::new(false) }
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
        LogUnit::of(ru)?;
        if self.is_dropped() {
            return Ok(Access::Ready(None));
        }
        Ok(Access::Ready(self.keys.first(key)))
    }

    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut IndexScan,
    ) -> Result<Access<()>, StorageError> {
        LogUnit::of(ru)?;
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
