//! Times in replies and requests, and the read concerns that wait.

use super::{ALL, Rig, config};
use crate::common::{START_MS, at, code_of, first_batch, number, show, text, until};
use kauri_base::{CommitSeq, Error, ErrorCode, Timestamp};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_member::{Concern, MemberState, Request};
use std::time::Duration;

fn time(seconds: u32, increment: u32) -> Timestamp {
    Timestamp { seconds, increment }
}

/// `operationTime` and `$clusterTime` of a reply.
fn times(reply: &DocBuf) -> Option<(Timestamp, Timestamp)> {
    let as_time = |value: Value<'_>| match value {
        Value::Timestamp(time) => time,
        other => panic!("no time: {other:?}"),
    };
    reply.as_doc().get("$clusterTime")?;
    let cluster = at(reply, "$clusterTime");
    let signature = at(&cluster, "signature");
    let hash = Value::Binary { subtype: 0, bytes: vec![0; 20].into() };
    assert_eq!((signature.as_doc().value("hash"), number(&signature, "keyId")), (hash, 0));
    let operation = as_time(reply.as_doc().value("operationTime"));
    Some((operation, as_time(cluster.as_doc().value("clusterTime"))))
}

fn find(concern: DocBuf) -> DocBuf {
    doc! { "find" => "c", "filter" => doc! { "_id" => 1 }, "readConcern" => concern }
}

/// The same for the ordinary path.
fn scan(concern: DocBuf) -> DocBuf {
    doc! { "find" => "c", "filter" => doc! { "_id" => doc! { "$lt" => 2 } }, "readConcern" => concern }
}

fn told(time: Timestamp) -> DocBuf {
    doc! { "clusterTime" => time }
}

#[test]
fn every_reply_has_the_times_of_the_set() {
    let rig = Rig::acknowledging(1);
    let large = "x".repeat(200 * 1024);
    rig.client.insert("c", [doc! { "_id" => 7, "large" => large.as_str() }]);
    let base = rig.visible();
    rig.member.set_times(base, 200 << 32 | 9, 201 << 32 | 1);
    let insert = |id: i32| doc! { "insert" => "c", "documents" => array![doc! { "_id" => id }] };
    for (command, expected) in [
        (find(doc! {}), time(200, 9)),
        (scan(doc! {}), time(200, 9)),
        (doc! { "find" => "c", "filter" => doc! { "_id" => 7 } }, time(200, 9)),
        (doc! { "ping" => 1 }, time(200, 9)),
        (doc! { "hello" => 1 }, time(200, 9)),
        (doc! { "nosuch" => 1 }, time(200, 9)),
        (doc! { "find" => 1 }, time(200, 9)),
        (insert(60), time(201, 1)),
        (insert(61), time(201, 2)),
        (find(doc! {}), time(201, 2)),
    ] {
        let reply = rig.client.run(&command);
        assert_eq!(times(&reply), Some((expected, expected)), "{}", show(&command));
    }
    let reply = rig.client.ok(doc! { "find" => "c", "filter" => doc! { "_id" => 7 } });
    assert_eq!(text(&first_batch(&reply)[0], "large").len(), large.len());
}

#[test]
fn the_clusters_time_follows_what_clients_tell() {
    let rig = Rig::acknowledging(1);
    let now = (START_MS / 1000) as u32;
    let year = 365 * 24 * 60 * 60;
    let find = |time: Value<'static>| {
        doc! { "find" => "c", "filter" => doc! { "_id" => 1 }, "$clusterTime" => time }
    };
    let cluster_time = |reply: &DocBuf| times(reply).expect("times").1;
    let reply = rig.client.ok(find(told(time(now, 3)).into()));
    assert_eq!(cluster_time(&reply), time(now, 3));
    let reply = rig.client.ok(find(told(time(5, 3)).into()));
    assert_eq!(cluster_time(&reply), time(now, 3), "an older one is no news");
    rig.client.ok(find(told(time(now + year, 1)).into()));
    let reply = rig.client.run(&find(told(time(now + year + 1, 1)).into()));
    assert!(text(&reply, "errmsg").contains("too far from this node's wall clock"));
    assert_eq!(text(&reply, "codeName"), "ClusterTimeFailsRateLimiter");
    assert_eq!(rig.client.fails(find(doc! {}.into())), 4);
    assert_eq!(rig.client.fails(find(doc! { "clusterTime" => 1 }.into())), 14);
    assert_eq!(rig.client.fails(find(Value::from(1))), 14);
}

#[test]
fn a_read_after_a_time_waits_for_it() {
    let rig = Rig::acknowledging(1);
    rig.member.set_times(rig.visible(), 200 << 32 | 9, 201 << 32 | 1);
    for build in [find, scan] {
        let after = |time| build(doc! { "level" => "local", "afterClusterTime" => time });
        rig.client.ok(after(time(200, 9)));
        assert_eq!(rig.client.fails(after(time(900, 1))), 72, "nobody has told of it");
        rig.member.advance_cluster_time(time(300, 1));
        rig.client.send(&after(time(300, 1)));
        assert_eq!(rig.answer(Ok(())), Request::Reach(time(300, 1)));
        assert_eq!(code_of(&rig.client.receive().expect("a reply")), 0);
    }
    let early = doc! { "level" => "linearizable", "afterClusterTime" => time(1, 1) };
    assert_eq!(rig.client.fails(find(early)), 72);
    rig.client.send(&scan(doc! { "afterClusterTime" => time(300, 1) }));
    rig.answer(Err(Error::new(ErrorCode::InterruptedDueToReplStateChange, "stepped down")));
    assert_eq!(code_of(&rig.client.receive().expect("a reply")), 11602);
}

#[test]
fn a_majority_read_waits_for_what_it_has_seen() {
    for build in [find, scan] {
        let rig = Rig::caught_up(config(3));
        let majority = build(doc! { "level" => "majority" });
        rig.client.ok(majority.clone());
        let one = doc! { "w" => 1 };
        let documents = array![doc! { "_id" => 70 }];
        let writer = rig.test.client();
        writer.send(&doc! { "insert" => "c", "documents" => documents, "writeConcern" => one });
        rig.until_one_waits();
        rig.member.acks().reach(|known| if *known == Concern::Committed { ALL } else { 0 });
        assert_eq!(code_of(&writer.receive().expect("a reply")), 0);
        rig.client.send(&majority);
        rig.until_one_waits();
        rig.member.acks().reach(|known| if *known == Concern::Majority { ALL } else { 0 });
        assert_eq!(code_of(&rig.client.receive().expect("a reply")), 0);
        // A secondary has only what the set keeps.
        rig.publish(MemberState::Secondary, 3);
        let mut command = majority.clone();
        command = DocBuf::build(|out| {
            out.put_all(command.as_doc());
            out.put("$readPreference", super::preference("secondary"));
        });
        rig.client.ok(command);
    }
}

#[test]
fn a_read_without_a_concern_has_the_one_of_the_set() {
    for build in [find, scan] {
        let rig = Rig::caught_up(config(3));
        let level = doc! { "level" => "majority" };
        rig.client
            .admin()
            .send(&doc! { "setDefaultRWConcern" => 1, "defaultReadConcern" => level });
        until("an acknowledged default", || {
            rig.acknowledge_present();
            rig.client.receive_within(Duration::ZERO).is_some()
        });
        let documents = array![doc! { "_id" => 70 }];
        let writer = rig.test.client();
        writer.send(&doc! { "insert" => "c", "documents" => documents });
        rig.until_one_waits();
        rig.client.ok(build(doc! { "level" => "local" }));
        let before = rig.test.server.operations.next_id();
        let command = build(doc! {});
        let plain = command.as_doc().iter().filter(|elem| elem.key() != "readConcern");
        rig.client.send(&DocBuf::build(|out| plain.for_each(|elem| out.put_elem(elem))));
        until("a read that waits", || rig.test.server.operations.next_id() > before + 1);
        assert!(rig.client.receive_within(Duration::ZERO).is_none());
        rig.acknowledge_present();
        assert_eq!(code_of(&rig.client.receive().expect("a reply")), 0);
    }
}

#[test]
fn a_majority_read_fails_with_the_leadership() {
    let rig = Rig::caught_up(config(3));
    let documents = array![doc! { "_id" => 70 }];
    let writer = rig.test.client();
    writer.send(&doc! { "insert" => "c", "documents" => documents });
    rig.until_one_waits();
    let (other, majority) = (rig.test.client(), scan(doc! { "level" => "majority" }));
    let before = rig.test.server.operations.next_id();
    other.send(&majority);
    until("a read", || rig.test.server.operations.next_id() > before + 1);
    rig.member.acks().end(Error::new(ErrorCode::InterruptedDueToReplStateChange, "stepped down"));
    rig.publish(MemberState::Secondary, 3);
    let code = code_of(&other.receive().expect("a reply"));
    assert!(matches!(code, 11602 | 13435), "{code}");
}

#[test]
fn a_linearizable_read_asks_whether_it_is_the_primary() {
    let rig = Rig::acknowledging(1);
    for build in [find, scan] {
        rig.client.send(&build(doc! { "level" => "linearizable" }));
        assert_eq!(rig.answer(Ok(())), Request::ConfirmPrimary);
        assert_eq!(code_of(&rig.client.receive().expect("a reply")), 0);
        rig.client.send(&build(doc! { "level" => "linearizable" }));
        rig.answer(Err(Error::new(ErrorCode::NotWritablePrimary, "not primary")));
        assert_eq!(code_of(&rig.client.receive().expect("a reply")), 10107);
    }
    assert_eq!(rig.client.fails(find(doc! { "level" => "snapshot" })), 115);
    rig.client.ok(find(doc! { "level" => "available" }));
    rig.publish(MemberState::Secondary, 1);
    let mut command = scan(doc! { "level" => "linearizable" });
    command = DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put("$readPreference", super::preference("nearest"));
    });
    assert_eq!(rig.client.fails(command), 10107);
    assert!(rig.visible() > CommitSeq(0));
}
