//! After the death of a process: replays entries of the staging file that the log lacks, or overlays them for
//! readers.

use crate::format::staging::{StagedAt, StagedSeed};
use crate::format::{SEGMENT_HEADER_BYTES, STAGING_FILE, Stream, TRAILER_BYTES};
use crate::on_medium::Log;
use crate::reader::{Found, read_header};
use kauri_base::log::{self, Attr};
use kauri_base::sync::Arc;
use kauri_medium::{Directory, Medium, MediumKind, Site};
use kauri_storage::StorageError;
use std::collections::HashMap;
use std::io::IoSlice;

/// Bytes that the log lacks, by where in its file they belong.
type Lacking = Vec<(u64, Vec<u8>)>;

/// Puts into the log what the staging file holds and it lacks. As often as one likes, until the log is
/// written to again.
pub fn replay(log: Log<'_>, directory: &dyn Directory) -> Result<(), StorageError> {
    let lacking = lacking(log, directory)?;
    for (offset, bytes) in &lacking {
        log.medium.store(*offset, &[IoSlice::new(bytes)]).map_err(crate::io_error)?;
    }
    if !lacking.is_empty() {
        let bytes: usize = lacking.iter().map(|(_, bytes)| bytes.len()).sum();
        let attr = Attr::new().num("entries", lacking.len()).num("bytes", bytes);
        let message = "Replayed the staging file into the log";
        log::info("STORAGE", 6_200_023, "initandlisten", message, attr);
    }
    Ok(())
}

/// If several entries have bytes for a place, the last one counts: they are equal.
fn lacking(log: Log<'_>, directory: &dyn Directory) -> Result<Lacking, StorageError> {
    let Some(file) = directory.read_file(STAGING_FILE).map_err(crate::io_error)? else {
        return Ok(Vec::new());
    };
    let Log { medium, faults, segments, meta, .. } = log;
    let Some(seed) = StagedSeed::of_file(&file, &meta.directory) else { return Ok(Vec::new()) };
    let (mut epochs, mut lacking) = (HashMap::new(), Vec::new());
    for (at, bytes) in StagedAt::all(&file, seed, faults.enabled("staging.crc")) {
        let segment_bytes = segments.segment_bytes();
        let end = u64::from(at.offset) + bytes.len() as u64;
        let start = segments.file_offset(at.segment);
        // Segments of earlier openings were made durable by this one's.
        let fits = at.epoch >= meta.epoch_next
            && at.offset >= SEGMENT_HEADER_BYTES
            && end <= u64::from(segment_bytes - TRAILER_BYTES)
            && start + u64::from(segment_bytes) <= medium.len();
        let check = faults.enabled("staging.epoch");
        if !fits || check && epoch_of(log, at.segment, &mut epochs)? != Some(at.epoch) {
            continue;
        }
        let offset = start + u64::from(at.offset);
        let mut there = vec![0; bytes.len()];
        // What can't be read may become so when it is stored.
        if medium.read(offset, &mut there).is_err() || there != bytes {
            lacking.push((offset, bytes.to_vec()));
        }
    }
    Ok(lacking)
}

/// The epoch of a segment of the user stream, which is durable before anything is appended to it.
fn epoch_of(
    log: Log<'_>,
    segment: u32,
    known: &mut HashMap<u32, Option<u64>>,
) -> Result<Option<u64>, StorageError> {
    if let Some(epoch) = known.get(&segment) {
        return Ok(*epoch);
    }
    let Log { medium, faults, segments, meta, .. } = log;
    let found = read_header(medium, faults, segments, segment, &meta.directory);
    let epoch = match found.map_err(crate::io_error)? {
        Found::Header(header, _) if header.stream == Stream::User => Some(header.epoch),
        _ => None,
    };
    known.insert(segment, epoch);
    Ok(epoch)
}

/// The log as it would be after [`replay`], for readers that change nothing.
pub struct Overlay {
    medium: Arc<dyn Medium>,
    lacking: Lacking,
}

impl Overlay {
    /// Over this log.
    pub fn new(
        medium: Arc<dyn Medium>,
        log: Log<'_>,
        directory: &dyn Directory,
    ) -> Result<Overlay, StorageError> {
        Ok(Overlay { lacking: lacking(log, directory)?, medium })
    }

    fn show(&self, offset: u64, into: &mut [u8]) {
        let end = offset + into.len() as u64;
        for (at, bytes) in &self.lacking {
            let (from, to) = (offset.max(*at), end.min(at + bytes.len() as u64));
            if from < to {
                let part = &bytes[(from - at) as usize..(to - at) as usize];
                into[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
    }
}

impl Medium for Overlay {
    fn kind(&self) -> MediumKind {
        self.medium.kind()
    }

    fn describe(&self) -> String {
        self.medium.describe()
    }

    fn len(&self) -> u64 {
        self.medium.len()
    }

    fn grow(&self, _new_len: u64) -> kauri_medium::Result<()> {
        Err(kauri_medium::Error::Unsupported)
    }

    fn store(&self, _offset: u64, _parts: &[IoSlice<'_>]) -> kauri_medium::Result<()> {
        Err(kauri_medium::Error::Unsupported)
    }

    fn persist(&self, _offset: u64, _len: u64, _site: Site) -> kauri_medium::Result<()> {
        Err(kauri_medium::Error::Unsupported)
    }

    fn drain(&self, _site: Site) -> kauri_medium::Result<()> {
        Err(kauri_medium::Error::Unsupported)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> kauri_medium::Result<()> {
        self.medium.read(offset, into)?;
        self.show(offset, into);
        Ok(())
    }

    fn read_once(&self, offset: u64, into: &mut [u8]) -> kauri_medium::Result<()> {
        self.medium.read_once(offset, into)?;
        self.show(offset, into);
        Ok(())
    }
}
