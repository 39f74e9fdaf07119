//! Server status, operation counters and statistics.

use crate::common::{
    Client, START_MS, TestServer, at, code_of, first_batch, number, show, text, until,
};
use kauri_bson::{DocBuf, Value, array, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

fn status(client: &Client) -> DocBuf {
    client.ok(doc! { "serverStatus" => 1 })
}

#[test]
fn operations_and_documents_are_counted() {
    let test = TestServer::start();
    let client = test.client();
    let counted = |section: &str, fields: &[&str]| -> Vec<i64> {
        let mut doc = status(&client);
        for name in section.split('.') {
            doc = at(&doc, name);
        }
        fields.iter().map(|f| number(&doc, f)).collect()
    };
    let kinds = ["insert", "query", "update", "delete", "getmore"];
    let before = counted("opcounters", &kinds);
    client.insert("c", (0..300).map(|n| doc! { "_id" => n, "a" => n }));
    let find = client.ok(doc! { "find" => "c", "batchSize" => 10 });
    let id = number(&at(&find, "cursor"), "id");
    client.ok(doc! { "getMore" => id, "collection" => "c", "batchSize" => 5 });
    let set = doc! { "$set" => doc! { "b" => 1 } };
    let low = || doc! { "_id" => doc! { "$lt" => 7 } };
    client.ok(doc! { "update" => "c", "updates" => array![
        doc! { "q" => low(), "u" => set.clone(), "multi" => true }, doc! { "q" => low(), "u" => set }
    ] });
    client.ok(doc! { "delete" => "c", "deletes" => array![doc! { "q" => low(), "limit" => 0 }] });
    let after = counted("opcounters", &kinds);
    let more: Vec<i64> = before.iter().zip(&after).map(|(b, a)| a - b).collect();
    assert_eq!(more, [300, 1, 2, 1, 1]);
    let documents = counted("metrics.document", &["inserted", "updated", "deleted", "returned"]);
    assert_eq!(documents, [300, 7, 7, 15]);
    assert_eq!(counted("metrics.cursor.open", &["total"]), [1]);
    client.ok(doc! { "killCursors" => "c", "cursors" => array![id] });
    assert_eq!(counted("metrics.cursor.open", &["total"]), [0]);
}

#[test]
fn examined_keys_and_documents_are_counted_for_the_server() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..10).map(|n| doc! { "_id" => n, "a" => n, "b" => n }));
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    let counts = || {
        let metrics = at(&status(&client), "metrics");
        let (executor, operation) = (at(&metrics, "queryExecutor"), at(&metrics, "operation"));
        [
            number(&executor, "scanned"),
            number(&executor, "scannedObjects"),
            number(&operation, "scanAndOrder"),
        ]
    };
    let id = |n: i32| doc! { "_id" => n };
    let low = || doc! { "a" => doc! { "$lt" => 3 } };
    let set = || doc! { "$set" => doc! { "c" => 1 } };
    let update = |q: DocBuf| {
        let statement = doc! { "q" => q, "u" => set(), "multi" => false };
        doc! { "update" => "c", "updates" => array![statement] }
    };
    let delete = |q: DocBuf| {
        doc! { "delete" => "c", "deletes" => array![doc! { "q" => q, "limit" => 1 }] }
    };
    let sort = doc! { "b" => 1 };
    let stages = array![doc! { "$match" => low() }, doc! { "$sort" => sort.clone() }];
    let commands = [
        (doc! { "find" => "c" }, [0, 10, 0]),
        (doc! { "find" => "c", "filter" => low() }, [3, 3, 0]),
        (doc! { "find" => "c", "filter" => low(), "sort" => sort }, [3, 3, 1]),
        (doc! { "aggregate" => "c", "pipeline" => stages, "cursor" => doc! {} }, [3, 3, 1]),
        (doc! { "distinct" => "c", "key" => "b" }, [0, 10, 0]),
        (doc! { "count" => "c", "query" => low() }, [3, 0, 0]),
        // These two use the express path, the next two do not.
        (doc! { "find" => "c", "filter" => id(1) }, [1, 1, 0]),
        (update(id(1)), [1, 1, 0]),
        (doc! { "find" => "c", "filter" => id(1), "comment" => 1 }, [1, 1, 0]),
        (update(doc! { "a" => 1 }), [1, 1, 0]),
        (doc! { "findAndModify" => "c", "query" => id(1), "update" => set() }, [1, 1, 0]),
        (delete(id(1)), [1, 1, 0]),
        (delete(doc! { "a" => 2 }), [1, 1, 0]),
        (delete(id(1)), [0, 0, 0]),
    ];
    let mut before = counts();
    assert_eq!(before, [0; 3]);
    let mut check = |what: &DocBuf, expected: [i64; 3]| {
        let after = counts();
        let more = [0, 1, 2].map(|at| after[at] - before[at]);
        assert_eq!(more, expected, "{}", show(what));
        before = after;
    };
    for (command, expected) in commands {
        client.ok(command.clone());
        check(&command, expected);
    }
    // Each batch counts separately.
    let opened = doc! { "find" => "c", "batchSize" => 2 };
    let cursor = number(&at(&client.ok(opened.clone()), "cursor"), "id");
    check(&opened, [0, 2, 0]);
    let more = doc! { "getMore" => cursor, "collection" => "c", "batchSize" => 3 };
    client.ok(more.clone());
    check(&more, [0, 3, 0]);
}

/// The counts of a collection in `top`.
fn top_counts<const N: usize>(client: &Client, name: &str, entries: [&str; N]) -> [i64; N] {
    let top = client.admin().ok(doc! { "top" => 1 });
    let all = at(&at(&top, "totals"), &format!("test.{name}"));
    entries.map(|entry| number(&at(&all, entry), "count"))
}

#[test]
fn operations_are_counted_by_collection() {
    let test = TestServer::start();
    let client = test.client();
    let entries =
        ["queries", "getmore", "insert", "update", "remove", "commands", "readLock", "writeLock"];
    let counts = |name: &str| top_counts(&client, name, entries);
    let id = |n: i32| doc! { "_id" => n };
    // One document takes the express path, several take the ordinary one.
    client.insert("c", [id(-1)]);
    client.insert("c", (0..50).map(id));
    assert_eq!(counts("c"), [0, 0, 2, 0, 0, 0, 0, 2]);
    client.ok(doc! { "find" => "c", "filter" => id(3) });
    let find = client.ok(doc! { "find" => "c", "batchSize" => 10 });
    let cursor = number(&at(&find, "cursor"), "id");
    client.ok(doc! { "getMore" => cursor, "collection" => "c" });
    assert_eq!(counts("c"), [2, 1, 2, 0, 0, 0, 3, 2]);
    let set = || doc! { "$set" => doc! { "b" => 1 } };
    let updates = |filter: DocBuf| array![doc! { "q" => filter, "u" => set() }];
    client.ok(doc! { "update" => "c", "updates" => updates(id(3)) });
    client.ok(doc! { "update" => "c", "updates" => updates(doc! { "a" => 1 }) });
    for (filter, limit) in [(id(3), 1), (doc! { "a" => 1 }, 0)] {
        let deletes = array![doc! { "q" => filter, "limit" => limit }];
        client.ok(doc! { "delete" => "c", "deletes" => deletes });
    }
    assert_eq!(counts("c"), [2, 1, 2, 2, 2, 0, 3, 6]);
    client.ok(doc! { "count" => "c" });
    client.ok(doc! { "findAndModify" => "c", "query" => id(4), "update" => set() });
    let index = doc! { "key" => doc! { "b" => 1 }, "name" => "b_1" };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    assert_eq!(counts("c"), [2, 1, 2, 2, 2, 3, 4, 7]);
    assert_eq!(top_counts(&client, "c", ["total"]), [12]);
    // A new definition or name keeps the counts. Other collections' operations and those without an effect do
    // not count.
    client.admin().ok(doc! { "renameCollection" => "test.c", "to" => "test.d" });
    client.ok(doc! { "create" => "c" });
    client.ok(doc! { "find" => "e" });
    assert_eq!(counts("d"), [2, 1, 2, 2, 2, 3, 4, 7]);
    assert_eq!(counts("c"), [0, 0, 0, 0, 0, 1, 0, 0]);
    client.ok(doc! { "create" => "v", "viewOn" => "d", "pipeline" => array![] });
    client.ok(doc! { "find" => "v" });
    assert_eq!(counts("v"), [1, 0, 0, 0, 0, 1, 1, 0]);
    assert_eq!(counts("d"), [2, 1, 2, 2, 2, 3, 4, 7]);
}

#[test]
fn latencies_and_scans_are_counted_by_collection_and_for_the_server() {
    let test = TestServer::start();
    let client = test.client();
    let stats = |name: &str| {
        let wanted = doc! { "latencyStats" => doc! { "histograms" => true },
        "queryExecStats" => doc! {} };
        let pipeline = array![doc! { "$collStats" => wanted }];
        let cursor = DocBuf::new();
        let aggregate = doc! { "aggregate" => name, "pipeline" => pipeline, "cursor" => cursor };
        first_batch(&client.ok(aggregate)).remove(0)
    };
    let of = |latencies: &DocBuf, class: &str| {
        let class = at(latencies, class);
        let Value::Array(histogram) = class.as_doc().value("histogram") else { panic!("none") };
        let counts = histogram.as_doc().iter().map(|entry| {
            let entry = entry.as_doc().unwrap().to_buf();
            assert!(number(&entry, "micros") >= 0);
            number(&entry, "count")
        });
        (number(&class, "ops"), counts.sum::<i64>())
    };
    let server = || {
        at(
            &client.ok(doc! { "serverStatus" => 1,
            "opLatencies" => doc! { "histograms" => true } }),
            "opLatencies",
        )
    };
    let scans = |doc: &DocBuf| {
        let scans = at(&at(doc, "queryExecStats"), "collectionScans");
        ["total", "nonTailable"].map(|name| number(&scans, name))
    };
    let before = server();
    client.ok(doc! { "create" => "c", "capped" => true, "size" => 100_000 });
    client.insert("c", [doc! { "_id" => 1 }]);
    client.insert("c", [doc! { "_id" => 2 }, doc! { "_id" => 3 }]);
    client.ok(doc! { "find" => "c", "filter" => doc! { "_id" => 1 } });
    assert_eq!(scans(&stats("c")), [0, 0], "by the index");
    client.ok(doc! { "find" => "c", "filter" => doc! { "a" => 1 } });
    client.ok(doc! { "find" => "c", "tailable" => true });
    let after = stats("c");
    assert_eq!(scans(&after), [2, 1]);
    // However long the operation is.
    client.insert("d", (0..20_000).map(|n| doc! { "_id" => n }));
    client.ok(doc! { "find" => "d", "batchSize" => 100_000 });
    assert_eq!(scans(&stats("d")), [1, 1]);
    let latencies = at(&after, "latencyStats");
    // Two reads of the statistics; the second had not ended.
    assert_eq!(of(&latencies, "reads"), (4, 4));
    assert_eq!(of(&latencies, "writes"), (2, 2));
    assert_eq!(of(&latencies, "commands"), (1, 1));
    assert_eq!(of(&latencies, "transactions"), (0, 0));
    let all = server();
    let grown = |class| of(&all, class).0 - of(&before, class).0;
    assert_eq!((grown("reads"), grown("writes")), (7, 3));
    // Commands without a collection count for the server: this one and the previous read.
    client.ok(doc! { "ping" => 1 });
    client.ok(doc! { "find" => "none" });
    let more = server();
    assert_eq!(of(&more, "commands").0 - of(&all, "commands").0, 2);
    assert_eq!(of(&more, "reads").0 - of(&all, "reads").0, 1);
    assert_eq!(of(&all, "reads").0, of(&all, "reads").1);
    let plain = at(&at(&status(&client), "opLatencies"), "reads");
    assert!(plain.as_doc().get("histogram").is_none() && number(&plain, "latency") > 0);
}

/// Hiding and unhiding an index are changes, too.
#[test]
fn index_use_counts_restart_when_the_index_changes() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..10).map(|n| doc! { "_id" => n, "a" => n }));
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    let uses = || {
        let pipeline = array![
            doc! { "$indexStats" => doc! {} },
            doc! { "$match" => doc! { "name" => "a_1" } }
        ];
        let cursor = DocBuf::new();
        let reply =
            client.ok(doc! { "aggregate" => "c", "pipeline" => pipeline, "cursor" => cursor });
        number(&at(&first_batch(&reply).remove(0), "accesses"), "ops")
    };
    let find = || client.ok(doc! { "find" => "c", "filter" => doc! { "a" => 3 } });
    find();
    assert_eq!(uses(), 1);
    for hidden in [true, false] {
        let change = doc! { "name" => "a_1", "hidden" => hidden };
        client.ok(doc! { "collMod" => "c", "index" => change });
        assert_eq!(uses(), 0);
    }
    find();
    assert_eq!(uses(), 1);
}

#[test]
fn wrong_arguments_of_small_commands() {
    let test = TestServer::start();
    let client = test.client();
    let who = |user: Value<'static>| doc! { "hello" => 1, "saslSupportedMechs" => user };
    client.ok(who("admin.user".into()));
    client.ok(who(doc! { "user" => "u", "db" => "admin" }.into()));
    assert_eq!(client.fails(who("user".into())), 2);
    assert_eq!(client.fails(who(doc! { "db" => "admin" }.into())), 2);
    assert_eq!(client.fails(who(1.into())), 14);
    assert_eq!(client.fails(who(Value::Null)), 14);
    client.ok(doc! { "ping" => 1, "comment" => "a" });
    assert_eq!(client.fails(doc! { "ping" => 1, "a" => 1 }), 40415);
    assert_eq!(client.fails(doc! { "dataSize" => Value::Null }), 40414);
    client.admin().ok(doc! { "fsync" => 1, "lock" => true });
    client.admin().ok(doc! { "fsyncUnlock" => 1, "a" => 1 });
}

#[test]
fn compressed_messages_are_counted_in_both_sizes() {
    let test = TestServer::start();
    let (watcher, client) = (test.client(), test.client());
    let text = "a ".repeat(20_000);
    let insert =
        doc! { "insert" => "c", "documents" => array![doc! { "_id" => 1, "a" => text.as_str() }] };
    let request = client.message(&insert);
    let mut packed = Vec::new();
    kauri_wire::compress(&request, kauri_wire::Compressor::Zlib, &mut packed).unwrap();
    assert!(request.len() > 40_000 && packed.len() < 1000);
    // Each read of the status counts as well. The number of received bytes is the transport's.
    let network = || at(&status(&watcher), "network");
    let counts = || {
        let all = network();
        ["bytesIn", "bytesOut"].map(|name| number(&all, name))
    };
    let grown = |before: [i64; 2], after: [i64; 2]| [after[0] - before[0], after[1] - before[1]];
    let (before, between) = (counts(), counts());
    let look = grown(before, between);
    let length = |bytes: &[u8]| i32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let send = |request: &[u8]| {
        client.send_bytes(request);
        let reply = client.receive_bytes().unwrap();
        assert_eq!(
            (length(&reply), reply[12..16].to_vec()),
            (reply.len(), 2012i32.to_le_bytes().to_vec())
        );
        reply
    };
    let mut reply = send(&packed);
    let mut plain = Vec::new();
    let kauri_wire::Message::Compressed(inner) = kauri_wire::Message::parse(&reply).unwrap().1
    else {
        panic!("no compressed reply")
    };
    inner.decompress(&mut plain).unwrap();
    let more = grown(between, counts());
    let expected = [request.len(), plain.len()].map(|bytes| bytes as i64);
    assert_eq!(grown(look, more), expected);
    // A reply large enough for compression.
    packed.clear();
    let find = client.message(&doc! { "find" => "c" });
    kauri_wire::compress(&find, kauri_wire::Compressor::Zlib, &mut packed).unwrap();
    let before = counts();
    reply = send(&packed);
    assert!(reply.len() < 1000);
    assert!(grown(before, counts())[1] > 40_000);
    let zlib = at(&at(&network(), "compression"), "zlib");
    let side = |name: &str| ["bytesIn", "bytesOut"].map(|field| number(&at(&zlib, name), field));
    let (requests, replies) = (side("decompressor"), side("compressor"));
    assert_eq!(requests[1], (request.len() + find.len()) as i64);
    assert!(requests[0] < 2000 && replies[0] > 40_000 && replies[1] < 2000, "{zlib:?}");
    let snappy = at(&at(&network(), "compression"), "snappy");
    assert_eq!(number(&at(&snappy, "compressor"), "bytesIn"), 0);
}

#[test]
fn failures_are_counted_by_command() {
    let test = TestServer::start();
    let client = test.client();
    let of = |name: &str| {
        let metrics = at(&at(&at(&status(&client), "metrics"), "commands"), name);
        (number(&metrics, "total"), number(&metrics, "failed"))
    };
    client.ok(doc! { "count" => "c" });
    client.fails(doc! { "count" => "c", "nonsense" => 1 });
    client.fails(doc! { "count" => "" });
    assert_eq!(of("count"), (3, 2));
    client.fails(doc! { "nonsense" => 1 });
    let commands = at(&at(&status(&client), "metrics"), "commands");
    assert_eq!(number(&commands, "<UNKNOWN>"), 1);
    let asserts = at(&status(&client), "asserts");
    assert_eq!(number(&asserts, "user"), 3);
}

#[test]
fn sections_are_selected_by_name_and_time_is_reported() {
    let test = TestServer::start();
    let client = test.client();
    test.clock.advance(Duration::from_secs(90));
    let all = status(&client);
    assert_eq!(number(&all, "uptime"), 90);
    assert_eq!(all.as_doc().value("localTime"), Value::DateTime(START_MS + 90_000));
    for section in ["connections", "network", "opcounters", "mem", "metrics", "transportStages"] {
        at(&all, section);
        let without = client.ok(doc! { "serverStatus" => 1, section => 0 });
        assert!(without.as_doc().get(section).is_none(), "{section}");
        let only = client.ok(doc! { "serverStatus" => 1, "none" => 1, section => 1 });
        at(&only, section);
        assert!(only.as_doc().get("asserts").is_none(), "{section}");
    }
    let connections = at(&all, "connections");
    assert_eq!(number(&connections, "current"), 1);
    let others: Vec<Client> = (0..4).map(|_| test.client()).collect();
    others.iter().for_each(|c| drop(c.ok(doc! { "ping" => 1 })));
    assert_eq!(number(&at(&status(&client), "connections"), "current"), 5);
    drop(others);
    until("four connections gone", || number(&at(&status(&client), "connections"), "current") == 1);
}

/// A clock that advances, so that an operation yields at the end of its time slice.
struct PassingTime {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PassingTime {
    fn start(test: &TestServer) -> PassingTime {
        let over = Arc::new(AtomicBool::new(false));
        let (clock, ends) = (test.clock.clone(), over.clone());
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                clock.advance(Duration::from_millis(1));
                std::thread::yield_now();
            }
        });
        PassingTime { over, thread: Some(thread) }
    }
}

impl Drop for PassingTime {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|t| t.join().unwrap());
    }
}

#[test]
fn an_operation_is_listed_while_it_runs_and_can_be_killed() {
    let test = TestServer::start();
    let _time = PassingTime::start(&test);
    let (client, busy) = (test.client(), test.client());
    client.insert("c", (0..200).map(|n| doc! { "_id" => n }));
    // Runs for ever and yields.
    let product = |n: i32| {
        doc! { "$lookup" => doc! {
            "from" => "c", "pipeline" => Value::array([]), "as" => format!("x{n}").as_str(),
        } }
    };
    let unwind = |n: i32| doc! { "$unwind" => format!("$x{n}").as_str() };
    let stages = (0..4).flat_map(|n| [product(n), unwind(n)]);
    let pipeline = Value::array(stages.chain([doc! { "$count" => "n" }]).map(Value::from));
    let command = doc! {
        "aggregate" => "c", "pipeline" => pipeline, "cursor" => doc! {}, "comment" => "mine",
    };
    busy.send(&command);
    let mine = || {
        let reply = client.admin().ok(doc! { "currentOp" => 1, "command.comment" => "mine" });
        let listed = reply.as_doc().value("inprog");
        let first = listed.as_array().unwrap().iter().next();
        first.map(|e| e.as_doc().unwrap().to_buf())
    };
    until("listed", || mine().is_some());
    let listed = mine().unwrap();
    assert_eq!(text(&listed, "ns"), "test.c", "{}", show(&listed));
    assert_eq!(listed.as_doc().value("active"), Value::Bool(true));
    client.admin().ok(doc! { "killOp" => 1, "op" => number(&listed, "opid") });
    assert_eq!(code_of(&busy.receive().unwrap()), 11601);
    until("gone", || mine().is_none());
    // An operation whose client disconnects ends by itself.
    busy.send(&command);
    until("listed", || mine().is_some());
    drop(busy);
    until("gone", || mine().is_none());
}

#[test]
fn statistics_of_collections_and_databases_add_up() {
    let test = TestServer::start();
    let client = test.client();
    let docs: Vec<DocBuf> =
        (0..50).map(|n| doc! { "_id" => n, "pad" => "p".repeat(100).as_str() }).collect();
    let bytes: usize = docs.iter().map(|d| d.as_doc().as_bytes().len()).sum();
    client.insert("c", docs.clone());
    client.insert("d", docs);
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![
        doc! { "key" => doc! { "pad" => 1 }, "name" => "pad" }
    ] });
    let stats = client.ok(doc! { "collStats" => "c" });
    assert_eq!((number(&stats, "count"), number(&stats, "size")), (50, bytes as i64));
    assert_eq!(number(&stats, "nindexes"), 2);
    assert_eq!(number(&stats, "avgObjSize"), (bytes / 50) as i64);
    let stats = client.ok(doc! { "dbStats" => 1 });
    assert_eq!((number(&stats, "collections"), number(&stats, "objects")), (2, 100));
    assert_eq!((number(&stats, "indexes"), number(&stats, "dataSize")), (3, 2 * bytes as i64));
    let size = client.ok(doc! { "dataSize" => "test.c" });
    assert_eq!((number(&size, "numObjects"), number(&size, "size")), (50, bytes as i64));
}

#[test]
fn shutdown_is_asked_for_and_new_commands_are_refused() {
    let test = TestServer::start();
    let client = test.client();
    assert_eq!(client.fails(doc! { "shutdown" => 1 }), 13);
    client.admin().send(&doc! { "shutdown" => 1, "force" => true });
    let asked = test.shutdowns.lock().unwrap().recv_timeout(crate::common::PATIENCE);
    assert!(asked.is_ok());
}

#[test]
fn shutdown_is_for_clients_on_this_host() {
    let test = TestServer::start();
    for remote in ["192.0.2.1:4000", "[2001:db8::1]:4000", "[::ffff:192.0.2.1]:4000"] {
        let reply = test.client_from(remote).admin().run(&doc! { "shutdown" => 1, "bad" => 1 });
        assert_eq!(code_of(&reply), 13, "{remote}");
        let message = "shutdown must run from localhost when running db without auth";
        assert_eq!(reply.as_doc().value("errmsg").as_str(), Some(message));
    }
    assert!(test.shutdowns.lock().unwrap().try_recv().is_err());
    for remote in [
        "127.0.0.1:1",
        "127.8.0.1:1",
        "[::1]:4000",
        "[::ffff:127.0.0.1]:1",
        "anonymous unix socket",
    ] {
        test.client_from(remote).admin().send(&doc! { "shutdown" => 1 });
        let asked = test.shutdowns.lock().unwrap().recv_timeout(crate::common::PATIENCE);
        assert!(asked.is_ok(), "{remote}");
    }
}

#[test]
fn hello_with_the_topology_version_of_another_process_answers_at_once() {
    let test = TestServer::start();
    let client = test.client();
    let version = |process: u8, counter: i64| {
        doc! { "processId" => kauri_bson::Value::ObjectId([process; 12]), "counter" => counter }
    };
    let hello = |version: kauri_bson::DocBuf| {
        doc! { "hello" => 1, "topologyVersion" => version, "maxAwaitTimeMS" => 3_600_000 }
    };
    // The client's time limit ends long before the time that hello may wait.
    client.ok(hello(version(2, 0)));
    client.ok(hello(version(2, 9)));
    for (wrong, code) in [
        (version(1, 1), 51764),
        (version(2, -1), 31372),
        (doc! { "counter" => 0i64 }, 40414),
        (doc! { "processId" => kauri_bson::Value::ObjectId([1; 12]) }, 40414),
        (doc! { "processId" => 1, "counter" => 0i64 }, 14),
        (
            doc! { "processId" => kauri_bson::Value::ObjectId([1; 12]), "counter" => 0i64, "x" => 1 },
            40415,
        ),
    ] {
        assert_eq!(client.fails(hello(wrong.clone())), code, "{wrong:?}");
    }
    // An exhaust replies at once the first time, then waits for a change.
    let mut message = client.message(&hello(version(2, 0)));
    message[18] |= 1;
    client.send_bytes(&message);
    let first = client.receive_bytes().unwrap();
    assert_ne!(kauri_wire::flags_of(&first) & kauri_wire::flags::MORE_TO_COME, 0);
    until("hello waits", || {
        let mut waits = false;
        test.server.operations.for_each(|running| waits |= running.name == "hello");
        waits
    });
    let shutdown = std::thread::spawn(move || drop(test));
    let second = client.receive_bytes().unwrap();
    assert_eq!(kauri_wire::flags_of(&second) & kauri_wire::flags::MORE_TO_COME, 0);
    shutdown.join().unwrap();
}

#[test]
fn a_stopping_server_answers_waiting_hellos() {
    let test = TestServer::start();
    let client = test.client();
    let version = at(&client.ok(doc! { "hello" => 1 }), "topologyVersion");
    client
        .send(&doc! { "hello" => 1, "topologyVersion" => version, "maxAwaitTimeMS" => 3_600_000 });
    until("hello waits", || {
        let mut waits = false;
        test.server.operations.for_each(|running| waits |= running.name == "hello");
        waits
    });
    let shutdown = std::thread::spawn(move || drop(test));
    assert_eq!(code_of(&client.receive().unwrap()), 0);
    shutdown.join().unwrap();
}
