//! Ordered indexes: lookups, ranges, batches.

use super::Subject;
use super::inspect::{self, Entry, Reader};
use super::table::{Table, TableIndex, doc, key};
use kauri_base::clock::SeededRandom;
use kauri_base::{IndexId, RandomSource, RecordId};
use kauri_bson::{DocBuf, Value};
use kauri_storage::scan::{Direction, IndexScan};
use kauri_storage::unit::{OpKind, WriteUnit};
use std::collections::BTreeMap;

/// A table with a record, to hang raw entries on, and one index.
struct Raw {
    table: Table,
    index: IndexId,
    records: Vec<RecordId>,
}

impl Raw {
    fn new(subject: &Subject, records: usize) -> Raw {
        let table = Table::create(&subject.engine(), 10, &[TableIndex::new(20, false, "none")]);
        let records = (0..records).map(|i| table.insert(&doc(i as i64, 0, ""))).collect();
        Raw { table, index: IndexId(20), records }
    }

    /// Changes entries by way of a backfill, which leaves the record alone.
    fn change(&self, record: RecordId, changes: &[(bool, &[u8], &[u8])]) {
        let mut unit = WriteUnit::new();
        let seen = self.table.record(record).version;
        unit.push(self.table.id, record, OpKind::Backfill { seen });
        for (add, key, bits) in changes {
            unit.key(self.index, *add, false, key, bits);
        }
        self.table.commit(&mut unit);
    }

    fn add(&self, record: usize, key: &[u8]) {
        self.change(self.records[record], &[(true, key, b"")]);
    }

    fn find(&self, key: &[u8]) -> Option<RecordId> {
        let index = self.table.engine.index(self.index).expect("the index");
        Reader::new(&*self.table.engine).find(&*index, key).expect("find")
    }

    fn between(&self, direction: Direction, low: &[u8], high: &[u8]) -> Vec<Entry> {
        inspect::entries_between(&*self.table.engine, self.index, direction, low, high)
            .expect("scan")
    }

    /// Compares the engine's entries, in both directions, with a model.
    fn check(&self, model: &BTreeMap<(Vec<u8>, RecordId), Vec<u8>>, low: &[u8], high: &[u8]) {
        let inside = |key: &[u8]| key >= low && (high.is_empty() || key < high);
        let entry = |((key, record), bits): (&(Vec<u8>, RecordId), &Vec<u8>)| Entry {
            key: key.clone(),
            record: *record,
            type_bits: bits.clone(),
        };
        let mut expected: Vec<_> =
            model.iter().filter(|((key, _), _)| inside(key)).map(entry).collect();
        let found = self.between(Direction::Forward, low, high);
        assert_eq!(found, expected, "forward from {low:02x?} to {high:02x?}");
        expected.reverse();
        let found = self.between(Direction::Backward, low, high);
        assert_eq!(found, expected, "backward from {high:02x?} to {low:02x?}");
    }

    fn entries(&self) -> u64 {
        self.table.engine.index(self.index).expect("the index").entries().expect("entries")
    }
}

pub(super) fn find_takes_whole_keys_only(subject: &mut Subject) {
    let raw = Raw::new(subject, 3);
    raw.add(0, b"abc");
    raw.add(1, b"abcdef");
    raw.add(2, b"b");
    assert_eq!(raw.find(b"abc"), Some(raw.records[0]));
    assert_eq!(raw.find(b"abcdef"), Some(raw.records[1]));
    for absent in [&b"ab"[..], b"abcd", b"abcdefg", b"", b"a", b"bb", b"c"] {
        assert_eq!(raw.find(absent), None, "{absent:?}");
    }
}

pub(super) fn find_answers_the_first_record(subject: &mut Subject) {
    let raw = Raw::new(subject, 300);
    for record in [150, 40, 299, 41, 0] {
        raw.add(record, b"same");
        raw.add(record, b"samf");
        let first = raw.between(Direction::Forward, b"same", b"samf")[0].record;
        assert_eq!(raw.find(b"same"), Some(first));
    }
    assert_eq!(raw.find(b"same"), Some(raw.records[0]));
    raw.change(raw.records[0], &[(false, b"same", b"")]);
    assert_eq!(raw.find(b"same"), Some(raw.records[40]));
    assert_eq!(raw.find(b"samf"), Some(raw.records[0]));
}

pub(super) fn ranges_in_both_directions(subject: &mut Subject) {
    let raw = Raw::new(subject, 2);
    let mut model = BTreeMap::new();
    for i in 0..500_i64 {
        let record = raw.records[(i % 2) as usize];
        raw.change(record, &[(true, &key(i * 2), b"")]);
        model.insert((key(i * 2).to_vec(), record), Vec::new());
    }
    for (low, high) in [(0, 1000), (1, 999), (10, 10), (10, 11), (10, 12), (500, 400), (998, 2000)]
    {
        raw.check(&model, &key(low), &key(high));
    }
    raw.check(&model, b"", b"");
    raw.check(&model, &key(600), b"");
    raw.check(&model, b"", &key(600));
    raw.check(&model, &[0xff; 9], b"");
    raw.check(&model, b"", &[0]);
}

pub(super) fn random_ranges_against_a_model(subject: &mut Subject) {
    let raw = Raw::new(subject, 20);
    let random = SeededRandom::new(7);
    let below = |n: u64| random.next_u64() % n;
    // Short keys over few letters: many are equal, or prefixes of others.
    let make = || (0..=below(4)).map(|_| b"\x00ab\xff"[below(4) as usize]).collect::<Vec<u8>>();
    let mut model = BTreeMap::new();
    for _ in 0..60 {
        let record = raw.records[below(20) as usize];
        let mut changes = BTreeMap::new();
        for _ in 0..20 {
            changes.insert(make(), (below(3) > 0, vec![below(9) as u8; below(3) as usize]));
        }
        let list: Vec<_> =
            changes.iter().map(|(key, (add, bits))| (*add, key.as_slice(), &bits[..])).collect();
        raw.change(record, &list);
        for (key, (add, bits)) in changes {
            match add {
                true => drop(model.insert((key, record), bits)),
                false => drop(model.remove(&(key, record))),
            }
        }
        assert_eq!(raw.entries(), model.len() as u64);
        raw.check(&model, &make(), &make());
        let key = make();
        let first = model.keys().find(|(k, _)| *k == key).map(|(_, record)| *record);
        assert_eq!(raw.find(&key), first, "{key:02x?}");
    }
    raw.check(&model, b"", b"");
}

pub(super) fn equal_keys_across_batches(subject: &mut Subject) {
    let raw = Raw::new(subject, 1500);
    let mut model = BTreeMap::new();
    for (i, record) in raw.records.iter().enumerate() {
        let key: &[u8] = match i {
            0..3 => b"few",
            3..1400 => b"many",
            _ => b"more",
        };
        raw.change(*record, &[(true, key, b"t")]);
        model.insert((key.to_vec(), *record), b"t".to_vec());
    }
    raw.check(&model, b"", b"");
    raw.check(&model, b"many", b"more");
    raw.check(&model, b"many\x00", b"");
}

pub(super) fn keys_that_are_prefixes_of_others(subject: &mut Subject) {
    let raw = Raw::new(subject, 2);
    let mut model = BTreeMap::new();
    let long = vec![7; 300];
    for length in (1..300).rev() {
        for record in &raw.records {
            raw.change(*record, &[(true, &long[..length], b"")]);
            model.insert((long[..length].to_vec(), *record), Vec::new());
        }
    }
    raw.check(&model, b"", b"");
    raw.check(&model, &long[..100], &long[..101]);
    raw.check(&model, &long[..1], &long);
}

pub(super) fn skipping_ahead(subject: &mut Subject) {
    let raw = Raw::new(subject, 2);
    for i in 0..300 {
        raw.add(0, &key(i));
        raw.add(1, &key(i));
    }
    let index = raw.table.engine.index(raw.index).expect("the index");
    let mut reader = Reader::new(&*raw.table.engine);
    // The distinct keys that are multiples of ten, by skipping over what lies between.
    let mut scan = IndexScan::new(Direction::Forward, key(0).to_vec(), key(290).to_vec());
    for i in 0..29 {
        let entry = reader.next_entry(&*index, &mut scan).expect("scan").expect("an entry");
        assert_eq!((entry.key, entry.record), (key(i * 10).to_vec(), raw.records[0]));
        scan.skip_to(key(i * 10 + 10).to_vec());
    }
    assert_eq!(reader.next_entry(&*index, &mut scan).expect("scan"), None, "the bound holds");
    let mut scan = IndexScan::new(Direction::Backward, key(5).to_vec(), Vec::new());
    for i in (1..30).rev() {
        let entry = reader.next_entry(&*index, &mut scan).expect("scan").expect("an entry");
        let expected = if i == 29 { 299 } else { i * 10 + 9 };
        assert_eq!((entry.key, entry.record), (key(expected).to_vec(), raw.records[1]));
        scan.skip_to(key(i * 10).to_vec());
    }
    assert_eq!(reader.rest(&*index, &mut scan).expect("scan").len(), 10, "5 to 9, twice");
    scan.skip_to(key(5).to_vec());
    assert!(reader.rest(&*index, &mut scan).expect("scan").is_empty());
}

pub(super) fn scans_while_entries_come_and_go(subject: &mut Subject) {
    for direction in [Direction::Forward, Direction::Backward] {
        let index = TableIndex::new(20 + direction as u32, false, "k");
        let table = Table::create(&subject.engine(), 10 + direction as u32, &[index]);
        let ids: Vec<_> = (0..500).map(|i| table.insert(&doc(i * 10, 0, ""))).collect();
        let found = table.engine.index(table.indexes[0].spec.id).expect("the index");
        let mut scan = IndexScan::new(direction, Vec::new(), Vec::new());
        let mut seen = Vec::new();
        let mut touched = Vec::new();
        for step in 0.. {
            let next = Reader::new(&*table.engine).next_entry(&*found, &mut scan);
            let Some(entry) = next.expect("scan") else { break };
            seen.push((entry.key, entry.record));
            if step < 200 {
                // Moves keys behind the scan and ahead of it, deletes and inserts.
                let victim = ids[(step * 7 + 3) % 500];
                if table.get(victim).is_some() {
                    touched.push(victim);
                    match step % 3 {
                        0 => table.delete(victim),
                        _ => drop(table.update(victim, &doc((step as i64 * 997) % 5000, 0, ""))),
                    }
                }
                if step % 5 == 0 {
                    table.insert(&doc(step as i64 * 13, 1, ""));
                }
            }
        }
        let mut sorted = seen.clone();
        sorted.sort();
        if direction == Direction::Backward {
            sorted.reverse();
        }
        assert_eq!(seen, sorted, "{direction:?}: out of order");
        sorted.dedup();
        assert_eq!(seen.len(), sorted.len(), "{direction:?}: an entry came twice");
        for (i, id) in ids.iter().enumerate().filter(|(_, id)| !touched.contains(id)) {
            let entry = (key(i as i64 * 10).to_vec(), *id);
            assert!(seen.contains(&entry), "{direction:?}: {id} was there, but not seen");
        }
        table.check();
    }
}

pub(super) fn entries_are_a_set(subject: &mut Subject) {
    let raw = Raw::new(subject, 2);
    let (one, two) = (raw.records[0], raw.records[1]);
    raw.change(one, &[(false, b"absent", b"")]);
    assert_eq!(raw.entries(), 0);
    raw.change(one, &[(true, b"k", b"")]);
    raw.change(one, &[(true, b"k", b"")]);
    assert_eq!(raw.entries(), 1);
    raw.change(two, &[(false, b"k", b"")]);
    assert_eq!(raw.find(b"k"), Some(one), "another record's entry is left alone");
    raw.change(two, &[(true, b"k", b"")]);
    assert_eq!(raw.entries(), 2);
    let bytes = raw.table.engine.index(raw.index).expect("the index").bytes().expect("bytes");
    assert!(bytes >= 2, "two keys of one byte take {bytes} bytes");
    // Within one unit removals come first, in whatever order they are given.
    raw.change(one, &[(true, b"k", b""), (false, b"k", b"")]);
    assert_eq!(raw.entries(), 2);
    raw.change(one, &[(false, b"k", b""), (true, b"k", b"")]);
    assert_eq!(raw.entries(), 2);
    raw.change(one, &[(false, b"k", b"")]);
    assert_eq!(raw.find(b"k"), Some(two));
    raw.change(two, &[(false, b"k", b"")]);
    assert_eq!((raw.find(b"k"), raw.entries()), (None, 0));
}

pub(super) fn type_bits_come_back(subject: &mut Subject) {
    let raw = Raw::new(subject, 1);
    let record = raw.records[0];
    let mut model = BTreeMap::new();
    for length in [0, 1, 2, 7, 8, 100, 255, 256, 5000] {
        let bits = vec![length as u8; length];
        raw.change(record, &[(true, &key(length as i64), &bits)]);
        model.insert((key(length as i64).to_vec(), record), bits);
    }
    raw.check(&model, b"", b"");
    // An entry that is there takes the new bits.
    for length in [0, 9, 300] {
        let bits = vec![0xee; length];
        raw.change(record, &[(true, &key(7), &bits)]);
        model.insert((key(7).to_vec(), record), bits);
        raw.check(&model, b"", b"");
    }
    raw.change(record, &[(false, &key(7), b"whatever"), (true, &key(7), b"new")]);
    model.insert((key(7).to_vec(), record), b"new".to_vec());
    raw.check(&model, b"", b"");
}

pub(super) fn multikey_records(subject: &mut Subject) {
    let index = TableIndex::new(20, false, "k");
    let table = Table::create(&subject.engine(), 10, &[index]);
    let array = |values: &[i64]| {
        let values = Value::array(values.iter().map(|v| Value::Int64(*v)));
        DocBuf::build(|w| w.put("k", values)).into_vec()
    };
    let id = table.insert(&array(&[5, 1, 3, 5]));
    table.insert(&array(&[3]));
    table.insert(&array(&[]));
    table.check();
    assert_eq!(inspect::entries(&*table.engine, IndexId(20)).expect("scan").len(), 4);
    table.update(id, &array(&[3, 4]));
    table.check();
    table.update(id, &doc(4, 0, ""));
    table.check();
    table.delete(id);
    table.check();
    assert_eq!(inspect::entries(&*table.engine, IndexId(20)).expect("scan").len(), 1);
}

pub(super) fn keys_of_megabytes(subject: &mut Subject) {
    let raw = Raw::new(subject, 2);
    let long = |last: u8| [vec![b'x'; 3 << 20], vec![last]].concat();
    for last in 0..8 {
        raw.change(raw.records[last as usize % 2], &[(true, &long(last), b"bits")]);
    }
    for i in 0..200 {
        raw.add(0, &key(i));
    }
    // Compared outside of assert_eq!, which would print megabytes.
    for last in 0..9 {
        let expected = (last < 8).then(|| raw.records[last as usize % 2]);
        assert_eq!(raw.find(&long(last)), expected);
    }
    assert_eq!(raw.find(&long(0)[..3 << 20]), None);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut found = raw.between(direction, b"x", b"y");
        if direction == Direction::Backward {
            found.reverse();
        }
        assert_eq!(found.len(), 8);
        for (last, entry) in (0..).zip(&found) {
            assert!(entry.key == long(last) && entry.type_bits == b"bits", "{direction:?} {last}");
        }
        assert_eq!(raw.between(direction, &long(3), &long(5)).len(), 2);
        assert_eq!(raw.between(direction, b"", b"").len(), 208);
    }
    raw.change(raw.records[0], &[(false, &long(4), b"")]);
    assert_eq!(raw.find(&long(4)), None);
    assert_eq!(raw.entries(), 207);
}
