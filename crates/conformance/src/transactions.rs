//! Transactions: visibility, conflicts, atomicity.

use super::Subject;
use super::inspect::{self, Reader, Stored};
use super::table::{Table, TableIndex, doc, key, number};
use kauri_base::clock::SeededRandom;
use kauri_base::limits::TRANSACTION_BYTES_MAX;
use kauri_base::{Access, RandomSource, RecordId, Ticket};
use kauri_storage::Durability;
use kauri_storage::error::StorageError;
use kauri_storage::transaction::Transaction;
use kauri_storage::unit::{OpKind, WriteUnit};
use kauri_storage::write_set::is_provisional;
use kauri_storage::{Direction, IndexScan, RecordScan, find_by_scan};
use std::collections::BTreeMap;
use std::thread;

fn table(subject: &Subject) -> Table {
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    Table::create(&subject.engine(), 10, &indexes)
}

fn begin(table: &Table) -> Transaction {
    Transaction::begin(&table.engine).unwrap_or_else(|error| panic!("begin: {error}"))
}

/// Asks until the answer is `Ready`.
fn wait<T>(
    transaction: &mut Transaction,
    mut ask: impl FnMut(&mut Transaction) -> Result<Access<T>, StorageError>,
) -> Result<T, StorageError> {
    loop {
        match ask(transaction)? {
            Access::Ready(value) => return Ok(value),
            Access::WouldBlock(ticket) => ticket.wait().expect("wait"),
        }
    }
}

fn write(transaction: &mut Transaction, unit: &mut WriteUnit<'_>) -> Result<(), StorageError> {
    wait(transaction, |t| t.write(unit))
}

fn get(transaction: &mut Transaction, table: &Table, id: RecordId) -> Option<Stored> {
    let store = table.store();
    let found = wait(transaction, |t| {
        t.unit().enter();
        let found = store.get(t.unit(), id).map(|access| {
            access.map(|record| {
                record.map(|r| Stored { doc: r.doc.as_bytes().to_vec(), version: r.version })
            })
        });
        t.unit().leave();
        found
    });
    found.unwrap_or_else(|error| panic!("get {id}: {error}"))
}

fn find(transaction: &mut Transaction, table: &Table, u: i64) -> Option<RecordId> {
    let index = table.engine.index(table.indexes[1].spec.id).expect("the index");
    let found = wait(transaction, |t| {
        t.unit().enter();
        let found = find_by_scan(&*index, t.unit(), &key(u));
        assert_eq!(found.as_ref().ok().map(is_ready), Some(true));
        t.unit().leave();
        found
    });
    found.unwrap_or_else(|error| panic!("find {u}: {error}"))
}

fn is_ready<T>(access: &Access<T>) -> bool {
    matches!(access, Access::Ready(_))
}

/// All records as the transaction sees them, found in this direction.
fn records(
    transaction: &mut Transaction,
    table: &Table,
    direction: Direction,
) -> BTreeMap<RecordId, Stored> {
    let (store, mut scan) = (table.store(), RecordScan::new(direction));
    let mut ids = Vec::new();
    while !scan.ended() {
        wait(transaction, |t| {
            t.unit().enter();
            let filled = store.fill(t.unit(), &mut scan);
            t.unit().leave();
            filled
        })
        .unwrap_or_else(|error| panic!("scan: {error}"));
        ids.extend(std::iter::from_fn(|| scan.next_buffered()));
    }
    let sorted = match direction {
        Direction::Forward => ids.is_sorted_by(|a, b| a < b),
        Direction::Backward => ids.is_sorted_by(|a, b| a > b),
    };
    assert!(sorted, "{ids:?}");
    ids.into_iter().filter_map(|id| Some((id, get(transaction, table, id)?))).collect()
}

/// Checks that the transaction sees these records, and index entries that go with them.
fn check(transaction: &mut Transaction, table: &Table, expected: &BTreeMap<RecordId, Vec<u8>>) {
    for direction in [Direction::Forward, Direction::Backward] {
        let found = records(transaction, table, direction);
        let docs: BTreeMap<_, _> = found.iter().map(|(id, r)| (*id, r.doc.clone())).collect();
        assert_eq!(&docs, expected, "{direction:?}");
        for index in &table.indexes {
            let mut keys = inspect::keys_of(&found, &*index.generator);
            if direction == Direction::Backward {
                keys.reverse();
            }
            let handle = table.engine.index(index.spec.id).expect("the index");
            let mut scan = IndexScan::new(direction, Vec::new(), Vec::new());
            let mut entries = Vec::new();
            while !scan.ended() {
                wait(transaction, |t| {
                    t.unit().enter();
                    let filled = handle.fill(t.unit(), &mut scan);
                    t.unit().leave();
                    filled
                })
                .unwrap_or_else(|error| panic!("scan: {error}"));
                while let Some(e) = scan.next_buffered() {
                    let (key, type_bits) = (e.key.to_vec(), e.type_bits.to_vec());
                    entries.push(inspect::Entry { key, record: e.record, type_bits });
                }
            }
            assert_eq!(entries, keys, "{:?}, {direction:?}", index.spec.id);
        }
    }
}

fn insert(
    transaction: &mut Transaction,
    table: &Table,
    doc: &[u8],
) -> Result<RecordId, StorageError> {
    let mut unit = WriteUnit::new();
    let op = table.insert_in(&mut unit, doc);
    write(transaction, &mut unit)?;
    Ok(unit.ops[op].record)
}

fn update(
    transaction: &mut Transaction,
    table: &Table,
    id: RecordId,
    doc: &[u8],
) -> Result<(), StorageError> {
    let old = get(transaction, table, id).unwrap_or_else(|| panic!("{id} is not there"));
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, id, &old, doc);
    write(transaction, &mut unit)
}

fn delete(transaction: &mut Transaction, table: &Table, id: RecordId) -> Result<(), StorageError> {
    let old = get(transaction, table, id).unwrap_or_else(|| panic!("{id} is not there"));
    let mut unit = WriteUnit::new();
    table.delete_in(&mut unit, id, &old);
    write(transaction, &mut unit)
}

/// A plain write of a record as it is now.
fn plain_update(table: &Table, id: RecordId, doc: &[u8]) -> Result<(), StorageError> {
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, id, &table.record(id), doc);
    table.engine.commit(&mut unit).map(drop)
}

fn docs(table: &Table) -> BTreeMap<RecordId, Vec<u8>> {
    table.records().into_iter().map(|(id, r)| (id, r.doc)).collect()
}

fn commit(transaction: Transaction) {
    let ticket = transaction.commit().unwrap_or_else(|error| panic!("commit: {error}"));
    ticket.wait(Durability::Written).expect("wait");
}

pub(super) fn it_reads_what_it_has_written(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..100).map(|i| table.insert(&doc(i % 5, i, "old"))).collect();
    let mut model = docs(&table);
    let mut transaction = begin(&table);
    check(&mut transaction, &table, &model);
    for i in 0..300 {
        let new = doc(i % 4, 1000 + i, "new");
        let id = insert(&mut transaction, &table, &new).expect("insert");
        assert!(is_provisional(id));
        model.insert(id, new);
        if i % 3 == 0 {
            delete(&mut transaction, &table, id).expect("delete");
            model.remove(&id);
        } else if i % 3 == 1 {
            let newer = doc(9, 5000 + i, "newer");
            update(&mut transaction, &table, id, &newer).expect("update");
            model.insert(id, newer);
        }
    }
    for (i, id) in ids.iter().enumerate() {
        if i % 2 == 0 {
            let new = doc(7, 3000 + i as i64, "changed");
            update(&mut transaction, &table, *id, &new).expect("update");
            assert_eq!(find(&mut transaction, &table, 3000 + i as i64), Some(*id));
            assert_eq!(find(&mut transaction, &table, i as i64), None);
            model.insert(*id, new);
        }
        if i % 4 == 0 {
            delete(&mut transaction, &table, *id).expect("delete");
            model.remove(id);
        }
    }
    check(&mut transaction, &table, &model);
    // What others do meanwhile is not seen.
    table.delete(ids[1]);
    table.insert(&doc(1, -1, "other"));
    check(&mut transaction, &table, &model);
    commit(transaction);
    table.check();
    model.remove(&ids[1]);
    let mut expected: Vec<_> = model.into_values().collect();
    expected.push(doc(1, -1, "other"));
    let mut found: Vec<_> = docs(&table).into_values().collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

pub(super) fn nobody_else_sees_its_write_set(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(1, 1, "before"));
    let before = docs(&table);
    let mut transaction = begin(&table);
    update(&mut transaction, &table, id, &doc(2, 2, "after")).expect("update");
    insert(&mut transaction, &table, &doc(3, 3, "new")).expect("insert");
    assert_eq!(docs(&table), before);
    table.check();
    let mut other = begin(&table);
    check(&mut other, &table, &before);
    let mut held = Reader::hold(&*table.engine);
    commit(transaction);
    check(&mut other, &table, &before);
    let seen = held.records(&*table.store(), Direction::Forward).expect("scan");
    assert_eq!(seen.len(), 1);
    let texts: Vec<_> = docs(&table).values().map(|doc| number(doc, "k")).collect();
    assert_eq!(texts, [2, 3]);
    let versions: Vec<_> = table.records().values().map(|record| record.version).collect();
    assert_eq!(versions[0], versions[1], "one commit");
    table.check();
}

pub(super) fn an_abort_leaves_nothing(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(1, 1, ""));
    let before = table.records();
    for explicit in [true, false] {
        let mut transaction = begin(&table);
        update(&mut transaction, &table, id, &doc(2, 2, "")).expect("update");
        insert(&mut transaction, &table, &doc(3, 3, "")).expect("insert");
        if explicit {
            transaction.abort();
        } else {
            drop(transaction);
        }
        assert_eq!(table.records(), before);
    }
    let claims = table.engine.claims().expect("claims");
    assert_eq!(claims.count(), 0);
    table.insert(&doc(3, 3, ""));
    plain_update(&table, id, &doc(2, 2, "")).expect("nobody claims it");
    table.check();
}

pub(super) fn the_first_updater_wins(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..4).map(|i| table.insert(&doc(0, i, ""))).collect();
    let (mut first, mut second) = (begin(&table), begin(&table));
    update(&mut first, &table, ids[0], &doc(1, 0, "")).expect("the first");
    let conflict = Some(StorageError::WriteConflict);
    assert_eq!(update(&mut second, &table, ids[0], &doc(2, 0, "")).err(), conflict);
    assert_eq!(delete(&mut second, &table, ids[0]).err(), conflict);
    assert_eq!(plain_update(&table, ids[0], &doc(3, 0, "")).err(), conflict);
    // Each goes on with what the other has not claimed.
    delete(&mut second, &table, ids[1]).expect("another record");
    assert_eq!(update(&mut first, &table, ids[1], &doc(1, 1, "")).err(), conflict);
    plain_update(&table, ids[2], &doc(3, 2, "")).expect("nobody claims it");
    update(&mut first, &table, ids[0], &doc(4, 0, "")).expect("its own once more");
    // Computed from what it has overwritten itself.
    let mut outdated = WriteUnit::new();
    table.update_in(&mut outdated, ids[0], &table.record(ids[0]), &doc(9, 0, ""));
    assert_eq!(write(&mut first, &mut outdated).err(), conflict);
    first.abort();
    plain_update(&table, ids[0], &doc(5, 0, "")).expect("no longer claimed");
    commit(second);
    let left: Vec<_> = table.records().values().map(|r| number(&r.doc, "k")).collect();
    assert_eq!(left, [5, 3, 0]);
    table.check();
}

pub(super) fn a_claim_can_be_waited_for(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(0, 0, ""));
    let claims = table.engine.claims().expect("claims").clone();
    let mut transaction = begin(&table);
    update(&mut transaction, &table, id, &doc(1, 0, "")).expect("update");
    let mut unit = WriteUnit::new();
    table.update_in(&mut unit, id, &table.record(id), &doc(2, 0, ""));
    assert_eq!(table.engine.commit(&mut unit).err(), Some(StorageError::WriteConflict));
    let ticket: Ticket = claims.ticket(&unit).expect("somebody to wait for");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            ticket.wait().expect("wait");
            plain_update(&table, id, &doc(2, 0, "")).expect("the claim has ended");
        });
        commit(transaction);
        waiter.join().expect("the waiter");
    });
    assert!(claims.ticket(&unit).is_none());
    assert_eq!(number(&table.record(id).doc, "k"), 2);
}

pub(super) fn what_was_committed_since_conflicts(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..3).map(|i| table.insert(&doc(0, i, ""))).collect();
    let mut transaction = begin(&table);
    plain_update(&table, ids[0], &doc(1, 0, "")).expect("a plain write");
    table.delete(ids[1]);
    let conflict = Some(StorageError::WriteConflict);
    assert_eq!(update(&mut transaction, &table, ids[0], &doc(2, 0, "")).err(), conflict);
    assert_eq!(delete(&mut transaction, &table, ids[1]).err(), conflict);
    update(&mut transaction, &table, ids[2], &doc(2, 2, "")).expect("untouched");
    // What was refused is not claimed.
    plain_update(&table, ids[0], &doc(3, 0, "")).expect("a plain write");
    commit(transaction);
    table.check();
}

pub(super) fn a_refused_statement_leaves_the_transaction(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(0, 1, ""));
    let mut transaction = begin(&table);
    insert(&mut transaction, &table, &doc(1, 2, "")).expect("insert");
    let mut unit = WriteUnit::new();
    table.insert_in(&mut unit, &doc(2, 3, ""));
    let failing = table.insert_in(&mut unit, &doc(2, 1, ""));
    match write(&mut transaction, &mut unit) {
        Err(StorageError::DuplicateKey { op, existing, .. }) => {
            assert_eq!((op, existing), (failing, Some(id)));
        }
        other => panic!("{other:?}"),
    }
    // Nothing of it is there, nor claimed.
    assert_eq!(find(&mut transaction, &table, 3), None);
    table.insert(&doc(9, 3, ""));
    commit(transaction);
    let left: Vec<_> = table.records().values().map(|r| number(&r.doc, "u")).collect();
    assert_eq!(left, [1, 3, 2]);
    table.check();
}

pub(super) fn unique_keys_of_others(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..4).map(|i| table.insert(&doc(0, i, ""))).collect();
    let mut transaction = begin(&table);
    let conflict = Some(StorageError::WriteConflict);
    let is_duplicate = |result: Result<RecordId, StorageError>, existing| match result {
        Err(StorageError::DuplicateKey { existing: found, .. }) => assert_eq!(found, existing),
        other => panic!("{other:?}"),
    };
    is_duplicate(insert(&mut transaction, &table, &doc(1, 2, "")), Some(ids[2]));
    // A key that was committed later, or is freed later, is neither in use nor free here.
    table.insert(&doc(0, 50, ""));
    table.delete(ids[3]);
    assert_eq!(insert(&mut transaction, &table, &doc(1, 50, "")).err(), conflict);
    assert_eq!(insert(&mut transaction, &table, &doc(1, 3, "")).err(), conflict);
    // Keys that others are about to take or to give up.
    let mut other = begin(&table);
    insert(&mut other, &table, &doc(2, 60, "")).expect("insert");
    delete(&mut other, &table, ids[0]).expect("delete");
    for u in [60, 0] {
        assert_eq!(insert(&mut transaction, &table, &doc(1, u, "")).err(), conflict);
        assert_eq!(table.try_insert(&doc(1, u, "")).err(), conflict);
    }
    let mut reader = Reader::new(&*table.engine);
    let index = table.engine.index(table.indexes[1].spec.id).expect("the index");
    assert_eq!(reader.find(&*index, &key(60)).expect("find"), None);
    drop(reader);
    commit(other);
    table.insert(&doc(1, 0, ""));
    is_duplicate(table.try_insert(&doc(1, 60, "")), table.find(&table.indexes[1], 60));
    insert(&mut transaction, &table, &doc(1, 70, "")).expect("a free key");
    commit(transaction);
    table.check();
}

pub(super) fn unique_keys_of_its_own(subject: &mut Subject) {
    let table = table(subject);
    let ids: Vec<_> = (0..4).map(|i| table.insert(&doc(0, i, ""))).collect();
    let mut transaction = begin(&table);
    let new = insert(&mut transaction, &table, &doc(1, 10, "")).expect("insert");
    match insert(&mut transaction, &table, &doc(1, 10, "")) {
        Err(StorageError::DuplicateKey { existing: None, .. }) => {}
        other => panic!("{other:?}"),
    }
    // Keys that earlier statements have freed.
    delete(&mut transaction, &table, ids[0]).expect("delete");
    update(&mut transaction, &table, ids[1], &doc(0, 11, "")).expect("update");
    delete(&mut transaction, &table, new).expect("delete");
    for u in [0, 1, 10] {
        insert(&mut transaction, &table, &doc(2, u, "")).expect("the key is free");
    }
    // Two records change their keys, by way of a third key.
    update(&mut transaction, &table, ids[2], &doc(0, 99, "")).expect("away");
    update(&mut transaction, &table, ids[3], &doc(0, 2, "")).expect("the first");
    update(&mut transaction, &table, ids[2], &doc(0, 3, "")).expect("the second");
    commit(transaction);
    let left: BTreeMap<_, _> =
        table.records().values().map(|r| (number(&r.doc, "u"), number(&r.doc, "k"))).collect();
    assert_eq!(
        left.into_iter().collect::<Vec<_>>(),
        [(0, 2), (1, 2), (2, 0), (3, 0), (10, 2), (11, 0)]
    );
    table.check();
}

pub(super) fn definitions_are_not_changed_in_one(subject: &mut Subject) {
    let table = table(subject);
    let id = table.insert(&doc(0, 1, ""));
    let mut transaction = begin(&table);
    let mut unit = WriteUnit::new();
    unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
    let refused = write(&mut transaction, &mut unit);
    assert!(matches!(refused, Err(StorageError::Unsupported(_))), "{refused:?}");
    let number = table.engine.definition_number(table.id).expect("a number");
    let mut unit = WriteUnit::new();
    unit.expect_definition(table.id, number);
    let old = get(&mut transaction, &table, id).expect("a record");
    table.update_in(&mut unit, id, &old, &doc(5, 5, ""));
    write(&mut transaction, &mut unit).expect("the definition is that");
    let mut change = WriteUnit::new();
    change.push(table.id, RecordId(0), OpKind::ChangeDefinition);
    table.commit(&mut change);
    let mut unit = WriteUnit::new();
    unit.expect_definition(table.id, number);
    let stale = Some(StorageError::StaleCatalog(table.id));
    assert_eq!(write(&mut transaction, &mut unit).err(), stale);
    assert_eq!(transaction.commit().err(), stale);
    assert_eq!(table.engine.claims().expect("claims").count(), 0);
    plain_update(&table, id, &doc(6, 6, "")).expect("nobody claims it");
    table.check();
}

pub(super) fn there_is_a_bound(subject: &mut Subject) {
    let table = Table::create(&subject.engine(), 10, &[]);
    let text = "x".repeat(15 << 20);
    let big = doc(0, 0, &text);
    let mut transaction = begin(&table);
    let mut written = 0;
    let error = loop {
        match insert(&mut transaction, &table, &big) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written * big.len() <= TRANSACTION_BYTES_MAX, "there is no bound");
    };
    assert_eq!(error, StorageError::TransactionTooLarge);
    assert!(written >= 10, "{written}");
    insert(&mut transaction, &table, &doc(1, 1, "")).expect("there is room for a small one");
    transaction.abort();
    assert_eq!(table.records().len(), 0);
}

/// Transactions in one thread, step by step, against what they should see.
pub(super) fn random_transactions(subject: &mut Subject) {
    let table = table(subject);
    for seed in 1..=4 {
        let random = SeededRandom::new(seed);
        let below = |n: u64| random.next_u64() % n.max(1);
        let mut running: Vec<(Transaction, BTreeMap<RecordId, Vec<u8>>)> = Vec::new();
        let (mut committed, mut conflicts) = (0, 0);
        for _ in 0..700 {
            match below(20) {
                0..2 if running.len() < 4 => running.push((begin(&table), docs(&table))),
                2 if !running.is_empty() => {
                    let at = below(running.len() as u64) as usize;
                    let (mut transaction, model) = running.swap_remove(at);
                    check(&mut transaction, &table, &model);
                    if below(4) > 0 {
                        commit(transaction);
                        committed += 1;
                    }
                    table.check();
                }
                _ if running.is_empty() => {
                    let new = doc(below(9) as i64, below(200) as i64, "plain");
                    conflicts += usize::from(table.try_insert(&new).is_err());
                }
                _ => {
                    let at = below(running.len() as u64) as usize;
                    let (transaction, model) = &mut running[at];
                    conflicts += usize::from(!random_statement(transaction, &table, model, &below));
                }
            }
        }
        drop(running);
        table.check();
        assert_eq!(table.engine.claims().expect("claims").count(), 0);
        assert!(committed > 5 && conflicts > 5, "{committed} commits, {conflicts} refusals");
    }
}

/// Whether it was not refused.
fn random_statement(
    transaction: &mut Transaction,
    table: &Table,
    model: &mut BTreeMap<RecordId, Vec<u8>>,
    below: &dyn Fn(u64) -> u64,
) -> bool {
    let new = doc(below(9) as i64, below(200) as i64, "written");
    let pick = model.keys().nth(below(model.len() as u64) as usize).copied();
    let result = match (below(3), pick) {
        (0, Some(id)) => delete(transaction, table, id).map(|()| drop(model.remove(&id))),
        (1, Some(id)) => update(transaction, table, id, &new).map(|()| drop(model.insert(id, new))),
        _ => insert(transaction, table, &new).map(|id| drop(model.insert(id, new))),
    };
    match result {
        Ok(()) => true,
        Err(StorageError::WriteConflict | StorageError::DuplicateKey { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

pub(super) fn transfers_in_transactions_preserve_the_sum(subject: &mut Subject) {
    const ACCOUNTS: i64 = 12;
    const TRANSFERS: usize = 60;
    let table = table(subject);
    let ids: Vec<_> = (0..ACCOUNTS).map(|i| table.insert(&doc(100, i, ""))).collect();
    thread::scope(|scope| {
        for seed in 0..3 {
            let (table, ids) = (&table, &ids);
            scope.spawn(move || {
                let random = SeededRandom::new(seed);
                let mut done = 0;
                while done < TRANSFERS {
                    done += usize::from(transfer(table, ids, &random));
                }
            });
        }
    });
    let sum: i64 = table.records().values().map(|r| number(&r.doc, "k")).sum();
    let moves: i64 = table.records().values().map(|r| number(&r.doc, "u") / 1000).sum();
    assert_eq!((sum, moves), (100 * ACCOUNTS, 3 * 2 * TRANSFERS as i64));
    table.check();
}

/// Moves something from one account to another and counts that in both. Whether it came through.
fn transfer(table: &Table, ids: &[RecordId], random: &SeededRandom) -> bool {
    let from = random.next_u64() as usize % ids.len();
    let to = (from + 1 + random.next_u64() as usize % (ids.len() - 1)) % ids.len();
    let amount = (random.next_u64() % 50) as i64;
    let mut transaction = begin(table);
    let sum: i64 = records(&mut transaction, table, Direction::Forward)
        .values()
        .map(|r| number(&r.doc, "k"))
        .sum();
    assert_eq!(sum, 100 * ids.len() as i64, "a transaction sees half of another");
    for (at, change) in [(from, -amount), (to, amount)] {
        let Some(old) = get(&mut transaction, table, ids[at]) else { return false };
        let (k, u) = (number(&old.doc, "k"), number(&old.doc, "u"));
        let new = doc(k + change, u + 1000, "");
        match update(&mut transaction, table, ids[at], &new) {
            Ok(()) => {}
            Err(StorageError::WriteConflict) => return false,
            Err(error) => panic!("{error}"),
        }
    }
    commit(transaction);
    true
}
