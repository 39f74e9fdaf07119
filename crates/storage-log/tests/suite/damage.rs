//! Damaged media: damage is detected, named, and not mistaken for the end of the log. Also rejected directories
//! and failing media.

use crate::common::{self, Fixture, SEGMENT_BYTES, dynamic, emulator, kilobyte, open, options};
use kauri_base::{Access, CollectionId, ErrorCode, RecordId};
use kauri_conformance::table::{Table, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::faults::Fault;
use kauri_medium::{Directory, IoKind};
use kauri_storage::{Durability, StorageEngine, StorageError, WriteUnit};
use kauri_storage_log::{Options, PmLog, verify};
use std::io::IoSlice;
use std::sync::Arc;

const LOG: &str = "pmlog.0";
const META: &str = "kauri.meta";

fn log_bytes(emulator: &Emulator) -> Vec<u8> {
    let log = emulator.open_log(LOG).expect("the log");
    let mut bytes = vec![0; log.len() as usize];
    log.read(0, &mut bytes).expect("reading");
    bytes
}

fn flip(emulator: &Emulator, at: usize, bit: u8) {
    let byte = log_bytes(emulator)[at] ^ 1 << bit;
    let log = emulator.open_log(LOG).expect("the log");
    log.store(at as u64, &[IoSlice::new(&[byte])]).expect("storing");
}

/// The position of a text in the log.
fn find(emulator: &Emulator, text: &str) -> usize {
    let bytes = log_bytes(emulator);
    let place = bytes.windows(text.len()).position(|window| window == text.as_bytes());
    place.expect("the text is in the log")
}

fn refused(emulator: &Emulator) -> kauri_base::Error {
    match PmLog::open(Arc::new(emulator.clone()), options()) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

fn get(engine: &Arc<PmLog>, id: u64) -> Result<bool, StorageError> {
    let store = engine.record_store(CollectionId(10)).expect("the store");
    let mut unit = engine.recovery_unit();
    loop {
        unit.enter();
        let ticket = match store.get(&*unit, RecordId(id))? {
            Access::Ready(record) => return Ok(record.is_some()),
            Access::WouldBlock(ticket) => ticket,
        };
        unit.leave();
        ticket.wait().expect("reading");
    }
}

/// 200 documents, of which `id` has the text `id…`, in sealed segments and an open one.
fn filled(clean_shutdown: bool) -> (Emulator, Options) {
    let fixture = Fixture::new(options());
    for id in 1..=200 {
        fixture.table.insert(&doc(0, id, &format!("<{id}>{}", kilobyte(id as u64))));
    }
    fixture.engine.sync().expect("sync");
    fixture.engine.flush_round().expect("sealing");
    if clean_shutdown {
        fixture.engine.close().expect("close");
    }
    (fixture.emulator, fixture.options)
}

#[test]
fn a_flipped_bit_of_a_document_is_named() {
    let (emulator, options) = filled(true);
    flip(&emulator, find(&emulator, "<17>") + 100, 3);
    let report = verify(&emulator, &mut |_, _| {}).expect("the check");
    let [damage] = &report.damage[..] else { panic!("{:?}", report.damage) };
    assert_eq!((damage.collection, damage.record), (Some(CollectionId(10)), Some(RecordId(17))));
    assert_eq!(damage.current, Some(true));
    assert_eq!(report.documents, 199);
    let engine = open(&emulator, options);
    assert_eq!(get(&engine, 16), Ok(true));
    match get(&engine, 17) {
        Err(StorageError::Corruption { collection, record, .. }) => {
            assert_eq!((collection, record), (Some(CollectionId(10)), Some(RecordId(17))));
        }
        other => panic!("{other:?}"),
    }
    // No index may be built over the damage without an error.
    let table = Table::new(&dynamic(&engine), 10, &[]);
    let index = kauri_conformance::table::TableIndex::new(20, true, "u");
    let attached = table.engine.attach_index(table.id, index.spec, index.generator);
    assert!(matches!(attached, Err(StorageError::Corruption { .. })));
}

#[test]
fn every_flipped_bit_of_a_header_is_noticed() {
    let (emulator, options) = filled(true);
    // The document begins with 4 + 1 + 2 + 8 + 1 + 2 + 8 + 1 + 2 + 4 bytes before its text.
    let header = find(&emulator, "<17>") - 33 - 32;
    for bit in 0..32 * 8 {
        flip(&emulator, header + bit / 8, (bit % 8) as u8);
        let report = verify(&emulator, &mut |_, _| {}).expect("the check");
        assert_eq!(report.damage.len(), 1, "bit {bit}: {:?}", report.damage);
        assert_eq!(report.damage[0].record, Some(RecordId(17)), "bit {bit}");
        flip(&emulator, header + bit / 8, (bit % 8) as u8);
    }
    flip(&emulator, header + 20, 5);
    let engine = open(&emulator, options);
    assert!(matches!(get(&engine, 17), Err(StorageError::Corruption { .. })));
    assert_eq!(get(&engine, 18), Ok(true));
}

#[test]
fn damage_before_a_mark_is_no_end_of_the_log() {
    let (emulator, _) = filled(false);
    // After each sync the next commit records the durable commits.
    let engine = open(&emulator, options());
    let table = Table::new(&dynamic(&engine), 10, &[]);
    for round in 0..10 {
        table.insert(&doc(1, 1000 + round, &format!("[{round}]{}", kilobyte(1))));
        engine.sync().expect("sync");
    }
    drop((table, engine));
    let document = find(&emulator, "[3]");
    flip(&emulator, document + 5, 0);
    let report = verify(&emulator, &mut |_, _| {}).expect("the check");
    assert!(report.damage.iter().any(|d| d.record == Some(RecordId(204))), "{:?}", report.damage);
    let engine = open(&emulator, options());
    assert!(matches!(get(&engine, 204), Err(StorageError::Corruption { .. })));
    assert_eq!((get(&engine, 203), get(&engine, 210)), (Ok(true), Ok(true)));
}

#[test]
fn a_header_damaged_before_a_mark_is_no_end_of_the_log() {
    let fixture = Fixture::new(options());
    for id in 1..=10 {
        fixture.table.insert(&doc(0, id, &format!("<{id}>{}", kilobyte(1))));
        fixture.engine.sync().expect("sync");
    }
    let emulator = fixture.emulator.clone();
    drop(fixture);
    flip(&emulator, find(&emulator, "<3>") - 33 - 32 + 5, 0);
    let error = refused(&emulator);
    assert_eq!(error.code(), ErrorCode::DataCorruptionDetected);
    assert!(error.message().contains("though it was durable"), "{error}");
    let report = verify(&emulator, &mut |_, _| {}).expect("the check");
    assert!(!report.damage.is_empty());
}

#[test]
fn damage_behind_the_last_mark_ends_the_log_for_good() {
    let fixture = Fixture::new(Options { mark_interval_bytes: u64::MAX, ..options() });
    for id in 1..=20 {
        fixture.table.insert(&doc(0, id, &format!("<{id}>")));
    }
    fixture.engine.flush();
    let emulator = fixture.emulator.clone();
    drop(fixture);
    flip(&emulator, find(&emulator, "<15>"), 0);
    for round in 0..3 {
        let engine = open(&emulator, options());
        let table = Table::new(&dynamic(&engine), 10, &[]);
        // The records behind the damage are intact on the medium but stay invisible.
        assert_eq!(table.records().len() as u64, 14 + round);
        assert_eq!(table.insert(&doc(0, 100, "new")), RecordId(15 + round));
        engine.flush();
    }
}

#[test]
fn a_damaged_segment_header_is_corruption() {
    let (emulator, _) = filled(true);
    let segment = find(&emulator, "<17>") / SEGMENT_BYTES as usize;
    let header = segment * SEGMENT_BYTES as usize;
    flip(&emulator, header + 17, 2);
    // There is another copy.
    let report = verify(&emulator, &mut |_, _| {}).expect("the check");
    assert_eq!((report.damage.len(), report.documents), (1, 200), "{:?}", report.damage);
    // Opening rewrites the damaged copy.
    drop(open(&emulator, options()));
    let report = verify(&emulator, &mut |_, _| {}).expect("the check");
    assert_eq!((report.damage.len(), report.documents), (0, 200), "{:?}", report.damage);
    for copy in [0, 2048] {
        flip(&emulator, header + copy + 17, 2);
    }
    let error = refused(&emulator);
    assert_eq!(error.code(), ErrorCode::DataCorruptionDetected);
    assert!(error.message().contains("it held"), "{error}");
}

#[test]
fn a_damaged_summary_costs_nothing_but_time() {
    let (emulator, options) = filled(true);
    let segment = find(&emulator, "<17>") / SEGMENT_BYTES as usize;
    let end = (segment + 1) * SEGMENT_BYTES as usize;
    for at in [end - 70, end - 30] {
        flip(&emulator, at, 2);
    }
    let engine = open(&emulator, options);
    let table = Table::new(&dynamic(&engine), 10, &[]);
    assert_eq!(table.records().len(), 200);
}

#[test]
fn a_log_that_is_too_short_is_corruption() {
    let (emulator, _) = filled(true);
    let copy = self::emulator();
    let bytes = log_bytes(&emulator);
    let half = &bytes[..bytes.len() / 2 / SEGMENT_BYTES as usize * SEGMENT_BYTES as usize];
    let meta = emulator.read_file(META).expect("reading").expect("the metadata");
    copy.replace_file(META, &meta, "test").expect("copying");
    let error = refused(&copy);
    assert!(error.message().contains("pmlog.0 is missing"), "{error}");
    let log = copy.create_log(LOG, "test").expect("a log");
    log.grow(half.len() as u64).expect("growing");
    log.store(0, &[IoSlice::new(half)]).expect("storing");
    let error = refused(&copy);
    assert_eq!(error.code(), ErrorCode::DataCorruptionDetected, "{error}");
}

#[test]
fn foreign_directories_are_refused_by_name() {
    let (emulator, _) = filled(true);
    let meta = emulator.read_file(META).expect("reading").expect("the metadata");
    let contents = meta.len() - 4096;
    let with_crc = |mut bytes: Vec<u8>| {
        let crc = crc32c::crc32c(&bytes[12..contents]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let mut newer = meta.clone();
    newer[12] = 9;
    emulator.replace_file(META, &with_crc(newer), "test").expect("writing");
    assert!(refused(&emulator).message().contains("format version 9"));
    let mut other = meta.clone();
    other[16..22].copy_from_slice(b"wiredT");
    emulator.replace_file(META, &with_crc(other), "test").expect("writing");
    assert!(refused(&emulator).message().contains("wiredT"));
    let mut damaged = meta;
    damaged[50] ^= 1;
    damaged[4096 + 50] ^= 1;
    emulator.replace_file(META, &damaged, "test").expect("writing");
    assert!(refused(&emulator).message().contains("damaged"));
    emulator.remove_file(META, "test").expect("removing");
    assert!(refused(&emulator).message().contains("kauri.meta is missing"));
    let foreign = self::emulator();
    foreign.replace_file("WiredTiger", b"WiredTiger\n", "test").expect("writing");
    assert!(refused(&foreign).message().contains("wiredTiger"));
}

#[test]
fn a_second_server_is_refused() {
    let (emulator, options) = filled(true);
    let engine = open(&emulator, options);
    assert_eq!(refused(&emulator).code(), ErrorCode::DBPathInUse);
    drop(engine);
    open(&emulator, common::options());
}

#[test]
fn a_log_that_could_hold_nothing_is_refused() {
    let emulator = common::emulator();
    let Err(error) = PmLog::open(Arc::new(emulator.clone()), common::bounded(3)) else {
        panic!("it was opened");
    };
    assert_eq!(error.code(), ErrorCode::InvalidOptions);
    assert!(error.message().contains("it needs 4 segments"), "{}", error.message());
    // No part of the record remains.
    let fixture = Fixture::on(emulator, common::bounded(4));
    fixture.table.insert(&doc(0, 1, ""));
    // An existing directory still opens.
    fixture.engine.close().expect("close");
    let Fixture { emulator, engine, table, .. } = fixture;
    drop((engine, table));
    let engine = open(&emulator, common::bounded(3));
    assert_eq!(get(&engine, 1), Ok(true));
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    let fixture = Fixture::new(options());
    fixture.table.insert(&doc(0, 1, ""));
    fixture.engine.sync().expect("sync");
    let faults = fixture.emulator.faults().clone();
    let mut unit = WriteUnit::new();
    fixture.table.insert_in(&mut unit, &doc(0, 2, ""));
    let ticket = fixture.engine.commit(&mut unit).expect("commit");
    faults.inject(IoKind::Drain, 0, 1, Fault::Eio);
    assert!(ticket.wait(Durability::Durable).is_err());
    assert!(fixture.engine.sync().is_err(), "the drain would succeed now, but promise nothing");
    let mut unit = WriteUnit::new();
    fixture.table.insert_in(&mut unit, &doc(0, 3, ""));
    assert!(matches!(fixture.engine.commit(&mut unit), Err(StorageError::Io(_))));
    assert!(fixture.engine.close().is_err());
    // Existing data is readable.
    assert_eq!(get(&fixture.engine, 1), Ok(true));
}

#[test]
fn an_error_at_any_io_loses_nothing_that_was_acknowledged() {
    for kind in [IoKind::Store, IoKind::Drain, IoKind::Grow, IoKind::Read] {
        for fault in [Fault::Eio, Fault::Enospc] {
            for skip in (0..60).step_by(3) {
                one_error(emulator(), kind, fault, skip);
                let staging = EmulatorConfig { staging: true, ..EmulatorConfig::default() };
                one_error(Emulator::new(staging), kind, fault, skip);
            }
        }
    }
}

fn one_error(emulator: Emulator, kind: IoKind, fault: Fault, skip: u64) {
    let fixture = Fixture::on(emulator, common::bounded(12));
    fixture.emulator.faults().inject(kind, skip, 1, fault);
    let mut acknowledged = Vec::new();
    for u in 0..400 {
        let mut unit = WriteUnit::new();
        fixture.table.insert_in(&mut unit, &doc(0, u, &kilobyte(u as u64)));
        let Ok(ticket) = fixture.engine.commit(&mut unit) else { continue };
        let durable = u % 7 == 0 && ticket.wait(Durability::Durable).is_ok();
        if durable || ticket.wait(Durability::Written).is_ok() {
            acknowledged.push((unit.ops[0].record, u));
        }
        if u % 50 == 49 {
            // Waiters report the failures.
            let _ = fixture.engine.flush_round();
            let _ = fixture.engine.clean_once();
        }
    }
    fixture.emulator.faults().clear_injections();
    let image = fixture.emulator.process_death_image();
    let engine = open(&image, common::bounded(12));
    let table = Table::new(&dynamic(&engine), 10, &[]);
    let records = table.records();
    for (id, u) in acknowledged {
        let record = records.get(&id);
        let expected = doc(0, u, &kilobyte(u as u64));
        let there = record.is_some_and(|record| record.doc == expected);
        assert!(there, "{kind:?} {fault:?} after {skip}: {id} is lost");
    }
}
