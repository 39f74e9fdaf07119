//! Held snapshots: each has a session whose transaction stays open.
//!
//! Invariants:
//! - A snapshot is taken while no commit is in progress ([`crate::sequence::Sequence::quietly`]), so it shows
//!   exactly the commits up to its number.
//! - Definitions have no versions. A change of a definition records how many snapshots were taken before it, while
//!   none can be taken; those snapshots cannot show it.

use crate::registry::StoreState;
use kauri_base::CommitSeq;
use kauri_storage::{StorageError, WriteSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Most that are held at once: each has a session, and makes WiredTiger look through longer lists.
pub const HELD_MAX: u64 = 1000;

/// See the module's head.
#[derive(Default)]
pub struct Snapshots {
    held: AtomicU64,
    ever: AtomicU64,
}

/// A snapshot that is held.
#[derive(Clone, Copy)]
pub struct Hold {
    /// The last commit that it shows.
    pub seq: CommitSeq,
    /// Which one it is of all that were ever held.
    number: u64,
}

/// What a unit that holds a snapshot sees.
pub struct Held {
    /// The snapshot.
    pub hold: Hold,
    /// A transaction's uncommitted changes.
    pub write_set: WriteSet,
}

impl Snapshots {
    /// Counts one more.
    pub fn hold(&self, seq: CommitSeq) -> Result<Hold, StorageError> {
        if self.held.fetch_add(1, Ordering::AcqRel) >= HELD_MAX {
            self.release();
            return Err(StorageError::Unsupported("more than 1000 held snapshots"));
        }
        Ok(Hold { seq, number: self.ever.fetch_add(1, Ordering::AcqRel) + 1 })
    }

    /// One is not held any more.
    pub fn release(&self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// How many ever were.
    pub fn ever(&self) -> u64 {
        self.ever.load(Ordering::Acquire)
    }
}

impl Hold {
    /// Whether it was taken before what was noted so.
    pub fn is_before(&self, noted: &AtomicU64) -> bool {
        noted.load(Ordering::Acquire) >= self.number
    }
}

impl Held {
    /// Fails if the snapshot can't show this store. Looked at after reading.
    pub fn check_store(&self, store: &StoreState) -> Result<(), StorageError> {
        if self.hold.is_before(&store.changed) || store.is_dropped() {
            return Err(StorageError::SnapshotUnavailable(store.id));
        }
        Ok(())
    }
}
