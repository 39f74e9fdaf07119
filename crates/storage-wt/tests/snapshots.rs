//! Held snapshots and transactions among threads: their limit, and closing an engine that still has some.

mod common;

use common::TempDir;
use kauri_base::{Access, RecordId};
use kauri_bson::{DocBuf, Value};
use kauri_conformance::inspect::Reader;
use kauri_conformance::table::{Table, TableIndex, doc, number};
use kauri_storage::{Direction, StorageEngine, StorageError, Transaction, WriteUnit};
use kauri_storage_wt::{Options, WiredTiger};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

fn open(path: &Path) -> WiredTiger {
    let options = Options { cache_bytes: 64 << 20, ..Options::default() };
    WiredTiger::open(path, options).expect("opening")
}

fn table(engine: &Arc<dyn StorageEngine>) -> Table {
    Table::create(engine, 10, &[TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")])
}

fn held(engine: &dyn StorageEngine) -> i64 {
    let status = DocBuf::build(|out| engine.write_status(out));
    match status.as_doc().value("snapshots").as_document().map(|s| s.value("held")) {
        Some(Value::Int64(number)) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_number_of_snapshots_is_bounded() {
    let directory = TempDir::new();
    let engine = open(directory.path());
    let mut readers: Vec<_> = (0..1000).map(|_| Reader::hold(&engine)).collect();
    assert_eq!(held(&engine), 1000);
    let mut unit = engine.recovery_unit();
    let refused = unit.hold_snapshot();
    assert!(matches!(refused, Err(StorageError::Unsupported(_))), "{refused:?}");
    drop(readers.pop());
    unit.hold_snapshot().expect("one was released");
    drop(readers);
    assert_eq!(held(&engine), 1);
    unit.release_snapshot();
    assert_eq!(held(&engine), 0);
}

#[test]
fn an_engine_with_held_snapshots_ends() {
    let directory = TempDir::new();
    let engine = Arc::new(open(directory.path()));
    let handle: Arc<dyn StorageEngine> = engine.clone();
    let table = table(&handle);
    let id = table.insert(&doc(1, 1, "before"));
    let mut reader = Reader::hold(&*handle);
    let mut transaction = Transaction::begin(&handle).expect("begin");
    let mut unit = WriteUnit::new();
    table.insert_in(&mut unit, &doc(2, 2, "staged"));
    assert!(matches!(transaction.write(&mut unit), Ok(Access::Ready(()))));
    table.update(id, &doc(3, 3, "after"));
    engine.close().expect("closing");
    let seen = reader.get(&*table.store(), id).expect("get").expect("the record");
    assert_eq!(number(&seen.doc, "k"), 1, "it still shows its state");
    drop((reader, transaction, table, handle));
    drop(Arc::into_inner(engine).expect("the last handle"));
    let engine: Arc<dyn StorageEngine> = Arc::new(open(directory.path()));
    let table = Table::new(&engine, 10, &[]);
    let docs: Vec<_> = table.records().into_values().map(|r| number(&r.doc, "k")).collect();
    assert_eq!(docs, [3]);
}

/// A snapshot shows exactly the commits up to its number.
#[test]
fn a_snapshot_is_a_prefix() {
    const WRITERS: usize = 4;
    let directory = TempDir::new();
    let engine: Arc<dyn StorageEngine> = Arc::new(open(directory.path()));
    let table = table(&engine);
    let ids: Vec<_> = (0..WRITERS as i64).map(|u| table.insert(&doc(0, u, ""))).collect();
    let commits: Mutex<Vec<(u64, RecordId)>> = Mutex::default();
    let (stop, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut seen: Vec<(u64, Vec<(RecordId, u64)>)> = Vec::new();
    thread::scope(|scope| {
        for (u, id) in (0..).zip(&ids) {
            let (table, commits, stop, begun) = (&table, &commits, &stop, &begun);
            scope.spawn(move || {
                for k in 1.. {
                    let seq = table.update(*id, &doc(k, u, "")).0;
                    commits.lock().expect("notes").push((seq, *id));
                    begun.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        while seen.len() < 200 || begun.load(Ordering::Relaxed) < 400 {
            let mut reader = Reader::hold(&*engine);
            let seq = reader.unit().snapshot().0;
            let records = reader.records(&*table.store(), Direction::Forward).expect("scan");
            seen.push((seq, records.into_iter().map(|(id, r)| (id, r.version.0)).collect()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut commits = commits.into_inner().expect("notes");
    commits.sort_unstable();
    for (seq, versions) in seen {
        for (id, version) in versions {
            assert!(version <= seq, "{id} of {version} is seen at {seq}");
            let newest = commits.iter().rfind(|(at, of)| *of == id && *at <= seq);
            assert!(newest.is_none_or(|(at, _)| *at == version), "{id}, {version} at {seq}");
        }
    }
}

/// No other writer changes records that a transaction has written, so its commit succeeds and no change is
/// lost.
#[test]
fn the_holder_of_a_claim_commits() {
    const ROUNDS: usize = 40;
    let directory = TempDir::new();
    let engine: Arc<dyn StorageEngine> = Arc::new(open(directory.path()));
    let table = table(&engine);
    let id = table.insert(&doc(0, 1, ""));
    let one_more = |unit: &mut WriteUnit<'_>| {
        let old = table.record(id);
        table.update_in(unit, id, &old, &doc(number(&old.doc, "k") + 1, 1, ""));
    };
    let wait = |unit: &WriteUnit<'_>| {
        let ticket = engine.claims().and_then(|claims| claims.ticket(unit));
        ticket.map_or(Ok(()), |ticket| ticket.wait()).expect("wait");
    };
    // Large units, so that records are claimed in the middle of one.
    let fillers: Vec<_> = (0..300).map(|u| table.insert(&doc(0, 100 + u, ""))).collect();
    let plainly = |fillers: &[RecordId]| {
        let mut unit = WriteUnit::new();
        one_more(&mut unit);
        for id in fillers {
            let old = table.record(*id);
            table.update_in(&mut unit, *id, &old, &doc(1, number(&old.doc, "u"), ""));
        }
        match engine.commit(&mut unit) {
            Ok(_) => true,
            Err(StorageError::WriteConflict) => {
                wait(&unit);
                false
            }
            Err(error) => panic!("commit: {error}"),
        }
    };
    let looks = AtomicU64::new(0);
    let in_transaction = || {
        let mut transaction = Transaction::begin(&engine).expect("begin");
        // It writes at any moment of the other commits.
        let looks = looks.fetch_add(7, Ordering::Relaxed) % 150;
        fillers.iter().take(looks as usize).for_each(|id| drop(table.record(*id)));
        let mut unit = WriteUnit::new();
        one_more(&mut unit);
        match transaction.write(&mut unit) {
            Ok(Access::Ready(())) => {
                thread::yield_now();
                transaction.commit().unwrap_or_else(|error| panic!("commit: {error}"));
                true
            }
            Ok(Access::WouldBlock(_)) => panic!("nothing has to be waited for"),
            Err(StorageError::WriteConflict) => {
                transaction.abort();
                wait(&unit);
                false
            }
            Err(error) => panic!("staging: {error}"),
        }
    };
    let often = |attempt: &(dyn Fn() -> bool + Sync)| {
        let mut done = 0;
        while done < ROUNDS {
            done += usize::from(attempt());
        }
    };
    thread::scope(|scope| {
        for fillers in fillers.chunks(fillers.len() / 2) {
            let often = &often;
            let plainly = &plainly;
            scope.spawn(move || often(&|| plainly(fillers)));
            scope.spawn(|| often(&in_transaction));
        }
    });
    assert_eq!(number(&table.record(id).doc, "k"), 4 * ROUNDS as i64);
    assert_eq!(engine.claims().map(|claims| claims.count()), Some(0));
    table.check();
}

/// More old versions than the cache can hold: writers continue. The snapshot shows its state or reports that it
/// was given up.
#[test]
fn old_versions_beyond_the_cache_block_no_writer() {
    let directory = TempDir::new();
    let options = Options { cache_bytes: 1 << 20, ..Options::default() };
    let engine = WiredTiger::open(directory.path(), options).expect("opening");
    let engine: Arc<dyn StorageEngine> = Arc::new(engine);
    let table = table(&engine);
    // Nearly incompressible.
    let random = kauri_base::clock::SeededRandom::new(3);
    let text = || -> String {
        use kauri_base::RandomSource;
        (0..500).map(|_| format!("{:016x}", random.next_u64())).collect()
    };
    let ids: Vec<_> = (0..40).map(|u| table.insert(&doc(0, u, &text()))).collect();
    let mut reader = Reader::hold(&*engine);
    let before = reader.records(&*table.store(), Direction::Forward).expect("scan");
    for k in 1..=3 {
        for (u, id) in (0..).zip(&ids) {
            table.update(*id, &doc(k, u, &text()));
        }
    }
    match reader.records(&*table.store(), Direction::Backward) {
        Ok(after) => assert!(after == before, "the snapshot has changed"),
        Err(error) => assert_eq!(error, StorageError::SnapshotTooOld),
    }
    drop(reader);
    assert!(table.records().values().all(|record| number(&record.doc, "k") == 3));
    table.check();
}
