//! The fields of `findAndModify`: each field has its effect, and contradictory fields are rejected.

use crate::common::{Client, TestServer, at, code_of, number, show};
use kauri_bson::{DocBuf, Value, array, doc};

/// The command with these fields.
fn command(fields: &DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put("findAndModify", "c");
        for elem in fields.as_doc() {
            out.put_value(elem.key(), &elem.value());
        }
    })
}

fn filled(test: &TestServer) -> Client {
    let client = test.client();
    let doc = |i: i32| doc! { "_id" => i, "a" => i % 2, "b" => array![i, 10 * i] };
    client.insert("c", (1..=6).map(doc));
    client
}

#[test]
fn contradictions_are_refused() {
    let test = TestServer::start();
    let client = filled(&test);
    let set = || doc! { "$set" => doc! { "a" => 9 } };
    let filters = || array![doc! { "x" => 1 }];
    for (fields, expected) in [
        (doc! { "query" => doc! {} }, "Either an update or remove=true"),
        (doc! { "update" => set(), "remove" => true }, "both an update and remove=true"),
        (doc! { "upsert" => true, "remove" => true }, "both upsert=true and remove=true"),
        (doc! { "new" => true, "remove" => true }, "both new=true and remove=true"),
        (doc! { "arrayFilters" => filters(), "remove" => true }, "arrayFilters and remove=true"),
        (doc! { "update" => set(), "hint" => Value::Null }, "Hint must be a string"),
        (doc! { "update" => set(), "hint" => 1 }, "Hint must be a string"),
    ] {
        let reply = client.run(&command(&fields));
        assert_eq!(code_of(&reply), 9, "{}", show(&reply));
        assert!(show(&reply).contains(expected), "{}", show(&reply));
    }
    assert_eq!(client.ids("c", doc! { "a" => 9 }), [] as [i64; 0]);
    assert_eq!(client.all_ids("c").len(), 6);
}

#[test]
fn each_field_has_its_effect() {
    let test = TestServer::start();
    let client = filled(&test);
    let value = |fields: DocBuf| at(&client.ok(command(&fields)), "value");
    let got = value(doc! {
        "query" => doc! { "$expr" => doc! { "$eq" => array!["$a", "$$odd"] } },
        "let" => doc! { "odd" => 1 },
        "sort" => doc! { "_id" => -1 },
        "update" => doc! { "$set" => doc! { "b.$[large]" => 7, "c" => 1 } },
        "arrayFilters" => array![doc! { "large" => doc! { "$gt" => 40 } }],
        "hint" => "_id_",
        "new" => true,
        "fields" => doc! { "b" => 1 },
    });
    assert_eq!(got, doc! { "_id" => 5, "b" => array![5, 7] });
    let got = value(doc! {
        "query" => doc! { "_id" => 5 }, "update" => doc! { "$set" => doc! { "c" => 2 } },
    });
    assert_eq!(number(&got, "c"), 1, "what was there before");
    let got = value(doc! { "sort" => doc! { "$natural" => -1 }, "remove" => true });
    assert_eq!(number(&got, "_id"), 6);
    let upsert = doc! {
        "query" => doc! { "_id" => 8 }, "update" => doc! { "a" => 8 }, "upsert" => true,
    };
    client.ok(command(&upsert));
    assert_eq!(client.all_ids("c"), [1, 2, 3, 4, 5, 8]);
}

#[test]
fn validation_is_bypassed_on_request() {
    let test = TestServer::start();
    let client = filled(&test);
    let validator = doc! { "a" => doc! { "$lt" => 5 } };
    client.ok(doc! { "collMod" => "c", "validator" => validator });
    let update = |bypass: bool| {
        command(&doc! {
            "query" => doc! { "_id" => 1 },
            "update" => doc! { "$set" => doc! { "a" => 9 } },
            "bypassDocumentValidation" => bypass,
        })
    };
    assert_eq!(client.fails(update(false)), 121);
    client.ok(update(true));
    assert_eq!(client.ids("c", doc! { "a" => 9 }), [1]);
}
