//! Optimistic concurrency control: a unit is refused if the data that it was computed from has changed.

use super::Subject;
use super::inspect::Stored;
use super::table::{Table, TableIndex, doc};
use kauri_base::{CommitSeq, RecordId};
use kauri_storage::error::StorageError;
use kauri_storage::unit::{OpKind, WriteUnit};

fn table(subject: &Subject) -> Table {
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    Table::create(&subject.engine(), 10, &indexes)
}

fn try_update(table: &Table, id: RecordId, seen: &Stored, doc: &[u8]) -> Option<StorageError> {
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, id, seen, doc);
    table.engine.commit(&mut unit).err()
}

fn try_delete(table: &Table, id: RecordId, seen: &Stored) -> Option<StorageError> {
    let mut unit = WriteUnit::new();
    table.delete_in(&mut unit, id, seen);
    table.engine.commit(&mut unit).err()
}

pub(super) fn outdated_versions(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(1, 1, ""));
    let first = table.record(id);
    table.update(id, &doc(2, 1, ""));
    let second = table.record(id);
    let conflict = Some(StorageError::WriteConflict);
    assert_eq!(try_update(&table, id, &first, &doc(9, 1, "")), conflict);
    assert_eq!(try_delete(&table, id, &first), conflict);
    let future = Stored { version: CommitSeq(u64::MAX), ..second.clone() };
    assert_eq!(try_update(&table, id, &future, &doc(9, 1, "")), conflict);
    let none = Stored { version: CommitSeq(0), ..second.clone() };
    assert_eq!(try_update(&table, id, &none, &doc(9, 1, "")), conflict);
    assert_eq!(table.record(id), second);
    assert_eq!(try_update(&table, id, &second, &doc(3, 1, "")), None);
    assert_eq!(try_update(&table, id, &second, &doc(4, 1, "")), conflict, "used twice");
    // Back to the same bytes is another version nevertheless.
    table.update(id, &second.doc);
    assert_eq!(try_delete(&table, id, &second), conflict);
    table.check();
}

pub(super) fn gone_records(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(1, 1, ""));
    let seen = table.record(id);
    table.delete(id);
    let conflict = Some(StorageError::WriteConflict);
    assert_eq!(try_update(&table, id, &seen, &doc(2, 1, "")), conflict);
    assert_eq!(try_delete(&table, id, &seen), conflict);
    for never in [0, 2, 1 << 33, u64::MAX] {
        assert_eq!(try_update(&table, RecordId(never), &seen, &doc(2, 1, "")), conflict);
        assert_eq!(try_delete(&table, RecordId(never), &seen), conflict);
    }
    assert!(table.records().is_empty());
    table.check();
}

pub(super) fn backfill_of_an_outdated_version(subject: &mut Subject) {
    let table = table(subject);
    let index = TableIndex::new(22, false, "s");
    let mut unit = WriteUnit::new();
    table.create_index_in(&mut unit, &index);
    table.commit(&mut unit);
    let id = table.insert(&doc(1, 1, "old"));
    let seen = table.record(id);
    table.update(id, &doc(1, 1, "new"));
    let backfill = |record: &Stored| {
        let mut unit = WriteUnit::new();
        table.backfill_in(&mut unit, &index, id, record);
        table.engine.commit(&mut unit).err()
    };
    assert_eq!(backfill(&seen), Some(StorageError::WriteConflict));
    let entries =
        || table.engine.index(index.spec.id).map(|index| index.entries().expect("entries"));
    assert_eq!(entries(), Some(0));
    let seen = table.record(id);
    assert_eq!(backfill(&seen), None);
    assert_eq!(backfill(&seen), None, "a backfill doesn't make a new version");
    assert_eq!(table.record(id), seen);
    assert_eq!(entries(), Some(1));
    table.delete(id);
    assert_eq!(backfill(&seen), Some(StorageError::WriteConflict));
}

pub(super) fn one_conflict_refuses_the_unit(subject: &mut Subject) {
    let table = table(subject);
    let other = Table::create(&subject.engine(), 11, &[]);
    let ids: Vec<_> = (0..5).map(|i| table.insert(&doc(i, i, ""))).collect();
    let outdated = table.record(ids[3]);
    table.update(ids[3], &doc(3, 33, ""));
    let before = table.records();
    for position in 0..4 {
        let mut unit = WriteUnit::new();
        for step in 0..4 {
            match step {
                _ if step == position => {
                    table.update_in(&mut unit, ids[3], &outdated, &doc(-3, 3, ""))
                }
                0 => table.insert_in(&mut unit, &doc(100, 100, "")),
                1 => table.update_in(&mut unit, ids[1], &table.record(ids[1]), &doc(-1, -1, "")),
                2 => table.delete_in(&mut unit, ids[2], &table.record(ids[2])),
                _ => other.insert_in(&mut unit, &doc(0, 0, "")),
            };
        }
        let error = table.engine.commit(&mut unit).err();
        assert_eq!(error, Some(StorageError::WriteConflict), "conflict at {position}");
        assert_eq!(table.records(), before);
        assert!(other.records().is_empty());
        table.check();
    }
}

pub(super) fn conflicts_come_before_duplicates(subject: &mut Subject) {
    let table = table(subject);
    let (a, b) = (table.insert(&doc(0, 1, "")), table.insert(&doc(0, 2, "")));
    let seen = table.record(a);
    table.update(a, &doc(0, 3, ""));
    assert_eq!(try_update(&table, a, &seen, &doc(0, 2, "")), Some(StorageError::WriteConflict));
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, b, &table.record(b), &doc(0, 3, "a duplicate"));
    table.delete_in(&mut unit, a, &seen);
    assert_eq!(table.engine.commit(&mut unit).err(), Some(StorageError::WriteConflict));
    let mut unit = WriteUnit::new();
    let number = table.engine.definition_number(table.id).expect("a number");
    unit.expect_definition(table.id, number + 1);
    table.insert_in(&mut unit, &doc(0, 3, "a duplicate"));
    let error = table.engine.commit(&mut unit).err();
    assert_eq!(error, Some(StorageError::StaleCatalog(table.id)));
}

pub(super) fn definitions(subject: &mut Subject) {
    let table = table(subject);
    let other = Table::create(&subject.engine(), 11, &[]);
    let number = |t: &Table| t.engine.definition_number(t.id);
    let (mine, others) = (number(&table).expect("a number"), number(&other));
    table.insert(&doc(1, 1, ""));
    assert_eq!(number(&table), Some(mine), "writes of documents leave it alone");
    let mut last = mine;
    for _ in 0..3 {
        let mut unit = WriteUnit::new();
        unit.expect_definition(table.id, last);
        unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
        table.commit(&mut unit);
        let now = number(&table).expect("a number");
        assert!(now > last, "{now} after {last}");
        last = now;
    }
    assert_eq!(number(&other), others, "each collection has its own");
    assert_eq!(table.engine.definition_number(kauri_base::CollectionId(99)), None);
    let mut unit = WriteUnit::new();
    unit.push(other.id, RecordId(0), OpKind::DropStore);
    table.commit(&mut unit);
    assert_eq!(number(&other), None);
}

pub(super) fn a_definition_change_refuses_older_units(subject: &mut Subject) {
    let table = table(subject);
    let other = Table::create(&subject.engine(), 11, &[]);
    let number = |t: &Table| t.engine.definition_number(t.id).expect("a number");
    let (old, others) = (number(&table), number(&other));
    let commit = |mine: u64, others: u64, change: bool| {
        let mut unit = WriteUnit::new();
        unit.expect_definition(other.id, others);
        unit.expect_definition(table.id, mine);
        let u = table.records().len() as i64;
        table.insert_in(&mut unit, &doc(0, u, ""));
        if change {
            unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
        }
        table.engine.commit(&mut unit).err()
    };
    assert_eq!(commit(old, others, false), None);
    assert_eq!(commit(old, others, true), None, "a unit may change what it expects");
    assert_eq!(commit(old, others, false), Some(StorageError::StaleCatalog(table.id)));
    assert_eq!(
        commit(number(&table), others + 1, false),
        Some(StorageError::StaleCatalog(other.id))
    );
    assert_eq!(commit(number(&table), others, false), None);
    assert_eq!(table.records().len(), 3);
    let mut unit = WriteUnit::new();
    unit.push(other.id, RecordId(0), OpKind::DropStore);
    table.commit(&mut unit);
    assert_eq!(commit(number(&table), others, false), Some(StorageError::StaleCatalog(other.id)));
    let mut unit = WriteUnit::new();
    unit.expect_definition(table.id, old);
    let error = table.engine.commit(&mut unit).err();
    assert_eq!(error, Some(StorageError::StaleCatalog(table.id)), "even without operations");
}
