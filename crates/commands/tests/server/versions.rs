//! The MongoDB version that the server reports, and commands that need a different kind of server than a
//! standalone.

use crate::common::{TestServer, at, first_batch, number, refusal, text};
use kauri_bson::{Value, array, doc};
use kauri_commands::startup;

#[test]
fn the_reported_version_is_mongodb_8_0() {
    let test = TestServer::start();
    let (client, admin) = (test.client(), test.client().admin());
    for command in ["hello", "isMaster", "ismaster"] {
        let reply = client.ok(doc! { command => 1 });
        assert_eq!((number(&reply, "minWireVersion"), number(&reply, "maxWireVersion")), (0, 25));
    }
    let info = client.ok(doc! { "buildInfo" => 1 });
    let Value::Array(parts) = info.as_doc().value("versionArray") else { panic!("no array") };
    let parts: Vec<i64> =
        parts.as_doc().iter().map(|e| e.value().as_i64_exact().unwrap()).collect();
    assert_eq!((&parts[..2], parts.len()), (&[8, 0][..], 4));
    let version = text(&info, "version");
    assert_eq!(version, format!("{}.{}.{}", parts[0], parts[1], parts[2]));
    let status = client.ok(doc! { "serverStatus" => 1 });
    assert_eq!(text(&status, "version"), version);
    let compatibility = at(&status, "featureCompatibilityVersion");
    assert_eq!((number(&compatibility, "major"), number(&compatibility, "minor")), (8, 0));
    let parameter = admin.ok(doc! { "getParameter" => 1, "featureCompatibilityVersion" => 1 });
    assert_eq!(text(&at(&parameter, "featureCompatibilityVersion"), "version"), "8.0");
}

#[test]
fn a_start_notes_the_compatibility_version() {
    let test = TestServer::start();
    let admin = test.client().admin();
    let noted = || {
        let filter = doc! { "_id" => "featureCompatibilityVersion" };
        let found = first_batch(&admin.ok(doc! { "find" => "system.version", "filter" => filter }));
        found.iter().map(|doc| text(doc, "version")).collect::<Vec<_>>()
    };
    startup::prepare(&test.server).unwrap();
    assert_eq!(noted(), ["8.0"]);
    // As an older build has stored it.
    let older = doc! {
        "q" => doc! { "_id" => "featureCompatibilityVersion" },
        "u" => doc! { "$set" => doc! { "version" => "7.0" } },
    };
    admin.ok(doc! { "update" => "system.version", "updates" => array![older] });
    assert_eq!(noted(), ["7.0"]);
    // The entry of the first start, which has this start's time.
    let all = doc! { "q" => doc! {}, "limit" => 0 };
    test.client().on("local").ok(doc! { "delete" => "startup_log", "deletes" => array![all] });
    startup::prepare(&test.server).unwrap();
    assert_eq!(noted(), ["8.0"]);
}

#[test]
fn commands_that_need_a_replica_set_are_refused() {
    let test = TestServer::start();
    let admin = test.client().admin();
    let shape = doc! { "find" => "c", "$db" => "test" };
    let settings = doc! { "reject" => true };
    for (command, code, why) in [
        (
            doc! { "setQuerySettings" => shape.clone(), "settings" => settings },
            20,
            "setQuerySettings can only run on replica sets or sharded clusters",
        ),
        (
            doc! { "removeQuerySettings" => shape },
            20,
            "removeQuerySettings can only run on replica sets or sharded clusters",
        ),
        (
            doc! { "setUserWriteBlockMode" => 1, "global" => true },
            20,
            "setUserWriteBlockMode cannot be run on standalones",
        ),
        (
            doc! { "getDefaultRWConcern" => 1 },
            51300,
            "'getDefaultRWConcern' is not supported on standalone nodes.",
        ),
        (
            doc! { "setDefaultRWConcern" => 1, "defaultWriteConcern" => doc! { "w" => 1 } },
            51300,
            "'setDefaultRWConcern' is not supported on standalone nodes.",
        ),
    ] {
        assert_eq!(refusal(&admin, command), (code, why.to_owned()));
    }
    // There are no settings.
    let listed = admin.ok(doc! {
        "aggregate" => 1, "pipeline" => array![doc! { "$querySettings" => doc! {} }], "cursor" => doc! {},
    });
    assert!(first_batch(&listed).is_empty());
}
