//! What the engine makes of memory that has become short: its cache gives blocks back, writes are held up as
//! where segments are scarce, and at last nothing is added. It must not know how much memory there is.

use crate::core::Core;
use crate::status::Counter;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_bson::DocWriter;
use kauri_storage::{MemoryRoom, OpKind, StorageError, WriteUnit};

/// What recovery and an open engine need for a record, beyond what its summary holds: the newest version so
/// far (24 bytes), its slot (8), its key in the tree.
const RECORD_BYTES: u64 = 24 + 8 + 40;

/// As it was last told.
#[derive(Default)]
pub struct Memory {
    /// An `f64`.
    scarcity: AtomicU64,
    full: AtomicBool,
    refused: Counter,
    /// Whether the cleaner is at work for want of room.
    cleaning: AtomicBool,
}

impl Memory {
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
        if !self.memory.is_full() || !unit.ops.iter().any(|op| adds(&op.kind)) {
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
    if needed > most { Err(StorageError::NeedsMemory(needed)) } else { Ok(()) }
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
        let needed = StorageError::NeedsMemory(most + 1);
        assert_eq!(check_recovery(1_000, 50_001, most), Err(needed));
        assert_eq!(check_recovery(0, 0, 0), Ok(()));
    }
}
