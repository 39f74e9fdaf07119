//! Collections dropped while pending units change them. However the units are resolved, their bytes are no
//! longer live and their records do not revive the collection.

use crate::common::{self, bounded, clean, dynamic, kilobyte, open, status};
use kauri_base::{CollectionId, RecordId};
use kauri_conformance::table::{Table, doc};
use kauri_emulator::Emulator;
use kauri_storage::{LogPosition, OpKind, PendingLog, StorageEngine, WriteUnit};
use kauri_storage_log::PmLog;
use std::sync::Arc;

const OTHER: u32 = 11;
/// Documents in the remaining collection.
const DOCUMENTS: u64 = 400;
/// Updates that rewrite the whole log several times.
const ROUNDS: i64 = 3200;

fn log(engine: &PmLog) -> &dyn PendingLog {
    engine.pending_log().expect("pending units")
}

/// Appends a pending unit that updates, deletes and inserts records of the other collection.
fn append(engine: &PmLog, other: &Table) {
    let mut unit = WriteUnit::new();
    let record = |id| (RecordId(id), other.record(RecordId(id)));
    let (id, old) = record(1);
    other.update_in(&mut unit, id, &old, &doc(1, 1, &kilobyte(1)));
    let (id, old) = record(2);
    other.delete_in(&mut unit, id, &old);
    other.insert_in(&mut unit, &doc(3, 3, &kilobyte(3)));
    log(engine).append(&mut unit, LogPosition { term: 1, index: 1 }).expect("appending");
}

fn update(table: &Table, round: i64) {
    // Random, so that segments never become empty by themselves.
    let id = (round as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    table.update(RecordId(id % DOCUMENTS + 1), &doc(round, 1000 + round, &kilobyte(1)));
}

fn drop_store(table: &Table) {
    let mut unit = WriteUnit::new();
    unit.push(table.id, RecordId(0), OpKind::DropStore);
    table.commit(&mut unit);
}

/// The resolution of the unit, and the events between the drop and the resolution.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Committed,
    Dropped,
}

fn resolve(engine: &PmLog, end: End) {
    match end {
        End::Committed => log(engine).commit_up_to(1).expect("committing"),
        End::Dropped => log(engine).truncate_after(0).expect("truncating"),
    };
}

fn live(engine: &PmLog) -> i64 {
    clean(engine);
    status(engine, "liveBytes")
}

/// A log with a remaining collection, and one that is dropped while a unit is pending.
fn dropped() -> (Emulator, Arc<PmLog>, Table) {
    let emulator = common::emulator();
    let engine = open(&emulator, bounded(16));
    let table = Table::create(&dynamic(&engine), 10, &[]);
    let other = Table::create(&dynamic(&engine), OTHER, &[]);
    for id in 1..=5 {
        other.insert(&doc(id, id, ""));
    }
    for id in 1..=DOCUMENTS as i64 {
        table.insert(&doc(id, id, &kilobyte(id as u64)));
    }
    append(&engine, &other);
    // The drop's record is in another segment, which the unit does not pin.
    (0..100).for_each(|round| update(&table, round));
    drop_store(&other);
    (emulator, engine, table)
}

#[test]
fn dropped_pending_units_leave_no_live_bytes() {
    for end in [End::Committed, End::Dropped] {
        for (reaped, restarted) in [(false, false), (true, false), (true, true)] {
            let (emulator, mut engine, table) = dropped();
            if reaped {
                clean(&engine);
            }
            drop(table);
            if restarted {
                engine.flush();
                drop(engine);
                engine = open(&emulator, bounded(16));
            }
            resolve(&engine, end);
            let counted = live(&engine);
            engine.flush();
            drop(engine);
            let engine = open(&emulator, bounded(16));
            assert_eq!(counted, live(&engine), "{end:?}, {reaped}, {restarted}");
        }
    }
}

#[test]
fn pending_units_do_not_revive_a_dropped_collection() {
    for end in [Some(End::Committed), Some(End::Dropped), None] {
        for restarted in [false, true] {
            let (emulator, mut engine, mut table) = dropped();
            if let Some(end) = end {
                resolve(&engine, end);
            }
            for round in 0..ROUNDS {
                update(&table, round);
                if round % 40 > 0 {
                    continue;
                }
                engine.flush_round().expect("sealing");
                clean(&engine);
                let image = emulator.process_death_image();
                let found = open(&image, bounded(16));
                let stores = found.stores();
                assert_eq!(stores, [CollectionId(10)], "{end:?}, {restarted}, round {round}");
                if restarted && round % 400 == 200 {
                    drop((table, engine));
                    engine = open(&emulator, bounded(16));
                    table = Table::new(&dynamic(&engine), 10, &[]);
                }
                if round == ROUNDS * 3 / 4 && end.is_none() {
                    resolve(&engine, End::Committed);
                }
            }
        }
    }
}
