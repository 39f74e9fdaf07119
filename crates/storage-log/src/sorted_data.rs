//! An index as the storage interface has it: what a recovery unit sees of its entries.

use crate::btree::Likely;
use crate::index::Index;
use crate::unit::{Held, LogUnit};
use kauri_base::sync::atomic::Ordering;
use kauri_base::{Access, IndexId, RecordId};
use kauri_storage::find_by_scan;
use kauri_storage::{IndexScan, RecoveryUnit, SortedDataInterface, StorageError};

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
        let fetch = |likely: Likely| unit.fetch_ahead(self.store(), likely);
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
            return fill_held(self, unit, held, scan);
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

/// As a held snapshot and its write set have it.
fn fill_held(
    index: &Index,
    unit: &LogUnit,
    held: &Held,
    scan: &mut IndexScan,
) -> Result<Access<()>, StorageError> {
    let filled = held.write_set.fill_index(index.spec.id, scan, |scan| {
        let keys = (index.spec.id, &index.keys);
        index.store().versions.fill_index(keys, held.hold.seq, scan)
    });
    let created = index.created.load(Ordering::Acquire) >= held.hold.number;
    unit.check(held, index.store(), created || index.is_dropped())?;
    filled
}
