//! Held snapshots in a log of small segments, with little memory and a busy cleaner: the cost of old versions
//! and their lifetime. No needed version is lost.

use crate::common;
use kauri_bson::{DocBuf, Value};
use kauri_conformance::Subject;
use kauri_conformance::inspect::{Reader, Stored};
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_storage::{Direction, OpKind, RecordId, StorageEngine, StorageError, WriteUnit};
use kauri_storage_log::{Options, PmLog};
use std::collections::BTreeMap;
use std::sync::Arc;

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        cache_bytes: 512 << 10,
        live_percent_target: 90,
        ..Options::default()
    }
}

fn open(options: Options) -> Arc<PmLog> {
    let emulator = Emulator::new(EmulatorConfig::default());
    Arc::new(PmLog::open(Arc::new(emulator), options).expect("opening"))
}

mod suite {
    use super::*;

    fn subject() -> Subject {
        Subject::new(|| open(options()))
    }

    kauri_conformance::conformance_snapshot_tests!(subject);
    kauri_conformance::conformance_transaction_tests!(subject);
    kauri_conformance::conformance_pending_tests!(subject);
}

fn status(engine: &PmLog, section: &str, name: &str) -> i64 {
    let status = DocBuf::build(|out| engine.write_status(out));
    match status.as_doc().value(section).as_document().map(|section| section.value(name)) {
        Some(Value::Int64(number)) => number,
        other => panic!("{section}.{name} is {other:?}"),
    }
}

fn kept(engine: &PmLog) -> i64 {
    status(engine, "snapshots", "versionsKept")
}

fn table(engine: &Arc<PmLog>, id: u32) -> Table {
    let engine: Arc<dyn StorageEngine> = engine.clone();
    Table::create(
        &engine,
        id,
        &[TableIndex::new(id, false, "k"), TableIndex::new(id + 1, true, "u")],
    )
}

fn read(reader: &mut Reader, table: &Table) -> BTreeMap<RecordId, Stored> {
    reader.records(&*table.store(), Direction::Forward).expect("scan")
}

/// Cleans until there is nothing more to clean.
fn clean(engine: &PmLog) {
    engine.flush_round().expect("syncing");
    common::clean(engine);
}

#[test]
fn old_versions_outlive_the_segments_they_were_in() {
    let engine = open(options());
    let table = table(&engine, 10);
    let text = "x".repeat(400);
    let ids: Vec<_> = (0..800).map(|i| table.insert(&doc(i, i, &text))).collect();
    let expected = table.records();
    let mut reader = Reader::hold(&*engine);
    reader.unit().leave();
    for round in 1..6 {
        for (i, id) in ids.iter().enumerate() {
            let i = i as i64;
            if i % 5 == round {
                table.delete(*id);
            } else if i % 5 == 0 || i % 5 > round {
                table.update(*id, &doc(i, round * 1000 + i, &text));
            }
        }
        clean(&engine);
    }
    assert!(status(&engine, "cleaner", "movedRecords") > 800, "old versions were moved too");
    assert!(status(&engine, "cleaner", "segmentsCleaned") >= 10);
    reader.unit().enter();
    assert_eq!(read(&mut reader, &table), expected);
    reader.unit().leave();
    // At most one version per record and its two index entries, for any number of rounds.
    assert!(kept(&engine) <= 800 * 4, "{}", kept(&engine));
    let held = status(&engine, "cleaner", "segmentsCleaned");
    reader.unit().release_snapshot();
    assert_eq!(kept(&engine), 0);
    assert_eq!(status(&engine, "snapshots", "bytesKept"), 0);
    clean(&engine);
    assert!(status(&engine, "cleaner", "segmentsCleaned") > held, "their space is freed");
    table.check();
}

#[test]
fn emptied_segments_are_free_when_readers_have_left() {
    let engine = open(options());
    let table = table(&engine, 10);
    let text = "x".repeat(400);
    let id = table.insert(&doc(0, 0, &text));
    let mut reader = engine.recovery_unit();
    reader.enter();
    for i in 1..800 {
        table.update(id, &doc(i, i, &text));
    }
    engine.flush_round().expect("syncing");
    while engine.clean_once().expect("cleaning") {}
    let count = |name: &str| common::status(&engine, name);
    let emptying = count("segmentsEmptying");
    assert!(emptying > 2, "{emptying} segments");
    assert_eq!(count("cleaner.segmentsCleaned"), 0);
    reader.leave();
    common::clean(&engine);
    assert_eq!(count("segmentsEmptying"), 0);
    assert!(count("cleaner.segmentsCleaned") >= emptying);
}

#[test]
fn only_needed_versions_are_kept() {
    let engine = open(options());
    let table = table(&engine, 10);
    let id = table.insert(&doc(0, 0, ""));
    for i in 1..50 {
        table.update(id, &doc(i, i, ""));
    }
    assert_eq!(kept(&engine), 0, "no snapshot is held");
    let first = Reader::hold(&*engine);
    for i in 50..150 {
        table.update(id, &doc(i, i, ""));
    }
    // The version, and for two indexes the removed and the added entry. Intermediate versions are gone.
    let with_one = kept(&engine);
    assert_eq!(with_one, 1 + 2 * 2);
    table.insert(&doc(-1, -1, ""));
    for i in 0..100 {
        table.insert(&doc(-2 - i, -2 - i, ""));
    }
    assert_eq!(kept(&engine), with_one + 1, "new records need one limit together");
    let second = Reader::hold(&*engine);
    let before = kept(&engine);
    table.update(id, &doc(7, 7, ""));
    let of_second = kept(&engine) - before;
    assert!(of_second > 0);
    for i in 0..50 {
        table.update(RecordId(2), &doc(-1, 1000 + i, ""));
    }
    drop(first);
    // Versions needed only by the first snapshot are gone: one version and two entries of the second record
    // remain.
    assert_eq!(kept(&engine), of_second + 3);
    drop(second);
    assert_eq!(kept(&engine), 0);
    assert_eq!(status(&engine, "snapshots", "held"), 0);
}

#[test]
fn releasing_a_middle_snapshot_keeps_the_versions_of_others() {
    let engine = open(options());
    let table = table(&engine, 10);
    let id = table.insert(&doc(0, 0, ""));
    let mut held = Vec::new();
    for i in 1..=4 {
        held.push((Reader::hold(&*engine), table.records()));
        if i % 2 == 0 {
            table.update(id, &doc(i, i, ""));
        }
    }
    // Two snapshots share each of the versions.
    let all = kept(&engine);
    drop(held.remove(1));
    assert_eq!(kept(&engine), all, "the older one needs it still");
    drop(held.remove(0));
    assert!(kept(&engine) < all);
    for (reader, expected) in &mut held {
        assert_eq!(&read(reader, &table), expected);
    }
}

#[test]
fn beyond_the_bound_the_oldest_snapshot_is_given_up() {
    let engine = open(Options { versions_bytes_max: 100 << 10, ..options() });
    let table = table(&engine, 10);
    let text = "x".repeat(1000);
    let ids: Vec<_> = (0..400).map(|i| table.insert(&doc(i, i, &text))).collect();
    let mut first = Reader::hold(&*engine);
    let mut second = None;
    for (i, id) in ids.iter().enumerate() {
        if i == 60 {
            second = Some((Reader::hold(&*engine), table.records()));
        }
        table.update(*id, &doc(-1, 10_000 + i as i64, ""));
        if i == 100 {
            break;
        }
    }
    let found = first.get(&*table.store(), ids[0]);
    assert_eq!(found.err(), Some(StorageError::SnapshotTooOld));
    let index = table.engine.index(table.indexes[0].spec.id).expect("the index");
    let found = first.entries(&*index, Direction::Forward);
    assert_eq!(found.err(), Some(StorageError::SnapshotTooOld));
    let (mut second, expected) = second.expect("a second one");
    assert_eq!(read(&mut second, &table), expected, "the newer one has room now");
    assert_eq!(status(&engine, "snapshots", "givenUp"), 1);
    assert!(status(&engine, "snapshots", "bytesKept") <= 100 << 10);
    drop((first, second));
    assert_eq!(kept(&engine), 0);
    let mut again = Reader::hold(&*engine);
    assert_eq!(read(&mut again, &table), table.records());
}

#[test]
fn a_dropped_collection_keeps_no_versions() {
    let engine = open(options());
    let (table, other) = (table(&engine, 10), table(&engine, 20));
    let ids: Vec<_> = (0..100).map(|i| table.insert(&doc(i, i, ""))).collect();
    let id = other.insert(&doc(1, 1, ""));
    let expected = other.records();
    let mut reader = Reader::hold(&*engine);
    for id in &ids {
        table.update(*id, &doc(-1, 1000 + id.0 as i64, ""));
    }
    other.update(id, &doc(2, 2, ""));
    let both = kept(&engine);
    let mut unit = WriteUnit::new();
    unit.push(table.id, RecordId(0), OpKind::DropStore);
    table.commit(&mut unit);
    assert!(kept(&engine) < both && kept(&engine) > 0);
    clean(&engine);
    assert_eq!(read(&mut reader, &other), expected);
    drop(reader);
    assert_eq!(kept(&engine), 0);
    assert_eq!(status(&engine, "snapshots", "bytesKept"), 0);
}
