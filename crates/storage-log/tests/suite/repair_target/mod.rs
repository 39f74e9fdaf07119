//! Damaged directories, and the invariants that a repair keeps at every moment.

pub mod crashes;

use crate::common::{self, SEGMENT_BYTES, dynamic, open, options};
use kauri_base::{CollectionId, RecordId};
use kauri_conformance::inspect::Reader;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::Directory;
use kauri_storage::{StorageEngine, StorageError};
use kauri_storage_log::format::Stream;
use kauri_storage_log::format::record::{Kind, RecordHeader, Seed};
use kauri_storage_log::format::segment::{HEADER_END, SegmentHeader, Trailer};
use kauri_storage_log::{Options, PmLog, Report, repair, salvage, verify};
use kauri_testkit::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

pub const SEGMENT: usize = SEGMENT_BYTES as usize;
const LOG: &str = "pmlog.0";
const COLLECTION: CollectionId = CollectionId(10);
/// Number of documents inserted at first.
const DOCUMENTS: u64 = 150;

pub type Docs = BTreeMap<RecordId, Vec<u8>>;

/// The bytes of the log.
pub fn log_bytes(image: &Emulator) -> Vec<u8> {
    let log = image.open_log(LOG).expect("the log");
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    bytes
}

/// A directory after a shutdown or a crash, and its contents.
pub struct Whole {
    pub image: Emulator,
    log: Vec<u8>,
    docs: Docs,
    /// All versions that each record ever had.
    ever: BTreeMap<RecordId, BTreeSet<Vec<u8>>>,
    /// Segments whose records are recorded as durable: by number and epoch.
    segments: Vec<(usize, u64)>,
}

impl Whole {
    /// Documents of which some are superseded, some deleted, some moved by the cleaner.
    pub fn new(medium: EmulatorConfig, seed: u64, clean_shutdown: bool) -> Whole {
        let dice = Dice::new(seed);
        let image = Emulator::new(medium);
        let engine = open(&image, of_repair());
        let table = Table::create(&dynamic(&engine), COLLECTION.0, &[index()]);
        let mut docs = Docs::new();
        let mut ever: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        // A lost record may be as long as a mark with contents.
        let text = |dice: &Dice| match dice.below(3) {
            0 => "x".repeat(45),
            1 => "y".repeat(dice.below(600) as usize),
            _ => common::kilobyte(dice.bits()),
        };
        let mut unique = 0;
        let mut work = |count: u64, insert_percent: u64| {
            for _ in 0..count {
                unique += 1;
                let new = doc(0, unique, &text(&dice));
                let old = docs.keys().nth(dice.below(docs.len() as u64) as usize).copied();
                let id = match old.filter(|_| !dice.percent(insert_percent)) {
                    Some(id) if dice.percent(30) => {
                        table.delete(id);
                        docs.remove(&id);
                        continue;
                    }
                    Some(id) => {
                        table.update(id, &new);
                        id
                    }
                    None => table.insert(&new),
                };
                ever.entry(id).or_default().insert(new.clone());
                docs.insert(id, new);
            }
        };
        work(DOCUMENTS, 100);
        work(DOCUMENTS, 30);
        engine.sync().expect("sync");
        engine.flush_round().expect("sealing");
        common::clean(&engine);
        engine.sync().expect("sync");
        let durable = segments(&log_bytes(&image));
        // Headers of these segments, and marks, record the earlier data as durable.
        for _ in 0..30 {
            work(5, 90);
            engine.sync().expect("sync");
        }
        engine.flush_round().expect("sealing");
        if clean_shutdown {
            engine.close().expect("close");
        }
        drop((table, engine));
        let image = image.crash_at(image.events(), &mut |choice| choice.options - 1);
        let log = log_bytes(&image);
        let segments = segments(&log);
        let known = |at: &(usize, u64)| clean_shutdown || durable.contains(at);
        let segments = segments.into_iter().filter(known).collect();
        Whole { image, log, docs, ever, segments }
    }

    /// The directory with damage, all of it durable.
    pub fn damaged(&self, dice: &Dice) -> Damaged<'_> {
        let mut log = self.log.clone();
        let mut ranges = Vec::new();
        let mut what = Vec::new();
        for _ in 0..=dice.below(4) {
            let (name, changed) = self.damage(&mut log, dice);
            what.push(name);
            ranges.extend(changed);
        }
        let file = self.image.process_death_image();
        let medium = file.open_log(LOG).expect("the log");
        medium.store(0, &[IoSlice::new(&log)]).expect("storing");
        medium.persist(0, log.len() as u64, "test").expect("persisting");
        medium.drain("test").expect("draining");
        let image = file.crash_at(file.events(), &mut |_| 0);
        assert!(log_bytes(&image) == log);
        let touched = self.touched(&ranges);
        Damaged { whole: self, image, log, touched, what }
    }

    /// Damages one place. Returns the range of useful bytes that changed.
    fn damage(&self, log: &mut [u8], dice: &Dice) -> (&'static str, Option<Range<usize>>) {
        let (segment, epoch) = *dice.pick(&self.segments).expect("a segment");
        let start = segment * SEGMENT;
        let puts =
            records(&self.log, segment, epoch).into_iter().filter(|(_, h)| h.kind == Kind::Put);
        let puts: Vec<_> = puts.collect();
        let (at, header) = *dice.pick(&puts).expect("a document");
        let mut noise = |range: Range<usize>| {
            log[range.clone()].iter_mut().for_each(|byte| *byte = dice.bits() as u8);
            range
        };
        let trailer = start + SEGMENT - 64;
        match dice.below(9) {
            0 | 1 => {
                let bit = dice.below(u64::from(header.payload_len) * 8) as usize;
                log[at + 32 + bit / 8] ^= 1 << (bit % 8);
                ("a payload's bit", Some(at + 32 + bit / 8..at + 33 + bit / 8))
            }
            2 => {
                let bit = dice.below(32 * 8) as usize;
                log[at + bit / 8] ^= 1 << (bit % 8);
                ("a header's bit", Some(at + bit / 8..at + bit / 8 + 1))
            }
            3 => {
                noise(trailer..trailer + 64);
                ("a header, and the trailer", Some(noise(at..at + 32)))
            }
            4 => {
                noise(start..start + 4096);
                ("a segment's header", None)
            }
            5 => {
                noise(start..start + HEADER_END);
                ("a copy of a segment's header", None)
            }
            6 => {
                if let Some(trailer) =
                    Trailer::decode(&self.log[trailer..][..64], SEGMENT_BYTES, true)
                {
                    let summary = start + trailer.summary_offset as usize;
                    noise(summary..summary + trailer.summary_bytes as usize);
                }
                ("a summary", None)
            }
            7 => {
                let from = start + 4096 + dice.below(SEGMENT as u64 - 8192) as usize / 512 * 512;
                ("sectors", Some(noise(from..from + 512 * (1 + dice.below(6) as usize))))
            }
            _ => {
                noise(start..start + 4096 + 600);
                // The epoch of the remaining records is no longer known.
                ("a segment's beginning", Some(start..start + SEGMENT))
            }
        }
    }

    /// The records that have bytes in these ranges.
    fn touched(&self, ranges: &[Range<usize>]) -> BTreeSet<RecordId> {
        let mut touched = BTreeSet::new();
        for (segment, epoch) in segments(&self.log) {
            for (at, header) in records(&self.log, segment, epoch) {
                let end = at + header.record_bytes() as usize;
                if ranges.iter().any(|range| range.start < end && at < range.end) {
                    touched.insert(RecordId(header.record));
                }
            }
        }
        touched
    }
}

fn of_repair() -> Options {
    Options { open_threads: 1, ..options() }
}

fn index() -> TableIndex {
    TableIndex::new(20, true, "u")
}

/// The segments with documents, by number and epoch.
fn segments(log: &[u8]) -> Vec<(usize, u64)> {
    let headers = log.chunks_exact(SEGMENT).map(|bytes| SegmentHeader::decode(bytes, true));
    let used = headers.enumerate().filter_map(|(n, header)| Some((n, header?.epoch)));
    let is_put = |(_, header): &(usize, RecordHeader)| header.kind == Kind::Put;
    used.filter(|(n, epoch)| records(log, *n, *epoch).iter().any(is_put)).collect()
}

/// The records of the collection in a segment: their positions in the log, and their headers.
fn records(log: &[u8], segment: usize, epoch: u64) -> Vec<(usize, RecordHeader)> {
    let (seed, mut offset) = (Seed::new(segment as u32, epoch), 4096);
    let (mut found, bytes) = (Vec::new(), &log[segment * SEGMENT..(segment + 1) * SEGMENT]);
    while let Some(header) = bytes.get(offset as usize..).and_then(|bytes| bytes.first_chunk()) {
        let Some((header, _)) = RecordHeader::decode(header, seed, offset) else { break };
        if matches!(header.kind, Kind::Put | Kind::Tombstone) {
            found.push((segment * SEGMENT + offset as usize, header));
        }
        offset += header.record_bytes();
    }
    found
}

/// A piece that a repair must move aside: its segment and offset, and its bytes.
pub type Piece = ((u32, u32), Vec<u8>);

/// Does the work of `kauri check --repair`. Returns the pieces moved aside.
pub fn repair_all(directory: &Emulator) -> Result<Vec<Piece>, String> {
    repair_in_steps(directory).map(|(pieces, _)| pieces)
}

/// The event after which the log could be followed, and whether data was given up for it.
#[derive(Clone, Copy)]
pub struct Salvaged {
    /// The event.
    pub at: usize,
    lossy: bool,
}

/// The same, with the event after which the log could be followed.
fn repair_in_steps(directory: &Emulator) -> Result<(Vec<Piece>, Salvaged), String> {
    let failed = |error: kauri_base::Error| error.to_string();
    let dynamic: Arc<dyn Directory> = Arc::new(directory.clone());
    let mut report = verify(directory, &mut |_, _| {}).map_err(failed)?;
    if report.damage.is_empty() {
        return Ok((Vec::new(), Salvaged { at: directory.events(), lossy: false }));
    }
    let mut files = Vec::new();
    let mended = salvage(directory, &of_repair()).map_err(failed)?;
    let lossy = mended.iter().any(|mended| mended.lossy);
    let salvaged = Salvaged { at: directory.events(), lossy };
    if !mended.is_empty() {
        report = verify(directory, &mut |_, _| {}).map_err(failed)?;
    }
    files.extend(mended.into_iter().map(|mended| (mended.damage, mended.file)));
    let repaired = repair(&dynamic, of_repair(), &report).map_err(failed)?;
    files.extend(repaired.lost);
    let piece = |(damage, file): (kauri_storage_log::Damage, String)| {
        let bytes = directory.read_file(&file).ok().flatten();
        let bytes = bytes.ok_or_else(|| format!("{file} is not there"))?;
        Ok(((damage.segment, damage.offset), bytes))
    };
    let pieces = files.into_iter().map(piece).collect::<Result<_, String>>()?;
    Ok((pieces, salvaged))
}

/// The relevant places that a check reports.
fn reported(report: &Report) -> impl Iterator<Item = (u32, u32)> {
    let matters = report.damage.iter().filter(|damage| damage.current != Some(false));
    matters.map(|damage| (damage.segment, damage.offset))
}

/// A damaged directory.
pub struct Damaged<'w> {
    whole: &'w Whole,
    pub image: Emulator,
    log: Vec<u8>,
    touched: BTreeSet<RecordId>,
    pub what: Vec<&'static str>,
}

/// The result of an undisturbed repair.
pub struct Outcome {
    pub salvaged: Salvaged,
    pieces: Vec<Piece>,
    docs: Docs,
}

impl Damaged<'_> {
    /// Repairs the directory, without one safeguard if it is named. Returns the repaired directory with its
    /// trace, and the outcome.
    pub fn repaired(&self, without: Option<&str>) -> (Emulator, Outcome) {
        let image = self.image.process_death_image();
        without.into_iter().for_each(|label| image.faults().disable(label));
        let (pieces, salvaged) = repair_in_steps(&image).unwrap_or_else(|error| panic!("{error}"));
        let copy = image.process_death_image();
        for ((segment, offset), bytes) in &pieces {
            let at = *segment as usize * SEGMENT + *offset as usize;
            assert!(self.log[at..].starts_with(bytes), "the piece aside of {segment}.{offset}");
        }
        let report = verify(&copy, &mut |_, _| {}).expect("the check");
        assert_eq!(reported(&report).collect::<Vec<_>>(), []);
        let docs = self.docs(&copy).unwrap_or_else(|error| panic!("{error:?}"));
        let docs = docs.into_iter().map(|(id, doc)| {
            (id, doc.unwrap_or_else(|error| panic!("{id} can't be read: {error:?}")))
        });
        (image, Outcome { salvaged, pieces, docs: docs.collect() })
    }

    /// The documents of a directory, and the errors of its reads; all untouched data must be unchanged.
    fn docs(
        &self,
        image: &Emulator,
    ) -> Result<BTreeMap<RecordId, Result<Vec<u8>, StorageError>>, kauri_base::Error> {
        let engine = PmLog::open(Arc::new(image.clone()), of_repair())?;
        let mut docs = BTreeMap::new();
        let store = engine.record_store(COLLECTION);
        for id in self.whole.ever.keys().copied() {
            let read = store.as_ref().map(|store| Reader::new(&engine).get(&**store, id));
            let read = read.transpose().map(Option::flatten);
            let read = read.map(|found| found.map(|stored| stored.doc)).transpose();
            let (expected, ever) = (self.whole.docs.get(&id), &self.whole.ever[&id]);
            match &read {
                _ if !self.touched.contains(&id) => {
                    let same = read.as_ref().map(|doc| doc.as_ref().ok()) == expected.map(Some);
                    assert!(same, "{id} was whole, and is {read:?}");
                }
                Some(Ok(doc)) => assert!(ever.contains(doc), "{id} never was {doc:?}"),
                _ => {}
            }
            docs.extend(read.map(|read| (id, read)));
        }
        Ok(docs)
    }

    /// Checks the work that must be durable once the log can be followed.
    pub fn check_salvaged(&self, image: &Emulator, outcome: &Outcome) {
        let log = log_bytes(image);
        for segment in log.chunks_exact(SEGMENT).filter(|_| outcome.salvaged.lossy) {
            let header = SegmentHeader::decode(segment, true);
            let Some(header) = header.filter(|h| h.stream == Stream::Image) else { continue };
            let trailer = Trailer::decode(&segment[SEGMENT - 64..], SEGMENT_BYTES, true);
            let found = trailer.is_some_and(|trailer| trailer.epoch == header.epoch);
            assert!(!found, "images are left that show what was given up");
        }
        let again = salvage(image, &of_repair()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, [], "what was mended was not durable");
    }

    /// Checks the state after a crash during a repair: all intact data, and of each piece either the damage,
    /// which a check reports, or the copy.
    pub fn check_crashed(&self, image: &Emulator, outcome: &Outcome) {
        let looked_at = image.process_death_image();
        let report = verify(&looked_at, &mut |_, _| {}).expect("the check");
        let places: BTreeSet<_> = reported(&report).collect();
        let opened = self.docs(&looked_at);
        assert!(opened.is_ok() || !places.is_empty(), "{:?}", opened.err());
        let log = log_bytes(image);
        for piece in &outcome.pieces {
            let ((segment, offset), bytes) = piece;
            let at = *segment as usize * SEGMENT + *offset as usize;
            let there = log[at..].starts_with(bytes);
            // If the log can't be followed, a check can't name all damage.
            let named = match opened.is_ok() {
                true => places.contains(&(*segment, *offset)),
                false => !places.is_empty(),
            };
            assert!(
                there && named || is_aside(image, piece),
                "{segment}.{offset} is neither reported nor aside: {there} {named} {:?} {:?}",
                opened.err(),
                report.damage
            );
        }
    }

    /// Checks the state after a completed repair, whatever crashed before it.
    pub fn check_repaired(&self, image: &Emulator, outcome: &Outcome) {
        for piece in &outcome.pieces {
            assert!(is_aside(image, piece), "{:?} is not aside", piece.0);
        }
        let report = verify(image, &mut |_, _| {}).expect("the check");
        assert_eq!(reported(&report).collect::<Vec<_>>(), []);
        let docs = self.docs(image).unwrap_or_else(|error| panic!("{error:?}"));
        let found: Docs = docs.into_iter().filter_map(|(id, doc)| Some((id, doc.ok()?))).collect();
        assert!(found == outcome.docs, "a disturbed repair ends otherwise");
        let engine = open(image, of_repair());
        let table = Table::new(&dynamic(&engine), COLLECTION.0, &[index()]);
        if engine.stores().contains(&COLLECTION) {
            table.attach();
            table.check();
        }
    }
}

/// Whether one of the files aside holds all of a piece.
fn is_aside(image: &Emulator, ((segment, offset), bytes): &Piece) -> bool {
    let name = format!("quarantine.{segment}.{offset}");
    let names = image.list().expect("the files");
    let mut of_piece = names.iter().filter(|file| {
        let rest = file.strip_prefix(&name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    of_piece.any(|file| image.read_file(file).expect("reading").as_ref() == Some(bytes))
}
