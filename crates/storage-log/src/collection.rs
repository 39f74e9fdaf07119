//! One record store in the engine.
//!
//! Invariant: `records`, `bytes`, assigned ids and the definition number change only under the collection's latch,
//! or in recovery, which is single-threaded here.

use crate::address::Slot;
use crate::slots::Slots;
use crate::versions::Versions;
use kauri_base::CollectionId;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex};
use kauri_medium::EpochDomain;

/// See the module's head.
pub struct Collection {
    /// Its id.
    pub id: CollectionId,
    /// The places of its records.
    pub slots: Slots,
    /// Taken by commits, in the order of ids, before anything is checked; never across I/O.
    pub latch: Mutex<()>,
    /// Old versions for held snapshots.
    pub versions: Versions,
    /// Number of snapshots taken before the last change of the definition: those cannot show it.
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
    /// Its create record, or, after a drop, its drop record: a [`Slot`].
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
