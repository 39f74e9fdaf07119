//! `kauri bench engine`: the storage engines without a server, figures and goals.

use crate::options::{self, kind, value};
use clap::{Arg, ArgMatches, Command};
use kauri_base::Result;
use kauri_bench::engine::{self, Measurement, Settings};
use std::time::Duration;

/// The command line's form.
pub fn command() -> Command {
    Command::new("engine")
        .about("Runs benchmarks of the storage engines pmlog and WiredTiger without a server")
        .long_about(
            "Calls the storage interface directly, on pmlog and on WiredTiger (in a build with --features \
             wiredtiger). Prints a table: each figure, its goal, whether the goal is met, and whether \
             WiredTiger's figures are plausible. Timed measurements alternate between the engines; the \
             figure is the median. Bytes written are the engine's own count; the notes add the counts of the \
             kernel and of the device. Timed measurements need an idle machine.",
        )
        .arg(value("only", "LIST", "Measurements, separated by commas: insert, zipf, uniform, sparse, dense (write amplification), memory, recovery, get, scan, commit, cleaner, verify [default: all]"))
        .arg(value("documents", "N", "Number of documents [default: 400000]"))
        .arg(value("bytes", "N", "Size of a document, in bytes [default: 1024]"))
        .arg(value("rounds", "N", "Number of slices of a timed measurement [default: 7]"))
        .arg(value("slice-ms", "N", "Length of a slice, in ms [default: 500]"))
        .arg(value("seconds", "N", "Length of the measurements sparse and dense, in seconds [default: 40]"))
        .arg(value("checkpoint-seconds", "N", "Interval of WiredTiger's checkpoints during sparse and dense, in seconds [default: 20]"))
        .arg(value("dir", "DIR", "Directory of the data [default: the temporary directory]"))
        .arg(value("memory-dir", "DIR", "Directory of the data that is kept in memory [default: /dev/shm]"))
        .args(options::common())
        .arg(Arg::new("memory-of").long("memory-of").hide(true))
        .arg(Arg::new("repeat").long("repeat").hide(true))
}

/// Runs the measurements and prints the table.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let settings = settings(matches)?;
    if let Some(name) = matches.get_one::<String>("memory-of") {
        println!("{}", engine::memory_of(kind(name)?, &settings)?);
        return Ok(());
    }
    if let Some(operation) = matches.get_one::<String>("repeat") {
        let mut kinds = settings.kinds.iter();
        return kinds.try_for_each(|kind| engine::repeat(*kind, operation, &settings));
    }
    let lines = engine::run(&settings, &mut |text| eprintln!("{text}"))?;
    print!("{}", engine::render(&lines));
    options::write_json(matches, || engine::json(&lines))
}

fn settings(matches: &ArgMatches) -> Result<Settings> {
    let text = |name: &str| matches.get_one::<String>(name);
    let number = |name: &str, default: u64| options::number(matches, name, default);
    let full = if matches.get_flag("quick") { Settings::quick() } else { Settings::full() };
    let documents = number("documents", full.documents)?;
    Ok(Settings {
        measurements: match options::list(matches, "only") {
            None => full.measurements,
            Some(names) => names.into_iter().map(Measurement::parse).collect::<Result<_>>()?,
        },
        kinds: options::kinds(matches)?.unwrap_or(full.kinds),
        documents,
        // As many times more as there are by default.
        overwritten: documents.saturating_mul(full.overwritten) / full.documents.max(1),
        fill: full.fill,
        document_bytes: number("bytes", full.document_bytes as u64)?.clamp(64, 16 << 20) as usize,
        rounds: number("rounds", full.rounds as u64)? as usize,
        slice: Duration::from_millis(number("slice-ms", full.slice.as_millis() as u64)?),
        updating: match text("seconds") {
            None => full.updating,
            Some(_) => Duration::from_secs(number("seconds", 1)?),
        },
        checkpoint_s: number("checkpoint-seconds", full.checkpoint_s)?,
        directory: text("dir").map_or(full.directory, Into::into),
        memory_directory: text("memory-dir").map_or(full.memory_directory, Into::into),
        seed: number("seed", full.seed)?,
    })
}
