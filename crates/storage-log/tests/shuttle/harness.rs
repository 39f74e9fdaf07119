//! Runs a model under many schedules, with engines small enough to be opened for each schedule.

use kauri_base::Clock;
use kauri_base::clock::SeededRandom;
use kauri_base::sync::shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use kauri_base::sync::shuttle::{Config, Runner};
use kauri_conformance::table::{Table, TableIndex};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::StorageEngine;
use kauri_storage_log::{Options, PmLog};
use std::sync::Arc;
use std::time::Duration;

/// Few priority changes find rare orders of few steps sooner, among very many orders.
const PRIORITY_CHANGES: usize = 3;

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    setting(name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}")))
}

/// Runs the model under this many schedules: half of them random at each step, half by priorities.
pub fn explore(schedules: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    if let Some(schedule) = setting("SHUTTLE_REPLAY") {
        let replay = ReplayScheduler::new_from_encoded(&schedule);
        Runner::new(replay, config).run(model);
        return;
    }
    let schedules = number("SHUTTLE_ITERATIONS").map_or(schedules, |count| count as usize);
    let seed = number("SHUTTLE_SEED").unwrap_or(20_260_911);
    let (half, rest) = (schedules / 2, schedules - schedules / 2);
    let random = RandomScheduler::new_from_seed(seed, half);
    Runner::new(random, config.clone()).run(model.clone());
    let priorities = PctScheduler::new_from_seed(seed, PRIORITY_CHANGES, rest);
    Runner::new(priorities, config).run(model);
}

/// A clock that stands still.
struct NoTime;

impl Clock for NoTime {
    fn unix_ms(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// The medium of the log.
#[derive(Clone, Copy)]
pub enum On {
    Disk,
    /// A disk with a staging file.
    Staged,
    PersistentMemory,
}

impl On {
    pub fn emulator(self) -> Emulator {
        Emulator::new(match self {
            On::Disk => EmulatorConfig::default(),
            On::Staged => EmulatorConfig { staging: true, ..EmulatorConfig::default() },
            On::PersistentMemory => EmulatorConfig::persistent_memory(),
        })
    }
}

const SEGMENT_BYTES: u64 = 64 << 10;

/// An engine without threads of its own.
pub fn open(emulator: &Emulator) -> Arc<PmLog> {
    open_with(emulator, 64)
}

/// The same with a log of this many segments.
pub fn open_with(emulator: &Emulator, segments: u64) -> Arc<PmLog> {
    let options = Options {
        segment_bytes: SEGMENT_BYTES as u32,
        cache_bytes: 512 << 10,
        bytes_max: segments * SEGMENT_BYTES,
        read_threads: 0,
        open_threads: 1,
        live_percent_target: 90,
        clock: Arc::new(NoTime),
        random: Arc::new(SeededRandom::new(1)),
        ..Options::default()
    };
    Arc::new(PmLog::open(Arc::new(emulator.clone()), options).expect("opening"))
}

/// A collection with one ordinary and one unique index.
pub fn table(engine: &Arc<PmLog>, id: u32) -> Table {
    let engine: Arc<dyn StorageEngine> = engine.clone();
    let indexes = [TableIndex::new(id, false, "k"), TableIndex::new(id + 1, true, "u")];
    Table::create(&engine, id, &indexes)
}
