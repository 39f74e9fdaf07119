//! Opens the storage engine that the options name, and runs its maintenance threads.

use crate::memory::{BASE_BYTES, MemoryWatch};
use crate::options::{Options, PM_LATENCIES, PM_LATENCY_NANOS_MAX};
use kauri_base::log::{self, Attr};
use kauri_base::work::MemoryBudget;
use kauri_base::{Error, ErrorCode, Result, work};
use kauri_bson::Value;
use kauri_commands::parameters::{Kind, Parameter, Parameters};
use kauri_machine::ControlGroups;
use kauri_medium::plain::{DirectoryOptions, PlainDirectory};
use kauri_medium::{Dax, Delayed, Directory, Latency};
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{Maintenance, StorageEngine};
use kauri_storage_log::PmLog;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const RECOVERY_THREADS_MAX: u64 = 256;
const WORKERS_THAT_BLOCK: u64 = 64;
/// Number of segments that a first document needs.
const SEGMENTS_AT_START: u64 = 4;
const WT_CACHE_SIZE: &str = "storage.wiredTiger.engineConfig.cacheSizeGB";

/// Leaves an engine's directory as a clean shutdown does.
type Close = Box<dyn FnOnce() -> Result<()>>;

/// The operations that the latencies of [`PM_LATENCIES`] delay.
const DELAYED: [Delayed; 3] = [Delayed::Read, Delayed::Line, Delayed::Fence];

/// An engine and the threads that maintain it.
pub struct Engine {
    /// The engine.
    pub storage: Arc<dyn StorageEngine>,
    close: Close,
    /// Latency added to persistent memory.
    latency: Arc<Latency>,
    stop: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<()>, Box<dyn Fn() + Send + Sync>)>,
}

impl Engine {
    /// Opens the engine.
    pub fn open(options: &Options) -> Result<Engine> {
        let name = options.text("storage.engine", "pmlog");
        let latency = Arc::new(Latency::default());
        let (storage, close): (Arc<dyn StorageEngine>, Close) = match name.as_str() {
            "pmlog" => {
                if options.given(WT_CACHE_SIZE).is_some() {
                    return Err(Error::new(
                        ErrorCode::InvalidOptions,
                        "--wiredTigerCacheSizeGB needs --storageEngine wiredTiger; use --cacheSizeGB for \
                         pmlog",
                    ));
                }
                let log = open_log(options, &latency);
                let log = Arc::new(log.map_err(|error| explain_start(options, error))?);
                (log.clone(), Box::new(move || log.close().map_err(Error::from)))
            }
            "wiredTiger" => open_wiredtiger(options)?,
            "ephemeralForTest" => (Arc::new(EphemeralEngine::new()), Box::new(|| Ok(()))),
            other => {
                return Err(Error::new(
                    ErrorCode::BadValue,
                    format!(
                        "unknown storage engine '{other}'; use pmlog, wiredTiger or ephemeralForTest"
                    ),
                ));
            }
        };
        Ok(Engine { storage, close, latency, stop: Arc::default(), threads: Vec::new() })
    }

    /// The number of worker threads. A session whose engine blocks also blocks its worker and the worker's other
    /// sessions. So such an engine gets many workers, and nearly every session has its own, as in MongoDB.
    pub fn workers(&self, options: &Options) -> usize {
        let default = if self.storage.may_block() { WORKERS_THAT_BLOCK } else { 0 };
        options.number("net.workers", default) as usize
    }

    /// Defines server parameters for the engine's runtime settings.
    pub fn define_parameters(&self, parameters: &Parameters) {
        for ((_, name), delayed) in PM_LATENCIES.into_iter().zip(DELAYED) {
            let latency = Arc::clone(&self.latency);
            let hook = move |value: &Value<'_>| {
                let nanos = value.to_i64_saturating().and_then(|nanos| u64::try_from(nanos).ok());
                latency.set(delayed, nanos.unwrap_or(0));
                Ok(())
            };
            let nanos = Value::Int64(self.latency.get(delayed) as i64);
            let kind = Kind::Long(0, PM_LATENCY_NANOS_MAX as i64);
            parameters.define(name, Parameter::new(nanos, kind).with_hook(Arc::new(hook)));
        }
    }

    /// Begins to keep it within the memory that there is.
    pub fn watch_memory(
        &self,
        options: &Options,
        operations: Arc<MemoryBudget>,
    ) -> Result<MemoryWatch> {
        MemoryWatch::start(&self.storage, cache_bytes(options), operations)
    }

    /// Starts the maintenance threads.
    pub fn start_maintenance(&mut self) -> Result<()> {
        for Maintenance { name, mut run, wake } in self.storage.maintenance() {
            let stop = self.stop.clone();
            let thread = work::thread(name, move || run(&stop)).map_err(|e| {
                Error::new(ErrorCode::InternalError, format!("cannot start a thread: {e}"))
            })?;
            self.threads.push((thread, wake));
        }
        Ok(())
    }

    /// Ends maintenance and leaves the data as a clean shutdown does.
    pub fn close(self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        for (thread, wake) in self.threads {
            wake();
            // A maintenance thread that panicked has said so; the data is on the medium.
            let _ = thread.join();
        }
        (self.close)()
    }
}

/// The data directory, which must be there.
fn data_directory(options: &Options) -> Result<PathBuf> {
    let path = PathBuf::from(options.text("storage.dbPath", "/data/db"));
    if !path.is_dir() {
        return Err(Error::new(
            ErrorCode::NonExistentPath,
            format!(
                "Data directory {} not found. Create the missing directory or specify another path \
                 using (1) the --dbpath command line option, or (2) by adding the 'storage.dbPath' \
                 option in the configuration file.",
                path.display()
            ),
        ));
    }
    Ok(path)
}

#[cfg(feature = "wiredtiger")]
fn open_wiredtiger(options: &Options) -> Result<(Arc<dyn StorageEngine>, Close)> {
    let path = data_directory(options)?;
    let cache_bytes = options
        .gigabytes(WT_CACHE_SIZE)
        .or_else(|| options.gigabytes("storage.cacheSizeGB"))
        .unwrap_or_else(default_cache_bytes);
    let engine_options = kauri_storage_wt::Options {
        cache_bytes,
        commit_interval_ms: options.number("storage.journal.commitIntervalMs", 100),
        ..kauri_storage_wt::Options::default()
    };
    let attr = Attr::new().str("path", path.display().to_string()).num("cacheBytes", cache_bytes);
    log::info("STORAGE", 22315, "initandlisten", "Opening WiredTiger", attr);
    let engine = Arc::new(kauri_storage_wt::WiredTiger::open(&path, engine_options)?);
    Ok((engine.clone(), Box::new(move || engine.close().map_err(Error::from))))
}

#[cfg(not(feature = "wiredtiger"))]
fn open_wiredtiger(_options: &Options) -> Result<(Arc<dyn StorageEngine>, Close)> {
    Err(Error::new(
        ErrorCode::InvalidOptions,
        "this kauri was built without WiredTiger; install libwiredtiger-dev and build with \
         'cargo build --release -p kauri-server --features wiredtiger'",
    ))
}

/// The error for a data directory that cannot be opened: its path, and the way out.
pub fn explain_start(options: &Options, error: Error) -> Error {
    const PREFIX: &str = "Cannot start server.";
    let path = options.text("storage.dbPath", "/data/db");
    let (code, message) = (error.code(), error.message());
    let explained = match code {
        _ if message.starts_with(PREFIX) => return error,
        ErrorCode::NonExistentPath | ErrorCode::InvalidOptions => return error,
        ErrorCode::OutOfDiskSpace => {
            let space = Path::new(&path).canonicalize().ok().and_then(|path| {
                let directory = PlainDirectory::open(path).ok()?;
                let (size, used) = directory.space()?;
                Some((directory, size.saturating_sub(used)))
            });
            let free = space.as_ref().map_or(0, |(_, free)| *free);
            let bytes = SEGMENTS_AT_START * u64::from(segment_bytes(options, None));
            format!(
                "{path}: {message}. The file system has {free} bytes free, a start needs {bytes} bytes. Free disk \
                 space, raise --maxSizeGB if it is set, or choose a smaller --segmentSizeMB for a new directory"
            )
        }
        ErrorCode::DataCorruptionDetected => format!(
            "{path}: {message}. Run 'kauri serve --repair --dbpath {path}' to move damaged records aside, or \
             restore the directory from a backup"
        ),
        ErrorCode::DBPathInUse => {
            format!(
                "{path}: {message}. Another server uses this data directory: stop that server or choose another \
                 --dbpath"
            )
        }
        _ => format!("{path}: {message}"),
    };
    Error::new(code, format!("{PREFIX} {explained}"))
}

/// `--repair`: mends the data directory, which no server has open.
pub fn repair(options: &Options) -> Result<()> {
    let name = options.text("storage.engine", "pmlog");
    if name != "pmlog" {
        let message = format!("--repair needs --storageEngine pmlog; '{name}' has no repair");
        return Err(Error::new(ErrorCode::InvalidOptions, message));
    }
    let path = data_directory(options)?;
    let attr = Attr::new().str("path", path.display().to_string());
    log::info("STORAGE", 6_200_212, "initandlisten", "Repairing the data directory", attr);
    let directory: Arc<dyn Directory> = Arc::new(PlainDirectory::open(&path)?);
    crate::check::mend(&directory).map_err(|error| explain_repair(&path, error))
}

/// A repair that can't be made names its directory.
fn explain_repair(path: &Path, error: Error) -> Error {
    let message = format!("Cannot repair {}: {}", path.display(), error.message());
    Error::new(error.code(), message)
}

fn open_log(options: &Options, latency: &Arc<Latency>) -> Result<PmLog> {
    let path = data_directory(options)?;
    let dax = match options.text("storage.pmlog.persistentMemory", "auto").as_str() {
        "off" => Dax::Off,
        "simulated" => Dax::Simulated,
        _ => Dax::Auto,
    };
    for ((setting, _), delayed) in PM_LATENCIES.into_iter().zip(DELAYED) {
        latency.set(delayed, options.number(setting, 0));
    }
    let latency = Arc::clone(latency);
    let options_of_directory = DirectoryOptions { dax, latency, ..DirectoryOptions::default() };
    let directory: Arc<dyn Directory> =
        Arc::new(PlainDirectory::open_with(&path, options_of_directory)?);
    if options.text("storage.pmlog.verify", "quick") == "full" {
        crate::check::before_start(&directory)?;
    }
    let engine_options = kauri_storage_log::Options {
        cache_bytes: cache_bytes(options),
        memory_bytes_max: memory_bytes_max(),
        commit_interval_ms: options.number("storage.journal.commitIntervalMs", 100),
        segment_bytes: segment_bytes(options, directory.space()),
        bytes_max: options.gigabytes("storage.maxSizeGB").unwrap_or(0),
        open_threads: match options.number("storage.pmlog.recoveryThreads", 0) {
            0 => kauri_medium::parallel::cores(),
            threads => threads.min(RECOVERY_THREADS_MAX) as usize,
        },
        ..kauri_storage_log::Options::default()
    };
    let attr = Attr::new()
        .str("path", path.display().to_string())
        .num("cacheBytes", engine_options.cache_bytes);
    log::info("STORAGE", 22315, "initandlisten", "Opening storage engine", attr);
    PmLog::open(directory, engine_options)
}

/// Segment size of a new directory, in bytes. Some five segments are open or reserved, so segments are smaller with
/// little space; the largest document fits into those, too. `space` is the size and the use of the file system.
pub(crate) fn segment_bytes(options: &Options, space: Option<(u64, u64)>) -> u32 {
    const MUCH_ROOM: u64 = 4 << 30;
    let limit = options.gigabytes("storage.maxSizeGB").unwrap_or(u64::MAX);
    let free = space.map_or(u64::MAX, |(size, used)| size.saturating_sub(used));
    let default = if limit.min(free) < MUCH_ROOM { 32 } else { 64 };
    (options.number("storage.pmlog.segmentSizeMB", default) << 20) as u32
}

fn cache_bytes(options: &Options) -> u64 {
    options.gigabytes("storage.cacheSizeGB").unwrap_or_else(default_cache_bytes)
}

/// The cache's size, unless the options name one.
fn default_cache_bytes() -> u64 {
    crate::memory::default_cache_bytes(kauri_machine::look().memory_limit_bytes)
}

/// Memory that the control group and the machine have for opening the log.
fn memory_bytes_max() -> u64 {
    let limit = ControlGroups::of_process().limit().unwrap_or(u64::MAX);
    let left = kauri_machine::memory().map_or(u64::MAX, |memory| memory.left());
    limit.min(left).saturating_sub(BASE_BYTES)
}
