//! Concurrent commits: readers see a prefix of them. Of several commits that add the same unique key, one
//! succeeds.

use crate::harness::{On, explore, open, table};
use kauri_base::RecordId;
use kauri_base::sync::thread;
use kauri_conformance::inspect::Reader;
use kauri_conformance::table::{Table, doc, number};
use kauri_storage::StorageError;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// For each commit, the table and the change of its record's number.
type Commits = Mutex<BTreeMap<u64, (usize, i64)>>;

/// Reads both records; all commits that the unit claims to see must be visible.
fn read(tables: &[Table; 2], ids: [RecordId; 2], times: usize, seen: &Mutex<Vec<(u64, [i64; 2])>>) {
    let mut reader = Reader::new(&*tables[0].engine);
    for _ in 0..times {
        reader.unit().leave();
        reader.unit().enter();
        let seq = reader.unit().snapshot().0;
        let numbers = [0, 1].map(|at| {
            let record = reader.get(&*tables[at].store(), ids[at]).expect("get");
            number(&record.expect("the record").doc, "k")
        });
        seen.lock().expect("notes").push((seq, numbers));
    }
}

fn prefix(on: On) {
    let engine = open(&on.emulator());
    let tables = [table(&engine, 10), table(&engine, 20)];
    let ids = [0, 1].map(|at: usize| tables[at].insert(&doc(0, 0, "")));
    let (commits, seen) = (Commits::default(), Mutex::default());
    thread::scope(|scope| {
        let (tables, commits, seen) = (&tables, &commits, &seen);
        for at in [0, 1] {
            scope.spawn(move || {
                for k in 1..=4 {
                    let seq = tables[at].update(ids[at], &doc(k, 0, "")).0;
                    commits.lock().expect("notes").insert(seq, (at, k));
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || read(tables, ids, 3, seen));
        }
    });
    let commits = commits.into_inner().expect("notes");
    assert_eq!(commits.len(), 8, "each commit has its own number");
    for (seq, numbers) in seen.into_inner().expect("notes") {
        for (commit, (at, k)) in commits.range(..=seq) {
            assert!(numbers[*at] >= *k, "{numbers:?} at {seq}, but {commit} made {at} {k}");
        }
    }
}

#[test]
fn readers_see_all_commits_up_to_their_snapshot() {
    explore(1500, || prefix(On::Disk));
}

#[test]
fn readers_see_all_commits_up_to_their_snapshot_on_persistent_memory() {
    explore(1000, || prefix(On::PersistentMemory));
}

#[test]
fn one_of_several_inserts_of_a_unique_key_succeeds() {
    explore(1500, || {
        let engine = open(&On::Disk.emulator());
        let table = table(&engine, 10);
        let old = table.insert(&doc(0, 7, "old"));
        let wins = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let (table, wins) = (&table, &wins);
            for k in 1..=2 {
                scope.spawn(move || match table.try_insert(&doc(k, 8, "new")) {
                    Ok(id) => wins.lock().expect("notes").push(id),
                    Err(StorageError::DuplicateKey { existing, .. }) => {
                        assert!(existing.is_some_and(|id| id != old), "{existing:?}");
                    }
                    Err(error) => panic!("{error}"),
                });
            }
            // A key that is released and taken at the same time.
            scope.spawn(|| table.delete(old));
            scope.spawn(|| match table.try_insert(&doc(3, 7, "instead")) {
                Ok(_) | Err(StorageError::DuplicateKey { .. }) => {}
                Err(error) => panic!("{error}"),
            });
        });
        assert_eq!(wins.into_inner().expect("notes").len(), 1);
        table.check();
    });
}
