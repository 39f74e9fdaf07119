//! Held snapshots while writers commit. Each snapshot reads one state, that after its commit, until it is
//! released. Without held snapshots no old version is kept.

use crate::harness::{On, explore, open, table};
use kauri_base::RecordId;
use kauri_base::sync::thread;
use kauri_bson::{DocBuf, Value};
use kauri_conformance::inspect::{self, Entry, Reader};
use kauri_conformance::table::{Table, doc};
use kauri_storage::{Direction, StorageEngine, WriteUnit};
use kauri_storage_log::PmLog;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A record and its new document, if it has one.
type Change = (RecordId, Option<Vec<u8>>);
type State = BTreeMap<RecordId, Vec<u8>>;

/// The commits and the reads; invisible to the scheduler.
#[derive(Default)]
struct Notes {
    commits: BTreeMap<u64, Vec<Change>>,
    seen: Vec<(u64, State)>,
}

struct Model {
    table: Table,
    notes: Mutex<Notes>,
}

impl Model {
    fn note<T>(&self, note: impl FnOnce(&mut Notes) -> T) -> T {
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn commit(&self, fill: impl FnOnce(&mut WriteUnit<'_>) -> Vec<(usize, Option<Vec<u8>>)>) {
        let mut unit = WriteUnit::new();
        let docs = fill(&mut unit);
        let seq = self.table.commit(&mut unit).seq.0;
        let changes = docs.into_iter().map(|(op, doc)| (unit.ops[op].record, doc)).collect();
        self.note(|notes| notes.commits.insert(seq, changes));
    }

    /// Updates a record, and adds one that the next round deletes.
    fn write(&self, id: RecordId, rounds: i64) {
        let mut last = None;
        for round in 1..=rounds {
            let new = doc(round % 2, 100 * id.0 as i64 + round % 2, "updated");
            let extra = doc(7, -(100 * id.0 as i64 + round), "added");
            let old = self.table.record(id);
            self.commit(|unit| {
                vec![
                    (self.table.update_in(unit, id, &old, &new), Some(new.clone())),
                    (self.table.insert_in(unit, &extra), Some(extra.clone())),
                ]
            });
            let id = self.table.find(&self.table.indexes[1], -(100 * id.0 as i64 + round));
            let previous = std::mem::replace(&mut last, id);
            if let Some(previous) = previous {
                let old = self.table.record(previous);
                self.commit(|unit| vec![(self.table.delete_in(unit, previous, &old), None)]);
            }
        }
    }

    /// Holds a snapshot and reads it repeatedly.
    fn hold(&self, times: usize) {
        let engine = &*self.table.engine;
        let mut reader = Reader::hold(engine);
        let seq = reader.unit().snapshot().0;
        for time in 0..times {
            let direction = [Direction::Forward, Direction::Backward][time % 2];
            let records = reader.records(&*self.table.store(), direction).expect("scan");
            for index in &self.table.indexes {
                let found = engine.index(index.spec.id).expect("the index");
                let mut entries: Vec<Entry> = reader.entries(&*found, direction).expect("scan");
                if direction == Direction::Backward {
                    entries.reverse();
                }
                assert_eq!(entries, inspect::keys_of(&records, &*index.generator), "at {seq}");
            }
            let state = records.into_iter().map(|(id, record)| (id, record.doc)).collect();
            self.note(|notes| notes.seen.push((seq, state)));
            reader.unit().leave();
            reader.unit().enter();
        }
    }

    /// Checks the reads against the commits.
    fn check(&self) {
        self.note(|notes| {
            for (seq, seen) in &notes.seen {
                let mut state = State::new();
                for (id, doc) in notes.commits.range(..=seq).flat_map(|(_, changes)| changes) {
                    match doc {
                        Some(doc) => drop(state.insert(*id, doc.clone())),
                        None => drop(state.remove(id)),
                    }
                }
                assert_eq!(seen, &state, "the snapshot at {seq}");
            }
        });
        self.table.check();
    }
}

fn kept(engine: &PmLog) -> i64 {
    let status = DocBuf::build(|out| engine.write_status(out));
    match status.as_doc().value("snapshots").as_document().map(|s| s.value("versionsKept")) {
        Some(Value::Int64(number)) => number,
        other => panic!("{other:?}"),
    }
}

fn model(on: On) {
    let engine = open(&on.emulator());
    let model = Model { table: table(&engine, 10), notes: Mutex::default() };
    for number in 1..=2 {
        let doc = doc(5, 100 * number, "first");
        model.commit(|unit| vec![(model.table.insert_in(unit, &doc), Some(doc.clone()))]);
    }
    let ids: Vec<_> = model.table.records().into_keys().collect();
    thread::scope(|scope| {
        let model = &model;
        for id in &ids {
            scope.spawn(|| model.write(*id, 3));
        }
        scope.spawn(|| {
            model.hold(2);
            model.hold(1);
        });
        scope.spawn(|| model.hold(3));
    });
    assert_eq!(kept(&engine), 0, "no snapshot is held");
    model.check();
}

#[test]
fn a_held_snapshot_shows_one_state() {
    explore(700, || model(On::Disk));
}

#[test]
fn a_held_snapshot_shows_one_state_on_persistent_memory() {
    explore(500, || model(On::PersistentMemory));
}
