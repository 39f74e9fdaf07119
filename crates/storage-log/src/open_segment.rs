//! A segment being filled, by whichever stream.
//!
//! Invariant: it always keeps room for its end record, its summary and its trailer.

use crate::address::Address;
use crate::format::record::{Kind, RecordHeader, Seed};
use crate::format::segment::{Position, Trailer};
use crate::format::summary::{ENTRY_BYTES_MAX, SummaryWriter};
use crate::format::{RECORD_ALIGN, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, TRAILER_BYTES};
use kauri_medium::cache::SealSites;
use kauri_medium::{SegmentStorer, SegmentWriter, Site};
use kauri_storage::StorageError;

/// A segment being filled.
pub struct OpenSegment {
    writer: SegmentWriter,
    storer: SegmentStorer,
    /// Its number.
    pub segment: u32,
    /// Its epoch.
    pub epoch: u64,
    seed: Seed,
    summary: SummaryWriter,
    /// Where the trailer begins.
    limit: u32,
    /// Up to where memory has been asked for ahead of need.
    populated: u32,
    seq_min: u64,
    seq_max: u64,
    has_pending: bool,
}

/// Bytes at the end of a segment besides records: the end record, a summary's and its entries' worst growth.
const TAIL_BYTES: u32 = RECORD_HEADER_BYTES + 2 * ENTRY_BYTES_MAX;

/// How far ahead of the end memory is allocated.
const POPULATE_BYTES: u32 = 16 << 20;

/// Longest payload that a record in segments of this size may have.
pub fn payload_bytes_max(segment_bytes: u32) -> u32 {
    segment_bytes
        - SEGMENT_HEADER_BYTES
        - TRAILER_BYTES
        - TAIL_BYTES
        - RECORD_HEADER_BYTES
        - RECORD_ALIGN
}

/// The result of [`OpenSegment::room`] for a segment of this size without records.
pub fn room_max(segment_bytes: u32) -> u32 {
    segment_bytes - SEGMENT_HEADER_BYTES - TRAILER_BYTES - TAIL_BYTES
}

impl OpenSegment {
    /// A segment whose header has been appended through `writer`.
    pub fn new(writer: SegmentWriter, epoch: u64, segment_bytes: u32) -> Self {
        let segment = writer.segment();
        OpenSegment {
            storer: writer.storer(),
            writer,
            segment,
            epoch,
            seed: Seed::new(segment, epoch),
            summary: SummaryWriter::new(),
            limit: segment_bytes - TRAILER_BYTES,
            populated: 0,
            seq_min: u64::MAX,
            seq_max: 0,
            has_pending: false,
        }
    }

    /// Makes readable what this thread appended here and to `others`. If the segments are the medium's own memory,
    /// it is durable then, by one fence.
    #[inline]
    pub fn publish<'s>(
        &mut self,
        others: impl Iterator<Item = &'s mut OpenSegment>,
        site: Site,
    ) -> Result<(), StorageError> {
        let others = others.map(|segment| &mut segment.writer);
        self.writer.publish(others, site).map_err(crate::io_error)
    }

    /// Where its trailer begins.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// How far it is filled.
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch, offset: self.writer.end() }
    }

    /// Whether memory ahead is running out.
    #[inline]
    pub fn wants_memory(&self) -> bool {
        self.populated < self.limit && self.writer.end() + POPULATE_BYTES / 2 > self.populated
    }

    /// The range for which memory is to be provided next, if it is time.
    pub fn take_memory_range(&mut self) -> Option<(u32, u32)> {
        if !self.wants_memory() {
            return None;
        }
        let from = self.populated.max(self.writer.end());
        self.populated = (self.writer.end() + POPULATE_BYTES).min(self.limit);
        Some((from, self.populated))
    }

    /// Bytes that records and their summary entries may still take.
    #[inline]
    pub fn room(&self) -> u32 {
        let used = self.writer.end() + self.summary.bytes().len() as u32 + TAIL_BYTES;
        self.limit.saturating_sub(used)
    }

    /// Whether this many records of these sizes in all fit.
    #[inline]
    pub fn fits(&self, bytes: u64, records: u64) -> bool {
        bytes + records * u64::from(ENTRY_BYTES_MAX) <= u64::from(self.room())
    }

    /// Whether no record has been appended.
    pub fn is_unused(&self) -> bool {
        self.summary.entries() == 0
    }

    /// The highest commit sequence in it.
    pub fn seq_max(&self) -> u64 {
        self.seq_max
    }

    /// Appends a record; the caller has seen that it fits. Answers its place and its header's CRC.
    #[inline]
    pub fn append(
        &mut self,
        header: &RecordHeader,
        payload: &[u8],
    ) -> Result<(Address, u32), StorageError> {
        let offset = self.writer.end();
        let (bytes, crc) = header.encode(self.seed, offset);
        let padding = payload.len().next_multiple_of(RECORD_ALIGN as usize) - payload.len();
        let padding = &[0; RECORD_ALIGN as usize][..padding];
        self.writer.append(&[&bytes, payload, padding]).map_err(crate::io_error)?;
        self.summary.add(header, payload);
        self.seq_min = self.seq_min.min(header.seq);
        self.seq_max = self.seq_max.max(header.seq);
        self.has_pending |= header.kind.is_of_pending();
        Ok((Address { segment: self.segment, offset }, crc))
    }

    /// Says that nothing follows.
    pub fn append_end(&mut self, seq: u64) -> Result<(), StorageError> {
        let header = RecordHeader {
            kind: Kind::End,
            flags: 0,
            payload_len: 0,
            payload_crc: 0,
            collection: 0,
            record: 0,
            seq,
        };
        self.append(&header, &[]).map(|_| ())
    }

    /// For storing what is appended.
    pub fn storer(&self) -> &SegmentStorer {
        &self.storer
    }

    /// Appends and stores the summary, and the trailer at the segment's end.
    pub fn seal(mut self) -> Result<Trailer, StorageError> {
        let records_end = self.writer.end();
        self.writer.set_site("segment.summary.lines");
        let summary_offset =
            self.writer.append(&[self.summary.bytes()]).map_err(crate::io_error)?;
        let trailer = Trailer {
            segment: self.segment,
            epoch: self.epoch,
            records_end,
            summary_offset,
            summary_bytes: self.summary.bytes().len() as u32,
            summary_crc: crc32c::crc32c(self.summary.bytes()),
            entries: self.summary.entries(),
            has_pending: self.has_pending,
            seq_min: self.seq_min.min(self.seq_max),
            seq_max: self.seq_max,
        };
        let sites = SealSites {
            pending: "segment.summary.persist",
            last: "segment.trailer.persist",
            last_lines: "segment.trailer.lines",
            fence: "segment.summary.fence",
        };
        self.writer.seal_with(&trailer.encode(), sites).map_err(crate::io_error)?;
        Ok(trailer)
    }
}
