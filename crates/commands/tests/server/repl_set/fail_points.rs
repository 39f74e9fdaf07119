//! Failpoints of drivers' tests that concern sets: `onPrimaryTransactionalWrite`, and the topology's version with errors
//! that `failCommand` makes.

use super::{Rig, topology};
use crate::common::{Client, code_of, first_batch, lsid, number, show, write_errors};
use kauri_bson::{DocBuf, Value, array, doc};

const POINT: &str = "onPrimaryTransactionalWrite";

fn set(client: &Client, name: &str, mode: impl Into<Value<'static>>, data: DocBuf) {
    client.admin().ok(doc! { "configureFailPoint" => name, "mode" => mode.into(), "data" => data });
}

/// Each command that may be numbered, of one statement. There are documents 0 to 3.
fn commands() -> Vec<DocBuf> {
    let inc = || doc! { "$inc" => doc! { "a" => 1 } };
    let by_id = || doc! { "_id" => 1 };
    let ops = array![doc! { "update" => 0, "filter" => by_id(), "updateMods" => inc() }];
    let ns = array![doc! { "ns" => "test.c" }];
    vec![
        doc! { "insert" => "c", "documents" => array![doc! { "_id" => 10 }] },
        doc! { "update" => "c", "updates" => array![doc! { "q" => by_id(), "u" => inc() }] },
        doc! { "delete" => "c", "deletes" => array![doc! { "q" => by_id(), "limit" => 1 }] },
        doc! { "findAndModify" => "c", "query" => by_id(), "update" => inc() },
        doc! { "bulkWrite" => 1, "ops" => ops, "nsInfo" => ns },
    ]
}

fn client_of(rig: &Rig, command: &DocBuf) -> Client {
    let client = rig.test.client();
    if command.as_doc().get("bulkWrite").is_some() { client.admin() } else { client }
}

fn numbered(command: &DocBuf, number: i64) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put("lsid", lsid(1));
        out.put("txnNumber", number);
    })
}

fn is_retry(reply: &DocBuf) -> bool {
    ["retriedStmtIds", "retriedStmtId"].iter().any(|name| reply.as_doc().get(name).is_some())
}

/// All documents.
fn state(rig: &Rig) -> Vec<DocBuf> {
    first_batch(&rig.client.ok(doc! { "find" => "c", "sort" => doc! { "_id" => 1 } }))
}

#[test]
fn a_write_is_executed_before_its_connection_ends() {
    for command in commands() {
        let rig = Rig::acknowledging(1);
        let before = state(&rig);
        set(&rig.client, POINT, doc! { "times" => 1 }, doc! {});
        let (client, command) = (client_of(&rig, &command), numbered(&command, 1));
        client.send(&command);
        assert!(client.receive().is_none() && client.is_closed(), "{}", show(&command));
        let after = state(&rig);
        assert_ne!(before, after, "{}", show(&command));
        let reply = client_of(&rig, &command).ok(command.clone());
        assert!(is_retry(&reply), "{}", show(&reply));
        assert_eq!(state(&rig), after, "{}", show(&command));
    }
}

#[test]
fn a_write_may_fail_before_it_is_executed() {
    for command in commands() {
        let rig = Rig::acknowledging(1);
        let before = state(&rig);
        let data = doc! { "failBeforeCommitExceptionCode" => 1 };
        set(&rig.client, POINT, doc! { "times" => 1 }, data);
        let (client, command) = (client_of(&rig, &command), numbered(&command, 1));
        client.send(&command);
        assert!(client.receive().is_none() && client.is_closed(), "{}", show(&command));
        assert_eq!(state(&rig), before, "{}", show(&command));
        let reply = client_of(&rig, &command).ok(command.clone());
        assert!(!is_retry(&reply), "{}", show(&reply));
        assert_ne!(state(&rig), before, "{}", show(&command));
    }
}

#[test]
fn each_statement_counts_and_writes_without_number_do_not() {
    let rig = Rig::acknowledging(1);
    let data = doc! { "closeConnection" => false, "failBeforeCommitExceptionCode" => 8 };
    set(&rig.client, POINT, doc! { "skip" => 3 }, data);
    let all = commands();
    let (insert, increment) = (&all[0], &all[1]);
    rig.client.ok(increment.clone());
    let two = array![doc! { "_id" => 20 }, doc! { "_id" => 21 }];
    rig.client.ok(numbered(&doc! { "insert" => "c", "documents" => two }, 1));
    rig.client.ok(numbered(insert, 2));
    let reply = rig.client.run(&numbered(increment, 3));
    assert_eq!(write_errors(&reply), [(0, 8)], "{}", show(&reply));
    rig.client.ok(increment.clone());
    assert_eq!(number(&state(&rig)[1], "a"), 2);
}

#[test]
fn other_options_are_refused() {
    let rig = Rig::acknowledging(1);
    for data in [doc! { "x" => 1 }, doc! { "failBeforeCommitExceptionCode" => "x" }] {
        let command = doc! { "configureFailPoint" => POINT, "mode" => "alwaysOn", "data" => data };
        assert_eq!(rig.client.admin().fails(command), 2);
    }
}

#[test]
fn that_a_server_ends_is_of_a_topology_only_when_it_does() {
    let rig = Rig::primary(3);
    let versions = || {
        [91, 11600, 10107, 189].map(|code: i32| {
            let data = doc! { "failCommands" => array!["ping"], "errorCode" => code };
            set(&rig.client, "failCommand", doc! { "times" => 1 }, data);
            let reply = rig.client.run(&doc! { "ping" => 1 });
            assert_eq!(code_of(&reply), i64::from(code));
            topology(&reply)
        })
    };
    assert_eq!(versions(), [None, None, Some(1), Some(1)]);
    rig.member.quiesce(i64::MAX);
    assert_eq!(versions(), [Some(2); 4]);
}
