//! Data several times larger than the cache. An operation that misses the cache waits alone. While the test
//! blocks the read of one block, all other operations on the same worker continue. While it blocks a write, the
//! other worker continues.

use crate::cold_disk::ColdEngine;
use crate::common::{Client, PATIENCE, TestServer, at, code_of, first_batch, number, show, until};
use kauri_base::{Access, RecordId};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_storage::{StorageEngine, StorageError, WriteUnit};
use std::time::{Duration, Instant};

/// Some 16 MB, eight times the cache.
const DOCS: i32 = 4_000;
/// Documents in separate blocks, none of which was read since it was written.
const X: i32 = 500;
const Y: i32 = 1_500;
const Z: i32 = 2_500;

/// A text that occurs once in the log file.
fn marker(collection: &str, id: i32) -> String {
    format!("<{collection}:{id:06}>")
}

fn document(collection: &str, id: i32) -> DocBuf {
    let filler = "x".repeat(4_000);
    doc! { "_id" => id, "n" => id, "marker" => marker(collection, id), "filler" => filler }
}

fn load(client: &Client, collection: &str, ids: std::ops::Range<i32>) {
    for first in ids.clone().step_by(500) {
        let last = (first + 500).min(ids.end);
        client.insert(collection, (first..last).map(|id| document(collection, id)));
    }
}

fn find(id: i32) -> DocBuf {
    doc! { "find" => "c", "filter" => doc! { "_id" => id } }
}

fn update(id: i32) -> DocBuf {
    let set = doc! { "$set" => doc! { "changed" => true } };
    doc! { "update" => "c", "updates" => array![doc! { "q" => doc! { "_id" => id }, "u" => set }] }
}

/// A server whose collections `other` and `c` are cold, except for the end of `c`.
pub struct Cold {
    pub test: TestServer,
    pub disk: ColdEngine,
}

impl Cold {
    pub fn start(parameters: &[(&str, &'static str)]) -> Cold {
        let disk = ColdEngine::open();
        let test = TestServer::start_on(disk.engine.clone(), 1, parameters);
        let client = test.client();
        load(&client, "other", 0..600);
        load(&client, "c", 0..DOCS);
        disk.wait_for_eviction();
        Cold { test, disk }
    }

    /// The position in the log file of document `id` of `c`, which was written once.
    pub fn place_of(&self, id: i32) -> u64 {
        self.disk.place_of(marker("c", id).as_bytes())
    }

    /// Sends a command that reads this position, and returns when the read waits.
    pub fn send_and_miss(&self, command: &DocBuf, place: u64) -> Client {
        self.disk.gate.hold(place);
        let client = self.test.client();
        client.send(command);
        until("the place is read", || self.disk.gate.arrivals(place) > 0);
        client
    }
}

/// The first document of a find's reply has this `_id`.
#[track_caller]
fn found(reply: &DocBuf, id: i32) {
    let batch = first_batch(reply);
    assert_eq!(batch.first().map(|d| number(d, "_id")), Some(i64::from(id)), "{}", show(reply));
}

/// Reads all of the other collection, which is larger than the cache.
fn count_other(client: &Client) {
    let sum = doc! { "_id" => Value::Null, "n" => doc! { "$sum" => 1 } };
    let reply = client.ok(doc! { "aggregate" => "other", "cursor" => doc! {},
    "pipeline" => array![doc! { "$group" => sum }] });
    assert_eq!(number(&first_batch(&reply)[0], "n"), 600);
}

/// Operations of other clients, each run to completion.
fn others_go_on(client: &Client, round: i32) {
    let hot = DOCS - 1;
    found(&client.ok(find(hot)), hot);
    assert_eq!(number(&client.ok(update(hot)), "n"), 1);
    load(client, "c", 10_000 + 10 * round..10_003 + 10 * round);
    client.ok(doc! { "findAndModify" => "c", "query" => doc! { "_id" => 10_000 + 10 * round },
    "remove" => true });
    // Cold reads and updates of other documents.
    found(&client.ok(find(Y + 20 * round)), Y + 20 * round);
    assert_eq!(number(&client.ok(update(Z + 20 * round)), "n"), 1);
    // Scans of another cold collection, and its definition.
    let name = format!("n_{round}");
    client.ok(doc! { "createIndexes" => "other", "indexes" => array![
        doc! { "key" => doc! { name.as_str() => 1 }, "name" => name.as_str() }
    ] });
    count_other(client);
    client.ok(doc! { "create" => "new" });
    client.admin().ok(doc! { "renameCollection" => "test.new", "to" => "test.newer" });
    client.ok(doc! { "collMod" => "newer", "validator" => doc! { "a" => 1 } });
    client.ok(doc! { "drop" => "newer" });
    client.ok(doc! { "dropIndexes" => "other", "index" => name.as_str() });
}

/// Commands that read document `x`, by `_id` or by a scan, in a single or a batch operation.
fn commands(x: i32, which: usize) -> Option<DocBuf> {
    let by_n = doc! { "n" => x };
    let set = doc! { "$set" => doc! { "touched" => 1 } };
    let met = doc! { "from" => "other", "localField" => "n", "foreignField" => "_id", "as" => "m" };
    Some(match which {
        0 => find(x),
        1 => doc! { "find" => "c", "filter" => by_n, "limit" => 1 },
        2 => doc! { "count" => "c", "query" => by_n },
        3 => doc! { "distinct" => "c", "key" => "n", "query" => by_n },
        4 => doc! { "aggregate" => "c", "cursor" => doc! {}, "pipeline" => array![
            doc! { "$match" => by_n }, doc! { "$lookup" => met }
        ] },
        5 => update(x),
        6 => doc! { "update" => "c", "updates" => array![
            doc! { "q" => by_n, "u" => set, "multi" => true }
        ] },
        7 => doc! { "findAndModify" => "c", "query" => doc! { "_id" => x }, "update" => set },
        8 => doc! { "delete" => "c", "deletes" => array![
            doc! { "q" => doc! { "_id" => x }, "limit" => 1 }
        ] },
        9 => doc! { "delete" => "c", "deletes" => array![doc! { "q" => by_n, "limit" => 0 }] },
        10 => doc! { "explain" => doc! { "find" => "c", "filter" => by_n } },
        11 => doc! { "createIndexes" => "c", "indexes" => array![
            doc! { "key" => doc! { "touched" => 1 }, "name" => "touched" }
        ] },
        12 => doc! { "validate" => "c" },
        _ => return None,
    })
}

#[test]
fn a_cache_miss_blocks_only_its_own_operation() {
    let cold = Cold::start(&[]);
    let other = cold.test.client();
    let rounds = (0..).map(|round| (X + 40 * round as i32, round));
    let rounds = rounds.map_while(|(x, round)| Some((x, commands(x, round)?)));
    // Before the documents are rewritten elsewhere.
    let rounds: Vec<_> = rounds.map(|(x, command)| (cold.place_of(x), command)).collect();
    for (round, (place, command)) in rounds.iter().enumerate() {
        let waiting = cold.send_and_miss(command, *place);
        others_go_on(&other, round as i32);
        assert!(waiting.receive_within(Duration::ZERO).is_none(), "{}", show(command));
        cold.disk.gate.release(*place);
        let reply = waiting.receive().unwrap();
        assert_eq!(code_of(&reply), 0, "{} -> {}", show(command), show(&reply));
        // The blocks that a scan has prefetched are evicted before the next command.
        count_other(&other);
        cold.disk.wait_for_eviction();
    }
    assert_eq!(rounds.len(), 13);
    other.validate("c");
}

#[test]
fn concurrent_misses_of_a_block_share_one_read() {
    let cold = Cold::start(&[]);
    let place = cold.place_of(X);
    let first = cold.send_and_miss(&find(X), place);
    let others: Vec<_> = (0..50).map(|_| cold.test.client()).collect();
    let misses = cold.disk.cache("misses");
    others.iter().for_each(|client| client.send(&find(X)));
    until("all have missed", || cold.disk.cache("misses") >= misses + 50);
    // Another client's miss does not queue behind these.
    found(&cold.test.client().ok(find(Y)), Y);
    cold.disk.gate.release(place);
    for client in others.iter().chain([&first]) {
        found(&client.receive().unwrap(), X);
    }
    assert_eq!(cold.disk.gate.arrivals(place), 1);
}

/// The record may be evicted after its document was read and before the commit.
#[test]
fn a_commit_does_not_wait_for_evicted_records() {
    let cold = Cold::start(&[]);
    let (place, engine) = (cold.place_of(X), &cold.disk.engine);
    let id = cold.test.server.catalog.collection("test.c").unwrap().id;
    let store = engine.record_store(id).unwrap();
    let mut ru = engine.recovery_unit();
    let mut read = |record| loop {
        ru.enter();
        let found = store.get(&*ru, record).unwrap();
        let found = found.map(|found| found.map(|r| (r.version, r.doc.to_buf())));
        ru.leave();
        match found {
            Access::Ready(found) => return found.unwrap(),
            Access::WouldBlock(ticket) => ticket.wait().unwrap(),
        }
    };
    let record = (1..).map(RecordId).find(|record| number(&read(*record).1, "_id") == i64::from(X));
    let record = record.unwrap();
    let (seen, doc) = read(record);
    let commit = || {
        let mut unit = WriteUnit::new();
        unit.update(id, record, seen, doc.as_bytes().to_vec());
        engine.commit(&mut unit).map(drop)
    };
    // Other data has taken the memory.
    cold.test.client().ok(doc! { "count" => "c", "query" => doc! { "n" => -1 } });
    cold.disk.wait_for_eviction();
    cold.disk.gate.hold(place);
    assert_eq!(commit(), Err(StorageError::WriteConflict));
    until("its block is being read", || cold.disk.gate.arrivals(place) > 0);
    cold.disk.gate.release(place);
    assert_eq!(read(record).0, seen);
    assert_eq!(commit(), Ok(()));
}

/// The catalog's own documents are cold, too.
#[test]
fn a_cold_definition_blocks_only_its_own_operation() {
    let cold = Cold::start(&[]);
    let place = cold.disk.place_of(b"ns\0\x0b\0\0\0test.other\0");
    let set = doc! { "collMod" => "other", "validationLevel" => "moderate" };
    let waiting = cold.send_and_miss(&set, place);
    let client = cold.test.client();
    let hot = DOCS - 1;
    found(&client.ok(find(hot)), hot);
    found(&client.ok(find(Y)), Y);
    assert_eq!(number(&client.ok(update(Z)), "n"), 1);
    assert!(waiting.receive_within(Duration::ZERO).is_none());
    cold.disk.gate.release(place);
    assert_eq!(code_of(&waiting.receive().unwrap()), 0);
}

/// Kills the only operation on this collection.
fn kill_write(test: &TestServer, ns: &str) {
    let other = test.client().admin();
    let running = other.ok(doc! { "currentOp" => 1, "ns" => ns });
    let Value::Array(running) = running.as_doc().value("inprog") else { panic!("no list") };
    let opid = number(&at(&running.into_buf(), "0"), "opid");
    other.ok(doc! { "killOp" => 1, "op" => opid });
}

/// An insert into a full capped collection reads the oldest document.
#[test]
fn a_killed_insert_fails_completely() {
    let disk = ColdEngine::open();
    let test = TestServer::start_on(disk.engine.clone(), 1, &[]);
    let client = test.client();
    client.ok(doc! { "create" => "log", "capped" => true, "size" => 1_000_000, "max" => 3 });
    load(&client, "log", 0..3);
    load(&client, "c", 0..DOCS / 2);
    disk.wait_for_eviction();
    let place = disk.place_of(marker("log", 0).as_bytes());
    disk.gate.hold(place);
    let docs = array![document("log", 3), document("log", 4)];
    client.send(&doc! { "insert" => "log", "documents" => docs });
    until("the place is read", || disk.gate.arrivals(place) > 0);
    kill_write(&test, "test.log");
    disk.gate.release(place);
    let reply = client.receive().unwrap();
    assert_eq!(code_of(&reply), 11601, "{}", show(&reply));
    assert_eq!(test.client().all_ids("log"), [0, 1, 2]);
}

/// The definition of a new collection increments the catalog's counters.
#[test]
fn an_insert_killed_before_its_collection_exists_fails_completely() {
    let cold = Cold::start(&[]);
    let counters = *cold.disk.places_of(b"counters\0").last().unwrap();
    let waiting = cold.send_and_miss(
        &doc! { "insert" => "new", "documents" => array![document("new", 1)] },
        counters,
    );
    kill_write(&cold.test, "test.new");
    cold.disk.gate.release(counters);
    let reply = waiting.receive().unwrap();
    assert_eq!(code_of(&reply), 11601, "{}", show(&reply));
    assert!(cold.test.server.catalog.collection("test.new").is_none());
}

/// The kernel may block a write, for memory or for the disk.
#[test]
fn a_blocked_write_does_not_block_another_worker() {
    let disk = ColdEngine::open();
    let test = TestServer::start_on(disk.engine.clone(), 2, &[]);
    let clients: Vec<_> = (0..4).map(|_| test.client()).collect();
    clients[0].insert("c", [doc! { "_id" => 1 }]);
    let id = test.server.catalog.collection("test.c").unwrap().id;
    let store = disk.engine.record_store(id).unwrap();
    let insert = |id: i32| doc! { "insert" => "c", "documents" => array![doc! { "_id" => id }] };
    disk.gate.hold_stores(true);
    clients[0].send(&insert(2));
    until("it is being written", || disk.gate.waiting_stores() > 0);
    clients[1].send(&insert(3));
    until("it is committed", || store.stats().unwrap().records == 3);
    // One of these is on the worker that writes.
    let mut replies = [None, None];
    clients[2..].iter().for_each(|client| client.send(&find(1)));
    let deadline = Instant::now() + PATIENCE;
    while replies.iter().all(Option::is_none) && Instant::now() < deadline {
        for (client, reply) in clients[2..].iter().zip(&mut replies) {
            *reply = reply.take().or_else(|| client.receive_within(Duration::ZERO));
        }
    }
    let waits = |client: &Client| client.receive_within(Duration::ZERO).is_none();
    let (first, second) = (waits(&clients[0]), waits(&clients[1]));
    // Released before any assertion may fail: otherwise the workers could not end.
    disk.gate.hold_stores(false);
    assert!(replies.iter().any(Option::is_some), "both workers wait");
    assert!(first && second, "nothing is acknowledged");
    for client in &clients[..2] {
        assert_eq!(number(&client.receive().unwrap(), "n"), 1);
    }
    for (client, reply) in clients[2..].iter().zip(replies) {
        found(&reply.or_else(|| client.receive()).unwrap(), 1);
    }
}
