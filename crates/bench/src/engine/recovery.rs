//! Opening a directory again, and checking all of it.

use super::subject::{Opening, Scratch, Subject};
use super::table::{Goal, Line};
use super::workload::{Collection, Documents};
use super::{Kind, Settings};
use crate::compare::median;
use kauri_base::{Error, ErrorCode, Result};
use kauri_medium::plain::{DirectoryOptions, PlainDirectory};
use kauri_medium::{Buffer, Dax, parallel};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Times the directory is opened, or read.
const TIMES: usize = 5;
/// Read at once for the device's own speed: as much as the check does, since devices are faster the more it is.
const CHUNK_BYTES: usize = 2 << 20;
/// Requests under way then.
const REQUESTS: usize = 4;
/// The log.
const LOG_FILE: &str = "pmlog.0";

/// Documents a second of opening: the tables alone, and with the `_id` index attached.
struct Rates {
    opened: Vec<f64>,
    attached: Vec<f64>,
}

impl Rates {
    fn new() -> Rates {
        Rates { opened: Vec::new(), attached: Vec::new() }
    }

    fn take(&mut self, settings: &Settings, kind: Kind, path: &Path) -> Result<()> {
        let began = Instant::now();
        let mut subject = Subject::open_idle(kind, path, &opening(settings))?;
        let open = began.elapsed().as_secs_f64();
        let collection = Collection::attach(&subject)?;
        let all = began.elapsed().as_secs_f64();
        assert_eq!(collection.store().stats()?.records, settings.documents);
        self.opened.push(settings.documents as f64 / open);
        self.attached.push(settings.documents as f64 / all);
        drop(collection);
        subject.start(&opening(settings));
        subject.close()
    }
}

fn opening(settings: &Settings) -> Opening {
    Opening { cache_bytes: settings.cache_bytes(), segment_bytes: 8 << 20, ..Opening::default() }
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

/// Copies a directory as it is on the medium while it is open: what a crash leaves.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => std::fs::copy(entry.path(), target).map(drop)?,
        }
    }
    Ok(())
}

/// Documents a second that the opening takes up, with one thread.
pub fn measure(settings: &Settings) -> Result<Vec<Line>> {
    let line = |name: &str, goal| Line::new(name, "documents/s", goal);
    let mut table = line("recovery after a crash, tables, a core", Goal::AtLeast(3e6));
    let mut with_id = line("recovery after a crash, with _id, a core", Goal::AtLeast(1e6));
    let mut clean_table = line("opening after a shutdown, tables, a core", Goal::None);
    let mut clean_with_id = line("opening after a shutdown, with _id, a core", Goal::None);
    for kind in &settings.kinds {
        let scratch = Scratch::new(&settings.memory_directory)?;
        let subject = Subject::open(*kind, scratch.path(), &opening(settings))?;
        let collection = Collection::create(&subject)?;
        let mut docs = Documents::new(settings.document_bytes, settings.seed);
        collection.load(&mut docs, 0, settings.documents as i64, 100)?;
        subject.engine.sync()?;
        let crash = Scratch::new(&settings.memory_directory)?;
        copy(scratch.path(), &crash.path().join("0")).map_err(failed)?;
        drop(collection);
        subject.close()?;
        let (mut crashed, mut clean) = (Rates::new(), Rates::new());
        for time in 0..TIMES {
            let (this, next) = (time.to_string(), (time + 1).to_string());
            let path = crash.path().join(this);
            // Opening changes it.
            copy(&path, &crash.path().join(next)).map_err(failed)?;
            crashed.take(settings, *kind, &path)?;
            std::fs::remove_dir_all(&path).map_err(failed)?;
            clean.take(settings, *kind, scratch.path())?;
        }
        table.set(*kind, median(crashed.opened));
        with_id.set(*kind, median(crashed.attached));
        clean_table.set(*kind, median(clean.opened));
        clean_with_id.set(*kind, median(clean.attached));
    }
    table.remark("files in memory, copied from an open engine after a sync, one thread");
    clean_table.remark("WiredTiger reads nothing then");
    Ok(vec![table, with_id, clean_table, clean_with_id])
}

/// Has the kernel forget a directory's pages.
fn forget(path: &Path) -> Result<()> {
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let mut input = std::ffi::OsString::from("if=");
        input.push(entry.map_err(failed)?.path());
        let mut dd = Command::new("dd");
        let status = dd.arg(input).args(["iflag=nocache", "count=0", "status=none"]).status();
        if !status.map_err(failed)?.success() {
            return Err(Error::new(ErrorCode::OperationFailed, "dd could not drop cached pages"));
        }
    }
    Ok(())
}

/// Bytes a second of reading the log from its beginning to its end through the kernel's memory.
fn read_buffered(path: &Path) -> Result<f64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let (began, mut bytes) = (Instant::now(), 0);
    loop {
        match file.read(&mut chunk).map_err(failed)? {
            0 => return Ok(bytes as f64 / began.elapsed().as_secs_f64()),
            read => bytes += read as u64,
        }
    }
}

/// The same past the kernel's memory, with several requests under way; 0 where that can't be done.
fn read_direct(path: &Path) -> Result<f64> {
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    let next = AtomicU64::new(0);
    let began = Instant::now();
    let read = parallel::try_map(REQUESTS, REQUESTS, |_| {
        let mut options = std::fs::File::options();
        let file = options.read(true).custom_flags(libc::O_DIRECT).open(path)?;
        let mut buffer = Buffer::default();
        loop {
            let at = next.fetch_add(CHUNK_BYTES as u64, Ordering::Relaxed);
            if at >= bytes {
                return Ok::<_, std::io::Error>(());
            }
            file.read_at(buffer.room(CHUNK_BYTES), at)?;
        }
    });
    match read {
        Ok(_) => Ok(bytes as f64 / began.elapsed().as_secs_f64()),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(0.0),
        Err(error) => Err(failed(error)),
    }
}

/// Times as many documents are checked as other measurements have: 1.6 GB. A log of 400 MB is read in two tenths
/// of a second, and a device's speed in so short a time varies by half.
const VERIFIED: u64 = 4;

/// Checking every CRC, against the speed at which the device gives the same log by the faster of two
/// ways. Each begins with nothing in the kernel's memory. pmlog only.
pub fn verify(settings: &Settings) -> Result<Vec<Line>> {
    let mut speed = Line::new("checking every CRC", "MB/s", Goal::None);
    let mut device = Line::new("the device, reading the same log", "MB/s", Goal::None);
    let mut part = Line::new("checking every CRC / the device", "x", Goal::AtLeast(0.9));
    let scratch = Scratch::new(&settings.directory)?;
    let subject = Subject::open(Kind::PmLog, scratch.path(), &opening(settings))?;
    let collection = Collection::create(&subject)?;
    let mut docs = Documents::new(settings.document_bytes, settings.seed);
    let documents = settings.documents * VERIFIED;
    collection.load(&mut docs, 0, documents as i64, 100)?;
    drop(collection);
    subject.close()?;
    let (mut speeds, mut buffered, mut direct) = (Vec::new(), Vec::new(), Vec::new());
    let (threads, log, mut bytes) = (parallel::cores(), scratch.path().join(LOG_FILE), 0);
    for _ in 0..TIMES {
        forget(scratch.path())?;
        buffered.push(read_buffered(&log)? / 1e6);
        forget(scratch.path())?;
        direct.push(read_direct(&log)? / 1e6);
        forget(scratch.path())?;
        let options = DirectoryOptions { dax: Dax::Off, ..DirectoryOptions::default() };
        let directory = PlainDirectory::open_with(scratch.path(), options)?;
        let began = Instant::now();
        let report = kauri_storage_log::verify_with(&directory, true, threads, &|_, _| {})?;
        bytes = report.bytes;
        speeds.push(bytes as f64 / began.elapsed().as_secs_f64() / 1e6);
        assert!(report.damage.is_empty() && report.documents == documents);
    }
    let (buffered, direct) = (median(buffered), median(direct));
    let (mine, its) = (median(speeds), buffered.max(direct));
    device.remark(&format!("{buffered:.0} in order, {direct:.0} past the kernel's memory"));
    speed.pmlog = Some(mine);
    device.pmlog = Some(its);
    part.pmlog = Some(mine / its);
    speed.remark(&format!("{threads} threads, {} MB, none of them in memory", bytes >> 20));
    Ok(vec![speed, device, part])
}
