//! `kauri bench ycsb`: the experiment of *PM aware storage engine for MongoDB* (2018). YCSB's core workloads with
//! one thread, pmlog against WiredTiger, on persistent memory, flash and a slow disk, with caches larger and
//! smaller than the data.
//!
//! All engines on all media are open at once and measured in turns, slice by slice; engines on one medium do the
//! same operations. A figure with too few operations, or without turns, is void. If the cache is smaller than the
//! data, the workload runs first as a warm-up.
//!
//! | module | |
//! |---|---|
//! | `mix` | the workloads and the documents |
//! | `driver` | performing operations, measuring in turns |
//! | `stored` | through the storage interface |
//! | `wire` | against servers |
//! | `report` | the table |
//!
//! Position: a tool above the engines and beside the other measurements. Code that starts servers is above it
//! ([`Level`]).

mod driver;
mod mix;
mod report;
mod stored;
mod wire;

pub use driver::{Driver, Figures, Level};
pub use mix::{Operation, Workload};
pub use report::{Row, json, render, rows};
pub use wire::{Wire, load as load_server};

use crate::engine::Kind;
use crate::engine::subject::{Opening, Scratch};
use driver::Side;
use kauri_base::{Error, ErrorCode, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a document, about: for the size of caches.
pub const DOCUMENT_BYTES: u64 = 1_168;
/// A slice on the slow disk is so many times as long.
const DISK_SLICES: u32 = 4;
/// What a scan counts for: it reads 50 documents on average.
const SCAN_OPERATIONS: u64 = 20;
/// No cache is smaller.
const CACHE_BYTES_MIN: u64 = 1 << 20;

/// Where the data lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Medium {
    /// A file system in memory; pmlog uses it as persistent memory.
    Pm,
    /// The machine's own disk.
    Flash,
    /// A directory whose reads and syncs are held up (`tests/disk/slow_disk.c`).
    Disk,
    /// Servers that were there already.
    Given,
}

impl Medium {
    /// In reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Medium::Pm => "pm",
            Medium::Flash => "flash",
            Medium::Disk => "disk",
            Medium::Given => "given",
        }
    }

    /// The medium of this name.
    pub fn parse(name: &str) -> Result<Medium> {
        [Medium::Pm, Medium::Flash, Medium::Disk]
            .into_iter()
            .find(|medium| medium.name() == name)
            .ok_or_else(|| {
                Error::bad_value(format!("--media takes pm, flash and disk, not '{name}'"))
            })
    }
}

/// What is measured and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which workloads.
    pub workloads: Vec<Workload>,
    /// Which engines.
    pub kinds: Vec<Kind>,
    /// On which media.
    pub media: Vec<Medium>,
    /// Caches, as parts of the data.
    pub ratios: Vec<f64>,
    /// Documents loaded.
    pub documents: u64,
    /// Slices of each measurement.
    pub rounds: usize,
    /// A slice of the slower engine.
    pub slice: Duration,
    /// Fewer operations of a measurement make it void.
    pub operations_min: u64,
    /// Where directories are made, for each medium.
    pub directories: HashMap<Medium, PathBuf>,
    /// Of choices.
    pub seed: u64,
}

impl Plan {
    /// The figures' own.
    pub fn full() -> Plan {
        Plan {
            workloads: Workload::ALL.to_vec(),
            kinds: crate::engine::kinds(),
            media: vec![Medium::Pm, Medium::Flash],
            ratios: vec![2.0, 0.5, 0.1],
            documents: 200_000,
            rounds: 5,
            slice: Duration::from_millis(250),
            operations_min: 200,
            directories: HashMap::new(),
            seed: 1,
        }
    }

    /// Small, to see that everything runs: the figures mean nothing.
    pub fn quick() -> Plan {
        Plan {
            ratios: vec![2.0, 0.1],
            documents: 2_000,
            rounds: 3,
            slice: Duration::from_millis(20),
            operations_min: 1,
            ..Plan::full()
        }
    }

    /// A slice on this medium: on a slow one more time is needed for as many operations.
    fn slice_on(&self, medium: Medium) -> Duration {
        self.slice * if medium == Medium::Disk { DISK_SLICES } else { 1 }
    }

    /// Fewer operations of a workload make a measurement void; a scan counts as many.
    fn operations_min(&self, workload: Workload) -> u64 {
        match workload {
            Workload::E => self.operations_min / SCAN_OPERATIONS,
            _ => self.operations_min,
        }
    }

    /// The seed of a workload's choices.
    fn seed_of(&self, workload: Workload) -> u64 {
        self.seed ^ u64::from(u32::from(workload.letter())) << 32
    }

    /// A cache that is this part of the data.
    pub fn cache_bytes(&self, ratio: f64) -> u64 {
        let data = (self.documents * DOCUMENT_BYTES) as f64;
        ((data * ratio) as u64).max(CACHE_BYTES_MIN)
    }

    /// Where a medium's directories are made.
    pub fn directory(&self, medium: Medium) -> Result<&Path> {
        let directory = self.directories.get(&medium).map(PathBuf::as_path);
        directory.ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidOptions,
                format!("there is no directory for the medium '{}'", medium.name()),
            )
        })
    }
}

/// A throttled directory is as fast as any while this file is in it.
const FAST: &str = "fast";

/// Turns the throttling of a directory off (and on again).
pub fn set_fast(directory: &Path, fast: bool) -> Result<()> {
    let file = directory.join(FAST);
    let done = match fast {
        true => std::fs::write(&file, ""),
        false => std::fs::remove_file(&file),
    };
    done.map_err(|error| Error::new(ErrorCode::OperationFailed, error.to_string()))
}

/// The engines by themselves.
pub struct Engines {
    scratches: HashMap<(Kind, Medium), Scratch>,
    plan: Plan,
}

impl Engines {
    /// In directories that go with it.
    pub fn new(plan: &Plan) -> Engines {
        Engines { scratches: HashMap::new(), plan: plan.clone() }
    }

    fn opening(medium: Medium, cache_bytes: u64) -> Opening {
        Opening { cache_bytes, persistent_memory: medium == Medium::Pm, ..Opening::default() }
    }
}

impl Level for Engines {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn load(&mut self, kind: Kind, medium: Medium, documents: u64) -> Result<()> {
        let scratch = Scratch::new(self.plan.directory(medium)?)?;
        let opening = Engines::opening(medium, self.plan.cache_bytes(2.0));
        stored::load(kind, scratch.path(), &opening, documents)?;
        self.scratches.insert((kind, medium), scratch);
        Ok(())
    }

    fn open(&mut self, kind: Kind, medium: Medium, cache_bytes: u64) -> Result<Box<dyn Driver>> {
        let scratch = self.scratches.get(&(kind, medium)).ok_or_else(|| {
            Error::new(ErrorCode::OperationFailed, "a directory that was not loaded")
        })?;
        let opening = Engines::opening(medium, cache_bytes);
        Ok(Box::new(stored::Stored::open(kind, scratch.path(), &opening)?))
    }
}

/// Measures on one level; says what it does as it goes.
pub fn run(plan: &Plan, level: &mut dyn Level, say: &mut dyn FnMut(&str)) -> Result<Vec<Row>> {
    let pairs: Vec<(Kind, Medium)> = plan
        .media
        .iter()
        .flat_map(|medium| plan.kinds.iter().map(|kind| (*kind, *medium)))
        .collect();
    let throttled = plan.media.contains(&Medium::Disk);
    let set_fast = |fast| match throttled {
        true => set_fast(plan.directory(Medium::Disk)?, fast),
        false => Ok(()),
    };
    let mut documents = HashMap::new();
    set_fast(true)?;
    for (kind, medium) in &pairs {
        say(&format!("{}: loading {} on {}", level.name(), kind.name(), medium.name()));
        level.load(*kind, *medium, plan.documents)?;
        documents.insert((*kind, *medium), plan.documents);
    }
    let mut all = Vec::new();
    for ratio in &plan.ratios {
        let mut sides = Vec::new();
        for (kind, medium) in &pairs {
            let driver = level.open(*kind, *medium, plan.cache_bytes(*ratio))?;
            let count = documents.get(&(*kind, *medium)).copied().unwrap_or(plan.documents);
            sides.push(Side::new(*kind, *medium, count, driver));
        }
        for (at, workload) in plan.workloads.iter().enumerate() {
            say(&format!("{}: cache {ratio} of the data: {}", level.name(), workload.letter()));
            set_fast(true)?;
            driver::warm(plan, *ratio, *workload, &mut sides, at == 0)?;
            set_fast(false)?;
            let figures = driver::measure(plan, *workload, &mut sides)?;
            all.extend(rows(plan, level.name(), *ratio, *workload, &figures));
        }
        set_fast(true)?;
        for side in sides {
            documents.insert((side.kind, side.medium), side.documents);
            side.close()?;
        }
    }
    set_fast(false)?;
    Ok(all)
}
