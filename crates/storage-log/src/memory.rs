//! What the engine makes of memory that has become short: its cache gives blocks back, writes are held up as
//! where segments are scarce, and at last nothing is added. It must not know how much memory there is.

use crate::core::Core;
use crate::status::Counter;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_bson::DocWriter;
use kauri_storage::{MemoryRoom, OpKind, StorageError, WriteUnit};
use std::time::{Duration, Instant};

/// What recovery and an open engine need for a record, beyond what its summary holds: the newest version so
/// far (24 bytes), its slot (8), its key in the tree.
const RECORD_BYTES: u64 = 24 + 8 + 40;

/// A unit whose keys have fewer bytes is not counted: the next look at memory sees it.
const KEY_BYTES_COUNTED: usize = 4 * 1024;
/// What a tree takes for a byte of keys, and for each key besides: pages are half full at worst.
const TREE_BYTES_A_KEY_BYTE: u64 = 2;
const TREE_BYTES_A_KEY: u64 = 32;
/// How long the start waits for the cache to give way to indexes.
const START_PATIENCE: Duration = Duration::from_secs(2);
const START_STEP: Duration = Duration::from_millis(20);

/// As it was last told.
pub struct Memory {
    /// An `f64`.
    scarcity: AtomicU64,
    full: AtomicBool,
    /// What indexes may still grow by; [`u64::MAX`] for no limit.
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
    /// Takes so many bytes from what indexes may still grow by, if there are as many and `spare` are left.
    fn take(&self, bytes: u64, spare: u64) -> bool {
        let take = |free: u64| match free {
            u64::MAX => Some(u64::MAX),
            free => free.checked_sub(bytes).filter(|left| *left >= spare),
        };
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Tells whether the cleaner is at work for want of room, and gives some back.
    pub fn set_cleaning(&self, cleaning: bool) {
        self.cleaning.store(cleaning, Ordering::Relaxed);
    }
}

impl Core {
    /// See [`kauri_storage::StorageEngine::set_memory`].
    pub fn set_memory(&self, room: MemoryRoom) {
        self.cache.set_budget(room.cache_bytes.min(self.options.cache_bytes));
        self.memory.scarcity.store(room.scarcity.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
        self.memory.full.store(room.full, Ordering::Relaxed);
        self.memory.free.store(room.free_bytes, Ordering::Relaxed);
    }

    /// How short segments or memory are, whichever is shortest, from 0 to 1.
    #[inline]
    pub fn scarcity(&self) -> f64 {
        let memory = f64::from_bits(self.memory.scarcity.load(Ordering::Relaxed));
        self.room_scarcity().max(memory)
    }

    /// How far the cleaner is behind, from 0 to 1: free segments run out, or what is dead fills the cache.
    #[inline]
    pub fn room_scarcity(&self) -> f64 {
        self.segments.scarcity().max(self.garbage_scarcity())
    }

    #[inline]
    fn garbage_scarcity(&self) -> f64 {
        // There the log is in memory as a whole, and stays.
        if self.cache.is_direct() || !self.memory.cleaning.load(Ordering::Relaxed) {
            return 0.0;
        }
        let live = self.segments.live_bytes();
        let cleaned = live * 100 / u64::from(self.options.live_percent_target.max(1));
        let segment_bytes = u64::from(self.segments.segment_bytes());
        garbage_scarcity(self.cache.resident(), cleaned, segment_bytes, self.cache.budget())
    }

    /// Refuses what adds to memory, if there is none left.
    #[inline]
    pub fn check_memory(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        let is_long = unit.all_key_bytes() >= KEY_BYTES_COUNTED;
        if !self.memory.is_full() && !is_long || !unit.ops.iter().any(|op| adds(&op.kind)) {
            return Ok(());
        }
        let bytes = tree_bytes(unit.all_key_bytes() as u64, unit.key_count() as u64);
        if !self.memory.is_full() && (!is_long || self.memory.take(bytes, 0)) {
            return Ok(());
        }
        self.memory.refused.add(1);
        Err(StorageError::OutOfMemory)
    }

    /// Writes the section of `serverStatus`.
    pub fn write_memory(&self, out: &mut DocWriter<'_>) {
        let mut section = out.document("memory");
        section.put("scarcity", f64::from_bits(self.memory.scarcity.load(Ordering::Relaxed)));
        section.put("garbageScarcity", self.garbage_scarcity());
        section.put("full", self.memory.is_full());
        section.put("refused", self.memory.refused.get() as i64);
    }
}

/// About what a tree takes for so many keys of so many bytes.
pub fn tree_bytes(key_bytes: u64, keys: u64) -> u64 {
    key_bytes * TREE_BYTES_A_KEY_BYTE + keys * TREE_BYTES_A_KEY
}

/// The same for one key in a tree whose pages are full.
pub fn packed_tree_bytes(key_bytes: usize) -> u64 {
    key_bytes as u64 + TREE_BYTES_A_KEY
}

impl Core {
    /// Takes memory for an index that is made at the start, and leaves `spare`. Blocks a while for the cache to give
    /// way. `needed` tells what all of it will need.
    pub fn take_for_start(
        &self,
        bytes: u64,
        spare: u64,
        needed: impl FnOnce() -> u64,
    ) -> Result<(), StorageError> {
        let until = Instant::now() + START_PATIENCE;
        while !self.memory.take(bytes, spare) {
            if Instant::now() >= until {
                return Err(StorageError::NeedsMemory { bytes: needed(), what: "the indexes" });
            }
            std::thread::sleep(START_STEP);
        }
        Ok(())
    }
}

/// How scarce memory is that dead records fill, of which the cleaner gives back all but the `cleaned` bytes and
/// a segment that is being filled: from 0 (of `budget` bytes a segment is left besides the `resident` ones, as
/// a round of the cleaner may copy) to 1 (a quarter of one). Where blocks have to go anyway, soon after
/// cleaning, nobody need wait for it.
fn garbage_scarcity(resident: u64, cleaned: u64, segment_bytes: u64, budget: u64) -> f64 {
    let from = budget.saturating_sub(segment_bytes).max(cleaned + segment_bytes);
    let to = budget.saturating_sub(segment_bytes / 4);
    if from >= to {
        return 0.0;
    }
    (resident.clamp(from, to) - from) as f64 / (to - from) as f64
}

fn adds(kind: &OpKind<'_>) -> bool {
    matches!(
        kind,
        OpKind::Insert { .. }
            | OpKind::Update { .. }
            | OpKind::Backfill { .. }
            | OpKind::CreateStore
            | OpKind::CreateIndex { .. }
    )
}

/// Fails if so many records, whose summaries take so many bytes, need more than this.
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
    fn garbage_makes_a_cache_scarce_that_could_hold_what_is_left_without() {
        let scarcity = |resident, cleaned| garbage_scarcity(resident, cleaned, 400, 1600);
        assert_eq!(scarcity(1200, 800), 0.0);
        assert_eq!(scarcity(1350, 800), 0.5);
        assert_eq!(scarcity(1500, 800), 1.0);
        assert_eq!(scarcity(9999, 0), 1.0);
        assert_eq!(scarcity(1300, 900), 0.0, "no more than there is after cleaning");
        assert_eq!(scarcity(1400, 900), 0.5);
        assert_eq!(scarcity(1500, 1099), 1.0);
        assert_eq!(scarcity(9999, 1100), 0.0, "blocks have to go anyway");
        assert_eq!(garbage_scarcity(9999, 1, 400, 300), 0.0, "no room for a round");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_it_needs() {
        let most = 1_000 * RECORD_BYTES + 50_000;
        assert_eq!(check_recovery(1_000, 50_000, most), Ok(()));
        let needed = StorageError::NeedsMemory { bytes: most + 1, what: "the records of the data" };
        assert_eq!(check_recovery(1_000, 50_001, most), Err(needed));
        assert_eq!(check_recovery(0, 0, 0), Ok(()));
    }
}
