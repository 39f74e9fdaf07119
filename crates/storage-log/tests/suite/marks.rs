//! Synced data that cannot be read is always reported. After each sync of a workload, bits flip, files shrink,
//! and segments are lost, swapped or replaced by older ones. Then either all synced data is intact, or both
//! opening and checking the directory find the damage.

use crate::common::{self, Fixture, SEGMENT_BYTES, dynamic, kilobyte, open, options, status};
use kauri_base::{CollectionId, RecordId};
use kauri_conformance::inspect::Reader;
use kauri_conformance::table::{Table, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::faults::Fault;
use kauri_medium::plain::{DirectoryOptions, PlainDirectory};
use kauri_medium::{Dax, Directory, IoKind};
use kauri_storage::{Durability, StorageEngine, WriteUnit};
use kauri_storage_log::format::marks::Mark;
use kauri_storage_log::format::meta::Meta;
use kauri_storage_log::format::record::{Kind, RecordHeader, Seed};
use kauri_storage_log::format::segment::SegmentHeader;
use kauri_storage_log::format::{SEGMENT_HEADER_BYTES, Stream};
use kauri_storage_log::{Options, PmLog, repair, salvage, verify};
use kauri_testkit::Dice;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

const LOG: &str = "pmlog.0";
const META: &str = "kauri.meta";
const MARKS: &str = "pmlog.marks";
const SEGMENT: usize = SEGMENT_BYTES as usize;

/// The media on which all tests run.
fn media() -> [(&'static str, EmulatorConfig); 3] {
    let staging = EmulatorConfig { staging: true, ..EmulatorConfig::default() };
    [
        ("file", EmulatorConfig::default()),
        ("staging", staging),
        ("memory", EmulatorConfig::persistent_memory()),
    ]
}

/// The state of each record at the sync: `None` if it had been deleted.
type Documents = BTreeMap<RecordId, Option<Vec<u8>>>;

const TABLE: CollectionId = CollectionId(10);

/// A directory's files.
#[derive(Clone)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    fn of(image: &Emulator) -> Files {
        let read = |name: String| {
            let bytes = image.read_file(&name).expect("reading").expect("the file");
            (name, bytes)
        };
        Files(image.list().expect("listing").into_iter().map(read).collect())
    }

    fn file(&mut self, name: &str) -> &mut Vec<u8> {
        self.0.get_mut(name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn flip(&mut self, name: &str, at: usize, bit: u8) {
        self.file(name)[at] ^= 1 << bit;
    }

    fn directory(&self, medium: EmulatorConfig) -> Emulator {
        let image = Emulator::new(medium);
        for (name, bytes) in &self.0 {
            if name != LOG {
                image.replace_file(name, bytes, "test").expect("copying");
                continue;
            }
            let log = image.create_log(name, "test").expect("copying");
            log.grow(bytes.len() as u64).expect("growing");
            log.store(0, &[IoSlice::new(bytes)]).expect("storing");
        }
        image
    }

    /// The records by segment of the user stream: their positions and headers.
    fn records(&self) -> Vec<(usize, RecordHeader)> {
        let mut records = Vec::new();
        for (number, bytes) in self.0[LOG].chunks_exact(SEGMENT).enumerate() {
            let header = SegmentHeader::decode(bytes, true);
            let Some(header) = header.filter(|header| header.stream == Stream::User) else {
                continue;
            };
            let seed = Seed::new(header.segment, header.epoch);
            let mut offset = SEGMENT_HEADER_BYTES;
            while let Some(bytes) = bytes[offset as usize..].first_chunk() {
                let Some((record, _)) = RecordHeader::decode(bytes, seed, offset) else { break };
                records.push((number * SEGMENT + offset as usize, record));
                offset += record.record_bytes();
            }
        }
        records
    }
}

/// The state of a damaged directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
enum Found {
    /// All synced data is intact.
    Whole,
    /// Documents return errors.
    Reported,
    /// The directory was rejected.
    Refused,
}

/// Opens and checks a damaged directory: synced data is intact, or both report its loss.
fn judge(files: &Files, medium: EmulatorConfig, synced: &Documents, what: &str) -> Found {
    let check = verify(&files.directory(medium), &mut |_, _| {});
    let matters = check.map_or(1, |report| {
        report.damage.iter().filter(|damage| damage.current != Some(false)).count()
    });
    let found = match PmLog::open(Arc::new(files.directory(medium)), options()) {
        Ok(engine) => read(&Arc::new(engine), synced, what),
        Err(error) => {
            assert!(!error.message().is_empty(), "{what}");
            Found::Refused
        }
    };
    assert!(found == Found::Whole || matters > 0, "{what}: {found:?}, but the check is content");
    found
}

fn read(engine: &Arc<PmLog>, synced: &Documents, what: &str) -> Found {
    assert!(
        engine.record_store(TABLE).is_some(),
        "{what}: the collection is lost without a report"
    );
    let table = Table::new(&dynamic(engine), TABLE.0, &[]);
    let mut found = Found::Whole;
    let store = table.store();
    let mut reader = Reader::new(&**engine);
    for (id, doc) in synced {
        match reader.get(&*store, *id) {
            Ok(stored) => {
                let stored = stored.map(|stored| stored.doc);
                assert!(stored == *doc, "{what}: {id} is {stored:?} in silence, not {doc:?}");
            }
            Err(_) => found = Found::Reported,
        }
    }
    found
}

/// A few small documents, synced, after which the process died.
fn small(medium: EmulatorConfig) -> (Files, Documents) {
    let fixture = Fixture::on(Emulator::new(medium), options());
    for u in 0..3 {
        fixture.table.insert(&doc(0, u, "small"));
    }
    fixture.engine.sync().expect("sync");
    let synced = fixture.contents().into_iter().map(|(id, doc)| (id, Some(doc))).collect();
    (Files::of(&fixture.emulator.process_death_image()), synced)
}

/// The end of the last opened segment.
fn opened(files: &Files) -> usize {
    let segments = files.0[LOG].chunks_exact(SEGMENT);
    let last = segments.map(|bytes| SegmentHeader::decode(bytes, true)).rposition(|h| h.is_some());
    last.map_or(0, |last| (last + 1) * SEGMENT)
}

/// The beginning and end of the user's records.
fn extent(files: &Files) -> (usize, usize) {
    let records = files.records();
    let (last, record) = records[records.len() - 1];
    (records[0].0, last + record.record_bytes() as usize)
}

#[test]
fn every_flipped_bit_of_synced_data_is_found() {
    for (name, medium) in media() {
        let (files, synced) = small(medium);
        let (begin, end) = extent(&files);
        let mut counts = BTreeMap::new();
        let step = if name == "file" { 1 } else { 11 };
        for bit in (8 * begin..8 * end).step_by(step) {
            let mut files = files.clone();
            files.flip(LOG, bit / 8, (bit % 8) as u8);
            let found = judge(&files, medium, &synced, &format!("{name}: bit {bit}"));
            *counts.entry(found).or_insert(0) += 1;
        }
        println!("{name}: {counts:?}");
        assert!(counts[&Found::Reported] > 20 && counts[&Found::Refused] > 20, "{counts:?}");
    }
}

/// The purpose of the mark file: without it the same damage is mistaken for the end of the log.
#[test]
fn without_the_mark_file_the_same_damage_is_silent() {
    for (name, medium) in media() {
        let (mut files, synced) = small(medium);
        let (_, end) = extent(&files);
        files.flip(LOG, end - 8, 1);
        assert_ne!(judge(&files, medium, &synced, name), Found::Whole);
        files.0.remove(MARKS);
        let report = verify(&files.directory(medium), &mut |_, _| {}).expect("the check");
        assert!(report.damage.iter().all(|damage| damage.current == Some(false)), "{name}");
        let engine = open(&files.directory(medium), options());
        let table = Table::new(&dynamic(&engine), TABLE.0, &[]);
        assert!(table.records().len() < synced.len(), "{name}");
    }
}

#[test]
fn every_shorter_log_is_found() {
    for (name, medium) in media() {
        let (mut files, synced) = small(medium);
        let (_, end) = extent(&files);
        // The space behind the opened segments holds no records.
        let opened = opened(&files);
        let cuts = (0..end).step_by(64).chain((end..opened).step_by(8192)).chain([opened - 1]);
        for cut in cuts {
            let mut files = files.clone();
            files.file(LOG).truncate(cut);
            let what = format!("{name}: {cut} bytes");
            assert_eq!(judge(&files, medium, &synced, &what), Found::Refused, "{what}");
        }
        files.file(LOG).truncate(opened);
        assert_eq!(judge(&files, medium, &synced, name), Found::Whole, "{name}");
        // A longer log is not damaged either.
        for more in [1, 511, 4096, SEGMENT, SEGMENT + 1] {
            let mut files = files.clone();
            files.file(LOG).extend(std::iter::repeat_n(0, more));
            let what = format!("{name}: {more} bytes more");
            assert_eq!(judge(&files, medium, &synced, &what), Found::Whole, "{what}");
        }
    }
}

#[test]
fn a_truncated_log_is_refused_with_the_remedy_and_can_be_salvaged() {
    let fixture = Fixture::new(options());
    for u in 0..100 {
        fixture.table.insert(&doc(0, u, &kilobyte(u as u64)));
    }
    fixture.engine.sync().expect("sync");
    let mut files = Files::of(&fixture.emulator.process_death_image());
    let len = opened(&files);
    files.file(LOG).truncate(len / 2 + SEGMENT / 2);
    let medium = EmulatorConfig::default();
    let Err(error) = PmLog::open(Arc::new(files.directory(medium)), options()) else {
        panic!("it was opened");
    };
    let message = error.message();
    assert!(
        message.contains("backup") && message.contains(&format!("truncate -s {len}")),
        "{message}"
    );
    files.file(LOG).resize(len, 0);
    let directory = files.directory(medium);
    let mended = salvage(&directory, &options()).expect("mending");
    assert!(mended.iter().any(|mended| mended.lossy), "{mended:?}");
    let report = verify(&directory, &mut |_, _| {}).expect("the check");
    let shared: Arc<dyn Directory> = Arc::new(directory.clone());
    let repaired = repair(&shared, options(), &report).expect("the repair");
    assert!(!repaired.lost.is_empty(), "the document at the cut");
    let engine = open(&directory, options());
    let left = Table::new(&dynamic(&engine), TABLE.0, &[]).records().len();
    assert!((10..100).contains(&left), "{left} documents");
}

#[test]
fn the_damaged_header_of_a_synced_record_is_named() {
    let (mut files, _) = small(EmulatorConfig::default());
    let records = files.records();
    let (at, header) =
        records.iter().rev().find(|(_, header)| header.kind == Kind::Put).expect("one");
    // In the length, the collection, the record and the sequence.
    for byte in [4, 12, 16, 24] {
        files.flip(LOG, at + byte, 1);
        let directory = files.directory(EmulatorConfig::default());
        let report = verify(&directory, &mut |_, _| {}).expect("the check");
        let named = report.damage.iter().any(|damage| {
            damage.collection == Some(TABLE)
                && damage.record == Some(RecordId(header.record))
                && damage.payload_start.starts_with(&doc(0, 2, "small")[..8])
        });
        assert!(named, "byte {byte}: {:?}", report.damage);
        files.flip(LOG, at + byte, 1);
    }
}

#[test]
fn marks_cost_commits_no_sync_and_an_idle_log_one() {
    for (name, medium) in media() {
        let fixture = Fixture::on(Emulator::new(medium), options());
        let syncs = || {
            let events = 0..fixture.emulator.events();
            let texts = events.filter_map(|at| fixture.emulator.describe_event(at));
            texts.filter(|text| text.contains("begins (marks.drain)")).count()
        };
        let before = syncs();
        for u in 0..200 {
            let mut unit = WriteUnit::new();
            fixture.table.insert_in(&mut unit, &doc(0, u, &kilobyte(1)));
            let ticket = fixture.engine.commit(&mut unit).expect("a commit");
            ticket.wait(Durability::Durable).expect("durable");
        }
        assert_eq!(syncs(), before, "{name}");
        for _ in 0..10 {
            fixture.engine.flush_round().expect("a round");
        }
        assert_eq!(syncs(), before + 1, "{name}");
        // A client's sync leaves no work for later.
        fixture.table.insert(&doc(0, 1000, ""));
        fixture.engine.sync().expect("sync");
        assert_eq!(syncs(), before + 2, "{name}");
        for _ in 0..10 {
            fixture.engine.flush_round().expect("a round");
        }
        assert_eq!(syncs(), before + 2, "{name}");
        assert_eq!(status(&fixture.engine, "log.markSyncs"), 2, "{name}");
    }
}

#[test]
fn a_directory_without_marks_opens_and_has_them_from_then_on() {
    let (mut files, synced) = small(EmulatorConfig::default());
    let medium = EmulatorConfig::default();
    // As an older version without a mark file left it.
    let mut meta = Meta::decode(files.file(META), true).expect("the metadata");
    meta.marks = false;
    *files.file(META) = meta.encode();
    let marks = files.0.remove(MARKS);
    let directory = files.directory(medium);
    assert_eq!(verify(&directory, &mut |_, _| {}).expect("the check").damage, []);
    drop(open(&directory, options()));
    let files = Files::of(&directory.process_death_image());
    assert_eq!(judge(&files, medium, &synced, "an older version's"), Found::Whole);
    assert!(Meta::decode(&files.0[META], true).expect("the metadata").marks);
    // A missing mark file is reported, and no data is lost.
    let (mut files, synced) = small(medium);
    files.0.remove(MARKS);
    let report = verify(&files.directory(medium), &mut |_, _| {}).expect("the check");
    let [damage] = &report.damage[..] else { panic!("{:?}", report.damage) };
    assert!(damage.what.contains("pmlog.marks is missing") && damage.current == Some(false));
    assert_eq!(judge(&files, medium, &synced, "without marks"), Found::Whole);
    for bytes in [Vec::new(), vec![0; 100], vec![0xff; 9000]] {
        files.0.insert(MARKS.to_owned(), bytes);
        let report = verify(&files.directory(medium), &mut |_, _| {}).expect("the check");
        assert!(report.damage[0].what.contains("has no mark"), "{:?}", report.damage);
        assert_eq!(judge(&files, medium, &synced, "without marks"), Found::Whole);
    }
    // Another directory's mark file is ignored here.
    let mut other = small(medium).0;
    let mut meta = Meta::decode(other.file(META), true).expect("the metadata");
    assert!(Mark::decode(&marks.expect("marks"), &meta.directory, true).is_none());
    meta.marks = true;
}

/// If the first mark cannot be stored the directory has no marks, and the next start does not expect any.
#[test]
fn a_directory_whose_first_mark_fails_has_no_marks() {
    let mut without = 0;
    for skip in 0..4 {
        let image = Emulator::new(EmulatorConfig::default());
        image.faults().inject(IoKind::Store, skip, 1, Fault::Eio);
        let Ok(engine) = PmLog::open(Arc::new(image.clone()), options()) else { continue };
        drop(engine);
        image.faults().clear_injections();
        let meta = image.read_file(META).expect("reading").expect("the metadata");
        without += usize::from(!Meta::decode(&meta, true).expect("the metadata").marks);
        let report = verify(&image, &mut |_, _| {}).expect("the check");
        assert!(report.damage.is_empty(), "{skip}: {:?}", report.damage);
    }
    assert!(without > 0);
}

/// Any crash during the marks that follow a sync: the sync stays recorded.
#[test]
fn a_mark_that_is_torn_leaves_the_one_of_the_sync_before() {
    for (name, medium) in media() {
        let fixture = Fixture::on(Emulator::new(medium), options());
        for u in 0..5 {
            fixture.table.insert(&doc(0, u, &format!("<{u}>")));
        }
        fixture.engine.sync().expect("sync");
        let synced: Documents =
            fixture.contents().into_iter().map(|(id, doc)| (id, Some(doc))).collect();
        let emulator = &fixture.emulator;
        let begin = emulator.events();
        for u in 5..9 {
            fixture.table.insert(&doc(0, u, "later"));
            fixture.engine.flush_round().expect("a round");
        }
        for at in begin..=emulator.events() {
            for seed in 0..12 {
                let image = match seed {
                    0 => emulator.process_death_at(at, usize::MAX),
                    1 => emulator.process_death_at(at, 64),
                    2 => emulator.crash_at(at, &mut |_| 0),
                    _ => emulator.crash_seeded(at, seed),
                };
                let mut files = Files::of(&image);
                let log = &files.0[LOG];
                let place = log.windows(3).position(|bytes| bytes == b"<4>").expect("a document");
                files.flip(LOG, place, 0);
                let what = format!("{name}, event {at} of {begin}.., seed {seed}");
                assert_eq!(judge(&files, medium, &synced, &what), Found::Reported, "{what}");
            }
        }
    }
}

/// A workload with syncs, and the states of its directory at earlier ones.
struct Work {
    dice: Dice,
    medium: EmulatorConfig,
    fixture: Fixture,
    documents: Documents,
    earlier: Vec<Files>,
}

impl Work {
    fn change(&mut self) {
        let table = &self.fixture.table;
        let live: Vec<RecordId> =
            self.documents.iter().filter(|(_, doc)| doc.is_some()).map(|(id, _)| *id).collect();
        let u = self.dice.bits() as i64 >> 1;
        let text = kilobyte(self.dice.bits());
        let new = doc(0, u, &text[..self.dice.below(text.len() as u64) as usize]);
        match (self.dice.below(10), self.dice.pick(&live)) {
            (0..2, Some(id)) if live.len() > 10 => {
                table.delete(*id);
                self.documents.insert(*id, None);
            }
            (2..5, Some(id)) => {
                table.update(*id, &new);
                self.documents.insert(*id, Some(new));
            }
            _ => {
                let id = table.insert(&new);
                self.documents.insert(id, Some(new));
            }
        }
    }

    /// Continues, ends with a sync of one kind or another, and returns the files after a crash.
    fn step(&mut self) -> Files {
        for _ in 0..5 + self.dice.below(40) {
            self.change();
        }
        if self.dice.percent(30) {
            self.fixture.engine.flush_round().expect("a round");
            common::clean(&self.fixture.engine);
        }
        // On persistent memory a commit is durable without a sync, and marks follow within an interval.
        let kinds = if self.medium.mapped { 2 } else { 3 };
        let (engine, emulator) = (&self.fixture.engine, &self.fixture.emulator);
        let image = match self.dice.below(kinds) {
            0 => {
                engine.sync().expect("sync");
                emulator.crash_at(emulator.events(), &mut |_| 0)
            }
            1 => {
                for _ in 0..3 {
                    engine.flush_round().expect("a round");
                }
                emulator.crash_seeded(emulator.events(), self.dice.bits())
            }
            _ => {
                let mut unit = WriteUnit::new();
                let new = doc(0, self.dice.bits() as i64 >> 1, "durable");
                let at = self.fixture.table.insert_in(&mut unit, &new);
                let ticket = engine.commit(&mut unit).expect("a commit");
                ticket.wait(Durability::Durable).expect("durable");
                self.documents.insert(unit.ops[at].record, Some(new));
                emulator.process_death_image()
            }
        };
        Files::of(&image)
    }

    /// Writes after the last sync, which may be lost or not.
    fn work_on(&mut self) -> Files {
        let (engine, emulator) = (&self.fixture.engine, &self.fixture.emulator);
        let synced = emulator.events();
        self.fixture.table.insert(&doc(0, self.dice.bits() as i64 >> 1, "not synced"));
        engine.flush();
        if self.dice.percent(50) {
            engine.flush_round().expect("a round");
        }
        let at = synced + self.dice.below((emulator.events() - synced + 1) as u64) as usize;
        Files::of(&emulator.process_death_at(at, self.dice.below(300) as usize))
    }
}

/// Damages files in one way. Returns a description.
fn damage(files: &mut Files, earlier: &[Files], dice: &Dice) -> String {
    let (begin, end) = extent(files);
    let segments = files.0[LOG].len() / SEGMENT;
    let segment = |dice: &Dice| dice.below(segments as u64) as usize * SEGMENT;
    let names: Vec<String> = files.0.keys().cloned().collect();
    match dice.below(12) {
        0 | 1 => {
            let records = files.records();
            let (at, record) = records[dice.below(records.len() as u64) as usize];
            let bit = dice.below(8 * u64::from(record.record_bytes())) as usize;
            files.flip(LOG, at + bit / 8, (bit % 8) as u8);
            format!("bit {bit} of the record at {at} flipped")
        }
        2 => {
            let at = dice.below(files.0[LOG].len() as u64) as usize;
            files.flip(LOG, at, 3);
            format!("the byte at {at} of {begin}..{end}")
        }
        3 => {
            let cut = dice.below(files.0[LOG].len() as u64) as usize;
            files.file(LOG).truncate(cut);
            format!("cut to {cut} bytes")
        }
        4 => {
            let at = segment(dice);
            files.file(LOG)[at..at + SEGMENT].fill(0);
            format!("the segment at {at} is zeros")
        }
        5 => {
            let (one, other) = (segment(dice), segment(dice));
            let bytes = files.0[LOG].clone();
            files.file(LOG)[one..one + SEGMENT].copy_from_slice(&bytes[other..other + SEGMENT]);
            files.file(LOG)[other..other + SEGMENT].copy_from_slice(&bytes[one..one + SEGMENT]);
            format!("the segments at {one} and {other} swapped")
        }
        6 => {
            let at = segment(dice);
            let Some(before) =
                dice.pick(earlier).and_then(|files| files.0[LOG].get(at..at + SEGMENT))
            else {
                return "nothing".to_owned();
            };
            files.file(LOG)[at..at + SEGMENT].copy_from_slice(before);
            format!("the segment at {at} is of an earlier time")
        }
        7 => {
            let name = dice.pick(&names).expect("files");
            let Some(before) = dice.pick(earlier).and_then(|files| files.0.get(name)) else {
                return "nothing".to_owned();
            };
            files.0.insert(name.clone(), before.clone());
            format!("{name} is of an earlier time")
        }
        8 => {
            let name = dice.pick(&names).expect("files").clone();
            files.file(&name).fill(0);
            format!("{name} is zeros")
        }
        9 => {
            let name = dice.pick(&names).expect("files").clone();
            files.0.remove(&name);
            format!("{name} is gone")
        }
        10 => {
            let name = dice.pick(&names).expect("files").clone();
            let at = dice.below(files.0[&name].len() as u64) as usize / 512 * 512;
            let end = (at + 512).min(files.0[&name].len());
            files.file(&name)[at..end].fill(0);
            format!("the sector at {at} of {name} is zeros")
        }
        _ => {
            // Headers of segments, their summaries and trailers.
            let at = segment(dice);
            let at = match dice.below(2) {
                0 => at + dice.below(4096) as usize,
                _ => at + SEGMENT - 1 - dice.below(2048) as usize,
            };
            files.flip(LOG, at, dice.below(8) as u8);
            format!("the byte at {at}")
        }
    }
}

#[test]
fn behind_every_sync_of_a_random_workload() {
    let seed = kauri_testkit::seed(20_261_127);
    let mut counts = BTreeMap::new();
    for (name, medium) in media() {
        let mut work = Work {
            dice: Dice::new(seed),
            medium,
            fixture: Fixture::on(Emulator::new(medium), common::bounded(12)),
            documents: Documents::new(),
            earlier: Vec::new(),
        };
        for round in 0..30 {
            let files = work.step();
            let what = format!("{name}, seed {seed}, round {round}");
            let whole = judge(&files, medium, &work.documents, &what);
            assert_eq!(whole, Found::Whole, "{what}");
            let later = work.work_on();
            for nth in 0..12 {
                let mut files = if work.dice.percent(50) { files.clone() } else { later.clone() };
                let damage = damage(&mut files, &work.earlier, &work.dice);
                let found =
                    judge(&files, medium, &work.documents, &format!("{what}, {nth}: {damage}"));
                *counts.entry((name, found)).or_insert(0) += 1;
            }
            work.earlier.push(files);
            // Later operations decide the fate of unsynced data.
            let contents = work.fixture.contents();
            work.documents.extend(contents.into_iter().map(|(id, doc)| (id, Some(doc))));
            if work.dice.percent(20) {
                work.fixture = work.fixture.reopen();
            }
        }
    }
    println!("{counts:?}");
    for (name, _) in media() {
        for found in [Found::Whole, Found::Reported, Found::Refused] {
            assert!(counts.get(&(name, found)).is_some_and(|count| *count > 5), "{counts:?}");
        }
    }
}

/// On a file system, on memory in place of persistent memory, and with a real staging file: the files of a
/// process that ends abruptly.
#[test]
fn flips_and_truncations_of_real_files_are_found() {
    for dax in [Dax::Off, Dax::Simulated] {
        let path = std::env::temp_dir().join(format!("kauri-marks-{}-{dax:?}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        let directory = || -> Arc<dyn Directory> {
            let options = DirectoryOptions { dax, ..DirectoryOptions::default() };
            Arc::new(PlainDirectory::open_with(&path, options).expect("the directory"))
        };
        let large = Options { cache_bytes: 8 << 20, ..options() };
        let engine = Arc::new(PmLog::open(directory(), large.clone()).expect("opening"));
        let table = Table::create(&dynamic(&engine), TABLE.0, &[]);
        for u in 0..30 {
            table.insert(&doc(0, u, &format!("<{u}>{}", kilobyte(1))));
        }
        engine.sync().expect("sync");
        drop((table, engine));
        let log = path.join(LOG);
        let whole = std::fs::read(&log).expect("the log");
        let at = whole.windows(4).position(|bytes| bytes == b"<17>").expect("a document");
        let reported = |what: &str| {
            let report = verify(&*directory(), &mut |_, _| {}).expect("the check");
            let matters = report.damage.iter().any(|damage| damage.current != Some(false));
            assert!(matters, "{dax:?}, {what}: {report:?}");
            report
        };
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&log, &bytes).expect("writing");
        let report = reported("a document");
        assert_eq!(report.damage[0].record, Some(RecordId(18)), "{dax:?}: {:?}", report.damage);
        let mut bytes = whole.clone();
        bytes[at - 33 - 20] ^= 1;
        std::fs::write(&log, &bytes).expect("writing");
        reported("a header");
        assert!(PmLog::open(directory(), large.clone()).is_err(), "{dax:?}");
        for len in [0, at, SEGMENT - 1] {
            std::fs::write(&log, &whole[..len]).expect("writing");
            reported("a shorter log");
            assert!(PmLog::open(directory(), large.clone()).is_err(), "{dax:?}: {len} bytes");
        }
        std::fs::write(&log, &whole).expect("writing");
        let engine = Arc::new(PmLog::open(directory(), large).expect("opening"));
        assert_eq!(Table::new(&dynamic(&engine), TABLE.0, &[]).records().len(), 30);
        drop(engine);
        std::fs::remove_dir_all(&path).expect("removing");
    }
}
