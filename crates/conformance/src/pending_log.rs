//! Units of a replicated log: invisible until they commit, gone after a truncation, present after a restart.

use super::Subject;
use super::inspect::{self, Reader, Stored};
use super::table::{Table, TableIndex, doc, number};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_storage::StorageEngine;
use kauri_storage::error::StorageError;
use kauri_storage::pending_log::{LogPosition, PendingLog};
use kauri_storage::scan::Direction;
use kauri_storage::transaction::Transaction;
use kauri_storage::unit::{OpKind, WriteUnit};
use std::collections::BTreeMap;
use std::sync::Arc;

fn described(engine: &Arc<dyn StorageEngine>) -> Table {
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    Table::new(engine, 10, &indexes)
}

fn table(subject: &Subject) -> Table {
    let table = described(&subject.engine());
    let mut unit = WriteUnit::new();
    table.create_in(&mut unit);
    table.commit(&mut unit);
    table
}

fn log(table: &Table) -> &dyn PendingLog {
    table.engine.pending_log().unwrap_or_else(|error| panic!("{error}"))
}

fn at(index: u64) -> LogPosition {
    LogPosition { term: 1 + index / 10, index }
}

fn indexes(table: &Table) -> Vec<u64> {
    log(table).pending().iter().map(|unit| unit.position.index).collect()
}

fn append(table: &Table, index: u64, unit: &mut WriteUnit<'_>) {
    log(table).append(unit, at(index)).unwrap_or_else(|error| panic!("append: {error}"));
}

fn append_insert(table: &Table, index: u64, doc: &[u8]) -> RecordId {
    let mut unit = WriteUnit::new();
    let op = table.insert_in(&mut unit, doc);
    append(table, index, &mut unit);
    unit.ops[op].record
}

fn append_update(table: &Table, index: u64, id: RecordId, doc: &[u8]) {
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, id, &table.record(id), doc);
    append(table, index, &mut unit);
}

fn append_delete(table: &Table, index: u64, id: RecordId) {
    let mut unit = WriteUnit::new();
    table.delete_in(&mut unit, id, &table.record(id));
    append(table, index, &mut unit);
}

fn commit_up_to(table: &Table, index: u64) {
    log(table).commit_up_to(index).unwrap_or_else(|error| panic!("commit: {error}"));
}

fn truncate_after(table: &Table, index: u64) {
    log(table).truncate_after(index).unwrap_or_else(|error| panic!("truncate: {error}"));
}

fn docs(table: &Table) -> BTreeMap<RecordId, Vec<u8>> {
    table.check();
    table.records().into_iter().map(|(id, record)| (id, record.doc)).collect()
}

pub(super) fn nobody_sees_what_is_pending(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..3).map(|i| table.insert(&doc(i, i, "before"))).collect();
    let before = docs(&table);
    append_update(&table, 1, ids[0], &doc(10, 10, "after"));
    append_delete(&table, 2, ids[1]);
    let new = append_insert(&table, 3, &doc(13, 13, "new"));
    assert!(new > ids[2] && table.get(new).is_none());
    assert_eq!(docs(&table), before);
    assert_eq!(table.find(&table.indexes[1], 13), None);
    assert_eq!(table.find(&table.indexes[1], 1), Some(ids[1]));
    // Others go on, with ids of their own.
    let other = table.insert(&doc(20, 20, "other"));
    assert!(other > new);
    commit_up_to(&table, 3);
    let mut expected = before;
    expected.insert(ids[0], doc(10, 10, "after"));
    expected.remove(&ids[1]);
    expected.insert(new, doc(13, 13, "new"));
    expected.insert(other, doc(20, 20, "other"));
    assert_eq!(docs(&table), expected);
    assert_eq!(table.engine.claims().map_or(0, |claims| claims.count()), 0);
    // What was committed can be changed by anybody.
    table.update(ids[0], &doc(11, 11, "again"));
    table.delete(new);
    docs(&table);
}

pub(super) fn units_commit_in_order(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (1..=6).map(|i| append_insert(&table, i, &doc(0, i as i64, ""))).collect();
    assert_eq!(indexes(&table), [1, 2, 3, 4, 5, 6]);
    assert_eq!(log(&table).committed(), LogPosition::default());
    for up_to in [0, 2, 2, 1, 5] {
        commit_up_to(&table, up_to);
    }
    assert_eq!(docs(&table).keys().copied().collect::<Vec<_>>(), ids[..5]);
    assert_eq!((log(&table).committed(), indexes(&table)), (at(5), vec![6]));
    // Each version is called what it was called when it was appended.
    let seq = log(&table).pending()[0].seq;
    commit_up_to(&table, 100);
    assert_eq!(table.record(ids[5]).version, seq);
    assert_eq!((log(&table).committed(), indexes(&table)), (at(6), vec![]));
    // A unit without operations has its place, too.
    append(&table, 7, &mut WriteUnit::new());
    commit_up_to(&table, 7);
    assert_eq!(log(&table).committed(), at(7));
}

pub(super) fn the_suffix_goes(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(0, 0, ""));
    for i in 1..=4 {
        append_insert(&table, i, &doc(i as i64, i as i64, "gone"));
    }
    append_update(&table, 5, id, &doc(5, 5, "gone"));
    truncate_after(&table, 2);
    assert_eq!(indexes(&table), [1, 2]);
    // Neither records nor keys of the others are claimed any more.
    table.update(id, &doc(3, 3, "now"));
    let new = append_insert(&table, 3, &doc(4, 4, "another third"));
    commit_up_to(&table, 5);
    assert_eq!(docs(&table).len(), 4);
    assert_eq!(table.record(new).doc, doc(4, 4, "another third"));
    truncate_after(&table, 0);
    assert_eq!(log(&table).committed(), at(3), "what was committed stays");
    assert_eq!(docs(&table).len(), 4);
}

pub(super) fn others_conflict_with_it(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..3).map(|i| table.insert(&doc(0, i, ""))).collect();
    append_update(&table, 1, ids[0], &doc(1, 50, ""));
    let conflict = Some(StorageError::WriteConflict);
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, ids[0], &table.record(ids[0]), &doc(2, 51, ""));
    assert_eq!(table.engine.commit(&mut unit).err(), conflict);
    assert_eq!(log(&table).append(&mut unit, at(2)).err(), conflict);
    let ticket = table.engine.claims().and_then(|claims| claims.ticket(&unit));
    for u in [0, 50] {
        assert_eq!(table.try_insert(&doc(9, u, "")).err(), conflict, "the key {u}");
    }
    let mut transaction = Transaction::begin(&table.engine).expect("begin");
    assert_eq!(transaction.write(&mut unit).err(), conflict);
    drop(transaction);
    // What others have claimed is not appended either.
    let mut transaction = Transaction::begin(&table.engine).expect("begin");
    let mut written = WriteUnit::new();
    table.delete_in(&mut written, ids[1], &table.record(ids[1]));
    assert!(transaction.write(&mut written).is_ok());
    let mut delete = WriteUnit::new();
    table.delete_in(&mut delete, ids[1], &table.record(ids[1]));
    assert_eq!(log(&table).append(&mut delete, at(2)).err(), conflict);
    transaction.abort();
    append(&table, 2, &mut delete);
    commit_up_to(&table, 2);
    ticket.expect("somebody to wait for").wait().expect("wait");
    // Outdated, duplicate and unfit units are refused as by a commit.
    unit.owner = 0;
    assert_eq!(log(&table).append(&mut unit, at(3)).err(), conflict);
    let mut duplicate = WriteUnit::new();
    table.insert_in(&mut duplicate, &doc(0, 2, ""));
    let refused = log(&table).append(&mut duplicate, at(3));
    assert!(matches!(refused, Err(StorageError::DuplicateKey { .. })));
    let mut change = WriteUnit::new();
    change.push(table.id, RecordId(0), OpKind::ChangeDefinition);
    let refused = log(&table).append(&mut change, at(3));
    assert!(matches!(refused, Err(StorageError::Unsupported(_))));
    docs(&table);
}

pub(super) fn indexes_wait_for_it(subject: &mut Subject) {
    let engine = subject.engine();
    let (first, second) = (TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u"));
    let table = Table::create(&engine, 10, std::slice::from_ref(&first));
    let other = Table::create(&engine, 11, &[TableIndex::new(22, true, "k")]);
    let id = table.insert(&doc(0, 0, ""));
    let both = Table::new(&engine, 10, &[first, second]);
    let create = || {
        let mut unit = WriteUnit::new();
        both.create_index_in(&mut unit, &both.indexes[1]);
        both.backfill_in(&mut unit, &both.indexes[1], id, &both.record(id));
        (engine.check(&unit).err(), engine.commit(&mut unit).err())
    };
    let conflict = Some(StorageError::WriteConflict);
    // Whether a unit adds, replaces or removes: its keys of a new index are known to nobody.
    append_insert(&table, 1, &doc(1, 0, "of the same key"));
    assert_eq!(create(), (conflict.clone(), conflict.clone()));
    truncate_after(&table, 0);
    append_update(&table, 1, id, &doc(1, 1, ""));
    assert_eq!(create(), (conflict.clone(), conflict.clone()));
    truncate_after(&table, 0);
    append_delete(&table, 1, id);
    assert_eq!(create(), (conflict.clone(), conflict));
    truncate_after(&table, 0);
    // Other collections' units don't matter.
    append_insert(&other, 1, &doc(1, 1, ""));
    assert_eq!(create(), (None, None));
    commit_up_to(&both, 1);
    let refused = both.try_insert(&doc(2, 0, ""));
    assert!(matches!(refused, Err(StorageError::DuplicateKey { .. })), "{refused:?}");
    docs(&both);
    docs(&other);
}

pub(super) fn positions_ascend(subject: &mut Subject) {
    let table = table(subject);
    append_insert(&table, 5, &doc(0, 0, ""));
    let refused = |index| {
        let mut unit = WriteUnit::new();
        table.insert_in(&mut unit, &doc(9, 9, ""));
        assert_eq!(log(&table).append(&mut unit, at(index)).err(), Some(StorageError::OutOfOrder));
    };
    refused(5);
    refused(4);
    commit_up_to(&table, 5);
    refused(5);
    append_insert(&table, 9, &doc(1, 1, ""));
    truncate_after(&table, 5);
    append_insert(&table, 6, &doc(1, 1, ""));
    assert_eq!(indexes(&table), [6]);
}

pub(super) fn snapshots_among_pending_units(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..4).map(|i| table.insert(&doc(0, i, "old"))).collect();
    let hold = || (Reader::hold(&*table.engine), table.records());
    let mut held = vec![hold()];
    append_update(&table, 1, ids[0], &doc(1, 10, "new"));
    append_delete(&table, 2, ids[1]);
    append_insert(&table, 3, &doc(1, 13, "new"));
    held.push(hold());
    table.insert(&doc(2, 20, "plain"));
    table.update(ids[2], &doc(2, 21, "plain"));
    held.push(hold());
    commit_up_to(&table, 2);
    held.push(hold());
    table.update(ids[0], &doc(3, 30, "newer"));
    commit_up_to(&table, 3);
    held.push(hold());
    table.delete(ids[0]);
    for (n, (reader, expected)) in held.iter_mut().enumerate() {
        check(reader, &table, expected, &format!("snapshot {n}"));
    }
}

fn check(reader: &mut Reader, table: &Table, expected: &BTreeMap<RecordId, Stored>, when: &str) {
    for direction in [Direction::Forward, Direction::Backward] {
        let found = reader.records(&*table.store(), direction).expect("scan");
        assert_eq!(&found, expected, "{when}, {direction:?}");
    }
    for index in &table.indexes {
        let handle = table.engine.index(index.spec.id).expect("the index");
        let found = reader.entries(&*handle, Direction::Forward).expect("scan");
        assert_eq!(found, inspect::keys_of(expected, &*index.generator), "{when}");
    }
}

/// What a log should come to.
#[derive(Default)]
struct Model {
    visible: BTreeMap<RecordId, Vec<u8>>,
    pending: Vec<(u64, Change)>,
    next: u64,
}

enum Change {
    Put(RecordId, Vec<u8>),
    Delete(RecordId),
}

impl Model {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Put(id, doc) => drop(self.visible.insert(id, doc)),
            Change::Delete(id) => drop(self.visible.remove(&id)),
        }
    }

    /// One step of anything. Whether it was refused.
    fn step(&mut self, table: &Table, below: &dyn Fn(u64) -> u64) -> bool {
        match below(20) {
            0 | 1 if !self.pending.is_empty() => {
                let at = below(self.pending.len() as u64 + 1) as usize;
                let up_to = self.pending.get(at).map_or(self.next, |(index, _)| *index);
                commit_up_to(table, up_to);
                let rest = self.pending.iter().position(|(index, _)| *index > up_to);
                let rest = self.pending.split_off(rest.unwrap_or(self.pending.len()));
                let committed = std::mem::replace(&mut self.pending, rest);
                committed.into_iter().for_each(|(_, change)| self.apply(change));
                false
            }
            2 if !self.pending.is_empty() => {
                let at = below(self.pending.len() as u64) as usize;
                let after = self.pending[at].0;
                truncate_after(table, after);
                self.pending.truncate(at + 1);
                self.next = after + 1;
                false
            }
            kind => self.write(table, below, kind % 2 == 0),
        }
    }

    fn write(&mut self, table: &Table, below: &dyn Fn(u64) -> u64, pending: bool) -> bool {
        let new = doc(below(9) as i64, below(120) as i64, &"t".repeat(below(300) as usize));
        let pick = self.visible.keys().nth(below(self.visible.len() as u64 * 2) as usize).copied();
        let mut unit = WriteUnit::new();
        let change = match (pick, below(3)) {
            (Some(id), 0) => {
                table.delete_in(&mut unit, id, &table.record(id));
                Change::Delete(id)
            }
            (Some(id), _) => {
                table.update_in(&mut unit, id, &table.record(id), &new);
                Change::Put(id, new)
            }
            (None, _) => {
                table.insert_in(&mut unit, &new);
                Change::Put(RecordId(0), new)
            }
        };
        let result = match pending {
            true => log(table).append(&mut unit, at(self.next)),
            false => table.engine.commit(&mut unit),
        };
        match result {
            Ok(_) => {}
            Err(StorageError::WriteConflict | StorageError::DuplicateKey { .. }) => return true,
            Err(error) => panic!("{error}"),
        }
        let change = match change {
            Change::Put(_, doc) => Change::Put(unit.ops[0].record, doc),
            change => change,
        };
        if pending {
            self.pending.push((self.next, change));
            self.next += 1;
        } else {
            self.apply(change);
        }
        false
    }

    fn check(&self, table: &Table) {
        assert_eq!(docs(table), self.visible);
        let expected: Vec<_> = self.pending.iter().map(|(index, _)| *index).collect();
        assert_eq!(indexes(table), expected);
    }
}

pub(super) fn random_logs(subject: &mut Subject) {
    let table = table(subject);
    let mut model = Model { next: 1, ..Model::default() };
    for seed in 1..=3 {
        let random = SeededRandom::new(seed);
        let below = |n: u64| random.next_u64() % n.max(1);
        let mut held: Vec<(Reader, BTreeMap<RecordId, Stored>)> = Vec::new();
        let mut refused = 0;
        for step in 0..600 {
            refused += usize::from(model.step(&table, &below));
            if below(30) == 0 {
                held.push((Reader::hold(&*table.engine), table.records()));
            }
            if held.len() > 4 || (below(40) == 0 && !held.is_empty()) {
                let at = below(held.len() as u64) as usize;
                let (mut reader, expected) = held.swap_remove(at);
                check(&mut reader, &table, &expected, &format!("seed {seed}, step {step}"));
            }
            if step % 40 == 0 {
                model.check(&table);
            }
        }
        assert!(refused > 10, "{refused}");
        model.check(&table);
    }
}

pub(super) fn the_suffix_is_there_after_a_restart(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..3).map(|i| table.insert(&doc(i, i, "old"))).collect();
    append_insert(&table, 1, &doc(5, 5, "committed"));
    append_update(&table, 2, ids[0], &doc(6, 6, "committed"));
    append_delete(&table, 3, ids[1]);
    append_insert(&table, 4, &doc(7, 7, "truncated"));
    commit_up_to(&table, 2);
    truncate_after(&table, 3);
    append_update(&table, 4, ids[2], &doc(8, 8, "suffix"));
    let new = append_insert(&table, 5, &doc(9, 9, "suffix"));
    let expected = docs(&table);
    let suffix = log(&table).pending();
    table.engine.sync().expect("sync");
    drop(table);
    subject.reopen();
    let table = described(&subject.engine());
    table.attach();
    assert_eq!(docs(&table), expected);
    assert_eq!(log(&table).committed(), at(2));
    assert_eq!(log(&table).pending(), suffix);
    assert_eq!(indexes(&table), [3, 4, 5]);
    // It is still protected, and its ids are taken.
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, ids[2], &table.record(ids[2]), &doc(1, 1, ""));
    assert_eq!(table.engine.commit(&mut unit).err(), Some(StorageError::WriteConflict));
    assert_eq!(table.try_insert(&doc(0, 9, "")).err(), Some(StorageError::WriteConflict));
    assert!(table.insert(&doc(30, 30, "")) > new);
    commit_up_to(&table, 4);
    assert_eq!(table.get(ids[1]), None);
    assert_eq!(number(&table.record(ids[2]).doc, "u"), 8);
    docs(&table);
    drop(table);
    subject.reopen();
    let table = described(&subject.engine());
    table.attach();
    assert_eq!((log(&table).committed(), indexes(&table)), (at(4), vec![5]));
    truncate_after(&table, 4);
    assert_eq!(table.get(new), None);
    table.insert(&doc(9, 9, "the key is free"));
    docs(&table);
}

pub(super) fn random_logs_with_reopening(subject: &mut Subject) {
    drop(table(subject));
    let random = SeededRandom::new(7);
    let below = |n: u64| random.next_u64() % n.max(1);
    let mut model = Model { next: 1, ..Model::default() };
    for round in 0..12 {
        let table = described(&subject.engine());
        if round > 0 {
            table.attach();
        }
        model.check(&table);
        for _ in 0..120 {
            model.step(&table, &below);
        }
        model.check(&table);
        table.engine.sync().expect("sync");
        drop(table);
        subject.reopen();
    }
}
