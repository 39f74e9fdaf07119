//! Power cuts of a real file system, by the kernel's `log-writes` target; `make lab` runs it.
//!
//! `power_cuts work DIRECTORY DEVICE HISTORY`: threads write to an engine on plain files, on the device that
//! `dmsetup` knows as DEVICE. Durable commits are marked in the device's write log. The state after each commit
//! is written to HISTORY.
//!
//! `power_cuts check LOG DEVICE MOUNTPOINT HISTORY CUTS`: simulates power cuts at CUTS positions of the log. It
//! writes the resulting state to DEVICE, mounts it and opens the engine. The contents must equal one state of
//! the commit order, no older than the last mark.

mod work;
mod write_log;

use kauri_medium::plain::PlainDirectory;
use kauri_storage_log::{PmLog, verify};
use kauri_testkit::Dice;
use kauri_testkit::model::Model;
use std::error::Error;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use write_log::{Replay, WriteLog};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The engine's directory in the file system.
const DATA: &str = "data";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["work", directory, device, history] => work::work(directory, device, history),
        ["check", log, device, mount, history, cuts] => {
            check(log, device, Path::new(mount), history, cuts.parse()?)
        }
        _ => {
            Err("work DIRECTORY DEVICE HISTORY, or check LOG DEVICE MOUNTPOINT HISTORY CUTS".into())
        }
    }
}

/// The results of the commits: after each, its number and the hash of the contents.
struct History(Vec<(u64, u64)>);

impl History {
    fn read(path: &str) -> Result<History> {
        let text = std::fs::read_to_string(path)?;
        let mut states = vec![(0, Model::default().hash())];
        for line in text.lines() {
            let (seq, hash) = line.split_once(' ').ok_or("a line of the history")?;
            states.push((seq.parse()?, hash.parse()?));
        }
        Ok(History(states))
    }

    /// The last commit whose contents equal these.
    fn find(&self, contents: &Model) -> Option<u64> {
        let same = |(_, hash): &&(u64, u64)| *hash == contents.hash();
        self.0.iter().rfind(same).map(|(seq, _)| *seq)
    }
}

fn check(log: &str, device: &str, mount: &Path, history: &str, cuts: usize) -> Result<()> {
    let log = WriteLog::open(log)?;
    let history = History::read(history)?;
    let mut file = std::fs::OpenOptions::new().write(true).open(device)?;
    let bytes = file.seek(io::SeekFrom::End(0))?;
    // The kernel marks the end of the log with a word.
    let marks = log.marks().filter_map(|(at, text)| Some((at, text.parse::<u64>().ok()?)));
    let marks: Vec<_> = marks.collect();
    let (first, _) = marks.first().ok_or("no mark in the log")?;
    let seed = kauri_testkit::seed(20_261_120);
    let dice = Dice::new(seed);
    let mut points: Vec<_> =
        (1..cuts).map(|_| first + dice.below((log.len() - first) as u64 + 1) as usize).collect();
    // The end of the log is one of the points.
    points.push(log.len());
    points.sort_unstable();
    let mut replay = Replay::new(&log, bytes);
    let (mut missing, mut beyond, mut states) = (0, 0, std::collections::BTreeSet::new());
    for point in points {
        let (contents, writes_missing) = replay.cut(point, &dice)?;
        file.rewind()?;
        file.write_all(&contents)?;
        file.sync_all()?;
        let promised = marks.iter().rfind(|(at, _)| *at <= point).map_or(0, |(_, seq)| *seq);
        let found = look(device, mount, &history).map_err(|error| {
            format!("power cut after {point} writes, {promised} promised: {error}")
        })?;
        if found < promised {
            return Err(
                format!("after {point} writes: {promised} was promised, not {found}").into()
            );
        }
        missing += usize::from(writes_missing > 0);
        beyond += usize::from(found > promised);
        states.insert(found);
    }
    println!(
        "{cuts} power cuts among {} writes with {} flushes and {} marks: {} different states, {missing} \
         lacked writes, {beyond} had more than was promised",
        log.len(),
        log.flushes(),
        marks.len(),
        states.len()
    );
    // The test proves nothing if no write is missing, or if all states equal the final one.
    if missing < cuts / 10 || beyond == 0 || states.len() < cuts / 4 {
        return Err("too little happened".into());
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    match command.status()? {
        status if status.success() => Ok(()),
        status => Err(format!("{command:?}: {status}").into()),
    }
}

/// Mounts the state after a power cut. Returns the commit up to which it is complete.
fn look(device: &str, mount: &Path, history: &History) -> Result<u64> {
    run(Command::new("mount").args(["-t", "ext4", device]).arg(mount))?;
    let found = open(&mount.join(DATA), history);
    run(Command::new("umount").arg(mount))?;
    found
}

fn open(directory: &Path, history: &History) -> Result<u64> {
    let damage = verify(&PlainDirectory::open(directory)?, &mut |_, _| {})?.damage;
    if !damage.is_empty() {
        return Err(format!("{damage:?}").into());
    }
    let directory = PlainDirectory::open(directory)?;
    let engine: Arc<dyn kauri_storage::StorageEngine> =
        Arc::new(PmLog::open(Arc::new(directory), work::options())?);
    let contents = Model::read(&*engine)?;
    work::check_indexes(&engine);
    Ok(history.find(&contents).ok_or("the contents are those of no state that there was")?)
}
