//! The engine as crash tests open it: small segments, a small cache, no threads, time by hand.

use kauri_base::Clock;
use kauri_base::clock::SeededRandom;
use kauri_medium::emulator::Emulator;
use kauri_storage::{StorageEngine, StorageError};
use kauri_storage_log::{Options, PmLog};
use kauri_testkit::clock::ManualClock;
use kauri_testkit::{CrashTarget, OpenEngine, Work};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a segment.
pub const SEGMENT: usize = 64 << 10;

/// Stores into headers, and what makes them durable.
pub fn of_headers(event: &str) -> bool {
    if event.contains("(segment.header.") || event.contains("(recovery.header.") {
        return true;
    }
    let mut words = event.split(' ').skip_while(|word| *word != "at").skip(1);
    let offset = words.next().and_then(|at| at.parse::<usize>().ok());
    event.starts_with("store") && offset.is_some_and(|at| at % SEGMENT < 4096)
}

pub struct Target {
    pub options: Options,
}

impl Target {
    /// With a log of at most this many segments of 64 KB.
    pub fn new(segments: u32) -> Target {
        let segment_bytes = SEGMENT as u32;
        Target {
            options: Options {
                segment_bytes,
                cache_bytes: 256 << 10,
                bytes_max: u64::from(segments * segment_bytes),
                read_threads: 0,
                mark_interval_bytes: 2048,
                // All of the cleaner's streams, also in a log as small as this.
                sort_segments_min: 0,
                ..Options::default()
            },
        }
    }
}

impl CrashTarget for Target {
    fn open(&self, directory: &Emulator) -> kauri_base::Result<Box<dyn OpenEngine>> {
        let clock = Arc::new(ManualClock::default());
        let options = Options {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            random: Arc::new(SeededRandom::new(1)),
            ..self.options.clone()
        };
        let engine = Arc::new(PmLog::open(Arc::new(directory.clone()), options)?);
        Ok(Box::new(Open { engine, clock }))
    }
}

struct Open {
    engine: Arc<PmLog>,
    clock: Arc<ManualClock>,
}

impl OpenEngine for Open {
    fn engine(&self) -> Arc<dyn StorageEngine> {
        self.engine.clone()
    }

    fn maintain(&self, choice: u64) -> Result<Work, StorageError> {
        self.clock.advance(Duration::from_millis(choice % 20));
        match self.engine_work(choice) {
            // The writers' problem, not the engine's.
            Err(StorageError::OutOfDiskSpace) => Ok(Work::Other),
            result => result,
        }
    }

    fn close(&self) -> Result<(), StorageError> {
        self.engine.close()
    }
}

impl Open {
    fn engine_work(&self, choice: u64) -> Result<Work, StorageError> {
        match choice >> 32 & 1 {
            0 => self.engine.flush_round().map(|()| Work::Round),
            _ => self.engine.clean_once().map(|_| Work::Other),
        }
    }
}
