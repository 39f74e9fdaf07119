//! `dbHash`: its hashes, its fields, the single snapshot of all collections, and its interruption.

use crate::common::{Client, TestServer, at, code_of, number, show, text, until};
use kauri_base::Clock;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_catalog::{CollectionOptions, Namespace};
use kauri_storage::EphemeralEngine;
use md5::{Digest, Md5};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn hash(client: &Client) -> DocBuf {
    client.ok(doc! { "dbHash" => 1 })
}

fn names(reply: &DocBuf, field: &str) -> Vec<String> {
    at(reply, field).as_doc().iter().map(|e| e.key().to_owned()).collect()
}

fn sum_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut sum = Md5::new();
    parts.into_iter().for_each(|part| sum.update(part));
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of the documents that `fill` inserts, computed by another program.
const SUM_OF_A: &str = "ee50c3c0893693f5249f943db4654be9";
const SUM_OF_C: &str = "fc182fb4330f7a9742c5fd29718ebc05";
const SUM_OF_NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

fn fill(client: &Client) {
    // Not in the order of `_id`.
    client.insert("a", [doc! { "_id" => 2, "a" => "y" }, doc! { "_id" => 1, "a" => "x" }]);
    client.ok(doc! { "create" => "c", "capped" => true, "size" => 4096 });
    client.insert("c", [doc! { "_id" => 7 }]);
    client.ok(doc! { "create" => "e" });
}

#[test]
fn hashes_cover_the_documents_in_id_order() {
    let test = TestServer::start();
    let client = test.client();
    fill(&client);
    let reply = hash(&client);
    let sums = at(&reply, "collections");
    let sum = |name: &str| text(&sums, name);
    assert_eq!([sum("a"), sum("c"), sum("e")], [SUM_OF_A, SUM_OF_C, SUM_OF_NOTHING]);
    assert_eq!(text(&reply, "md5"), "65b07a4c8423689280d3e8b06afe7c88");
    assert_eq!(text(&reply, "host"), "test:1");
    assert_eq!(reply.as_doc().value("capped"), array!["c"]);
    assert_eq!(names(&reply, "uuids"), ["a", "c", "e"]);
    let listed = client.ok(doc! { "listCollections" => 1, "filter" => doc! { "name" => "a" } });
    let listed = at(&crate::common::first_batch(&listed)[0], "info");
    assert_eq!(at(&reply, "uuids").as_doc().value("a"), listed.as_doc().value("uuid"));
    assert_eq!(number(&reply, "timeMillis"), 0);
    // The order of insertion has no effect on the hash; another document has.
    let other = client.on("other");
    other.insert("a", [doc! { "_id" => 1, "a" => "x" }, doc! { "_id" => 2, "a" => "y" }]);
    assert_eq!(text(&at(&hash(&other), "collections"), "a"), SUM_OF_A);
    other.insert("a", [doc! { "_id" => 3 }]);
    assert_ne!(text(&at(&hash(&other), "collections"), "a"), SUM_OF_A);
}

#[test]
fn collections_are_chosen_by_name_and_by_kind() {
    let test = TestServer::start();
    let client = test.client();
    fill(&client);
    let temporary = CollectionOptions { temp: true, ..CollectionOptions::default() };
    let ns = Namespace::new("test", "t").unwrap();
    let mut scope = test.server.backend.scope();
    test.server.catalog.create_collection(&mut scope, &ns, temporary, None).unwrap();
    client.ok(doc! { "create" => "v", "viewOn" => "a", "pipeline" => array![] });
    assert_eq!(names(&hash(&client), "collections"), ["a", "c", "e", "system.views", "t"]);
    let view = doc! { "_id" => "test.v", "viewOn" => "a", "pipeline" => array![] };
    assert_eq!(
        text(&at(&hash(&client), "collections"), "system.views"),
        sum_of([view.as_doc().as_bytes()])
    );
    for no_names in [Value::Int32(1), "a".into(), doc! { "0" => "a" }.into(), Value::Null] {
        let all = client.ok(doc! { "dbHash" => 1, "collections" => no_names });
        assert_eq!(names(&all, "collections"), ["a", "c", "e", "system.views", "t"]);
    }
    let some = client.ok(doc! { "dbHash" => 1, "collections" => array!["a", "absent"] });
    assert_eq!(names(&some, "collections"), ["a"]);
    assert_eq!(
        (names(&some, "uuids"), some.as_doc().value("capped")),
        (vec!["a".to_owned()], array![])
    );
    assert_eq!(text(&some, "md5"), sum_of([SUM_OF_A.as_bytes()]));
    let all =
        client.ok(doc! { "dbhash" => 1, "collections" => array![], "skipTempCollections" => true });
    assert_eq!(names(&all, "collections"), ["a", "c", "e", "system.views"]);
    let refused = client.run(&doc! { "dbHash" => 1, "collections" => array!["a", 1] });
    assert_eq!(code_of(&refused), 2);
    assert_eq!(text(&refused, "errmsg"), "collections entries have to be strings");
    let nothing = hash(&client.on("absent"));
    assert_eq!(
        (names(&nothing, "collections").len(), text(&nothing, "md5").as_str()),
        (0, SUM_OF_NOTHING)
    );
    // `local` differs between servers.
    client.on("local").insert("x", [doc! { "_id" => 1 }]);
    assert!(names(&hash(&client.on("local")), "collections").is_empty());
}

#[test]
fn all_collections_are_read_in_one_snapshot() {
    const BEFORE: i32 = 3000;
    let test = Arc::new(TestServer::start());
    let client = test.client();
    client.insert("a", (0..BEFORE).map(|n| doc! { "_id" => n }));
    client.insert("b", (0..BEFORE).map(|n| doc! { "_id" => n }));
    let (stop, writer) = (Arc::new(AtomicBool::new(false)), test.client());
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let mut next = BEFORE;
        while !stopped.load(Ordering::Acquire) {
            writer.insert("a", [doc! { "_id" => next }]);
            writer.insert("b", [doc! { "_id" => next }]);
            next += 1;
        }
        next
    });
    let replies: Vec<DocBuf> = (0..40).map(|_| hash(&client)).collect();
    stop.store(true, Ordering::Release);
    let end = thread.join().unwrap();
    let (mut counts, mut sum) = (HashMap::new(), Md5::new());
    for count in 0..=end {
        let text: String = sum.clone().finalize().iter().map(|b| format!("{b:02x}")).collect();
        counts.insert(text, count);
        sum.update(doc! { "_id" => count }.as_doc().as_bytes());
    }
    let mut seen = Vec::new();
    for reply in &replies {
        let sums = at(reply, "collections");
        let count = |name: &str| counts[&text(&sums, name)];
        let ahead = count("a") - count("b");
        assert!((0..=1).contains(&ahead), "a is {ahead} documents ahead of b");
        seen.push(count("a"));
    }
    assert!(seen[0] < seen[seen.len() - 1], "the writer wrote during the hashes");
}

#[test]
fn a_definition_change_restarts_the_hash() {
    const DOCUMENTS: i32 = 16;
    // One worker: the hash yields to other operations at each read of the clock.
    let test = TestServer::start_on(Arc::new(EphemeralEngine::new()), 1, &[]);
    let (client, other) = (test.client(), test.client());
    let large = "x".repeat(1 << 20);
    client.insert("c", (0..DOCUMENTS).map(|n| doc! { "_id" => n, "large" => large.as_str() }));
    let expected = text(&hash(&client), "md5");
    test.clock.pass_at_looks(Duration::from_millis(6));
    for change in [
        doc! { "collMod" => "c", "validationLevel" => "off" },
        doc! { "createIndexes" => "c", "indexes" => array![
            doc! { "key" => doc! { "a" => 1 }, "name" => "a" }
        ] },
    ] {
        client.send(&doc! { "dbHash" => 1 });
        let mut running = 0;
        until("it runs", || {
            running = 0;
            test.server.operations.for_each(|_| running += 1);
            running > 0
        });
        other.ok(change.clone());
        let reply = client.receive().unwrap();
        assert_eq!(code_of(&reply), 0, "{} -> {}", show(&change), show(&reply));
        assert_eq!(text(&reply, "md5"), expected);
    }
}

#[test]
fn an_interrupt_ends_the_hash_within_a_large_document() {
    let test = TestServer::start();
    let client = test.client();
    let large = "x".repeat(12 << 20);
    client.insert("c", (0..3).map(|n| doc! { "_id" => n, "large" => large.as_str() }));
    // Time advances by reads of the clock, so the test counts these reads.
    test.clock.pass_at_looks(Duration::from_micros(100));
    let start = test.clock.monotonic();
    let reply = client.run(&doc! { "dbHash" => 1, "maxTimeMS" => 10 });
    let taken = test.clock.monotonic() - start;
    assert_eq!(code_of(&reply), 50, "{}", show(&reply));
    assert!(taken < Duration::from_millis(30), "{taken:?}");
    assert!(reply.as_doc().value("md5") == Value::Missing);
}
