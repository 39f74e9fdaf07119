//! The last report of available memory, and the engine's use of it. This module must not know how much memory there
//! is.

use crate::counters::Counter;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_storage::{MemoryRoom, StorageError};

/// Memory of recovery and of an open engine per record, besides the record's summary: the newest version so far (24
/// bytes), its slot (8), its key in the tree.
const RECORD_BYTES: u64 = 24 + 8 + 40;

/// Memory of a tree per byte of keys, and per key: pages are half full at worst.
const TREE_BYTES_A_KEY_BYTE: u64 = 2;
const TREE_BYTES_A_KEY: u64 = 32;

/// The last report.
pub struct Memory {
    /// An `f64`.
    scarcity: AtomicU64,
    full: AtomicBool,
    /// Bytes by which indexes may still grow; [`u64::MAX`] for no limit.
    free: AtomicU64,
    refused: Counter,
    /// Whether the cleaner is at work for want of room.
    cleaning: AtomicBool,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            scarcity: Default::default(),
            full: Default::default(),
            free: AtomicU64::new(u64::MAX),
            refused: Default::default(),
            cleaning: Default::default(),
        }
    }
}

impl Memory {
    /// Takes bytes from the growth that indexes have left, if there are enough and `spare` remain.
    pub fn take(&self, bytes: u64, spare: u64) -> bool {
        let take = |free: u64| match free {
            u64::MAX => Some(u64::MAX),
            free => free.checked_sub(bytes).filter(|left| *left >= spare),
        };
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// What the server tells.
    pub fn set(&self, room: &MemoryRoom) {
        self.scarcity.store(room.scarcity.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
        self.full.store(room.full, Ordering::Relaxed);
        self.free.store(room.free_bytes, Ordering::Relaxed);
    }

    /// How short memory is, from 0 to 1.
    #[inline]
    pub fn scarcity(&self) -> f64 {
        f64::from_bits(self.scarcity.load(Ordering::Relaxed))
    }

    /// Whether nothing may be added.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Units that were refused for want of memory.
    pub fn refused(&self) -> &Counter {
        &self.refused
    }

    /// Whether the cleaner is at work for want of room.
    #[inline]
    pub fn is_cleaning(&self) -> bool {
        self.cleaning.load(Ordering::Relaxed)
    }

    /// Sets whether the cleaner works for lack of space, and returns some.
    pub fn set_cleaning(&self, cleaning: bool) {
        self.cleaning.store(cleaning, Ordering::Relaxed);
    }
}

/// Approximate size of a tree of `keys` keys of `bytes` bytes.
pub fn tree_bytes(key_bytes: u64, keys: u64) -> u64 {
    key_bytes * TREE_BYTES_A_KEY_BYTE + keys * TREE_BYTES_A_KEY
}

/// The same for one key in a tree whose pages are full.
pub fn packed_tree_bytes(key_bytes: usize) -> u64 {
    key_bytes as u64 + TREE_BYTES_A_KEY
}

/// Fails if this many records, whose summaries take this many bytes, need more than the limit.
pub fn check_recovery(records: u64, summary_bytes: u64, most: u64) -> Result<(), StorageError> {
    let needed = summary_bytes + records * RECORD_BYTES;
    if needed > most {
        return Err(StorageError::NeedsMemory { bytes: needed, what: "the records of the data" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_what_it_needs() {
        let most = 1_000 * RECORD_BYTES + 50_000;
        assert_eq!(check_recovery(1_000, 50_000, most), Ok(()));
        let needed = StorageError::NeedsMemory { bytes: most + 1, what: "the records of the data" };
        assert_eq!(check_recovery(1_000, 50_001, most), Err(needed));
        assert_eq!(check_recovery(0, 0, 0), Ok(()));
    }
}
