//! Every flipped bit in the metadata of records is detected, and so are a million flipped bits in documents.
//! The directory check detects them. The engine returns the right data or an error.

use crate::common::{self, SEGMENT_BYTES, dynamic, emulator, options};
use kauri_base::RecordId;
use kauri_conformance::inspect;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::Emulator;
use kauri_medium::Directory;
use kauri_storage::{LogPosition, OpKind, StorageEngine, WriteUnit};
use kauri_storage_log::format::record::{Kind, RecordHeader, Seed};
use kauri_storage_log::format::segment::{HEADER_COPY_AT, HEADER_END, SegmentHeader, Trailer};
use kauri_storage_log::format::{RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Stream, TRAILER_BYTES};
use kauri_storage_log::{PmLog, verify};
use kauri_testkit::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const LOG: &str = "pmlog.0";
const META: &str = "kauri.meta";
const SEGMENT: usize = SEGMENT_BYTES as usize;
/// Significant bytes of a segment's header.
const HEADER_BYTES: usize = HEADER_END;

/// The bytes of a directory after a clean shutdown.
struct Whole {
    image: Emulator,
    log: Vec<u8>,
    meta: Vec<u8>,
    documents: BTreeMap<RecordId, Vec<u8>>,
}

/// The meaning of the log's bytes.
#[derive(Default)]
struct Places {
    records: Vec<(usize, RecordHeader)>,
    segment_headers: Vec<Range<usize>>,
    summaries: Vec<Range<usize>>,
    trailers: Vec<Range<usize>>,
}

impl Whole {
    fn new(engine: Arc<PmLog>, emulator: &Emulator, table: Table) -> Whole {
        let documents = table.records().into_iter().map(|(id, record)| (id, record.doc)).collect();
        engine.close().expect("close");
        drop((engine, table));
        let image = emulator.process_death_image();
        let medium = image.open_log(LOG).expect("the log");
        let mut log = vec![0; medium.len() as usize];
        medium.read(0, &mut log).expect("reading");
        let meta = image.read_file(META).expect("reading").expect("the metadata");
        assert_eq!(verify(&image, &mut |_, _| {}).expect("the check").damage, []);
        Whole { image: emulator.process_death_image(), log, meta, documents }
    }

    fn places(&self) -> Places {
        let mut places = Places::default();
        for (number, bytes) in self.log.chunks_exact(SEGMENT).enumerate() {
            let start = number * SEGMENT;
            let header = SegmentHeader::decode(bytes, true);
            // Index images are copies of other data.
            let ours = |header: &SegmentHeader| header.stream != Stream::Image;
            let Some(header) = header.filter(ours) else { continue };
            let seed = Seed::new(header.segment, header.epoch);
            let mut offset = SEGMENT_HEADER_BYTES;
            let records = places.records.len();
            while let Some(bytes) = bytes[offset as usize..].first_chunk() {
                let Some((header, _)) = RecordHeader::decode(bytes, seed, offset) else { break };
                places.records.push((start + offset as usize, header));
                offset += header.record_bytes();
            }
            if places.records.len() == records {
                continue;
            }
            for copy in [0, HEADER_COPY_AT] {
                places.segment_headers.push(start + copy..start + copy + HEADER_BYTES);
            }
            let at = SEGMENT - TRAILER_BYTES as usize;
            let trailer = Trailer::decode(&bytes[at..], SEGMENT_BYTES, true).expect("a trailer");
            assert_eq!(trailer.epoch, header.epoch);
            places.trailers.push(start + at..start + SEGMENT);
            let summary = start + trailer.summary_offset as usize;
            places.summaries.push(summary..summary + trailer.summary_bytes as usize);
        }
        places
    }

    /// The directory with other bytes in the log from this offset.
    fn with_log(&self, at: usize, bytes: &[u8]) -> Emulator {
        let image = self.image.process_death_image();
        let log = image.open_log(LOG).expect("the log");
        log.store(at as u64, &[IoSlice::new(bytes)]).expect("storing");
        image
    }

    /// Flips each bit of these bytes of the log, one at a time.
    fn flip_log(&self, bytes: impl IntoIterator<Item = usize>) -> Flips {
        let images = bytes.into_iter().flat_map(|at| (0..8).map(move |bit| (at, bit)));
        self.flip(images.collect(), |(at, bit)| self.with_log(at, &[self.log[at] ^ 1 << bit]))
    }

    /// Checks an image for each of these positions, on two threads.
    fn flip(
        &self,
        places: Vec<(usize, u8)>,
        image: impl Fn((usize, u8)) -> Emulator + Sync,
    ) -> Flips {
        let next = AtomicUsize::new(0);
        let look = || {
            let mut flips = Flips::default();
            while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                flips.flips += 1;
                let image = image(*place);
                let found = verify(&image.process_death_image(), &mut |_, _| {});
                if found.is_ok_and(|report| report.damage.is_empty()) {
                    flips.unnoticed.push(*place);
                }
                flips.add_opening(self, &image, *place);
            }
            flips
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(look);
            let mut flips = look();
            flips.add(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            flips
        })
    }
}

/// The results of flipped bits.
#[derive(Default, Debug)]
struct Flips {
    flips: usize,
    /// Flips that a directory check does not report.
    unnoticed: Vec<(usize, u8)>,
    /// Rejected directories.
    refused: usize,
    /// Directories with an unreadable document.
    reported: usize,
}

impl Flips {
    fn add(&mut self, other: Flips) {
        self.flips += other.flips;
        self.unnoticed.extend(other.unnoticed);
        self.refused += other.refused;
        self.reported += other.reported;
    }

    /// Opens the directory: every document is right or an error, or the directory is rejected.
    fn add_opening(&mut self, whole: &Whole, image: &Emulator, place: (usize, u8)) {
        let Ok(engine) = PmLog::open(Arc::new(image.clone()), options()) else {
            self.refused += 1;
            return;
        };
        let store = engine.record_store(kauri_base::CollectionId(10)).expect("the store");
        let mut reader = inspect::Reader::new(&engine);
        let mut bad = false;
        for id in 1..=whole.documents.keys().last().map_or(0, |id| id.0) + 1 {
            let expected = whole.documents.get(&RecordId(id));
            match reader.get(&*store, RecordId(id)) {
                Ok(found) => {
                    let found = found.map(|record| record.doc);
                    assert_eq!(found.as_ref(), expected, "{place:?}: record {id}");
                }
                Err(_) => bad = true,
            }
        }
        self.reported += usize::from(bad);
    }
}

/// Records of every kind, in several segments.
fn every_kind() -> Whole {
    let emulator = emulator();
    let engine = common::open(&emulator, options());
    let interface = dynamic(&engine);
    let indexes = [TableIndex::new(20, true, "u")];
    let table = Table::create(&interface, 10, &indexes);
    let text = "text ".repeat(900);
    let insert = |unit: &mut WriteUnit<'_>, u| table.insert_in(unit, &doc(1, u, &text));
    for u in 0..24 {
        let mut unit = WriteUnit::new();
        insert(&mut unit, 10 * u);
        if u % 4 == 0 {
            insert(&mut unit, 10 * u + 1);
        }
        table.commit(&mut unit);
        if u % 9 == 8 {
            engine.flush_round().expect("sealing");
        }
    }
    for id in [3, 9, 20] {
        table.delete(RecordId(id));
        table.update(RecordId(id + 1), &doc(2, 1000 + id as i64, "updated"));
    }
    let other = Table::create(&interface, 11, &[]);
    other.insert(&doc(1, 1, "of a collection that goes"));
    let mut unit = WriteUnit::new();
    unit.push(other.id, RecordId(0), OpKind::DropStore);
    table.commit(&mut unit);
    pending_units(&engine, &table);
    engine.sync().expect("sync");
    Whole::new(engine, &emulator, table)
}

/// Units of a replicated log: committed, pending, and dropped.
fn pending_units(engine: &PmLog, table: &Table) {
    let log = engine.pending_log().expect("pending units");
    for index in 1..=3 {
        let mut unit = WriteUnit::new();
        table.insert_in(&mut unit, &doc(3, 2000 + index as i64, "pending"));
        let deleted = RecordId(14 + index);
        table.delete_in(&mut unit, deleted, &table.record(deleted));
        log.append(&mut unit, LogPosition { term: 1, index }).expect("appending");
    }
    log.commit_up_to(1).expect("committing");
    log.truncate_after(2).expect("truncating");
}

/// The contents of marks, commits and resolutions.
#[test]
fn every_bit_of_a_payload_that_is_no_document() {
    let whole = every_kind();
    let documents = [Kind::Put, Kind::PendingPut];
    let mut records = whole.places().records;
    records.retain(|(_, header)| !documents.contains(&header.kind) && header.payload_len > 0);
    let kinds: BTreeSet<_> = records.iter().map(|(_, h)| format!("{:?}", h.kind)).collect();
    let expected = ["Commit", "Mark", "PendingCommit", "Resolution"];
    assert!(expected.iter().all(|kind| kinds.contains(*kind)), "{kinds:?}");
    let payload = |(at, header): &(usize, RecordHeader)| {
        let start = at + RECORD_HEADER_BYTES as usize;
        start..start + header.payload_len as usize
    };
    let flips = whole.flip_log(records.iter().flat_map(payload));
    println!("{} records of {kinds:?}: {flips:?}", records.len());
    assert_eq!(flips.unnoticed, []);
}

#[test]
fn every_bit_of_a_record_header() {
    let whole = every_kind();
    let records = whole.places().records;
    let kinds: BTreeSet<_> = records.iter().map(|(_, h)| format!("{:?}", h.kind)).collect();
    assert!(kinds.len() >= 11, "{kinds:?}");
    let headers = records.iter().flat_map(|(at, _)| *at..at + RECORD_HEADER_BYTES as usize);
    let flips = whole.flip_log(headers);
    println!("{} record headers of {kinds:?}: {flips:?}", records.len());
    assert_eq!(flips.flips, records.len() * 256);
    assert!(records.len() >= 40, "{} records", records.len());
    assert_eq!(flips.unnoticed, []);
}

#[test]
fn every_bit_of_a_segments_frame() {
    let whole = every_kind();
    let places = whole.places();
    assert!(places.trailers.len() >= 2, "{} segments", places.trailers.len());
    for (what, ranges) in [
        ("segment headers", places.segment_headers),
        ("summaries", places.summaries),
        ("trailers", places.trailers),
    ] {
        let bytes: Vec<usize> = ranges.into_iter().flatten().collect();
        let flips = whole.flip_log(bytes.iter().copied());
        println!("{what}: {} bits", flips.flips);
        assert_eq!(flips.unnoticed, [], "{what}");
        assert_eq!(flips.flips, 8 * bytes.len());
        // Another copy, or the records themselves, hold all information.
        assert_eq!((flips.refused, flips.reported), (0, 0), "{what}");
    }
}

#[test]
fn every_bit_of_the_metadata() {
    let whole = every_kind();
    // Two copies, the second at a multiple of 4096.
    let contents = whole.meta.len() % 4096;
    let bytes = (0..contents).chain(whole.meta.len() - contents..whole.meta.len());
    let places: Vec<_> = bytes.flat_map(|at| (0..8).map(move |bit| (at, bit))).collect();
    let flips = whole.flip(places, |(at, bit)| {
        let mut meta = whole.meta.clone();
        meta[at] ^= 1 << bit;
        let image = whole.image.process_death_image();
        image.replace_file(META, &meta, "test").expect("replacing");
        image
    });
    println!("metadata: {} bits", flips.flips);
    assert!(contents > 100 && flips.flips == 16 * contents);
    assert_eq!(flips.unnoticed, []);
    assert_eq!((flips.refused, flips.reported), (0, 0));
}

/// A thousand documents, one bit of each flipped, repeated a thousand times.
#[test]
fn a_million_bits_of_documents() {
    const DOCUMENTS: i64 = 1000;
    const ROUNDS: usize = 1000;
    let emulator = emulator();
    let engine = common::open(&emulator, options());
    let table = Table::create(&dynamic(&engine), 10, &[]);
    let dice = Dice::new(kauri_testkit::seed(20_261_120));
    for u in 0..DOCUMENTS {
        let text = format!("{:x}", dice.bits()).repeat(1 + dice.below(20) as usize);
        table.insert(&doc(1, u, &text));
    }
    engine.sync().expect("sync");
    let whole = Whole::new(engine, &emulator, table);
    let puts = whole.places().records.into_iter().filter(|(_, header)| header.kind == Kind::Put);
    let puts: Vec<(usize, u32, u64)> =
        puts.map(|(at, header)| (at, header.payload_len, header.record)).collect();
    assert_eq!(puts.len(), DOCUMENTS as usize);
    let seeds: Vec<u64> = (0..ROUNDS).map(|_| dice.bits()).collect();
    let next = AtomicUsize::new(0);
    let noticed = AtomicUsize::new(0);
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let dice = Dice::new(*seed);
            let mut log = whole.log.clone();
            for (at, payload_len, _) in &puts {
                let bit = dice.below(8 * u64::from(*payload_len));
                log[at + RECORD_HEADER_BYTES as usize + (bit / 8) as usize] ^= 1 << (bit % 8);
            }
            let image = whole.with_log(0, &log);
            let report = verify(&image, &mut |_, _| {}).expect("the check");
            let found = report.damage.iter().filter_map(|damage| damage.record);
            assert!(found.map(|id| id.0).eq(puts.iter().map(|(_, _, record)| *record)), "{seed}");
            assert_eq!((report.damage.len(), report.documents), (puts.len(), 0), "{seed}");
            noticed.fetch_add(report.damage.len(), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    println!("{} flipped bits were noticed", noticed.load(Ordering::Relaxed));
    assert_eq!(noticed.into_inner(), DOCUMENTS as usize * ROUNDS);
}
