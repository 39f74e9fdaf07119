//! Scans over the records of a store.

use super::Subject;
use super::inspect::Reader;
use super::table::{Table, doc};
use kauri_base::RecordId;
use kauri_storage::scan::{Direction, RecordScan};
use kauri_storage::unit::WriteUnit;

/// The ids with a document that the rest of a scan gives.
fn rest(table: &Table, reader: &mut Reader, scan: &mut RecordScan) -> Vec<u64> {
    let mut ids = Vec::new();
    while let Some(id) = next(table, reader, scan) {
        ids.push(id);
    }
    ids
}

fn next(table: &Table, reader: &mut Reader, scan: &mut RecordScan) -> Option<u64> {
    let store = table.store();
    while let Some(id) = reader.next_id(&*store, scan).expect("scan") {
        if reader.get(&*store, id).expect("get").is_some() {
            return Some(id.0);
        }
    }
    None
}

fn filled(subject: &Subject, count: i64) -> Table {
    let table = Table::create(&subject.engine(), 10, &[]);
    let mut unit = WriteUnit::new();
    for i in 0..count {
        table.insert_in(&mut unit, &doc(i, 0, ""));
    }
    table.commit(&mut unit);
    table
}

pub(super) fn both_directions(subject: &mut Subject) {
    let table = filled(subject, 1000);
    let mut reader = Reader::new(&*table.engine);
    let mut ids = rest(&table, &mut reader, &mut RecordScan::new(Direction::Forward));
    assert_eq!(ids, (1..=1000).collect::<Vec<_>>());
    ids = rest(&table, &mut reader, &mut RecordScan::new(Direction::Backward));
    assert_eq!(ids, (1..=1000).rev().collect::<Vec<_>>());
}

pub(super) fn from_a_position(subject: &mut Subject) {
    let table = filled(subject, 30);
    table.delete(RecordId(12));
    let mut reader = Reader::new(&*table.engine);
    for (direction, after, expected) in [
        (Direction::Forward, 0, (1..=30).collect::<Vec<_>>()),
        (Direction::Forward, 10, (11..=30).collect()),
        (Direction::Forward, 11, (13..=30).collect()),
        (Direction::Forward, 30, vec![]),
        (Direction::Forward, u64::MAX, vec![]),
        (Direction::Backward, 14, (1..=13).rev().collect()),
        (Direction::Backward, 12, (1..=11).rev().collect()),
        (Direction::Backward, 1, vec![]),
        (Direction::Backward, 0, vec![]),
        (Direction::Backward, u64::MAX, (1..=30).rev().collect()),
    ] {
        let expected: Vec<_> = expected.into_iter().filter(|id| *id != 12).collect();
        let mut scan = RecordScan::after(direction, RecordId(after));
        assert_eq!(rest(&table, &mut reader, &mut scan), expected, "{direction:?} after {after}");
    }
    let mut scan = RecordScan::new(Direction::Forward);
    assert_eq!(next(&table, &mut reader, &mut scan), Some(1));
    scan.put_back();
    assert_eq!(next(&table, &mut reader, &mut scan), Some(1), "put back, taken again");
    assert_eq!(next(&table, &mut reader, &mut scan), Some(2));
}

pub(super) fn over_an_empty_store(subject: &mut Subject) {
    let table = filled(subject, 0);
    let mut reader = Reader::new(&*table.engine);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut scan = RecordScan::new(direction);
        assert!(rest(&table, &mut reader, &mut scan).is_empty());
        assert!(scan.ended());
    }
}

pub(super) fn over_few_survivors_of_many(subject: &mut Subject) {
    let table = filled(subject, 20_000);
    let survives = |id: u64| id.is_multiple_of(4567) || id == 1;
    let mut unit = WriteUnit::new();
    for (id, record) in table.records() {
        if !survives(id.0) {
            table.delete_in(&mut unit, id, &record);
        }
    }
    table.commit(&mut unit);
    let expected: Vec<_> = (1..=20_000).filter(|id| survives(*id)).collect();
    let mut reader = Reader::new(&*table.engine);
    let mut ids = rest(&table, &mut reader, &mut RecordScan::new(Direction::Forward));
    assert_eq!(ids, expected);
    ids = rest(&table, &mut reader, &mut RecordScan::new(Direction::Backward));
    ids.reverse();
    assert_eq!(ids, expected);
}

pub(super) fn while_records_come_and_go(subject: &mut Subject) {
    for direction in [Direction::Forward, Direction::Backward] {
        let table = Table::create(&subject.engine(), 10 + direction as u32, &[]);
        for i in 0..400 {
            table.insert(&doc(i, 0, ""));
        }
        let mut scan = RecordScan::new(direction);
        let mut seen = Vec::new();
        let mut deleted = Vec::new();
        // Every third step deletes a record behind and one ahead, updates one and inserts one.
        for step in 0.. {
            let mut reader = Reader::new(&*table.engine);
            let Some(id) = next(&table, &mut reader, &mut scan) else { break };
            drop(reader);
            seen.push(id);
            assert!(!deleted.contains(&id), "{id} was deleted before the scan came to it");
            if step % 3 == 0 && step < 150 {
                for victim in [id, (id + 199) % 400 + 1] {
                    if table.get(RecordId(victim)).is_some() {
                        table.delete(RecordId(victim));
                        deleted.push(victim);
                    }
                }
                if table.get(RecordId((id + 77) % 400 + 1)).is_some() {
                    table.update(RecordId((id + 77) % 400 + 1), &doc(-1, 0, "changed"));
                }
                table.insert(&doc(step, 1, "new"));
            }
        }
        let mut once = seen.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), seen.len(), "{direction:?}: an id came twice");
        for id in (1..=400).filter(|id| !deleted.contains(id)) {
            assert!(seen.contains(&id), "{direction:?}: {id} was there all the time, but not seen");
        }
    }
}

pub(super) fn taken_up_again_at_the_end(subject: &mut Subject) {
    let table = filled(subject, 10);
    let mut scan = RecordScan::new(Direction::Forward);
    let mut reader = Reader::new(&*table.engine);
    assert_eq!(rest(&table, &mut reader, &mut scan).len(), 10);
    for i in 0..10 {
        reader.unit().leave();
        table.insert(&doc(i, 0, ""));
        table.insert(&doc(i, 0, ""));
        reader.unit().enter();
        assert!(scan.next_buffered().is_none());
        scan.resume();
        let last = 10 + 2 * i as u64;
        assert_eq!(rest(&table, &mut reader, &mut scan), [last + 1, last + 2]);
        scan.resume();
        assert!(rest(&table, &mut reader, &mut scan).is_empty());
    }
}
