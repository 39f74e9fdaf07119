//! Threads that write the same few records.

use super::Subject;
use super::inspect::Reader;
use super::table::{Table, TableIndex, doc, key, number};
use kauri_base::clock::SeededRandom;
use kauri_base::{CommitSeq, RandomSource, RecordId};
use kauri_storage::error::StorageError;
use kauri_storage::scan::Direction;
use kauri_storage::unit::{OpKind, WriteUnit};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

const THREADS: u64 = 4;

fn table(subject: &Subject) -> Table {
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    Table::create(&subject.engine(), 10, &indexes)
}

/// Ends the threads that wait for it, also when the test fails.
pub(super) struct SetWhenDropped<'a>(pub(super) &'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Builds and commits a unit until it is taken.
fn retry(table: &Table, mut build: impl FnMut(&mut Reader, &mut WriteUnit<'_>)) -> CommitSeq {
    loop {
        let mut unit = WriteUnit::new();
        let mut reader = Reader::new(&*table.engine);
        build(&mut reader, &mut unit);
        drop(reader);
        match table.engine.commit(&mut unit) {
            Ok(ticket) => return ticket.seq,
            Err(StorageError::WriteConflict) => {}
            Err(error) => panic!("commit: {error}"),
        }
    }
}

pub(super) fn inserts_give_each_its_own_id(subject: &mut Subject) {
    let table = table(subject);
    let given = Mutex::new(Vec::new());
    let seqs = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for t in 0..THREADS as i64 {
            let (table, given, seqs) = (&table, &given, &seqs);
            scope.spawn(move || {
                for i in 0..500 {
                    let u = t * 10_000 + i * 10;
                    let mut unit = WriteUnit::new();
                    for n in 0..i % 3 + 1 {
                        table.insert_in(&mut unit, &doc(t, u + n, "some text"));
                    }
                    let ticket = table.commit(&mut unit);
                    let ids: Vec<_> = unit.ops.iter().map(|op| op.record).collect();
                    assert!(ids.is_sorted(), "within a unit ids ascend");
                    given.lock().expect("lock").extend((u..).zip(ids));
                    assert!(seqs.lock().expect("lock").insert(ticket.seq), "a seq came twice");
                }
            });
        }
    });
    let mut given = given.into_inner().expect("lock");
    given.sort_by_key(|(_, id)| *id);
    let dense = (1..).map(RecordId).take(given.len());
    assert!(given.iter().map(|(_, id)| *id).eq(dense), "ids are dense");
    let records = table.records();
    assert_eq!(records.len(), given.len());
    for (u, id) in given {
        assert_eq!(number(&records[&id].doc, "u"), u, "{id} is not the insert's that it was given");
    }
    table.check();
}

pub(super) fn transfers_preserve_the_sum(subject: &mut Subject) {
    const ACCOUNTS: u64 = 8;
    let table = table(subject);
    for i in 0..ACCOUNTS as i64 {
        table.insert(&doc(1000, i, ""));
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = SetWhenDropped(&stop);
        let writers: Vec<_> = (0..THREADS)
            .map(|t| {
                let table = &table;
                scope.spawn(move || {
                    let random = SeededRandom::new(t);
                    for _ in 0..500 {
                        let from = RecordId(random.next_u64() % ACCOUNTS + 1);
                        let to =
                            RecordId((from.0 + random.next_u64() % (ACCOUNTS - 1)) % ACCOUNTS + 1);
                        let amount = (random.next_u64() % 100) as i64;
                        transfer(table, from, to, amount);
                    }
                })
            })
            .collect();
        // A reader finds every record whole, by itself and through the index.
        let (table, stop) = (&table, &stop);
        scope.spawn(move || {
            let store = table.store();
            while !stop.load(Ordering::Acquire) {
                let mut reader = Reader::new(&*table.engine);
                for id in 1..=ACCOUNTS {
                    let record = reader.get(&*store, RecordId(id)).expect("get");
                    let record = record.expect("accounts are never deleted");
                    assert_eq!(number(&record.doc, "u"), id as i64 - 1);
                }
            }
        });
        for writer in writers {
            writer.join().expect("a writer");
        }
    });
    let sum: i64 = table.records().values().map(|record| number(&record.doc, "k")).sum();
    assert_eq!(sum, 1000 * ACCOUNTS as i64);
    table.check();
}

fn transfer(table: &Table, from: RecordId, to: RecordId, amount: i64) {
    let store = table.store();
    retry(table, |reader, unit| {
        for (id, change) in [(from, -amount), (to, amount)] {
            let old = reader.get(&*store, id).expect("get").expect("an account");
            let new = doc(number(&old.doc, "k") + change, number(&old.doc, "u"), "");
            table.update_in(unit, id, &old, &new);
        }
    });
}

pub(super) fn counters_lose_no_update(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(0, 0, ""));
    let store = table.store();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut last = CommitSeq(0);
                for _ in 0..400 {
                    let seq = retry(&table, |reader, unit| {
                        let old = reader.get(&*store, id).expect("get").expect("the counter");
                        assert!(
                            old.version >= last,
                            "a reader doesn't go back before its own write"
                        );
                        table.update_in(unit, id, &old, &doc(number(&old.doc, "k") + 1, 0, ""));
                    });
                    last = seq;
                }
            });
        }
    });
    assert_eq!(number(&table.record(id).doc, "k"), 400 * THREADS as i64);
    table.check();
}

/// Two records are always written together. A reader of both, in either order, must not see one of them without a
/// commit that its snapshot covers and the other one shows.
pub(super) fn units_are_seen_whole(subject: &mut Subject) {
    let table = table(subject);
    let other = Table::create(&subject.engine(), 11, &[]);
    let a = table.insert(&doc(0, 0, ""));
    let b = other.insert(&doc(0, 0, ""));
    retry(&table, |reader, unit| write_both(&table, &other, (a, b), reader, unit));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = SetWhenDropped(&stop);
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        retry(&table, |reader, unit| {
                            write_both(&table, &other, (a, b), reader, unit)
                        });
                    }
                })
            })
            .collect();
        for order in 0..2 {
            let (table, other, stop) = (&table, &other, &stop);
            scope.spawn(move || {
                let (first, second) = (table.store(), other.store());
                while !stop.load(Ordering::Acquire) {
                    let mut reader = Reader::new(&*table.engine);
                    let mut read = |which: usize| {
                        let (store, id) = [(&first, a), (&second, b)][which];
                        reader.get(&**store, id).expect("get").expect("a record")
                    };
                    let (one, two) = (read(order), read(1 - order));
                    let snapshot = reader.unit().snapshot();
                    if one.version <= snapshot {
                        assert!(two.version >= one.version, "{one:?}, {two:?} at {snapshot:?}");
                    }
                    if two.version <= snapshot {
                        assert!(one.version >= two.version, "{one:?}, {two:?} at {snapshot:?}");
                    }
                    if one.version == two.version {
                        assert_eq!(number(&one.doc, "k"), number(&two.doc, "k"));
                    }
                }
            });
        }
        for writer in writers {
            writer.join().expect("a writer");
        }
    });
    assert_eq!(number(&table.record(a).doc, "k"), 2001);
    assert_eq!(number(&other.record(b).doc, "k"), 2001);
    table.check();
}

fn write_both(
    one: &Table,
    two: &Table,
    ids: (RecordId, RecordId),
    reader: &mut Reader,
    unit: &mut WriteUnit<'_>,
) {
    for (table, id) in [(one, ids.0), (two, ids.1)] {
        let old = reader.get(&*table.store(), id).expect("get").expect("a record");
        table.update_in(unit, id, &old, &doc(number(&old.doc, "k") + 1, 0, ""));
    }
}

pub(super) fn stores_are_created_and_dropped_among_writers(subject: &mut Subject) {
    const FIRST: u32 = 100;
    let engine = subject.engine();
    let newest = AtomicU32::new(FIRST);
    let stop = AtomicBool::new(false);
    let describe = |id: u32| Table::new(&engine, id, &[TableIndex::new(id * 2, true, "u")]);
    describe(FIRST).commit(&mut {
        let mut unit = WriteUnit::new();
        describe(FIRST).create_in(&mut unit);
        unit
    });
    let written: u32 = thread::scope(|scope| {
        let stop_them = SetWhenDropped(&stop);
        let writers: Vec<_> = (0..THREADS as i64)
            .map(|t| {
                let (engine, newest, stop, describe) = (&engine, &newest, &stop, &describe);
                scope.spawn(move || {
                    let mut written = 0;
                    for i in 0.. {
                        if stop.load(Ordering::Acquire) {
                            break;
                        }
                        let table = describe(newest.load(Ordering::Acquire));
                        let Some(number) = engine.definition_number(table.id) else { continue };
                        let mut unit = WriteUnit::new();
                        unit.expect_definition(table.id, number);
                        table.insert_in(&mut unit, &doc(i, i * THREADS as i64 + t, "text"));
                        match engine.commit(&mut unit) {
                            Ok(_) => written += 1,
                            Err(StorageError::StaleCatalog(id)) => assert_eq!(id, table.id),
                            Err(error) => panic!("insert: {error}"),
                        }
                    }
                    written
                })
            })
            .collect();
        for id in FIRST..FIRST + 30 {
            let mut unit = WriteUnit::new();
            describe(id + 1).create_in(&mut unit);
            engine.commit(&mut unit).unwrap_or_else(|error| panic!("create: {error}"));
            newest.store(id + 1, Ordering::Release);
            // Some writes go to the new store before the old one goes.
            while engine
                .record_store(describe(id + 1).id)
                .is_none_or(|s| s.stats().expect("stats").records < 5)
            {
                thread::yield_now();
            }
            let mut unit = WriteUnit::new();
            unit.push(describe(id).id, RecordId(0), OpKind::DropStore);
            engine.commit(&mut unit).unwrap_or_else(|error| panic!("drop: {error}"));
        }
        drop(stop_them);
        writers.into_iter().map(|writer| writer.join().expect("a writer")).sum()
    });
    assert!(written >= 30 * 5);
    let last = describe(FIRST + 30);
    assert!(!last.records().is_empty());
    last.check();
    assert!(engine.record_store(describe(FIRST + 29).id).is_none());
}

/// A reader that has a store and its index in hand when they are dropped gets all documents, or `Dropped`.
pub(super) fn readers_see_all_of_what_is_dropped_or_an_error(subject: &mut Subject) {
    const DOCS: i64 = 300;
    const ROUNDS: u32 = 40;
    let engine = subject.engine();
    let describe = |id| Table::new(&engine, id, &[TableIndex::new(id + 1000, false, "k")]);
    let newest = AtomicU32::new(0);
    let stop = AtomicBool::new(false);
    let (whole, dropped) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let _stop = SetWhenDropped(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let table = describe(newest.load(Ordering::Acquire));
                    let index = engine.index(table.indexes[0].spec.id);
                    let (Some(store), Some(index)) = (engine.record_store(table.id), index) else {
                        thread::yield_now();
                        continue;
                    };
                    let mut reader = Reader::new(&*engine);
                    // Until both are gone; an answer in between is a whole one.
                    for direction in [Direction::Forward, Direction::Backward].into_iter().cycle() {
                        let found = [
                            reader.records(&*store, direction).map(|found| found.len() as u64),
                            reader.entries(&*index, direction).map(|found| found.len() as u64),
                            store.stats().map(|stats| stats.records),
                            index.entries(),
                            reader
                                .find(&*index, &key(DOCS - 1))
                                .map(|found| found.map_or(0, |_| DOCS as u64)),
                        ];
                        let mut gone = 0;
                        for found in found {
                            match found {
                                Ok(count) => assert_eq!(count, DOCS as u64, "part of a store"),
                                Err(StorageError::Dropped { collection, .. }) => {
                                    assert_eq!(collection, table.id);
                                    gone += 1;
                                }
                                Err(error) => panic!("reading: {error}"),
                            }
                        }
                        whole.fetch_add(5 - gone, Ordering::Relaxed);
                        dropped.fetch_add(gone, Ordering::Relaxed);
                        reader.unit().leave();
                        reader.unit().enter();
                        if gone == 5 {
                            break;
                        }
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            let table = describe(100 + round);
            let mut unit = WriteUnit::new();
            table.create_in(&mut unit);
            for i in 0..DOCS {
                table.insert_in(&mut unit, &doc(i, i, ""));
            }
            table.commit(&mut unit);
            let before = whole.load(Ordering::Relaxed);
            newest.store(100 + round, Ordering::Release);
            while whole.load(Ordering::Relaxed) < before + 10 && !stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let mut unit = WriteUnit::new();
            if round % 2 == 0 {
                let index = table.indexes[0].spec.id;
                unit.push(table.id, RecordId(0), OpKind::DropIndex { index });
                table.commit(&mut unit);
                unit = WriteUnit::new();
            }
            unit.push(table.id, RecordId(0), OpKind::DropStore);
            table.commit(&mut unit);
        }
    });
    assert!(dropped.load(Ordering::Relaxed) > 0, "no reader met a drop");
}
