//! How short segments and memory are, and what the engine makes of it: its cache gives blocks back, writes are
//! throttled, and at last nothing is added.

use crate::core::Core;
use crate::memory::tree_bytes;
use kauri_bson::DocWriter;
use kauri_storage::{MemoryRoom, OpKind, StorageError, WriteUnit};
use std::time::{Duration, Instant};

/// A unit with fewer bytes of keys is not counted: the next check of memory includes it.
const KEY_BYTES_COUNTED: usize = 4 * 1024;
/// How long startup waits for the cache to shrink for indexes.
const START_PATIENCE: Duration = Duration::from_secs(2);
const START_STEP: Duration = Duration::from_millis(20);

impl Core {
    /// See [`kauri_storage::StorageEngine::set_memory`].
    pub fn set_memory(&self, room: MemoryRoom) {
        self.cache.set_budget(room.cache_bytes.min(self.options.cache_bytes));
        self.memory.set(&room);
    }

    /// Scarcity of segments or memory, the higher of both, from 0 to 1.
    #[inline]
    pub fn scarcity(&self) -> f64 {
        self.room_scarcity().max(self.memory.scarcity())
    }

    /// How far the cleaner is behind, from 0 to 1: free segments run out, or dead records fill the cache.
    #[inline]
    pub fn room_scarcity(&self) -> f64 {
        self.segments.scarcity().max(self.garbage_scarcity())
    }

    #[inline]
    fn garbage_scarcity(&self) -> f64 {
        // There the log is in memory as a whole, and stays.
        if self.cache.is_direct() || !self.memory.is_cleaning() {
            return 0.0;
        }
        let live = self.segments.live_bytes();
        let cleaned = live * 100 / u64::from(self.options.live_percent_target.max(1));
        let segment_bytes = u64::from(self.segments.segment_bytes());
        garbage_scarcity(self.cache.resident(), cleaned, segment_bytes, self.cache.budget())
    }

    /// Refuses writes that need memory, if none is left.
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
        self.memory.refused().add(1);
        Err(StorageError::OutOfMemory)
    }

    /// Writes the section of `serverStatus`.
    pub fn write_memory(&self, out: &mut DocWriter<'_>) {
        let mut section = out.document("memory");
        section.put("scarcity", self.memory.scarcity());
        section.put("garbageScarcity", self.garbage_scarcity());
        section.put("full", self.memory.is_full());
        section.put("refused", self.memory.refused().get() as i64);
    }

    /// Reserves memory for an index that is built at startup, and leaves `spare`. Blocks a while for the cache to
    /// shrink. `needed` returns the total need.
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

/// Scarcity of memory that dead records fill, of which the cleaner frees all but the `cleaned` bytes and a segment
/// that is being filled: from 0 (a segment of `budget` bytes is left besides the `resident` ones, as a round of the
/// cleaner may copy) to 1 (a quarter of one). If blocks must be evicted anyway, soon after cleaning, no writer need
/// wait.
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
}
