//! The database profiler: which operations have a document in `system.profile`, and its contents.

use crate::common::{
    Client, START_MS, TestServer, at, code_of, cursor_id, first_batch, number, show, text,
    write_errors,
};
use kauri_bson::{DocBuf, Value, array, doc};

/// The documents of `system.profile`, oldest first, without those of the reads of the profile itself.
fn all(client: &Client) -> Vec<DocBuf> {
    let reads = array!["test.system.profile", "other.system.profile"];
    let (filter, sort) = (doc! { "ns" => doc! { "$nin" => reads } }, doc! { "$natural" => 1 });
    let find = doc! {
        "find" => "system.profile", "filter" => filter, "sort" => sort, "batchSize" => 100_000,
    };
    first_batch(&client.ok(find))
}

/// The documents after the first `before` ones.
fn since(client: &Client, before: usize) -> Vec<DocBuf> {
    all(client).split_off(before)
}

/// The documents that a command adds to `system.profile`.
#[track_caller]
fn profiled(client: &Client, command: DocBuf) -> Vec<DocBuf> {
    let before = all(client).len();
    client.ok(command);
    since(client, before)
}

/// The only document that a command adds.
#[track_caller]
fn only(client: &Client, command: DocBuf) -> DocBuf {
    let mut docs = profiled(client, command);
    assert_eq!(docs.len(), 1, "{docs:?}");
    docs.remove(0)
}

/// The document without the operation's duration, which must be present at its position.
#[track_caller]
fn timeless(document: &DocBuf) -> DocBuf {
    let millis = document.as_doc().value("millis");
    assert!(millis.as_i64_exact().is_some_and(|ms| ms >= 0), "{}", show(document));
    DocBuf::build(|out| {
        for elem in document.as_doc().iter() {
            match elem.key() {
                "millis" => out.put("millis", 0),
                _ => out.put_elem(elem),
            }
        }
    })
}

/// A client that has sent its metadata, on a server that profiles all operations of the database `test`.
fn profiling(test: &TestServer) -> Client {
    let client = test.client_from("10.0.0.7:4711");
    let application = doc! { "name" => "tests" };
    let driver = doc! { "name" => "d", "version" => "1" };
    let metadata = doc! {
        "application" => application, "driver" => driver, "os" => doc! { "type" => "Linux" },
    };
    client.admin().ok(doc! { "hello" => 1, "client" => metadata });
    client.ok(doc! { "profile" => 2 });
    client
}

/// An expected document. `head` has the fields before `locks`; an empty `reply` stands for a statement.
fn expected(head: DocBuf, reply: Option<i32>, plan: Option<&str>) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(head.as_doc());
        out.put("locks", doc! {});
        out.put("flowControl", doc! {});
        out.put("storage", doc! {});
        if let Some(bytes) = reply {
            out.put("responseLength", bytes);
            out.put("protocol", "op_msg");
        }
        out.put("millis", 0);
        if let Some(plan) = plan {
            out.put("planSummary", plan);
        }
        out.put("ts", Value::DateTime(START_MS));
        out.put("client", "10.0.0.7");
        out.put("appName", "tests");
        out.put_value("allUsers", &array![]);
        out.put("user", "");
    })
}

/// A command as the server receives it.
fn sent(command: &DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put("$db", "test");
    })
}

/// The length of the reply's message: header, flags, section kind, document.
fn length(reply: &DocBuf) -> Option<i32> {
    Some(16 + 4 + 1 + reply.as_doc().as_bytes().len() as i32)
}

/// Runs the command and compares the only document that it adds.
#[track_caller]
fn check(
    client: &Client,
    command: DocBuf,
    head: impl FnOnce(DocBuf) -> DocBuf,
    plan: Option<&str>,
) {
    let before = all(client).len();
    let reply = client.ok(command.clone());
    let found = since(client, before);
    let wanted = expected(head(sent(&command)), length(&reply), plan);
    let found: Vec<String> = found.iter().map(|d| show(&timeless(d))).collect();
    assert_eq!(found, [show(&wanted)]);
}

/// The same for a command of one statement.
#[track_caller]
fn check_statement(client: &Client, command: DocBuf, head: DocBuf, plan: &str) {
    let found = only(client, command);
    assert_eq!(show(&timeless(&found)), show(&expected(head, None, Some(plan))));
}

#[test]
fn reads_are_profiled() {
    let test = TestServer::start();
    let client = profiling(&test);
    client.insert("c", (0..5).map(|n| doc! { "_id" => n, "a" => n % 2 }));
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
    let find = doc! { "find" => "c", "filter" => doc! { "a" => 1 }, "sort" => doc! { "x" => 1 } };
    let head = |command: DocBuf| {
        doc! {
            "op" => "query", "ns" => "test.c", "command" => command, "keysExamined" => 2,
            "docsExamined" => 2, "hasSortStage" => true, "cursorExhausted" => true, "numYield" => 0,
            "nreturned" => 2, "queryFramework" => "classic",
        }
    };
    check(&client, find, head, Some("IXSCAN { a: 1 }"));
    let pipeline = array![doc! { "$match" => doc! { "_id" => doc! { "$gte" => 2 } } }];
    let aggregate = doc! {
        "aggregate" => "c", "pipeline" => pipeline, "cursor" => doc! {},
        "hint" => doc! { "$natural" => 1 },
    };
    let head = |command: DocBuf| {
        doc! {
            "op" => "command", "ns" => "test.c", "command" => command, "keysExamined" => 0,
            "docsExamined" => 5, "cursorExhausted" => true, "numYield" => 0, "nreturned" => 3,
            "queryFramework" => "classic",
        }
    };
    check(&client, aggregate, head, Some("COLLSCAN"));
    let count = doc! { "count" => "c", "query" => doc! { "a" => 0 } };
    let head = |command: DocBuf| {
        doc! {
            "op" => "command", "ns" => "test.c", "command" => command, "keysExamined" => 3,
            "docsExamined" => 0, "numYield" => 0, "queryFramework" => "classic",
        }
    };
    check(&client, count, head, Some("COUNT_SCAN { a: 1 }"));
    let distinct = doc! { "distinct" => "c", "key" => "a" };
    let head = |command: DocBuf| {
        doc! {
            "op" => "command", "ns" => "test.c", "command" => command, "keysExamined" => 2,
            "docsExamined" => 0, "numYield" => 0, "queryFramework" => "classic",
        }
    };
    check(&client, distinct, head, Some("DISTINCT_SCAN { a: 1 }"));
    let head = |command: DocBuf| {
        doc! { "op" => "command", "ns" => "test.c", "command" => command, "numYield" => 0 }
    };
    check(&client, doc! { "collStats" => "c" }, head, None);
    let head = |command: DocBuf| {
        doc! { "op" => "command", "ns" => "test.$cmd", "command" => command, "numYield" => 0 }
    };
    check(&client, doc! { "ping" => 1 }, head, None);
}

#[test]
fn a_get_more_belongs_to_its_collection() {
    let test = TestServer::start();
    let client = profiling(&test);
    client.insert("c", (0..5).map(|n| doc! { "_id" => n }));
    let find = doc! { "find" => "c", "batchSize" => 2 };
    let before = all(&client).len();
    let reply = client.ok(find.clone());
    let id = cursor_id(&reply);
    let head = doc! {
        "op" => "query", "ns" => "test.c", "command" => sent(&find), "cursorid" => id,
        "keysExamined" => 0, "docsExamined" => 2, "numYield" => 0, "nreturned" => 2,
        "queryFramework" => "classic",
    };
    let opened = timeless(&since(&client, before)[0]);
    assert_eq!(show(&opened), show(&expected(head, length(&reply), Some("COLLSCAN"))));
    let head = |exhausted: bool, docs: i32| {
        let originating = sent(&find);
        move |command: DocBuf| {
            DocBuf::build(|out| {
                out.put("op", "getmore");
                out.put("ns", "test.c");
                out.put("command", command);
                out.put("originatingCommand", originating);
                out.put("cursorid", id);
                out.put("keysExamined", 0);
                out.put("docsExamined", docs);
                if exhausted {
                    out.put("cursorExhausted", true);
                }
                out.put("numYield", 0);
                out.put("nreturned", docs);
                out.put("queryFramework", "classic");
            })
        }
    };
    let more = |size: i32| doc! { "getMore" => id, "collection" => "c", "batchSize" => size };
    check(&client, more(2), head(false, 2), Some("COLLSCAN"));
    check(&client, more(2), head(true, 1), Some("COLLSCAN"));
}

#[test]
fn writes_are_profiled() {
    let test = TestServer::start();
    let client = profiling(&test);
    let inserted = |n: i32| {
        move |command: DocBuf| {
            doc! {
                "op" => "insert", "ns" => "test.c", "command" => command, "ninserted" => n,
                "numYield" => 0,
            }
        }
    };
    let documents = array![doc! { "_id" => 1 }, doc! { "_id" => 2 }, doc! { "_id" => 3 }];
    check(&client, doc! { "insert" => "c", "documents" => documents }, inserted(3), None);

    // Two statements, the second of which inserts; unusual fields follow them.
    let (first, second) = (doc! { "_id" => doc! { "$gt" => 1 } }, doc! { "_id" => 9 });
    let set = doc! { "$set" => doc! { "a" => 1 } };
    let hint = doc! { "_id" => 1 };
    let updates = array![
        doc! { "q" => first.clone(), "u" => set.clone(), "multi" => true, "hint" => hint.clone() },
        doc! { "q" => second.clone(), "u" => set.clone(), "upsert" => true },
    ];
    let update = doc! { "update" => "c", "updates" => updates, "comment" => "why" };
    let found = profiled(&client, update);
    let head = |command: DocBuf, (keys, docs): (i32, i32), counts: DocBuf| {
        DocBuf::build(|out| {
            out.put("op", "update");
            out.put("ns", "test.c");
            out.put("command", command);
            out.put("keysExamined", keys);
            out.put("docsExamined", docs);
            out.put_all(counts.as_doc());
            out.put("numYield", 0);
        })
    };
    let of_first = doc! {
        "q" => first, "u" => set.clone(), "multi" => true, "upsert" => false, "hint" => hint,
        "comment" => "why",
    };
    let of_second = doc! {
        "q" => second, "u" => set.clone(), "multi" => false, "upsert" => true, "comment" => "why",
    };
    let counts = |matched: i32, modified: i32, upserted: i32| {
        doc! { "nMatched" => matched, "nModified" => modified, "nUpserted" => upserted }
    };
    let wanted = [
        expected(head(of_first, (2, 2), counts(2, 2, 0)), None, Some("IXSCAN { _id: 1 }")),
        expected(head(of_second, (0, 0), counts(0, 0, 1)), None, Some("IDHACK")),
    ];
    let texts = |docs: &[DocBuf]| docs.iter().map(|d| show(&timeless(d))).collect::<Vec<_>>();
    assert_eq!(texts(&found), texts(&wanted));

    let delete = doc! { "q" => doc! { "a" => 1 }, "limit" => 0 };
    let head = doc! {
        "op" => "remove", "ns" => "test.c", "command" => delete.clone(), "keysExamined" => 0,
        "docsExamined" => 4, "ndeleted" => 3, "numYield" => 0,
    };
    let command = doc! { "delete" => "c", "deletes" => array![delete] };
    check_statement(&client, command, head, "COLLSCAN");

    let command = doc! { "findAndModify" => "c", "query" => doc! { "_id" => 1 }, "update" => set };
    let head = |command: DocBuf| {
        doc! {
            "op" => "command", "ns" => "test.c", "command" => command, "keysExamined" => 1,
            "docsExamined" => 1, "nMatched" => 1, "nModified" => 1, "nUpserted" => 0,
            "numYield" => 0, "queryFramework" => "classic",
        }
    };
    check(&client, command, head, Some("IDHACK"));
    let command = doc! { "findAndModify" => "c", "query" => doc! { "a" => 1 }, "remove" => true };
    let head = |command: DocBuf| {
        doc! {
            "op" => "command", "ns" => "test.c", "command" => command, "keysExamined" => 0,
            "docsExamined" => 1, "ndeleted" => 1, "numYield" => 0, "queryFramework" => "classic",
        }
    };
    check(&client, command, head, Some("COLLSCAN"));
}

#[test]
fn the_express_path_is_profiled_in_the_same_way() {
    let test = TestServer::start();
    let client = profiling(&test);
    client.insert("c", [doc! { "_id" => 0 }]);
    let taken = || test.server.operations.next_id();
    let set = doc! { "$set" => doc! { "a" => 1 } };
    let by_id = |id: i32| doc! { "_id" => id };
    let express = |command: &DocBuf| {
        let before = all(&client).len();
        let ids = taken();
        client.ok(command.clone());
        assert_eq!(taken(), ids + 1, "took the ordinary path");
        since(&client, before).iter().map(|d| show(&timeless(d))).collect::<Vec<_>>()
    };
    let insert = doc! { "insert" => "c", "documents" => array![by_id(1)] };
    let head = doc! {
        "op" => "insert", "ns" => "test.c", "command" => sent(&insert), "ninserted" => 1,
        "numYield" => 0,
    };
    let reply = length(&doc! { "n" => 1, "ok" => 1.0 });
    assert_eq!(express(&insert), [show(&expected(head, reply, None))]);
    let find = doc! { "find" => "c", "filter" => by_id(1) };
    let head = doc! {
        "op" => "query", "ns" => "test.c", "command" => sent(&find), "keysExamined" => 1,
        "docsExamined" => 1, "cursorExhausted" => true, "numYield" => 0, "nreturned" => 1,
        "queryFramework" => "classic",
    };
    let cursor = doc! { "firstBatch" => array![by_id(1)], "id" => 0i64, "ns" => "test.c" };
    let reply = length(&doc! { "cursor" => cursor, "ok" => 1.0 });
    assert_eq!(express(&find), [show(&expected(head, reply, Some("IDHACK")))]);
    for (id, n) in [(1, 1), (8, 0)] {
        let statement = doc! { "q" => by_id(id), "u" => set.clone() };
        let update = doc! { "update" => "c", "updates" => array![statement] };
        let command =
            doc! { "q" => by_id(id), "u" => set.clone(), "multi" => false, "upsert" => false };
        let head = doc! {
            "op" => "update", "ns" => "test.c", "command" => command, "keysExamined" => n,
            "docsExamined" => n, "nMatched" => n, "nModified" => n, "nUpserted" => 0, "numYield" => 0,
        };
        assert_eq!(express(&update), [show(&expected(head, None, Some("IDHACK")))]);
    }
    for (id, n) in [(1, 1), (8, 0)] {
        let statement = doc! { "q" => by_id(id), "limit" => 1 };
        let delete = doc! { "delete" => "c", "deletes" => array![statement.clone()] };
        let head = doc! {
            "op" => "remove", "ns" => "test.c", "command" => statement, "keysExamined" => n,
            "docsExamined" => n, "ndeleted" => n, "numYield" => 0,
        };
        assert_eq!(express(&delete), [show(&expected(head, None, Some("IDHACK")))]);
    }
}

#[test]
fn a_failed_operation_has_its_error() {
    let test = TestServer::start();
    let client = profiling(&test);
    let before = all(&client).len();
    let code = client.fails(doc! { "find" => "c", "filter" => doc! { "$no" => 1 } });
    let found = since(&client, before).remove(0);
    assert_eq!((code, number(&found, "errCode")), (2, 2), "{}", show(&found));
    assert_eq!(text(&found, "errName"), "BadValue");
    assert_eq!(
        text(&found, "errMsg"),
        "unknown top level operator: $no. If you have a field name that starts with a '$' symbol, consider using $getField or $setField."
    );
    assert_eq!(found.as_doc().value("ok"), Value::Double(0.0));
    assert!(found.as_doc().get("keysExamined").is_none(), "{}", show(&found));
    // A failed statement has the error, the command around it has none.
    let update =
        doc! { "q" => doc! {}, "u" => doc! { "$set" => doc! { "a.$" => 1 } }, "upsert" => true };
    let found = only(&client, doc! { "update" => "c", "updates" => array![update] });
    assert_eq!((text(&found, "op").as_str(), number(&found, "errCode")), ("update", 2));
}

#[test]
fn level_1_profiles_sampled_slow_operations() {
    let test = TestServer::start();
    let client = test.client();
    let find = || doc! { "find" => "c" };
    let count = |slow_ms: i32, rate: f64| {
        client.ok(doc! { "profile" => 1, "slowms" => slow_ms, "sampleRate" => rate });
        profiled(&client, find()).len()
    };
    assert_eq!(count(3_600_000, 1.0), 0);
    assert_eq!(count(-1, 1.0), 1);
    assert_eq!(count(-1, 0.0), 0);
    client.ok(doc! { "profile" => 1, "sampleRate" => 0.5 });
    let before = all(&client).len();
    (0..200).for_each(|_| drop(client.ok(find())));
    let sampled = since(&client, before).len();
    assert!((50..150).contains(&sampled), "{sampled}");
    // At level 2 neither counts.
    client.ok(doc! { "profile" => 2, "slowms" => 3_600_000, "sampleRate" => 0.0 });
    assert_eq!(profiled(&client, find()).len(), 1);
    client.ok(doc! { "profile" => 0, "slowms" => -1 });
    assert_eq!(profiled(&client, find()).len(), 0);
}

#[test]
fn a_filter_replaces_slowms_and_sample_rate() {
    let test = TestServer::start();
    let client = test.client();
    let filter = doc! { "op" => "query", "nreturned" => doc! { "$gt" => 1 } };
    let slow = doc! { "profile" => 1, "slowms" => -1, "sampleRate" => 0.0, "filter" => filter };
    assert!(client.ok(slow).as_doc().get("filter").is_none());
    let asked = client.ok(doc! { "profile" => -1 });
    assert_eq!(number(&asked, "was"), 1);
    assert!(asked.as_doc().get("filter").is_some() && asked.as_doc().get("note").is_some());
    let insert =
        doc! { "insert" => "c", "documents" => array![doc! { "_id" => 1 }, doc! { "_id" => 2 }] };
    assert_eq!(profiled(&client, insert).len(), 0);
    let one = doc! { "find" => "c", "filter" => doc! { "_id" => 1 } };
    assert_eq!(profiled(&client, one.clone()).len(), 0);
    assert_eq!(number(&only(&client, doc! { "find" => "c" }), "nreturned"), 2);
    // Level 2 takes all operations; a database without its own filter uses the global settings.
    client.ok(doc! { "profile" => 2 });
    assert_eq!(profiled(&client, one.clone()).len(), 1);
    let other = client.on("other");
    other.ok(doc! { "profile" => 1, "sampleRate" => 1.0 });
    assert_eq!(profiled(&other, one.clone()).len(), 1);
    client.ok(doc! { "profile" => 1, "slowms" => 3_600_000, "filter" => "unset" });
    assert_eq!(profiled(&client, doc! { "find" => "c" }).len(), 0);
    assert_eq!(client.fails(doc! { "profile" => 1, "filter" => "no" }), 2);
    assert_eq!(client.fails(doc! { "profile" => 1, "sampleRate" => 1.5 }), 2);
}

#[test]
fn slowms_and_sample_rate_are_global_and_levels_per_database() {
    let test = TestServer::start();
    let (a, b) = (test.client().on("a"), test.client().on("b"));
    let told = |reply: DocBuf| {
        let rate = reply.as_doc().value("sampleRate").as_f64_lossy();
        (number(&reply, "was"), number(&reply, "slowms"), rate)
    };
    a.ok(doc! { "profile" => 2, "slowms" => 7, "sampleRate" => 0.25 });
    assert_eq!(told(a.ok(doc! { "profile" => -1 })), (2, 7, Some(0.25)));
    assert_eq!(told(b.ok(doc! { "profile" => -1 })), (0, 7, Some(0.25)));
    assert!(first_batch(&b.ok(doc! { "listCollections" => 1 })).is_empty());
    // Dropping the database resets its level.
    a.ok(doc! { "find" => "c" });
    a.ok(doc! { "dropDatabase" => 1 });
    assert_eq!(told(a.ok(doc! { "profile" => -1 })), (0, 7, Some(0.25)));
    assert!(first_batch(&a.ok(doc! { "listCollections" => 1 })).is_empty());
}

#[test]
fn reads_of_the_profile_are_profiled() {
    let test = TestServer::start();
    let client = profiling(&test);
    client.insert("c", (0..3).map(|n| doc! { "_id" => n }));
    // Each count is reported before the next one.
    for before in 1..4 {
        assert_eq!(number(&client.ok(doc! { "count" => "system.profile" }), "n"), before);
    }
    let reply = client.ok(doc! { "find" => "system.profile", "batchSize" => 0 });
    let more = doc! { "getMore" => cursor_id(&reply), "collection" => "system.profile" };
    client.ok(more);
    client.ok(doc! { "profile" => -1 });
    let find = doc! { "find" => "system.profile", "projection" => doc! { "op" => 1, "ns" => 1 } };
    let told = first_batch(&client.ok(find));
    let told: Vec<_> = told.iter().map(|d| (text(d, "op"), text(d, "ns"))).collect();
    let count = ("command", "test.system.profile");
    let wanted = [
        ("insert", "test.c"),
        count,
        count,
        count,
        ("query", "test.system.profile"),
        ("getmore", "test.system.profile"),
    ];
    let told: Vec<_> = told.iter().map(|(op, ns)| (op.as_str(), ns.as_str())).collect();
    assert_eq!(told, wanted);
    // The profiler's own writes are not counted as operations.
    let status = client.admin().ok(doc! { "serverStatus" => 1 });
    let inserted = number(&at(&at(&status, "metrics"), "document"), "inserted");
    let counted = number(&at(&status, "opcounters"), "insert");
    assert_eq!((inserted, counted), (3, 3));
    assert_eq!(number(&at(&status, "profiler"), "leftOut"), 0);
}

#[test]
fn the_profile_is_capped_and_written_by_the_server_only() {
    let test = TestServer::start();
    let client = profiling(&test);
    let options = || {
        let list = doc! { "listCollections" => 1, "filter" => doc! { "name" => "system.profile" } };
        let found = first_batch(&client.ok(list));
        at(&found[0], "options")
    };
    assert_eq!(show(&options()), "{ capped: true, size: 1048576 }");
    assert!(first_batch(&client.ok(doc! { "listIndexes" => "system.profile" })).is_empty());
    let write = |command: DocBuf| write_errors(&client.ok(command));
    let statement = |body: DocBuf| array![body];
    let insert =
        doc! { "insert" => "system.profile", "documents" => statement(doc! { "_id" => 1 }) };
    assert_eq!(write(insert), [(0, 73)]);
    let update = doc! { "q" => doc! {}, "u" => doc! { "a" => 1 } };
    let update = doc! { "update" => "system.profile", "updates" => statement(update) };
    assert_eq!(write(update), [(0, 73)]);
    let delete = doc! { "q" => doc! {}, "limit" => 0 };
    let delete = doc! { "delete" => "system.profile", "deletes" => statement(delete) };
    assert_eq!(write(delete), [(0, 73)]);
    let change = doc! { "findAndModify" => "system.profile", "query" => doc! {}, "remove" => true };
    assert_eq!(client.fails(change), 73);
    let drop_it = || doc! { "drop" => "system.profile" };
    assert_eq!(client.fails(drop_it()), 20, "IllegalOperation");
    client.ok(doc! { "profile" => 0 });
    client.ok(drop_it());
    client.ok(doc! { "create" => "system.profile", "capped" => true, "size" => 4096 });
    client.ok(doc! { "profile" => 2 });
    assert_eq!(number(&options(), "size"), 4096);
    for n in 0..100 {
        client.ok(doc! { "ping" => 1, "comment" => n });
    }
    let kept = all(&client);
    let bytes: usize = kept.iter().map(|d| d.as_doc().as_bytes().len()).sum();
    assert!((2048..=4096).contains(&bytes), "{bytes}");
    let last = at(kept.last().unwrap(), "command");
    assert_eq!(number(&last, "comment"), 99);
    client.validate("system.profile");
    // A collection that is not capped is not used.
    client.ok(doc! { "profile" => 0 });
    client.ok(drop_it());
    client.ok(doc! { "create" => "system.profile" });
    let reply = client.run(&doc! { "profile" => 2 });
    assert_eq!(code_of(&reply), 48, "NamespaceExists");
    assert_eq!(text(&reply, "errmsg"), "test.system.profile exists but isn't capped");
    assert_eq!(number(&client.ok(doc! { "profile" => -1 }), "was"), 0);
}

#[test]
fn a_long_command_is_kept_as_text() {
    let test = TestServer::start();
    let client = profiling(&test);
    let comment = "x".repeat(200);
    let filter = doc! { "a" => "y".repeat(60_000) };
    let find = doc! { "find" => "c", "filter" => filter, "comment" => comment.as_str() };
    let command = at(&only(&client, find), "command");
    let cut = text(&command, "$truncated");
    assert!(cut.starts_with("{ find: \"c\", comment: ") && cut.len() < 52_000, "{cut}");
    assert_eq!(text(&command, "comment"), comment);
}

#[test]
fn a_document_without_room_is_left_out() {
    let test = TestServer::start();
    let client = profiling(&test);
    let admin = client.admin();
    admin.ok(doc! { "fsync" => 1, "lock" => true });
    let before = all(&client).len();
    client.ok(doc! { "find" => "c" });
    assert_eq!(all(&client).len(), before);
    admin.ok(doc! { "fsyncUnlock" => 1 });
    let status = admin.ok(doc! { "serverStatus" => 1 });
    // The operation and the read before it; the document of the last read may still be queued.
    assert!((2..=3).contains(&number(&at(&status, "profiler"), "leftOut")));
    assert_eq!(profiled(&client, doc! { "find" => "c" }).len(), 1);
}

#[test]
fn a_slow_filter_profiles_no_operation() {
    let test = TestServer::start();
    let client = test.client();
    // The value depends on the document, so it is not folded into a constant.
    let count = |n: i32| doc! { "$range" => array![0, doc! { "$add" => array![n, "$millis"] }] };
    let long = |n: i32| {
        doc! { "$expr" => doc! { "$gte" => array![doc! { "$reduce" => doc! {
            "input" => count(n), "initialValue" => 0,
            "in" => doc! { "$add" => array!["$$value", doc! { "$sum" => count(n) }] },
        } }, 0] } }
    };
    client.ok(doc! { "profile" => 2, "filter" => long(2) });
    assert!(!profiled(&client, doc! { "ping" => 1 }).is_empty());
    // Its time is the clock's, which advances at each read.
    test.clock.pass_at_looks(std::time::Duration::from_micros(100));
    client.ok(doc! { "profile" => 2, "filter" => long(1_000_000) });
    client.ok(doc! { "ping" => 1 });
    client.ok(doc! { "find" => "c" });
}

#[test]
fn profiling_creates_no_database() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "profile" => 2 });
    // As `--profile 2` does for databases without a level of their own.
    test.server.profiling.with(|settings| settings.set_level("absent", 2)).unwrap();
    client.on("absent").ok(doc! { "find" => "x" });
    // A command that names the collection waits for the pending documents.
    let found = client.on("absent").ok(doc! { "find" => "system.profile" });
    assert!(first_batch(&found).is_empty());
    let names = client.admin().ok(doc! { "listDatabases" => 1, "nameOnly" => true });
    assert!(!show(&names).contains("absent"), "{}", show(&names));
}
