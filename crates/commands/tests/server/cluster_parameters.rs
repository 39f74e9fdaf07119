//! `getClusterParameter` and `setClusterParameter`: what is set is kept and shown, what cannot be kept is refused; and
//! the time limit that `defaultMaxTimeMS` gives to reads.

use crate::cold_disk::ColdEngine;
use crate::common::{Client, TestServer, at, code_of, first_batch, number, refusal, show, text};
use kauri_base::Timestamp;
use kauri_bson::{DocBuf, Value, array, doc};
use std::time::Duration;

const SETTABLE: [&str; 4] = [
    "changeStreamOptions",
    "changeStreams",
    "defaultMaxTimeMS",
    "pauseMigrationsDuringMultiUpdates",
];

fn get(client: &Client, asked: impl Into<Value<'static>>) -> Vec<DocBuf> {
    let reply = client.admin().ok(doc! { "getClusterParameter" => asked.into() });
    let list = reply.as_doc().value("clusterParameters").into_owned();
    let list = list.as_array().unwrap().iter();
    list.map(|elem| elem.as_doc().unwrap().to_buf()).collect()
}

fn get_one(client: &Client, name: &'static str) -> DocBuf {
    let found = get(client, name);
    assert_eq!(found.len(), 1);
    found.into_iter().next().unwrap()
}

fn time_of(parameter: &DocBuf) -> Timestamp {
    match parameter.as_doc().value("clusterParameterTime") {
        Value::Timestamp(time) => time,
        _ => panic!("no time in {}", show(parameter)),
    }
}

#[track_caller]
fn set(client: &Client, name: &str, value: DocBuf) {
    client.admin().ok(doc! { "setClusterParameter" => doc! { name => value } });
}

/// `defaultMaxTimeMS` for reads.
#[track_caller]
fn limit_reads(client: &Client, ms: i64) {
    set(client, "defaultMaxTimeMS", doc! { "readOperations" => ms });
}

fn stored(client: &Client) -> Vec<DocBuf> {
    let find = doc! { "find" => "clusterParameters", "sort" => doc! { "_id" => 1 } };
    first_batch(&client.on("config").ok(find))
}

#[test]
fn cluster_parameters_have_their_defaults() {
    let test = TestServer::start();
    let (client, admin) = (test.client(), test.client().admin());
    let options = doc! {
        "_id" => "changeStreamOptions", "clusterParameterTime" => Timestamp::default(),
        "preAndPostImages" => doc! { "expireAfterSeconds" => "off" },
    };
    assert_eq!(get(&client, "changeStreamOptions"), [options]);
    let all = get(&client, "*");
    let names = all.iter().map(|one| text(one, "_id")).collect::<Vec<_>>();
    assert_eq!(
        names,
        [
            "addOrRemoveShardInProgress",
            "changeStreamOptions",
            "changeStreams",
            "configServerReadPreferenceForCatalogQueries",
            "defaultMaxTimeMS",
            "fleCompactionOptions",
            "internalQueryCutoffForSampleFromRandomCursor",
            "pauseMigrationsDuringMultiUpdates",
            "shardedClusterCardinalityForDirectConns",
        ]
    );
    assert!(all.iter().all(|one| time_of(one) == Timestamp::default()));
    let two = get(&client, array!["pauseMigrationsDuringMultiUpdates", "changeStreams"]);
    assert_eq!(two.len(), 2);
    assert_eq!(two[0].as_doc().value("enabled"), Value::Bool(false));
    assert_eq!(number(&two[1], "expireAfterSeconds"), 3600);
    assert_eq!(number(&get_one(&client, "defaultMaxTimeMS"), "readOperations"), 0);
    let refused = |asked: Value<'static>| admin.fails(doc! { "getClusterParameter" => asked });
    for unknown in ["x", "", "ChangeStreams", "querySettings"] {
        assert_eq!(refused(unknown.into()), 4, "{unknown}");
    }
    let words = refusal(&admin, doc! { "getClusterParameter" => "x" }).1;
    assert_eq!(words, "Unknown server parameter: x");
    assert_eq!(refused(array!["*"]), 4);
    assert_eq!(refused(array!["changeStreams", "x"]), 4);
    assert_eq!(refused(array![]), 2);
    for wrong in [Value::Null, Value::Int32(1), doc! {}.into(), array![1], array![Value::Null]] {
        assert_eq!(refused(wrong.clone()), 14, "{wrong:?}");
    }
    admin.ok(doc! { "getClusterParameter" => "*", "other" => 1 });
    assert_eq!(client.fails(doc! { "getClusterParameter" => "*" }), 13);
    assert_eq!(stored(&client), []);
}

#[test]
fn what_is_set_is_stored_and_shown() {
    let test = TestServer::start();
    let client = test.client();
    let expire = |value: Value<'static>| doc! { "expireAfterSeconds" => value };
    let images = |value: Value<'static>| doc! { "preAndPostImages" => expire(value) };
    let (options, streams) = ("changeStreamOptions", "changeStreams");
    let pause = "pauseMigrationsDuringMultiUpdates";
    let mut before = Timestamp::default();
    for (name, given, shown) in [
        (options, images(7200.into()), images(7200i64.into())),
        (options, images("off".into()), images("off".into())),
        (streams, expire(Value::Double(5000.0)), expire(5000i64.into())),
        (streams, expire(Value::Null), expire(3600i64.into())),
        (streams, doc! {}, expire(3600i64.into())),
        (pause, doc! { "enabled" => true }, doc! { "enabled" => true }),
        (pause, doc! { "enabled" => Value::Null }, doc! { "enabled" => false }),
        ("defaultMaxTimeMS", doc! { "readOperations" => 5 }, doc! { "readOperations" => 5i64 }),
    ] {
        set(&client, name, given.clone());
        let found = get_one(&client, name);
        let time = time_of(&found);
        assert!(time > before, "{} {}", show(&given), show(&found));
        before = time;
        let expected = DocBuf::build(|out| {
            out.put("_id", name);
            out.put("clusterParameterTime", time);
            out.put_all(shown.as_doc());
        });
        assert_eq!(found, expected);
        let document = stored(&client).into_iter().find(|one| text(one, "_id") == name).unwrap();
        let expected = DocBuf::build(|out| {
            out.put("_id", name);
            out.put("clusterParameterTime", time);
            out.put_all(given.as_doc());
        });
        assert_eq!(document, expected);
    }
    let names = stored(&client).iter().map(|one| text(one, "_id")).collect::<Vec<_>>();
    assert_eq!(names, SETTABLE);
    client.on("config").validate("clusterParameters");
    let other = doc! { "setClusterParameter" => doc! { streams => doc! {} }, "other" => 1 };
    client.admin().ok(other);
}

#[test]
fn a_wrong_value_is_refused_and_changes_nothing() {
    let test = TestServer::start();
    let (client, admin) = (test.client(), test.client().admin());
    let set = |value: Value<'static>| refusal(&admin, doc! { "setClusterParameter" => value });
    let of = |name: &str, value: Value<'static>| set(doc! { name => value }.into()).0;
    let (options, streams) = ("changeStreamOptions", "changeStreams");
    let pause = "pauseMigrationsDuringMultiUpdates";
    let expire = |value: Value<'static>| Value::from(doc! { "expireAfterSeconds" => value });
    let images = |value: Value<'static>| Value::from(doc! { "preAndPostImages" => value });
    for (name, value, code) in [
        (options, "x".into(), 2),
        (options, doc! {}.into(), 2),
        (options, images(Value::Null), 2),
        (options, images(1.into()), 2),
        (options, images(expire("on".into())), 2),
        (options, images(expire(true.into())), 2),
        (options, images(expire(0.into())), 2),
        (options, doc! { "preAndPostImages" => doc! {}, "x" => 1 }.into(), 2),
        (options, doc! { "$bad" => 1 }.into(), 52),
        (streams, expire(0.into()), 2),
        (streams, expire(Value::Int32(-1)), 2),
        (streams, expire("1".into()), 14),
        (streams, expire(true.into()), 14),
        (streams, doc! { "x" => 1 }.into(), 40415),
        (pause, doc! { "enabled" => 1 }.into(), 14),
        (pause, doc! { "_id" => pause, "enabled" => true }.into(), 40415),
        ("defaultMaxTimeMS", doc! { "readOperations" => -1 }.into(), 2),
        ("defaultMaxTimeMS", doc! { "readOperations" => "5" }.into(), 14),
        ("defaultMaxTimeMS", doc! { "writeOperations" => 5 }.into(), 40415),
        ("defaultMaxTimeMS", 5.into(), 2),
        ("querySettings", doc! {}.into(), 4),
        ("x", doc! {}.into(), 4),
        ("logLevel", doc! {}.into(), 4),
        ("", doc! {}.into(), 4),
        ("addOrRemoveShardInProgress", doc! { "inProgress" => true }.into(), 20),
        ("fleCompactionOptions", doc! { "maxCompactionSize" => 1 }.into(), 20),
        ("internalQueryCutoffForSampleFromRandomCursor", doc! { "sampleCutoff" => 0.5 }.into(), 20),
    ] {
        assert_eq!(of(name, value.clone()), code, "{name} {value:?}");
    }
    let twice = DocBuf::build(|out| {
        out.put("readOperations", 5);
        out.put("readOperations", 6);
    });
    assert_eq!(of("defaultMaxTimeMS", twice.into()), 40413);
    assert_eq!(set(Value::Null).0, 40414);
    assert_eq!(set(1.into()).0, 14);
    assert_eq!(set(doc! {}.into()).0, 4);
    let two = doc! { options => images(expire("off".into())), streams => doc! {} };
    assert_eq!(set(two.into()).0, 72);
    let good = doc! { streams => doc! {} };
    let concern =
        doc! { "setClusterParameter" => good.clone(), "writeConcern" => doc! { "w" => 1 } };
    assert_eq!(admin.fails(concern), 72);
    let strict =
        doc! { "setClusterParameter" => good.clone(), "apiVersion" => "1", "apiStrict" => true };
    assert_eq!(admin.fails(strict), 323);
    assert_eq!(client.fails(doc! { "setClusterParameter" => good }), 13);
    // Every one that is not set says so.
    for parameter in get(&client, "*") {
        let name = text(&parameter, "_id");
        if !SETTABLE.contains(&name.as_str()) {
            let (code, words) = set(doc! { name.as_str() => doc! {} }.into());
            let told =
                format!("The cluster parameter '{name}' cannot be set on a standalone server");
            assert_eq!((code, words), (20, told));
        }
    }
    assert_eq!(stored(&client), []);
}

#[test]
fn a_restart_keeps_the_values() {
    let disk = ColdEngine::open();
    let client_of = |test: &TestServer| test.client();
    let before = {
        let test = TestServer::start_on(disk.engine.clone(), 1, &[]);
        let client = client_of(&test);
        limit_reads(&client, 4000);
        limit_reads(&client, 5000);
        get_one(&client, "defaultMaxTimeMS")
    };
    let test = TestServer::start_on(disk.engine.clone(), 1, &[]);
    let after = get_one(&client_of(&test), "defaultMaxTimeMS");
    assert_eq!((number(&after, "readOperations"), &after), (5000, &before));
}

#[test]
fn a_client_may_write_the_documents_itself() {
    let test = TestServer::start();
    let client = test.client();
    let config = client.on("config");
    limit_reads(&client, 7);
    let filter = doc! { "_id" => "defaultMaxTimeMS" };
    let limit = || number(&get_one(&client, "defaultMaxTimeMS"), "readOperations");
    let change = |value: Value<'static>| {
        let set = doc! { "$set" => doc! { "readOperations" => value } };
        let statement = doc! { "q" => filter.clone(), "u" => set };
        config.ok(doc! { "update" => "clusterParameters", "updates" => array![statement] });
    };
    change(8.into());
    assert_eq!(limit(), 8);
    // What the command would refuse counts as the default.
    change("x".into());
    assert_eq!(limit(), 0);
    change(9.into());
    assert_eq!(limit(), 9);
    config.ok(doc! { "drop" => "clusterParameters" });
    assert_eq!(limit(), 0);
    limit_reads(&client, 10);
    assert_eq!(limit(), 10);
    let (from, to) = ("config.clusterParameters", "config.others");
    client.admin().ok(doc! { "renameCollection" => from, "to" => to });
    assert_eq!(limit(), 0);
    limit_reads(&client, 11);
    let all = doc! { "q" => filter.clone(), "limit" => 1 };
    config.ok(doc! { "delete" => "clusterParameters", "deletes" => array![all] });
    assert_eq!(limit(), 0);
}

/// Reads that `defaultMaxTimeMS` limits, among them one for the express path.
fn reads() -> Vec<DocBuf> {
    let match_all = array![doc! { "$match" => doc! { "n" => doc! { "$gte" => 0 } } }];
    vec![
        doc! { "find" => "c" },
        doc! { "find" => "c", "filter" => doc! { "_id" => 1 } },
        doc! { "aggregate" => "c", "pipeline" => match_all, "cursor" => doc! {} },
        doc! { "count" => "c", "query" => doc! { "n" => 1 } },
        doc! { "distinct" => "c", "key" => "n" },
        doc! { "dbHash" => 1 },
    ]
}

fn with(body: &DocBuf, field: &str, value: impl Into<Value<'static>>) -> DocBuf {
    let value = value.into();
    DocBuf::build(|out| {
        out.put_all(body.as_doc());
        out.put_value(field, &value);
    })
}

/// Other commands, which it does not limit.
fn others() -> Vec<DocBuf> {
    let statement = |name: &str, extra: DocBuf| {
        DocBuf::build(|out| {
            out.put("q", doc! { "n" => name });
            out.put_all(extra.as_doc());
        })
    };
    let update = statement("x", doc! { "u" => doc! { "$set" => doc! { "m" => 1 } } });
    let out = |stage: DocBuf| doc! { "aggregate" => "c", "pipeline" => array![stage], "cursor" => doc! {} };
    vec![
        doc! { "insert" => "d", "documents" => array![doc! {}] },
        doc! { "update" => "c", "updates" => array![update] },
        doc! { "delete" => "c", "deletes" => array![statement("x", doc! { "limit" => 0 })] },
        doc! { "findAndModify" => "c", "query" => doc! { "n" => "x" }, "remove" => true },
        out(doc! { "$out" => "e" }),
        out(doc! { "$merge" => "e" }),
        doc! { "listCollections" => 1 },
        doc! { "dbStats" => 1 },
        doc! { "collStats" => "c" },
        doc! { "ping" => 1 },
    ]
}

#[test]
fn reads_without_a_limit_have_the_default_one() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..5).map(|id| doc! { "_id" => id, "n" => id }));
    let expire = |mode: &str| {
        let point = doc! { "configureFailPoint" => "maxTimeAlwaysTimeOut", "mode" => mode };
        client.admin().ok(point);
    };
    let code = |command: &DocBuf| code_of(&client.run(command));
    // An operation with a limit fails now, and no other.
    expire("alwaysOn");
    for read in reads() {
        assert_eq!(code(&read), 0, "{}", show(&read));
    }
    limit_reads(&client, 60_000);
    for read in reads() {
        let null = with(&read, "maxTimeMS", Value::Null);
        assert_eq!((code(&read), code(&null)), (50, 50), "{}", show(&read));
        let own = with(&read, "maxTimeMS", 0);
        assert_eq!(code(&own), 0, "{}", show(&own));
    }
    for other in others() {
        assert_eq!(code(&other), 0, "{}", show(&other));
    }
    limit_reads(&client, 0);
    for read in reads() {
        assert_eq!(code(&read), 0, "{}", show(&read));
    }
    // The limit of the client's own choice, although it is the longer one.
    expire("off");
    limit_reads(&client, 1);
    test.clock.pass_at_looks(Duration::from_millis(1));
    for read in reads() {
        let own = with(&read, "maxTimeMS", 1_000_000);
        assert_eq!(code(&own), 0, "{}", show(&own));
    }
    let scan = doc! { "aggregate" => "c", "pipeline" => array![], "cursor" => doc! {} };
    assert_eq!(code(&scan), 50);
    // The express path answers without a wait, as it does with `maxTimeMS: 1`.
    let by_id = doc! { "find" => "c", "filter" => doc! { "_id" => 1 } };
    assert_eq!((code(&with(&by_id, "maxTimeMS", 1)), code(&by_id)), (0, 0));
}

#[test]
fn the_default_limit_is_shared_by_a_cursors_batches() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..9).map(|id| doc! { "_id" => id }));
    let capped = doc! { "create" => "log", "capped" => true, "size" => 10_000 };
    client.ok(capped);
    client.insert("log", [doc! { "_id" => 0 }]);
    limit_reads(&client, 1000);
    let open = |command: DocBuf| number(&at(&client.ok(command), "cursor"), "id");
    let plain = open(doc! { "find" => "c", "batchSize" => 2 });
    let unlimited = open(doc! { "find" => "c", "batchSize" => 2, "maxTimeMS" => 0 });
    let more = |id: i64| doc! { "getMore" => id, "collection" => "c", "batchSize" => 2 };
    client.ok(more(plain));
    client.ok(more(unlimited));
    // Time between batches is the client's own.
    test.clock.advance(Duration::from_secs(5));
    client.ok(more(plain));
    test.clock.pass_at_looks(Duration::from_secs(2));
    assert_eq!(client.fails(more(plain)), 50);
    client.ok(more(unlimited));
}
