//! Makes an unreadable log readable, for repairs. Overwritten bytes are first copied to files.
//!
//! - *A lost segment header.* The epoch follows from the CRCs of the records: every epoch is tried that no other
//!   segment has and that is not before the epoch in the mark file. With the epoch the header is created again, and
//!   nothing is lost. If no record is readable, the segment is discarded: it gets the header of an empty segment.
//! - *An unreadable record whose length no summary has.* The next readable record is searched, and an empty mark is
//!   written over the gap. If there is none, the segment's records end at the gap.
//!
//! The lost records may include the newest version of a document, or a deletion. Then an older version becomes
//! current again; the repair reports that. Index images still have the newest version, and so may a summary in the
//! tail. Therefore both are made unusable before anything is discarded. After each step the log is either unchanged
//! or repaired, so an interrupted repair can be started again.

use crate::format::meta::Meta;
use crate::format::record::{FLAG_MOVED, FLAG_OLD, Kind, RecordHeader, Seed};
use crate::format::segment::{HORIZON_BYTES, Horizon, SegmentHeader};
use crate::format::{
    LOG_FILE, META_FILE, RECORD_ALIGN, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Stream,
    TRAILER_BYTES,
};
use crate::marks::FoundMarks;
use crate::on_medium::Log;
use crate::options::Options;
use crate::reader::{Found, Next, RecordReader, read_header};
use crate::recovery::{Place, Scan};
use crate::repair::overwrite;
use crate::segments::Segments;
use crate::verify::Damage;
use kauri_base::sync::Arc;
use kauri_base::{Error, ErrorCode, Result};
use kauri_medium::{Directory, Medium};
use std::collections::HashSet;
use std::io::IoSlice;

/// Places that are mended at most.
const PLACES_MAX: usize = 10_000;
/// Epochs that are tried at most, the newest ones.
const EPOCHS_MAX: u64 = 1 << 24;
/// Bytes of a lost record that are reported.
const START_BYTES: usize = 256;

/// A repaired place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mended {
    /// The damage, and the repair.
    pub damage: Damage,
    /// The file with the former contents.
    pub file: String,
    /// Whether records may have been lost.
    pub lossy: bool,
}

/// Repairs an unreadable log if possible; otherwise returns an error. Returns the repaired places, none if nothing
/// was necessary.
pub fn salvage(directory: &dyn Directory, options: &Options) -> Result<Vec<Mended>> {
    let lock = directory.lock()?;
    let mended = Salvage::open(directory)?.run(options);
    // The next server is to find what the last one left.
    if !lock.was_unclean() {
        lock.release_clean()?;
    }
    mended
}

struct Salvage<'d> {
    directory: &'d dyn Directory,
    meta: Meta,
    medium: Arc<dyn Medium>,
    mended: Vec<Mended>,
}

impl<'d> Salvage<'d> {
    fn open(directory: &'d dyn Directory) -> Result<Self> {
        let missing = || {
            let message = format!("{} has no {META_FILE}", directory.describe());
            Error::new(ErrorCode::NonExistentPath, message)
        };
        let bytes = directory.read_file(META_FILE)?.ok_or_else(missing)?;
        let meta = Meta::decode(&bytes, true).map_err(|error| {
            Error::location(28_662, format!("{}: {error}", directory.describe()))
        })?;
        let medium = directory.open_log(LOG_FILE)?;
        Ok(Salvage { directory, meta, medium, mended: Vec::new() })
    }

    fn segments(&self) -> Segments {
        let bytes = self.meta.segment_bytes;
        let options = Options { segment_bytes: bytes, ..Options::default() };
        Segments::new(self.medium.clone(), bytes, options.segments_max())
    }

    fn run(mut self, options: &Options) -> Result<Vec<Mended>> {
        loop {
            let segments = self.segments();
            let (medium, faults) = (&*self.medium, self.directory.faults());
            let marks = FoundMarks::read(self.directory, &self.meta.directory);
            let log = Log { medium, faults, segments: &segments, meta: &self.meta, marks: &marks };
            crate::staging::replay(log, self.directory)?;
            let threads = options.open_threads.max(1);
            let Err(stop) = Scan::new(log, threads, &*options.clock).run() else {
                return Ok(self.mended);
            };
            let room = self.mended.len() < PLACES_MAX;
            match stop.place {
                Some(Place::Header(segment)) if room => {
                    self.mend_header(&segments, segment, &marks)?
                }
                Some(Place::Record { segment, epoch, offset, end }) if room => {
                    self.mend_record(&segments, (segment, epoch), offset, end)?;
                }
                _ => return Err(stop.error.into()),
            }
        }
    }

    fn mend_header(&mut self, segments: &Segments, segment: u32, marks: &FoundMarks) -> Result<()> {
        let mut known = HashSet::new();
        // A header of an epoch before the one that is marked would be refused again.
        let mut next = self.meta.epoch_next.max(marks.epoch_last() + 1);
        let count = self.medium.len() / u64::from(segments.segment_bytes());
        for other in 0..count as u32 {
            let faults = self.directory.faults();
            let found = read_header(&*self.medium, faults, segments, other, &self.meta.directory)?;
            if let Found::Header(header, _) = found {
                known.insert(header.epoch);
                next = next.max(header.epoch + 1);
            }
        }
        let file_offset = segments.file_offset(segment);
        // Those of the last segments may not be among the ones that were noted.
        let last = next + count;
        let first = last.saturating_sub(EPOCHS_MAX).max(marks.epoch(segment)).max(1);
        let epochs = (first..last).rev();
        let (medium, faults) = (&*self.medium, self.directory.faults());
        let log = Log { medium, faults, segments, meta: &self.meta, marks };
        let unknown = epochs.filter(|epoch| !known.contains(epoch));
        let found = log.epoch_of_records(segment, unknown)?;
        // As an empty segment of images it is free.
        let empty = (last, Stream::Image);
        let ((epoch, stream), lossy, what) = match found {
            Some((_, record)) if matches!(record.kind, Kind::Image | Kind::ImageEnd) => {
                let what =
                    "the segment header was lost; the index images in the segment are discarded";
                (empty, false, what)
            }
            Some((epoch, record)) => {
                let stream = match record.flags & (FLAG_MOVED | FLAG_OLD) {
                    0 => Stream::User,
                    FLAG_MOVED => Stream::Cleaner,
                    _ => Stream::CleanerOld,
                };
                ((epoch, stream), false, "the segment header was lost; it was created again")
            }
            None => {
                let what = "the segment header was lost and no record could be read; the records of the \
                            segment are lost, and older versions of documents may be current again";
                (empty, true, what)
            }
        };
        let header = SegmentHeader {
            segment,
            epoch,
            directory: self.meta.directory,
            segment_bytes: segments.segment_bytes(),
            stream,
            horizon: Horizon::default(),
        };
        let aside = if lossy { segments.segment_bytes() } else { SEGMENT_HEADER_BYTES };
        let mut old = vec![0; aside as usize];
        self.medium.read(file_offset, &mut old)?;
        let damage = Damage::at(segment, 0, what);
        self.put(damage, &old, lossy, (file_offset, &header.encode()))
    }

    fn mend_record(
        &mut self,
        segments: &Segments,
        (segment, epoch): (u32, u64),
        offset: u32,
        end: u32,
    ) -> Result<()> {
        let faults = self.directory.faults();
        let mut reader = RecordReader::new(&*self.medium, faults, segments, segment, epoch, end);
        let limit = end.min(segments.segment_bytes() - TRAILER_BYTES);
        if offset + RECORD_HEADER_BYTES > limit {
            let message = format!("segment {segment} has no room for an end at offset {offset}");
            return Err(Error::new(ErrorCode::DataCorruptionDetected, message));
        }
        let mut next = offset + RECORD_HEADER_BYTES;
        let mut found = None;
        while found.is_none() && next + RECORD_HEADER_BYTES <= limit {
            next = reader.skip_zeros(next)?;
            reader.seek(next);
            if let Next::Record(record) = reader.next()?
                && record.payload_whole
            {
                found = Some(record.offset);
            }
            next += RECORD_ALIGN;
        }
        // Up to where nothing can be read.
        let up_to = found.or((end != u32::MAX).then_some(end));
        let lost_end = up_to.unwrap_or(limit);
        let at = segments.file_offset(segment) + u64::from(offset);
        let mut lost = vec![0; (lost_end - offset) as usize];
        self.medium.read(at, &mut lost)?;
        let seed = Seed::new(segment, epoch);
        let new = match up_to {
            Some(_) => marks_over(&lost, seed, offset),
            None => header(Kind::End, &[]).encode(seed, offset).0.to_vec(),
        };
        let payload = lost.get(RECORD_HEADER_BYTES as usize..).unwrap_or_default();
        let what = format!(
            "{} bytes could not be read, and their contents are unknown; older versions of documents may \
             be current again",
            lost.len()
        );
        let damage = Damage {
            payload_len: payload.len() as u32,
            payload_start: payload.iter().take(START_BYTES).copied().collect(),
            ..Damage::at(segment, offset, what)
        };
        self.put(damage, &lost, true, (at, &new))
    }

    /// Makes unusable what describes records that are about to be discarded: index images, and the summary of this
    /// segment. Without a trailer neither is found.
    fn forget_trailers(&self, of: u32) -> Result<()> {
        let segments = self.segments();
        let count = self.medium.len() / u64::from(segments.segment_bytes());
        let mut changed = false;
        for segment in 0..count as u32 {
            let faults = self.directory.faults();
            let found =
                read_header(&*self.medium, faults, &segments, segment, &self.meta.directory)?;
            let Found::Header(header, _) = found else { continue };
            if header.stream != Stream::Image && segment != of {
                continue;
            }
            let at = segments.file_offset(segment + 1) - u64::from(TRAILER_BYTES);
            let nothing = [0; TRAILER_BYTES as usize];
            self.medium.store(at, &[IoSlice::new(&nothing)])?;
            self.medium.persist(at, u64::from(TRAILER_BYTES), "repair.trailers.persist")?;
            changed = true;
        }
        if changed {
            self.medium.drain("repair.trailers.drain")?;
        }
        Ok(())
    }

    fn put(&mut self, damage: Damage, old: &[u8], lossy: bool, new: (u64, &[u8])) -> Result<()> {
        if lossy {
            self.forget_trailers(damage.segment)?;
        }
        let file = overwrite(self.directory, &*self.medium, (&damage, old), new)?;
        self.mended.push(Mended { damage, file, lossy });
        Ok(())
    }
}

fn header(kind: Kind, payload: &[u8]) -> RecordHeader {
    RecordHeader {
        kind,
        flags: 0,
        payload_len: payload.len() as u32,
        payload_crc: crc32c::crc32c(payload),
        collection: 0,
        record: 0,
        seq: 0,
    }
}

/// The bytes to write over the beginning of these bytes so that they become empty marks. They never have the length
/// of a real mark.
fn marks_over(lost: &[u8], seed: Seed, offset: u32) -> Vec<u8> {
    let head = RECORD_HEADER_BYTES as usize;
    let payload = lost.get(head..).unwrap_or_default();
    if payload.len() != HORIZON_BYTES {
        return header(Kind::Mark, payload).encode(seed, offset).0.to_vec();
    }
    let mut bytes = header(Kind::Mark, &[]).encode(seed, offset).0.to_vec();
    let rest = payload.get(head..).unwrap_or_default();
    let second = header(Kind::Mark, rest).encode(seed, offset + RECORD_HEADER_BYTES);
    bytes.extend_from_slice(&second.0);
    bytes
}
