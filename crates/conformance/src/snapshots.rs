//! Held snapshots: exactly one state, for as long as the snapshot is held.

use super::Subject;
use super::inspect::{self, Reader, Stored};
use super::table::{Table, TableIndex, doc, key, number};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_storage::error::StorageError;
use kauri_storage::scan::{Direction, IndexScan};
use kauri_storage::unit::{OpKind, WriteUnit};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn table(subject: &Subject) -> Table {
    let indexes = [
        TableIndex::new(20, false, "k"),
        TableIndex::new(21, true, "u"),
        TableIndex::new(22, false, "s"),
    ];
    Table::create(&subject.engine(), 10, &indexes)
}

/// Checks that a reader sees just these records, and index entries that go with them.
fn check(reader: &mut Reader, table: &Table, expected: &BTreeMap<RecordId, Stored>, when: &str) {
    let store = table.store();
    for id in table.records().keys().filter(|id| !expected.contains_key(*id)) {
        let found = reader.get(&*store, *id).expect("get");
        assert_eq!(found, None, "{when}: {id}, which came later");
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let found = reader.records(&*store, direction).expect("scan");
        assert_eq!(&found, expected, "{when}: records, {direction:?}");
        for index in &table.indexes {
            let mut keys = inspect::keys_of(expected, &*index.generator);
            if direction == Direction::Backward {
                keys.reverse();
            }
            let handle = table.engine.index(index.spec.id).expect("the index");
            let found = reader.entries(&*handle, direction).expect("scan");
            assert_eq!(found, keys, "{when}: {:?}, {direction:?}", index.spec.id);
        }
    }
}

pub(super) fn a_held_snapshot_stays_as_it_was(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..300).map(|i| table.insert(&doc(i % 7, i, "first"))).collect();
    let expected = table.records();
    let mut reader = Reader::hold(&*table.engine);
    let snapshot = reader.unit().snapshot();
    for (i, id) in ids.iter().enumerate() {
        match i % 3 {
            0 => table.delete(*id),
            1 => drop(table.update(*id, &doc(100, 1000 + i as i64, "second"))),
            _ => {}
        }
    }
    check(&mut reader, &table, &expected, "after changes");
    for id in &ids {
        let found = reader.get(&*table.store(), *id).expect("get");
        assert_eq!(found.as_ref(), expected.get(id));
        reader.unit().leave();
        reader.unit().enter();
        assert_eq!(reader.unit().snapshot(), snapshot);
    }
    table.engine.sync().expect("sync");
    check(&mut reader, &table, &expected, "after leaving and entering");
    reader.unit().leave();
    assert!(reader.unit().is_held());
    reader.unit().release_snapshot();
    assert!(!reader.unit().is_held());
    reader.unit().enter();
    check(&mut reader, &table, &table.records(), "after the release");
    reader.unit().leave();
    let newest = reader.unit().hold_snapshot().expect("holding again");
    assert!(newest > snapshot);
    reader.unit().enter();
    check(&mut reader, &table, &table.records(), "held again");
}

pub(super) fn what_is_not_held_is_the_newest(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(1, 1, "a"));
    let _held = Reader::hold(&*table.engine);
    for i in 2..50 {
        let version = table.update(id, &doc(i, i, "b"));
        let found = table.record(id);
        assert_eq!((number(&found.doc, "k"), found.version), (i, version));
        assert_eq!(table.find(&table.indexes[1], i), Some(id));
        assert_eq!(table.find(&table.indexes[1], i - 1), None);
    }
    table.check();
}

pub(super) fn records_that_come_later_are_not_seen(subject: &mut Subject) {
    let table = table(subject);
    let mut held = Vec::new();
    for round in 0..6 {
        held.push((Reader::hold(&*table.engine), table.records()));
        for i in 0..40 {
            let id = table.insert(&doc(i, round * 100 + i, "new"));
            match i % 4 {
                0 => table.delete(id),
                1 => drop(table.update(id, &doc(-i, round * 100 + i + 50, "changed"))),
                _ => {}
            }
        }
    }
    for (n, (reader, expected)) in held.iter_mut().enumerate() {
        check(reader, &table, expected, &format!("snapshot {n}"));
    }
    // They go in another order than they came.
    for n in [2, 0, 3, 1] {
        let (mut reader, expected) = held.remove(n.min(held.len() - 1));
        check(&mut reader, &table, &expected, "before it goes");
        drop(reader);
        for (reader, expected) in &mut held {
            check(reader, &table, expected, "after another has gone");
        }
    }
}

pub(super) fn index_entries_stay_as_they_were(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..600).map(|i| table.insert(&doc(i % 3, i, "x"))).collect();
    let expected = table.records();
    let mut reader = Reader::hold(&*table.engine);
    for (i, id) in ids.iter().enumerate().filter(|(i, _)| i % 2 == 0) {
        // The unique keys move to other records.
        table.update(*id, &doc(7, 10_000 + i as i64, "y"));
    }
    for i in 0..300 {
        table.insert(&doc(1, i * 2, "z"));
    }
    let unique = table.engine.index(table.indexes[1].spec.id).expect("the index");
    for (i, id) in ids.iter().enumerate() {
        let found = reader.find(&*unique, &key(i as i64)).expect("find");
        assert_eq!(found, Some(*id), "who had the key {i}");
        assert_eq!(reader.find(&*unique, &key(10_000 + i as i64)).expect("find"), None);
    }
    // Ranges, in both directions, through many batches and from anywhere.
    let index = table.engine.index(table.indexes[0].spec.id).expect("the index");
    let all = inspect::keys_of(&expected, &*table.indexes[0].generator);
    for direction in [Direction::Forward, Direction::Backward] {
        for (low, high) in [(0, 1), (1, 2), (0, 3), (2, 9), (5, 9)] {
            let (low, high) = (key(low).to_vec(), key(high).to_vec());
            let mut wanted: Vec<_> =
                all.iter().filter(|e| e.key >= low && e.key < high).cloned().collect();
            if direction == Direction::Backward {
                wanted.reverse();
            }
            let mut scan = IndexScan::new(direction, low, high);
            assert_eq!(reader.rest(&*index, &mut scan).expect("scan"), wanted);
        }
    }
}

pub(super) fn entries_that_come_and_go_again(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(0, 0, "even"));
    let mut held = Vec::new();
    for i in 0..60 {
        if i % 7 == 0 {
            held.push((Reader::hold(&*table.engine), table.records()));
        }
        let text = if i % 2 == 0 { "odd" } else { "even" };
        table.update(id, &doc(i % 3, i % 5, text));
    }
    for (n, (reader, expected)) in held.iter_mut().enumerate() {
        check(reader, &table, expected, &format!("snapshot {n}"));
    }
}

pub(super) fn a_definition_change_ends_what_a_snapshot_shows(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(1, 1, ""));
    let unavailable = StorageError::SnapshotUnavailable(table.id);
    let mut reader = Reader::hold(&*table.engine);
    let mut unit = WriteUnit::new();
    unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
    table.commit(&mut unit);
    assert_eq!(reader.get(&*table.store(), id).err(), Some(unavailable.clone()));
    drop(reader);
    // One that is taken afterwards has nothing against it.
    let mut reader = Reader::hold(&*table.engine);
    assert!(reader.get(&*table.store(), id).expect("get").is_some());
    // A new index.
    let index = TableIndex::new(29, false, "k");
    let mut unit = WriteUnit::new();
    table.create_index_in(&mut unit, &index);
    table.backfill_in(&mut unit, &index, id, &table.record(id));
    table.commit(&mut unit);
    let handle = table.engine.index(index.spec.id).expect("the index");
    let found = reader.entries(&*handle, Direction::Forward);
    assert_eq!(found.err(), Some(unavailable.clone()));
    let mut later = Reader::hold(&*table.engine);
    assert_eq!(later.entries(&*handle, Direction::Forward).expect("scan").len(), 1);
    // A new store, and one that goes.
    let other = Table::create(&table.engine, 11, &[]);
    let found = later.records(&*other.store(), Direction::Forward);
    assert_eq!(found.err(), Some(StorageError::SnapshotUnavailable(other.id)));
    let store = table.store();
    let mut unit = WriteUnit::new();
    unit.push(table.id, RecordId(0), OpKind::DropStore);
    table.commit(&mut unit);
    assert_eq!(later.get(&*store, id).err(), Some(unavailable.clone()));
    assert_eq!(later.records(&*store, Direction::Forward).err(), Some(unavailable.clone()));
    assert_eq!(later.entries(&*handle, Direction::Forward).err(), Some(unavailable));
}

/// What is left of it may lack entries that the snapshot had.
pub(super) fn an_index_that_is_dropped_is_not_shown(subject: &mut Subject) {
    let table = table(subject);
    for i in 0..50 {
        table.insert(&doc(i, i, ""));
    }
    let unavailable = Some(StorageError::SnapshotUnavailable(table.id));
    let [plain, unique] =
        [0, 1].map(|n| table.engine.index(table.indexes[n].spec.id).expect("the index"));
    let mut reader = Reader::hold(&*table.engine);
    assert_eq!(reader.entries(&*plain, Direction::Forward).expect("scan").len(), 50);
    for index in &table.indexes[..2] {
        let mut unit = WriteUnit::new();
        unit.push(table.id, RecordId(0), OpKind::DropIndex { index: index.spec.id });
        table.commit(&mut unit);
    }
    assert_eq!(reader.entries(&*plain, Direction::Forward).err(), unavailable);
    assert_eq!(reader.entries(&*unique, Direction::Backward).err(), unavailable);
    assert_eq!(reader.find(&*unique, &key(3)).err(), unavailable);
}

/// Neither waits for the other, however they meet.
pub(super) fn held_readers_of_indexes_among_writers(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..20).map(|i| table.insert(&doc(i, i, ""))).collect();
    let unique = table.engine.index(table.indexes[1].spec.id).expect("the index");
    for round in 0..5 {
        let before = if round == 0 { 0 } else { 1000 * (round + 1) - 1 };
        let mut reader = Reader::hold(&*table.engine);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1000 * (round + 1)..1000 * (round + 2) {
                    table.update(ids[0], &doc(n, n, ""));
                }
                ended.store(true, Ordering::Release);
            });
            let mut wrong = None;
            while !ended.load(Ordering::Acquire) {
                let found = reader.find(&*unique, &key(before));
                wrong = wrong.or(Some(found).filter(|found| *found != Ok(Some(ids[0]))));
            }
            assert_eq!(wrong, None, "round {round}");
        });
    }
}

pub(super) fn other_collections_go_on(subject: &mut Subject) {
    let table = table(subject);
    for i in 0..50 {
        table.insert(&doc(i, i, ""));
    }
    let expected = table.records();
    let mut reader = Reader::hold(&*table.engine);
    for n in 0..20 {
        let other = Table::create(&table.engine, 100 + n, &[TableIndex::new(100 + n, false, "k")]);
        other.insert(&doc(1, 1, ""));
        let mut unit = WriteUnit::new();
        unit.push(other.id, RecordId(0), OpKind::DropStore);
        other.commit(&mut unit);
        table.update(RecordId(1), &doc(n.into(), 1000 + i64::from(n), ""));
    }
    check(&mut reader, &table, &expected, "while others come and go");
}

pub(super) fn random_histories(subject: &mut Subject) {
    let table = table(subject);
    for seed in 1..=3 {
        let random = SeededRandom::new(seed);
        let below = |n: u64| random.next_u64() % n.max(1);
        let mut held: Vec<(Reader, BTreeMap<RecordId, Stored>)> = Vec::new();
        for step in 0..1200 {
            let records = table.records_if(below(4) == 0);
            match below(100) {
                0..4 if held.len() < 6 => {
                    held.push((Reader::hold(&*table.engine), table.records()));
                }
                4..8 if !held.is_empty() => {
                    let at = below(held.len() as u64) as usize;
                    let (mut reader, expected) = held.swap_remove(at);
                    check(&mut reader, &table, &expected, &format!("seed {seed}, step {step}"));
                }
                8..12 if !held.is_empty() => {
                    let at = below(held.len() as u64) as usize;
                    let (reader, expected) = &mut held[at];
                    check(reader, &table, expected, &format!("seed {seed}, step {step}"));
                }
                _ => random_unit(&table, &below, records),
            }
        }
        for (reader, expected) in &mut held {
            check(reader, &table, expected, &format!("seed {seed}, at the end"));
        }
    }
    table.check();
}

impl Table {
    fn records_if(&self, wanted: bool) -> BTreeMap<RecordId, Stored> {
        if wanted { self.records() } else { BTreeMap::new() }
    }
}

/// A unit of up to four changes; refused if a unique key is in use.
fn random_unit(table: &Table, below: &dyn Fn(u64) -> u64, records: BTreeMap<RecordId, Stored>) {
    let document = || {
        let text = "t".repeat(below(4) as usize * 30);
        doc(below(12) as i64, below(300) as i64, &text)
    };
    let mut unit = WriteUnit::new();
    let mut taken = Vec::new();
    for _ in 0..=below(4) {
        let pick = records.iter().nth(below(records.len() as u64) as usize);
        match pick.filter(|(id, _)| !taken.contains(*id)) {
            Some((id, old)) => {
                taken.push(*id);
                if below(3) == 0 {
                    table.delete_in(&mut unit, *id, old);
                } else {
                    table.update_in(&mut unit, *id, old, &document());
                }
            }
            None => drop(table.insert_in(&mut unit, &document())),
        }
    }
    match table.engine.commit(&mut unit) {
        Ok(_) | Err(StorageError::DuplicateKey { .. }) => {}
        Err(error) => panic!("commit: {error}"),
    }
}

pub(super) fn sums_hold_among_writers(subject: &mut Subject) {
    const ACCOUNTS: i64 = 20;
    let table = table(subject);
    let ids: Vec<_> = (0..ACCOUNTS).map(|i| table.insert(&doc(100, i, "account"))).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (table, ids, done) = (&table, &ids, &done);
            scope.spawn(move || {
                let random = SeededRandom::new(seed);
                while !done.load(Ordering::Acquire) {
                    transfer(table, ids, &random);
                }
            });
        }
        let store = table.store();
        let index = table.engine.index(table.indexes[0].spec.id).expect("the index");
        let looks = || {
            for _ in 0..60 {
                let mut reader = Reader::hold(&*table.engine);
                let first = reader.records(&*store, Direction::Forward).expect("scan");
                let sum: i64 = first.values().map(|r| number(&r.doc, "k")).sum();
                assert_eq!((first.len() as i64, sum), (ACCOUNTS, 100 * ACCOUNTS));
                // What the index has must be the same state, and so must a second look.
                let keys = inspect::keys_of(&first, &*table.indexes[0].generator);
                let found = reader.entries(&*index, Direction::Forward).expect("scan");
                assert_eq!(found, keys);
                let again = reader.records(&*store, Direction::Backward).expect("scan");
                assert_eq!(first, again);
            }
        };
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(looks));
        done.store(true, Ordering::Release);
        looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    table.check();
}

/// Moves something from one account to another, which may be refused.
fn transfer(table: &Table, ids: &[RecordId], random: &SeededRandom) {
    let pick = || ids[random.next_u64() as usize % ids.len()];
    let (from, to, amount) = (pick(), pick(), (random.next_u64() % 50) as i64);
    if from == to {
        return;
    }
    let mut unit = WriteUnit::new();
    for (id, change) in [(from, -amount), (to, amount)] {
        let old = table.record(id);
        let (k, u) = (number(&old.doc, "k"), number(&old.doc, "u"));
        table.update_in(&mut unit, id, &old, &doc(k + change, u, "account"));
    }
    match table.engine.commit(&mut unit) {
        Ok(_) | Err(StorageError::WriteConflict) => {}
        Err(error) => panic!("commit: {error}"),
    }
}
