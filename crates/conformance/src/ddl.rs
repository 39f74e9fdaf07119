//! Stores and indexes: creation, drops, builds.

use super::Subject;
use super::concurrency::SetWhenDropped;
use super::inspect::{self, Reader};
use super::table::{Table, TableIndex, doc, key};
use kauri_base::{CollectionId, IndexId, RecordId};
use kauri_storage::StorageEngine;
use kauri_storage::error::StorageError;
use kauri_storage::scan::{Direction, IndexScan, RecordScan};
use kauri_storage::unit::{OpKind, WriteUnit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

fn apply(
    engine: &Arc<dyn StorageEngine>,
    id: u32,
    kinds: impl IntoIterator<Item = OpKind<'static>>,
) -> Option<StorageError> {
    let mut unit = WriteUnit::new();
    for kind in kinds {
        unit.push(CollectionId(id), RecordId(0), kind);
    }
    engine.commit(&mut unit).err()
}

fn create_index(index: &TableIndex) -> OpKind<'static> {
    OpKind::CreateIndex { spec: index.spec, generator: index.generator.clone() }
}

fn stale(id: u32) -> Option<StorageError> {
    Some(StorageError::StaleCatalog(CollectionId(id)))
}

/// The stores of the test's own, whatever else an engine has from the start.
fn stores(engine: &Arc<dyn StorageEngine>) -> Vec<u32> {
    let mut stores: Vec<_> =
        engine.stores().into_iter().map(|id| id.0).filter(|id| *id >= 10).collect();
    stores.sort_unstable();
    stores
}

pub(super) fn stores_come_and_go(subject: &mut Subject) {
    let engine = subject.engine();
    assert!(stores(&engine).is_empty());
    for id in [12, 10, 70_000] {
        assert_eq!(apply(&engine, id, [OpKind::CreateStore]), None);
        assert_eq!(engine.record_store(CollectionId(id)).map(|s| s.id()), Some(CollectionId(id)));
        assert!(engine.definition_number(CollectionId(id)).is_some());
    }
    assert_eq!(stores(&engine), [10, 12, 70_000]);
    assert_eq!(apply(&engine, 12, [OpKind::DropStore]), None);
    assert!(engine.record_store(CollectionId(12)).is_none());
    assert!(engine.definition_number(CollectionId(12)).is_none());
    assert_eq!(stores(&engine), [10, 70_000]);
    let unit = [OpKind::DropStore];
    assert_eq!(apply(&engine, 10, unit), None);
    assert_eq!(stores(&engine), [70_000]);
}

pub(super) fn a_store_that_is_not_there(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    let id = table.insert(&doc(1, 1, ""));
    let seen = table.record(id);
    let engine = &table.engine;
    assert_eq!(apply(engine, 10, [OpKind::CreateStore]), stale(10), "it is there already");
    assert_eq!(table.record(id), seen, "and stays as it is");
    assert_eq!(apply(engine, 10, [OpKind::DropStore]), None);
    let index = TableIndex::new(20, false, "k");
    for id in [10, 99] {
        let mut insert = WriteUnit::new();
        Table::new(engine, id, &[]).insert_in(&mut insert, &doc(1, 1, ""));
        assert_eq!(engine.commit(&mut insert).err(), stale(id));
        assert_eq!(apply(engine, id, [OpKind::DropStore]), stale(id));
        assert_eq!(apply(engine, id, [create_index(&index)]), stale(id));
        assert_eq!(apply(engine, id, [OpKind::DropIndex { index: IndexId(20) }]), stale(id));
        assert_eq!(apply(engine, id, [OpKind::ChangeDefinition]), stale(id));
    }
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, id, &seen, &doc(2, 2, ""));
    assert_eq!(engine.commit(&mut unit).err(), stale(10));
    assert!(stores(engine).is_empty() && engine.index(IndexId(20)).is_none());
}

pub(super) fn a_unit_uses_what_it_creates(subject: &mut Subject) {
    let engine = subject.engine();
    let catalog = Table::create(&engine, 10, &[]);
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    let table = Table::new(&engine, 11, &indexes);
    let mut unit = WriteUnit::new();
    catalog.insert_in(&mut unit, &doc(11, 0, "a collection"));
    table.create_in(&mut unit);
    for i in 0..10 {
        table.insert_in(&mut unit, &doc(i % 3, i, ""));
    }
    unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
    table.commit(&mut unit);
    assert_eq!(catalog.records().len(), 1);
    assert_eq!(
        table.records().into_keys().map(|id| id.0).collect::<Vec<_>>(),
        Vec::from_iter(1..=10)
    );
    table.check();
    assert!(table.try_insert(&doc(0, 3, "")).is_err(), "its unique index works");
}

pub(super) fn a_refused_unit_creates_nothing(subject: &mut Subject) {
    let engine = subject.engine();
    let old = Table::create(&engine, 10, &[TableIndex::new(20, true, "u")]);
    old.insert(&doc(1, 1, ""));
    let new = Table::new(&engine, 11, &[TableIndex::new(21, false, "k")]);
    let mut unit = WriteUnit::new();
    new.create_in(&mut unit);
    new.insert_in(&mut unit, &doc(0, 0, ""));
    unit.push(old.id, RecordId(0), OpKind::DropIndex { index: IndexId(20) });
    unit.push(old.id, RecordId(0), OpKind::DropStore);
    unit.expect_definition(old.id, u64::MAX);
    assert_eq!(engine.commit(&mut unit).err(), stale(10));
    assert_eq!(stores(&engine), [10]);
    assert!(engine.index(IndexId(21)).is_none());
    assert_eq!(old.records().len(), 1);
    old.check();
    Table::create(&engine, 11, &[TableIndex::new(21, false, "k")]).check();
}

pub(super) fn indexes_come_and_go(subject: &mut Subject) {
    let mut table = Table::create(&subject.engine(), 10, &[]);
    let index = TableIndex::new(20, false, "k");
    assert_eq!(apply(&table.engine, 10, [create_index(&index)]), None);
    assert_eq!(table.engine.index(IndexId(20)).map(|i| i.id()), Some(IndexId(20)));
    assert_eq!(apply(&table.engine, 10, [create_index(&index)]), stale(10), "it is there");
    table.indexes.push(index);
    table.insert(&doc(1, 1, ""));
    table.check();
    assert_eq!(apply(&table.engine, 10, [OpKind::DropIndex { index: IndexId(20) }]), None);
    assert!(table.engine.index(IndexId(20)).is_none());
    assert_eq!(apply(&table.engine, 10, [OpKind::DropIndex { index: IndexId(20) }]), stale(10));
    let refused = table.try_insert(&doc(2, 2, ""));
    assert_eq!(refused.err(), stale(10), "keys for an index that is gone");
    table.indexes.clear();
    table.insert(&doc(2, 2, ""));
    table.check();
}

pub(super) fn indexes_go_with_their_store(subject: &mut Subject) {
    let engine = subject.engine();
    let one = Table::create(&engine, 10, &[TableIndex::new(20, false, "k")]);
    let two = Table::create(&engine, 11, &[TableIndex::new(21, false, "k")]);
    one.insert(&doc(1, 1, ""));
    two.insert(&doc(1, 1, ""));
    assert_eq!(apply(&engine, 10, [OpKind::DropStore]), None);
    assert!(engine.index(IndexId(20)).is_none());
    two.check();
    // With the drop in one unit, as when a collection takes another one's name.
    let mut unit = WriteUnit::new();
    unit.push(two.id, RecordId(0), OpKind::DropStore);
    let three = Table::new(&engine, 12, &[TableIndex::new(22, false, "k")]);
    three.create_in(&mut unit);
    three.commit(&mut unit);
    assert!(engine.index(IndexId(21)).is_none() && engine.index(IndexId(22)).is_some());
    assert_eq!(stores(&engine), [12]);
}

pub(super) fn indexes_belong_to_one_store(subject: &mut Subject) {
    let engine = subject.engine();
    let one = Table::create(&engine, 10, &[TableIndex::new(20, false, "k")]);
    let two = Table::create(&engine, 11, &[]);
    one.insert(&doc(1, 1, ""));
    assert_eq!(apply(&engine, 11, [OpKind::DropIndex { index: IndexId(20) }]), stale(11));
    let mut unit = WriteUnit::new();
    unit.insert(two.id, doc(1, 1, ""));
    unit.key(IndexId(20), true, false, b"key", b"");
    assert_eq!(engine.commit(&mut unit).err(), stale(11));
    assert!(two.records().is_empty());
    one.check();
}

pub(super) fn handles_outlive_a_drop(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, false, "k")]);
    let ids: Vec<_> = (0..50).map(|i| table.insert(&doc(i, i, ""))).collect();
    let store = table.store();
    let index = table.engine.index(IndexId(20)).expect("the index");
    let mut scan = RecordScan::new(Direction::Forward);
    let mut index_scan = IndexScan::new(Direction::Backward, Vec::new(), Vec::new());
    let mut reader = Reader::new(&*table.engine);
    assert!(reader.next_id(&*store, &mut scan).expect("scan").is_some());
    assert!(reader.next_entry(&*index, &mut index_scan).expect("scan").is_some());
    reader.unit().leave();
    assert_eq!(apply(&table.engine, 10, [OpKind::DropStore]), None);
    reader.unit().enter();
    let gone = StorageError::Dropped { collection: table.id, index: None };
    let gone_index = StorageError::Dropped { collection: table.id, index: Some(IndexId(20)) };
    for id in ids {
        assert_eq!(reader.get(&*store, id).err(), Some(gone.clone()));
    }
    assert_eq!(reader.get(&*store, RecordId(u64::MAX)).err(), Some(gone.clone()));
    assert_eq!(rest_of(|| reader.next_id(&*store, &mut scan)), gone);
    assert_eq!(rest_of(|| reader.next_entry(&*index, &mut index_scan)), gone_index);
    for direction in [Direction::Forward, Direction::Backward] {
        assert_eq!(reader.records(&*store, direction).err(), Some(gone.clone()));
        assert_eq!(reader.entries(&*index, direction).err(), Some(gone_index.clone()));
    }
    assert_eq!(reader.find(&*index, b"any").err(), Some(gone_index.clone()));
    assert_eq!(store.stats().err(), Some(gone));
    assert_eq!(index.entries().err(), Some(gone_index.clone()));
    assert_eq!(index.bytes().err(), Some(gone_index));
}

/// What a scan ends with, after what it had in its batch.
fn rest_of<T>(mut next: impl FnMut() -> Result<Option<T>, StorageError>) -> StorageError {
    loop {
        match next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a scan of what was dropped comes to an end"),
            Err(error) => return error,
        }
    }
}

pub(super) fn a_dropped_index_is_no_empty_one(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, true, "k")]);
    let empty = TableIndex::new(21, false, "s");
    assert_eq!(apply(&table.engine, 10, [create_index(&empty)]), None);
    let ids: Vec<_> = (0..50).map(|i| table.insert(&doc(i, i, ""))).collect();
    let [index, empty] = [20, 21].map(|id| table.engine.index(IndexId(id)).expect("the index"));
    let mut reader = Reader::new(&*table.engine);
    let mut scan = IndexScan::new(Direction::Forward, Vec::new(), Vec::new());
    assert!(reader.next_entry(&*index, &mut scan).expect("scan").is_some());
    let found = reader.find(&*index, &key(7)).expect("find");
    assert_eq!(found, Some(ids[7]));
    // To a reader that had entered before the drop, and to one that enters after it.
    for round in 0..2 {
        if round == 0 {
            for index in [IndexId(20), IndexId(21)] {
                assert_eq!(apply(&table.engine, 10, [OpKind::DropIndex { index }]), None);
            }
        } else {
            reader.unit().leave();
            reader.unit().enter();
        }
        for index in [&index, &empty] {
            let gone = StorageError::Dropped { collection: table.id, index: Some(index.id()) };
            for number in [7, 1000] {
                assert_eq!(reader.find(&**index, &key(number)).err(), Some(gone.clone()));
            }
            for direction in [Direction::Forward, Direction::Backward] {
                assert_eq!(reader.entries(&**index, direction).err(), Some(gone.clone()));
            }
            assert_eq!(index.entries().err(), Some(gone));
        }
        let gone = StorageError::Dropped { collection: table.id, index: Some(IndexId(20)) };
        assert_eq!(rest_of(|| reader.next_entry(&*index, &mut scan)), gone);
        // The records stay.
        assert_eq!(
            reader.get(&*table.store(), ids[7]).expect("get").map(|r| r.doc),
            Some(doc(7, 7, ""))
        );
    }
}

pub(super) fn backfill_builds_an_index(subject: &mut Subject) {
    let mut table = Table::create(&subject.engine(), 10, &[]);
    for i in 0..1000 {
        table.insert(&doc(i * 7919 % 1000, i, ""));
    }
    let unique = TableIndex::new(20, true, "u");
    let plain = TableIndex::new(21, false, "k");
    for index in [&unique, &plain] {
        assert_eq!(apply(&table.engine, 10, [create_index(index)]), None);
        for chunk in table.records().into_iter().collect::<Vec<_>>().chunks(64) {
            let mut unit = WriteUnit::new();
            for (id, record) in chunk {
                table.backfill_in(&mut unit, index, *id, record);
            }
            table.commit(&mut unit);
        }
    }
    table.indexes = vec![unique, plain];
    table.check();
    // A unique build over duplicates.
    let twice = TableIndex::new(22, true, "s");
    assert_eq!(apply(&table.engine, 10, [create_index(&twice)]), None);
    let records = table.records();
    let mut unit = WriteUnit::new();
    for (id, record) in records.iter().take(2) {
        table.backfill_in(&mut unit, &twice, *id, record);
    }
    let error = table.engine.commit(&mut unit).err();
    assert!(
        matches!(&error, Some(StorageError::DuplicateKey { op: 1, existing: None, .. })),
        "{error:?}"
    );
    assert_eq!(inspect::entries(&*table.engine, IndexId(22)), Ok(vec![]));
}

pub(super) fn an_index_build_among_writers(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, false, "k")]);
    for i in 0..2000 {
        table.insert(&doc(i, i, ""));
    }
    let index = TableIndex::new(21, true, "u");
    assert_eq!(apply(&table.engine, 10, [create_index(&index)]), None);
    // From now on writers keep it up, whether the build has come by or not.
    let mut full = table.clone();
    full.indexes.push(index.clone());
    let built = AtomicBool::new(false);
    let (writer, done) = (&full, &built);
    let write = move |thread: i64| {
        let mut step = thread;
        while !done.load(Ordering::Acquire) || step < 300 {
            step += 2;
            // A thread has every second record to itself.
            let id = RecordId((step * 31 % 2000 + thread + 1) as u64 / 2 * 2 + thread as u64);
            let Some(seen) = writer.get(id) else { continue };
            let mut unit = WriteUnit::new();
            match step % 7 {
                0 => writer.delete_in(&mut unit, id, &seen),
                1 => writer.insert_in(&mut unit, &doc(step, 10_000 + step, "")),
                _ => writer.update_in(&mut unit, id, &seen, &doc(step, 1_000_000 + step, "")),
            };
            writer.commit(&mut unit);
        }
    };
    thread::scope(|scope| {
        let _built = SetWhenDropped(&built);
        scope.spawn(move || write(0));
        scope.spawn(move || write(1));
        let store = table.store();
        let mut scan = RecordScan::new(Direction::Forward);
        let mut reader = Reader::new(&*table.engine);
        while let Some(id) = reader.next_id(&*store, &mut scan).expect("scan") {
            while let Some(record) = reader.get(&*store, id).expect("get") {
                reader.unit().leave();
                let mut unit = WriteUnit::new();
                table.backfill_in(&mut unit, &index, id, &record);
                let result = table.engine.commit(&mut unit);
                reader.unit().enter();
                match result {
                    Ok(_) => break,
                    Err(StorageError::WriteConflict) => {}
                    Err(error) => panic!("backfill: {error}"),
                }
            }
        }
    });
    full.check();
}
