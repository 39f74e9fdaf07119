//! Reads segments from the medium, past the cache: for recovery, `kauri check`, and the cleaner (which uses cached
//! data where it can).

use crate::format::record::{HeaderBytes, Kind, RecordHeader, Seed};
use crate::format::segment::{HEADER_COPY_AT, SegmentHeader, Trailer};
use crate::format::summary::{Entry, SummaryReader};
use crate::format::{RECORD_ALIGN, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, TRAILER_BYTES};
use crate::segments::Segments;
use kauri_medium::{Buffer, DIRECT_ALIGN, Faults, Guard, Medium, Result, SegmentCache};

/// Bytes that are read at once.
const CHUNK_BYTES: u32 = 1 << 20;

/// The contents of a segment, without documents.
pub enum Contents {
    /// From its summary.
    Summary {
        /// The summary.
        bytes: Vec<u8>,
        /// Entries in it.
        entries: u32,
        /// Bytes of a segment.
        segment_bytes: u32,
        /// Whether there are records of pending units, or resolutions, among them.
        has_pending: bool,
    },
    /// From its records.
    Records(Vec<Entry>),
}

impl Contents {
    /// Records.
    pub fn len(&self) -> u64 {
        match self {
            Contents::Summary { entries, .. } => u64::from(*entries),
            Contents::Records(entries) => entries.len() as u64,
        }
    }

    /// Whether there are records of pending units, or resolutions, among them.
    pub fn has_pending(&self) -> bool {
        match self {
            Contents::Summary { has_pending, .. } => *has_pending,
            Contents::Records(entries) => entries.iter().any(|entry| entry.kind.is_of_pending()),
        }
    }

    /// Calls `visit` for each record in order.
    pub fn for_each(&self, mut visit: impl FnMut(Entry)) {
        match self {
            Contents::Summary { bytes, entries, segment_bytes, .. } => {
                SummaryReader::new(bytes, *entries, *segment_bytes).for_each(visit);
            }
            Contents::Records(entries) => entries.iter().for_each(|entry| visit(*entry)),
        }
    }
}

/// A copy of a header that is not as the one to go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherCopy {
    /// Its offset in the segment: 0, or [`HEADER_COPY_AT`] for the second copy.
    pub offset: u32,
    /// The damage.
    pub what: &'static str,
}

/// The contents of the place of a segment's header.
pub enum Found {
    /// A header of this directory and segment, and damage of its other copy.
    Header(Box<SegmentHeader>, Option<OtherCopy>),
    /// Nothing: zeros.
    Blank,
    /// Something else.
    Garbage(&'static str),
}

/// Reads the header of a segment, its second copy if the first is damaged.
pub fn read_header(
    medium: &dyn Medium,
    faults: &Faults,
    segments: &Segments,
    segment: u32,
    directory: &[u8; 16],
) -> Result<Found> {
    let mut bytes = vec![0; SEGMENT_HEADER_BYTES as usize];
    medium.read(segments.file_offset(segment), &mut bytes)?;
    let check = faults.enabled("segment.header.crc");
    let segment_bytes = segments.segment_bytes();
    let read = |bytes: &[u8]| {
        let Some(header) = SegmentHeader::decode(bytes, check) else {
            return Err("the header is damaged");
        };
        if header.directory != *directory {
            return Err("the header is of another data directory");
        }
        if header.segment != segment || header.segment_bytes != segment_bytes {
            return Err("the header belongs elsewhere");
        }
        Ok(Box::new(header))
    };
    Ok(match (read(&bytes), read(&bytes[HEADER_COPY_AT..])) {
        (Ok(header), Ok(copy)) if header == copy => Found::Header(header, None),
        (Ok(header), copy) => {
            let what = copy.err().unwrap_or("the header is not the newest");
            Found::Header(header, Some(OtherCopy { offset: HEADER_COPY_AT as u32, what }))
        }
        (Err(what), Ok(header)) => Found::Header(header, Some(OtherCopy { offset: 0, what })),
        (Err(what), Err(_)) if bytes.iter().any(|byte| *byte != 0) => Found::Garbage(what),
        (Err(_), Err(_)) => Found::Blank,
    })
}

/// Reads the trailer of a segment, if it has one of this epoch.
pub fn read_trailer(
    medium: &dyn Medium,
    faults: &Faults,
    segments: &Segments,
    segment: u32,
    epoch: Option<u64>,
) -> Result<Option<Trailer>> {
    let mut bytes = [0; TRAILER_BYTES as usize];
    let at = segments.file_offset(segment + 1) - u64::from(TRAILER_BYTES);
    medium.read(at, &mut bytes)?;
    let check = faults.enabled("segment.trailer.crc");
    let trailer = Trailer::decode(&bytes, segments.segment_bytes(), check);
    Ok(trailer.filter(|t| t.segment == segment && epoch.is_none_or(|epoch| t.epoch == epoch)))
}

/// Reads a summary; `None` if it is damaged.
pub fn read_summary(
    medium: &dyn Medium,
    faults: &Faults,
    segments: &Segments,
    trailer: &Trailer,
) -> Result<Option<Contents>> {
    let mut bytes = vec![0; trailer.summary_bytes as usize];
    let at = segments.file_offset(trailer.segment) + u64::from(trailer.summary_offset);
    medium.read(at, &mut bytes)?;
    if faults.enabled("segment.summary.crc") && crc32c::crc32c(&bytes) != trailer.summary_crc {
        return Ok(None);
    }
    let segment_bytes = segments.segment_bytes();
    let mut reader = SummaryReader::new(&bytes, trailer.entries, segment_bytes);
    if reader.by_ref().count() != trailer.entries as usize || !reader.is_whole() {
        return Ok(None);
    }
    let Trailer { entries, has_pending, .. } = *trailer;
    Ok(Some(Contents::Summary { bytes, entries, segment_bytes, has_pending }))
}

/// The contents of a full segment of this epoch, whose records end at `end` (`u32::MAX`: as it says itself): from
/// its summary if that is whole, else from its records. Also their end. `Err` with the offset of an unreadable
/// record.
pub fn read_contents(
    medium: &dyn Medium,
    faults: &Faults,
    segments: &Segments,
    segment: u32,
    epoch: u64,
    end: u32,
) -> Result<(Contents, u32), ContentsError> {
    let trailer = read_trailer(medium, faults, segments, segment, Some(epoch))?;
    let trailer = trailer.filter(|trailer| end == u32::MAX || trailer.records_end == end);
    if let Some(trailer) = trailer
        && let Some(contents) = read_summary(medium, faults, segments, &trailer)?
    {
        return Ok((contents, trailer.records_end));
    }
    let mut reader = RecordReader::new(medium, faults, segments, segment, epoch, end);
    let mut entries = Vec::new();
    loop {
        match reader.next()? {
            Next::Record(record) => entries.push(record.entry()),
            Next::Finished => break,
            Next::Bad(offset) => return Err(ContentsError::Bad(offset)),
        }
    }
    Ok((Contents::Records(entries), reader.offset()))
}

/// Why a segment's contents are not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentsError {
    /// There is no record where one should be.
    Bad(u32),
    /// The medium failed.
    Medium(kauri_medium::Error),
}

impl From<kauri_medium::Error> for ContentsError {
    fn from(error: kauri_medium::Error) -> Self {
        ContentsError::Medium(error)
    }
}

/// Walks the records of one segment.
pub struct RecordReader<'m> {
    medium: &'m dyn Medium,
    check_header: bool,
    check_payload: bool,
    file_offset: u64,
    seed: Seed,
    /// Records may reach up to here.
    limit: u32,
    /// The known end of the records.
    end: u32,
    /// The limit of prefetching, and its size.
    ahead: u32,
    chunk: u32,
    /// Whether bytes are read only once, so that the kernel need not cache them.
    once: bool,
    /// Cached segments, which need no read.
    memory: Option<InMemory<'m>>,
    buffer: Buffer,
    buffer_start: u32,
    next: u32,
    finished: bool,
}

/// A segment in a cache.
struct InMemory<'m> {
    cache: &'m SegmentCache,
    segment: u32,
    guard: Guard,
}

impl InMemory<'_> {
    /// Copies up to `most` bytes that are there, if these are `least` at least.
    fn copy(&mut self, offset: u32, least: u32, most: u32, into: &mut Buffer) -> Result<bool> {
        self.guard.enter();
        let found = self.cache.peek(&self.guard, self.segment, offset, most as usize);
        let enough = found.map(|bytes| {
            let enough = bytes.len() >= least as usize;
            if enough {
                into.room(bytes.len()).copy_from_slice(bytes);
            }
            enough
        });
        self.guard.leave();
        enough
    }
}

/// A record as it is on the medium, or in memory.
pub struct RawRecord<'b> {
    /// Where.
    pub offset: u32,
    /// Its header.
    pub header: RecordHeader,
    /// The header's CRC.
    pub header_crc: u32,
    /// The payload.
    pub payload: &'b [u8],
    /// Whether the payload has the CRC that the header says.
    pub payload_whole: bool,
}

impl RawRecord<'_> {
    /// As a summary has it; without an `_id` if that can't be trusted.
    pub fn entry(&self) -> Entry {
        let payload = if self.payload_whole { self.payload } else { &[] };
        Entry::of(&self.header, payload, self.offset)
    }
}

/// The next item of a segment.
pub enum Next<'b> {
    /// A record.
    Record(RawRecord<'b>),
    /// Nothing: the end record was the last, or the known end is reached.
    Finished,
    /// At this offset there is no record.
    Bad(u32),
}

impl<'m> RecordReader<'m> {
    /// Reads a segment as it was filled in this epoch. `end` is the end of its records; `u32::MAX` if it is
    /// unknown.
    pub fn new(
        medium: &'m dyn Medium,
        faults: &Faults,
        segments: &Segments,
        segment: u32,
        epoch: u64,
        end: u32,
    ) -> Self {
        RecordReader {
            medium,
            check_header: faults.enabled("record.header.crc"),
            check_payload: faults.enabled("record.payload.crc"),
            file_offset: segments.file_offset(segment),
            seed: Seed::new(segment, epoch),
            limit: segments.segment_bytes() - TRAILER_BYTES,
            end,
            ahead: u32::MAX,
            chunk: CHUNK_BYTES,
            once: false,
            memory: None,
            buffer: Buffer::default(),
            buffer_start: 0,
            next: SEGMENT_HEADER_BYTES,
            finished: false,
        }
    }

    /// The expected offset of the next record.
    pub fn offset(&self) -> u32 {
        self.next
    }

    /// Goes on at this offset.
    pub fn seek(&mut self, offset: u32) {
        self.next = offset;
        self.finished = false;
    }

    /// Reads the whole segment from its beginning to its end, once, in chunks of this buffer's size.
    pub fn once(mut self, chunk: u32, mut buffer: Buffer) -> Self {
        buffer.clear();
        (self.once, self.chunk, self.buffer, self.buffer_start) = (true, chunk, buffer, 0);
        self
    }

    /// Takes cached parts of the segment from there. It has been stored.
    pub fn with_memory(mut self, cache: &'m SegmentCache, segment: u32) -> Self {
        self.memory = Some(InMemory { cache, segment, guard: cache.domain().register() });
        self
    }

    /// The buffer, for another reader.
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Continues at this offset, and reads everything before `end` at once.
    pub fn seek_range(&mut self, offset: u32, end: u32) {
        self.seek(offset);
        self.ahead = end;
    }

    /// The first offset from `offset` on, in steps of records' alignment, where there is something
    /// else than zeros; the segment's end if there is nothing.
    pub fn skip_zeros(&mut self, mut offset: u32) -> Result<u32> {
        while offset + RECORD_ALIGN <= self.limit {
            self.bytes(offset, RECORD_ALIGN)?;
            let start = (offset - self.buffer_start) as usize;
            let words = self.buffer.bytes()[start..].chunks_exact(RECORD_ALIGN as usize);
            let count = words.clone().count();
            let zeros = words.take_while(|word| word.iter().all(|b| *b == 0)).count();
            offset += zeros as u32 * RECORD_ALIGN;
            if zeros < count {
                break;
            }
        }
        Ok(offset)
    }

    /// The next record.
    pub fn next(&mut self) -> Result<Next<'_>> {
        let offset = self.next;
        if self.finished || offset >= self.end {
            return Ok(Next::Finished);
        }
        let Some((header, header_crc)) = self.header(offset)? else {
            return Ok(Next::Bad(offset));
        };
        let end = u64::from(offset) + u64::from(header.record_bytes());
        if end > u64::from(self.limit.min(self.end)) {
            return Ok(Next::Bad(offset));
        }
        self.next = end as u32;
        self.finished = header.kind == Kind::End;
        let check = self.check_payload;
        let payload = self.bytes(offset + RECORD_HEADER_BYTES, header.payload_len)?;
        let payload_whole = !check || crc32c::crc32c(payload) == header.payload_crc;
        Ok(Next::Record(RawRecord { offset, header, header_crc, payload, payload_whole }))
    }

    fn header(&mut self, offset: u32) -> Result<Option<(RecordHeader, u32)>> {
        if offset.saturating_add(RECORD_HEADER_BYTES) > self.limit {
            return Ok(None);
        }
        let (check, seed) = (self.check_header, self.seed);
        let bytes = self.bytes(offset, RECORD_HEADER_BYTES)?;
        let Some(bytes) = bytes.first_chunk::<{ size_of::<HeaderBytes>() }>() else {
            return Ok(None);
        };
        if check {
            return Ok(RecordHeader::decode(bytes, seed, offset));
        }
        let crc = crate::format::get_u32(bytes, 0);
        Ok(RecordHeader::decode_checked(bytes).map(|header| (header, crc)))
    }

    /// `len` bytes at `offset`, within the limit.
    fn bytes(&mut self, offset: u32, len: u32) -> Result<&[u8]> {
        let buffered = self.buffer_start..self.buffer_start + self.buffer.len() as u32;
        if offset < buffered.start || offset + len > buffered.end {
            self.fill(offset, len)?;
        }
        let start = (offset - self.buffer_start) as usize;
        Ok(&self.buffer.bytes()[start..start + len as usize])
    }

    /// Reads `len` bytes at `offset`, and the bytes to prefetch.
    fn fill(&mut self, offset: u32, len: u32) -> Result<()> {
        const ALIGN: u32 = DIRECT_ALIGN as u32;
        if let Some(memory) = &mut self.memory {
            let ahead = self.end.saturating_sub(offset).min(self.chunk);
            let wanted = len.max(ahead).min(self.limit - offset);
            if memory.copy(offset, len, wanted, &mut self.buffer)? {
                self.buffer_start = offset;
                return Ok(());
            }
        }
        let start = if self.once { offset - offset % ALIGN } else { offset };
        let at = self.file_offset + u64::from(start);
        let read = if self.once {
            // What is behind the records' known end is not wanted.
            let ahead = start.saturating_add(self.chunk).min(self.end.min(self.limit));
            let end = ahead.max(offset + len).next_multiple_of(ALIGN);
            self.medium.read_once(at, self.buffer.room((end - start) as usize))
        } else {
            let ahead = self.ahead.saturating_sub(start).min(self.chunk);
            let wanted = len.max(ahead).min(self.limit - start);
            self.medium.read(at, self.buffer.room(wanted as usize))
        };
        self.buffer_start = start;
        if read.is_err() {
            self.buffer.clear();
        }
        read
    }
}
