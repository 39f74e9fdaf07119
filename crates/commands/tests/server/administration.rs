//! Administration commands that a standalone server answers or rejects: background compaction,
//! encrypted collections, options of other commands.

use crate::common::{Client, TestServer, at, first_batch, number, refusal, show};
use kauri_bson::{Decimal128, DocBuf, Value, array, doc};

#[test]
fn background_compaction_is_configured_once() {
    let test = TestServer::start();
    let admin = test.client().admin();
    let enable =
        |target: Value<'static>| doc! { "autoCompact" => true, "freeSpaceTargetMB" => target };
    let disable = || drop(admin.ok(doc! { "autoCompact" => false }));
    disable();
    admin.ok(doc! { "autoCompact" => true });
    // The default is 20, and a configuration that is the same changes nothing.
    admin.ok(enable(Value::Int32(20)));
    assert_eq!(admin.fails(enable(Value::Int32(30))), 23);
    assert_eq!(admin.fails(doc! { "autoCompact" => true, "runOnce" => true }), 23);
    disable();
    let once = doc! { "autoCompact" => true, "runOnce" => true, "freeSpaceTargetMB" => 5 };
    admin.ok(once);
    admin.ok(enable(Value::Int32(30)));
    disable();
    let decimal = |text: &str| Value::Decimal128(Decimal128::parse(text).unwrap());
    let most = i64::MAX >> 20;
    for good in [Value::Double(1.5), decimal("1.5"), Value::Null, Value::Int64(most)] {
        admin.ok(enable(good));
        disable();
    }
    let bad = [
        Value::Int32(0),
        Value::Double(0.99),
        decimal("0.5"),
        Value::Double(f64::NAN),
        Value::Double(f64::NEG_INFINITY),
        Value::Int64(most + 1),
        Value::Double(f64::INFINITY),
    ];
    for bad in bad {
        assert_eq!(admin.fails(enable(bad.clone())), 2, "{bad:?}");
    }
    let words = refusal(&admin, enable(Value::Int32(0))).1;
    assert_eq!(words, "BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '0'");
    // Switching it off needs no valid size.
    admin.ok(doc! { "autoCompact" => false, "freeSpaceTargetMB" => most + 1 });
    assert_eq!(admin.fails(doc! { "autoCompact" => false, "freeSpaceTargetMB" => 0 }), 2);
    for (command, code) in [
        (doc! { "autoCompact" => Value::Null }, 40414),
        (doc! { "autoCompact" => 1 }, 14),
        (doc! { "autoCompact" => true, "freeSpaceTargetMB" => "20" }, 14),
        (doc! { "autoCompact" => true, "runOnce" => 1 }, 14),
        (doc! { "autoCompact" => true, "other" => 1 }, 40415),
        (doc! { "autoCompact" => true, "writeConcern" => doc! { "w" => 1 } }, 72),
    ] {
        assert_eq!(admin.fails(command.clone()), code, "{}", show(&command));
    }
    assert_eq!(test.client().fails(doc! { "autoCompact" => true }), 13);
}

fn field(extra: DocBuf) -> Value<'static> {
    let key_id = Value::Binary { subtype: 4, bytes: vec![7; 16].into() };
    let field = DocBuf::build(|out| {
        out.put("path", "ssn");
        out.put_value("keyId", &key_id);
        out.put_all(extra.as_doc());
    });
    array![field]
}

#[test]
fn encrypted_collections_are_checked_and_refused() {
    let test = TestServer::start();
    let client = test.client();
    let create =
        |config: DocBuf| refusal(&client, doc! { "create" => "c", "encryptedFields" => config });
    let of = |extra: DocBuf| create(doc! { "fields" => field(extra) });
    let range = |queries: DocBuf| {
        let queries = DocBuf::build(|out| {
            out.put("queryType", "range");
            out.put_all(queries.as_doc());
        });
        of(doc! { "bsonType" => "int", "queries" => queries }).0
    };
    let equality = || doc! { "queryType" => "equality" };
    let (code, words) = of(doc! { "bsonType" => "string", "queries" => array![equality()] });
    assert_eq!(code, 6346402);
    assert_eq!(words, "Encrypted collections are not supported on standalone");
    assert_eq!(create(doc! { "fields" => array![] }).0, 6346402);
    assert_eq!(range(doc! { "min" => 1, "max" => 5, "sparsity" => 2, "contention" => 0 }), 6346402);
    for (config, code) in [
        (doc! {}, 40414),
        (doc! { "fields" => Value::Null }, 40414),
        (doc! { "fields" => doc! {} }, 14),
        (doc! { "fields" => array![], "x" => 1 }, 40415),
        (doc! { "fields" => array![doc! { "path" => "a" }] }, 40414),
    ] {
        assert_eq!(create(config.clone()).0, code, "{}", show(&config));
    }
    let at_path = |path: &str| of(doc! { "path" => path }).0;
    assert_eq!(
        [at_path(""), at_path("_id"), at_path("_id.a"), at_path("a\0b")],
        [6316402, 6316403, 6316403, 9867600]
    );
    let key = |subtype: u8, length: usize| {
        let bytes = vec![0; length].into();
        of(doc! { "keyId" => Value::Binary { subtype, bytes } }).0
    };
    assert_eq!([key(4, 5), key(0, 16)], [207, 14]);
    for (alias, code) in [("null", 6338406), ("minKey", 6338406), ("x", 2), ("string", 6346402)] {
        assert_eq!(of(doc! { "bsonType" => alias }).0, code, "{alias}");
    }
    let twice = {
        let one = field(doc! {});
        let one = one.as_array().unwrap().value("0").into_owned();
        array![one.clone(), one]
    };
    assert_eq!(create(doc! { "fields" => twice }).0, 6338402);
    let queries =
        |ty: &str, queries: Value<'static>| of(doc! { "bsonType" => ty, "queries" => queries }).0;
    assert_eq!(queries("string", Value::Null), 14);
    assert_eq!(queries("string", array![]), 9783412);
    assert_eq!(queries("string", doc! { "queryType" => "x" }.into()), 2);
    assert_eq!(queries("int", array![equality(), doc! { "queryType" => "range" }]), 9783414);
    assert_eq!(queries("double", equality().into()), 6338405);
    assert_eq!(queries("string", doc! { "queryType" => "range" }.into()), 6775201);
    for (bounds, code) in [
        (doc! { "min" => 5, "max" => 5 }, 6720005),
        (doc! { "min" => 0i64, "max" => 100i64 }, 7018200),
        (doc! { "sparsity" => 0 }, 2),
        (doc! { "sparsity" => 1.5 }, 9),
        (doc! { "contention" => 0.5 }, 9),
        (doc! { "contention" => -1 }, 2),
        (doc! { "trimFactor" => -1 }, 2),
    ] {
        assert_eq!(range(bounds.clone()), code, "{}", show(&bounds));
    }
    let with = |more: DocBuf| {
        let command = DocBuf::build(|out| {
            out.put("create", "c");
            out.put("encryptedFields", doc! { "fields" => array![] });
            out.put_all(more.as_doc());
        });
        client.fails(command)
    };
    assert_eq!(with(doc! { "capped" => true, "size" => 4096 }), 6367301);
    assert_eq!(with(doc! { "viewOn" => "x" }), 6346401);
}

#[test]
fn commands_for_encrypted_collections_are_refused() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    client.ok(doc! { "create" => "v", "viewOn" => "c" });
    for (name, tokens) in [
        ("compactStructuredEncryptionData", "compactionTokens"),
        ("cleanupStructuredEncryptionData", "cleanupTokens"),
    ] {
        let ask = |target: Value<'static>, value: Value<'static>| {
            refusal(&client, doc! { name => target, tokens => value }).0
        };
        let given = || Value::from(doc! {});
        let codes = ["c", "v", "none", "system.x", "a.b"].map(|target| ask(target.into(), given()));
        assert_eq!(codes, [6346807, 166, 26, 26, 26], "{name}");
        assert_eq!([ask(1.into(), given()), ask("".into(), given())], [73, 73]);
        assert_eq!([ask("c".into(), Value::Null), ask("c".into(), 1.into())], [40414, 14]);
        assert_eq!(client.fails(doc! { name => "c", tokens => doc! {}, "x" => 1 }), 40415);
        let words = refusal(&client, doc! { name => "c", tokens => doc! {} }).1;
        assert_eq!(words, "Target namespace is not an encrypted collection");
    }
}

#[test]
fn a_collection_created_as_not_clustered_is_ordinary() {
    let test = TestServer::start();
    let client = test.client();
    let values = [Value::Bool(false), Value::Int32(0), Value::Double(0.0), Value::Int64(0)];
    for (n, value) in values.into_iter().enumerate() {
        let name = format!("c{n}");
        client.ok(doc! { "create" => name.as_str(), "clusteredIndex" => value });
        assert_eq!(client.index_names(&name), ["_id_"]);
    }
    assert_eq!(client.fails(doc! { "create" => "x", "clusteredIndex" => true }), 5979703);
    assert_eq!(client.fails(doc! { "create" => "x", "clusteredIndex" => "x" }), 14);
}

#[test]
fn log_rotate_accepts_known_log_names_only() {
    let test = TestServer::start();
    let admin = test.client().admin();
    for good in [Value::Int32(1), Value::Bool(true), Value::Bool(false), "server".into()] {
        admin.ok(doc! { "logRotate" => good });
    }
    for unknown in ["", "x", "SERVER", "audit"] {
        assert_eq!(admin.fails(doc! { "logRotate" => unknown }), 4, "{unknown}");
    }
    assert_eq!(admin.fails(doc! { "logRotate" => doc! {} }), 14);
}

#[test]
fn system_views_behaves_as_a_collection() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "create" => "system.views" });
    let stats = |what: &str| {
        let stages = array![doc! { "$collStats" => doc! { what => doc! {} } }];
        doc! { "aggregate" => "system.views", "pipeline" => stages, "cursor" => doc! {} }
    };
    assert_eq!(client.fails(stats("count")), 26);
    assert_eq!(client.fails(doc! { "listIndexes" => "system.views" }), 26);
    for name in ["v", "w"] {
        client.ok(doc! { "create" => name, "viewOn" => "c" });
    }
    assert_eq!(client.index_names("system.views"), ["_id_"]);
    let row = |what: &str| first_batch(&client.ok(stats(what))).remove(0);
    assert_eq!(number(&row("count"), "count"), 2);
    let storage = at(&row("storageStats"), "storageStats");
    assert_eq!((number(&storage, "count"), number(&storage, "nindexes")), (2, 1));
    let size = number(&storage, "size");
    assert!(size > 20, "{}", show(&storage));
    assert!(row("queryExecStats").as_doc().get("queryExecStats").is_some());
    let whole = client.ok(doc! { "collStats" => "system.views" });
    assert_eq!((number(&whole, "count"), number(&whole, "size")), (2, size));
    // Clients cannot store documents there.
    let put = doc! { "insert" => "system.views", "documents" => array![doc! { "_id" => "x" }] };
    let reply = client.run(&put);
    assert!(
        number(&reply, "ok") == 0 || reply.as_doc().get("writeErrors").is_some(),
        "{}",
        show(&reply)
    );
}

#[test]
fn now_is_unavailable_outside_of_pipelines() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1, "d" => Value::DateTime(0) }]);
    client.ok(doc! { "create" => "v", "viewOn" => "c" });
    let past = || doc! { "$expr" => doc! { "$lt" => array!["$d", "$$NOW"] } };
    let any = || doc! { "$expr" => doc! { "$lt" => array![doc! { "$toDate" => 0i64 }, "$$NOW"] } };
    let count = |name: &str| doc! { "count" => name, "query" => past() };
    let distinct = |name: &str| doc! { "distinct" => name, "key" => "d", "query" => past() };
    let unavailable = (51144, "Builtin variable '$$NOW' is not available".to_owned());
    assert_eq!(refusal(&client, count("c")), unavailable);
    assert_eq!(refusal(&client, distinct("c")), unavailable);
    assert_eq!(refusal(&client, doc! { "explain" => count("c") }), unavailable);
    assert_eq!(refusal(&client, doc! { "listCollections" => 1, "filter" => any() }), unavailable);
    let databases = doc! { "listDatabases" => 1, "filter" => any() };
    assert_eq!(refusal(&client.admin(), databases), unavailable);
    // A view has a pipeline.
    assert_eq!(number(&client.ok(count("v")), "n"), 1);
    client.ok(distinct("v"));
    assert_eq!(client.ids("c", past()), [1]);
}

fn ok_of(client: &Client, name: &str) -> Value<'static> {
    client.ok(doc! { "distinct" => name, "key" => "_id" }).as_doc().value("ok").into_owned()
}

#[test]
fn distinct_on_a_view_replies_as_an_aggregation() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    client.ok(doc! { "create" => "v", "viewOn" => "c" });
    assert!(matches!(ok_of(&client, "c"), Value::Double(one) if one == 1.0));
    assert!(matches!(ok_of(&client, "v"), Value::Int32(1)));
}

#[test]
fn counts_in_decimals_are_rounded_by_all_their_digits() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..9).map(|n| doc! { "_id" => n }));
    let batch = |size: &str| {
        let opened = client.ok(doc! { "find" => "c", "batchSize" => 1 });
        let id = opened.as_doc().value("cursor").as_document().unwrap().value("id").into_owned();
        let size = Value::Decimal128(Decimal128::parse(size).unwrap());
        let command = doc! { "getMore" => id, "collection" => "c", "batchSize" => size };
        let reply = client.ok(command);
        at(&reply, "cursor").as_doc().value("nextBatch").as_array().unwrap().count()
    };
    assert_eq!(batch("0.5000000000000000000000000000000001"), 1);
    assert_eq!(batch("1.5"), 2);
    assert_eq!(batch("2.5"), 2);
    // A half is rounded to zero, and zero requests all documents.
    assert_eq!(batch("0.5"), 8);
}

#[test]
fn at_cluster_time_without_seconds_is_null() {
    let test = TestServer::start();
    let client = test.client();
    let read = |level: &str, seconds: u32, increment: u32| {
        let time = Value::Timestamp(kauri_base::Timestamp { seconds, increment });
        let concern = doc! { "level" => level, "atClusterTime" => time };
        refusal(&client, doc! { "find" => "c", "readConcern" => concern })
    };
    let null = (72, "atClusterTime cannot be a null timestamp".to_owned());
    assert_eq!(read("snapshot", 0, 0), null);
    assert_eq!(read("snapshot", 0, 1), null);
    assert_eq!(read("snapshot", 1, 0).0, 123);
    assert_eq!(read("local", 1, 0).0, 72);
}
