//! The crash tests' engine: small segments, a small cache, no threads, manual time.

use kauri_base::Clock;
use kauri_base::clock::SeededRandom;
use kauri_emulator::Emulator;
use kauri_medium::faults::Site;
use kauri_medium::{Directory, DirectoryLock, Error, Faults, Medium, Staging};
use kauri_storage::{StorageEngine, StorageError};
use kauri_storage_log::format::MARK_FILE;
use kauri_storage_log::{Options, PmLog};
use kauri_testkit::clock::ManualClock;
use kauri_testkit::{CrashTarget, OpenEngine, Work};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a segment.
pub const SEGMENT: usize = 64 << 10;

/// Stores to headers, and the events that make them durable.
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
    /// Whether the mark file can be created.
    pub marks: bool,
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
                // All streams of the cleaner, even in a small log.
                sort_segments_min: 0,
                ..Options::default()
            },
            marks: true,
        }
    }
}

/// A directory in which the mark file cannot be created.
struct Unmarked(Emulator);

impl Directory for Unmarked {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn lock(&self) -> kauri_medium::Result<DirectoryLock> {
        self.0.lock()
    }

    fn list(&self) -> kauri_medium::Result<Vec<String>> {
        self.0.list()
    }

    fn read_file(&self, name: &str) -> kauri_medium::Result<Option<Vec<u8>>> {
        self.0.read_file(name)
    }

    fn replace_file(&self, name: &str, bytes: &[u8], site: Site) -> kauri_medium::Result<()> {
        self.0.replace_file(name, bytes, site)
    }

    fn remove_file(&self, name: &str, site: Site) -> kauri_medium::Result<()> {
        self.0.remove_file(name, site)
    }

    fn rename_file(&self, from: &str, to: &str, site: Site) -> kauri_medium::Result<()> {
        self.0.rename_file(from, to, site)
    }

    fn create_log(&self, name: &str, site: Site) -> kauri_medium::Result<Arc<dyn Medium>> {
        match name {
            MARK_FILE => Err(Error::Unsupported),
            _ => self.0.create_log(name, site),
        }
    }

    fn open_log(&self, name: &str) -> kauri_medium::Result<Arc<dyn Medium>> {
        self.0.open_log(name)
    }

    fn create_staging(&self, name: &str, bytes: &[u8]) -> kauri_medium::Result<Box<dyn Staging>> {
        self.0.create_staging(name, bytes)
    }

    fn faults(&self) -> &Arc<Faults> {
        self.0.faults()
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
        let directory: Arc<dyn Directory> = match self.marks {
            true => Arc::new(directory.clone()),
            false => Arc::new(Unmarked(directory.clone())),
        };
        let engine = Arc::new(PmLog::open(directory, options)?);
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
            // An error for the writers, not of the engine.
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
