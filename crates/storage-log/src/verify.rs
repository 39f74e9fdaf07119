//! Reading a whole directory and checking every CRC, for `kauri check`. Changes nothing.

use crate::address::Address;
use crate::collection::Registry;
use crate::format::meta::Meta;
use crate::format::record::Kind;
use crate::format::segment::{SegmentHeader, Trailer};
use crate::format::summary::Entry;
use crate::format::{LOG_FILE, META_FILE, SEGMENT_HEADER_BYTES, TRAILER_BYTES};
use crate::options::Options;
use crate::reader::{Contents, Found, Next, RecordReader, read_header, read_summary, read_trailer};
use crate::recovery::{Builder, FoundPending, Kept, Log, Outcome, Place, Scan};
use crate::segments::Segments;
use kauri_base::sync::Mutex;
use kauri_base::sync::atomic::{AtomicU32, Ordering};
use kauri_base::{CollectionId, Error, ErrorCode, RecordId, Result};
use kauri_bson::Doc;
use kauri_medium::{Directory, EpochDomain, Faults, Medium, parallel};
use std::collections::HashMap;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments in the file.
    pub segments: u32,
    /// Of these: with records.
    pub segments_used: u32,
    /// Records whose CRCs are right.
    pub records: u64,
    /// Of these: documents, outdated versions included.
    pub documents: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Records behind the end of the log, of units that were never acknowledged as durable.
    pub dropped_records: u64,
    /// What is wrong.
    pub damage: Vec<Damage>,
    /// What is wrong with index images, which is harmless: they are not used then.
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

/// What a collection takes.
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

/// One thing that is wrong.
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
    /// Whether the record is a current one, so that data are lost; unknown if the damage hides which
    /// records are. `false` also for what is no record and not missed.
    pub current: Option<bool>,
    /// Bytes of the payload, by what the header or the summary says.
    pub payload_len: u32,
    /// What the payload begins with, as it was read.
    pub payload_start: Vec<u8>,
    /// What is wrong.
    pub what: String,
}

/// Bytes that are read at once. Large, so that a device that seeks between the segments that are
/// checked at the same time spends little on that.
const CHUNK_BYTES: u32 = 4 << 20;
/// Bytes of a damaged payload that are reported.
const PAYLOAD_START_BYTES: usize = 256;

impl Damage {
    pub(crate) fn at(segment: u32, offset: u32, what: impl Into<String>) -> Self {
        let what = what.into();
        let (payload_len, payload_start) = (0, Vec::new());
        let (collection, record, current) = (None, None, None);
        Damage { segment, offset, collection, record, current, payload_len, payload_start, what }
    }

    /// Of what there is another copy of, or what can be told without it: no document is lost.
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

/// Reads a whole directory, which no server may have open. `progress` is told how many of how many
/// segments were read. An error only if the directory can't be read at all.
pub fn verify(
    directory: &dyn Directory,
    progress: &mut (dyn FnMut(u32, u32) + Send),
) -> Result<Report> {
    let progress = Mutex::new(progress);
    verify_with(directory, true, 1, &|done, of| (crate::lock(&progress))(done, of))
}

/// As [`verify`], by so many threads; unless it is to be `full`, only what opening reads is read.
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
    let faults = directory.faults();
    let Some(bytes) = directory.read_file(META_FILE)? else {
        return Err(Error::new(
            ErrorCode::NonExistentPath,
            format!("{} holds no {META_FILE}", directory.describe()),
        ));
    };
    let meta = Meta::decode(&bytes, true)
        .map_err(|error| Error::location(28_662, format!("{}: {error}", directory.describe())))?;
    let medium = directory.open_log(LOG_FILE)?;
    let options = Options { segment_bytes: meta.segment_bytes, ..Options::default() };
    let segments = Segments::new(medium.clone(), meta.segment_bytes, options.segments_max());
    let mut report = Report::default();
    if meta.encode() != bytes {
        report.damage.push(Damage::harmless(0, 0, format!("one copy of {META_FILE} is damaged")));
    }
    let log = Log { medium: &*medium, faults, segments: &segments, meta: &meta };
    let scanned = Scan::new(log, threads, &*options.clock).run();
    let mut ends = HashMap::new();
    match &scanned {
        Ok(outcome) => {
            report.dropped_records = outcome.dropped_records;
            ends = outcome.kept.iter().map(|kept| (kept.segment, kept.end)).collect();
            report.segments_opened = outcome.epoch_next.saturating_sub(1);
        }
        Err(stop) => {
            let (segment, offset) = match stop.place {
                Some(Place::Header(segment)) => (segment, 0),
                Some(Place::Record { segment, offset, .. }) => (segment, offset),
                None => (0, 0),
            };
            report.damage.push(Damage::at(segment, offset, stop.error.to_string()));
        }
    }
    let count = (medium.len() / u64::from(meta.segment_bytes)) as u32;
    report.segments = count;
    report.segment_bytes = meta.segment_bytes;
    let end_known = scanned.is_ok();
    let wanted: Vec<(u32, u32)> = (0..count)
        .filter_map(|segment| match (&scanned, ends.get(&segment)) {
            (Ok(_), None) => None,
            (Ok(_), Some(end)) => Some((segment, *end)),
            (Err(_), _) => Some((segment, u32::MAX)),
        })
        .filter(|_| full)
        .collect();
    let done = AtomicU32::new(0);
    let reports = parallel::try_map(threads, wanted.len(), |n| {
        let report = Report::default();
        let mut check = Check { medium: &*medium, faults, segments: &segments, end_known, report };
        if let Some((segment, end)) = wanted.get(n) {
            check.segment(*segment, *end, &meta)?;
        }
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, wanted.len() as u32);
        Ok::<_, Error>(check.report)
    })?;
    reports.into_iter().for_each(|part| report.add(part));
    if let Ok(outcome) = scanned {
        if full {
            check_images(log, &outcome.images, threads, &mut report)?;
        }
        look_at_whole(log, &outcome, threads, &mut report);
    }
    Ok(report)
}

/// Checks the segments of index images. One that was never sealed tells nothing: it was being written
/// when the process ended.
fn check_images(
    log: Log<'_>,
    images: &[SegmentHeader],
    threads: usize,
    report: &mut Report,
) -> Result<()> {
    let Log { medium, faults, segments, meta } = log;
    let checked = parallel::try_map(threads, images.len(), |n| {
        let report = Report::default();
        let mut check = Check { medium, faults, segments, end_known: false, report };
        if let Some(header) = images.get(n) {
            check.segment(header.segment, u32::MAX, meta)?;
        }
        Ok::<_, Error>(check.report)
    })?;
    for part in checked {
        report.bytes += part.bytes;
        // Whose index it is is told by what can be read; there is no document to it.
        let harmless = |damage| Damage { record: None, current: Some(false), ..damage };
        report.images.extend(part.damage.into_iter().map(harmless));
    }
    Ok(())
}

/// Tells which of the damaged records are current, and what takes how much space.
fn look_at_whole(log: Log<'_>, outcome: &Outcome, threads: usize, report: &mut Report) {
    let domain = EpochDomain::new();
    let found = FoundPending::find(log, &outcome.kept);
    let resolution = found.map(|found| found.resolution).unwrap_or_default();
    let builder = Builder::new(domain.clone(), log.segments, threads, resolution);
    for kept in &outcome.kept {
        if let Err(error) = builder.add_segment(kept) {
            report.damage.push(Damage::at(kept.segment, 0, error.to_string()));
        }
    }
    let registry = Registry::default();
    builder.finish(&registry, &HashMap::new());
    let mut guard = domain.register();
    guard.enter();
    for damage in &mut report.damage {
        let (Some(collection), Some(record)) = (damage.collection, damage.record) else { continue };
        let slot = registry.store(collection).map(|store| store.slots.load(&guard, record.0));
        let place = Address { segment: damage.segment, offset: damage.offset };
        damage.current = Some(slot.is_some_and(|slot| slot.is_live() && slot.address() == place));
    }
    report.extents = outcome.kept.iter().map(|kept| extent(log, kept)).collect();
    let maps = registry.read();
    let sum = |sum: &kauri_base::sync::atomic::AtomicU64| sum.load(Ordering::Relaxed);
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
    medium: &'m dyn Medium,
    faults: &'m Faults,
    segments: &'m Segments,
    /// Whether the scan could tell where each segment's records end.
    end_known: bool,
    report: Report,
}

impl Check<'_> {
    fn segment(&mut self, segment: u32, end: u32, meta: &Meta) -> Result<()> {
        let found = read_header(self.medium, self.faults, self.segments, segment, &meta.directory)?;
        let (header, mut damaged) = match found {
            Found::Header(header, damage) => {
                if let Some(what) = damage {
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
        let summary = self.summary(&header, end)?;
        let mut reader =
            RecordReader::new(self.medium, self.faults, self.segments, segment, header.epoch, end)
                .with_chunk(CHUNK_BYTES);
        match summary {
            Some(entries) => {
                for entry in &entries {
                    reader.seek(entry.offset);
                    self.record(segment, &mut reader, Some(entry))?;
                }
            }
            // Without a summary the tail's end can't be told from damage here: the scan does.
            None => while self.record(segment, &mut reader, None)? {},
        }
        self.report.bytes += u64::from(reader.offset());
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
        self.medium.read(self.segments.file_offset(segment) + u64::from(offset), &mut bytes)?;
        Ok(bytes)
    }

    /// Whether the segment's trailer would be one if one of its bits were another. A trailer that is
    /// missing tells nothing: not all segments were sealed.
    fn trailer_is_damaged(&self, header: &SegmentHeader) -> Result<bool> {
        let segment_bytes = self.segments.segment_bytes();
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

    /// The entries of a segment's summary, if it has one that fits its end.
    fn summary(&mut self, header: &SegmentHeader, end: u32) -> Result<Option<Vec<Entry>>> {
        let epoch = Some(header.epoch);
        let segment = header.segment;
        let trailer = read_trailer(self.medium, self.faults, self.segments, segment, epoch)?;
        if trailer.is_none() && self.trailer_is_damaged(header)? {
            let at = self.segments.segment_bytes() - TRAILER_BYTES;
            self.report.damage.push(Damage::harmless(segment, at, "the trailer is damaged"));
        }
        let Some(trailer) = trailer.filter(|t| end == u32::MAX || t.records_end == end) else {
            return Ok(None);
        };
        let contents = read_summary(self.medium, self.faults, self.segments, &trailer)?;
        let Some(contents) = contents else {
            let at = trailer.summary_offset;
            self.report.damage.push(Damage::harmless(segment, at, "the summary is damaged"));
            return Ok(None);
        };
        Ok(Some(entries_of(&contents)))
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
                None => Damage::at(segment, offset, "there is no record here"),
            },
            Next::Record(record) => {
                let entry = record.entry();
                // A damaged payload tells nothing of its `_id`.
                let whole = record.payload_whole;
                let same = |told: &Entry| {
                    entry == Entry { id: if whole { told.id } else { entry.id }, ..*told }
                };
                if expected.is_some_and(|expected| !same(expected)) {
                    let what = "the summary tells of another record here";
                    Damage { current: None, ..Damage::of(segment, &entry, what) }
                } else if !record.payload_whole {
                    let start = record.payload.iter().take(PAYLOAD_START_BYTES).copied().collect();
                    let damage = Damage::of(segment, &entry, "the payload is damaged");
                    Damage { payload_start: start, ..damage }
                } else if entry.kind == Kind::Put && Doc::from_bytes(record.payload).is_err() {
                    Damage::of(segment, &entry, "the payload is no document")
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

fn entries_of(contents: &Contents) -> Vec<Entry> {
    let mut entries = Vec::new();
    contents.for_each(|entry| entries.push(entry));
    entries
}
