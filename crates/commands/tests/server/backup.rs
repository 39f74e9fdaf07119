//! File copies made one by one under `fsync` with `lock`, while writers of all kinds run.

use crate::cold_disk::ColdEngine;
use crate::common::{Client, TestServer, code_of, show, until};
use kauri_bson::{DocBuf, Value, array, doc};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ROUNDS: usize = 3;
const WRITERS: i64 = 4;
/// A writer's ids begin at its number times this.
const IDS: i64 = 1_000_000;

/// Runs a command that must succeed, however long it waits for the lock.
fn run(client: &Client, command: DocBuf) {
    let reply = client.run(&command);
    assert_eq!(code_of(&reply), 0, "{} -> {}", show(&command), show(&reply));
    assert!(reply.as_doc().get("writeErrors").is_none(), "{}", show(&reply));
}

fn documents(ids: impl Iterator<Item = i64>) -> Value<'static> {
    let text = "x".repeat(500);
    Value::array(
        ids.map(|id| Value::from(doc! { "_id" => id, "a" => id % 7, "t" => text.as_str() })),
    )
}

/// Writes until it is stopped: single documents, batches, multi-updates, copies of the whole collection.
fn write(client: &Client, writer: i64, stop: &AtomicBool, acknowledged: &Mutex<BTreeSet<i64>>) {
    let mut next = writer * IDS;
    let mut turn = writer;
    while !stop.load(Ordering::Acquire) {
        let count = if turn % 5 == 0 { 40 } else { 1 };
        run(client, doc! { "insert" => "c", "documents" => documents(next..next + count) });
        acknowledged.lock().unwrap().extend(next..next + count);
        next += count;
        if turn % 7 == 0 {
            let inc = doc! { "$inc" => doc! { "n" => 1 } };
            let of = doc! { "_id" => doc! { "$gte" => writer * IDS, "$lt" => next } };
            let update = doc! { "q" => of, "u" => inc, "multi" => true };
            run(client, doc! { "update" => "c", "updates" => array![update] });
        }
        if turn % 40 == 0 {
            // Each writer has its own: two writers that replace one collection would interrupt each other.
            let target = format!("d{writer}");
            let out = array![doc! { "$match" => doc! { "a" => 1 } }, doc! { "$out" => target }];
            run(client, doc! { "aggregate" => "c", "pipeline" => out, "cursor" => doc! {} });
        }
        turn += 1;
    }
}

/// The expected contents of a copy: the documents and how often each was changed.
fn contents(client: &Client) -> Vec<DocBuf> {
    let reply = client.ok(doc! {
        "find" => "c", "projection" => doc! { "t" => 0 }, "sort" => doc! { "_id" => 1 },
        "batchSize" => 1_000_000, "singleBatch" => true,
    });
    crate::common::first_batch(&reply)
}

#[test]
fn a_copy_under_the_lock_has_all_acknowledged_writes() {
    let disk = ColdEngine::open();
    let test = TestServer::start_on(disk.engine.clone(), 2, &[]);
    let client = test.client();
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![
        doc! { "key" => doc! { "a" => 1 }, "name" => "a" }
    ] });
    let (stop, acknowledged) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (client, stop, acknowledged) = (test.client(), &stop, &acknowledged);
            scope.spawn(move || write(&client, writer, stop, acknowledged));
        }
        for round in 1..=ROUNDS {
            let count = || acknowledged.lock().unwrap().len();
            until("writers continue", || count() > round * 400);
            client.admin().ok(doc! { "fsync" => 1, "lock" => true });
            let before = (disk.files(), contents(&client));
            let promised = acknowledged.lock().unwrap().clone();
            let copy = disk.copy();
            let copied = TestServer::start_on(copy.engine.clone(), 1, &[]);
            let reader = copied.client();
            let found = contents(&reader);
            assert!(before == (disk.files(), contents(&client)), "something has changed");
            client.admin().ok(doc! { "fsyncUnlock" => 1 });
            assert!(found == before.1, "the copy differs");
            let ids: BTreeSet<i64> =
                found.iter().map(|d| crate::common::number(d, "_id")).collect();
            assert!(promised.is_subset(&ids), "something acknowledged is missing");
            reader.validate("c");
        }
        stop.store(true, Ordering::Release);
    });
    client.validate("c");
}
