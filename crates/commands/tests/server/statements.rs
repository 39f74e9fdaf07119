//! Errors that fail a whole write command, errors that fail one statement, and write acknowledgement.

use crate::cold_disk::ColdEngine;
use crate::common::{Client, TestServer, at, number, show, write_errors};
use kauri_bson::{DocBuf, Value, array, doc};

fn update_of(statement: DocBuf) -> DocBuf {
    let good = doc! { "q" => doc! { "_id" => 1 }, "u" => doc! { "$inc" => doc! { "n" => 1 } } };
    doc! { "update" => "c", "updates" => array![good, statement], "ordered" => false }
}

fn delete_of(statement: DocBuf) -> DocBuf {
    let good = doc! { "q" => doc! { "_id" => 1 }, "limit" => 1 };
    doc! { "delete" => "c", "deletes" => array![good, statement], "ordered" => false }
}

fn document(client: &Client) -> String {
    let found = client.ok(doc! { "find" => "c", "filter" => doc! { "_id" => 1 } });
    show(&at(&found, "cursor"))
}

#[test]
fn a_statement_of_the_wrong_form_fails_its_command_before_anything_runs() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "n" => 0 }]);
    let before = document(&client);
    let (all, set) = (doc! {}, doc! { "$set" => doc! { "a" => 1 } });
    let update = |extra: DocBuf| {
        update_of(DocBuf::build(|statement| {
            statement.put("q", &all);
            statement.put("u", &set);
            statement.put_all(extra.as_doc());
        }))
    };
    let cases = [
        (update_of(doc! { "q" => 1, "u" => &set }), 14),
        (update_of(doc! { "q" => &all, "u" => 1 }), 9),
        (update_of(doc! { "u" => &set }), 40414),
        (update_of(doc! { "q" => &all }), 40414),
        (update(doc! { "multi" => "yes" }), 14),
        (update(doc! { "upsert" => "yes" }), 14),
        (update(doc! { "arrayFilters" => 1 }), 14),
        (update(doc! { "arrayFilters" => array![1] }), 14),
        (update(doc! { "hint" => 1 }), 9),
        (update(doc! { "collation" => 1 }), 14),
        (update(doc! { "sort" => 1 }), 14),
        (update(doc! { "c" => 1 }), 14),
        (update(doc! { "wrong" => 1 }), 40415),
        (delete_of(doc! { "q" => 1, "limit" => 0 }), 14),
        (delete_of(doc! { "limit" => 0 }), 40414),
        (delete_of(doc! { "q" => &all }), 40414),
        (delete_of(doc! { "q" => &all, "limit" => 2 }), 9),
        (delete_of(doc! { "q" => &all, "limit" => "1" }), 14),
        (delete_of(doc! { "q" => &all, "limit" => 0, "hint" => 1 }), 9),
        (delete_of(doc! { "q" => &all, "limit" => 0, "collation" => 1 }), 14),
        (delete_of(doc! { "q" => &all, "limit" => 0, "wrong" => 1 }), 40415),
    ];
    for (command, code) in cases {
        let shown = show(&command);
        assert_eq!(client.fails(command), code, "{shown}");
        assert_eq!(document(&client), before, "{shown}");
    }
}

#[test]
fn an_invalid_statement_fails_alone() {
    let test = TestServer::start();
    let client = test.client();
    let all = doc! {};
    let cases = [
        (update_of(doc! { "q" => doc! { "$wrong" => 1 }, "u" => &all }), 2),
        (update_of(doc! { "q" => &all, "u" => doc! { "$wrong" => doc! { "a" => 1 } } }), 9),
        (update_of(doc! { "q" => &all, "u" => doc! { "a" => 1 }, "multi" => true }), 9),
        (
            update_of(doc! { "q" => &all, "u" => doc! { "a" => 1 }, "c" => doc! { "x" => 1 } }),
            51198,
        ),
        (update_of(doc! { "q" => &all, "u" => &all, "hint" => "" }), 2),
        (update_of(doc! { "q" => &all, "u" => &all, "collation" => doc! { "locale" => "de" } }), 2),
        (delete_of(doc! { "q" => doc! { "$wrong" => 1 }, "limit" => 0 }), 2),
        (
            delete_of(doc! { "q" => &all, "limit" => 0, "collation" => doc! { "locale" => "de" } }),
            2,
        ),
        (delete_of(doc! { "q" => &all, "limit" => 0, "hint" => "none" }), 2),
    ];
    for (command, code) in cases {
        client.run(
            &doc! { "delete" => "c", "deletes" => array![doc! { "q" => &all, "limit" => 0 }] },
        );
        client.insert("c", [doc! { "_id" => 1, "n" => 0 }]);
        let reply = client.ok(command);
        assert_eq!(number(&reply, "n"), 1, "the other one ran: {}", show(&reply));
        let Value::Array(errors) = reply.as_doc().value("writeErrors") else {
            panic!("no error in {}", show(&reply));
        };
        let error = at(&errors.into_buf(), "0");
        assert_eq!(
            (number(&error, "index"), number(&error, "code")),
            (1, code),
            "{}",
            show(&error)
        );
    }
}

/// Inserts documents of these sizes, numbered from `first`. Returns the number inserted, and the positions and
/// codes of the failures.
fn insert_sizes(
    client: &Client,
    first: i32,
    sizes: &[usize],
    ordered: bool,
) -> (i64, Vec<(i64, i64)>) {
    let docs = (first..).zip(sizes).map(|(id, bytes)| {
        let padding = "x".repeat(*bytes);
        Value::from(doc! { "_id" => id, "x" => padding })
    });
    let docs = Value::array(docs);
    let reply = client.ok(doc! { "insert" => "c", "documents" => docs, "ordered" => ordered });
    (number(&reply, "n"), write_errors(&reply))
}

#[test]
fn documents_too_large_for_a_segment_fail_alone() {
    let disk = ColdEngine::open();
    let test = TestServer::start_on(disk.engine.clone(), 1, &[]);
    let client = test.client();
    let mut sizes = [10; 20];
    (sizes[7], sizes[12]) = (2 << 20, 2 << 20);
    assert_eq!(insert_sizes(&client, 100, &sizes, true), (7, vec![(7, 10334)]));
    assert_eq!(client.all_ids("c"), (100..107).collect::<Vec<_>>());
    assert_eq!(insert_sizes(&client, 200, &sizes, false), (18, vec![(7, 10334), (12, 10334)]));
    assert_eq!(client.ids("c", doc! { "_id" => doc! { "$gte" => 200 } }).len(), 18);
}

#[test]
fn a_full_log_reports_the_number_of_inserted_documents() {
    const OUT_OF_DISK_SPACE: i64 = 14031;
    let disk = ColdEngine::open_within(16 << 20);
    let test = TestServer::start_on(disk.engine.clone(), 1, &[]);
    let client = test.client();
    let (n, errors) = insert_sizes(&client, 0, &[10_000; 1500], true);
    assert!(n > 500, "{n}");
    assert_eq!(errors, [(n, OUT_OF_DISK_SPACE)]);
    assert_eq!(client.all_ids("c"), (0..n).collect::<Vec<_>>());
    let (n, errors) = insert_sizes(&client, 2000, &[10_000; 30], false);
    assert!(errors.len() > 10 && errors.iter().all(|(_, code)| *code == OUT_OF_DISK_SPACE));
    assert_eq!(n + errors.len() as i64, 30);
    assert_eq!(client.ids("c", doc! { "_id" => doc! { "$gte" => 2000 } }).len() as i64, n);
    client.ok(doc! { "delete" => "c", "deletes" => array![
        doc! { "q" => doc! { "_id" => doc! { "$lt" => 500 } }, "limit" => 0 }
    ] });
    assert_eq!(insert_sizes(&client, 3000, &[10_000; 100], true), (100, vec![]));
}

#[test]
fn a_journaled_write_gets_a_reply_even_with_w_0() {
    let test = TestServer::start();
    let client = test.client();
    let insert = |id: i32, concern: DocBuf| {
        let docs = array![doc! { "_id" => id }];
        client.ok(doc! { "insert" => "c", "documents" => docs, "writeConcern" => concern })
    };
    let silent = insert(1, doc! { "w" => 0 });
    assert!(matches!(silent.as_doc().value("n"), Value::Missing), "{}", show(&silent));
    let told = insert(2, doc! { "w" => 0, "j" => true });
    assert_eq!(number(&told, "n"), 1, "{}", show(&told));
}
