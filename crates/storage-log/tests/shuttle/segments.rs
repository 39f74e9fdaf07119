//! Readers of documents whose segments are cleaned, freed and filled again.

use crate::harness::{On, explore, open_with, table};
use kauri_base::sync::thread;
use kauri_base::{Access, RecordId};
use kauri_bson::{DocBuf, Value};
use kauri_conformance::table::{Table, doc, number};
use kauri_storage::{StorageEngine, WriteUnit};
use kauri_storage_log::PmLog;
use std::sync::atomic::{AtomicI64, Ordering};

/// Segments freed in all schedules.
static CLEANED: AtomicI64 = AtomicI64::new(0);

/// A segment holds six documents of this size.
const DOC_BYTES: usize = 10 << 10;

/// A document all of whose bytes encode its version.
fn large(k: i64, u: i64) -> Vec<u8> {
    let letter = char::from(b'a' + (k % 26) as u8);
    doc(k, u, &letter.to_string().repeat(DOC_BYTES))
}

/// Reads a record and keeps checking it for a while.
fn read(table: &Table, id: RecordId, u: i64, at_least: i64) -> i64 {
    let store = table.store();
    let mut unit = table.engine.recovery_unit();
    loop {
        unit.enter();
        let ticket = match store.get(&*unit, id).expect("get") {
            Access::Ready(record) => {
                let bytes = record.expect("the record").doc.as_bytes();
                let k = number(bytes, "k");
                assert!(k >= at_least, "{k} after {at_least}");
                for _ in 0..3 {
                    assert!(bytes == large(k, u), "the document has changed");
                    thread::yield_now();
                }
                return k;
            }
            Access::WouldBlock(ticket) => ticket,
        };
        unit.leave();
        ticket.wait().expect("wait");
    }
}

fn clean(engine: &PmLog, rounds: usize) {
    for _ in 0..rounds {
        engine.flush_round().expect("syncing");
        engine.clean_once().expect("cleaning");
    }
}

fn model(on: On) {
    let engine = open_with(&on.emulator(), 8);
    let table = table(&engine, 10);
    let ids: Vec<_> = (0..8).map(|u| table.insert(&large(0, u))).collect();
    // Every second one is garbage, so that the cleaner has segments to clean and records to move.
    for u in [0, 2, 4, 6] {
        table.update(ids[u], &large(1, u as i64));
    }
    engine.flush_round().expect("syncing");
    thread::scope(|scope| {
        let (table, ids, engine) = (&table, &ids, &engine);
        scope.spawn(move || clean(engine, 3));
        scope.spawn(move || {
            for k in 2..5 {
                for u in [0, 1] {
                    table.update(ids[u], &large(k, u as i64));
                }
            }
        });
        for u in [1, 3] {
            scope.spawn(move || {
                let mut k = 0;
                for _ in 0..4 {
                    k = read(table, ids[u], u as i64, k);
                }
            });
        }
    });
    clean(&engine, 2);
    for (u, id) in (0..).zip(&ids) {
        read(&table, *id, u, 0);
    }
    table.check();
    let status = DocBuf::build(|out| engine.write_status(out));
    let cleaner = status.as_doc().value("cleaner");
    match cleaner.as_document().map(|cleaner| cleaner.value("segmentsCleaned")) {
        Some(Value::Int64(number)) => drop(CLEANED.fetch_add(number, Ordering::Relaxed)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_document_stays_valid_while_its_segment_is_recycled() {
    explore(300, || model(On::Disk));
    assert!(CLEANED.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_read_document_stays_valid_while_its_segment_is_recycled_on_persistent_memory() {
    explore(200, || model(On::PersistentMemory));
    assert!(CLEANED.load(Ordering::Relaxed) > 0);
}

/// The cleaner moves records that are being updated: the update survives.
#[test]
fn a_record_that_is_moved_keeps_its_update() {
    const DOCS: i64 = 160;
    let text = "x".repeat(1000);
    explore(250, move || {
        let engine = open_with(&On::Disk.emulator(), 8);
        let table = table(&engine, 10);
        let mut unit = WriteUnit::new();
        for u in 0..DOCS {
            table.insert_in(&mut unit, &doc(0, u, &text));
        }
        table.commit(&mut unit);
        let ids: Vec<_> = unit.ops.iter().map(|op| op.record).collect();
        let records = table.records();
        let update = |which: &mut dyn Iterator<Item = usize>, k| {
            let mut unit = WriteUnit::new();
            for at in which {
                let new = doc(k, at as i64, &text);
                table.update_in(&mut unit, ids[at], &records[&ids[at]], &new);
            }
            table.commit(&mut unit);
        };
        update(&mut (0..ids.len()).step_by(2), 1);
        engine.flush_round().expect("syncing");
        thread::scope(|scope| {
            let engine = &engine;
            scope.spawn(move || clean(engine, 1));
            (1..40).step_by(2).for_each(|at| update(&mut std::iter::once(at), 2));
        });
        for (at, record) in table.records().into_values().enumerate() {
            let k = [1, i64::from(at < 40) * 2][at % 2];
            assert_eq!(number(&record.doc, "k"), k, "{at}");
        }
        table.check();
    });
}
