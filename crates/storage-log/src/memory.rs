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
}

impl Memory {
    #[inline]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

impl Core {
    /// See [`kauri_storage::StorageEngine::set_memory`].
    pub fn set_memory(&self, room: MemoryRoom) {
        self.cache.set_budget(room.cache_bytes.min(self.options.cache_bytes));
        self.memory.scarcity.store(room.scarcity.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
        self.memory.full.store(room.full, Ordering::Relaxed);
    }

    /// How short segments or memory are, whichever is shorter, from 0 to 1.
    #[inline]
    pub fn scarcity(&self) -> f64 {
        let memory = f64::from_bits(self.memory.scarcity.load(Ordering::Relaxed));
        self.segments.scarcity().max(memory)
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
        section.put("full", self.memory.is_full());
        section.put("refused", self.memory.refused.get() as i64);
    }
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
    fn what_does_not_fit_is_refused_with_what_it_needs() {
        let most = 1_000 * RECORD_BYTES + 50_000;
        assert_eq!(check_recovery(1_000, 50_000, most), Ok(()));
        let needed = StorageError::NeedsMemory(most + 1);
        assert_eq!(check_recovery(1_000, 50_001, most), Err(needed));
        assert_eq!(check_recovery(0, 0, 0), Ok(()));
    }
}
