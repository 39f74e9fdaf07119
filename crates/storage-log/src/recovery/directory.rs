//! The directory: lock, metadata file, log file, and reasons to refuse it.

use crate::format::meta::Meta;
use crate::format::{ENGINE_NAME, LOG_FILE, META_FILE, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::options::Options;
use crate::segments::SEGMENTS_MIN;
use kauri_base::sync::Arc;
use kauri_base::{Error, ErrorCode, Result};
use kauri_medium::{Directory, DirectoryLock, Medium};

/// A directory that is ours.
pub struct Opened {
    /// The directory.
    pub directory: Arc<dyn Directory>,
    /// Keeps others out.
    pub lock: DirectoryLock,
    /// Its metadata.
    pub meta: Meta,
    /// Its log file.
    pub medium: Arc<dyn Medium>,
}

impl Opened {
    /// Takes the directory, making it one of this engine if it is empty.
    pub fn open(directory: Arc<dyn Directory>, options: &Options) -> Result<Opened> {
        if directory.read_file(META_FILE)?.is_none() {
            // What is refused stays untouched: without a lock file, too.
            check_new(&*directory, options)?;
        }
        let lock = directory.lock()?;
        let meta = match directory.read_file(META_FILE)? {
            Some(bytes) => known(&*directory, &bytes)?,
            None => create(&*directory, options)?,
        };
        // Every start leaves a cut, after it has made the log's name durable. Before that a crash may have
        // come between the metadata file and the log's creation, or between that and the name's sync.
        let medium = match meta.cuts.is_empty() {
            true => directory.create_log(LOG_FILE, "create.log")?,
            false => match directory.open_log(LOG_FILE) {
                Err(kauri_medium::Error::NotFound) => {
                    return Err(refusal(&*directory, "the log file pmlog.0 is missing"));
                }
                result => result?,
            },
        };
        Ok(Opened { directory, lock, meta, medium })
    }
}

/// The metadata of a directory that exists already.
fn known(directory: &dyn Directory, bytes: &[u8]) -> Result<Meta> {
    let meta = Meta::decode(bytes, directory.faults().enabled("meta.crc")).map_err(|error| {
        let place = directory.describe();
        Error::location(28_662, format!("Cannot start server. {place}: {error}"))
    })?;
    if meta.cuts.is_empty() {
        // Who made it may have died before its name was durable; the log's must not be so before it.
        directory.replace_file(META_FILE, bytes, "create.meta")?;
    }
    Ok(meta)
}

/// Fails unless a log may be made here.
fn check_new(directory: &dyn Directory, options: &Options) -> Result<()> {
    let names = directory.list()?;
    if names.iter().any(|name| name == LOG_FILE) {
        return Err(refusal(directory, "there is a log, but its kauri.meta is missing"));
    }
    if names.iter().any(|name| name == "WiredTiger" || name == "storage.bson") {
        return Err(Error::location(
            28_662,
            format!(
                "Cannot start server. Detected data files in {} created by the 'wiredTiger' \
                 storage engine, but the specified storage engine was '{ENGINE_NAME}'. Dump the \
                 data with the server that wrote it (mongodump) and restore it into an empty \
                 directory (mongorestore)",
                directory.describe()
            ),
        ));
    }
    check_sizes(options)
}

fn create(directory: &dyn Directory, options: &Options) -> Result<Meta> {
    check_new(directory, options)?;
    let mut id = [0; 16];
    id[..8].copy_from_slice(&options.random.next_u64().to_le_bytes());
    id[8..].copy_from_slice(&options.random.next_u64().to_le_bytes());
    let meta = Meta {
        directory: id,
        segment_bytes: options.segment_bytes,
        clean: true,
        epoch_next: 1,
        horizon: Default::default(),
        marks: false,
        cuts: Vec::new(),
    };
    directory.replace_file(META_FILE, &meta.encode(), "create.meta")?;
    Ok(meta)
}

/// Fails for a new directory that nothing could be put in.
fn check_sizes(options: &Options) -> Result<()> {
    let bytes = options.segment_bytes;
    if !bytes.is_power_of_two() || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!("a segment of {bytes} bytes: it must be a power of two from 64 KB to 128 MB"),
        ));
    }
    if options.bytes_max != 0 && options.bytes_max / u64::from(bytes) < u64::from(SEGMENTS_MIN) {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "a log of {} bytes at most has no room for data: it needs {SEGMENTS_MIN} segments, of {bytes} \
                 bytes each; raise --maxSizeGB or choose a smaller --segmentSizeMB",
                options.bytes_max
            ),
        ));
    }
    Ok(())
}

fn refusal(directory: &dyn Directory, what: &str) -> Error {
    let place = directory.describe();
    Error::location(
        28_662,
        format!("Cannot start server. {place}: {what}; restore the directory from a backup"),
    )
}
