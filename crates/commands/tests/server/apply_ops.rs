//! `applyOps`: the effect of each kind of entry, entries applied repeatedly, and failures.

use crate::common::{Client, TestServer, at, code_of, first_batch, number, show, text, until};
use kauri_base::Timestamp;
use kauri_bson::{DocBuf, Value, array, doc};

const UUID: [u8; 16] = [1, 2, 3, 4, 5, 6, 0x47, 8, 0x89, 10, 11, 12, 13, 14, 15, 16];
const OTHER: [u8; 16] = [9, 2, 3, 4, 5, 6, 0x47, 8, 0x89, 10, 11, 12, 13, 14, 15, 16];

fn uuid(bytes: &'static [u8; 16]) -> Value<'static> {
    Value::Binary { subtype: 4, bytes: bytes.as_slice().into() }
}

fn op(kind: &str, object: DocBuf) -> DocBuf {
    doc! { "op" => kind, "ns" => "test.c", "o" => object }
}

fn command(object: DocBuf) -> DocBuf {
    doc! { "op" => "c", "ns" => "test.$cmd", "o" => object }
}

fn with(op: DocBuf, name: &str, value: impl Into<Value<'static>>) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(op.as_doc());
        out.put(name, value);
    })
}

fn update(id: i32, change: DocBuf) -> DocBuf {
    with(op("u", change), "o2", doc! { "_id" => id })
}

fn delta(id: i32, diff: DocBuf) -> DocBuf {
    update(id, doc! { "$v" => 2, "diff" => diff })
}

fn apply(client: &Client, ops: impl IntoIterator<Item = DocBuf>) -> DocBuf {
    let ops = Value::array(ops.into_iter().map(Value::from));
    client.admin().run(&doc! { "applyOps" => ops })
}

/// Checks the number of entries applied, their results, and the error code if an entry failed.
#[track_caller]
fn check(client: &Client, ops: impl IntoIterator<Item = DocBuf>, code: i64, results: &[bool]) {
    let reply = apply(client, ops);
    assert_eq!(code_of(&reply), code, "{}", show(&reply));
    assert_eq!(number(&reply, "applied"), results.len() as i64, "{}", show(&reply));
    let Value::Array(told) = reply.as_doc().value("results") else { panic!("{}", show(&reply)) };
    let told: Vec<bool> = told.as_doc().iter().map(|e| e.value().truthy()).collect();
    assert_eq!(told, results, "{}", show(&reply));
}

#[track_caller]
fn documents(client: &Client, collection: &str) -> Vec<String> {
    let reply = client.ok(doc! { "find" => collection, "sort" => doc! { "_id" => 1 } });
    first_batch(&reply).iter().map(show).collect()
}

#[track_caller]
fn one(client: &Client, id: i32) -> DocBuf {
    let reply = client.ok(doc! { "find" => "c", "filter" => doc! { "_id" => id } });
    first_batch(&reply).pop().unwrap()
}

fn collections(client: &Client) -> Vec<(String, DocBuf)> {
    let reply = client.ok(doc! { "listCollections" => 1 });
    let mut all: Vec<_> = first_batch(&reply).into_iter().map(|c| (text(&c, "name"), c)).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn names(client: &Client) -> Vec<String> {
    collections(client).into_iter().map(|(name, _)| name).collect()
}

#[track_caller]
fn uuid_of(client: &Client, collection: &str) -> Value<'static> {
    let found = collections(client).into_iter().find(|(name, _)| name == collection).unwrap();
    at(&found.1, "info").as_doc().value("uuid").into_owned()
}

#[test]
fn documents_are_inserted_changed_and_deleted() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c" });
    let noop = doc! { "op" => "n", "ns" => "", "o" => doc! { "msg" => "nothing" } };
    let empty = Timestamp { seconds: 0, increment: 0 };
    let ops = [
        noop.clone(),
        op("i", doc! { "_id" => 1, "a" => 1, "t" => empty }),
        op("i", doc! { "_id" => 2, "a" => 2 }),
        op("i", doc! { "_id" => 3, "a" => 3 }),
        update(2, doc! { "_id" => 2, "whole" => true }),
        delta(1, doc! { "d" => doc! { "a" => false }, "i" => doc! { "b" => 1 } }),
        op("d", doc! { "_id" => 3, "a" => "what else it says does not matter" }),
        op("d", doc! { "_id" => 4 }),
    ];
    // Entries without an effect are not counted.
    check(&client, ops, 0, &[true; 7]);
    let first = one(&client, 1);
    assert_eq!(first, doc! { "_id" => 1, "t" => empty, "b" => 1 }, "an empty timestamp stays");
    assert_eq!(documents(&client, "c")[1..], [show(&doc! { "_id" => 2, "whole" => true })]);
    check(&client, [], 0, &[]);
    check(&client, [noop], 0, &[]);
    let counters = at(&client.admin().ok(doc! { "serverStatus" => 1 }), "opcounters");
    let counted = ["insert", "update", "delete"].map(|name| number(&counters, name));
    assert_eq!(counted, [3, 2, 2]);
    client.validate("c");
}

#[test]
fn entries_may_be_applied_again() {
    let test = TestServer::start();
    let client = test.client();
    let create = with(command(doc! { "create" => "c" }), "ui", uuid(&UUID));
    let ops = || {
        [
            create.clone(),
            op("i", doc! { "_id" => 1, "$odd" => 1 }),
            op("i", doc! { "_id" => 1, "$odd" => 2 }),
            delta(1, doc! { "u" => doc! { "$odd" => 3 } }),
            command(doc! { "create" => "gone" }),
            command(doc! { "drop" => "gone" }),
            command(doc! { "drop" => "gone" }),
            with(command(doc! { "drop" => "gone" }), "ui", uuid(&OTHER)),
            command(doc! { "dropIndexes" => "c", "index" => "none" }),
            command(doc! { "collMod" => "none" }),
        ]
    };
    for _ in 0..2 {
        check(&client, ops(), 0, &[true; 10]);
        assert_eq!(one(&client, 1), doc! { "_id" => 1, "$odd" => 3 });
        assert_eq!(uuid_of(&client, "c"), uuid(&UUID));
    }
    assert_eq!(names(&client), ["c"]);
}

#[test]
fn a_collection_is_created_with_its_uuid_and_gets_its_name() {
    let test = TestServer::start();
    let client = test.client();
    let create = |name: &str, id| {
        let id_index = doc! { "v" => 2, "key" => doc! { "_id" => 1 }, "name" => "_id_" };
        let object =
            doc! { "create" => name, "capped" => true, "size" => 4096, "idIndex" => id_index };
        with(command(object), "ui", uuid(id))
    };
    check(&client, [create("c", &UUID)], 0, &[true]);
    assert_eq!(uuid_of(&client, "c"), uuid(&UUID));
    let options = at(&collections(&client)[0].1, "options");
    assert_eq!(options, doc! { "capped" => true, "size" => 4096 });
    client.insert("c", [doc! { "_id" => 1 }]);
    // A collection under another name is renamed.
    check(&client, [create("d", &UUID)], 0, &[true]);
    assert_eq!((names(&client), client.all_ids("d")), (vec!["d".to_owned()], vec![1]));
    // Another collection of the name is moved aside, with its documents.
    check(&client, [create("d", &OTHER)], 0, &[true]);
    let all = names(&client);
    assert_eq!((all.len(), all[0].as_str(), client.all_ids("d")), (2, "d", vec![]));
    assert!(all[1].starts_with("tmp") && all[1].ends_with(".create"), "{all:?}");
    assert_eq!((uuid_of(&client, &all[1]), client.all_ids(&all[1])), (uuid(&UUID), vec![1]));
    // Both: the collection with this name is moved aside, the one with the UUID gets its name.
    check(&client, [create("d", &UUID)], 0, &[true]);
    assert_eq!((uuid_of(&client, "d"), client.all_ids("d")), (uuid(&UUID), vec![1]));
    assert_eq!(names(&client).len(), 2);
    // A UUID belongs to a database.
    let elsewhere = DocBuf::build(|out| {
        out.put("op", "c");
        out.put("ns", "elsewhere.$cmd");
        out.put("ui", uuid(&UUID));
        out.put("o", doc! { "create" => "d" });
    });
    check(&client, [elsewhere], 40655, &[false]);
    let wrong = Value::Binary { subtype: 4, bytes: [0u8; 16].as_slice().to_vec().into() };
    check(&client, [with(command(doc! { "create" => "e" }), "ui", wrong)], 207, &[false]);
    // Without a UUID an existing collection stays.
    check(&client, [command(doc! { "create" => "d" })], 0, &[true]);
    assert_eq!(uuid_of(&client, "d"), uuid(&UUID));
    let view = doc! { "create" => "v", "viewOn" => "d", "pipeline" => array![] };
    check(&client, [command(view)], 0, &[true]);
    check(&client, [with(command(doc! { "create" => "v" }), "ui", uuid(&OTHER))], 0, &[true]);
    assert_eq!(client.all_ids("v"), [1]);
}

#[test]
fn commands_are_applied() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    client.insert("other", [doc! { "_id" => 2 }]);
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![
        doc! { "key" => doc! { "a" => 1 }, "name" => "a", "expireAfterSeconds" => 10 },
        doc! { "key" => doc! { "b" => 1 }, "name" => "b" },
    ] });
    let Value::Binary { bytes, .. } = uuid_of(&client, "c") else { panic!("no UUID") };
    let id = || Value::Binary { subtype: 4, bytes: bytes.to_vec().into() };
    let ops = [
        command(doc! { "dropIndexes" => "c", "index" => "b" }),
        command(
            doc! { "collMod" => "c", "index" => doc! { "name" => "a", "expireAfterSeconds" => 20 } },
        ),
        command(doc! { "collMod" => "c", "validator" => doc! { "x" => 1 } }),
        // The target is not the one to be dropped: it is moved aside.
        command(
            doc! { "renameCollection" => "test.c", "to" => "test.other", "dropTarget" => uuid(&OTHER) },
        ),
        // The UUID decides, whatever the name.
        with(command(doc! { "collMod" => "c", "validationLevel" => "off" }), "ui", id()),
        with(command(doc! { "renameCollection" => "test.x", "to" => "test.other" }), "ui", id()),
        command(doc! { "renameCollection" => "test.none", "to" => "test.more" }),
        command(doc! { "convertToCapped" => "none", "size" => 4096 }),
    ];
    check(&client, ops, 0, &[true; 8]);
    let all = names(&client);
    assert_eq!((all.len(), all[0].as_str(), client.all_ids("other")), (2, "other", vec![1]));
    assert_eq!(client.all_ids(&all[1]), [2], "what was in the way");
    assert_eq!(client.index_names("other"), ["_id_", "a"]);
    let index = first_batch(&client.ok(doc! { "listIndexes" => "other" })).pop().unwrap();
    assert_eq!(number(&index, "expireAfterSeconds"), 20);
    let options = at(&collections(&client)[0].1, "options");
    assert_eq!(text(&options, "validationLevel"), "off");
    check(&client, [with(command(doc! { "drop" => "x" }), "ui", id())], 0, &[true]);
    assert_eq!(names(&client).len(), 1);
    check(&client, [command(doc! { "dropDatabase" => 1 })], 0, &[true]);
    assert_eq!(names(&client).len(), 0);
}

#[test]
fn failed_entries_report_their_errors() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "a" => 1 }, doc! { "_id" => 2, "a" => 2 }]);
    let unique = doc! { "key" => doc! { "a" => 1 }, "name" => "a", "unique" => true };
    client.ok(doc! { "createIndexes" => "c", "indexes" => array![unique] });
    client.ok(doc! { "collMod" => "c", "validator" => doc! { "a" => doc! { "$gt" => 0 } } });
    client.ok(doc! { "create" => "v", "viewOn" => "c", "pipeline" => array![] });
    let insert = |id: i32, a: i32| op("i", doc! { "_id" => id, "a" => a });
    let on = |ns: &'static str| {
        doc! { "op" => "i", "ns" => ns, "o" => doc! { "_id" => 1 } }
    };
    // These failures do not stop the application of later entries.
    let replacement = update(9, doc! { "_id" => 9 });
    let missing = delta(9, doc! { "d" => doc! { "a" => false } });
    let of_other = with(insert(8, 8), "ui", uuid(&OTHER));
    let ops = [insert(9, 0), replacement, missing, of_other, insert(3, 3)];
    check(&client, ops, 8, &[false, false, false, false, true]);
    // These failures do, and the reply has the entry's own error.
    let new = || op("i", doc! { "_id" => 4, "a" => 4 });
    for (failing, code) in [
        (insert(5, 1), 11000),
        (op("i", doc! { "a" => 5 }), 4),
        (op("u", doc! { "_id" => 1 }), 4),
        (op("d", doc! { "a" => 1 }), 4),
        (update(1, doc! { "$set" => doc! { "a" => 7 } }), 4772600),
        (update(1, doc! { "$v" => 1, "$set" => doc! { "a" => 7 } }), 4772600),
        (update(1, doc! { "$v" => 2, "diff" => 1 }), 4772601),
        (delta(1, doc! { "u" => doc! { "a" => 0 } }), 121),
        (delta(1, doc! { "u" => doc! { "_id" => 9 } }), 66),
        (delta(1, doc! { "x" => doc! { "a" => 0 } }), 4770503),
        (on("test.none"), 26),
        (on("test.v"), 166),
        (op("x", doc! {}), 2),
        (with(new(), "h", 1i64), 40415),
        (with(new(), "b", 1), 14),
        (with(new(), "ui", "no UUID"), 14),
        (doc! { "op" => "i", "ns" => "test.c" }, 40414),
        (doc! { "op" => "i", "ns" => "test.c", "o" => "no document" }, 14),
        (command(doc! {}), 2),
        (command(doc! { "a" => 1 }), 2),
        (command(doc! { "create" => 1 }), 40073),
        (command(doc! { "create" => "d", "size" => 1 }), 72),
        (
            command(
                doc! { "createIndexes" => "c", "v" => 2, "key" => doc! { "b" => 1 }, "name" => "b" },
            ),
            115,
        ),
        (command(doc! { "commitIndexBuild" => "c" }), 115),
        (command(doc! { "commitTransaction" => 1 }), 50987),
        (command(doc! { "abortTransaction" => 1 }), 50972),
        (doc! { "op" => "c", "ns" => "test", "o" => doc! { "drop" => "c" } }, 73),
        (doc! { "op" => "c", "ns" => "test.v", "o" => doc! { "drop" => "c" } }, 166),
    ] {
        check(&client, [op("d", doc! { "_id" => 4 }), failing, new()], code, &[true, false]);
        assert_eq!(client.all_ids("c"), [1, 2, 3], "code {code}");
    }
    // An upsert succeeds without a document.
    check(&client, [with(update(6, doc! { "_id" => 6, "a" => 6 }), "b", true)], 0, &[true]);
    assert_eq!(client.all_ids("c"), [1, 2, 3, 6]);
    let lax = doc! { "applyOps" => array![insert(7, 0)], "bypassDocumentValidation" => true };
    client.admin().ok(lax);
    assert_eq!(client.all_ids("c"), [1, 2, 3, 6, 7]);
    client.validate("c");
}

#[test]
fn malformed_entries_fail_before_any_is_applied() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c" });
    let good = || op("i", doc! { "_id" => 1 });
    for (bad, code, message) in [
        (doc! { "ns" => "test.c" }, 20, "op does not contain required \"op\" field: 1"),
        (doc! { "op" => 1, "ns" => "test.c" }, 20, "\"op\" field is not a string: 1"),
        (doc! { "op" => "", "ns" => "test.c" }, 20, "\"op\" field value cannot be empty: 1"),
        (doc! { "op" => "i" }, 20, "op does not contain required \"ns\" field: 1"),
        (doc! { "op" => "i", "ns" => 1 }, 20, "\"ns\" field is not a string: 1"),
        (
            doc! { "op" => "i", "ns" => "" },
            20,
            "\"ns\" field value cannot be empty when op type is not 'n': 1",
        ),
        (
            command(doc! { "dropDatabase" => 1 }),
            6275900,
            "dropDatabase in an applyOps must be the only entry",
        ),
    ] {
        let reply = apply(&client, [good(), bad]);
        assert_eq!((code_of(&reply), text(&reply, "errmsg").as_str()), (code, message));
        assert!(reply.as_doc().get("results").is_none());
        assert_eq!(client.all_ids("c"), []);
    }
    let admin = client.admin();
    assert_eq!(admin.fails(doc! { "applyOps" => "no array" }), 9);
    assert_eq!(admin.fails(doc! { "applyOps" => array![1] }), 9);
    let with_option = |name: &str, value: Value<'static>| {
        admin.run(&DocBuf::build(|out| {
            out.put_value("applyOps", &array![good()]);
            out.put_value(name, &value);
        }))
    };
    let refused = with_option("preCondition", array![]);
    assert_eq!(code_of(&refused), 6711600);
    let message = text(&refused, "errmsg");
    assert!(message.starts_with("Failed to parse applyOps command: { applyOps: [ "), "{message}");
    let tail = ":: caused by :: applyOps command no longer supports the 'preCondition' option";
    assert!(message.ends_with(tail), "{message}");
    for (name, value, code) in [
        ("alwaysUpsert", true.into(), 6711601),
        ("prepare", true.into(), 2),
        ("partialTxn", true.into(), 31056),
        ("count", 1.into(), 31240),
        ("oplogApplicationMode", "Sideways".into(), 9),
        ("oplogApplicationMode", "Secondary".into(), 115),
        ("whatever", 1.into(), 40415),
    ] {
        assert_eq!(code_of(&with_option(name, value)), code, "{name}");
        assert_eq!(client.all_ids("c"), [], "{name}");
    }
    // The namespace of a document's entry is checked only when the entry is applied.
    let reply = apply(&client, [good(), doc! { "op" => "i", "ns" => "test", "o" => doc! {} }]);
    assert_eq!((code_of(&reply), text(&reply, "errmsg").as_str()), (73, "invalid ns: test"));
    assert_eq!(client.all_ids("c"), [1]);
    assert_eq!(code_of(&with_option("oplogApplicationMode", "ApplyOps".into())), 0);
}

#[test]
fn entries_nest_ten_deep() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c" });
    let nested = |inner: DocBuf| {
        doc! { "op" => "c", "ns" => "admin.$cmd", "o" => doc! { "applyOps" => array![inner] } }
    };
    let mut deep = op("i", doc! { "_id" => 1 });
    for _ in 0..10 {
        deep = nested(deep);
    }
    check(&client, [deep.clone(), op("i", doc! { "_id" => 2 })], 0, &[true, true]);
    assert_eq!(client.all_ids("c"), [1, 2]);
    let reply = apply(&client, [nested(deep)]);
    let told = (code_of(&reply), text(&reply, "errmsg"));
    assert_eq!(told, (9, "Too many nested applyOps".to_owned()));
    let reply = apply(&client, [nested(command(doc! { "dropDatabase" => 1 }))]);
    assert_eq!(code_of(&reply), 9585500);
    // A failed inner entry fails the outer entry.
    let failing = nested(update(9, doc! { "_id" => 9 }));
    check(
        &client,
        [op("i", doc! { "_id" => 3 }), failing, op("i", doc! { "_id" => 4 })],
        8,
        &[true, false],
    );
    assert_eq!(client.all_ids("c"), [1, 2, 3]);
    check(&client, [nested(op("x", doc! {}))], 2, &[false]);
}

#[test]
fn a_locked_server_applies_nothing_until_it_is_unlocked() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c" });
    client.admin().ok(doc! { "fsync" => 1, "lock" => true });
    let other = test.client();
    other.admin().send(&doc! { "applyOps" => array![op("i", doc! { "_id" => 1 })] });
    until("the collection exists", || {
        let running = client
            .admin()
            .ok(doc! { "currentOp" => 1, "command.applyOps" => doc! { "$exists" => true } });
        matches!(running.as_doc().value("inprog"), Value::Array(ops) if !ops.as_doc().is_empty())
    });
    assert_eq!(client.all_ids("c"), []);
    client.admin().ok(doc! { "fsyncUnlock" => 1 });
    assert_eq!(code_of(&other.receive().unwrap()), 0);
    assert_eq!(client.all_ids("c"), [1]);
}

#[cfg(feature = "lock-experiment")]
#[test]
fn apply_ops_takes_the_global_lock_once() {
    let engine = std::sync::Arc::new(kauri_storage::ephemeral::EphemeralEngine::new());
    let test = TestServer::start_on(engine, 2, &[("lockGranularity", "collection")]);
    let client = test.client();
    let locks = || at(&client.admin().ok(doc! { "serverStatus" => 1 }), "locks");
    let alone = || number(&at(&at(&locks(), "Global"), "acquireCount"), "W");
    let before = alone();
    let ops = [
        command(doc! { "create" => "c" }),
        op("i", doc! { "_id" => 1 }),
        command(doc! { "renameCollection" => "test.c", "to" => "test.d" }),
        command(doc! { "drop" => "d" }),
    ];
    check(&client, ops, 0, &[true; 4]);
    assert_eq!(alone() - before, 1);
}

#[test]
fn system_collections_are_neither_created_nor_moved_aside() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "x" });
    client.ok(doc! { "profile" => 2 });
    let x = uuid_of(&client, "x");
    let profile = uuid_of(&client, "system.profile");
    client.ok(doc! { "profile" => 0 });
    let create = |name: &str, uuid: &Value<'static>| {
        with(command(doc! { "create" => name }), "ui", uuid.clone())
    };
    for (name, of, code) in [
        ("system.views", &x, 73),
        ("a$b", &x, 73),
        ("$cmd", &x, 73),
        // The collection exists; it is neither moved aside nor renamed.
        ("system.profile", &x, 20),
        ("y", &profile, 20),
    ] {
        let before = names(&client);
        check(&client, [create(name, of)], code, &[false]);
        assert_eq!(names(&client), before, "{name}");
    }
}

#[test]
fn a_rename_of_a_missing_collection_keeps_the_target() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("y", [doc! { "_id" => 1 }]);
    let of_target = uuid_of(&client, "y");
    for drop_target in [true.into(), uuid(&UUID), of_target.clone()] {
        let rename = doc! { "renameCollection" => "test.none", "to" => "test.y", "dropTarget" => drop_target };
        let by_uuid = with(command(rename.clone()), "ui", uuid(&OTHER));
        check(&client, [command(rename), by_uuid], 0, &[true; 2]);
        assert_eq!((names(&client), client.all_ids("y")), (vec!["y".to_owned()], vec![1]));
    }
    assert_eq!(uuid_of(&client, "y"), of_target);
}

/// A concurrent rename: the collection with the UUID is dropped, whatever its name, and no other.
#[test]
fn a_drop_by_uuid_follows_concurrent_renames() {
    const ROUNDS: usize = 1_600;
    let test = TestServer::start();
    let (client, renaming) = (test.client(), test.client().admin());
    for round in 0..ROUNDS {
        client.insert("a", [doc! { "_id" => 1 }]);
        client.insert("x", [doc! { "_id" => 2 }]);
        let a = uuid_of(&client, "a");
        // Another collection takes its name, or it is renamed.
        let (is_replaced, by_entry) = (round % 2 == 0, round % 4 < 2);
        let rename = if is_replaced {
            doc! { "renameCollection" => "test.x", "to" => "test.a", "dropTarget" => true }
        } else {
            doc! { "renameCollection" => "test.a", "to" => "test.b" }
        };
        renaming.send(&rename);
        if by_entry {
            check(&client, [with(command(doc! { "drop" => "a" }), "ui", a)], 0, &[true]);
        } else {
            let drop = doc! { "drop" => "a", "collectionUUID" => a.clone() };
            let code = code_of(&client.run(&drop));
            assert!(matches!(code, 0 | 361), "{code}");
        }
        let code = code_of(&renaming.receive().unwrap());
        assert!(matches!(code, 0 | 26), "{code}");
        let stays = if is_replaced { "a" } else { "x" };
        assert_eq!(client.all_ids(stays), [2], "round {round}");
        let left = names(&client);
        assert!(left == [stays] || !is_replaced && !by_entry, "round {round}: {left:?}");
        for name in left {
            client.ok(doc! { "drop" => name });
        }
    }
}

#[test]
fn duplicate_fields_of_an_entry_are_refused() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c" });
    let twice = with(op("i", doc! { "_id" => 1 }), "op", "c");
    check(&client, [twice], 40413, &[false]);
    client.ok(doc! { "insert" => "c", "documents" => array![doc! { "_id" => 1, "x" => 0 }] });
    for diff in [
        doc! { "u" => doc! { "x" => 1 }, "i" => doc! { "x" => 2 } },
        doc! { "u" => doc! { "x" => 1 }, "sx" => doc! { "u" => doc! { "y" => 1 } } },
    ] {
        check(&client, [delta(1, diff)], 4_728_000, &[false]);
    }
    check(&client, [delta(1, doc! { "i" => doc! { "_id" => 1 } })], 66, &[false]);
    assert_eq!(show(&one(&client, 1)), show(&doc! { "_id" => 1, "x" => 0 }));
}

#[test]
fn a_collection_is_dropped_by_its_uuid() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "c" });
    client.ok(doc! { "create" => "b" });
    let c = uuid_of(&client, "c");
    // The entry names another collection.
    check(&client, [with(command(doc! { "drop" => "b" }), "ui", c)], 0, &[true]);
    assert_eq!(names(&client), ["b"]);
}

/// The target becomes another collection before the rename: the new target is moved aside, not dropped.
#[test]
fn a_rename_drops_only_the_target_with_the_uuid() {
    const ROUNDS: usize = 1_200;
    let test = TestServer::start();
    let (client, renaming) = (test.client(), test.client().admin());
    for round in 0..ROUNDS {
        for (name, id) in [("a", 1), ("x", 2), ("z", 3)] {
            client.insert(name, [doc! { "_id" => id }]);
        }
        let (a, z) = (uuid_of(&client, "a"), uuid_of(&client, "z"));
        let over = |from: &str, drop_target: Value<'static>| {
            doc! { "renameCollection" => from, "to" => "test.z", "dropTarget" => drop_target }
        };
        renaming.send(&over("test.x", true.into()));
        let entry = with(command(over("test.a", z)), "ui", a);
        check(&client, [entry], 0, &[true]);
        assert_eq!(code_of(&renaming.receive().unwrap()), 0);
        let left = names(&client);
        let ids: Vec<i64> = left.iter().flat_map(|name| client.all_ids(name)).collect();
        assert!(ids.contains(&2) && !ids.contains(&3), "round {round}: {ids:?} in {left:?}");
        for name in left {
            client.ok(doc! { "drop" => name });
        }
    }
}
