//! `configureFailPoint` as drivers' test suites use it.

use crate::common::{Client, TestServer, at, code_of, number, show, text};
use kauri_bson::{DocBuf, Value, array, doc};
use std::time::{Duration, Instant};

fn set(client: &Client, mode: Value<'static>, data: DocBuf) -> DocBuf {
    client
        .admin()
        .ok(doc! { "configureFailPoint" => "failCommand", "mode" => mode, "data" => data })
}

fn failing(command: &'static str, code: i32) -> DocBuf {
    doc! { "failCommands" => array![command], "errorCode" => code }
}

fn pings(client: &Client, count: usize) -> Vec<i64> {
    (0..count).map(|_| code_of(&client.run(&doc! { "ping" => 1 }))).collect()
}

#[test]
fn a_command_fails_as_often_as_asked() {
    let test = TestServer::start();
    let client = test.client();
    set(&client, doc! { "times" => 2 }.into(), failing("ping", 11600));
    assert_eq!(pings(&client, 4), [11600, 11600, 0, 0]);
    set(&client, doc! { "skip" => 2 }.into(), failing("ping", 50));
    assert_eq!(pings(&client, 4), [0, 0, 50, 50]);
    set(&client, "alwaysOn".into(), failing("ping", 7));
    assert_eq!(pings(&client, 3), [7, 7, 7]);
    client.ok(doc! { "hello" => 1 });
    let count = set(&client, "off".into(), doc! {});
    assert_eq!(number(&count, "count"), 7);
    assert_eq!(pings(&client, 2), [0, 0]);
    set(&client, doc! { "activationProbability" => 0.0 }.into(), failing("ping", 7));
    assert_eq!(pings(&client, 50), [0; 50]);
}

#[test]
fn errors_have_the_configured_names_labels_and_fields() {
    let test = TestServer::start();
    let client = test.client();
    let data = doc! {
        "failCommands" => array!["insert"], "errorCode" => 91,
        "errorLabels" => array!["RetryableWriteError", "Mine"],
        "errorExtraInfo" => doc! { "more" => 1 },
    };
    set(&client, doc! { "times" => 1 }.into(), data);
    let insert = doc! { "insert" => "c", "documents" => array![doc! { "_id" => 1 }] };
    let reply = client.run(&insert);
    assert_eq!((code_of(&reply), text(&reply, "codeName")), (91, "ShutdownInProgress".to_owned()));
    let labels = reply.as_doc().value("errorLabels");
    assert_eq!(labels, array!["RetryableWriteError", "Mine"]);
    assert_eq!(number(&reply, "more"), 1, "{}", show(&reply));
    assert_eq!(client.all_ids("c"), []);
    // A write concern error is reported with a successful write.
    let error = doc! { "code" => 64, "errmsg" => "slow" };
    let data = doc! { "failCommands" => array!["insert"], "writeConcernError" => error };
    set(&client, doc! { "times" => 1 }.into(), data);
    let reply = client.ok(insert);
    assert_eq!(number(&at(&reply, "writeConcernError"), "code"), 64);
    assert_eq!(client.all_ids("c"), [1]);
}

#[test]
fn a_connection_is_closed_or_kept_waiting() {
    let test = TestServer::start();
    let (client, other) = (test.client(), test.client());
    let data = doc! { "failCommands" => array!["ping"], "closeConnection" => true };
    set(&other, doc! { "times" => 1 }.into(), data);
    client.send(&doc! { "ping" => 1 });
    assert!(client.receive().is_none());
    assert!(client.is_closed());
    assert_eq!(pings(&other, 1), [0]);
    let data = doc! {
        "failCommands" => array!["ping"], "blockConnection" => true, "blockTimeMS" => 40,
    };
    set(&other, doc! { "times" => 1 }.into(), data);
    let began = Instant::now();
    assert_eq!(pings(&other, 1), [0]);
    assert!(began.elapsed() >= Duration::from_millis(40));
}

fn hello(name: &str) -> DocBuf {
    let driver = doc! { "name" => "test", "version" => "1" };
    let client = doc! {
        "application" => doc! { "name" => name }, "driver" => driver,
        "os" => doc! { "type" => "test" },
    };
    doc! { "hello" => 1, "client" => client }
}

#[test]
fn one_application_fails_from_its_first_hello_on() {
    let test = TestServer::start();
    let (mine, other) = (test.client(), test.client());
    let data = doc! {
        "failCommands" => array!["hello", "ping"], "errorCode" => 11600, "appName" => "mine",
    };
    set(&other, "alwaysOn".into(), data);
    assert_eq!(code_of(&mine.run(&hello("mine"))), 11600);
    assert_eq!(code_of(&other.run(&hello("other"))), 0);
    assert_eq!(pings(&other, 1), [0]);
    set(&other, "off".into(), doc! {});
    mine.ok(hello("mine"));
    let data = doc! { "failCommands" => array!["ping"], "errorCode" => 1, "appName" => "mine" };
    set(&other, "alwaysOn".into(), data);
    assert_eq!((pings(&mine, 1), pings(&other, 1)), (vec![1], vec![0]));
}

#[test]
fn failpoints_select_namespaces_and_unknown_commands() {
    let test = TestServer::start();
    let client = test.client();
    let data = doc! {
        "failCommands" => array!["find"], "errorCode" => 8, "namespace" => "test.c",
    };
    set(&client, "alwaysOn".into(), data);
    assert_eq!(client.fails(doc! { "find" => "c" }), 8);
    client.ok(doc! { "find" => "d" });
    client.on("other").ok(doc! { "find" => "c" });
    set(&client, "alwaysOn".into(), failing("saslStart", 18));
    assert_eq!(client.fails(doc! { "saslStart" => 1 }), 18);
    assert_eq!(client.fails(doc! { "saslContinue" => 1 }), 59);
    // The command that disables the failpoint is exempt.
    set(&client, "alwaysOn".into(), doc! { "failAllCommands" => true, "errorCode" => 8 });
    assert_eq!(pings(&client, 1), [8]);
    set(&client, "off".into(), doc! {});
    assert_eq!(pings(&client, 1), [0]);
}

#[test]
fn a_failpoint_expires_time_limits_at_once() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let point = |mode: &str| {
        client.admin().ok(doc! { "configureFailPoint" => "maxTimeAlwaysTimeOut", "mode" => mode });
    };
    point("alwaysOn");
    assert_eq!(client.fails(doc! { "find" => "c", "maxTimeMS" => 60_000 }), 50);
    client.ok(doc! { "find" => "c" });
    point("off");
    client.ok(doc! { "find" => "c", "maxTimeMS" => 60_000 });
}

#[test]
fn a_get_more_has_the_time_limit_of_its_cursor() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..4).map(|id| doc! { "_id" => id }));
    let point = |name: &str, mode: &str, data: DocBuf| {
        client.admin().ok(doc! { "configureFailPoint" => name, "mode" => mode, "data" => data });
    };
    let more = |limited: bool| {
        let find = match limited {
            true => doc! { "find" => "c", "batchSize" => 1, "maxTimeMS" => 60_000 },
            false => doc! { "find" => "c", "batchSize" => 1 },
        };
        let id = crate::common::cursor_id(&client.ok(find));
        doc! { "getMore" => id, "collection" => "c" }
    };
    let (limited, free) = (more(true), more(false));
    point("maxTimeAlwaysTimeOut", "alwaysOn", doc! {});
    assert_eq!(client.fails(limited), 50);
    client.ok(free);
    point("maxTimeAlwaysTimeOut", "off", doc! {});
    let failing = doc! { "errorCode" => 91 };
    let cursor = more(false);
    point("failGetMoreAfterCursorCheckout", "alwaysOn", failing);
    assert_eq!(client.fails(cursor.clone()), 91);
    point("failGetMoreAfterCursorCheckout", "off", doc! {});
    assert_eq!(client.fails(cursor), 43, "CursorNotFound");
}

#[test]
fn a_failpoint_disables_time_limits() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let data = doc! {
        "failCommands" => array!["find"], "blockConnection" => true, "blockTimeMS" => 50,
    };
    set(&client, "alwaysOn".into(), data);
    let find = || doc! { "find" => "c", "maxTimeMS" => 1 };
    assert_eq!(client.fails(find()), 50);
    let point = |mode: &str| {
        client.admin().ok(doc! { "configureFailPoint" => "maxTimeNeverTimeOut", "mode" => mode });
    };
    point("alwaysOn");
    client.ok(find());
    point("off");
    assert_eq!(client.fails(find()), 50);
}

#[test]
fn max_time_ms_op_only_is_a_time_limit() {
    let test = TestServer::start();
    let client = test.client();
    let point = |mode: &str| {
        client.admin().ok(doc! { "configureFailPoint" => "maxTimeAlwaysTimeOut", "mode" => mode });
    };
    point("alwaysOn");
    assert_eq!(client.fails(doc! { "ping" => 1, "maxTimeMSOpOnly" => 60_000 }), 50);
    client.ok(doc! { "ping" => 1, "maxTimeMSOpOnly" => 0 });
}

#[test]
fn bad_failpoints_are_refused() {
    let test = TestServer::start();
    let client = test.client().admin();
    let point = |name: &'static str, mode: Value<'static>, data: DocBuf| {
        client.fails(doc! { "configureFailPoint" => name, "mode" => mode, "data" => data })
    };
    let good = || failing("ping", 1);
    assert_eq!(point("nonsense", "alwaysOn".into(), good()), 266);
    assert_eq!(point("failCommand", "sometimes".into(), good()), 2);
    assert_eq!(point("failCommand", doc! { "times" => -1 }.into(), good()), 2);
    assert_eq!(point("failCommand", doc! { "times" => "1" }.into(), good()), 14);
    assert_eq!(point("failCommand", doc! { "activationProbability" => 1.5 }.into(), good()), 2);
    assert_eq!(point("failCommand", 1.into(), good()), 14);
    assert_eq!(point("failCommand", "alwaysOn".into(), doc! { "nonsense" => 1 }), 2);
    assert_eq!(point("failCommand", "alwaysOn".into(), doc! { "errorCode" => 1 }), 2);
    let block = doc! { "failCommands" => array!["ping"], "blockConnection" => true };
    assert_eq!(point("failCommand", "alwaysOn".into(), block), 72);
    assert_eq!(
        test.client().fails(doc! { "configureFailPoint" => "failCommand", "mode" => "off" }),
        13
    );
    assert_eq!(pings(&test.client(), 1), [0]);
    let parameters = &test.server.parameters;
    parameters.set_at_startup("enableTestCommands", Value::Bool(false)).unwrap();
    assert_eq!(point("failCommand", "alwaysOn".into(), good()), 59);
}

#[test]
fn a_command_blocked_beyond_its_time_limit_has_no_effect() {
    let test = TestServer::start();
    let client = test.client();
    let data = doc! {
        "failCommands" => array!["insert"], "blockConnection" => true, "blockTimeMS" => 600_000,
    };
    set(&client, "alwaysOn".into(), data);
    let insert = |ms: i32| {
        doc! { "insert" => "c", "documents" => array![doc! { "_id" => 1 }], "maxTimeMS" => ms }
    };
    assert_eq!(client.fails(insert(5)), 50);
    assert_eq!(client.all_ids("c"), []);
    let data = doc! {
        "failCommands" => array!["insert"], "blockConnection" => true, "blockTimeMS" => 1,
    };
    set(&client, "alwaysOn".into(), data);
    client.ok(insert(600_000));
    assert_eq!(client.all_ids("c"), [1]);
}

#[test]
fn a_find_is_held_until_the_point_is_off_or_its_time_is_over() {
    let test = TestServer::start();
    let client = test.client();
    client.ok(doc! { "insert" => "c", "documents" => array![doc! { "_id" => 1 }] });
    let point = |mode: &'static str, data: DocBuf| {
        let name = "waitInFindBeforeMakingBatch";
        client.admin().run(&doc! { "configureFailPoint" => name, "mode" => mode, "data" => data })
    };
    let find = |name: &'static str| doc! { "find" => name, "maxTimeMS" => 5 };
    point("alwaysOn", doc! { "nss" => "test.c" });
    assert_eq!(client.fails(find("c")), 50);
    client.ok(find("other"));
    // One end of a held find is the failpoint's.
    std::thread::scope(|threads| {
        let held = threads.spawn(|| test.client().all_ids("c"));
        loop {
            let reply = point("alwaysOn", doc! { "nss" => "test.c" });
            if number(&reply, "count") > 0 {
                break;
            }
            std::thread::yield_now();
        }
        assert!(!held.is_finished());
        point("off", doc! {});
        assert_eq!(held.join().unwrap(), [1]);
    });
    assert_eq!(code_of(&point("alwaysOn", doc! { "shouldCheckForInterrupt" => false })), 2);
    assert_eq!(client.all_ids("c"), [1]);
}
