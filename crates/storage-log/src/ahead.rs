//! Work around the head, and the preparer's thread: it seals full segments, allocates memory, and opens the next
//! segment.
//!
//! New memory takes milliseconds, so no wait for durability depends on this thread.

use crate::core::Core;
use crate::open_segment::OpenSegment;
use crate::segments::Purpose;
use kauri_base::sync::atomic::Ordering;
use kauri_storage::StorageError;
use std::time::Duration;

impl Core {
    /// Writes the summaries of segments that are full.
    pub fn seal_full(&self) -> Result<(), StorageError> {
        // Who wants room and finds nothing to be sealed must not miss what is being sealed just now.
        let sealing = self.flushing.lock_sealing();
        let full = self.with_flushing(|stored| {
            if self.cache.is_direct() {
                // Nobody stores them, so nobody has taken them from the head.
                self.head.take_full(stored.full());
            }
            std::mem::take(stored.full())
        });
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
        self.cleaner.wake();
        Ok(())
    }

    /// The preparer's work, until `stop`.
    pub fn run_preparer(&self, stop: &std::sync::atomic::AtomicBool) {
        let interval = Duration::from_millis(self.options.commit_interval_ms.max(1));
        let mut kept = self.options.clock.monotonic();
        while !stop.load(Ordering::Acquire) {
            self.preparer.wait(interval);
            if self.acks.failure().is_none() {
                self.preparer_round(interval, &mut kept);
            }
        }
    }

    /// One round of the preparer. Kicks come as often as commits; the mark file is handled once per interval, last
    /// at `kept`.
    fn preparer_round(&self, interval: Duration, kept: &mut Duration) {
        // Failures are kept by `fail`.
        let _ = self.keep_ahead();
        let now = self.options.clock.monotonic();
        if now.saturating_sub(*kept) >= interval {
            *kept = now;
            self.keep_marks();
        }
    }

    /// Seals full segments and prepares the next ones. Does nothing while files are locked.
    pub fn keep_ahead(&self) -> Result<(), StorageError> {
        let Some(_work) = self.files.enter() else { return Ok(()) };
        self.seal_full()?;
        let (memory, wanted) = self.head.take_preparation();
        if let Some((storer, from, to)) = memory {
            storer.populate(from, to);
        }
        if let Some(prepared) = wanted {
            // No room is the writers' problem: they ask again when they need the segment.
            match self.prepare(Purpose::Write, prepared) {
                Ok(()) | Err(StorageError::OutOfDiskSpace) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::recovery;
    use kauri_base::sync::Arc;
    use kauri_base::{CollectionId, RecordId};
    use kauri_emulator::{Emulator, EmulatorConfig};
    use kauri_storage::{OpKind, WriteUnit};
    use kauri_testkit::clock::ManualClock;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    const STORE: CollectionId = CollectionId(10);

    /// Waits for what another thread is about to do.
    fn until(what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}: never");
            std::thread::yield_now();
        }
    }

    /// Ends the preparer, even if the test fails.
    struct Stop<'c>(&'c Core, &'c AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Release);
            self.0.preparer.wake();
        }
    }

    /// The interval is an hour, so that only commits wake the preparer; no flusher runs.
    #[test]
    fn commits_have_the_preparer_seal_and_open_segments() {
        let options = Options {
            segment_bytes: 64 << 10,
            cache_bytes: 1 << 20,
            read_threads: 0,
            commit_interval_ms: 3_600_000,
            ..Options::default()
        };
        let emulator = Emulator::new(EmulatorConfig::default());
        let core = recovery::open(Arc::new(emulator), options).expect("opening");
        let commit = |change: &dyn Fn(&mut WriteUnit<'static>)| {
            let mut unit = WriteUnit::new();
            change(&mut unit);
            core.commit(&mut unit).expect("a commit");
            core.flush();
        };
        commit(&|unit| {
            unit.push(STORE, RecordId(0), OpKind::CreateStore);
        });
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = Stop(&core, &stop);
            scope.spawn(|| core.run_preparer(&stop));
            for _ in 0..4 {
                let opened = core.head.prepared_ever();
                // Half a segment at most, so that no writer opens one for want of room.
                while core.head.prepared_ever() == opened && !core.head.wants_preparation() {
                    commit(&|unit| {
                        unit.insert(STORE, vec![7; 900]);
                    });
                }
                until("opened", || core.head.prepared_ever() > opened);
            }
            until("sealed", || core.counters.summary_bytes.get() > 0);
        });
    }

    /// Commits follow one another faster than the interval, and so do kicks.
    #[test]
    fn kicks_are_no_idle_intervals_of_the_mark_file() {
        for medium in [EmulatorConfig::default(), EmulatorConfig::persistent_memory()] {
            let clock = Arc::new(ManualClock::default());
            let options = Options {
                segment_bytes: 64 << 10,
                cache_bytes: 1 << 20,
                read_threads: 0,
                clock: clock.clone(),
                ..Options::default()
            };
            let interval = Duration::from_millis(options.commit_interval_ms);
            let core = recovery::open(Arc::new(Emulator::new(medium)), options).expect("opening");
            let commit = |change: &dyn Fn(&mut WriteUnit<'static>)| {
                let mut unit = WriteUnit::new();
                change(&mut unit);
                core.commit(&mut unit).expect("a commit");
                core.sync_all("sync.drain").expect("a sync");
            };
            commit(&|unit| {
                unit.push(STORE, RecordId(0), OpKind::CreateStore);
            });
            let mut kept = core.options.clock.monotonic();
            let mut pass = |ms: u64, kicks: u32| {
                for _ in 0..kicks {
                    core.preparer_round(interval, &mut kept);
                }
                clock.advance(Duration::from_millis(ms));
                core.preparer_round(interval, &mut kept);
                core.counters.mark_syncs.get()
            };
            // 12 seconds of a commit every 20 ms, with many kicks between two.
            for _ in 0..600 {
                commit(&|unit| {
                    unit.insert(STORE, vec![7; 9]);
                });
                pass(20, 5);
            }
            let syncs = core.counters.mark_syncs.get();
            assert_eq!(syncs, 2, "{medium:?}: every five seconds");
            // The first interval without a commit is not over before it has passed.
            assert_eq!(pass(99, 100), syncs, "{medium:?}");
            assert_eq!(pass(1, 100), syncs + 1, "{medium:?}: it is idle");
            assert_eq!((0..100).map(|_| pass(100, 1)).last(), Some(syncs + 1), "{medium:?}");
        }
    }
}
