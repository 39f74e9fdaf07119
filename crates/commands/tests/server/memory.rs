//! Little memory: an operation that needs more waits when memory is full, then fails. Replies are small.

use crate::cold_disk::ColdEngine;
use crate::common::{TestServer, at, cursor_id, first_batch, number, until, write_errors};
use kauri_bson::{DocBuf, array, doc};
use kauri_storage::{MemoryRoom, StorageEngine};
use std::time::Duration;

const EXCEEDED_MEMORY_LIMIT: i64 = 146;

fn insert(id: i32) -> DocBuf {
    doc! { "insert" => "c", "documents" => array![doc! { "_id" => id }] }
}

#[test]
fn a_write_to_full_memory_waits_a_second_for_room() {
    let disk = ColdEngine::open();
    let test = TestServer::start_on(disk.engine.clone(), 1, &[]);
    let fill = |full| {
        disk.engine.set_memory(MemoryRoom {
            cache_bytes: 1 << 20,
            scarcity: 0.0,
            full,
            free_bytes: u64::MAX,
        });
    };
    let client = test.client();
    let waits = || {
        let metrics = at(&client.ok(doc! { "serverStatus" => 1 }), "metrics");
        number(&at(&metrics, "operation"), "waitsForMemory")
    };
    client.ok(insert(1));
    fill(true);
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a" };
    let commands = [
        insert(2),
        doc! { "createIndexes" => "c", "indexes" => array![index] },
        doc! { "create" => "d" },
    ];
    let send = |command| {
        let waiting = test.client();
        let before = waits();
        waiting.send(command);
        until("it waits", || waits() > before);
        waiting
    };
    let waiting: Vec<_> = commands.iter().map(send).collect();
    // An operation that frees memory does not wait.
    client.ok(doc! { "delete" => "c", "deletes" => array![
        doc! { "q" => doc! { "_id" => 1 }, "limit" => 1 }
    ] });
    fill(false);
    for waiting in waiting {
        assert_eq!(number(&waiting.receive().expect("a reply"), "ok"), 1);
    }
    assert_eq!(client.all_ids("c"), [2]);

    fill(true);
    let waiting = send(&insert(3));
    test.clock.advance(Duration::from_millis(1_100));
    let reply = waiting.receive().expect("a reply");
    let refused = [(0, EXCEEDED_MEMORY_LIMIT)];
    assert_eq!((number(&reply, "n"), &write_errors(&reply)[..]), (0, &refused[..]));
    fill(false);
    client.ok(insert(3));
}

#[test]
fn little_memory_limits_batches_but_not_single_batches() {
    let disk = ColdEngine::open();
    // One thirty-second of the memory is 2 MB.
    let test = TestServer::start_within(64 << 20, disk.engine.clone(), 1, &[]);
    let client = test.client();
    let bytes = 300_000;
    for id in 0..10 {
        client.insert("c", [doc! { "_id" => id, "x" => "x".repeat(bytes) }]);
    }
    let reply = client.ok(doc! { "find" => "c" });
    assert_eq!(first_batch(&reply).len(), 6);
    let more = client.ok(doc! { "getMore" => cursor_id(&reply), "collection" => "c" });
    let cursor = at(&more, "cursor");
    let batch = cursor.as_doc().value("nextBatch");
    assert_eq!(batch.as_array().map(|docs| docs.iter().count()), Some(4));
    assert_eq!(number(&cursor, "id"), 0);
    let only = client.ok(doc! { "find" => "c", "singleBatch" => true });
    assert_eq!(first_batch(&only).len(), 10);
}
