//! Decides which segments count, what is durable, and where the log ends.
//!
//! Segments before the horizon are read by their summaries (or record by record if a summary is missing); any error
//! there is corruption. The *tail* after the horizon is read record by record with all CRCs. Of the user stream, a
//! gapless prefix of whole units is kept. Of each stream of the cleaner, the records before the first bad one are
//! kept.

use crate::format::meta::Cut;
use crate::format::record::{
    CommitPayload, FLAG_ALONE, HeaderBytes, Kind, RecordHeader, Seed, unit_crc,
};
use crate::format::segment::{Horizon, Position, SegmentHeader};
use crate::format::summary::Entry;
use crate::format::{
    LOG_FILE, MARK_FILE, MARK_FILE_LEFT, META_FILE, RECORD_ALIGN, SEGMENT_HEADER_BYTES,
    STREAMS_MAX, Stream,
};
use crate::on_medium::{Kept, Log, corrupt};
use crate::progress::Progress;
use crate::reader::{
    Contents, ContentsError, Found, Next, RecordReader, read_contents, read_header, read_trailer,
};
use kauri_base::Clock;
use kauri_base::log::{self, Attr};
use kauri_medium::parallel;
use kauri_storage::StorageError;
use std::collections::HashSet;

/// A place at which the log is unreadable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Both copies of a segment's header are lost.
    Header(u32),
    /// No readable record at an offset of a segment of this epoch, whose records end at `end` (`u32::MAX`: as they
    /// say).
    #[allow(missing_docs, reason = "the names say it")]
    Record { segment: u32, epoch: u64, offset: u32, end: u32 },
    /// Not a place within the log: a file is shorter or older than another one. No repair is possible; the error
    /// has the way out.
    Files,
}

/// Why a scan ended early.
pub struct Stop {
    /// What is wrong.
    pub error: StorageError,
    /// Where, if that is one place.
    pub place: Option<Place>,
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Self {
        Stop { error, place: None }
    }
}

impl From<Stop> for StorageError {
    fn from(stop: Stop) -> Self {
        stop.error
    }
}

/// A segment with a good header.
struct Candidate {
    header: SegmentHeader,
    /// The end of its records by a cut; `u32::MAX` if no cut covers it.
    end: u32,
}

/// A record of the tail.
struct TailRecord {
    entry: Entry,
    /// Whether its payload is intact.
    whole: bool,
    alone: bool,
    header_crc: u32,
    commit: Option<CommitPayload>,
}

/// A segment of the tail.
struct TailSegment {
    segment: u32,
    epoch: u64,
    records: Vec<TailRecord>,
    /// The offset at which there was no record.
    bad: Option<u32>,
    /// The highest horizon of its marks.
    horizon: Horizon,
    bytes_read: u32,
}

/// The result of a scan.
pub struct Outcome {
    /// What is durable after the log was drained.
    pub horizon: Horizon,
    /// The epoch of the next segment.
    pub epoch_next: u64,
    /// The segments that count.
    pub kept: Vec<Kept>,
    /// The end of the log.
    pub cut: Cut,
    /// Cuts, by their first epochs, that still hide something.
    pub cuts_used: Vec<u64>,
    /// Records behind the end.
    pub dropped_records: u64,
    /// Bytes read from the medium.
    pub bytes_read: u64,
    /// Segments of index images.
    pub images: Vec<SegmentHeader>,
    /// Headers of which the copy at this offset has to be stored again.
    pub copies: Vec<(SegmentHeader, u32)>,
    /// For each segment with a header its epoch.
    pub epochs: Vec<(u32, u64)>,
}

impl Outcome {
    /// The highest commit sequence that the cleaner has moved, according to its tails.
    pub fn moved_seq(&self) -> u64 {
        let mut seq = 0;
        for kept in self.kept.iter().filter(|kept| kept.stream.is_cleaners()) {
            if let Contents::Records(entries) = &kept.contents {
                seq = entries.iter().map(|entry| entry.seq).max().unwrap_or(0).max(seq);
            }
        }
        seq
    }
}

/// See the module's head.
pub struct Scan<'m> {
    log: Log<'m>,
    threads: usize,
    clock: &'m dyn Clock,
    outcome: Outcome,
}

/// A segment before the horizon: its contents, unless it was never written, and bytes read.
type Durable = (Option<Kept>, u64);

impl<'m> Scan<'m> {
    /// A scan of a log without writers, with this many threads.
    pub fn new(log: Log<'m>, threads: usize, clock: &'m dyn Clock) -> Self {
        let meta = log.meta;
        let mut horizon = meta.horizon;
        // A mark of an earlier start tells nothing that the metadata file doesn't.
        if log.marks.mark.cut == meta.last_cut() {
            horizon.raise(&log.marks.mark.horizon);
        }
        let cut = Cut { epoch_next: 0, seq: 0, streams: [Position::default(); STREAMS_MAX] };
        Scan {
            log,
            threads,
            clock,
            outcome: Outcome {
                horizon,
                epoch_next: meta.epoch_next,
                kept: Vec::new(),
                cut,
                cuts_used: Vec::new(),
                dropped_records: 0,
                bytes_read: 0,
                images: Vec::new(),
                copies: Vec::new(),
                epochs: Vec::new(),
            },
        }
    }

    /// Does it all. Changes nothing on the medium.
    pub fn run(mut self) -> Result<Outcome, Stop> {
        let candidates = self.read_headers()?;
        let (before, behind): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|candidate| self.is_durable(candidate));
        let read = |n: usize| behind.get(n).map(|candidate| self.log.read_tail(candidate));
        let read = parallel::map(self.threads, behind.len(), read);
        let mut tail: [Vec<TailSegment>; STREAMS_MAX] = Default::default();
        for (candidate, read) in behind.iter().zip(read.into_iter().flatten()) {
            let read = read?;
            self.outcome.horizon.raise(&read.horizon);
            self.outcome.bytes_read += u64::from(read.bytes_read);
            if let Some(tail) = tail.get_mut(candidate.header.stream as usize) {
                tail.push(read);
            }
        }
        self.keep_all_durable(&before)?;
        let mut tail_of = |stream: Stream| tail.get_mut(stream as usize).map(std::mem::take);
        let user = tail_of(Stream::User).unwrap_or_default();
        let cleaner = Stream::CLEANER.map(|stream| (stream, tail_of(stream).unwrap_or_default()));
        let user = self.check_tail(Stream::User, user)?;
        for (stream, tail) in cleaner {
            let tail = self.check_tail(stream, tail)?;
            self.keep_cleaner_tail(stream, tail);
        }
        self.keep_user_tail(user)?;
        self.finish();
        Ok(self.outcome)
    }

    fn keep_all_durable(&mut self, before: &[Candidate]) -> Result<(), Stop> {
        let of = before.len() as u64;
        let message = "Reading summaries";
        let progress = Progress::new(self.clock, "STORAGE", message, "segments", of);
        let read = parallel::try_map(self.threads, before.len(), |n| {
            let Some(candidate) = before.get(n) else { return Ok::<_, Stop>((None, 0)) };
            let read = self.log.read_durable(candidate)?;
            let records = read.0.as_ref().map_or(0, |kept| kept.contents.len());
            progress.add(1, records, |attr| attr);
            Ok(read)
        });
        for (candidate, (kept, bytes)) in before.iter().zip(read?) {
            match kept {
                Some(kept) => self.outcome.kept.push(kept),
                None => self.log.segments.found(candidate.header.segment, true, true),
            }
            self.outcome.bytes_read += bytes;
        }
        Ok(())
    }

    /// Reads all headers: raises the horizon, and separates segments that may count from free ones.
    fn read_headers(&mut self) -> Result<Vec<Candidate>, Stop> {
        let Log { medium, faults, segments, meta, marks } = self.log;
        let count = medium.len() / u64::from(segments.segment_bytes());
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let headers = parallel::try_map(self.threads, count as usize, |segment| {
            read_header(medium, faults, segments, segment as u32, &meta.directory)
        });
        let headers = headers.map_err(crate::io_error)?;
        for (segment, found) in headers.iter().enumerate() {
            let Found::Header(header, copy) = found else { continue };
            if let Some(copy) = copy {
                if copy.offset == 0 {
                    let attr = Attr::new().num("segment", segment).str("what", copy.what);
                    let message =
                        "First copy of a segment header is damaged; the second copy is used";
                    log::warning("STORAGE", 6_200_008, "initandlisten", message, attr);
                }
                self.outcome.copies.push((**header, copy.offset));
            }
            self.outcome.epochs.push((segment as u32, header.epoch));
            // What an earlier cut has not taken over does not count any more.
            if header.epoch >= meta.last_cut() {
                self.outcome.horizon.raise(&header.horizon);
            }
            self.outcome.epoch_next = self.outcome.epoch_next.max(header.epoch + 1);
        }
        self.check_extent(count, &headers)?;
        let mut candidates = Vec::new();
        let known = headers.iter().filter_map(|found| match found {
            Found::Header(header, _) => Some(header.epoch),
            _ => None,
        });
        let known: HashSet<u64> = known.collect();
        // Those of the last segments may not have been noted anywhere.
        let next = self.outcome.epoch_next;
        let unknown: Vec<u64> = (next.saturating_sub(u64::from(count)).max(1)
            ..next + u64::from(count))
            .filter(|epoch| !known.contains(epoch))
            .collect();
        for (segment, found) in (0..count).zip(headers) {
            let what = match found {
                Found::Header(header, _) if header.stream == Stream::Image => {
                    segments.found(segment, true, false);
                    self.outcome.images.push(*header);
                    continue;
                }
                Found::Header(header, _) => {
                    let cut = meta.cut_of(header.stream, header.epoch);
                    if let Some((epoch_next, _)) = cut {
                        self.outcome.cuts_used.push(epoch_next);
                    }
                    let end = cut.map_or(u32::MAX, |(_, end)| end);
                    segments.found(segment, true, end == 0);
                    if end > 0 {
                        candidates.push(Candidate { header: *header, end });
                    }
                    continue;
                }
                Found::Blank => "the header is blank",
                Found::Garbage(what) => what,
            };
            // A header is durable before the first record.
            let used = segment < self.outcome.horizon.segments
                || marks.epoch(segment) > 0
                || self.log.epoch_of_records(segment, unknown.iter().copied())?.is_some();
            if used {
                let by_marks_only =
                    marks.epoch(segment) > 0 && segment >= self.outcome.horizon.segments;
                let error = self.log.lost_header(segment, what, by_marks_only)?;
                return Err(Stop { error, place: Some(Place::Header(segment)) });
            }
            segments.found(segment, false, true);
            // It may have had one of these epochs, and hold records of it behind its first one.
            self.outcome.epoch_next = next + u64::from(count);
        }
        candidates.sort_unstable_by_key(|candidate| candidate.header.epoch);
        Ok(candidates)
    }

    /// Whether the files are of one time: none is older than another one, or shorter than it was.
    fn check_extent(&self, count: u32, headers: &[Found]) -> Result<(), Stop> {
        let Log { meta, marks, .. } = self.log;
        let stop = |what, place| Err(Stop { error: corrupt(what), place: Some(place) });
        let had = self.outcome.horizon.segments.max(marks.segments());
        if had > count {
            let bytes = u64::from(had) * u64::from(self.log.segments.segment_bytes());
            let mut missing = format!(
                "the log file {LOG_FILE} has {count} of {had} segments, though all of them were durable: \
                 {} of {bytes} bytes. Restore the directory from a backup. To save what is left, make \
                 the file as long as it was (truncate -s {bytes} {LOG_FILE}), then run kauri check --repair",
                self.log.medium.len()
            );
            if marks.segments().max(marks.mark.horizon.segments) > count {
                missing += &format!(". {MARK_FILE_LEFT}");
            }
            return stop(missing, Place::Files);
        }
        if marks.mark.cut > meta.last_cut() {
            let older = format!(
                "{META_FILE} is of an earlier start than {MARK_FILE}; restore all files of the directory \
                 from the same backup. {MARK_FILE_LEFT}"
            );
            return stop(older, Place::Files);
        }
        let behind = (0..).zip(headers).filter_map(|(segment, found)| match found {
            Found::Header(header, _) if header.epoch < marks.epoch(segment) => {
                Some((segment, header.epoch))
            }
            _ => None,
        });
        match behind.collect::<Vec<(u32, u64)>>()[..] {
            [] => Ok(()),
            // A header that the medium has lost.
            [(segment, epoch)] => {
                let older = format!(
                    "segment {segment} has epoch {epoch}, though it was opened with epoch {} and that was \
                     durable: what is there is of an earlier time. {MARK_FILE_LEFT}",
                    marks.epoch(segment)
                );
                stop(older, Place::Header(segment))
            }
            [(segment, _), ref others @ ..] => {
                let older = format!(
                    "segment {segment} and {} others are of an earlier time than {MARK_FILE}: the files of the \
                     directory are of different times; restore all of them from the same backup. \
                     {MARK_FILE_LEFT}",
                    others.len()
                );
                stop(older, Place::Files)
            }
        }
    }

    /// Whether all of a segment was durable.
    fn is_durable(&self, candidate: &Candidate) -> bool {
        let cut = candidate.end != u32::MAX;
        let before =
            candidate.header.epoch < self.outcome.horizon.stream(candidate.header.stream).epoch;
        let meta = self.log.meta;
        let clean = meta.clean && candidate.header.epoch < meta.epoch_next;
        cut || before || clean
    }

    /// Evaluates damage with the known horizon. Before the horizon, a damaged header is corruption, because the
    /// records after it are lost; a damaged payload is reported, and reads of it fail. After the horizon, either
    /// one ends the segment.
    fn check_tail(
        &mut self,
        stream: Stream,
        mut tail: Vec<TailSegment>,
    ) -> Result<Vec<TailSegment>, Stop> {
        let durable = self.outcome.horizon.stream(stream);
        for segment in &mut tail {
            let (number, epoch) = (segment.segment, segment.epoch);
            let was_durable = |offset| Position { epoch, offset } < durable;
            if let Some(offset) = segment.bad.filter(|offset| was_durable(*offset)) {
                let error = corrupt(format!(
                    "segment {number}: the record at offset {offset} is damaged, though it was \
                     durable (up to offset {} of epoch {})",
                    durable.offset, durable.epoch
                ));
                let place = Place::Record { segment: number, epoch, offset, end: u32::MAX };
                return Err(Stop { error, place: Some(place) });
            }
            let damaged = segment.records.iter().position(|record| {
                let end = !record.whole && !was_durable(record.entry.offset);
                if !record.whole && !end {
                    report_payload(number, &record.entry);
                }
                end
            });
            if let Some(first) = damaged {
                segment.bad = segment.records.get(first).map(|record| record.entry.offset);
                self.outcome.dropped_records += (segment.records.len() - first) as u64;
                segment.records.truncate(first);
            }
        }
        Ok(tail)
    }

    fn keep_cleaner_tail(&mut self, stream: Stream, tail: Vec<TailSegment>) {
        let mut ended = false;
        for segment in tail {
            if ended {
                self.drop_segment(segment.segment, segment.records.len());
                continue;
            }
            ended = segment.bad.is_some();
            let end = end_of(&segment.records);
            self.keep_tail(segment, stream, end);
        }
    }

    /// Keeps whole units, one after the other, until one is missing or not whole.
    fn keep_user_tail(&mut self, tail: Vec<TailSegment>) -> Result<(), StorageError> {
        let check_unit = self.log.faults.enabled("unit.crc");
        let mut units =
            Units { last: 0, end: (0, 0), open: None, durable: self.outcome.horizon.seq };
        let mut ended = false;
        for (index, segment) in tail.iter().enumerate() {
            for record in &segment.records {
                ended = ended || !units.take(index, record, check_unit);
            }
            ended = ended || segment.bad.is_some();
        }
        let last = units.last.max(self.outcome.horizon.seq);
        // What the cleaner has moved was durable in the user stream, and so was all before it.
        let moved = self.outcome.moved_seq();
        if last < moved {
            return Err(corrupt(format!(
                "the log ends with commit {last}, but commits up to {moved} were durable"
            )));
        }
        self.outcome.cut.seq = last;
        let (last_index, last_offset) = units.end;
        for (index, segment) in tail.into_iter().enumerate() {
            if index > last_index || last_offset == 0 {
                self.drop_segment(segment.segment, segment.records.len());
            } else {
                let end = if index == last_index { last_offset } else { end_of(&segment.records) };
                self.keep_tail(segment, Stream::User, end);
            }
        }
        Ok(())
    }

    fn keep_tail(&mut self, segment: TailSegment, stream: Stream, end: u32) {
        let count = segment.records.len();
        let entries: Vec<Entry> = segment
            .records
            .into_iter()
            .map(|record| record.entry)
            .filter(|entry| entry.offset < end)
            .collect();
        self.outcome.dropped_records += (count - entries.len()) as u64;
        if entries.is_empty() {
            self.log.segments.found(segment.segment, true, true);
            return;
        }
        let (segment, epoch) = (segment.segment, segment.epoch);
        self.outcome.kept.push(Kept {
            segment,
            epoch,
            stream,
            end,
            contents: Contents::Records(entries),
        });
    }

    fn drop_segment(&mut self, segment: u32, records: usize) {
        self.outcome.dropped_records += records as u64;
        self.log.segments.found(segment, true, true);
    }

    /// Notes the cut, and that everything before it will be durable.
    fn finish(&mut self) {
        self.outcome.cut.epoch_next = self.outcome.epoch_next;
        for (stream, position) in self.outcome.cut.streams.iter_mut().enumerate() {
            let last = self
                .outcome
                .kept
                .iter()
                .filter(|kept| kept.stream as usize == stream)
                .max_by_key(|kept| kept.epoch);
            *position =
                last.map_or(Position::default(), |k| Position { epoch: k.epoch, offset: k.end });
        }
        self.outcome.horizon.seq = self.outcome.cut.seq;
        self.outcome.horizon.streams = self.outcome.cut.streams;
        self.outcome.horizon.segments =
            self.outcome.horizon.segments.max(self.log.segments.initialised());
        for kept in &self.outcome.kept {
            let segment = self.log.segments.get(kept.segment);
            segment.opened(kept.epoch, kept.stream);
            segment.sealed(kept.end, 0);
        }
    }
}

impl<'m> Log<'m> {
    fn lost_header(
        &self,
        segment: u32,
        what: &str,
        by_marks_only: bool,
    ) -> Result<StorageError, StorageError> {
        let trailer = read_trailer(self.medium, self.faults, self.segments, segment, None)
            .map_err(crate::io_error)?;
        let held = trailer.map_or_else(
            || "what it held is unknown".to_owned(),
            |t| format!("it held {} records of commits {} to {}", t.entries, t.seq_min, t.seq_max),
        );
        let way_out = if by_marks_only { format!(". {MARK_FILE_LEFT}") } else { String::new() };
        Ok(corrupt(format!("segment {segment}: {what}; {held}{way_out}")))
    }

    /// The one of these epochs in which the first record of a segment was written, and that record.
    pub fn epoch_of_records(
        &self,
        segment: u32,
        mut epochs: impl Iterator<Item = u64>,
    ) -> Result<Option<(u64, RecordHeader)>, StorageError> {
        let mut start = HeaderBytes::default();
        let at = self.segments.file_offset(segment) + u64::from(SEGMENT_HEADER_BYTES);
        self.medium.read(at, &mut start).map_err(crate::io_error)?;
        if start == HeaderBytes::default() {
            return Ok(None);
        }
        Ok(epochs.find_map(|epoch| {
            let seed = Seed::new(segment, epoch);
            let (record, _) = RecordHeader::decode(&start, seed, SEGMENT_HEADER_BYTES)?;
            Some((epoch, record))
        }))
    }

    fn read_durable(&self, candidate: &Candidate) -> Result<Durable, Stop> {
        let SegmentHeader { segment, epoch, stream, .. } = candidate.header;
        // What a clean shutdown has noted as the end of the stream tells prepared segments from ones
        // whose beginning and end are damaged.
        let prepared = self.meta.clean && epoch > self.meta.horizon.stream(stream).epoch;
        if candidate.end == u32::MAX && prepared && self.is_unused(segment, epoch)? {
            return Ok((None, 0));
        }
        let (contents, end) =
            read_contents(self.medium, self.faults, self.segments, segment, epoch, candidate.end)
                .map_err(|error| match error {
                ContentsError::Medium(error) => crate::io_error(error).into(),
                ContentsError::Bad(offset) => {
                    let error = corrupt(format!(
                        "segment {segment}: the record at offset {offset} is damaged, and so \
                             is the segment's summary; what follows is not known"
                    ));
                    let end = candidate.end;
                    let place = Place::Record { segment, epoch, offset, end };
                    Stop { error, place: Some(place) }
                }
            })?;
        let bytes = match &contents {
            Contents::Summary { bytes, .. } => bytes.len() as u64 + 4096,
            Contents::Records(_) => u64::from(end),
        };
        Ok((Some(Kept { segment, epoch, stream, end, contents }), bytes))
    }

    /// Whether a segment was prepared and never written to: a clean shutdown seals the others.
    fn is_unused(&self, segment: u32, epoch: u64) -> Result<bool, StorageError> {
        let mut reader = self.reader(segment, epoch, u32::MAX);
        let first = reader.next().map_err(crate::io_error)?;
        let trailer = read_trailer(self.medium, self.faults, self.segments, segment, Some(epoch));
        Ok(matches!(first, Next::Bad(_)) && trailer.map_err(crate::io_error)?.is_none())
    }

    fn reader(&self, segment: u32, epoch: u64, end: u32) -> RecordReader<'m> {
        RecordReader::new(self.medium, self.faults, self.segments, segment, epoch, end)
    }

    /// Reads a segment of the tail up to the first bad record, and looks for marks behind it.
    fn read_tail(&self, candidate: &Candidate) -> Result<TailSegment, StorageError> {
        let SegmentHeader { segment, epoch, .. } = candidate.header;
        let mut reader = self.reader(segment, epoch, u32::MAX);
        let mut tail = TailSegment {
            segment,
            epoch,
            records: Vec::new(),
            bad: None,
            horizon: Horizon::default(),
            bytes_read: 0,
        };
        loop {
            match reader.next().map_err(crate::io_error)? {
                Next::Record(record) => {
                    if record.header.kind == Kind::Mark
                        && record.payload_whole
                        && let Some(horizon) = Horizon::decode(record.payload)
                    {
                        tail.horizon.raise(&horizon);
                    }
                    tail.records.push(TailRecord {
                        entry: record.entry(),
                        whole: record.payload_whole,
                        alone: record.header.flags & FLAG_ALONE != 0,
                        header_crc: record.header_crc,
                        commit: matches!(record.header.kind, Kind::Commit | Kind::PendingCommit)
                            .then(|| CommitPayload::decode(record.payload))
                            .flatten(),
                    });
                }
                Next::Finished => break,
                Next::Bad(offset) => {
                    tail.bad = Some(offset);
                    break;
                }
            }
        }
        tail.bytes_read = reader.offset();
        if let Some(bad) = tail.bad {
            self.find_marks(&mut reader, bad, &mut tail.horizon)?;
        }
        Ok(tail)
    }

    /// Raises the horizon to marks after a bad record. The beginnings of records are unknown there, so every place
    /// is tried; a mark is recognised by both of its CRCs.
    fn find_marks(
        &self,
        reader: &mut RecordReader<'_>,
        bad: u32,
        found: &mut Horizon,
    ) -> Result<(), StorageError> {
        let mut offset = bad + RECORD_ALIGN;
        while offset < self.segments.segment_bytes() {
            offset = reader.skip_zeros(offset).map_err(crate::io_error)?;
            reader.seek(offset);
            offset += RECORD_ALIGN;
            if let Next::Record(record) = reader.next().map_err(crate::io_error)?
                && record.header.kind == Kind::Mark
                && record.payload_whole
                && let Some(horizon) = Horizon::decode(record.payload)
            {
                found.raise(&horizon);
            }
        }
        Ok(())
    }
}

fn report_payload(segment: u32, entry: &Entry) {
    log::error(
        "STORAGE",
        6_200_009,
        "initandlisten",
        "Record payload is damaged",
        Attr::new()
            .num("segment", segment)
            .num("offset", entry.offset)
            .num("collection", entry.collection)
            .num("record", entry.record),
    );
}

fn end_of(records: &[TailRecord]) -> u32 {
    let last = records.last().map(|record| &record.entry);
    last.map_or(0, |entry| entry.offset + crate::format::record::record_bytes(entry.payload_len))
}

/// Puts records of the user stream together to units.
struct Units {
    /// The last whole unit.
    last: u64,
    /// Behind it: which segment of the tail, and the offset there.
    end: (usize, u32),
    /// A unit whose commit record is still missing: its sequence, records and their CRC.
    open: Option<(u64, u32, u32)>,
    /// Units up to this one need no proof that they are whole.
    durable: u64,
}

impl Units {
    /// Answers whether the record goes on where the last one ended.
    fn take(&mut self, segment: usize, record: &TailRecord, check: bool) -> bool {
        let entry = &record.entry;
        let end = entry.offset + crate::format::record::record_bytes(entry.payload_len);
        if matches!(entry.kind, Kind::Mark | Kind::End) {
            if self.open.is_none() {
                self.end = (segment, end);
            }
            return true;
        }
        if entry.seq <= self.durable {
            // Parts of it may have been moved away since, so there is nothing to count.
            self.last = self.last.max(entry.seq);
            self.end = (segment, end);
            return true;
        }
        let expected = self.last.max(self.durable) + 1;
        if entry.seq != expected {
            return false;
        }
        let (_, count, crcs) = *self.open.get_or_insert((entry.seq, 0, 0));
        let whole = match entry.kind {
            Kind::Commit | Kind::PendingCommit => {
                let found = record.commit.map(|commit| (commit.count, commit.crc));
                if check && found != Some((count, crcs)) {
                    return false;
                }
                true
            }
            _ if record.alone => {
                if count > 0 {
                    return false;
                }
                true
            }
            _ => {
                self.open = Some((entry.seq, count + 1, unit_crc(crcs, record.header_crc)));
                false
            }
        };
        if whole {
            self.open = None;
            self.last = entry.seq;
            self.end = (segment, end);
        }
        true
    }
}
