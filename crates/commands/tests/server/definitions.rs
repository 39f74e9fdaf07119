//! Creating, listing, changing, renaming and dropping collections, views and indexes.

use crate::common::{
    self, Client, START_MS, TestServer, at, code_of, first_batch, number, show, text,
};
use kauri_bson::{DocBuf, Value, array, doc};

fn names(client: &Client) -> Vec<String> {
    let reply = client.ok(doc! { "listCollections" => 1, "nameOnly" => true });
    let mut names: Vec<String> = first_batch(&reply).iter().map(|d| text(d, "name")).collect();
    names.sort();
    names
}

fn listed(client: &Client, name: &str) -> DocBuf {
    let reply = client.ok(doc! { "listCollections" => 1, "filter" => doc! { "name" => name } });
    let [only] = &first_batch(&reply)[..] else { panic!("{}", show(&reply)) };
    only.clone()
}

fn index(key: DocBuf, name: &str, extra: DocBuf) -> DocBuf {
    DocBuf::build(|w| {
        w.put("key", key);
        w.put("name", name);
        w.put_all(extra.as_doc());
    })
}

fn create_index(collection: &str, spec: DocBuf) -> DocBuf {
    doc! { "createIndexes" => collection, "indexes" => array![spec] }
}

#[test]
fn options_of_collections_are_kept_and_listed() {
    let test = TestServer::start();
    let client = test.client();
    let validator = doc! { "a" => doc! { "$type" => "int" } };
    client.ok(doc! { "create" => "plain" });
    client.ok(doc! { "create" => "capped", "capped" => true, "size" => 4096, "max" => 3 });
    client.ok(doc! { "create" => "checked", "validator" => validator.clone() });
    client.ok(doc! { "create" => "view", "viewOn" => "plain", "pipeline" => array![
        doc! { "$match" => doc! { "a" => 1 } }
    ] });
    client.insert("made", [doc! { "_id" => 1 }]);
    assert_eq!(names(&client), ["capped", "checked", "made", "plain", "system.views", "view"]);
    let capped = at(&listed(&client, "capped"), "options");
    assert_eq!((number(&capped, "size"), number(&capped, "max")), (4096, 3));
    assert_eq!(at(&at(&listed(&client, "checked"), "options"), "validator"), validator);
    assert_eq!(text(&listed(&client, "view"), "type"), "view");
    let info = at(&listed(&client, "plain"), "info");
    assert_eq!(info.as_doc().value("readOnly"), Value::Bool(false));
    // Creating the same collection again is no error; different options are.
    client.ok(doc! { "create" => "plain" });
    assert_eq!(client.fails(doc! { "create" => "plain", "capped" => true, "size" => 4096 }), 48);
    assert_eq!(
        client.fails(doc! { "create" => "view", "viewOn" => "x", "pipeline" => Value::array([]) }),
        48
    );
    assert_eq!(client.fails(doc! { "create" => "bad", "nonsense" => 1 }), 40415);
    assert_eq!(client.fails(doc! { "create" => "bad", "capped" => true }), 72);
    assert_eq!(client.fails(doc! { "create" => "" }), 73);
    assert_eq!(client.fails(doc! { "create" => "a$b" }), 73);
    assert_eq!(names(&client).len(), 6);
}

#[test]
fn a_capped_collection_keeps_its_limits() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c", "capped" => true, "size" => 1_000_000, "max" => 3 });
    client.ok(create_index("c", index(doc! { "a" => 1 }, "a", doc! {})));
    client.insert("c", (0..10).map(|n| doc! { "_id" => n, "a" => -n }));
    assert_eq!(client.all_ids("c"), [7, 8, 9]);
    assert_eq!(client.ids("c", doc! { "a" => doc! { "$gte" => -8 } }), [7, 8]);
    client.validate("c");
    client.ok(doc! { "collMod" => "c", "cappedMax" => 5 });
    client.insert("c", (10..20).map(|n| doc! { "_id" => n, "a" => -n }));
    assert_eq!(client.all_ids("c"), [15, 16, 17, 18, 19]);
}

#[test]
fn validators_are_enforced_and_can_be_changed() {
    let test = TestServer::start();
    let client = test.client();
    let validator = |kind: &'static str| doc! { "a" => doc! { "$type" => kind } };
    client.ok(doc! { "create" => "c", "validator" => validator("int") });
    let insert = |id: i32, a: Value<'static>| {
        let docs = array![doc! { "_id" => id, "a" => a }];
        let reply = client.ok(doc! { "insert" => "c", "documents" => docs });
        number(&reply, "n")
    };
    assert_eq!((insert(1, 1.into()), insert(2, "x".into())), (1, 0));
    client.ok(doc! { "collMod" => "c", "validator" => validator("string") });
    assert_eq!((insert(3, 1.into()), insert(4, "x".into())), (0, 1));
    client.ok(doc! { "collMod" => "c", "validationAction" => "warn" });
    assert_eq!(insert(5, 1.into()), 1);
    client.ok(doc! { "collMod" => "c", "validationAction" => "error", "validationLevel" => "off" });
    assert_eq!(insert(6, 1.into()), 1);
    assert_eq!(client.all_ids("c"), [1, 4, 5, 6]);
}

#[test]
fn indexes_are_made_once_and_conflict_by_name_and_key() {
    let test = TestServer::start();
    let client = test.client();
    let a = || index(doc! { "a" => 1 }, "a", doc! {});
    let reply = client.ok(create_index("c", a()));
    assert_eq!((number(&reply, "numIndexesBefore"), number(&reply, "numIndexesAfter")), (1, 2));
    assert_eq!(reply.as_doc().value("createdCollectionAutomatically"), Value::Bool(true));
    let reply = client.ok(create_index("c", a()));
    assert_eq!(text(&reply, "note"), "all indexes already exist");
    let same_name = index(doc! { "b" => 1 }, "a", doc! {});
    assert_eq!(client.fails(create_index("c", same_name)), 86);
    let same_key = index(doc! { "a" => 1 }, "other", doc! {});
    assert_eq!(client.fails(create_index("c", same_key)), 85);
    let unique = index(doc! { "a" => 1 }, "a", doc! { "unique" => true });
    assert_eq!(client.fails(create_index("c", unique)), 86);
    assert_eq!(client.fails(create_index("c", index(doc! {}, "none", doc! {}))), 67);
    assert_eq!(client.fails(create_index("c", index(doc! { "a" => 0 }, "zero", doc! {}))), 67);
    assert_eq!(client.fails(doc! { "createIndexes" => "c", "indexes" => Value::array([]) }), 2);
    assert_eq!(client.index_names("c"), ["_id_", "a"]);
}

#[test]
fn a_unique_index_is_not_made_over_duplicates_and_holds_afterwards() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "a" => 5 }, doc! { "_id" => 2, "a" => 5 }]);
    let unique = || index(doc! { "a" => 1 }, "a", doc! { "unique" => true });
    assert_eq!(client.fails(create_index("c", unique())), 11000);
    assert_eq!(client.index_names("c"), ["_id_"]);
    client.ok(doc! { "delete" => "c", "deletes" => array![doc! { "q" => doc! { "_id" => 2 }, "limit" => 1 }] });
    client.ok(create_index("c", unique()));
    let docs = array![doc! { "_id" => 3, "a" => 5 }, doc! { "_id" => 4, "a" => 6 }];
    let reply = client.ok(doc! { "insert" => "c", "documents" => docs, "ordered" => false });
    assert_eq!(number(&reply, "n"), 1);
    assert_eq!(client.all_ids("c"), [1, 4]);
    client.validate("c");
}

#[test]
fn indexes_are_dropped_by_name_key_list_and_all() {
    let test = TestServer::start();
    let client = test.client();
    let make = || {
        for field in ["a", "b", "d", "e"] {
            client.ok(create_index("c", index(doc! { field => 1 }, field, doc! {})));
        }
    };
    make();
    let drop = |what: Value<'static>| doc! { "dropIndexes" => "c", "index" => what };
    assert_eq!(number(&client.ok(drop("a".into())), "nIndexesWas"), 5);
    client.ok(drop(doc! { "b" => 1 }.into()));
    client.ok(drop(array!["d"]));
    assert_eq!(client.index_names("c"), ["_id_", "e"]);
    assert_eq!(client.fails(drop("a".into())), 27);
    assert_eq!(client.fails(drop("_id_".into())), 72);
    assert_eq!(client.fails(drop(doc! { "z" => 1 }.into())), 27);
    make();
    client.ok(drop("*".into()));
    assert_eq!(client.index_names("c"), ["_id_"]);
    assert_eq!(client.fails(doc! { "dropIndexes" => "absent", "index" => "a" }), 26);
}

#[test]
fn renaming_keeps_documents_and_indexes() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "a" => 1 }]);
    client.ok(create_index("c", index(doc! { "a" => 1 }, "a", doc! {})));
    client.insert("taken", [doc! { "_id" => 9 }]);
    let rename = |from: &str, to: &str, over: bool| {
        let reply = client.admin().run(&doc! {
            "renameCollection" => from, "to" => to, "dropTarget" => over,
        });
        code_of(&reply)
    };
    assert_eq!(rename("test.c", "test.taken", false), 48);
    assert_eq!(rename("test.absent", "test.x", false), 26);
    assert_eq!(rename("test.c", "test.c", false), 20);
    assert_eq!(rename("test.c", "test.taken", true), 0);
    assert_eq!(names(&client), ["taken"]);
    assert_eq!(client.all_ids("taken"), [1]);
    assert_eq!(client.index_names("taken"), ["_id_", "a"]);
    assert_eq!(rename("test.taken", "other.moved", false), 0);
    let other = client.on("other");
    assert_eq!(other.ids("moved", doc! { "a" => 1 }), [1]);
    assert_eq!(other.index_names("moved"), ["_id_", "a"]);
    other.validate("moved");
    assert_eq!(names(&client), Vec::<String>::new());
}

#[test]
fn a_dropped_collection_is_gone_and_its_name_free() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    client.ok(create_index("c", index(doc! { "a" => 1 }, "a", doc! { "unique" => true })));
    let reply = client.ok(doc! { "drop" => "c" });
    assert_eq!(number(&reply, "nIndexesWas"), 2);
    assert_eq!(client.all_ids("c"), []);
    client.insert("c", [doc! { "_id" => 1 }, doc! { "_id" => 2 }]);
    assert_eq!(client.index_names("c"), ["_id_"]);
    // An open cursor fails.
    let reply = client.ok(doc! { "find" => "c", "batchSize" => 1 });
    let id = number(&at(&reply, "cursor"), "id");
    client.ok(doc! { "dropDatabase" => 1 });
    assert_ne!(client.fails(doc! { "getMore" => id, "collection" => "c" }), 0);
    assert_eq!(names(&client), Vec::<String>::new());
    let databases = client.admin().ok(doc! { "listDatabases" => 1, "nameOnly" => true });
    let listed = databases.as_doc().value("databases");
    let text = kauri_bson::shell_value(&listed);
    assert!(!text.contains("test"), "{text}");
    client.ok(doc! { "dropDatabase" => 1 });
    client.ok(doc! { "drop" => "c" });
}

#[test]
fn a_view_reads_through_its_pipeline_and_takes_no_writes() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..6).map(|n| doc! { "_id" => n, "a" => n % 2 }));
    let even = array![doc! { "$match" => doc! { "a" => 0 } }];
    client.ok(doc! { "create" => "even", "viewOn" => "c", "pipeline" => even });
    let big = array![doc! { "$match" => doc! { "_id" => doc! { "$gt" => 1 } } }];
    client.ok(doc! { "create" => "both", "viewOn" => "even", "pipeline" => big });
    assert_eq!(client.all_ids("even"), [0, 2, 4]);
    assert_eq!(client.all_ids("both"), [2, 4]);
    assert_eq!(number(&client.ok(doc! { "count" => "both" }), "n"), 2);
    let reply = client.ok(doc! { "insert" => "even", "documents" => array![doc! {}] });
    assert!(show(&reply).contains("code: 166"), "{}", show(&reply));
    assert_eq!(client.fails(create_index("even", index(doc! { "a" => 1 }, "a", doc! {}))), 166);
    let cycle = doc! { "collMod" => "even", "viewOn" => "both", "pipeline" => Value::array([]) };
    assert_ne!(client.fails(cycle), 0);
    let odd = array![doc! { "$match" => doc! { "a" => 1 } }];
    client.ok(doc! { "collMod" => "even", "viewOn" => "c", "pipeline" => odd });
    assert_eq!(client.all_ids("both"), [3, 5]);
    client.ok(doc! { "drop" => "even" });
    assert_eq!(client.all_ids("both"), []);
}

/// `$$NOW` in a validator is the time of the write.
#[test]
fn a_validator_can_use_now() {
    let test = TestServer::start();
    let client = test.client();
    let is_past = doc! { "$expr" => doc! { "$lt" => array!["$at", "$$NOW"] } };
    client.ok(doc! { "create" => "c", "validator" => is_past });
    let document = |at_ms: i64| doc! { "_id" => at_ms, "at" => Value::DateTime(at_ms) };
    let refused = |command: DocBuf| {
        let reply = client.ok(command);
        let errors = reply.as_doc().value("writeErrors");
        let error = errors.as_array().and_then(|errors| errors.first()?.as_doc());
        number(&error.unwrap_or_else(|| panic!("{}", show(&reply))).to_buf(), "code")
    };
    let (past, future) = (START_MS - 1000, START_MS + 1000);
    let insert = |one: DocBuf| doc! { "insert" => "c", "documents" => array![one] };
    assert_eq!(number(&client.ok(insert(document(past))), "n"), 1);
    assert_eq!(refused(insert(document(future))), 121);
    let set = |to: i64, upsert: bool| {
        // The statement's variables do not reach the validator.
        let change = doc! { "q" => doc! { "_id" => if upsert { 7 } else { past } }, "upsert" => upsert,
        "u" => array![doc! { "$set" => doc! { "at" => "$$to" } }], "c" => doc! { "to" => Value::DateTime(to) } };
        doc! { "update" => "c", "updates" => array![change] }
    };
    for upsert in [false, true] {
        assert_eq!(refused(set(future, upsert)), 121);
        assert_eq!(number(&client.ok(set(past - 5, upsert)), "n"), 1);
    }
}

/// A long string beside a long array multiplies; so does an array in every index.
#[test]
fn the_keys_of_a_document_have_a_limit_in_number_and_in_bytes() {
    const CANNOT_BUILD_INDEX_KEYS: i64 = 201;
    let test = TestServer::start();
    let client = test.client();
    let index = |key: DocBuf, name: &str| doc! { "key" => key, "name" => name };
    let indexes = array![index(doc! { "s" => 1, "a" => 1 }, "s_a"), index(doc! { "n" => 1 }, "n"),];
    client.ok(doc! { "createIndexes" => "c", "indexes" => indexes });
    let numbers = |count: i32| Value::array((0..count).map(Value::Int32));
    let multiplied = |id: i32, bytes: usize| {
        doc! { "_id" => id, "s" => "x".repeat(bytes), "a" => numbers(400) }
    };
    let insert = |document: DocBuf| {
        let reply = client.run(&doc! { "insert" => "c", "documents" => array![document] });
        common::write_errors(&reply)
    };
    let refused = [(0, CANNOT_BUILD_INDEX_KEYS)];
    assert_eq!(insert(multiplied(1, 10_000)), []);
    assert_eq!(insert(multiplied(2, 100_000)), refused, "40 MB of keys of 100 KB");
    assert_eq!(insert(doc! { "_id" => 3, "n" => numbers(100_000) }), []);
    assert_eq!(insert(doc! { "_id" => 4, "n" => numbers(100_001) }), refused);
    let update = |id: i32, change: DocBuf| {
        let update = doc! { "q" => doc! { "_id" => id }, "u" => doc! { "$set" => change } };
        common::write_errors(&client.run(&doc! { "update" => "c", "updates" => array![update] }))
    };
    assert_eq!(update(1, doc! { "s" => "y".repeat(100_000) }), refused);
    assert_eq!(update(1, doc! { "s" => "y".repeat(1_000) }), []);
    // A document written under a larger limit remains and can be deleted.
    let limit = |keys: i32| {
        let set = doc! { "setParameter" => 1, "indexMaxNumGeneratedKeysPerDocument" => keys };
        client.admin().ok(set);
    };
    limit(100_001);
    assert_eq!(insert(doc! { "_id" => 5, "n" => numbers(100_001) }), []);
    limit(100_000);
    client.validate("c");
    assert_eq!(update(5, doc! { "x" => 1 }), refused);
    // The limit applies to a new index, too.
    let again = array![index(doc! { "n" => -1 }, "n_-1")];
    assert_eq!(
        client.fails(doc! { "createIndexes" => "c", "indexes" => again }),
        CANNOT_BUILD_INDEX_KEYS
    );
    let delete = array![doc! { "q" => doc! { "_id" => 5 }, "limit" => 1 }];
    client.ok(doc! { "delete" => "c", "deletes" => delete });
    client.validate("c");
    assert_eq!(client.all_ids("c"), [1, 3]);
}
