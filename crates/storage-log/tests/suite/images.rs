//! Index images: a loaded index equals a rebuild, after any later writes. An image with any fault is not used.

use crate::common::{
    self, Fixture, SEGMENT_BYTES, bounded, clean, kilobyte, open, options, status,
};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_base::{RecordId, Result};
use kauri_bson::Doc;
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_medium::Directory;
use kauri_storage::{CollectionId, IndexSpec, KeyGenerator, StorageEngine};
use kauri_storage_log::Options;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const INDEXES: [(u32, bool, &str); 3] = [(20, true, "u"), (21, false, "k"), (22, false, "s")];

fn indexes() -> Vec<TableIndex> {
    INDEXES.iter().map(|(id, unique, field)| TableIndex::new(*id, *unique, field)).collect()
}

/// An engine with a filled table, after a clean shutdown.
fn closed(options: Options, documents: i64) -> Fixture {
    let emulator = common::emulator();
    let engine = open(&emulator, options.clone());
    let table = Table::create(&common::dynamic(&engine), 10, &indexes());
    for u in 0..documents {
        table.insert(&doc(u % 7, u, &format!("text {}", u % 50)));
    }
    engine.close().expect("close");
    Fixture { emulator, options, engine, table }
}

/// Opens the engine again and attaches all indexes.
fn reopen(fixture: Fixture) -> Fixture {
    let Fixture { emulator, options, engine, table } = fixture;
    drop((engine, table));
    let engine = open(&emulator, options.clone());
    let table = Table::new(&common::dynamic(&engine), 10, &indexes());
    table.attach();
    Fixture { emulator, options, engine, table }
}

fn loaded(fixture: &Fixture) -> i64 {
    status(&fixture.engine, "indexImages.loaded")
}

#[test]
fn indexes_are_loaded_without_reading_documents() {
    let mut fixture = closed(options(), 3000);
    for _ in 0..3 {
        fixture = reopen(fixture);
        assert_eq!(loaded(&fixture), 3);
        assert_eq!(status(&fixture.engine, "cache.reads"), 0, "documents were read");
        fixture.table.check();
        fixture.engine.close().expect("close");
        // Nothing has changed: the images are kept.
        assert_eq!(status(&fixture.engine, "indexImages.written"), 0);
    }
}

#[test]
fn changes_after_the_image_come_from_the_documents() {
    let random = SeededRandom::new(5);
    let mut fixture = closed(options(), 2000);
    let mut u = 10_000;
    for round in 0..4 {
        fixture = reopen(fixture);
        assert_eq!(loaded(&fixture), 3, "round {round}");
        fixture.table.check();
        let ids: Vec<RecordId> = fixture.table.records().into_keys().collect();
        for _ in 0..60 {
            let id = ids[random.next_u64() as usize % ids.len()];
            u += 1;
            match random.next_u64() % 3 {
                0 if fixture.table.get(id).is_some() => fixture.table.delete(id),
                1 if fixture.table.get(id).is_some() => {
                    fixture.table.update(id, &doc(3, u, "changed"));
                }
                _ => {
                    fixture.table.insert(&doc(1, u, "new"));
                }
            }
        }
        // No clean shutdown: the images are from the first shutdown.
        fixture.engine.flush();
    }
}

#[test]
fn deleted_records_without_tombstones_stay_deleted() {
    let mut fixture = closed(Options { live_percent_target: 95, ..options() }, 2000);
    fixture = reopen(fixture);
    for id in (1..=2000).filter(|id| id % 3 != 0) {
        fixture.table.delete(RecordId(id));
    }
    for round in 0..3 {
        for u in 0..800 {
            let id = fixture.table.insert(&doc(round, 5000 + u, &kilobyte(u as u64)));
            fixture.table.delete(id);
        }
        fixture.engine.sync().expect("sync");
        fixture.engine.flush_round().expect("sealing");
        clean(&fixture.engine);
    }
    fixture = reopen(fixture);
    fixture.table.check();
    assert_eq!(fixture.table.records().len(), 666);
}

/// Damages each image record in turn: the index is rebuilt and equals the original.
#[test]
fn a_damaged_image_is_not_used() {
    let fixture = closed(options(), 2000);
    let log = fixture.emulator.open_log("pmlog.0").expect("the log");
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    let is_image = |segment: &[u8]| segment[44] == 16 && segment.starts_with(b"KAURISEG");
    let segments = bytes.chunks(SEGMENT_BYTES as usize).zip(0u64..);
    let images: Vec<u64> =
        segments.filter(|(bytes, _)| is_image(bytes)).map(|(_, number)| number).collect();
    assert!(!images.is_empty());
    let (mut rebuilt, mut used) = (0, 0);
    for at in (4096..SEGMENT_BYTES).step_by(797) {
        let place = images[0] * u64::from(SEGMENT_BYTES) + u64::from(at);
        let image = fixture.emulator.process_death_image();
        let log = image.open_log("pmlog.0").expect("the log");
        log.store(place, &[IoSlice::new(&[bytes[place as usize] ^ 4])]).expect("storing");
        let engine = open(&image, options());
        let table = Table::new(&common::dynamic(&engine), 10, &indexes());
        table.attach();
        table.check();
        match status(&engine, "indexImages.loaded") {
            3 => used += 1,
            _ => rebuilt += 1,
        }
    }
    assert!(rebuilt > 20, "{rebuilt} rebuilt, {used} images used");
}

#[test]
fn the_cleaner_takes_images_when_room_is_needed() {
    let mut fixture = closed(bounded(24), 500);
    fixture = reopen(fixture);
    let mut inserted = 0;
    while fixture.table.try_insert(&doc(0, 10_000 + inserted, &kilobyte(1))).is_ok() {
        inserted += 1;
    }
    assert!(inserted > 900, "only {inserted} documents fit beside images");
    fixture.engine.close().expect("close");
    // There is no room for images now; the indexes are still right.
    fixture = reopen(fixture);
    fixture.table.check();
    assert_eq!(fixture.table.records().len() as i64, 500 + inserted);
}

/// Counts the documents that it was given.
struct Counting(AtomicU64, Option<u64>);

impl KeyGenerator for Counting {
    fn generate(&self, _: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        emit(&number.to_be_bytes(), &[]);
        Ok(())
    }

    fn image_tag(&self) -> Option<u64> {
        self.1
    }

    fn learned(&self) -> Vec<u8> {
        self.0.load(Ordering::SeqCst).to_le_bytes().to_vec()
    }

    fn learn(&self, learned: &[u8]) {
        let learned = learned.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.0.store(learned, Ordering::SeqCst);
    }
}

#[test]
fn an_image_belongs_to_a_definition_and_keeps_the_generators_state() {
    let fixture = closed(options(), 100);
    let attach = |tag, unique| {
        let engine = open(&fixture.emulator, options());
        let generator = Arc::new(Counting(AtomicU64::new(0), tag));
        let spec = IndexSpec { id: kauri_base::IndexId(99), unique };
        let attached = engine.attach_index(CollectionId(10), spec, generator.clone());
        attached.expect("attaching");
        (engine, generator)
    };
    let (engine, _) = attach(Some(1), false);
    engine.close().expect("close");
    drop(engine);
    // Loaded: no keys are generated, and the state of the other generator is known.
    for (tag, unique, is_loaded) in [
        (Some(1), false, true),
        (Some(2), false, false),
        (Some(1), true, false),
        (None, false, false),
    ] {
        let (engine, generator) = attach(tag, unique);
        assert_eq!(status(&engine, "indexImages.loaded"), i64::from(is_loaded), "{tag:?} {unique}");
        assert_eq!(generator.0.load(Ordering::SeqCst), 100);
    }
}
