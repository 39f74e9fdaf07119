//! `bypassEmptyTsReplacement`: write commands that keep empty timestamps instead of the server's time.

use crate::common::{Client, TestServer, at, first_batch, number, show, write_errors};
use kauri_base::Timestamp;
use kauri_bson::{DocBuf, Value, array, doc};

const EMPTY: Timestamp = Timestamp { seconds: 0, increment: 0 };

fn with_timestamps(id: i32) -> DocBuf {
    doc! { "_id" => id, "t" => EMPTY, "in" => doc! { "t" => EMPTY } }
}

/// Fails unless the top-level timestamp is empty or not, as expected. The timestamp of the embedded document is
/// always empty.
#[track_caller]
fn check(client: &Client, collection: &str, id: i32, stays_empty: bool) {
    let filter = doc! { "_id" => id };
    let found = client.ok(doc! { "find" => collection, "filter" => filter });
    let found = first_batch(&found).pop().unwrap();
    let is_empty = |doc: &DocBuf| doc.as_doc().value("t") == Value::Timestamp(EMPTY);
    assert_eq!(is_empty(&found), stays_empty, "{}", show(&found));
    assert!(is_empty(&at(&found, "in")), "{}", show(&found));
}

/// The command with `bypassEmptyTsReplacement` true, false or absent.
fn told(command: &DocBuf, bypass: Option<bool>) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(command.as_doc());
        if let Some(bypass) = bypass {
            out.put("bypassEmptyTsReplacement", bypass);
        }
    })
}

#[test]
fn a_write_with_the_bypass_keeps_empty_timestamps() {
    let test = TestServer::start();
    let client = test.client();
    for bypass in [Some(true), Some(false), None] {
        let stays = bypass == Some(true);
        client.run(&doc! { "drop" => "c" });
        client
            .ok(told(&doc! { "insert" => "c", "documents" => array![with_timestamps(1)] }, bypass));
        check(&client, "c", 1, stays);
        client.insert("c", [doc! { "_id" => 2 }, doc! { "_id" => 4 }]);
        let replace = |id: i32| doc! { "q" => doc! { "_id" => id }, "u" => with_timestamps(id) };
        let reply =
            client.ok(told(&doc! { "update" => "c", "updates" => array![replace(2)] }, bypass));
        assert_eq!(number(&reply, "nModified"), 1);
        check(&client, "c", 2, stays);
        let upsert =
            doc! { "q" => doc! { "_id" => 3 }, "u" => with_timestamps(3), "upsert" => true };
        client.ok(told(&doc! { "update" => "c", "updates" => array![upsert] }, bypass));
        check(&client, "c", 3, stays);
        let modify = |id: i32| {
            doc! { "findAndModify" => "c", "query" => doc! { "_id" => id },
            "update" => with_timestamps(id), "upsert" => true }
        };
        for id in [4, 5] {
            client.ok(told(&modify(id), bypass));
            check(&client, "c", id, stays);
        }
    }
}

#[test]
fn bulk_writes_and_pipelines_that_write_bypass_the_replacement_too() {
    let test = TestServer::start();
    let client = test.client();
    for bypass in [Some(true), Some(false), None] {
        let stays = bypass == Some(true);
        client.run(&doc! { "drop" => "c" });
        let ops = array![
            doc! { "insert" => 0, "document" => with_timestamps(1) },
            doc! { "update" => 0, "filter" => doc! { "_id" => 2 }, "updateMods" => with_timestamps(2),
            "upsert" => true },
        ];
        let bulk =
            doc! { "bulkWrite" => 1, "ops" => ops, "nsInfo" => array![doc! { "ns" => "test.c" }] };
        client.admin().ok(told(&bulk, bypass));
        check(&client, "c", 1, stays);
        check(&client, "c", 2, stays);
        for (target, last) in [
            ("out", doc! { "$out" => "out" }),
            (
                "merged",
                doc! { "$merge" => doc! { "into" => "merged", "whenMatched" => "replace" } },
            ),
        ] {
            client.run(&doc! { "drop" => target });
            let rows = doc! { "$documents" => array![with_timestamps(1)] };
            let pipeline = doc! { "aggregate" => 1, "pipeline" => array![rows, last],
            "cursor" => doc! {} };
            client.ok(told(&pipeline, bypass));
            check(&client, target, 1, stays);
        }
    }
}

#[test]
fn a_copy_keeps_empty_timestamps() {
    let test = TestServer::start();
    let client = test.client();
    let insert = doc! { "insert" => "c", "documents" => array![with_timestamps(1)] };
    client.ok(told(&insert, Some(true)));
    client
        .ok(doc! { "cloneCollectionAsCapped" => "c", "toCollection" => "copy", "size" => 10_000 });
    check(&client, "copy", 1, true);
}

#[test]
fn the_replacement_is_bypassed_by_a_boolean_only() {
    let test = TestServer::start();
    let client = test.client();
    let update = doc! { "q" => doc! {}, "u" => doc! { "a" => 1 } };
    for command in [
        doc! { "insert" => "c", "documents" => array![doc! {}] },
        doc! { "update" => "c", "updates" => array![update] },
        doc! { "findAndModify" => "c", "update" => doc! { "a" => 1 } },
        doc! { "aggregate" => "c", "pipeline" => array![], "cursor" => doc! {} },
    ] {
        let wrong = DocBuf::build(|out| {
            out.put_all(command.as_doc());
            out.put("bypassEmptyTsReplacement", "yes");
        });
        assert_eq!(client.fails(wrong), 14);
    }
}

#[test]
fn a_delete_takes_the_flags_of_other_writes() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let reply = client.ok(doc! {
        "delete" => "c", "deletes" => array![doc! { "q" => doc! {}, "limit" => 0 }],
        "bypassDocumentValidation" => true, "bypassEmptyTsReplacement" => false,
    });
    assert_eq!((number(&reply, "n"), write_errors(&reply)), (1, vec![]));
}
