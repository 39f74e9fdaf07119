//! Query execution and `explain`: available plans, verbosity, index filters, and interruption of long matching.

use crate::common::{
    Client, TestServer, at, code_of, cursor_id, first_batch, number, show, text, until,
};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_storage::ephemeral::EphemeralEngine;
use std::sync::Arc;
use std::time::Duration;

fn index(client: &Client, key: DocBuf, name: &str) {
    let spec = doc! { "key" => key, "name" => name };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![spec] });
}

/// The names of the winning plan's stages, top first.
fn stages(client: &Client, command: DocBuf) -> Vec<String> {
    let reply = client.ok(doc! { "explain" => command, "verbosity" => "queryPlanner" });
    let mut stage = Some(at(&at(&reply, "queryPlanner"), "winningPlan"));
    let mut names = Vec::new();
    while let Some(this) = stage {
        names.push(text(&this, "stage"));
        stage = match this.as_doc().value("inputStage") {
            Value::Document(inner) => Some(inner.into_buf()),
            _ => match this.as_doc().value("inputStages") {
                Value::Array(all) => all.as_doc().first().map(|e| e.as_doc().unwrap().to_buf()),
                _ => None,
            },
        };
    }
    names
}

fn filled(test: &TestServer) -> Client {
    let client = test.client();
    let doc = |i: i32| doc! { "_id" => i, "a" => i % 5, "b" => i, "c" => i % 3 };
    client.insert("c", (0..60).map(doc));
    index(&client, doc! { "a" => 1, "b" => 1 }, "a_b");
    client
}

#[test]
fn plans_do_no_unnecessary_work() {
    let test = TestServer::start();
    let client = filled(&test);
    let find = |filter: DocBuf, projection: DocBuf, sort: DocBuf| {
        let command = doc! {
            "find" => "c", "filter" => filter, "projection" => projection, "sort" => sort,
        };
        stages(&client, command)
    };
    let (none, a, b) = (doc! {}, doc! { "a" => 2 }, doc! { "b" => 1 });
    let covered = doc! { "a" => 1, "b" => 1, "_id" => 0 };
    let names = find(a.clone(), covered, none.clone());
    assert_eq!(names, ["PROJECTION_COVERED", "IXSCAN"]);
    let names = find(a.clone(), doc! { "b" => 1 }, none.clone());
    assert_eq!(names, ["PROJECTION_SIMPLE", "FETCH", "IXSCAN"]);
    assert_eq!(find(a.clone(), none.clone(), b.clone()), ["FETCH", "IXSCAN"]);
    let two = doc! { "a" => doc! { "$in" => array![1, 2] } };
    assert_eq!(find(two, none.clone(), b), ["SORT_MERGE", "FETCH", "IXSCAN"]);
    let count = |query: DocBuf| stages(&client, doc! { "count" => "c", "query" => query });
    assert_eq!(count(none), ["RECORD_STORE_FAST_COUNT"]);
    assert_eq!(count(a), ["COUNT", "COUNT_SCAN"]);
    let distinct = doc! { "distinct" => "c", "key" => "a" };
    assert_eq!(stages(&client, distinct.clone()), ["PROJECTION_COVERED", "DISTINCT_SCAN"]);
    let values = client.ok(distinct).as_doc().value("values").into_owned();
    assert_eq!(values, Value::array((0..5).map(Value::Int32)));
    let n = client.ok(doc! { "count" => "c", "query" => doc! { "a" => 2, "b" => 7 } });
    assert_eq!(number(&n, "n"), 1);
}

#[test]
fn explain_counts_examined_keys_and_documents() {
    let test = TestServer::start();
    let client = filled(&test);
    index(&client, doc! { "c" => 1 }, "c");
    let find = doc! { "find" => "c", "filter" => doc! { "a" => 1, "c" => 2 } };
    let reply = client.ok(doc! { "explain" => find, "verbosity" => "allPlansExecution" });
    let stats = at(&reply, "executionStats");
    assert_eq!(number(&stats, "nReturned"), 4);
    assert_eq!(number(&stats, "totalDocsExamined"), 12);
    let Value::Array(all) = stats.as_doc().value("allPlansExecution") else {
        panic!("{}", show(&stats));
    };
    assert_eq!(all.as_doc().count(), 2, "{}", show(&stats));
    let Value::Array(rejected) =
        at(&reply, "queryPlanner").as_doc().value("rejectedPlans").into_owned()
    else {
        panic!("{}", show(&reply));
    };
    assert_eq!(rejected.as_doc().count(), 1);
    assert_eq!(text(&at(&reply, "command"), "$db"), "test");
    let delete = doc! { "delete" => "c", "deletes" => array![doc! { "q" => doc! { "a" => 1 }, "limit" => 0 }] };
    assert_eq!(stages(&client, delete), ["DELETE", "FETCH", "IXSCAN"]);
    assert_eq!(client.all_ids("c").len(), 60, "an explanation deletes nothing");
}

#[test]
fn hints_and_bounds() {
    let test = TestServer::start();
    let client = filled(&test);
    let ids = |command: DocBuf| {
        first_batch(&client.ok(command)).iter().map(|d| number(d, "_id")).collect::<Vec<_>>()
    };
    let bounded = |min: DocBuf, max: DocBuf, hint: &str| {
        doc! { "find" => "c", "min" => min, "max" => max, "hint" => hint }
    };
    let (low, high) = (doc! { "a" => 2, "b" => 50 }, doc! { "a" => 3, "b" => 5 });
    assert_eq!(ids(bounded(low.clone(), high.clone(), "a_b")), [52, 57, 3]);
    assert_eq!(client.fails(bounded(high.clone(), low.clone(), "a_b")), 51175);
    assert_eq!(client.fails(bounded(low.clone(), high.clone(), "_id_")), 51174);
    assert_eq!(client.fails(bounded(low.clone(), doc! { "a" => 3 }, "a_b")), 51176);
    assert_eq!(client.fails(doc! { "find" => "c", "min" => low }), 51173);
    assert_eq!(client.fails(doc! { "find" => "c", "hint" => "none" }), 2);
    let keys = doc! {
        "find" => "c", "filter" => doc! { "a" => 1, "b" => 6 }, "hint" => "a_b", "returnKey" => true,
    };
    assert_eq!(first_batch(&client.ok(keys)), [doc! { "a" => 1, "b" => 6 }]);
    let with_id = doc! { "find" => "c", "filter" => doc! { "_id" => 6 }, "showRecordId" => true };
    let shown = first_batch(&client.ok(with_id));
    assert!(shown[0].as_doc().get("$recordId").is_some(), "{}", show(&shown[0]));
    let last = doc! { "find" => "c", "sort" => doc! { "$natural" => -1 }, "limit" => 2 };
    assert_eq!(ids(last), [59, 58]);
    let both = doc! { "find" => "c", "sort" => doc! { "$natural" => 1, "a" => 1 } };
    assert_eq!(client.fails(both), 2);
}

#[test]
fn a_hint_may_select_an_incomplete_index() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "a" => 1 }, doc! { "_id" => 2 }]);
    let sparse = doc! { "key" => doc! { "a" => 1 }, "name" => "sparse", "sparse" => true };
    let partial = doc! {
        "key" => doc! { "x" => 1 }, "name" => "partial",
        "partialFilterExpression" => doc! { "a" => doc! { "$gt" => 0 } },
    };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![sparse, partial] });
    for hint in ["sparse", "partial"] {
        assert_eq!(number(&client.ok(doc! { "count" => "c", "hint" => hint }), "n"), 1, "{hint}");
    }
    assert_eq!(number(&client.ok(doc! { "count" => "c" }), "n"), 2);
}

#[test]
fn an_invalid_hint_is_refused_by_every_command() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "a" => 1 }]);
    let commands = |hint: &Value<'_>| {
        let all = doc! {};
        let delete = doc! { "q" => &all, "limit" => 0, "hint" => hint.clone() };
        let update = doc! { "q" => &all, "u" => doc! { "$set" => doc! { "a" => 2 } }, "hint" => hint.clone() };
        [
            doc! { "find" => "c", "hint" => hint.clone() },
            doc! { "count" => "c", "hint" => hint.clone() },
            doc! { "distinct" => "c", "key" => "a", "hint" => hint.clone() },
            doc! { "aggregate" => "c", "pipeline" => array![], "cursor" => &all, "hint" => hint.clone() },
            doc! { "findAndModify" => "c", "remove" => true, "hint" => hint.clone() },
            doc! { "delete" => "c", "deletes" => array![delete] },
            doc! { "update" => "c", "updates" => array![update] },
        ]
    };
    for hint in [Value::Null, Value::Int32(1), Value::Bool(true), array!["a"]] {
        for command in commands(&hint) {
            let shown = show(&command);
            assert_eq!(client.fails(command), 9, "{shown}");
        }
    }
    let beside = Value::from(doc! { "$natural" => 1, "a" => 1 });
    assert_eq!(client.fails(doc! { "find" => "c", "hint" => beside.clone() }), 2);
    assert_eq!(client.fails(doc! { "distinct" => "c", "key" => "a", "hint" => beside.clone() }), 2);
    assert_eq!(client.fails(doc! { "count" => "c", "hint" => "$natural" }), 2, "that is no index");
}

#[test]
fn snapshot_reads_are_refused() {
    let test = TestServer::start();
    let client = test.client();
    let snapshot = doc! { "level" => "snapshot" };
    assert_eq!(client.fails(doc! { "count" => "c", "readConcern" => &snapshot }), 72);
    assert_eq!(client.fails(doc! { "find" => "c", "readConcern" => &snapshot }), 123);
    let distinct = doc! { "distinct" => "c", "key" => "a", "readConcern" => &snapshot };
    assert_eq!(client.fails(distinct), 123);
}

#[test]
fn a_count_is_limited_by_a_whole_number() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..5).map(|id| doc! { "_id" => id }));
    let count = |limit: Value<'static>| doc! { "count" => "c", "limit" => limit };
    for (limit, n) in
        [(3.into(), 3), (Value::Int64(-2), 2), (4.0.into(), 4), (0.into(), 5), (i64::MAX.into(), 5)]
    {
        assert_eq!(number(&client.ok(count(limit)), "n"), n);
    }
    for (limit, code) in [
        (Value::Null, 2),
        ("3".into(), 2),
        (true.into(), 2),
        (i64::MIN.into(), 2),
        (1.5.into(), 9),
        (f64::NAN.into(), 9),
        (f64::INFINITY.into(), 9),
    ] {
        assert_eq!(client.fails(count(limit.clone())), code, "{}", kauri_bson::shell_value(&limit));
    }
}

#[test]
fn distinct_values_come_in_their_order() {
    let test = TestServer::start();
    let client = test.client();
    let values = || {
        [array!["b", 2.0, true], Value::from("a"), Value::Int32(2), array![doc! {}, Value::Null, 1]]
    };
    client.insert("c", values().into_iter().map(|value| doc! { "a" => value }));
    let distinct = |key: &str| {
        client.ok(doc! { "distinct" => "c", "key" => key }).as_doc().value("values").into_owned()
    };
    // Of 2.0 and 2, the first one found.
    assert_eq!(distinct("a"), array![Value::Null, 1, 2.0, "a", "b", doc! {}, true]);
    let nested = values().into_iter().map(|value| doc! { "x" => array![doc! { "y" => value }] });
    client.insert("c", nested);
    assert_eq!(distinct("x.y"), distinct("a"));
}

#[test]
fn each_timestamp_field_gets_its_own_time() {
    let test = TestServer::start();
    let client = test.client();
    let empty = kauri_base::Timestamp::default();
    client.insert("c", (0..3).map(|id| doc! { "_id" => id, "t" => empty, "u" => empty }));
    let replace = doc! { "q" => doc! { "_id" => 0 }, "u" => doc! { "t" => empty, "u" => empty } };
    let now = doc! { "$currentDate" => doc! { "t" => doc! { "$type" => "timestamp" } } };
    let touch = doc! { "q" => doc! { "_id" => doc! { "$gt" => 0 } }, "u" => now, "multi" => true };
    let stamps = || {
        let found = first_batch(&client.ok(doc! { "find" => "c" }));
        let stamps = found
            .iter()
            .flat_map(|doc| ["t", "u"].map(|field| doc.as_doc().value(field).into_owned()));
        stamps.map(|stamp| kauri_bson::shell_value(&stamp)).collect::<Vec<_>>()
    };
    let distinct =
        |stamps: Vec<String>| stamps.into_iter().collect::<std::collections::HashSet<_>>().len();
    let before = stamps();
    assert_eq!(distinct(before.clone()), 6);
    client.ok(doc! { "update" => "c", "updates" => array![replace, touch] });
    assert_eq!(distinct(stamps()), 6);
    // The two omitted ones are unchanged.
    assert_eq!(distinct([before, stamps()].concat()), 6 + 4);
}

#[test]
fn an_index_filter_overrides_hints() {
    let test = TestServer::start();
    let client = filled(&test);
    index(&client, doc! { "a" => 1 }, "a");
    let filter = doc! { "planCacheSetFilter" => "c", "query" => doc! { "a" => 1 }, "indexes" => array!["a"] };
    client.ok(filter);
    let used = |filter: DocBuf| {
        let find = doc! { "find" => "c", "filter" => filter, "hint" => "a_b" };
        let reply = client.ok(doc! { "explain" => find, "verbosity" => "queryPlanner" });
        let planner = at(&reply, "queryPlanner");
        let scan = at(&at(&planner, "winningPlan"), "inputStage");
        (text(&scan, "indexName"), planner.as_doc().value("indexFilterSet").into_owned())
    };
    assert_eq!(used(doc! { "a" => 3 }), ("a".to_owned(), Value::Bool(true)));
    assert_eq!(used(doc! { "a" => doc! { "$gt" => 3 } }), ("a_b".to_owned(), Value::Bool(false)));
    let listed = client.ok(doc! { "planCacheListFilters" => "c" });
    let Value::Array(filters) = listed.as_doc().value("filters") else { panic!() };
    assert_eq!(filters.as_doc().count(), 1);
    client.ok(doc! { "planCacheClearFilters" => "c" });
    assert_eq!(used(doc! { "a" => 3 }), ("a_b".to_owned(), Value::Bool(false)));
}

#[test]
fn plan_cache_stats_list_winning_plans() {
    let test = TestServer::start();
    let client = filled(&test);
    index(&client, doc! { "c" => 1 }, "c");
    let told = || {
        let pipeline = array![doc! { "$planCacheStats" => doc! {} }];
        first_batch(
            &client.ok(doc! { "aggregate" => "c", "pipeline" => pipeline, "cursor" => doc! {} }),
        )
    };
    assert!(told().is_empty());
    let find = doc! { "find" => "c", "filter" => doc! { "a" => 1, "c" => 2 } };
    for active in [false, true] {
        client.ok(find.clone());
        let entries = told();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].as_doc().value("isActive"), Value::Bool(active));
    }
    let other = doc! { "planCacheClear" => "c", "query" => doc! { "a" => 5 } };
    client.ok(other);
    assert_eq!(told().len(), 1);
    client.ok(doc! { "planCacheClear" => "c", "query" => doc! { "c" => 7, "a" => 8 } });
    assert!(told().is_empty());
}

#[test]
fn a_cursor_that_lost_its_position_fails() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c", "capped" => true, "size" => 100_000, "max" => 3 });
    client.insert("c", (0..3).map(|i| doc! { "_id" => i }));
    let tail = |filter: DocBuf| {
        client.ok(doc! { "find" => "c", "filter" => filter, "tailable" => true, "batchSize" => 10 })
    };
    assert_ne!(cursor_id(&tail(doc! { "none" => 1 })), 0, "it waits for one that matches");
    let id = cursor_id(&tail(doc! {}));
    client.insert("c", (3..9).map(|i| doc! { "_id" => i }));
    assert_eq!(client.fails(doc! { "getMore" => id, "collection" => "c" }), 136);
    for refused in [doc! { "a" => 1 }, doc! { "$natural" => -1 }] {
        assert_eq!(client.fails(doc! { "find" => "c", "tailable" => true, "sort" => refused }), 2);
    }
}

#[test]
fn long_matching_ends_by_its_time_limit() {
    let test = TestServer::start();
    let (client, other) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 1, "text" => "a".repeat(8_000_000).as_str() }]);
    // The match runs from each character of the text to its end and fails.
    let slow = doc! { "text" => doc! { "$regex" => "a*[bc]" } };
    client.send(&doc! { "find" => "c", "filter" => slow, "maxTimeMS" => 5_000 });
    until("the find runs", || {
        let running = other.admin().ok(doc! { "currentOp" => 1, "op" => "query" });
        let Value::Array(running) = running.as_doc().value("inprog") else { return false };
        running.as_doc().count() > 0
    });
    test.clock.advance(Duration::from_secs(6));
    let reply = client.receive().expect("it ends");
    assert_eq!(crate::common::code_of(&reply), 50, "{}", show(&reply));
}

#[test]
fn several_collections_are_written_in_one_command() {
    let test = TestServer::start();
    let client = test.client().admin();
    let reply = client.ok(doc! {
        "bulkWrite" => 1,
        "nsInfo" => array![doc! { "ns" => "test.c" }, doc! { "ns" => "test.d" }],
        "ordered" => false,
        "ops" => array![
            doc! { "insert" => 0, "document" => doc! { "_id" => 1 } },
            doc! { "insert" => 0, "document" => doc! { "_id" => 1 } },
            doc! { "insert" => 1, "document" => doc! { "_id" => 1, "a" => 1 } },
            doc! { "update" => 1, "filter" => doc! { "a" => 1 }, "updateMods" => doc! { "$inc" => doc! { "a" => 1 } } },
            doc! { "update" => 0, "filter" => doc! { "_id" => 5 }, "updateMods" => doc! { "a" => 1 }, "upsert" => true },
            doc! { "delete" => 1, "filter" => doc! {}, "multi" => true },
        ],
    });
    let counts = ["nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"];
    assert_eq!(counts.map(|name| number(&reply, name)), [1, 2, 1, 1, 1, 1], "{}", show(&reply));
    let rows = first_batch(&reply);
    assert_eq!(rows.iter().map(|row| number(row, "idx")).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(number(&rows[1], "code"), 11000);
    assert_eq!(client.on("test").all_ids("c"), [1, 5]);
    assert!(client.on("test").all_ids("d").is_empty());
    assert_eq!(client.on("test").fails(doc! { "bulkWrite" => 1 }), 13);
}

#[test]
fn a_cursor_closes_when_the_last_row_is_known() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..4).map(|n| doc! { "_id" => n }));
    let find = |filter: DocBuf, limit: i64, batch: i64, projection: DocBuf| {
        cursor_id(&client.ok(doc! {
            "find" => "c", "filter" => filter, "limit" => limit, "batchSize" => batch,
            "projection" => projection,
        })) == 0
    };
    let all = || doc! {};
    assert!(find(doc! { "_id" => 1 }, 0, 1, all()), "one document has this _id");
    assert!(find(doc! { "_id" => 1 }, 0, 1, doc! { "a" => 1 }), "so it is with a projection");
    assert!(find(all(), 2, 2, all()), "the limit is reached");
    assert!(!find(all(), 3, 2, all()), "one is missing");
    assert!(!find(all(), 0, 4, all()), "the plan has not searched behind the fourth row");
}

#[test]
fn an_awaited_batch_is_in_its_reply_once() {
    // One worker: if the getMore is listed, it waits.
    let test = TestServer::start_on(Arc::new(EphemeralEngine::new()), 1, &[]);
    let (client, other) = (test.client(), test.client());
    client.ok(doc! { "create" => "capped", "capped" => true, "size" => 4096 });
    other.insert("capped", [doc! { "_id" => 1 }]);
    let find = doc! { "find" => "capped", "tailable" => true, "awaitData" => true };
    let id = cursor_id(&client.ok(find));
    client.send(&doc! { "getMore" => id, "collection" => "capped" });
    until("the getMore waits", || {
        let running = other.admin().ok(doc! { "currentOp" => 1, "op" => "getmore" });
        let Value::Array(running) = running.as_doc().value("inprog") else { panic!("no inprog") };
        running.as_doc().first().is_some()
    });
    other.insert("capped", [doc! { "_id" => 2 }]);
    let reply = client.receive().expect("a reply");
    assert_eq!(code_of(&reply), 0, "{}", show(&reply));
    let names = reply.as_doc().iter().map(|e| e.key());
    assert_eq!(names.filter(|name| *name == "cursor").count(), 1, "{}", show(&reply));
    let cursor = at(&reply, "cursor");
    let Value::Array(batch) = cursor.as_doc().value("nextBatch") else { panic!("no batch") };
    let ids = batch.as_doc().iter().map(|e| number(&e.as_doc().unwrap().to_buf(), "_id"));
    assert_eq!(Vec::from_iter(ids), [2]);
}

#[test]
fn a_cursor_that_waits_is_woken_by_a_commit_a_drop_and_a_kill() {
    const LONG_MS: i64 = 3_600_000;
    // One worker: if the getMore is listed, it waits.
    let test = TestServer::start_on(Arc::new(EphemeralEngine::new()), 1, &[]);
    let (client, other) = (test.client(), test.client());
    let waiting = |name: &str| {
        client.ok(doc! { "create" => name, "capped" => true, "size" => 4096 });
        other.insert(name, [doc! { "_id" => 1 }]);
        let id = cursor_id(&client.ok(doc! {
            "find" => name, "tailable" => true, "awaitData" => true,
        }));
        client.send(&doc! { "getMore" => id, "collection" => name, "maxTimeMS" => LONG_MS });
        let mut opid = 0;
        until("it waits", || {
            let running = other.admin().ok(doc! { "currentOp" => 1, "op" => "getmore" });
            let running = running.as_doc().value("inprog").into_owned();
            let first = running.as_array().and_then(|all| all.first()?.as_doc());
            opid = first.map_or(0, |op| number(&op.to_buf(), "opid"));
            opid > 0
        });
        opid
    };
    waiting("committed");
    // Other collections do not affect it.
    other.insert("elsewhere", [doc! { "_id" => 1 }]);
    other.insert("committed", [doc! { "_id" => 2 }]);
    assert_eq!(code_of(&client.receive().expect("a reply")), 0);
    waiting("dropped");
    other.ok(doc! { "drop" => "dropped" });
    assert_eq!(code_of(&client.receive().expect("a reply")), 175);
    let opid = waiting("killed");
    other.admin().ok(doc! { "killOp" => 1, "op" => opid });
    assert_eq!(code_of(&client.receive().expect("a reply")), 11601);
}

#[test]
fn a_lookup_joins_with_inline_documents() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "v" => "a" }, doc! { "_id" => 2, "v" => "b" }]);
    let joined = |documents: DocBuf| {
        let pipeline = array![
            documents,
            doc! { "$match" => doc! { "n" => doc! { "$gt" => 5 } } },
            doc! { "$group" => doc! { "_id" => Value::Null, "n" => doc! { "$sum" => "$n" } } },
        ];
        let lookup = doc! { "localField" => "v", "foreignField" => "f", "as" => "j",
        "let" => doc! { "me" => "$_id" }, "pipeline" => pipeline };
        let reply = client.ok(doc! { "aggregate" => "c", "cursor" => doc! {},
        "pipeline" => array![doc! { "$lookup" => lookup }] });
        let sums = first_batch(&reply).into_iter().map(|row| {
            let sums = row.as_doc().value("j");
            let sum = sums.as_array().and_then(|sums| sums.first()?.as_doc());
            sum.map(|sum| number(&sum.to_buf(), "n"))
        });
        sums.collect::<Vec<_>>()
    };
    let written = |v: &str, n: DocBuf| doc! { "f" => v, "n" => n.as_doc().value("n") };
    let ten = || doc! { "n" => 10 };
    let documents = array![
        written("a", ten()),
        written("a", doc! { "n" => 7 }),
        written("b", doc! { "n" => 2 }),
        written("c", ten())
    ];
    assert_eq!(joined(doc! { "$documents" => documents }), [Some(17), None]);
    // With an expression that depends on the row.
    let own = doc! { "f" => "b", "n" => doc! { "$multiply" => array!["$$me", 10] } };
    let documents = array![written("a", ten()), own];
    assert_eq!(joined(doc! { "$documents" => documents }), [Some(10), Some(20)]);
}
