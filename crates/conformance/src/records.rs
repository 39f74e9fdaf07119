//! Records: reads return what was written; ids; statistics.

use super::Subject;
use super::table::{Table, TableIndex, doc};
use kauri_base::limits::DOCUMENT_INTERNAL_BYTES_MAX;
use kauri_base::{CommitSeq, RecordId};
use kauri_storage::error::StorageError;
use kauri_storage::unit::WriteUnit;

pub(super) fn documents_come_back_as_they_went_in(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    let docs: Vec<_> =
        (0..200).map(|i: usize| doc(i as i64, -1, &"x".repeat(i * i % 5000))).collect();
    for (i, doc) in docs.iter().enumerate() {
        let mut unit = WriteUnit::new();
        let op = unit.insert(table.id, doc.as_slice());
        let ticket = table.commit(&mut unit);
        assert_eq!(unit.ops[op].record, RecordId(i as u64 + 1));
        let record = table.record(unit.ops[op].record);
        assert_eq!(record.doc, *doc);
        assert_eq!(record.version, ticket.seq, "a record's version is the commit that wrote it");
    }
    for (i, doc) in docs.iter().enumerate() {
        assert_eq!(table.record(RecordId(i as u64 + 1)).doc, *doc);
    }
    for id in [0, 201, 202, 1 << 20, 1 << 40, u64::MAX] {
        assert_eq!(table.get(RecordId(id)), None, "record {id}");
    }
}

pub(super) fn ids_are_dense_and_ascend(subject: &mut Subject) {
    let one = Table::create(&subject.engine(), 10, &[]);
    let two = Table::create(&subject.engine(), 11, &[]);
    let mut next = [1, 1];
    for round in 0..50 {
        let mut unit = WriteUnit::new();
        let mut expected = Vec::new();
        for i in 0..=round % 4 {
            let which = (round + i) % 2;
            [&one, &two][which].insert_in(&mut unit, &doc(round as i64, i as i64, ""));
            expected.push(RecordId(next[which]));
            next[which] += 1;
        }
        one.commit(&mut unit);
        let given: Vec<_> = unit.ops.iter().map(|op| op.record).collect();
        assert_eq!(given, expected, "each collection counts on its own, in order, from 1");
    }
}

pub(super) fn ids_are_not_reused_after_deletes(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    for round in 0..5 {
        let id = table.insert(&doc(round, 0, ""));
        assert_eq!(id, RecordId(round as u64 + 1));
        table.delete(id);
    }
    assert_eq!(table.insert(&doc(0, 0, "")), RecordId(6));
}

pub(super) fn a_refused_unit_does_not_disturb_ids(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, true, "u")]);
    let first = table.insert(&doc(0, 7, ""));
    for _ in 0..3 {
        let error = table.try_insert(&doc(0, 7, ""));
        assert!(matches!(error, Err(StorageError::DuplicateKey { .. })), "{error:?}");
    }
    let second = table.insert(&doc(0, 8, ""));
    assert!(second > first);
    assert_eq!(table.records().into_keys().collect::<Vec<_>>(), [first, second]);
}

pub(super) fn updates_change_bytes_and_version(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    let (a, b) = (table.insert(&doc(1, 0, "a")), table.insert(&doc(2, 0, "b")));
    let mut version = CommitSeq(0);
    for length in [0, 1, 100, 10, 100_000, 3] {
        let new = doc(length as i64, 0, &"y".repeat(length));
        let seq = table.update(a, &new);
        let record = table.record(a);
        assert_eq!(record.doc, new);
        assert_eq!(record.version, seq);
        assert!(record.version > version, "versions ascend");
        version = record.version;
    }
    assert_eq!(table.record(b).doc, doc(2, 0, "b"), "its neighbour is as it was");
    assert!(table.record(b).version < version);
}

pub(super) fn deleted_records_are_gone(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    let ids: Vec<_> = (0..20).map(|i| table.insert(&doc(i, 0, "z"))).collect();
    for id in ids.iter().step_by(2) {
        table.delete(*id);
        assert_eq!(table.get(*id), None);
    }
    let left: Vec<_> = ids.iter().copied().skip(1).step_by(2).collect();
    assert_eq!(table.records().into_keys().collect::<Vec<_>>(), left);
}

pub(super) fn statistics_follow_the_commits(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, true, "u")]);
    let check = |records: &[&[u8]]| {
        let stats = table.store().stats().expect("stats");
        let bytes: usize = records.iter().map(|doc| doc.len()).sum();
        assert_eq!((stats.records, stats.bytes), (records.len() as u64, bytes as u64));
        assert!(stats.storage_bytes >= stats.bytes, "{stats:?}");
    };
    let (one, two, three) = (doc(1, 1, "one"), doc(2, 2, &"2".repeat(999)), doc(3, 3, ""));
    check(&[]);
    let id = table.insert(&one);
    check(&[&one]);
    table.insert(&two);
    check(&[&one, &two]);
    table.update(id, &three);
    check(&[&three, &two]);
    assert!(table.try_insert(&doc(0, 2, "refused")).is_err());
    check(&[&three, &two]);
    table.delete(id);
    check(&[&two]);
}

pub(super) fn documents_of_16_mb(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, false, "k")]);
    let frame = doc(1, 0, "").len();
    let big = |k: i64, fill: &str| doc(k, 0, &fill.repeat(DOCUMENT_INTERNAL_BYTES_MAX - frame));
    assert_eq!(big(1, "a").len(), DOCUMENT_INTERNAL_BYTES_MAX);
    let mut unit = WriteUnit::new();
    table.insert_in(&mut unit, &big(1, "a"));
    table.insert_in(&mut unit, &doc(2, 0, "small"));
    table.insert_in(&mut unit, &big(3, "c"));
    table.commit(&mut unit);
    // Compared outside of assert_eq!, which would print 16 MB.
    let is = |id: u64, expected: &[u8]| table.record(RecordId(id)).doc == expected;
    assert!(is(1, &big(1, "a")) && is(2, &doc(2, 0, "small")) && is(3, &big(3, "c")));
    table.update(RecordId(1), &doc(1, 0, "was big"));
    table.update(RecordId(2), &big(2, "b"));
    assert!(is(1, &doc(1, 0, "was big")) && is(2, &big(2, "b")) && is(3, &big(3, "c")));
    table.check();
}
