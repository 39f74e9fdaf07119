//! Reads a whole directory and checks every CRC, for `kauri check`. Changes nothing.

use crate::address::{Address, Slot};
use crate::format::meta::Meta;
use crate::format::record::{HeaderBytes, Kind, RecordHeader, Seed};
use crate::format::segment::{SegmentHeader, Trailer};
use crate::format::summary::{Entry, SummaryReader};
use crate::format::{
    LOG_FILE, META_FILE, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, TRAILER_BYTES,
};
use crate::marks::FoundMarks;
use crate::on_medium::{Kept, Log};
use crate::options::Options;
use crate::reader::{
    Contents, Found, Next, OtherCopy, RecordReader, read_header, read_summary, read_trailer,
};
use crate::recovery::{Builder, FoundPending, Outcome, Place, Scan, Stop, settle};
use crate::registry::Registry;
use crate::segments::Segments;
use crate::staging::Overlay;
use kauri_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex};
use kauri_base::{CollectionId, Error, ErrorCode, RecordId, Result};
use kauri_bson::Doc;
use kauri_medium::{Buffer, Directory, EpochDomain, parallel};
use std::collections::HashMap;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments in the file.
    pub segments: u32,
    /// Segments with records.
    pub segments_used: u32,
    /// Records whose CRCs are right.
    pub records: u64,
    /// Documents, including outdated versions.
    pub documents: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Records behind the end of the log, of units that were never acknowledged as durable.
    pub dropped_records: u64,
    /// The damage.
    pub damage: Vec<Damage>,
    /// Damage of index images, which is harmless: they are ignored.
    pub images: Vec<Damage>,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Segments that have been opened ever since the directory was made.
    pub segments_opened: u64,
    /// Segments with records that count or did: their live bytes. Empty if the log can't be followed.
    pub extents: Vec<Extent>,
    /// Collections that exist.
    pub collections: Vec<CollectionSize>,
    /// The documents of the catalog.
    pub catalog: Vec<Vec<u8>>,
}

/// A segment in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its number.
    pub segment: u32,
    /// Bytes of its records that count.
    pub live: u64,
    /// Whether the cleaner wrote it.
    pub moved: bool,
}

/// The size of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionSize {
    /// The collection.
    pub id: CollectionId,
    /// Documents.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their records' bytes.
    pub storage_bytes: u64,
}

impl Report {
    fn add(&mut self, other: Report) {
        self.segments_used += other.segments_used;
        self.records += other.records;
        self.documents += other.documents;
        self.bytes += other.bytes;
        self.damage.extend(other.damage);
    }
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where: the segment.
    pub segment: u32,
    /// Where: the offset in it.
    pub offset: u32,
    /// Whose record it is, where known.
    pub collection: Option<CollectionId>,
    /// Which record, where known.
    pub record: Option<RecordId>,
    /// Whether the record is current, so that data is lost; unknown if the damage hides which records are. `false`
    /// also for damage that affects no record.
    pub current: Option<bool>,
    /// Bytes of the payload, by what the header or the summary says.
    pub payload_len: u32,
    /// The first bytes of the payload, as read.
    pub payload_start: Vec<u8>,
    /// What is damaged.
    pub what: String,
}

/// Bytes that are read at once. Large, so that a device that seeks between the segments that are
/// checked at the same time spends little on that.
const CHUNK_BYTES: u32 = 2 << 20;
/// Segments that are read at the same time, where several threads may: some wait for the device, which
/// wants several requests to be as fast as it can, while others compute.
const READS: usize = 8;
/// Bytes of a damaged payload that are reported.
const PAYLOAD_START_BYTES: usize = 256;

impl Damage {
    pub(crate) fn at(segment: u32, offset: u32, what: impl Into<String>) -> Self {
        let what = what.into();
        let (payload_len, payload_start) = (0, Vec::new());
        let (collection, record, current) = (None, None, None);
        Damage { segment, offset, collection, record, current, payload_len, payload_start, what }
    }

    /// Damage with another copy or without an effect: no document is lost.
    fn harmless(segment: u32, offset: u32, what: impl Into<String>) -> Self {
        Damage { current: Some(false), ..Damage::at(segment, offset, what) }
    }

    fn of(segment: u32, entry: &Entry, what: &str) -> Self {
        use Kind::{Commit, CreateStore, DropStore, End, Mark};
        // The summary tells all of these: nobody reads them.
        let told = matches!(entry.kind, Commit | CreateStore | DropStore | End | Mark);
        Damage {
            current: told.then_some(false),
            collection: Some(CollectionId(entry.collection)),
            record: (entry.record != 0).then_some(RecordId(entry.record)),
            payload_len: entry.payload_len,
            ..Damage::at(segment, entry.offset, what)
        }
    }
}

/// Reads a whole directory, which no server may have open. `progress` gets the number of segments read and in
/// total. An error only if the directory is unreadable as a whole.
pub fn verify(
    directory: &dyn Directory,
    progress: &mut (dyn FnMut(u32, u32) + Send),
) -> Result<Report> {
    let progress = Mutex::new(progress);
    verify_with(directory, true, 1, &|done, of| (crate::lock(&progress))(done, of))
}

/// Like [`verify`], with this many threads; unless `full`, it reads only what opening reads.
pub fn verify_with(
    directory: &dyn Directory,
    full: bool,
    threads: usize,
    progress: &(dyn Fn(u32, u32) + Sync),
) -> Result<Report> {
    let lock = directory.lock()?;
    let report = verify_locked(directory, full, threads, progress);
    // The next server is to find what the last one left.
    if !lock.was_unclean() {
        lock.release_clean()?;
    }
    report
}

fn verify_locked(
    directory: &dyn Directory,
    full: bool,
    threads: usize,
    progress: &(dyn Fn(u32, u32) + Sync),
) -> Result<Report> {
    let mut report = Report::default();
    let meta = read_meta(directory, &mut report)?;
    let medium = directory.open_log(LOG_FILE)?;
    let options = Options { segment_bytes: meta.segment_bytes, ..Options::default() };
    let segments = Segments::new(medium.clone(), meta.segment_bytes, options.segments_max());
    let faults = directory.faults();
    let marks = FoundMarks::read(directory, &meta.directory);
    if let Some(why) = marks.missing(meta.marks) {
        report.damage.push(Damage::harmless(0, 0, why));
    }
    let log = Log { medium: &*medium, faults, segments: &segments, meta: &meta, marks: &marks };
    let overlay = Overlay::new(medium.clone(), log, directory)?;
    let log = Log { medium: &overlay, ..log };
    let threads = if threads > 1 { threads.max(READS) } else { threads };
    report.segments = (medium.len() / u64::from(meta.segment_bytes)) as u32;
    report.segment_bytes = meta.segment_bytes;
    let progress = full.then_some(progress);
    match Scan::new(log, threads, &*options.clock).run() {
        Ok(mut outcome) => {
            let applied = match settle(log, &mut outcome) {
                Ok(found) => found.applied,
                Err(error) => {
                    report.damage.push(Damage::at(0, 0, error.to_string()));
                    outcome.cut.seq
                }
            };
            report.dropped_records = outcome.dropped_records;
            report.segments_opened = outcome.epoch_next.saturating_sub(1);
            check_kept(log, (&outcome, applied), threads, progress, &mut report)?;
            if full {
                check_images(log, &outcome.images, threads, &mut report)?;
            }
        }
        Err(stop) => {
            report.damage.push(where_it_stopped(log, &stop));
            if let Some(progress) = progress {
                check_unfollowed(log, threads, progress, &mut report)?;
            }
        }
    }
    Ok(report)
}

fn read_meta(directory: &dyn Directory, report: &mut Report) -> Result<Meta> {
    let Some(bytes) = directory.read_file(META_FILE)? else {
        return Err(Error::new(
            ErrorCode::NonExistentPath,
            format!("{} has no {META_FILE}", directory.describe()),
        ));
    };
    let meta = Meta::decode(&bytes, true)
        .map_err(|error| Error::location(28_662, format!("{}: {error}", directory.describe())))?;
    if meta.encode() != bytes {
        report.damage.push(Damage::harmless(0, 0, format!("one copy of {META_FILE} is damaged")));
    }
    Ok(meta)
}

/// Why the log can't be followed, and whose record is there, as far as that is known.
fn where_it_stopped(log: Log<'_>, stop: &Stop) -> Damage {
    let (segment, offset) = match stop.place {
        Some(Place::Header(segment)) => (segment, 0),
        Some(Place::Record { segment, offset, .. }) => (segment, offset),
        Some(Place::Files) | None => (0, 0),
    };
    let mut damage = Damage::at(segment, offset, stop.error.to_string());
    if let Some(Place::Record { epoch, .. }) = stop.place {
        name_record(log, epoch, &mut damage);
    }
    damage
}

/// Names the record of a damaged header if one bit of it is wrong: its CRC identifies the bit.
fn name_record(log: Log<'_>, epoch: u64, damage: &mut Damage) {
    let Log { medium, segments, .. } = log;
    let at = segments.file_offset(damage.segment) + u64::from(damage.offset);
    let mut bytes = HeaderBytes::default();
    if medium.read(at, &mut bytes).is_err() {
        return;
    }
    let seed = Seed::new(damage.segment, epoch);
    let Some(header) = RecordHeader::decode_but_one_bit(&bytes, seed, damage.offset) else {
        return;
    };
    damage.collection = (header.collection != 0).then_some(CollectionId(header.collection));
    damage.record = (header.record != 0).then_some(RecordId(header.record));
    damage.payload_len = header.payload_len;
    let mut start = vec![0; PAYLOAD_START_BYTES.min(header.payload_len as usize)];
    if medium.read(at + u64::from(RECORD_HEADER_BYTES), &mut start).is_ok() {
        damage.payload_start = start;
    }
}

/// Checks all segments of an unreadable log: the ends of records are unknown.
fn check_unfollowed(
    log: Log<'_>,
    threads: usize,
    progress: &(dyn Fn(u32, u32) + Sync),
    report: &mut Report,
) -> Result<()> {
    let (count, done) = (report.segments, AtomicU32::new(0));
    let all = check_all(log, (count as usize, threads), false, |n, check| {
        check.segment(n as u32, u32::MAX, None)?;
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, count);
        Ok(())
    })?;
    report.add(all);
    Ok(())
}

/// Checks the segments that count (with `progress`, if given), and reports which damaged records are current, and
/// the space by collection.
fn check_kept(
    log: Log<'_>,
    (outcome, applied): (&Outcome, u64),
    threads: usize,
    progress: Option<&(dyn Fn(u32, u32) + Sync)>,
    report: &mut Report,
) -> Result<()> {
    // As they lie in the file, for devices that seek.
    let mut kept: Vec<&Kept> = outcome.kept.iter().collect();
    kept.sort_unstable_by_key(|kept| kept.segment);
    let whole = Whole::new(log, (outcome, applied), threads);
    let done = AtomicU32::new(0);
    let checked = check_all(log, (kept.len(), threads), true, |n, check| {
        let Some(this) = kept.get(n) else { return Ok(()) };
        if let Some(progress) = progress {
            check.segment(this.segment, this.end, Some(&this.contents))?;
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, kept.len() as u32);
        }
        whole.add(this, &mut check.report);
        Ok(())
    })?;
    report.add(checked);
    whole.finish(outcome, report);
    Ok(())
}

/// Calls `check` for each part, on several threads, and collects the results. Each thread reuses its buffer: where
/// the first touch of memory is slow, that decides the speed.
fn check_all(
    log: Log<'_>,
    (parts, threads): (usize, usize),
    end_known: bool,
    check: impl Fn(usize, &mut Check<'_>) -> Result<()> + Sync,
) -> Result<Report> {
    let buffers: Mutex<Vec<Buffer>> = Mutex::default();
    let reports = parallel::try_map(threads, parts, |n| {
        let buffer = crate::lock(&buffers).pop().unwrap_or_default();
        let mut part = Check { log, end_known, buffer, report: Report::default() };
        check(n, &mut part)?;
        crate::lock(&buffers).push(part.buffer);
        Ok::<_, Error>(part.report)
    })?;
    let mut all = Report::default();
    reports.into_iter().for_each(|part| all.add(part));
    Ok(all)
}

/// Checks the segments of index images. One that was never sealed has no information: it was being written when the
/// process ended.
fn check_images(
    log: Log<'_>,
    images: &[SegmentHeader],
    threads: usize,
    report: &mut Report,
) -> Result<()> {
    let checked = check_all(log, (images.len(), threads), false, |n, check| match images.get(n) {
        Some(header) => check.segment(header.segment, u32::MAX, None),
        None => Ok(()),
    })?;
    report.bytes += checked.bytes;
    // Whose index it is is told by what can be read; there is no document to it.
    let harmless = |damage| Damage { record: None, current: Some(false), ..damage };
    report.images.extend(checked.damage.into_iter().map(harmless));
    Ok(())
}

/// Determines which damaged records are current, and the space by collection.
struct Whole<'m> {
    log: Log<'m>,
    domain: Arc<EpochDomain>,
    builder: Builder<'m>,
}

impl<'m> Whole<'m> {
    fn new(log: Log<'m>, (outcome, applied): (&Outcome, u64), threads: usize) -> Self {
        let domain = EpochDomain::new();
        let found = FoundPending::find(log, &outcome.kept);
        let resolution = found.map(|found| found.resolution).unwrap_or_default();
        let builder = Builder::new(domain.clone(), log.segments, threads, (resolution, applied));
        Whole { log, domain, builder }
    }

    /// Adds what a segment holds; several may be added at once.
    fn add(&self, kept: &Kept, report: &mut Report) {
        if let Err(error) = self.builder.add_segment(kept) {
            report.damage.push(Damage::at(kept.segment, 0, error.to_string()));
        }
    }

    fn finish(self, outcome: &Outcome, report: &mut Report) {
        let Whole { log, domain, builder } = self;
        let registry = Registry::default();
        builder.finish(&registry, &HashMap::new());
        let mut guard = domain.register();
        guard.enter();
        for damage in &mut report.damage {
            let (Some(collection), Some(record)) = (damage.collection, damage.record) else {
                continue;
            };
            let slot = registry.store(collection).map(|store| store.slots.load(&guard, record.0));
            let place = Address { segment: damage.segment, offset: damage.offset };
            let is_current = |slot: Slot| slot.is_live() && slot.address() == place;
            damage.current = Some(slot.is_some_and(is_current));
        }
        report.extents = outcome.kept.iter().map(|kept| extent(log, kept)).collect();
        let maps = registry.read();
        let sum = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        report.collections = maps
            .stores
            .values()
            .map(|store| CollectionSize {
                id: store.id,
                records: sum(&store.records),
                bytes: sum(&store.bytes),
                storage_bytes: sum(&store.storage_bytes),
            })
            .collect();
        report.collections.sort_unstable_by_key(|collection| collection.id);
        if let Some(catalog) = maps.stores.get(&CollectionId::CATALOG) {
            catalog.slots.walk(&guard, 0, false, |_, slot| {
                if slot.is_live() {
                    report.catalog.extend(document(log, slot.address()));
                }
                true
            });
        }
    }
}

fn extent(log: Log<'_>, kept: &Kept) -> Extent {
    let live = log.segments.get(kept.segment).live();
    Extent { segment: kept.segment, live, moved: kept.stream.is_cleaners() }
}

/// The document at a place, if it can be read.
fn document(log: Log<'_>, place: Address) -> Option<Vec<u8>> {
    let Log { medium, faults, segments, .. } = log;
    let epoch = segments.get(place.segment).epoch();
    let mut reader = RecordReader::new(medium, faults, segments, place.segment, epoch, u32::MAX);
    reader.seek(place.offset);
    match reader.next() {
        Ok(Next::Record(record)) if record.payload_whole => Some(record.payload.to_vec()),
        _ => None,
    }
}

struct Check<'m> {
    log: Log<'m>,
    /// Whether the scan determined the end of each segment's records.
    end_known: bool,
    /// The read buffer.
    buffer: Buffer,
    report: Report,
}

impl Check<'_> {
    /// Checks a segment whose records end at `end` (`u32::MAX`: as they say), and which contains what the scan has
    /// `told`: a summary of the scan need not be read again.
    fn segment(&mut self, segment: u32, end: u32, told: Option<&Contents>) -> Result<()> {
        let Log { medium, faults, segments, meta, .. } = self.log;
        let found = read_header(medium, faults, segments, segment, &meta.directory)?;
        let (header, mut damaged) = match found {
            Found::Header(header, copy) => {
                // The second one is outdated or torn wherever a crash has interrupted its storing.
                let damage = copy.filter(|copy| copy.offset == 0);
                if let Some(OtherCopy { what, .. }) = damage {
                    let what = format!("{what} in its first copy");
                    self.report.damage.push(Damage::harmless(segment, 0, what));
                }
                (header, damage.is_some())
            }
            Found::Blank => return Ok(()),
            Found::Garbage(what) => {
                self.report.damage.push(Damage::at(segment, 0, what));
                return Ok(());
            }
        };
        let end = match meta.cut_of(header.stream, header.epoch) {
            Some((_, 0)) => return Ok(()),
            Some((_, cut)) => cut.min(end),
            None => end,
        };
        self.report.segments_used += 1;
        let records = self.report.records;
        let read = match told {
            Some(Contents::Summary { .. }) => None,
            _ => self.summary(&header, end)?,
        };
        let mut reader = RecordReader::new(medium, faults, segments, segment, header.epoch, end)
            .once(CHUNK_BYTES, std::mem::take(&mut self.buffer));
        match read.as_ref().or(told) {
            Some(Contents::Summary { bytes, entries, segment_bytes, .. }) => {
                self.report.bytes += bytes.len() as u64;
                for entry in SummaryReader::new(bytes, *entries, *segment_bytes) {
                    reader.seek(entry.offset);
                    self.record(segment, &mut reader, Some(&entry))?;
                }
            }
            // Without a summary the tail's end can't be told from damage here: the scan does.
            _ => while self.record(segment, &mut reader, None)? {},
        }
        self.report.bytes += u64::from(reader.offset());
        self.buffer = reader.into_buffer();
        // All of the header is durable before there are records.
        damaged |= self.report.records == records;
        if !damaged
            && self.read::<{ SEGMENT_HEADER_BYTES as usize }>(segment, 0)? != *header.encode()
        {
            let what = "one copy of the header is damaged";
            self.report.damage.push(Damage::harmless(segment, 0, what));
        }
        Ok(())
    }

    /// Bytes at an offset in a segment.
    fn read<const N: usize>(&self, segment: u32, offset: u32) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let at = self.log.segments.file_offset(segment) + u64::from(offset);
        self.log.medium.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether the segment's trailer would be valid with one flipped bit. A missing trailer means nothing: not all
    /// segments were sealed.
    fn trailer_is_damaged(&self, header: &SegmentHeader) -> Result<bool> {
        let segment_bytes = self.log.segments.segment_bytes();
        let mut bytes: [u8; TRAILER_BYTES as usize] =
            self.read(header.segment, segment_bytes - TRAILER_BYTES)?;
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let trailer = Trailer::decode(&bytes, segment_bytes, true);
            if trailer.is_some_and(|t| (t.segment, t.epoch) == (header.segment, header.epoch)) {
                return Ok(true);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(false)
    }

    /// A segment's summary, if it has one that fits its end.
    fn summary(&mut self, header: &SegmentHeader, end: u32) -> Result<Option<Contents>> {
        let Log { medium, faults, segments, .. } = self.log;
        let epoch = Some(header.epoch);
        let segment = header.segment;
        let trailer = read_trailer(medium, faults, segments, segment, epoch)?;
        if trailer.is_none() && self.trailer_is_damaged(header)? {
            let at = segments.segment_bytes() - TRAILER_BYTES;
            self.report.damage.push(Damage::harmless(segment, at, "the trailer is damaged"));
        }
        let Some(trailer) = trailer.filter(|t| end == u32::MAX || t.records_end == end) else {
            return Ok(None);
        };
        let contents = read_summary(medium, faults, segments, &trailer)?;
        if contents.is_none() {
            let at = trailer.summary_offset;
            self.report.damage.push(Damage::harmless(segment, at, "the summary is damaged"));
        }
        Ok(contents)
    }

    /// Checks the record that comes next, which by the summary is `expected`. Answers whether another
    /// one may follow.
    fn record(
        &mut self,
        segment: u32,
        reader: &mut RecordReader<'_>,
        expected: Option<&Entry>,
    ) -> Result<bool> {
        let damage = match reader.next()? {
            Next::Finished => return Ok(false),
            Next::Bad(offset) => match expected {
                Some(entry) => Damage::of(segment, entry, "the record's header is damaged"),
                // Whether the log may end here is for the scan to tell, which has been told of.
                None if !self.end_known => return Ok(false),
                None => Damage::at(segment, offset, "no record is at this position"),
            },
            Next::Record(record) => {
                let entry = record.entry();
                // A damaged payload tells nothing of its `_id`.
                let whole = record.payload_whole;
                let same = |told: &Entry| {
                    entry == Entry { id: if whole { told.id } else { entry.id }, ..*told }
                };
                if let Some(expected) = expected.filter(|expected| !same(expected)) {
                    // An opened engine goes by the summary.
                    let what = "the summary names another record at this position";
                    Damage { current: None, ..Damage::of(segment, expected, what) }
                } else if !record.payload_whole {
                    let start = record.payload.iter().take(PAYLOAD_START_BYTES).copied().collect();
                    let damage = Damage::of(segment, &entry, "the payload is damaged");
                    Damage { payload_start: start, ..damage }
                } else if entry.kind == Kind::Put && Doc::from_bytes(record.payload).is_err() {
                    Damage::of(segment, &entry, "the payload is not a document")
                } else {
                    self.report.records += 1;
                    self.report.documents += u64::from(entry.kind == Kind::Put);
                    return Ok(true);
                }
            }
        };
        let go_on = damage.collection.is_some();
        self.report.damage.push(damage);
        Ok(go_on)
    }
}
