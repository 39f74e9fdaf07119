//! `aggregate` against a complete server: documents written by its stages, termination, and rejected stages.

use crate::common::{Client, TestServer, at, code_of, cursor_id, first_batch, number, show, until};
use kauri_bson::{DocBuf, Value, array, doc};
use std::time::Duration;

fn aggregate(collection: &str, stages: impl IntoIterator<Item = DocBuf>) -> DocBuf {
    let pipeline = Value::array(stages.into_iter().map(Value::from));
    doc! { "aggregate" => collection, "pipeline" => pipeline, "cursor" => doc! {} }
}

fn with(command: DocBuf, more: DocBuf) -> DocBuf {
    DocBuf::build(|w| {
        w.put_all(command.as_doc());
        w.put_all(more.as_doc());
    })
}

fn rows(
    client: &Client,
    collection: &str,
    stages: impl IntoIterator<Item = DocBuf>,
) -> Vec<DocBuf> {
    first_batch(&client.ok(aggregate(collection, stages)))
}

fn all(client: &Client, collection: &str) -> Vec<DocBuf> {
    rows(client, collection, [doc! { "$sort" => doc! { "_id" => 1 } }])
}

fn collections(client: &Client) -> Vec<String> {
    let reply = client.ok(doc! { "listCollections" => 1, "nameOnly" => true });
    let mut names: Vec<String> = first_batch(&reply)
        .iter()
        .map(|d| d.as_doc().value("name").as_str().unwrap_or_default().to_owned())
        .collect();
    names.sort();
    names
}

/// An expression that runs practically for ever.
fn endless() -> DocBuf {
    let range = |body: Value<'static>| {
        doc! { "$reduce" => doc! {
            "input" => doc! { "$range" => array![0, 1_000_000] },
            "initialValue" => 0,
            "in" => body,
        } }
    };
    doc! { "$project" => doc! { "x" => range(range(range(0.into()).into()).into()) } }
}

#[test]
fn an_endless_expression_ends_by_its_time_limit() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    client.send(&with(aggregate("c", [endless()]), doc! { "maxTimeMS" => 1000 }));
    let mut running = 0;
    until("the operation runs", || {
        running = 0;
        test.server.operations.for_each(|_| running += 1);
        running > 0
    });
    test.clock.advance(Duration::from_secs(2));
    let reply = client.receive().unwrap();
    assert_eq!(code_of(&reply), 50, "{}", show(&reply));
}

#[test]
fn an_endless_expression_can_be_killed() {
    let test = TestServer::start();
    // Connections go to the workers in turn.
    let (client, other) = (test.client(), test.client().admin());
    client.insert("c", [doc! { "_id" => 1 }]);
    other.ok(doc! { "ping" => 1 });
    client.send(&aggregate("c", [endless()]));
    let mut id = None;
    until("the operation is shown", || {
        let reply = other.ok(doc! { "currentOp" => 1, "ns" => "test.c" });
        let Value::Array(all) = reply.as_doc().value("inprog") else { return false };
        id = all.as_doc().first().and_then(|e| e.as_doc()?.value("opid").as_i64_exact());
        id.is_some()
    });
    other.ok(doc! { "killOp" => 1, "op" => id.unwrap() });
    let reply = client.receive().unwrap();
    assert_eq!(code_of(&reply), 11601, "{}", show(&reply));
}

#[test]
fn out_replaces_a_collection_or_keeps_it() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("from", (0..3000).map(|n| doc! { "_id" => n, "k" => n % 2500 }));
    client.insert("to", [doc! { "_id" => "old", "k" => "old" }]);
    let index = doc! { "key" => doc! { "k" => 1 }, "name" => "k_1", "unique" => true };
    client.ok(doc! { "createIndexes" => "to", "indexes" => array![index] });
    // The duplicate appears after thousands of writes.
    assert_eq!(client.fails(aggregate("from", [doc! { "$out" => "to" }])), 11000);
    assert_eq!(all(&client, "to"), [doc! { "_id" => "old", "k" => "old" }]);
    assert_eq!(collections(&client), ["from", "to"]);

    let some = doc! { "$match" => doc! { "_id" => doc! { "$lt" => 2500 } } };
    let reply = client.ok(aggregate("from", [some, doc! { "$out" => "to" }]));
    assert!(first_batch(&reply).is_empty() && cursor_id(&reply) == 0);
    assert_eq!(client.all_ids("to"), (0..2500).collect::<Vec<i64>>());
    assert_eq!(client.index_names("to"), ["_id_", "k_1"]);
    assert_eq!(collections(&client), ["from", "to"]);
    client.validate("to");

    // Onto itself, and into a new collection.
    let stages = [doc! { "$limit" => 2 }, doc! { "$out" => "to" }];
    client.ok(aggregate("to", stages));
    assert_eq!(client.all_ids("to").len(), 2);
    client.ok(aggregate("from", [doc! { "$out" => doc! { "db" => "other", "coll" => "new" } }]));
    assert_eq!(client.on("other").all_ids("new").len(), 3000);
    assert_eq!(
        client.fails(aggregate("from", [doc! { "$out" => "to" }, doc! { "$limit" => 1 }])),
        40601
    );
}

#[test]
fn merge_applies_its_actions_to_each_row() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("from", [doc! { "_id" => 1, "b" => 1, "a" => 2 }, doc! { "_id" => 2, "b" => 2 }]);
    let merge = |options: DocBuf| {
        client.run(&doc! { "drop" => "to" });
        client.insert("to", [doc! { "_id" => 1, "b" => 0, "c" => 0 }]);
        let merge = with(doc! { "into" => "to" }, options);
        let reply = client.run(&aggregate("from", [doc! { "$merge" => merge }]));
        (code_of(&reply), all(&client, "to"))
    };
    let two = doc! { "_id" => 2, "b" => 2 };
    let old = doc! { "_id" => 1, "b" => 0, "c" => 0 };
    let merged = doc! { "_id" => 1, "b" => 1, "c" => 0, "a" => 2 };
    let mode =
        |matched: &str, not: &str| doc! { "whenMatched" => matched, "whenNotMatched" => not };
    assert_eq!(merge(doc! {}), (0, vec![merged.clone(), two.clone()]));
    let replaced = doc! { "_id" => 1, "b" => 1, "a" => 2 };
    assert_eq!(merge(mode("replace", "insert")), (0, vec![replaced, two.clone()]));
    assert_eq!(merge(mode("keepExisting", "insert")), (0, vec![old.clone(), two.clone()]));
    // A failure for one row does not undo the writes of other rows.
    assert_eq!(merge(mode("fail", "insert")), (11000, vec![old.clone(), two.clone()]));
    assert_eq!(merge(mode("merge", "discard")), (0, vec![merged.clone()]));
    assert_eq!(merge(mode("merge", "fail")), (13113, vec![merged]));
    assert_eq!(merge(mode("keepExisting", "discard")), (51181, vec![old.clone()]));
    let pipeline = doc! {
        "let" => doc! { "more" => "$b" },
        "whenMatched" => array![doc! { "$set" => doc! {
            "c" => doc! { "$add" => array!["$c", "$$more", 10] }, "new" => "$$new.a" } }],
    };
    let changed = doc! { "_id" => 1, "b" => 0, "c" => 11, "new" => 2 };
    assert_eq!(merge(pipeline), (0, vec![changed, two]));
    let other_new = doc! { "let" => doc! { "new" => "$b" }, "whenMatched" => array![] };
    assert_eq!(merge(other_new).0, 51273);
    assert_eq!(merge(doc! { "on" => "b" }), (51183, vec![old]));
}

#[test]
fn merge_by_another_unique_field_keeps_ids() {
    let test = TestServer::start();
    let client = test.client();
    let index = doc! { "key" => doc! { "k" => 1 }, "name" => "k_1", "unique" => true };
    client.ok(doc! { "createIndexes" => "to", "indexes" => array![index] });
    client.insert("to", [doc! { "_id" => "kept", "k" => 1, "n" => 0 }]);
    client.insert("from", (0..6).map(|n| doc! { "_id" => n, "k" => n % 2, "n" => n }));
    let group = doc! { "$group" => doc! { "_id" => "$k", "n" => doc! { "$sum" => "$n" } } };
    let project = doc! { "$project" => doc! { "_id" => 0, "k" => "$_id", "n" => 1 } };
    let merge = doc! { "$merge" => doc! { "into" => "to", "on" => "k" } };
    client.ok(aggregate("from", [group, project, merge]));
    let found = rows(&client, "to", [doc! { "$sort" => doc! { "k" => 1 } }]);
    assert_eq!(found.iter().map(|d| number(d, "n")).collect::<Vec<_>>(), [6, 9]);
    assert_eq!(found[1], doc! { "_id" => "kept", "k" => 1, "n" => 9 });
}

#[test]
fn batches_are_as_large_as_asked_for() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..250).map(|n| doc! { "_id" => n }));
    let first = |cursor: DocBuf| {
        let command = doc! { "aggregate" => "c", "pipeline" => array![], "cursor" => cursor };
        let reply = client.ok(command);
        (first_batch(&reply).len(), cursor_id(&reply))
    };
    assert_eq!(first(doc! {}).0, 101);
    assert_eq!(first(doc! { "batchSize" => 249 }).0, 249);
    assert_eq!(first(doc! { "batchSize" => 1000 }), (250, 0));
    let (count, id) = first(doc! { "batchSize" => 0 });
    assert!(count == 0 && id != 0);
    let more = client.ok(doc! { "getMore" => id, "collection" => "c", "batchSize" => 7 });
    let batch = at(&more, "cursor").as_doc().value("nextBatch").into_owned();
    assert_eq!(batch.as_array().map(|items| items.count()), Some(7));
    let bad = |cursor: Value<'static>| {
        client.fails(doc! { "aggregate" => "c", "pipeline" => array![], "cursor" => cursor })
    };
    assert_eq!(bad(doc! { "batchSize" => -1 }.into()), 2);
    assert_eq!(bad(doc! { "batchSize" => "1" }.into()), 14);
    assert_eq!(bad(doc! { "size" => 1 }.into()), 40415);
    assert_eq!(bad(1.into()), 14);
    assert_eq!(client.fails(doc! { "aggregate" => "c", "pipeline" => array![] }), 9);
}

#[test]
fn accumulated_memory_is_bounded() {
    let test = TestServer::start();
    let client = test.client();
    let many = Value::array((0..200).map(Value::Int32));
    client.insert("c", [doc! { "_id" => 1, "n" => many, "pad" => "x".repeat(1_000_000) }]);
    let unwind = || doc! { "$unwind" => "$n" };
    let fails = |stage: DocBuf| {
        let in_memory = doc! { "allowDiskUse" => false };
        client.fails(with(aggregate("c", [unwind(), stage]), in_memory))
    };
    assert_eq!(fails(doc! { "$sort" => doc! { "n" => -1 } }), 292);
    let keys = doc! { "n" => "$n", "pad" => "$pad" };
    assert_eq!(fails(doc! { "$group" => doc! { "_id" => keys } }), 292);
    let auto = doc! { "groupBy" => "$n", "buckets" => 2, "output" => doc! { "p" => doc! { "$first" => "$pad" } } };
    assert_eq!(fails(doc! { "$bucketAuto" => auto }), 292);
    let push = doc! { "_id" => Value::Null, "all" => doc! { "$push" => "$pad" } };
    assert_eq!(fails(doc! { "$group" => push.clone() }), 146);
    // Spilling does not help a single group that is too large.
    assert_eq!(client.fails(aggregate("c", [unwind(), doc! { "$group" => push }])), 146);
    // Unread fields are not collected.
    let sorted = rows(
        &client,
        "c",
        [
            unwind(),
            doc! { "$sort" => doc! { "n" => -1 } },
            doc! { "$project" => doc! { "n" => 1 } },
        ],
    );
    assert_eq!(number(&sorted[0], "n"), 199);
}

#[test]
fn windows_by_range_and_by_documents() {
    let test = TestServer::start();
    let client = test.client();
    let day = |n: i64| Value::DateTime(n * 86_400_000);
    client.insert(
        "c",
        [(1, 1, 10), (2, 2, 10), (3, 2, 20), (4, 7, 5)].map(|(id, at, v)| {
            let v = if id == 3 { Value::Null } else { Value::Int32(v) };
            doc! { "_id" => id, "at" => at, "day" => day(at.into()), "v" => v }
        }),
    );
    let output = |function: DocBuf, sort: &str| {
        let stage = doc! { "sortBy" => doc! { sort => 1 }, "output" => doc! { "x" => function } };
        let order = doc! { "$sort" => doc! { "_id" => 1 } };
        let found = client.run(&aggregate("c", [doc! { "$setWindowFields" => stage }, order]));
        match code_of(&found) {
            0 => first_batch(&found).iter().map(|d| d.as_doc().value("x").into_owned()).collect(),
            code => vec![Value::from(code)],
        }
    };
    let sum = |window: DocBuf| doc! { "$sum" => "$_id", "window" => window };
    let ints = |list: [i32; 4]| list.map(Value::Int32);
    let range = |low: i32, high: i32| doc! { "range" => array![low, high] };
    assert_eq!(output(sum(range(-1, 0)), "at"), ints([1, 6, 6, 4]));
    assert_eq!(output(sum(range(1, 5)), "at"), ints([5, 4, 4, 0]));
    let days = doc! { "range" => array!["unbounded", -1], "unit" => "day" };
    assert_eq!(output(sum(days.clone()), "day"), ints([0, 1, 1, 6]));
    assert_eq!(output(sum(days), "at"), [Value::from(5429513i64)]);
    assert_eq!(output(sum(range(0, 1)), "day"), [Value::from(5429414i64)]);
    assert_eq!(output(sum(range(1, 0)), "at"), [Value::from(5339900i64)]);
    let place = |name: &str| output(doc! { name => doc! {} }, "at");
    assert_eq!(place("$rank"), ints([1, 2, 2, 4]));
    assert_eq!(place("$denseRank"), ints([1, 2, 2, 3]));
    assert_eq!(place("$documentNumber"), ints([1, 2, 3, 4]));
    let shift = doc! { "$shift" => doc! { "output" => "$_id", "by" => -1, "default" => 0 } };
    assert_eq!(output(shift, "at"), ints([0, 1, 2, 3]));
    assert_eq!(output(doc! { "$locf" => "$v" }, "_id"), ints([10, 10, 10, 5]));
    assert_eq!(output(doc! { "$nope" => "$v" }, "_id"), [Value::from(9i64)]);
}

#[test]
fn every_facet_sees_every_row() {
    let test = TestServer::start();
    let client = test.client();
    // More than the facets buffer at once.
    client.insert("c", (0..3000).map(|n| doc! { "_id" => n, "pad" => "x".repeat(1000) }));
    let count = || {
        array![
            doc! { "$match" => doc! { "pad" => doc! { "$gt" => "" } } },
            doc! { "$count" => "n" }
        ]
    };
    let sum = array![doc! { "$group" => doc! {
    "_id" => Value::Null, "n" => doc! { "$sum" => "$_id" }, "p" => doc! { "$max" => "$pad" } } }];
    let few = array![doc! { "$limit" => 2 }, doc! { "$project" => doc! { "pad" => 0 } }];
    let facets =
        doc! { "$facet" => doc! { "a" => count(), "few" => few, "sum" => sum, "b" => count() } };
    let found = rows(&client, "c", [facets, doc! { "$unset" => "sum.p" }]);
    let counted = || array![doc! { "n" => 3000 }];
    let sum = array![doc! { "_id" => Value::Null, "n" => 2999 * 1500 }];
    let few = array![doc! { "_id" => 0 }, doc! { "_id" => 1 }];
    assert_eq!(found, [doc! { "a" => counted(), "few" => few, "sum" => sum, "b" => counted() }]);
}

#[test]
fn views_are_read_like_collections() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..10).map(|n| doc! { "_id" => n, "even" => n % 2 == 0 }));
    let even = doc! { "$match" => doc! { "even" => true } };
    client.ok(doc! { "create" => "even", "viewOn" => "c", "pipeline" => array![even] });
    let large = doc! { "$match" => doc! { "_id" => doc! { "$gte" => 4 } } };
    client.ok(doc! { "create" => "large", "viewOn" => "even", "pipeline" => array![large] });
    let count = || doc! { "$count" => "n" };
    assert_eq!(rows(&client, "large", [count()]), [doc! { "n" => 3 }]);
    let union = doc! { "$unionWith" => doc! { "coll" => "large", "pipeline" => array![] } };
    assert_eq!(rows(&client, "even", [union, count()]), [doc! { "n" => 8 }]);
    let lookup = doc! { "$lookup" => doc! {
    "from" => "large", "localField" => "_id", "foreignField" => "_id", "as" => "found" } };
    let found = doc! { "$match" => doc! { "found" => doc! { "$ne" => array![] } } };
    assert_eq!(rows(&client, "c", [lookup, found, count()]), [doc! { "n" => 3 }]);
    assert_eq!(client.fails(aggregate("c", [doc! { "$out" => "even" }])), 166);
    assert_eq!(client.fails(aggregate("c", [doc! { "$merge" => "even" }])), 166);
}

#[test]
fn unknown_stages_and_options_are_refused() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let stage = |name: &str| client.fails(aggregate("c", [doc! { name => doc! {} }]));
    assert_eq!(stage("$nope"), 40324);
    assert_eq!(stage("$changeStream"), 40573);
    let options = |more: DocBuf| client.fails(with(aggregate("c", []), more));
    assert_eq!(options(doc! { "collation" => doc! { "locale" => "en" } }), 2);
    assert_eq!(options(doc! { "hint" => "nope" }), 2);
    assert_eq!(options(doc! { "hint" => 1 }), 9);
    assert_eq!(options(doc! { "nope" => 1 }), 40415);
    assert_eq!(options(doc! { "let" => doc! { "Bad" => 1 } }), 9);
    let linearizable = || doc! { "readConcern" => doc! { "level" => "linearizable" } };
    assert_eq!(options(linearizable()), 123);
    let out = with(aggregate("c", [doc! { "$out" => "to" }]), linearizable());
    assert_eq!(client.fails(out), 72);
    let text = doc! { "$match" => doc! { "$text" => doc! { "$search" => "x" } } };
    assert_eq!(client.fails(aggregate("c", [doc! { "$limit" => 1 }, text])), 17313);
    let api = doc! { "apiVersion" => "1", "apiStrict" => true };
    let strict = with(aggregate("c", [doc! { "$indexStats" => doc! {} }]), api);
    assert_eq!(client.fails(strict), 323);
}

#[test]
fn explain_reports_the_plan_and_each_stage() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..10).map(|n| doc! { "_id" => n, "tags" => array!["a", "b"] }));
    let filter = doc! { "$match" => doc! { "_id" => doc! { "$gt" => 3 } } };
    let unwind = doc! { "$unwind" => "$tags" };
    let group = doc! { "$group" => doc! { "_id" => "$tags" } };
    let command = with(aggregate("c", [filter, unwind, group]), doc! { "explain" => true });
    let reply = client.ok(command);
    let Value::Array(stages) = reply.as_doc().value("stages") else { panic!("{}", show(&reply)) };
    let stages = stages.as_doc();
    let names: Vec<&str> =
        stages.iter().map(|e| e.as_doc().unwrap().first().unwrap().key()).collect();
    assert_eq!(names, ["$cursor", "$unwind", "$group"]);
    let cursor = stages.first().unwrap().as_doc().unwrap().value("$cursor").into_owned();
    assert!(format!("{cursor:?}").contains("IXSCAN"), "{cursor:?}");
    // Explaining writes nothing.
    let out = with(aggregate("c", [doc! { "$out" => "to" }]), doc! { "explain" => true });
    client.ok(out);
    assert_eq!(collections(&client), ["c"]);
}
