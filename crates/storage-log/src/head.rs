//! Segments being filled, and the one head that user writes go to.
//!
//! Invariants:
//! - Units get their commit sequence and their place in the log under the head's mutex, so both have
//!   the same order.
//! - A segment always keeps room for its end record, its summary and its trailer.

use crate::address::Address;
use crate::format::record::{Kind, RecordHeader, Seed, record_bytes};
use crate::format::segment::{Horizon, Position, Trailer};
use crate::format::summary::{ENTRY_BYTES_MAX, SummaryWriter};
use crate::format::{RECORD_ALIGN, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, TRAILER_BYTES};
use kauri_medium::cache::SealSites;
use kauri_medium::{SegmentStorer, SegmentWriter, Site};
use kauri_storage::StorageError;
use std::collections::VecDeque;

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

/// What is at the end of a segment besides records: the end record, a summary's and its entries'
/// worst growth.
const TAIL_BYTES: u32 = RECORD_HEADER_BYTES + 2 * ENTRY_BYTES_MAX;

/// How far ahead of the end memory is asked for.
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

/// What [`OpenSegment::room`] answers for a segment of this size without records.
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

    /// Lets what was appended here and to `others` by this thread be looked at; where the segments are
    /// the medium's own memory it is durable then, by one fence.
    #[inline]
    pub fn publish<'s>(
        &mut self,
        others: impl Iterator<Item = &'s mut OpenSegment>,
        site: Site,
    ) -> Result<(), StorageError> {
        let others = others.map(|segment| &mut segment.writer);
        self.writer.publish(others, site).map_err(crate::io_error)
    }

    /// How far it is filled.
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch, offset: self.writer.end() }
    }

    /// Whether memory ahead is running out.
    #[inline]
    fn wants_memory(&self) -> bool {
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

/// What has been appended for users.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub puts: u64,
    pub tombstones: u64,
    pub ddl_records: u64,
    pub commit_records: u64,
    pub marks: u64,
    /// Bytes of the documents.
    pub document_bytes: u64,
    /// Bytes of all these records, headers included.
    pub record_bytes: u64,
}

impl Counts {
    #[inline]
    fn add(&mut self, header: &RecordHeader) {
        match header.kind {
            Kind::Put | Kind::PendingPut => {
                self.puts += 1;
                self.document_bytes += u64::from(header.payload_len);
            }
            Kind::Tombstone | Kind::PendingTombstone => self.tombstones += 1,
            Kind::Commit | Kind::PendingCommit | Kind::Resolution => self.commit_records += 1,
            Kind::CreateStore | Kind::DropStore => self.ddl_records += 1,
            Kind::Mark => self.marks += 1,
            Kind::End | Kind::Image | Kind::ImageEnd => {}
        }
        self.record_bytes += u64::from(header.record_bytes());
    }
}

/// A segment that has been appended to.
pub struct Appended {
    /// For its bytes.
    pub storer: SegmentStorer,
    /// Its epoch.
    pub epoch: u64,
}

/// Where user writes go.
#[derive(Default)]

pub struct Head {
    open: Option<OpenSegment>,
    /// Opened and still empty, in the order of their epochs.
    prepared: VecDeque<OpenSegment>,
    /// How many there have been.
    prepared_ever: u64,
    /// Whether the preparer was told that another one will be wanted.
    asked: bool,
    /// Left behind, to be stored and sealed.
    full: Vec<OpenSegment>,
    /// How many of these were left behind since the last publication.
    full_unpublished: usize,
    /// The last commit sequence that was given.
    seq: u64,
    /// Where the head was when there was no segment yet.
    position: Position,
    /// The durable sequence that the last mark told.
    marked: u64,
    bytes_since_mark: u64,
    counts: Counts,
    /// Snapshots that are held, and that ever were.
    holding: u64,
    holds: u64,
}

impl Head {
    /// A head that goes on after this commit and place.
    pub fn new(seq: u64, position: Position) -> Self {
        Head { seq, position, marked: seq, ..Head::default() }
    }

    /// The last commit sequence that was given.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Counts another held snapshot. Answers its number.
    pub fn hold(&mut self) -> u64 {
        self.holding += 1;
        self.holds += 1;
        self.holds
    }

    /// A snapshot is held no more.
    pub fn release(&mut self) {
        self.holding -= 1;
    }

    /// Whether snapshots are held now, and how many ever were.
    #[inline]
    pub fn holds(&self) -> (bool, u64) {
        (self.holding > 0, self.holds)
    }

    /// What has been appended.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How far the stream goes.
    pub fn position(&self) -> Position {
        self.open.as_ref().map_or(self.position, OpenSegment::position)
    }

    /// Adds a prepared segment.
    pub fn add_prepared(&mut self, segment: OpenSegment) {
        self.prepared.push_back(segment);
        self.prepared_ever += 1;
        self.asked = false;
    }

    /// How many segments have been prepared.
    pub fn prepared_ever(&self) -> u64 {
        self.prepared_ever
    }

    /// Whether another segment, or memory for this one, should be prepared by now and the preparer has
    /// not been told.
    #[inline]
    pub fn asks_for_preparation(&mut self) -> bool {
        let memory = self.open.as_ref().is_some_and(OpenSegment::wants_memory);
        let asks = !self.asked && (memory || self.wants_preparation());
        self.asked |= asks;
        asks
    }

    /// What the preparer is to have memory provided for.
    pub fn take_memory_range(&mut self) -> Option<(SegmentStorer, u32, u32)> {
        self.asked = false;
        let open = self.open.as_mut()?;
        let (from, to) = open.take_memory_range()?;
        Some((open.storer().clone(), from, to))
    }

    /// Whether another segment should be prepared by now.
    pub fn wants_preparation(&self) -> bool {
        let low = |open: &OpenSegment| open.room() < open.limit / 2;
        self.prepared.is_empty() && self.open.as_ref().is_some_and(low)
    }

    /// Whether records of these payload lengths fit into the open and the prepared segments.
    pub fn fits(&self, payload_lens: impl Iterator<Item = u32> + Clone) -> bool {
        let (mut bytes, mut records) = (0, 0);
        for payload_len in payload_lens.clone() {
            bytes += u64::from(record_bytes(payload_len));
            records += 1;
        }
        if self.open.as_ref().is_some_and(|open| open.fits(bytes, records)) {
            return true;
        }
        let mut segments = self.open.iter().chain(&self.prepared).map(|s| u64::from(s.room()));
        let mut room = segments.next().unwrap_or(0);
        for payload_len in payload_lens {
            let needed = u64::from(record_bytes(payload_len) + ENTRY_BYTES_MAX);
            while room < needed {
                match segments.next() {
                    Some(next) => room = next,
                    None => return false,
                }
            }
            room -= needed;
        }
        true
    }

    /// The next commit sequence. The caller has seen that the unit fits.
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Appends a record to the open segment, or to the next one if it doesn't fit.
    #[inline]
    pub fn append(
        &mut self,
        header: &RecordHeader,
        payload: &[u8],
    ) -> Result<(Address, u32), StorageError> {
        let bytes = u64::from(header.record_bytes());
        loop {
            match &mut self.open {
                Some(open) if open.fits(bytes, 1) => {
                    self.bytes_since_mark += bytes;
                    self.counts.add(header);
                    return open.append(header, payload);
                }
                _ => self.next_segment(header.seq)?,
            }
        }
    }

    fn next_segment(&mut self, seq: u64) -> Result<(), StorageError> {
        let Some(next) = self.prepared.pop_front() else {
            return Err(StorageError::Io("no segment is prepared".to_owned()));
        };
        if let Some(mut full) = self.open.replace(next) {
            full.append_end(seq)?;
            self.full.push(full);
            self.full_unpublished += 1;
        }
        Ok(())
    }

    /// See [`OpenSegment::publish`], for all that this thread has appended since it took the head.
    #[inline]
    pub fn publish(&mut self, site: Site) -> Result<(), StorageError> {
        let published = self.full.len().saturating_sub(self.full_unpublished);
        self.full_unpublished = 0;
        match &mut self.open {
            Some(open) => open.publish(self.full.iter_mut().skip(published), site),
            None => Ok(()),
        }
    }

    /// Whether it is time for a mark, given what is durable.
    #[inline]
    pub fn wants_mark(&self, durable: u64, interval: u64) -> bool {
        self.bytes_since_mark >= interval && durable > self.marked
    }

    /// Appends a mark if one fits: a record that tells what is durable.
    pub fn mark(&mut self, horizon: &Horizon) -> Result<(), StorageError> {
        let payload = horizon.encode();
        let header = RecordHeader {
            kind: Kind::Mark,
            flags: 0,
            payload_len: payload.len() as u32,
            payload_crc: crc32c::crc32c(&payload),
            collection: 0,
            record: 0,
            seq: self.seq,
        };
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.fits(u64::from(header.record_bytes()), 1) {
            open.append(&header, &payload)?;
            self.counts.add(&header);
            self.marked = horizon.seq;
            self.bytes_since_mark = 0;
        }
        Ok(())
    }

    /// Adds the segments that are appended to from this place on, one after the other. Answers false if that
    /// place is in none of those that nobody has taken to store them.
    pub fn appended_since(&self, place: Position, segments: &mut Vec<Appended>) -> bool {
        let all = self.full.iter().chain(&self.open);
        let since = all.skip_while(|segment| segment.epoch != place.epoch);
        segments.extend(since.map(|s| Appended { storer: s.storer.clone(), epoch: s.epoch }));
        !segments.is_empty()
    }

    /// Segments left behind since this was last called, and the open one's storer.
    pub fn take_full(&mut self, full: &mut Vec<OpenSegment>) -> Option<SegmentStorer> {
        full.append(&mut self.full);
        self.open.as_ref().map(|open| open.storer().clone())
    }

    /// For a clean shutdown: leaves the open segment behind.
    pub fn close(&mut self) -> Result<(), StorageError> {
        self.position = self.position();
        if let Some(mut open) = self.open.take() {
            open.append_end(self.seq)?;
            self.position = open.position();
            self.full.push(open);
        }
        Ok(())
    }
}
