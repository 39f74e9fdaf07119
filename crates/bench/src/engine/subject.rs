//! An engine under measurement, in its own directory, with its background threads.

use super::Kind;
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{DocBuf, Value};
use kauri_medium::Dax;
use kauri_medium::plain::{DirectoryOptions, PlainDirectory};
use kauri_storage::StorageEngine;
use kauri_storage_log::PmLog;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// How an engine is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Memory for documents.
    pub cache_bytes: u64,
    /// Most bytes of the log, 0 for no limit (pmlog).
    pub log_bytes_max: u64,
    /// Bytes of a segment (pmlog).
    pub segment_bytes: u32,
    /// Whether the cleaner's thread runs (pmlog).
    pub cleaner: bool,
    /// Whether memory stands in for persistent memory (pmlog).
    pub persistent_memory: bool,
    /// Seconds between checkpoints (WiredTiger).
    pub checkpoint_s: u64,
    /// Whether records are compressed, as MongoDB does (WiredTiger).
    pub compressed: bool,
}

impl Default for Opening {
    fn default() -> Opening {
        Opening {
            cache_bytes: 1 << 30,
            log_bytes_max: 0,
            segment_bytes: 64 << 20,
            cleaner: true,
            persistent_memory: false,
            checkpoint_s: 60,
            compressed: true,
        }
    }
}

/// A directory that goes when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty directory in `parent`.
    pub fn new(parent: &Path) -> Result<Scratch> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("kauri-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| {
            let message = format!("cannot create {}: {error}", path.display());
            Error::new(ErrorCode::OperationFailed, message)
        })?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Wake = Box<dyn Fn() + Send + Sync>;
type Close = Box<dyn FnOnce() -> Result<()>>;
type Checkpoint = Box<dyn Fn() -> Result<()>>;
type Opened = (Arc<dyn StorageEngine>, Checkpoint, Close);

/// See the module's head.
pub struct Subject {
    /// Which engine it is.
    pub kind: Kind,
    /// The engine.
    pub engine: Arc<dyn StorageEngine>,
    checkpoint: Checkpoint,
    close: Option<Close>,
    path: PathBuf,
    stop: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<()>, Wake)>,
}

impl Subject {
    /// Opens the engine in this directory and starts its maintenance.
    pub fn open(kind: Kind, path: &Path, opening: &Opening) -> Result<Subject> {
        let mut subject = Subject::open_idle(kind, path, opening)?;
        subject.start(opening);
        Ok(subject)
    }

    /// Opens the engine only: what is attached before maintenance starts can use what recovery has read, as
    /// in a server.
    pub fn open_idle(kind: Kind, path: &Path, opening: &Opening) -> Result<Subject> {
        let (engine, checkpoint, close): Opened = match kind {
            Kind::PmLog => {
                let options = kauri_storage_log::Options {
                    cache_bytes: opening.cache_bytes,
                    segment_bytes: opening.segment_bytes,
                    bytes_max: opening.log_bytes_max,
                    ..kauri_storage_log::Options::default()
                };
                let dax = if opening.persistent_memory { Dax::Simulated } else { Dax::Off };
                let directory_options = DirectoryOptions { dax, ..DirectoryOptions::default() };
                let directory = Arc::new(PlainDirectory::open_with(path, directory_options)?);
                let log = Arc::new(PmLog::open(directory, options)?);
                let synced = log.clone();
                (
                    log.clone(),
                    Box::new(move || synced.sync().map_err(Error::from)),
                    Box::new(move || log.close().map_err(Error::from)),
                )
            }
            Kind::WiredTiger => open_wiredtiger(path, opening)?,
        };
        let (stop, threads) = (Arc::new(AtomicBool::new(false)), Vec::new());
        let path = path.to_owned();
        Ok(Subject { kind, engine, checkpoint, close: Some(close), path, stop, threads })
    }

    /// Starts the maintenance.
    pub fn start(&mut self, opening: &Opening) {
        for maintenance in self.engine.maintenance() {
            if !opening.cleaner && maintenance.name == "log-cleaner" {
                continue;
            }
            let (stop, mut run) = (self.stop.clone(), maintenance.run);
            self.threads.push((std::thread::spawn(move || run(&stop)), maintenance.wake));
        }
    }

    /// Ends maintenance and leaves the data as a clean shutdown does.
    pub fn close(mut self) -> Result<()> {
        self.end_threads();
        match self.close.take() {
            Some(close) => close(),
            None => Ok(()),
        }
    }

    /// Brings everything to where it stays: a sync, for WiredTiger a checkpoint.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.sync()?;
        (self.checkpoint)()
    }

    /// Bytes of the files that hold data; not those of a journal.
    pub fn space_bytes(&self) -> u64 {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return 0 };
        let sizes = entries.flatten().filter_map(|entry| entry.metadata().ok());
        sizes.filter(|file| file.is_file()).map(|file| file.len()).sum()
    }

    fn end_threads(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for (thread, wake) in self.threads.drain(..) {
            wake();
            // One that panicked has said so.
            let _ = thread.join();
        }
    }

    /// A number of a section of the engine's part of `serverStatus`; 0 if there is none of that name.
    pub fn figure(&self, section: &str, name: &str) -> u64 {
        let status = DocBuf::build(|out| self.engine.write_status(out));
        let section = status.as_doc().value(section);
        section.as_document().map_or(0, |section| number(&section.value(name)))
    }

    /// A number of the engine's part of `serverStatus` itself.
    pub fn total(&self, name: &str) -> u64 {
        number(&DocBuf::build(|out| self.engine.write_status(out)).as_doc().value(name))
    }

    /// Bytes that the engine says it has given to the medium.
    pub fn given_bytes(&self) -> u64 {
        match self.kind {
            Kind::PmLog => self.figure("log", "storedBytes"),
            Kind::WiredTiger => {
                self.figure("block-manager", "bytes written")
                    + self.figure("log", "log bytes written")
            }
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.end_threads();
    }
}

#[cfg(feature = "wiredtiger")]
fn open_wiredtiger(path: &Path, opening: &Opening) -> Result<Opened> {
    let options = kauri_storage_wt::Options {
        cache_bytes: opening.cache_bytes,
        checkpoint_s: opening.checkpoint_s,
        compressed: opening.compressed,
        ..kauri_storage_wt::Options::default()
    };
    let engine = Arc::new(kauri_storage_wt::WiredTiger::open(path, options)?);
    let checkpointed = engine.clone();
    Ok((
        engine.clone(),
        Box::new(move || checkpointed.checkpoint().map_err(Error::from)),
        Box::new(move || engine.close().map_err(Error::from)),
    ))
}

#[cfg(not(feature = "wiredtiger"))]
fn open_wiredtiger(path: &Path, opening: &Opening) -> Result<Opened> {
    let _ = (path, opening.checkpoint_s, opening.compressed);
    Err(Error::new(ErrorCode::InvalidOptions, super::WITHOUT_WIREDTIGER))
}

/// Bytes that this process has had written to devices (`/proc/self/io`: pages made dirty, so a page
/// that is written twice before it is flushed counts once).
pub fn process_written_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/io") else { return 0 };
    let number = |line: &str| line.strip_prefix("write_bytes: ")?.trim().parse().ok();
    text.lines().find_map(number).unwrap_or(0)
}

/// Bytes that the device under this directory has written, for everybody (`/sys/dev/block`). `None`
/// where there is no device, as for memory.
pub fn device_written_bytes(directory: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(directory).ok()?.dev();
    // As glibc packs them.
    let major = (device >> 8 & 0xFFF) | (device >> 32 & 0xFFFF_F000);
    let minor = (device & 0xFF) | (device >> 12 & 0xFFFF_FF00);
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

fn number(value: &Value<'_>) -> u64 {
    match value {
        Value::Int64(number) => (*number).max(0) as u64,
        _ => 0,
    }
}
