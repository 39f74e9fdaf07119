//! `kauri bench engine`: calls the storage interface directly, on pmlog and on WiredTiger in one run, and compares
//! figures with goals.
//!
//! Timed measurements alternate between the engines, slice by slice; the figure is the median of an engine's
//! slices. Measurements of bytes run one engine after the other, so that the counters of the process and of the
//! device are separate.
//!
//! | module | measures |
//! |---|---|
//! | `amplification` | bytes written to the medium per byte of documents, in five regimes; space |
//! | `reads` | gets from memory, scans |
//! | `latency` | commits: to memory, to the device, with the cleaner at work |
//! | `memory` | memory outside of the cache |
//! | `recovery` | opening a directory again, checking all of it |
//! | `instructions` | for callgrind: one kind of operation, many times |
//!
//! Position: a tool above the engines. It knows their names to open them, otherwise only their interface.

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

/// Figures that are measured together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Measurement {
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

impl Measurement {
    /// All, in the order in which they run.
    pub const ALL: [Measurement; 12] = [
        Measurement::Insert,
        Measurement::Zipf,
        Measurement::Uniform,
        Measurement::Sparse,
        Measurement::Dense,
        Measurement::Memory,
        Measurement::Recovery,
        Measurement::Get,
        Measurement::Scan,
        Measurement::Commit,
        Measurement::Cleaner,
        Measurement::Verify,
    ];

    /// Its name in `--only`.
    pub fn name(self) -> &'static str {
        match self {
            Measurement::Insert => "insert",
            Measurement::Zipf => "zipf",
            Measurement::Uniform => "uniform",
            Measurement::Sparse => "sparse",
            Measurement::Dense => "dense",
            Measurement::Memory => "memory",
            Measurement::Recovery => "recovery",
            Measurement::Get => "get",
            Measurement::Scan => "scan",
            Measurement::Commit => "commit",
            Measurement::Cleaner => "cleaner",
            Measurement::Verify => "verify",
        }
    }

    /// The measurement of this name.
    pub fn parse(name: &str) -> Result<Measurement> {
        Measurement::ALL.into_iter().find(|measurement| measurement.name() == name).ok_or_else(
            || {
                let names = Measurement::ALL.map(Measurement::name).join(", ");
                Error::bad_value(format!("--only takes {names}, not '{name}'"))
            },
        )
    }
}

/// What is measured and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which measurements.
    pub measurements: Vec<Measurement>,
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
            measurements: Measurement::ALL.to_vec(),
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
    for measurement in &settings.measurements {
        say(&format!("measuring: {}", measurement.name()));
        lines.extend(match measurement {
            Measurement::Insert => amplification::insert(settings)?,
            Measurement::Zipf => amplification::overwrite(settings, true)?,
            Measurement::Uniform => amplification::overwrite(settings, false)?,
            Measurement::Sparse => amplification::update(settings, true)?,
            Measurement::Dense => amplification::update(settings, false)?,
            Measurement::Memory => memory::measure(settings)?,
            Measurement::Recovery => recovery::measure(settings)?,
            Measurement::Get => reads::get(settings)?,
            Measurement::Scan => reads::scan(settings)?,
            Measurement::Commit => {
                let mut lines = latency::commit(settings)?;
                lines.append(&mut latency::commit_reused(settings)?);
                lines
            }
            Measurement::Cleaner => latency::cleaner(settings)?,
            Measurement::Verify => recovery::verify(settings)?,
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
