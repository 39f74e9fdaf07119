//! Indexes on `_id` are built from segment summaries, all other indexes of a collection in one pass over its
//! documents. The result equals that of an ordinary build, whatever the log's history.

use crate::common::{self, SEGMENT_BYTES, clean, kilobyte, open, options};
use kauri_base::clock::SeededRandom;
use kauri_base::{CollectionId, CommitSeq, IndexId, RandomSource, RecordId, Result};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_conformance::inspect;
use kauri_emulator::Emulator;
use kauri_medium::Directory;
use kauri_storage::{IndexSpec, KeyGenerator, OpKind, StorageEngine, StorageError, WriteUnit};
use kauri_storage_log::{Options, PmLog, verify};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const BIG: CollectionId = CollectionId(10);
const SMALL: CollectionId = CollectionId(11);

/// Makes keys of `_id`, and counts the complete documents that it was given.
#[derive(Default)]
struct IdKeys {
    is_of_id: bool,
    whole: AtomicU64,
    /// The addresses of the documents.
    places: Mutex<Vec<usize>>,
}

impl KeyGenerator for IdKeys {
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        match doc.value("_id") {
            Value::Int32(number) => emit(&i64::from(number).to_be_bytes(), &[16]),
            Value::Int64(number) => emit(&number.to_be_bytes(), &[18]),
            Value::ObjectId(id) => emit(&id, &[7]),
            Value::String(text) => emit(text.as_bytes(), &[2]),
            _ => {}
        }
        if doc.count() > 1 {
            self.whole.fetch_add(1, Ordering::Relaxed);
            self.places.lock().unwrap().push(doc.as_bytes().as_ptr() as usize);
        }
        Ok(())
    }

    fn is_of_id(&self) -> bool {
        self.is_of_id
    }
}

fn spec(id: u32) -> IndexSpec {
    IndexSpec { id: IndexId(id), unique: false }
}

/// Attaches an index; returns its entries and the number of documents read.
fn attach(
    engine: &PmLog,
    collection: CollectionId,
    is_of_id: bool,
) -> std::result::Result<(Vec<inspect::Entry>, u64), StorageError> {
    let keys = Arc::new(IdKeys { is_of_id, ..IdKeys::default() });
    let index = if is_of_id { 20 } else { 21 } + collection.0;
    engine.attach_index(collection, spec(index), keys.clone())?;
    Ok((inspect::entries(engine, IndexId(index))?, keys.whole.load(Ordering::Relaxed)))
}

/// Writes documents with all kinds of `_id` and remembers them.
struct Writer {
    random: SeededRandom,
    next: u64,
    records: BTreeMap<(CollectionId, RecordId), (CommitSeq, u8)>,
}

impl Writer {
    fn new(seed: u64) -> Self {
        Writer { random: SeededRandom::new(seed), next: 0, records: BTreeMap::new() }
    }

    fn create(&self, engine: &PmLog) {
        for id in [BIG, SMALL] {
            let mut unit = WriteUnit::new();
            unit.push(id, RecordId(0), OpKind::CreateStore);
            engine.commit(&mut unit).expect("commit");
        }
    }

    fn document(&mut self) -> (Vec<u8>, u8) {
        self.next += 1;
        let dice = self.random.next_u64();
        let (id, kind) = match dice % 16 {
            0 => (Value::from("text"), 2),
            1 => (Value::Int32(dice as i32), 0),
            2 => (Value::Int64(dice as i64), 0),
            3..6 => (Value::Int64(self.next as i64), 0),
            6 => (Value::ObjectId(std::array::from_fn(|n| (dice >> n) as u8)), 0),
            _ => {
                let mut id = [9; 12];
                id[4..].copy_from_slice(&self.next.to_be_bytes());
                (Value::ObjectId(id), 0)
            }
        };
        let text = kilobyte(dice);
        let doc = DocBuf::build(|out| {
            out.put_value("_id", &id);
            out.put("text", &text[..(dice >> 50) as usize % 400 + 8]);
        });
        (doc.into_vec(), kind)
    }

    fn work(&mut self, engine: &PmLog, units: usize) {
        for _ in 0..units {
            let mut unit = WriteUnit::new();
            let mut kinds = Vec::new();
            for _ in 0..1 + self.random.next_u64() % 4 {
                let dice = self.random.next_u64();
                let collection = if dice.is_multiple_of(40) { SMALL } else { BIG };
                let of = self.records.range((collection, RecordId(0))..);
                let nth = (dice >> 8) as usize % (self.records.len() + 1);
                let found = of.take_while(|((id, _), _)| *id == collection).nth(nth);
                let found = found.map(|((_, record), (seen, kind))| (*record, *seen, *kind));
                let used = |record| unit.ops.iter().any(|op| op.record == record);
                match found.filter(|(record, ..)| !used(*record)) {
                    Some((record, seen, _)) if dice.is_multiple_of(5) => {
                        unit.delete(collection, record, seen);
                        kinds.push(None);
                    }
                    Some((record, seen, _)) if dice % 5 < 3 => {
                        let (doc, kind) = self.document();
                        unit.update(collection, record, seen, doc);
                        kinds.push(Some(kind));
                    }
                    _ => {
                        let (doc, kind) = self.document();
                        unit.insert(collection, doc);
                        kinds.push(Some(kind));
                    }
                }
            }
            let seq = engine.commit(&mut unit).expect("commit").seq;
            for (op, kind) in unit.ops.iter().zip(kinds) {
                match kind {
                    Some(kind) => self.records.insert((op.collection, op.record), (seq, kind)),
                    None => self.records.remove(&(op.collection, op.record)),
                };
            }
            engine.flush();
        }
    }

    /// The number of records, and of those whose `_id` no summary has.
    fn counts(&self, collection: CollectionId) -> (u64, u64) {
        let of = self.records.iter().filter(|((id, _), _)| *id == collection);
        let kinds: Vec<u8> = of.map(|(_, (_, kind))| *kind).collect();
        (kinds.len() as u64, kinds.iter().filter(|kind| **kind == 2).count() as u64)
    }
}

/// Checks both collections' indexes, built in both ways.
fn check(emulator: &Emulator, options: &Options, writer: &Writer, what: &str) {
    let engine = open(emulator, options.clone());
    for collection in [BIG, SMALL] {
        let (records, texts) = writer.counts(collection);
        let (by_id, looked_at) = attach(&engine, collection, true).expect("attaching");
        let (by_documents, all) = attach(&engine, collection, false).expect("attaching");
        assert_eq!(by_id, by_documents, "{what}");
        assert_eq!((by_id.len() as u64, all), (records, records), "{what}");
        if collection == BIG {
            assert_eq!(looked_at, texts, "{what}: documents that had to be read");
        }
    }
}

#[test]
fn keys_from_summaries_are_those_of_the_documents() {
    for seed in 0..4 {
        let mut writer = Writer::new(seed);
        let emulator = common::emulator();
        let options = Options { live_percent_target: 90, ..options() };
        let mut engine = open(&emulator, options.clone());
        writer.create(&engine);
        for round in 0..4 {
            let what = format!("seed {seed}, round {round}");
            writer.work(&engine, 400);
            check(&emulator.process_death_image(), &options, &writer, &what);
            engine.sync().expect("sync");
            engine.flush_round().expect("sealing");
            clean(&engine);
            check(&emulator.process_death_image(), &options, &writer, &what);
            if round % 2 == 0 {
                engine.close().expect("close");
                check(&emulator.process_death_image(), &options, &writer, &what);
            }
            drop(engine);
            engine = open(&emulator, options.clone());
        }
        assert!(common::status(&engine, "segments") > 10);
    }
}

fn filled() -> (Emulator, Writer) {
    let mut writer = Writer::new(7);
    let emulator = common::emulator();
    let engine = open(&emulator, options());
    writer.create(&engine);
    writer.work(&engine, 800);
    engine.close().expect("close");
    (emulator, writer)
}

#[test]
fn a_damaged_document_keeps_its_place_in_the_index_on_ids() {
    let (emulator, writer) = filled();
    let log = emulator.open_log("pmlog.0").expect("the log");
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    let texts = bytes.windows(6).enumerate();
    let mut places =
        texts.filter(|(at, window)| *window == b"\x02text\0" && at % SEGMENT_BYTES as usize > 4096);
    let mut damaged = 0;
    while damaged < 3 {
        let (at, _) = places.next().expect("a document");
        let image = emulator.process_death_image();
        let log = image.open_log("pmlog.0").expect("the log");
        log.store(at as u64 + 12, &[IoSlice::new(&[bytes[at + 12] ^ 1])]).expect("storing");
        let report = verify(&image, &mut |_, _| {}).expect("the check");
        let [damage] = &report.damage[..] else { panic!("{:?}", report.damage) };
        if damage.current != Some(true) || damage.collection != Some(BIG) {
            continue;
        }
        let engine = open(&image, options());
        let (entries, _) = match attach(&engine, BIG, true) {
            // Summaries do not hold this `_id`.
            Err(StorageError::Corruption { .. }) => continue,
            attached => attached.expect("attaching"),
        };
        assert_eq!(entries.len() as u64, writer.counts(BIG).0);
        match attach(&engine, BIG, false) {
            Err(StorageError::Corruption { collection, record, .. }) => {
                assert_eq!((collection, record), (damage.collection, damage.record));
            }
            other => panic!("{other:?}"),
        }
        damaged += 1;
    }
}

#[test]
fn one_pass_over_the_documents_serves_all_indexes() {
    let (emulator, writer) = filled();
    let engine = open(&emulator, Options { open_threads: 1, ..options() });
    let keys: Vec<_> = (0..3).map(|_| Arc::new(IdKeys::default())).collect();
    let wanted: Vec<(IndexSpec, Arc<dyn KeyGenerator>)> =
        keys.iter().zip(50..).map(|(keys, id)| (spec(id), keys.clone() as _)).collect();
    for attached in engine.attach_indexes(BIG, &wanted) {
        attached.expect("attaching");
    }
    let places = |n: usize| keys[n].places.lock().unwrap().clone();
    assert_eq!(places(0).len() as u64, writer.counts(BIG).0);
    // The bytes are the same each time, so the document is read once.
    assert!(places(0) == places(1) && places(0) == places(2));
    let entries = |id| inspect::entries(&*engine, IndexId(id)).expect("entries");
    assert!(entries(50) == entries(51) && !entries(50).is_empty());
    assert_eq!(
        common::status(&engine, "cache.reads"),
        0,
        "the documents were read through the cache"
    );
}

#[test]
fn a_unique_index_that_fails_fails_alone() {
    let (emulator, _) = filled();
    let engine = open(&emulator, options());
    let keys = || -> Arc<dyn KeyGenerator> { Arc::new(IdKeys::default()) };
    // Several documents have the same text as `_id`.
    let unique = IndexSpec { unique: true, ..spec(51) };
    let attached = engine.attach_indexes(BIG, &[(spec(50), keys()), (unique, keys())]);
    assert_eq!(attached[0], Ok(()));
    assert!(matches!(attached[1], Err(StorageError::Corruption { .. })), "{:?}", attached[1]);
    assert!(engine.index(IndexId(51)).is_none());
}

#[test]
fn later_writes_and_moves_are_indexed() {
    let (emulator, mut writer) = filled();
    for what in ["written", "moved"] {
        let engine = open(&emulator.process_death_image(), options());
        if what == "written" {
            writer.work(&engine, 5);
        } else {
            clean(&engine);
        }
        let (by_id, _) = attach(&engine, BIG, true).expect("attaching");
        let (by_documents, _) = attach(&engine, BIG, false).expect("attaching");
        assert_eq!(by_id, by_documents, "{what}");
        if what == "written" {
            assert_eq!(by_id.len() as u64, writer.counts(BIG).0);
        }
    }
}
