//! What is done behind and ahead of the head, and the preparer's thread: sealing full segments,
//! providing memory, opening the next segment.
//!
//! It takes its time, milliseconds for new memory, so nobody who waits for durability waits for it.

use crate::core::Core;
use crate::head::OpenSegment;
use crate::lock;
use crate::segments::Purpose;
use kauri_base::sync::atomic::Ordering;
use kauri_storage::StorageError;
use std::time::Duration;

impl Core {
    /// Writes the summaries of segments that are full.
    pub fn seal_full(&self) -> Result<(), StorageError> {
        // Who wants room and finds nothing to be sealed must not miss what is being sealed just now.
        let sealing = lock(&self.sealing);
        let full = {
            let mut flushing = lock(&self.flushing);
            if self.cache.is_direct() {
                // Nobody stores them, so nobody has taken them from the head.
                lock(&self.head).take_full(flushing.full());
            }
            std::mem::take(flushing.full())
        };
        full.into_iter().try_for_each(|segment| self.seal(segment))?;
        drop(sealing);
        Ok(())
    }

    /// Writes a full segment's summary and trailer.
    pub fn seal(&self, segment: OpenSegment) -> Result<(), StorageError> {
        let number = segment.segment;
        let failed = |error: StorageError| self.fail("sealing a segment", error);
        let trailer = segment.seal().map_err(failed)?;
        self.segments.get(number).sealed(trailer.records_end, trailer.seq_max);
        let bytes = trailer.summary_bytes + crate::format::TRAILER_BYTES;
        self.counters.summary_bytes.add(u64::from(bytes));
        self.cleaner_kick.kick();
        Ok(())
    }

    /// The preparer's work, until `stop`.
    pub fn run_preparer(&self, stop: &std::sync::atomic::AtomicBool) {
        let interval = Duration::from_millis(self.options.commit_interval_ms.max(1));
        while !stop.load(Ordering::Acquire) {
            self.ahead_kick.wait(interval);
            if self.acks.failure().is_none() {
                // Failures are kept by `fail`.
                let _ = self.keep_ahead();
            }
        }
    }

    /// Seals what is full and prepares what will be needed.
    pub fn keep_ahead(&self) -> Result<(), StorageError> {
        self.seal_full()?;
        let (memory, wanted, prepared) = {
            let mut head = lock(&self.head);
            (head.take_memory_range(), head.wants_preparation(), head.prepared_ever())
        };
        if let Some((storer, from, to)) = memory {
            storer.populate(from, to);
        }
        if wanted {
            // No room is the writers' problem: they ask again when they need the segment.
            match self.prepare(Purpose::Write, prepared) {
                Ok(()) | Err(StorageError::OutOfDiskSpace) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
