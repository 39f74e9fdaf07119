//! `fsync` with `lock` blocks writers and no other operations.

use crate::cold_disk::ColdEngine;
use crate::common::{Client, PATIENCE, TestServer, code_of, number, text, until};
use kauri_bson::{Doc, DocBuf, array, doc};
use kauri_catalog::Namespace;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn insert(id: i32) -> DocBuf {
    doc! { "insert" => "c", "documents" => array![doc! { "_id" => id }] }
}

fn lock(client: &Client) -> i64 {
    number(&client.admin().ok(doc! { "fsync" => 1, "lock" => true }), "lockCount")
}

fn unlock(client: &Client) -> i64 {
    number(&client.admin().ok(doc! { "fsyncUnlock" => 1 }), "lockCount")
}

#[test]
fn writers_wait_until_every_lock_is_released() {
    let test = TestServer::start();
    let (client, writer) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 0 }]);
    assert_eq!((lock(&client), lock(&client)), (1, 2));
    writer.send(&insert(1));
    assert!(writer.receive_within(Duration::from_millis(50)).is_none());
    // Readers continue.
    assert_eq!(client.all_ids("c"), [0]);
    assert_eq!(unlock(&client), 1);
    assert!(writer.receive_within(Duration::from_millis(50)).is_none());
    assert_eq!(unlock(&client), 0);
    assert_eq!(code_of(&writer.receive_within(PATIENCE).unwrap()), 0);
    assert_eq!(client.all_ids("c"), [0, 1]);
    assert_eq!(client.admin().fails(doc! { "fsyncUnlock" => 1 }), 20);
}

#[test]
fn every_kind_of_write_waits() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..4).map(|n| doc! { "_id" => n }));
    lock(&client);
    let writes = [
        insert(9),
        doc! { "update" => "c", "updates" => array![
            doc! { "q" => doc! { "_id" => 0 }, "u" => doc! { "$set" => doc! { "a" => 1 } } }
        ] },
        doc! { "delete" => "c", "deletes" => array![doc! { "q" => doc! { "_id" => 1 }, "limit" => 1 }] },
        doc! { "findAndModify" => "c", "query" => doc! { "_id" => 2 }, "remove" => true },
        doc! { "create" => "d" },
        doc! { "createIndexes" => "c", "indexes" => array![
            doc! { "key" => doc! { "a" => 1 }, "name" => "a" }
        ] },
    ];
    let writers: Vec<Client> = writes.iter().map(|_| test.client()).collect();
    writers.iter().zip(&writes).for_each(|(writer, write)| writer.send(write));
    for writer in &writers {
        assert!(writer.receive_within(Duration::from_millis(20)).is_none());
    }
    assert_eq!(client.all_ids("c"), [0, 1, 2, 3]);
    unlock(&client);
    for writer in &writers {
        assert_eq!(code_of(&writer.receive().unwrap()), 0);
    }
    assert_eq!(client.all_ids("c"), [0, 3, 9]);
    client.validate("c");
}

/// A writer that was admitted before the lock commits before the reply. Otherwise the lock is given up and
/// other writers continue.
#[test]
fn the_lock_waits_for_writers_that_are_at_work() {
    let test = TestServer::start();
    let (client, other) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 0 }]);
    let writer = test.server.fsync_lock.admit().unwrap();
    let limited = doc! { "fsync" => 1, "lock" => true, "fsyncLockAcquisitionTimeoutMillis" => 0 };
    let reply = client.admin().run(&limited);
    assert_eq!(code_of(&reply), 24);
    assert_eq!(text(&reply, "errmsg"), "Fsync lock timed out");
    client.insert("c", [doc! { "_id" => 1 }]);
    client.admin().send(&doc! { "fsync" => 1, "lock" => true });
    assert!(client.receive_within(Duration::from_millis(50)).is_none());
    assert!(test.server.fsync_lock.is_locked(), "the lock is held during the wait");
    drop(writer);
    assert_eq!(number(&client.receive().unwrap(), "lockCount"), 1);
    other.send(&insert(2));
    assert!(other.receive_within(Duration::from_millis(20)).is_none());
    unlock(&client);
    assert_eq!(code_of(&other.receive().unwrap()), 0);
    assert_eq!(client.all_ids("c"), [0, 1, 2]);
}

/// The engine cannot interrupt the flush of its files. Writers wait until it ends, then continue.
#[test]
fn the_lock_gives_up_if_holding_the_files_takes_too_long() {
    let disk = ColdEngine::open();
    let test = TestServer::start_on(disk.engine.clone(), 2, &[]);
    let (client, writer) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 0 }]);
    disk.gate.hold_stores(true);
    // The commit is not made by a worker, so no worker has to flush it.
    let (ns, mut scope) = (Namespace::new("test", "d").unwrap(), test.server.backend.scope());
    test.server.catalog.create_collection(&mut scope, &ns, Default::default(), None).unwrap();
    until("it is being written", || disk.gate.waiting_stores() > 0);
    let limited = doc! { "fsync" => 1, "lock" => true, "fsyncLockAcquisitionTimeoutMillis" => 500 };
    client.admin().send(&limited);
    let (mut reply, deadline) = (None, Instant::now() + PATIENCE);
    while reply.is_none() && Instant::now() < deadline {
        test.clock.advance(Duration::from_millis(100));
        reply = client.receive_within(Duration::from_millis(1));
    }
    let is_locked = test.server.fsync_lock.is_locked();
    writer.send(&insert(1));
    let acknowledged = writer.receive_within(Duration::from_millis(20));
    // Released before any assertion may fail: otherwise the server could not end.
    disk.gate.hold_stores(false);
    let reply = reply.expect("a reply");
    assert_eq!((code_of(&reply), text(&reply, "errmsg").as_str()), (24, "Fsync lock timed out"));
    assert!(is_locked && acknowledged.is_none(), "writers wait for the files");
    assert_eq!(code_of(&writer.receive().unwrap()), 0);
    assert_eq!(client.all_ids("c"), [0, 1]);
    assert_eq!(client.admin().fails(doc! { "fsyncUnlock" => 1 }), 20);
    assert_eq!(lock(&client), 1);
    assert_eq!(unlock(&client), 0);
}

/// A writer that is admitted while a lock is acquired either delays the lock or waits for it.
#[test]
fn a_writer_waits_for_a_lock_taken_during_its_admission() {
    const COMMANDS: i32 = 300;
    // Short, so that a lock is often taken between a writer's check and its count.
    let spin = || (0..20).for_each(|_| std::hint::spin_loop());
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => -1 }]);
    let id = test.server.catalog.collection("test.c").unwrap().id;
    let store = test.server.backend.engine().record_store(id).unwrap();
    let records = || store.stats().unwrap().records;
    let lock = test.server.fsync_lock.clone();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(Ordering::Acquire) {
                let locking = lock.announce();
                if locking.has_writers() {
                    continue;
                }
                let before = records();
                spin();
                looks += 1;
                assert_eq!(records(), before, "a write that the lock does not wait for");
                drop(locking);
                spin();
            }
            looks
        });
        // Two documents: they bypass the express path, whose writes the engine rejects while files are held.
        let insert = |n: i32| {
            let pair = array![doc! { "_id" => 2 * n }, doc! { "_id" => 2 * n + 1 }];
            client.send(&doc! { "insert" => "c", "documents" => pair });
            client.receive()
        };
        let replies: Vec<_> = (0..COMMANDS).map(insert).collect();
        done.store(true, Ordering::Release);
        assert!(ended.join().expect("no write under a lock") > 0);
        assert!(replies.into_iter().all(|reply| code_of(&reply.unwrap()) == 0));
    });
    assert_eq!(records(), 2 * COMMANDS as u64 + 1);
}

/// The aggregation reads, except for its last stage.
#[test]
fn an_aggregation_that_writes_waits() {
    let test = TestServer::start();
    let (client, writer) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 0 }]);
    lock(&client);
    let aggregate = |stages| doc! { "aggregate" => "c", "pipeline" => stages, "cursor" => doc! {} };
    client.ok(aggregate(array![doc! { "$match" => doc! {} }]));
    writer.send(&aggregate(array![doc! { "$out" => "d" }]));
    assert!(writer.receive_within(Duration::from_millis(50)).is_none());
    assert_eq!(client.all_ids("d"), []);
    unlock(&client);
    assert_eq!(code_of(&writer.receive().unwrap()), 0);
    assert_eq!(client.all_ids("d"), [0]);
}

#[test]
fn a_waiting_writer_is_shown_and_can_be_killed() {
    let test = TestServer::start();
    let (client, writer) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 0 }]);
    lock(&client);
    writer.send(&DocBuf::build(|w| {
        w.put_all(insert(1).as_doc());
        w.put("comment", "waits");
    }));
    let waiting = doc! { "currentOp" => 1, "command.comment" => "waits" };
    let mut op = 0;
    until("it is shown", || {
        let reply = client.admin().ok(waiting.clone());
        let rows = reply.as_doc().value("inprog");
        let first = rows.as_array().and_then(|rows| rows.first()?.as_doc().map(Doc::to_buf));
        op = first.map_or(0, |row| number(&row, "opid"));
        op != 0
    });
    client.admin().ok(doc! { "killOp" => 1, "op" => op });
    assert_eq!(code_of(&writer.receive().unwrap()), 11_601);
    unlock(&client);
    assert_eq!(client.all_ids("c"), [0]);
}

#[test]
fn a_waiting_writer_can_run_out_of_time() {
    let test = TestServer::start();
    let (client, writer) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 0 }]);
    lock(&client);
    let limited = DocBuf::build(|w| {
        w.put_all(insert(1).as_doc());
        w.put("maxTimeMS", 1_000);
    });
    writer.send(&limited);
    assert!(writer.receive_within(Duration::from_millis(20)).is_none());
    test.clock.advance(Duration::from_secs(2));
    assert_eq!(code_of(&writer.receive().unwrap()), 50);
    unlock(&client);
    assert_eq!(client.all_ids("c"), [0]);
}
