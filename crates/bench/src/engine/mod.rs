//! `kauri bench engine`: drives the storage interface directly, on pmlog and on WiredTiger in one
//! run, and sets the figures beside the goals.
//!
//! What is timed alternates between the engines, slice by slice, and the figure is the median of an
//! engine's slices. What counts bytes runs one engine after the other, so that the process's and the
//! device's counters tell them apart.
//!
//! | module | measures |
//! |---|---|
//! | `amplification` | bytes given to the medium for each byte of documents, in five regimes; space |
//! | `reads` | gets from memory, scans |
//! | `latency` | commits: to memory, to the device, with the cleaner at work |
//! | `memory` | memory beside the cache |
//! | `recovery` | opening a directory again, checking all of it |
//! | `instructions` | for callgrind: one kind of operation, many times |
//!
//! Where it sits: a tool above the engines. It knows them by name to open them, and otherwise only
//! their interface.

mod amplification;
mod instructions;
mod latency;
mod memory;
mod reads;
mod recovery;
pub(crate) mod subject;
mod table;
pub(crate) mod workload;

pub use latency::sync_time;
pub use subject::Scratch;
pub use table::{Goal, Line, json, render};

use kauri_base::{Error, Result};
use std::path::PathBuf;
use std::time::Duration;

/// What is said where WiredTiger is asked for and not there.
pub const WITHOUT_WIREDTIGER: &str = "this kauri was built without WiredTiger: only pmlog is measured. \
     Install libwiredtiger-dev and build with --features wiredtiger";

/// Whether WiredTiger is built in.
pub const HAS_WIREDTIGER: bool = cfg!(feature = "wiredtiger");

/// An engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    PmLog,
    WiredTiger,
}

impl Kind {
    /// Its name in `--storageEngine`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::PmLog => "pmlog",
            Kind::WiredTiger => "wiredTiger",
        }
    }
}

/// A group of measurements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Part {
    Insert,
    Zipf,
    Uniform,
    Sparse,
    Dense,
    Memory,
    Recovery,
    Get,
    Scan,
    Commit,
    Cleaner,
    Verify,
}

impl Part {
    /// All, in the order in which they run.
    pub const ALL: [Part; 12] = [
        Part::Insert,
        Part::Zipf,
        Part::Uniform,
        Part::Sparse,
        Part::Dense,
        Part::Memory,
        Part::Recovery,
        Part::Get,
        Part::Scan,
        Part::Commit,
        Part::Cleaner,
        Part::Verify,
    ];

    /// Its name in `--only`.
    pub fn name(self) -> &'static str {
        match self {
            Part::Insert => "insert",
            Part::Zipf => "zipf",
            Part::Uniform => "uniform",
            Part::Sparse => "sparse",
            Part::Dense => "dense",
            Part::Memory => "memory",
            Part::Recovery => "recovery",
            Part::Get => "get",
            Part::Scan => "scan",
            Part::Commit => "commit",
            Part::Cleaner => "cleaner",
            Part::Verify => "verify",
        }
    }

    /// The part of this name.
    pub fn parse(name: &str) -> Result<Part> {
        Part::ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| {
            let names = Part::ALL.map(Part::name).join(", ");
            Error::bad_value(format!("--only takes {names}, not '{name}'"))
        })
    }
}

/// What is measured and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which measurements.
    pub parts: Vec<Part>,
    /// Which engines.
    pub kinds: Vec<Kind>,
    /// Documents.
    pub documents: u64,
    /// Documents of a log that is filled again and again: as many as make 3.3 GB.
    pub overwritten: u64,
    /// Their size.
    pub document_bytes: usize,
    /// How much of a log of limited size is live.
    pub fill: f64,
    /// Slices of each timed measurement.
    pub rounds: usize,
    /// A slice.
    pub slice: Duration,
    /// How long sparse and dense updates go on.
    pub updating: Duration,
    /// Between WiredTiger's checkpoints in those.
    pub checkpoint_s: u64,
    /// Where directories are made.
    pub directory: PathBuf,
    /// The same in memory.
    pub memory_directory: PathBuf,
    /// Of documents and choices.
    pub seed: u64,
}

impl Settings {
    /// The figures' own: what the goals and what is known of WiredTiger refer to.
    pub fn full() -> Settings {
        Settings {
            parts: Part::ALL.to_vec(),
            kinds: kinds(),
            documents: 400_000,
            overwritten: 3_200_000,
            document_bytes: 1024,
            fill: 0.85,
            rounds: 7,
            slice: Duration::from_millis(500),
            updating: Duration::from_secs(40),
            checkpoint_s: 20,
            directory: std::env::temp_dir(),
            memory_directory: PathBuf::from("/dev/shm"),
            seed: 1,
        }
    }

    /// Small, to see that everything runs: the figures mean nothing.
    pub fn quick() -> Settings {
        Settings {
            documents: 20_000,
            overwritten: 20_000,
            // A log that is so small has more that is not records: headers, reserved segments.
            fill: 0.6,
            rounds: 1,
            slice: Duration::from_millis(30),
            updating: Duration::from_millis(1500),
            checkpoint_s: 1,
            ..Settings::full()
        }
    }

    fn cache_bytes(&self) -> u64 {
        self.documents * self.document_bytes as u64 * 3 + (256 << 20)
    }

    /// As large as MongoDB makes it on a machine of some size: WiredTiger writes pages early once a
    /// twentieth of its cache has been changed, and what it is known for was measured without that.
    fn cache_bytes_default(&self) -> u64 {
        self.cache_bytes().max(8 << 30)
    }
}

/// The engines that are built in.
pub fn kinds() -> Vec<Kind> {
    if HAS_WIREDTIGER { vec![Kind::PmLog, Kind::WiredTiger] } else { vec![Kind::PmLog] }
}

/// Measures; says what it does as it goes.
pub fn run(settings: &Settings, say: &mut dyn FnMut(&str)) -> Result<Vec<Line>> {
    if !HAS_WIREDTIGER {
        say(WITHOUT_WIREDTIGER);
    }
    let mut lines = Vec::new();
    for part in &settings.parts {
        say(&format!("measuring: {}", part.name()));
        lines.extend(match part {
            Part::Insert => amplification::insert(settings)?,
            Part::Zipf => amplification::overwrite(settings, true)?,
            Part::Uniform => amplification::overwrite(settings, false)?,
            Part::Sparse => amplification::update(settings, true)?,
            Part::Dense => amplification::update(settings, false)?,
            Part::Memory => memory::measure(settings)?,
            Part::Recovery => recovery::measure(settings)?,
            Part::Get => reads::get(settings)?,
            Part::Scan => reads::scan(settings)?,
            Part::Commit => {
                let mut lines = latency::commit(settings)?;
                lines.append(&mut latency::commit_reused(settings)?);
                lines
            }
            Part::Cleaner => latency::cleaner(settings)?,
            Part::Verify => recovery::verify(settings)?,
        });
    }
    add_sparse_ratio(&mut lines);
    Ok(lines)
}

/// The goal for sparse updates is also one against WiredTiger.
fn add_sparse_ratio(lines: &mut Vec<Line>) {
    let sparse = lines.iter().find(|line| line.name == amplification::SPARSE);
    let Some((pmlog, wiredtiger)) = sparse.and_then(|line| line.pmlog.zip(line.wiredtiger)) else {
        return;
    };
    let mut line = Line::new("sparse updates: times below WiredTiger", "x", Goal::AtLeast(10.0));
    line.pmlog = Some(wiredtiger / pmlog);
    lines.push(line);
}

/// What `scripts/instructions` runs under callgrind: so many operations of a kind.
pub fn repeat(kind: Kind, operation: &str, settings: &Settings) -> Result<()> {
    instructions::repeat(kind, operation, settings)
}

/// What `memory` starts a process for: prints nothing, answers bytes a document beside the cache.
pub fn memory_of(kind: Kind, settings: &Settings) -> Result<f64> {
    memory::of(kind, settings)
}
