//! Transactions and plain writers of the same records. The first claim wins, no change is lost, and each waiter
//! for a claim is woken.

use crate::harness::{On, explore, open, table};
use kauri_base::sync::thread;
use kauri_base::{Access, RecordId};
use kauri_conformance::inspect::Stored;
use kauri_conformance::table::{Table, doc, number};
use kauri_storage::{StorageError, Transaction, WriteUnit};

fn get(transaction: &mut Transaction, table: &Table, id: RecordId) -> Stored {
    loop {
        transaction.unit().enter();
        let found = table.store().get(transaction.unit(), id).expect("get").map(|record| {
            let record = record.expect("the record");
            Stored { doc: record.doc.as_bytes().to_vec(), version: record.version }
        });
        transaction.unit().leave();
        match found {
            Access::Ready(record) => return record,
            Access::WouldBlock(ticket) => ticket.wait().expect("wait"),
        }
    }
}

fn next(record: &Stored) -> Vec<u8> {
    doc(number(&record.doc, "k") + 1, number(&record.doc, "u"), "")
}

/// Waits for the claim that conflicts with the unit, if it still exists.
fn wait_for_claim(table: &Table, unit: &WriteUnit<'_>) {
    let claims = table.engine.claims().expect("claims");
    if let Some(ticket) = claims.ticket(unit) {
        ticket.wait().expect("wait");
    }
}

/// Adds one to both records, in this order, in one commit; retries if others were first.
fn transact(table: &Table, ids: [RecordId; 2]) {
    'anew: loop {
        let mut transaction = Transaction::begin(&table.engine).expect("begin");
        for id in ids {
            let old = get(&mut transaction, table, id);
            let mut unit = WriteUnit::new();
            table.update_in(&mut unit, id, &old, &next(&old));
            loop {
                match transaction.write(&mut unit) {
                    Ok(Access::Ready(())) => break,
                    Ok(Access::WouldBlock(ticket)) => ticket.wait().expect("wait"),
                    Err(StorageError::WriteConflict) => {
                        transaction.abort();
                        wait_for_claim(table, &unit);
                        continue 'anew;
                    }
                    Err(error) => panic!("staging: {error}"),
                }
            }
        }
        // No other writer can have changed the records it has claimed.
        transaction.commit().unwrap_or_else(|error| panic!("commit: {error}"));
        return;
    }
}

/// Adds one to a record, waiting for claims.
fn increment(table: &Table, id: RecordId) {
    loop {
        let old = table.record(id);
        let mut unit = WriteUnit::new();
        table.update_in(&mut unit, id, &old, &next(&old));
        match table.engine.commit(&mut unit) {
            Ok(_) => return,
            Err(StorageError::WriteConflict) => wait_for_claim(table, &unit),
            Err(error) => panic!("commit: {error}"),
        }
    }
}

#[test]
fn no_increment_is_lost() {
    explore(1200, || {
        let engine = open(&On::Disk.emulator());
        let table = table(&engine, 10);
        let [a, b] = [1, 2].map(|u| table.insert(&doc(0, u, "")));
        thread::scope(|scope| {
            let table = &table;
            scope.spawn(move || transact(table, [a, b]));
            // The other order: a transaction that finds the other's claim releases its own before it waits.
            scope.spawn(move || transact(table, [b, a]));
            scope.spawn(move || increment(table, a));
            scope.spawn(move || {
                increment(table, b);
                increment(table, b);
            });
        });
        assert_eq!(number(&table.record(a).doc, "k"), 3);
        assert_eq!(number(&table.record(b).doc, "k"), 4);
        assert_eq!(table.engine.claims().map(|claims| claims.count()), Some(0));
        table.check();
    });
}

#[test]
fn one_of_two_transactions_with_the_same_key_succeeds() {
    explore(1200, || {
        let engine = open(&On::Disk.emulator());
        let table = table(&engine, 10);
        let add = |k: i64| {
            let mut transaction = Transaction::begin(&table.engine).expect("begin");
            let mut unit = WriteUnit::new();
            table.insert_in(&mut unit, &doc(k, 5, ""));
            match transaction.write(&mut unit) {
                Ok(Access::Ready(())) => {
                    let committed = transaction.commit();
                    committed.unwrap_or_else(|error| panic!("commit: {error}"));
                    Ok(())
                }
                Ok(Access::WouldBlock(_)) => panic!("nothing has to be read"),
                Err(error) => Err(error),
            }
        };
        let refused = |error: &StorageError| {
            matches!(error, StorageError::WriteConflict | StorageError::DuplicateKey { .. })
        };
        let wins: i64 = thread::scope(|scope| {
            let (add, table) = (&add, &table);
            let threads = [
                scope.spawn(move || add(1)),
                scope.spawn(move || add(2)),
                scope.spawn(move || table.try_insert(&doc(3, 5, "")).map(drop)),
            ];
            let mut wins = 0;
            for thread in threads {
                match thread.join().expect("a thread") {
                    Ok(()) => wins += 1,
                    Err(error) => assert!(refused(&error), "{error}"),
                }
            }
            wins
        });
        assert_eq!(wins, 1);
        assert_eq!(table.records().len(), 1);
        table.check();
    });
}
