//! Data after the engine was closed and opened again.

use super::Subject;
use super::inspect::{self, Stored};
use super::table::{Table, TableIndex, doc};
use kauri_base::clock::SeededRandom;
use kauri_base::limits::DOCUMENT_INTERNAL_BYTES_MAX;
use kauri_base::{CollectionId, RandomSource, RecordId};
use kauri_storage::Durability;
use kauri_storage::error::StorageError;
use kauri_storage::unit::{OpKind, WriteUnit};
use std::collections::BTreeMap;
use std::thread;

fn indexes() -> [TableIndex; 3] {
    [
        TableIndex::new(20, false, "k"),
        TableIndex::new(21, true, "u"),
        TableIndex::new(22, false, "s"),
    ]
}

/// Closes the engine that `table` is of, opens it again, attaches the indexes.
fn reopen(subject: &mut Subject, table: Table) -> Table {
    let Table { engine, id, indexes } = table;
    drop(engine);
    subject.reopen();
    let table = Table { engine: subject.engine(), id, indexes };
    table.attach();
    table
}

fn documents(records: &BTreeMap<RecordId, Stored>) -> BTreeMap<RecordId, Vec<u8>> {
    records.iter().map(|(id, record)| (*id, record.doc.clone())).collect()
}

pub(super) fn records_survive(subject: &mut Subject) {
    let mut table = Table::create(&subject.engine(), 10, &indexes());
    let mut expected = BTreeMap::new();
    for round in 0..4 {
        for i in 0..200 {
            let u = round * 1000 + i;
            let new = doc(i % 7, u, &"x".repeat(i as usize * 3));
            expected.insert(table.insert(&new), new);
        }
        for id in (1..=200 * round as u64).step_by(17).map(RecordId) {
            let new = doc(-round, -(round * 1000 + id.0 as i64), "updated");
            table.update(id, &new);
            expected.insert(id, new);
        }
        table.engine.sync().expect("sync");
        table = reopen(subject, table);
        assert_eq!(documents(&table.records()), expected, "round {round}");
        table.check();
    }
}

pub(super) fn written_suffices_for_closing(subject: &mut Subject) {
    let mut table = Table::create(&subject.engine(), 10, &indexes());
    for round in 0..3 {
        for i in 0..50 {
            let mut unit = WriteUnit::new();
            table.insert_in(&mut unit, &doc(i, round * 100 + i, ""));
            table.commit(&mut unit).wait(Durability::Written).expect("wait");
        }
        table = reopen(subject, table);
        assert_eq!(table.records().len() as i64, (round + 1) * 50);
        table.check();
    }
}

pub(super) fn ids_go_on(subject: &mut Subject) {
    let mut table = Table::create(&subject.engine(), 10, &[]);
    for i in 0..10 {
        table.insert(&doc(i, i, ""));
    }
    for id in [10, 9, 3] {
        table.delete(RecordId(id));
    }
    for round in 0..3 {
        table.engine.sync().expect("sync");
        table = reopen(subject, table);
        let id = table.insert(&doc(0, 0, ""));
        assert_eq!(id, RecordId(11 + round), "the ids of deleted records are not given again");
        table.delete(id);
    }
    // Nor if nothing is left.
    let mut unit = WriteUnit::new();
    for (id, record) in table.records() {
        table.delete_in(&mut unit, id, &record);
    }
    table.commit(&mut unit).wait(Durability::Durable).expect("wait");
    table = reopen(subject, table);
    table = reopen(subject, table);
    assert_eq!(table.insert(&doc(0, 0, "")), RecordId(14));
}

pub(super) fn commits_go_on(subject: &mut Subject) {
    let mut table = Table::create(&subject.engine(), 10, &[]);
    let id = table.insert(&doc(0, 0, ""));
    let untouched = table.insert(&doc(1, 1, ""));
    for round in 1..5 {
        let before = table.update(id, &doc(round, 0, ""));
        table.engine.sync().expect("sync");
        table = reopen(subject, table);
        assert!(table.record(id).version <= before);
        let mut unit = table.engine.recovery_unit();
        unit.enter();
        assert!(unit.snapshot() >= table.record(id).version);
        unit.leave();
        let outdated = table.record(id);
        let after = table.update(id, &doc(-round, 0, ""));
        assert!(after > before, "the sequence goes on where it stood");
        let mut unit = WriteUnit::new();
        table.update_in(&mut unit, id, &outdated, &doc(9, 9, ""));
        assert_eq!(table.engine.commit(&mut unit).err(), Some(StorageError::WriteConflict));
    }
    table.delete(untouched);
    assert_eq!(table.records().len(), 1);
}

pub(super) fn deletes_and_drops_survive(subject: &mut Subject) {
    let engine = subject.engine();
    let mut table = Table::create(&engine, 10, &indexes());
    let dropped = Table::create(&engine, 11, &[TableIndex::new(30, false, "k")]);
    let empty = Table::create(&engine, 12, &[]);
    for i in 0..100 {
        table.insert(&doc(i, i, ""));
        dropped.insert(&doc(i, i, ""));
    }
    for id in (2..=100).step_by(2) {
        table.delete(RecordId(id));
    }
    let mut unit = WriteUnit::new();
    unit.push(dropped.id, RecordId(0), OpKind::DropStore);
    table.commit(&mut unit).wait(Durability::Durable).expect("wait");
    let ids = (dropped.id, empty.id);
    drop((dropped, empty, engine));
    let (dropped, empty) = ids;
    for _ in 0..3 {
        table = reopen(subject, table);
        let left: Vec<_> = table.records().into_keys().map(|id| id.0).collect();
        assert_eq!(left, Vec::from_iter((1..100).step_by(2)));
        table.check();
        let engine = &table.engine;
        assert!(engine.record_store(dropped).is_none() && !engine.stores().contains(&dropped));
        assert!(engine.record_store(empty).is_some() && engine.stores().contains(&empty));
        assert_eq!(inspect::records(&**engine, empty), Ok(BTreeMap::new()));
    }
}

pub(super) fn multi_document_units_survive_whole(subject: &mut Subject) {
    let mut table = Table::create(&subject.engine(), 10, &indexes());
    let mut expected = BTreeMap::new();
    for (round, count) in [2_usize, 3, 100, 1000, 5000].into_iter().enumerate() {
        let mut unit = WriteUnit::new();
        let docs: Vec<_> =
            (0..count).map(|i| doc(round as i64, (round * 10_000 + i) as i64, "")).collect();
        for doc in &docs {
            table.insert_in(&mut unit, doc);
        }
        let new = Table::new(&table.engine, 50 + round as u32, &[]);
        new.create_in(&mut unit);
        new.insert_in(&mut unit, &doc(0, 0, "in the same unit"));
        drop(new);
        table.commit(&mut unit).wait(Durability::Durable).expect("wait");
        expected.extend(unit.ops.iter().map(|op| op.record).zip(docs));
        table = reopen(subject, table);
        assert_eq!(documents(&table.records()), expected);
        let new = CollectionId(50 + round as u32);
        assert_eq!(inspect::records(&*table.engine, new).map(|records| records.len()), Ok(1));
    }
    table.check();
}

pub(super) fn indexes_are_rebuilt_equal(subject: &mut Subject) {
    let mut table = Table::create(&subject.engine(), 10, &indexes());
    for i in 0..3000 {
        table.insert(&doc(i * 7 % 100, i, &format!("{}", i * 7919 % 3000)));
    }
    for id in (1..3000).step_by(3) {
        table.update(RecordId(id), &doc(-5, 10_000 + id as i64, "same"));
    }
    let before: Vec<_> =
        table.indexes.iter().map(|i| inspect::entries(&*table.engine, i.spec.id)).collect();
    table.engine.sync().expect("sync");
    table = reopen(subject, table);
    table.check();
    let after: Vec<_> =
        table.indexes.iter().map(|i| inspect::entries(&*table.engine, i.spec.id)).collect();
    assert_eq!(before, after);
    assert!(table.try_insert(&doc(5, 2, "")).is_err(), "unique as before");
    table.delete(RecordId(3));
    table.insert(&doc(5, 2, "free now"));
    table.check();
}

pub(super) fn indexes_attach_from_many_threads(subject: &mut Subject) {
    let engine = subject.engine();
    let tables: Vec<_> = (0..4)
        .map(|t| {
            let indexes = [TableIndex::new(20 + t, false, "k"), TableIndex::new(30 + t, true, "u")];
            Table::create(&engine, 10 + t, &indexes)
        })
        .collect();
    for i in 0..500 {
        for table in &tables {
            table.insert(&doc(i % 10, i, ""));
        }
    }
    engine.sync().expect("sync");
    let described: Vec<_> = tables.into_iter().map(|t| (t.id, t.indexes)).collect();
    drop(engine);
    subject.reopen();
    let engine = subject.engine();
    let tables: Vec<_> = described
        .into_iter()
        .map(|(id, indexes)| Table { engine: engine.clone(), id, indexes })
        .collect();
    thread::scope(|scope| {
        for table in &tables {
            for index in &table.indexes {
                scope.spawn(|| Table { indexes: vec![index.clone()], ..table.clone() }.attach());
            }
        }
    });
    for table in &tables {
        table.check();
        table.insert(&doc(3, 1000, ""));
        table.check();
    }
}

pub(super) fn attaching_finds_duplicates(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    for u in [1, 5, 5] {
        table.insert(&doc(u, u, ""));
    }
    table.engine.sync().expect("sync");
    drop(table);
    subject.reopen();
    let table = Table::new(&subject.engine(), 10, &[TableIndex::new(21, false, "u")]);
    let unique = TableIndex::new(20, true, "u");
    let result = table.engine.attach_index(table.id, unique.spec, unique.generator);
    assert!(matches!(result, Err(StorageError::Corruption { .. })), "{result:?}");
    table.attach();
    table.check();
    let missing = TableIndex::new(23, false, "k");
    let result = table.engine.attach_index(CollectionId(99), missing.spec, missing.generator);
    assert!(result.is_err(), "there is no such collection");
}

pub(super) fn definitions_hold_after_reopening(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &indexes());
    let mut unit = WriteUnit::new();
    unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
    table.commit(&mut unit);
    table.engine.sync().expect("sync");
    let table = reopen(subject, table);
    let number = table.engine.definition_number(table.id).expect("a number");
    for (expected, change) in [(true, true), (false, false)] {
        let mut unit = WriteUnit::new();
        unit.expect_definition(table.id, number);
        table.insert_in(&mut unit, &doc(0, i64::from(change), ""));
        unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
        assert_eq!(table.engine.commit(&mut unit).is_ok(), expected);
    }
}

pub(super) fn large_documents_survive(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, false, "k")]);
    let frame = doc(1, 0, "").len();
    let docs: Vec<_> = [0, 4096, 1 << 20, DOCUMENT_INTERNAL_BYTES_MAX - frame, 100]
        .into_iter()
        .zip(["a", "b", "c", "d", "e"])
        .map(|(length, fill)| doc(length as i64, 0, &fill.repeat(length)))
        .collect();
    for doc in &docs {
        table.insert(doc);
    }
    let mut unit = WriteUnit::new();
    for doc in &docs {
        table.insert_in(&mut unit, doc);
    }
    table.commit(&mut unit).wait(Durability::Durable).expect("wait");
    let table = reopen(subject, table);
    // Compared outside of assert_eq!, which would print 16 MB.
    for (record, doc) in table.records().values().zip(docs.iter().chain(&docs)) {
        assert!(record.doc == *doc, "{} bytes", doc.len());
    }
    assert_eq!(table.records().len(), 10);
    table.check();
}

/// A text that an engine that compresses can't make shorter.
fn incompressible(length: usize) -> String {
    let random = SeededRandom::new(length as u64);
    (0..length).map(|_| char::from(b' ' + (random.next_u64() % 95) as u8)).collect()
}

pub(super) fn statistics_survive(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &indexes());
    for i in 0..300 {
        table.insert(&doc(i, i, &incompressible(i as usize)));
    }
    for id in 1..100 {
        table.update(RecordId(id), &doc(0, -(id as i64), ""));
        table.delete(RecordId(id + 150));
    }
    table.engine.sync().expect("sync");
    let before = table.store().stats().expect("stats");
    let table = reopen(subject, table);
    let after = table.store().stats().expect("stats");
    assert_eq!((after.records, after.bytes), (before.records, before.bytes));
    assert!(after.storage_bytes >= after.bytes, "{after:?}");
    table.check();
}

pub(super) fn an_unused_engine_reopens(subject: &mut Subject) {
    for _ in 0..3 {
        let engine = subject.engine();
        assert!(engine.stores().iter().all(|id| *id == CollectionId::CATALOG));
        drop(engine);
        subject.reopen();
    }
    let table = Table::create(&subject.engine(), 10, &[]);
    table.insert(&doc(1, 1, ""));
    table.engine.sync().expect("sync");
    drop(table);
    subject.reopen();
    let engine = subject.engine();
    assert_eq!(inspect::records(&*engine, CollectionId(10)).map(|records| records.len()), Ok(1));
}
