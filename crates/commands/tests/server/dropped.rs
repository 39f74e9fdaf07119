//! Indexes and collections dropped while cursors read them. A cursor that has returned rows fails with
//! `QueryPlanKilled` and MongoDB's message. It never ends as if it were exhausted.

use crate::common::{Client, TestServer, at, code_of, cursor_id, first_batch, number, show, text};
use kauri_bson::{Doc, DocBuf, array, doc};

const KILLED: i64 = 175;
const NOT_FOUND: i64 = 43;

fn load(client: &Client, collection: &str) {
    client.insert(collection, (0..500).map(|i| doc! { "_id" => i, "a" => i % 10, "b" => i }));
    let index = doc! { "key" => doc! { "b" => 1 }, "name" => "b_1" };
    client.ok(doc! { "createIndexes" => collection, "indexes" => array![index] });
}

fn find(collection: &str, filter: DocBuf) -> DocBuf {
    doc! { "find" => collection, "filter" => filter, "batchSize" => 10 }
}

fn by_index() -> DocBuf {
    doc! { "b" => doc! { "$gte" => 0 } }
}

/// The next batch of a cursor fails with this error.
#[track_caller]
fn is_killed(client: &Client, reply: &DocBuf, collection: &str) -> String {
    let id = cursor_id(reply);
    assert_ne!(id, 0, "{}", show(reply));
    let get_more = doc! { "getMore" => id, "collection" => collection, "batchSize" => 1000 };
    let killed = client.run(&get_more);
    assert_eq!(code_of(&killed), KILLED, "{}", show(&killed));
    assert_eq!(client.fails(get_more), NOT_FOUND, "the cursor is gone");
    text(&killed, "errmsg")
}

#[test]
fn a_cursor_on_an_index_that_is_dropped_fails() {
    let test = TestServer::start();
    let client = test.client();
    load(&client, "c");
    let drops = [
        doc! { "dropIndexes" => "c", "index" => "b_1" },
        doc! { "dropIndexes" => "c", "index" => "*" },
        doc! { "reIndex" => "c" },
    ];
    for drop in drops {
        let index = doc! { "key" => doc! { "b" => 1 }, "name" => "b_1" };
        client.ok(doc! { "createIndexes" => "c", "indexes" => array![index] });
        let opened = client.ok(find("c", by_index()));
        assert_eq!(first_batch(&opened).len(), 10);
        let on_all = client.ok(find("c", doc! {}));
        client.ok(drop);
        let message = is_killed(&client, &opened, "c");
        assert_eq!(message, "query plan killed :: index 'b_1' dropped");
        // A cursor that does not use the index continues.
        let more = doc! { "getMore" => cursor_id(&on_all), "collection" => "c" };
        let rest = client.ok(more);
        let rest = at(&rest, "cursor").as_doc().value("nextBatch").as_array().unwrap().count();
        assert_eq!(rest, 490);
    }
}

#[test]
fn a_cursor_on_a_collection_that_is_dropped_or_renamed_fails() {
    let test = TestServer::start();
    let client = test.client();
    let renamed = |from: &str, to: &str| {
        doc! { "renameCollection" => format!("test.{from}"), "to" => format!("test.{to}"), "dropTarget" => true }
    };
    for name in ["dropped", "from", "target", "converted"] {
        load(&client, name);
    }
    load(&client, "other");
    let mut opened = Vec::new();
    for name in ["dropped", "from", "target", "converted"] {
        for filter in [doc! {}, by_index()] {
            opened.push((name, client.ok(find(name, filter))));
        }
    }
    client.ok(doc! { "drop" => "dropped" });
    load(&client, "dropped");
    client.admin().ok(renamed("other", "target"));
    client.admin().ok(renamed("from", "to"));
    client.ok(doc! { "convertToCapped" => "converted", "size" => 1_000_000 });
    for (name, reply) in opened {
        let message = is_killed(&client, &reply, name);
        let expected = match name {
            "from" => "collection renamed from 'test.from' to 'test.to'. UUID ",
            _ => "collection dropped. UUID ",
        };
        assert!(message.starts_with(expected), "{name}: {message}");
    }
}

#[test]
fn joined_collections_are_planned_again_after_a_drop() {
    let test = TestServer::start();
    let client = test.client();
    load(&client, "c");
    let lookup = doc! {
        "from" => "other", "localField" => "_id", "foreignField" => "b", "as" => "found",
    };
    let graph = doc! {
        "from" => "other", "startWith" => "$_id", "connectFromField" => "none",
        "connectToField" => "b", "as" => "found",
    };
    for stage in [doc! { "$lookup" => lookup }, doc! { "$graphLookup" => graph }] {
        let open = || {
            client.ok(doc! { "drop" => "other" });
            load(&client, "other");
            client.ok(doc! {
                "aggregate" => "c", "pipeline" => array![stage.clone()],
                "cursor" => doc! { "batchSize" => 2 },
            })
        };
        let found = |reply: &DocBuf| -> Vec<Option<usize>> {
            let cursor = at(reply, "cursor");
            let batch = cursor.as_doc().value("nextBatch");
            let count = |row: Doc<'_>| row.value("found").as_array().map(|found| found.count());
            batch.as_array().unwrap().iter().map(|e| count(e.as_doc().unwrap())).collect()
        };
        let more = |opened: &DocBuf| doc! { "getMore" => cursor_id(opened), "collection" => "c" };
        let opened = open();
        client.ok(doc! { "dropIndexes" => "other", "index" => "b_1" });
        assert_eq!(found(&client.ok(more(&opened))), vec![Some(1); 498]);
        // The next rows come from the new collection of this name.
        let opened = open();
        load(&client, "new");
        client.ok(doc! { "delete" => "new", "deletes" => array![
            doc! { "q" => doc! { "b" => doc! { "$gte" => 490 } }, "limit" => 0 },
        ] });
        let rename = doc! {
            "renameCollection" => "test.new", "to" => "test.other", "dropTarget" => true,
        };
        client.admin().ok(rename);
        let rows = found(&client.ok(more(&opened)));
        assert_eq!(rows.iter().filter(|found| **found == Some(0)).count(), 10);
        assert_eq!(rows.iter().filter(|found| **found == Some(1)).count(), 488);
    }
}

#[test]
fn a_union_resolves_its_name_when_it_starts() {
    let test = TestServer::start();
    let client = test.client();
    load(&client, "c");
    load(&client, "other");
    client.insert("new", (0..7).map(|i| doc! { "_id" => i, "b" => i, "new" => true }));
    let matching = doc! { "$match" => by_index() };
    let union = doc! { "coll" => "other", "pipeline" => array![matching] };
    let opened = client.ok(doc! {
        "aggregate" => "c", "pipeline" => array![doc! { "$unionWith" => union }],
        "cursor" => doc! { "batchSize" => 2 },
    });
    let rename =
        doc! { "renameCollection" => "test.new", "to" => "test.other", "dropTarget" => true };
    client.admin().ok(rename);
    let more = doc! { "getMore" => cursor_id(&opened), "collection" => "c" };
    let reply = client.ok(more);
    let cursor = at(&reply, "cursor");
    let batch = cursor.as_doc().value("nextBatch");
    let batch = batch.as_array().unwrap();
    assert_eq!(batch.count(), 498 + 7);
    assert_eq!(batch.iter().filter(|e| e.as_doc().unwrap().get("new").is_some()).count(), 7);
    // After the first rows a drop is an error.
    let union = doc! { "$unionWith" => doc! { "coll" => "other" } };
    let opened = client.ok(doc! {
        "aggregate" => "c", "cursor" => doc! { "batchSize" => 503 },
        "pipeline" => array![union],
    });
    client.ok(doc! { "drop" => "other" });
    // The scan's batch is buffered; the rows after it are not.
    let more = doc! { "getMore" => cursor_id(&opened), "collection" => "c" };
    assert_eq!(client.fails(more), KILLED);
}

#[test]
fn figures_of_a_collection_follow_its_name() {
    let test = TestServer::start();
    let client = test.client();
    load(&client, "c");
    let stats = client.ok(doc! { "collStats" => "c" });
    assert_eq!((number(&stats, "count"), number(&stats, "nindexes")), (500, 2));
    client.ok(doc! { "drop" => "c" });
    assert_eq!(number(&client.ok(doc! { "collStats" => "c" }), "count"), 0);
    assert_eq!(number(&client.ok(doc! { "dbStats" => 1 }), "objects"), 0);
}
