//! What a member serves in each state, on the express path and the ordinary one.

use super::{Rig, config, preference, topology, view_of};
use crate::common::{Client, code_of, first_batch, show};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_member::{MemberState, View};

/// A read and writes; those of `one` document take the express path.
fn find(mode: &str) -> DocBuf {
    doc! { "find" => "c", "filter" => doc! { "_id" => 1 }, "$readPreference" => preference(mode) }
}

fn insert() -> DocBuf {
    doc! { "insert" => "c", "documents" => array![doc! { "_id" => 50 }] }
}

fn update() -> DocBuf {
    let statement =
        doc! { "q" => doc! { "_id" => 1 }, "u" => doc! { "$set" => doc! { "a" => 1 } } };
    doc! { "update" => "c", "updates" => array![statement] }
}

fn delete() -> DocBuf {
    let statement = doc! { "q" => doc! { "_id" => 1 }, "limit" => 1 };
    doc! { "delete" => "c", "deletes" => array![statement] }
}

/// The code of the reply. A state change tells the topology.
#[track_caller]
fn code(rig: &Rig, client: &Client, command: &DocBuf) -> i64 {
    let reply = client.run(command);
    let code = code_of(&reply);
    if matches!(code, 10107 | 13435 | 13436) {
        assert_eq!(topology(&reply), Some(rig.member.view().topology), "{}", show(&reply));
    }
    code
}

#[test]
fn each_state_serves_what_it_may() {
    let rig = Rig::acknowledging(3);
    let client = &rig.client;
    let sink = doc! {
        "aggregate" => "c", "pipeline" => array![doc! { "$out" => "d" }], "cursor" => doc! {},
        "$readPreference" => preference("secondary"),
    };
    let commands = [
        find("primary"),
        find("secondary"),
        insert(),
        update(),
        delete(),
        doc! { "create" => "d" },
        sink,
        doc! { "ping" => 1 },
    ];
    let codes = || commands.each_ref().map(|command| code(&rig, client, command));
    let writes = [10107; 5];
    let of = |primary, secondary| {
        let mut all = vec![primary, secondary];
        all.extend(writes);
        all.push(0);
        all
    };
    rig.publish(MemberState::Secondary, 3);
    assert_eq!(codes().to_vec(), of(13435, 0));
    for state in [
        MemberState::Startup,
        MemberState::Recovering,
        MemberState::Startup2,
        MemberState::Arbiter,
        MemberState::Rollback,
        MemberState::Removed,
    ] {
        rig.publish(state, 3);
        assert_eq!(codes().to_vec(), of(13435, 13436), "{state:?}");
    }
    // A new primary that still applies serves as a secondary.
    let view = view_of(MemberState::Primary, config(3));
    rig.member.publish(View { is_writable: false, ..view });
    assert_eq!(codes().to_vec(), of(13435, 0));
    rig.publish(MemberState::Primary, 3);
    assert_eq!(codes(), [0; 8]);
}

#[test]
fn the_ordinary_path_refuses_what_the_express_path_does() {
    let rig = Rig::acknowledging(1);
    rig.publish(MemberState::Secondary, 1);
    let express = [find("primary"), find("nearest"), insert(), update(), delete()];
    let codes = || express.each_ref().map(|command| code(&rig, &rig.client, command));
    let expected = [13435, 0, 10107, 10107, 10107];
    assert_eq!(codes(), expected);
    rig.leave_express_path();
    assert_eq!(codes(), expected);
}

#[test]
fn a_cursor_goes_on_after_the_primary_has_stepped_down() {
    let rig = Rig::acknowledging(3);
    let reply = rig.client.ok(doc! { "find" => "c", "batchSize" => 1 });
    rig.publish(MemberState::Secondary, 3);
    let id = crate::common::cursor_id(&reply);
    rig.client.ok(doc! { "getMore" => id, "collection" => "c", "batchSize" => 1 });
}

#[test]
fn a_flag_of_old_messages_lets_a_secondary_answer() {
    let rig = Rig::acknowledging(1);
    rig.publish(MemberState::Secondary, 1);
    let code = |flags: u32| {
        let mut message = vec![0; 16];
        message.extend_from_slice(&flags.to_le_bytes());
        message.extend_from_slice(b"test.$cmd\0");
        message.extend_from_slice(&0i32.to_le_bytes());
        message.extend_from_slice(&(-1i32).to_le_bytes());
        message.extend_from_slice(doc! { "count" => "c" }.as_bytes());
        let (length, query) = (message.len() as i32, 2004i32);
        message[..4].copy_from_slice(&length.to_le_bytes());
        message[12..16].copy_from_slice(&query.to_le_bytes());
        rig.client.send_bytes(&message);
        let reply = rig.client.receive_bytes().expect("a reply");
        // The document of an OP_REPLY is behind two headers.
        code_of(&kauri_bson::Doc::from_bytes(&reply[36..]).expect("a document").to_buf())
    };
    assert_eq!((code(0), code(4)), (13435, 0));
}

#[test]
fn the_members_own_database_cannot_be_written() {
    let rig = Rig::acknowledging(1);
    let local = rig.client.on("local");
    assert_eq!(local.fails(insert()), 20);
    assert_eq!(local.fails(doc! { "create" => "c" }), 20);
    let admin = rig.client.admin();
    assert_eq!(admin.fails(doc! { "renameCollection" => "test.c", "to" => "local.c" }), 20);
    let operation = doc! { "insert" => 0, "document" => doc! { "_id" => 1 } };
    let bulk = doc! {
        "bulkWrite" => 1, "ops" => array![operation],
        "nsInfo" => array![doc! { "ns" => "local.c" }],
    };
    assert_eq!(admin.fails(bulk), 20);
    rig.publish(MemberState::Recovering, 1);
    assert_eq!(first_batch(&local.ok(doc! { "find" => "c" })), [] as [DocBuf; 0]);
}

#[test]
fn a_read_preference_that_is_none_is_refused() {
    let rig = Rig::acknowledging(1);
    let stale = doc! { "mode" => "secondary", "maxStalenessSeconds" => 10 };
    assert_eq!(rig.client.fails(doc! { "find" => "c", "$readPreference" => stale }), 160);
    let tags = Value::array([Value::from(doc! { "a" => "b" })]);
    let primary = doc! { "mode" => "primary", "tags" => tags };
    assert_eq!(rig.client.fails(doc! { "find" => "c", "$readPreference" => primary }), 2);
}
