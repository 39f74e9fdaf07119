//! What fails a whole write command and what only one of its statements, and what is acknowledged.

use crate::common::{Client, TestServer, at, number, show};
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
fn what_a_statement_says_fails_that_statement_alone() {
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

#[test]
fn who_wants_the_journal_is_answered_whatever_else_he_wants() {
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
