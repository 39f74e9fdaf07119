//! Fields and options accepted without effect, and similar fields: each has an effect or is rejected.

use crate::common::{
    Client, TestServer, at, code_of, cursor_id, first_batch, number, show, text, write_errors,
};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_commands::accepted::{ACCEPTED, Takes};

/// A minimal command that succeeds, and whether it runs on `admin`. `None`: the command cannot run here.
fn least(client: &Client, command: &str, n: usize) -> Option<(DocBuf, bool)> {
    let new = format!("new{n}");
    let on_test = |body: DocBuf| Some((body, false));
    let on_admin = |body: DocBuf| Some((body, true));
    match command {
        "aggregate" => {
            on_test(doc! { "aggregate" => "c", "pipeline" => array![], "cursor" => doc! {} })
        }
        "create" => on_test(doc! { "create" => new.as_str() }),
        "createIndexes" => {
            let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
            on_test(doc! { "createIndexes" => "c", "indexes" => array![index] })
        }
        "delete" => {
            let statement = doc! { "q" => doc! { "_id" => -1 }, "limit" => 1 };
            on_test(doc! { "delete" => "c", "deletes" => array![statement] })
        }
        "distinct" => on_test(doc! { "distinct" => "c", "key" => "a" }),
        "drop" => on_test(doc! { "drop" => "none" }),
        "dropIndexes" => on_test(doc! { "dropIndexes" => "c", "index" => "*" }),
        "findAndModify" => on_test(
            doc! { "findAndModify" => "c", "query" => doc! { "_id" => -1 }, "remove" => true },
        ),
        "getMore" => {
            let opened = client.ok(doc! { "find" => "c", "batchSize" => 1 });
            on_test(doc! { "getMore" => cursor_id(&opened), "collection" => "c" })
        }
        "listCollections" | "rolesInfo" | "usersInfo" => on_test(doc! { command => 1 }),
        "fsync" | "listDatabases" | "lockInfo" => on_admin(doc! { command => 1 }),
        "renameCollection" => {
            client.ok(doc! { "create" => new.as_str() });
            let (from, to) = (format!("test.{new}"), format!("test.{new}.to"));
            on_admin(doc! { "renameCollection" => from.as_str(), "to" => to.as_str() })
        }
        "*" => on_test(doc! { "ping" => 1 }),
        "shutdown" => None,
        path if path.contains('.') || path == "runtimeConstants" => None,
        _ => on_test(doc! { command => "c" }),
    }
}

fn with(body: &DocBuf, field: &str, value: impl Into<Value<'static>>) -> DocBuf {
    let value = value.into();
    DocBuf::build(|out| {
        out.put_all(body.as_doc());
        out.put_value(field, &value);
    })
}

#[test]
fn accepted_fields_are_accepted_and_checked() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..3).map(|id| doc! { "_id" => id, "a" => id }));
    let mut tried = 0;
    for (n, entry) in ACCEPTED.iter().enumerate() {
        assert!(!entry.why.is_empty() && !entry.fields.is_empty());
        for (m, field) in entry.fields.iter().enumerate() {
            let n = n * 100 + m;
            let Some((body, on_admin)) = least(&client, entry.path, n) else { continue };
            let runner = if on_admin { client.admin() } else { client.on("test") };
            if entry.takes != Takes::Any {
                let reply = match entry.takes {
                    Takes::String => runner.run(&with(&body, field, 1)),
                    _ => runner.run(&with(&body, field, "x")),
                };
                assert_eq!(code_of(&reply), 14, "{} {field}: {}", entry.path, show(&reply));
            }
            let value: Value<'static> = match entry.takes {
                Takes::Any | Takes::Long => 1.into(),
                Takes::Bool | Takes::SafeBool => true.into(),
                Takes::Object => doc! {}.into(),
                Takes::Array => array![],
                Takes::String => "x".into(),
            };
            // A rejected command may have used up its cursor.
            let Some((body, _)) = least(&client, entry.path, n + 50) else { continue };
            let reply = runner.run(&with(&body, field, value));
            assert_eq!(code_of(&reply), 0, "{} {field}: {}", entry.path, show(&reply));
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn fields_with_an_effect_elsewhere_are_refused() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..3).map(|id| doc! { "_id" => id }));
    let aggregate = || doc! { "aggregate" => "c", "pipeline" => array![], "cursor" => doc! {} };
    let statement = doc! {
        "q" => doc! { "_id" => 9 }, "u" => array![], "upsert" => true, "upsertSupplied" => true,
    };
    let session = doc! {
        "id" => Value::Binary { subtype: 4, bytes: vec![7; 16].into() },
        "txnUUID" => Value::Binary { subtype: 4, bytes: vec![8; 16].into() },
    };
    let index = doc! { "key" => doc! { "a" => 1 }, "name" => "a_1" };
    let find = || doc! { "find" => "c" };
    for (command, code, words) in [
        (with(&find(), "term", 1i64), 2, "cannot supply 'term' without active replication"),
        (with(&find(), "querySettings", doc! {}), 7_746_901, "is an unknown field"),
        (with(&aggregate(), "querySettings", doc! {}), 7_708_001, "is an unknown field"),
        (
            doc! { "distinct" => "c", "key" => "a", "querySettings" => doc! {} },
            7_923_000,
            "is an unknown field",
        ),
        (with(&aggregate(), "needsMerge", true), 72, "'needsMerge' is for shards"),
        (with(&aggregate(), "exchange", doc! {}), 72, "'exchange' is for shards"),
        (
            doc! { "update" => "c", "updates" => array![statement] },
            72,
            "'upsertSupplied' is for shards",
        ),
        (doc! { "create" => "t", "temp" => true }, 72, "the 'temp' field is an invalid option"),
        (doc! { "create" => "t", "recordPreImages" => true }, 40415, "unknown field"),
        (doc! { "collMod" => "c", "recordPreImages" => true }, 40415, "unknown field"),
        (
            doc! { "ping" => 1, "autocommit" => false },
            72,
            "'autocommit' field requires a transaction number",
        ),
        (
            doc! { "ping" => 1, "startTransaction" => true },
            72,
            "'startTransaction' field requires 'autocommit'",
        ),
        (with(&find(), "lsid", session.clone()), 72, "Internal sessions are not supported"),
        (doc! { "endSessions" => array![session] }, 72, "Internal sessions are not supported"),
        (
            with(&find(), "$readPreference", doc! { "mode" => "best" }),
            9,
            "Could not parse $readPreference mode 'best'",
        ),
        (
            doc! { "createIndexes" => "system.profile", "indexes" => array![index] },
            73,
            "cannot write to test.system.profile",
        ),
    ] {
        let reply = client.run(&command);
        assert_eq!(code_of(&reply), code, "{} -> {}", show(&command), show(&reply));
        assert!(text(&reply, "errmsg").contains(words), "{}", show(&reply));
    }
    let op = doc! { "delete" => 0, "filter" => doc! {} };
    let ns = doc! { "ns" => "test.c", "encryptionInformation" => doc! {} };
    let bulk = doc! { "bulkWrite" => 1, "ops" => array![op], "nsInfo" => array![ns] };
    assert_eq!(client.admin().fails(bulk), 40415);
    assert_eq!(client.all_ids("c"), [0, 1, 2]);
    for mode in ["primary", "secondaryPreferred", "nearest"] {
        client.ok(with(&find(), "$readPreference", doc! { "mode" => mode }));
    }
}

#[test]
fn help_does_not_execute_a_command() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    for command in [
        doc! { "drop" => "c", "help" => true },
        doc! { "dropDatabase" => 1, "help" => 1 },
        doc! { "insert" => "c", "documents" => array![doc! { "_id" => 2 }], "help" => true },
    ] {
        let name = command.as_doc().first().unwrap().key().to_owned();
        let help = text(&client.ok(command), "help");
        assert!(help.starts_with(&format!("help for: {name} ")), "{help}");
    }
    assert_eq!(client.all_ids("c"), [1]);
    client.ok(doc! { "drop" => "c", "help" => false });
    assert_eq!(client.all_ids("c"), []);
}

#[test]
fn a_uuid_selects_the_collection() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    client.insert("other", [doc! { "_id" => 1 }]);
    client.ok(doc! { "create" => "view", "viewOn" => "c", "pipeline" => array![] });
    let uuid = |name: &str| {
        let list = doc! { "listCollections" => 1, "filter" => doc! { "name" => name } };
        let info = at(&first_batch(&client.ok(list))[0], "info");
        info.as_doc().value("uuid").into_owned()
    };
    let commands = |name: &'static str| {
        [
            doc! { "find" => name },
            doc! { "count" => name },
            doc! { "distinct" => name, "key" => "_id" },
            doc! { "aggregate" => name, "pipeline" => array![], "cursor" => doc! {} },
            doc! { "findAndModify" => name, "query" => doc! {}, "remove" => true },
        ]
    };
    for (name, given) in [("c", "other"), ("none", "c")] {
        for command in commands(name) {
            let reply = client.run(&with(&command, "collectionUUID", uuid(given)));
            assert_eq!(code_of(&reply), 361, "{} -> {}", show(&command), show(&reply));
            assert_eq!(text(&reply, "actualCollection"), given);
        }
    }
    let view = with(&doc! { "find" => "view" }, "collectionUUID", uuid("c"));
    assert_eq!(client.fails(view), 361);
    assert_eq!(client.all_ids("c"), [1]);
    for command in commands("c") {
        client.ok(with(&command, "collectionUUID", uuid("c")));
    }
    assert_eq!(client.all_ids("c"), []);
}

#[test]
fn runtime_constants_set_now() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let time = Value::DateTime(86_400_000);
    let constants = || {
        let cluster = Value::Timestamp(kauri_base::Timestamp::default());
        doc! { "localNow" => Value::DateTime(86_400_000), "clusterTime" => cluster }
    };
    let now = || doc! { "now" => "$$NOW" };
    let stage = doc! { "$project" => now() };
    let aggregate = doc! {
        "aggregate" => "c", "pipeline" => array![stage], "cursor" => doc! {},
        "runtimeConstants" => constants(),
    };
    let find = doc! { "find" => "c", "projection" => now(), "runtimeConstants" => constants() };
    let statement = || doc! { "q" => doc! {}, "u" => array![doc! { "$set" => now() }] };
    let update = doc! {
        "update" => "c", "updates" => array![statement()], "runtimeConstants" => constants(),
    };
    for command in [aggregate, find] {
        let found = first_batch(&client.ok(command)).remove(0);
        assert_eq!(found.as_doc().value("now"), time, "{}", show(&found));
    }
    assert_eq!(write_errors(&client.ok(update)), []);
    let found = first_batch(&client.ok(doc! { "find" => "c" })).remove(0);
    assert_eq!(found.as_doc().value("now"), time);
    let change = doc! {
        "findAndModify" => "c", "update" => array![doc! { "$set" => doc! { "b" => "$$NOW" } }],
        "runtimeConstants" => constants(), "new" => true,
    };
    assert_eq!(at(&client.ok(change), "value").as_doc().value("b"), time);
    let matches = doc! { "$eq" => array!["$now", "$$NOW"] };
    let statement = doc! { "q" => doc! { "$expr" => matches }, "limit" => 1 };
    let delete = doc! { "delete" => "c", "deletes" => array![statement] };
    assert_eq!(number(&client.ok(delete.clone()), "n"), 0);
    assert_eq!(number(&client.ok(with(&delete, "runtimeConstants", constants())), "n"), 1);
    let partial = doc! { "localNow" => Value::DateTime(0) };
    assert_eq!(client.fails(with(&doc! { "find" => "c" }, "runtimeConstants", partial)), 40414);
}

#[test]
fn hello_reports_parameters() {
    let test = TestServer::start();
    let client = test.client().admin();
    let hello = || client.ok(doc! { "hello" => 1 });
    assert!(hello().as_doc().get("automationServiceDescriptor").is_none());
    assert_eq!(number(&hello(), "logicalSessionTimeoutMinutes"), 30);
    client.ok(doc! { "setParameter" => 1, "automationServiceDescriptor" => "agent 7" });
    test.server.parameters.set_at_startup("localLogicalSessionTimeoutMinutes", 5.into()).unwrap();
    assert_eq!(text(&hello(), "automationServiceDescriptor"), "agent 7");
    assert_eq!(number(&hello(), "logicalSessionTimeoutMinutes"), 5);
    let command = doc! { "setParameter" => 1, "internalQueryExecYieldPeriodMS" => 1 };
    assert_eq!(client.fails(command), 20, "IllegalOperation");
}

#[test]
fn an_update_with_an_unknown_stage_fails_the_bulk_write() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let delete = doc! { "delete" => 0, "filter" => doc! {} };
    let update = |stage: DocBuf| {
        doc! { "update" => 0, "filter" => doc! {}, "updateMods" => array![stage] }
    };
    let bulk = |stage: DocBuf| {
        let ops = array![delete.clone(), update(stage)];
        doc! { "bulkWrite" => 1, "ops" => ops, "nsInfo" => array![doc! { "ns" => "test.c" }] }
    };
    assert_eq!(client.admin().fails(bulk(doc! { "$nothing" => 1 })), 40324);
    assert_eq!(client.all_ids("c"), [1]);
    let reply = client.admin().ok(bulk(doc! { "$set" => doc! { "a" => 1 } }));
    assert_eq!((number(&reply, "nDeleted"), number(&reply, "nErrors")), (1, 0));
}

#[test]
fn explain_validates_a_statement_as_execution_does() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let set = doc! { "$set" => doc! { "a" => 1 } };
    for (good, kind, field) in [
        (doc! { "q" => doc! {}, "u" => set }, "update", "updates"),
        (doc! { "q" => doc! {}, "limit" => 1 }, "delete", "deletes"),
    ] {
        let explained = |statement: DocBuf| {
            doc! { "explain" => doc! { kind => "c", field => array![statement] } }
        };
        client.ok(explained(good.clone()));
        assert_eq!(client.fails(explained(with(&good, "nonsense", 1))), 40415);
        assert_eq!(client.fails(explained(with(&good, "hint", 1))), 9);
    }
}

#[test]
fn validate_reports_skipped_checks() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let warnings = |option: &'static str| {
        let reply = client.ok(doc! { "validate" => "c", option => true });
        let warnings = reply.as_doc().value("warnings");
        warnings.as_array().unwrap().iter().count()
    };
    assert_eq!((warnings("checkBSONConformance"), warnings("repair"), warnings("full")), (1, 0, 0));
}
