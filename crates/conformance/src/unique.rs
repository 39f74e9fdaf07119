//! Unique indexes.

use super::Subject;
use super::table::{Table, TableIndex, doc, key};
use kauri_base::{IndexId, RecordId};
use kauri_storage::error::StorageError;
use kauri_storage::unit::{OpKind, WriteUnit};
use std::thread;

fn table(subject: &Subject) -> Table {
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    Table::create(&subject.engine(), 10, &indexes)
}

fn duplicate(op: usize, u: i64, existing: Option<RecordId>) -> StorageError {
    StorageError::DuplicateKey {
        index: IndexId(21),
        op,
        key: key(u).to_vec(),
        type_bits: vec![18],
        existing,
    }
}

pub(super) fn against_committed_records(subject: &mut Subject) {
    let table = table(subject);
    let one = table.insert(&doc(1, 1, ""));
    let two = table.insert(&doc(1, 2, ""));
    assert_eq!(table.try_insert(&doc(1, 1, "")).err(), Some(duplicate(0, 1, Some(one))));
    let mut unit = WriteUnit::new();
    table.insert_in(&mut unit, &doc(1, 3, ""));
    table.insert_in(&mut unit, &doc(1, 2, ""));
    assert_eq!(table.engine.commit(&mut unit).err(), Some(duplicate(1, 2, Some(two))));
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, two, &table.record(two), &doc(1, 1, ""));
    assert_eq!(table.engine.commit(&mut unit).err(), Some(duplicate(0, 1, Some(one))));
    table.check();
    assert_eq!(table.records().len(), 2);
}

pub(super) fn within_one_unit(subject: &mut Subject) {
    let table = table(subject);
    let mut unit = WriteUnit::new();
    for u in [1, 2, 3, 2, 1] {
        table.insert_in(&mut unit, &doc(0, u, ""));
    }
    assert_eq!(table.engine.commit(&mut unit).err(), Some(duplicate(3, 2, None)));
    assert!(table.records().is_empty());
    let id = table.insert(&doc(0, 5, ""));
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, id, &table.record(id), &doc(0, 6, ""));
    table.insert_in(&mut unit, &doc(0, 6, ""));
    assert_eq!(table.engine.commit(&mut unit).err(), Some(duplicate(1, 6, None)));
    table.check();
}

pub(super) fn a_key_that_its_record_gives_up_is_free(subject: &mut Subject) {
    let table = table(subject);
    let mut id = table.insert(&doc(0, 1, "0"));
    for (round, insert_first) in [false, true, true, false].into_iter().enumerate() {
        let new = doc(0, 1, &round.to_string());
        let old = table.record(id);
        let mut unit = WriteUnit::new();
        let mut op = 0;
        if insert_first {
            op = table.insert_in(&mut unit, &new);
        }
        match round % 2 {
            0 => table.delete_in(&mut unit, id, &old),
            _ => table.update_in(&mut unit, id, &old, &doc(0, 100 + round as i64, "")),
        };
        if !insert_first {
            op = table.insert_in(&mut unit, &new);
        }
        table.commit(&mut unit);
        id = unit.ops[op].record;
        assert_eq!(table.find(&table.indexes[1], 1), Some(id));
        table.check();
    }
    table.delete(id);
    table.insert(&doc(0, 1, "after its delete"));
    table.check();
}

pub(super) fn keys_may_be_swapped(subject: &mut Subject) {
    let table = table(subject);
    let (a, b) = (table.insert(&doc(0, 1, "a")), table.insert(&doc(0, 2, "b")));
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, a, &table.record(a), &doc(0, 2, "a"));
    table.update_in(&mut unit, b, &table.record(b), &doc(0, 1, "b"));
    table.commit(&mut unit);
    assert_eq!(table.find(&table.indexes[1], 1), Some(b));
    assert_eq!(table.find(&table.indexes[1], 2), Some(a));
    table.check();
}

pub(super) fn a_record_may_keep_its_own_key(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(0, 1, ""));
    table.update(id, &doc(5, 1, "other fields"));
    let seen = table.record(id).version;
    let mut unit = WriteUnit::new();
    unit.update(table.id, id, seen, doc(5, 1, "its key added again"));
    unit.key(IndexId(21), true, true, &key(1), &[18]);
    table.commit(&mut unit);
    let mut unit = WriteUnit::new();
    unit.update(table.id, id, table.record(id).version, doc(5, 1, "removed and added"));
    unit.key(IndexId(21), false, true, &key(1), &[18]);
    unit.key(IndexId(21), true, true, &key(1), &[18]);
    table.commit(&mut unit);
    table.check();
    assert_eq!(table.try_insert(&doc(0, 1, "")).err(), Some(duplicate(0, 1, Some(id))));
}

pub(super) fn exempted_keys(subject: &mut Subject) {
    let table = table(subject);
    for i in 0..3 {
        let mut unit = WriteUnit::new();
        for _ in 0..2 {
            unit.insert(table.id, doc(i, 9, ""));
            unit.key(IndexId(20), true, false, &key(i), &[18]);
            unit.key(IndexId(21), true, false, &key(9), &[18]);
        }
        table.commit(&mut unit);
    }
    table.check();
    assert_eq!(table.records().len(), 6);
    let first = table.find(&table.indexes[1], 9);
    assert_eq!(table.try_insert(&doc(0, 9, "not exempt")).err(), Some(duplicate(0, 9, first)));
}

pub(super) fn a_refused_unit_leaves_nothing(subject: &mut Subject) {
    let table = table(subject);
    let one = table.insert(&doc(1, 1, "one"));
    let two = table.insert(&doc(2, 2, "two"));
    let before = (table.records(), table.store().stats().expect("stats"));
    let mut unit = WriteUnit::new();
    table.insert_in(&mut unit, &doc(3, 3, "three"));
    table.update_in(&mut unit, one, &table.record(one), &doc(1, 4, "one more"));
    table.delete_in(&mut unit, two, &table.record(two));
    unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
    let definition = table.engine.definition_number(table.id);
    table.insert_in(&mut unit, &doc(5, 3, "refused"));
    assert_eq!(table.engine.commit(&mut unit).err(), Some(duplicate(4, 3, None)));
    assert_eq!((table.records(), table.store().stats().expect("stats")), before);
    assert_eq!(table.engine.definition_number(table.id), definition);
    table.check();
    for u in [1, 2] {
        assert!(table.try_insert(&doc(0, u, "")).is_err(), "{u} is still taken");
    }
    for u in [3, 4] {
        table.insert(&doc(0, u, "still free"));
    }
    table.check();
}

pub(super) fn one_of_many_threads_wins(subject: &mut Subject) {
    let table = table(subject);
    let attempt = |thread: i64| {
        let mut won = 0;
        for u in 0..300 {
            match table.try_insert(&doc(thread, u, "")) {
                Ok(_) => won += 1,
                Err(StorageError::DuplicateKey { index, key: found, .. }) => {
                    assert_eq!((index, found.as_slice()), (IndexId(21), &key(u)[..]));
                }
                Err(error) => panic!("{error}"),
            }
        }
        won
    };
    let won: i32 = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|t| scope.spawn(move || attempt(t))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    });
    assert_eq!(won, 300);
    assert_eq!(table.records().len(), 300);
    table.check();
}
