//! `kauri bench engine`: the storage engines by themselves, figures beside goals.

use crate::bench_options::{self, kind, value};
use clap::{Arg, ArgMatches, Command};
use kauri_base::Result;
use kauri_bench::engine::{self, Part, Settings};
use std::time::Duration;

/// The command line's form.
pub fn command() -> Command {
    Command::new("engine")
        .about("Measures the storage engines by themselves, pmlog and WiredTiger in one run, against the goals")
        .long_about(
            "Drives the storage interface directly, on pmlog and (in a build with --features \
             wiredtiger) on WiredTiger, and prints a table: figure, goal, whether it is met, and a \
             check that WiredTiger is as it is known. What is timed alternates between the engines \
             and is a median. Bytes written are the engine's own count; the notes give the kernel's \
             and the device's beside it. For timing the machine should be idle.",
        )
        .arg(value("only", "LIST", "measurements, separated by commas [default: all]: insert, zipf, uniform, sparse, dense (write amplification), memory, recovery, get, scan, commit, cleaner, verify"))
        .arg(value("documents", "N", "documents [default: 400000]"))
        .arg(value("bytes", "N", "size of a document [default: 1024]"))
        .arg(value("rounds", "N", "slices of each timed measurement [default: 7]"))
        .arg(value("slice-ms", "N", "length of a slice [default: 500]"))
        .arg(value("seconds", "N", "seconds of sparse and of dense updates [default: 40]"))
        .arg(value("checkpoint-seconds", "N", "between WiredTiger's checkpoints meanwhile [default: 20]"))
        .arg(value("dir", "DIR", "where the data goes [default: the temporary directory]"))
        .arg(value("memory-dir", "DIR", "where data goes that should lie in memory [default: /dev/shm]"))
        .args(bench_options::common())
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
    bench_options::write_json(matches, || engine::json(&lines))
}

fn settings(matches: &ArgMatches) -> Result<Settings> {
    let text = |name: &str| matches.get_one::<String>(name);
    let number = |name: &str, default: u64| bench_options::number(matches, name, default);
    let full = if matches.get_flag("quick") { Settings::quick() } else { Settings::full() };
    let documents = number("documents", full.documents)?;
    Ok(Settings {
        parts: match bench_options::list(matches, "only") {
            None => full.parts,
            Some(names) => names.into_iter().map(Part::parse).collect::<Result<_>>()?,
        },
        kinds: bench_options::kinds(matches)?.unwrap_or(full.kinds),
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
