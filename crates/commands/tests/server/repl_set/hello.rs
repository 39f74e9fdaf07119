//! `hello` of a member in every state, and its waits for the next topology.

use super::{Rig, config, topology, view_of};
use crate::common::{Client, START_MS, at, code_of, number, show, text};
use kauri_base::{OpTime, Timestamp};
use kauri_bson::{DocBuf, DocWriter, Value, array, doc};
use kauri_member::view::Place;
use kauri_member::{MemberState, Progress, View};
use kauri_wire::{Message, MsgWriter, flags};

fn flag(reply: &DocBuf, field: &str) -> Option<bool> {
    match reply.as_doc().value(field) {
        Value::Bool(flag) => Some(flag),
        _ => None,
    }
}

fn hello(rig: &Rig) -> DocBuf {
    rig.client.ok(doc! { "hello" => 1 })
}

#[test]
fn before_the_set_begins_it_has_no_configuration() {
    let rig = Rig::start();
    let reply = hello(&rig);
    assert_eq!(flag(&reply, "isWritablePrimary"), Some(false));
    assert_eq!(
        (flag(&reply, "secondary"), flag(&reply, "isreplicaset")),
        (Some(false), Some(true))
    );
    assert_eq!(text(&reply, "info"), "Does not have a valid replica set config");
    assert!(
        reply.as_doc().get("setName").is_none() && reply.as_doc().get("operationTime").is_none()
    );
    assert_eq!(topology(&reply), Some(0));
    assert_eq!(flag(&rig.client.ok(doc! { "isMaster" => 1 }), "ismaster"), Some(false));
    // So it is once the set has removed it.
    rig.publish(MemberState::Removed, 3);
    assert_eq!(flag(&hello(&rig), "isreplicaset"), Some(true));
    assert_eq!(topology(&hello(&rig)), Some(1));
}

#[test]
fn a_primary_and_a_secondary_tell_the_set() {
    let rig = Rig::primary(3);
    let place = |seconds, wall_ms| Place {
        optime: OpTime { term: 3, timestamp: Timestamp { seconds, increment: 2 } },
        wall_ms,
    };
    let progress =
        Progress { applied: place(9, 9_500), committed: place(8, 8_500), ..Progress::default() };
    rig.member.set_progress(progress);
    let reply = hello(&rig);
    assert_eq!(text(&reply, "setName"), "rs0");
    assert_eq!((number(&reply, "setVersion"), topology(&reply)), (1, Some(1)));
    assert_eq!(reply.as_doc().value("hosts"), array!["test:1", "other1:1", "other2:1"]);
    assert_eq!(
        (flag(&reply, "isWritablePrimary"), flag(&reply, "secondary")),
        (Some(true), Some(false))
    );
    assert_eq!((text(&reply, "primary"), text(&reply, "me")), ("test:1".into(), "test:1".into()));
    let id = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 3];
    assert_eq!(reply.as_doc().value("electionId"), Value::ObjectId(id));
    let last = at(&reply, "lastWrite");
    assert_eq!(last.as_doc().value("lastWriteDate"), Value::DateTime(9_500));
    assert_eq!(last.as_doc().value("majorityWriteDate"), Value::DateTime(8_500));
    let (optime, majority) = (at(&last, "opTime"), at(&last, "majorityOpTime"));
    assert_eq!(number(&optime, "t"), 3);
    assert_eq!(
        optime.as_doc().value("ts"),
        Value::Timestamp(Timestamp { seconds: 9, increment: 2 })
    );
    assert_eq!(
        majority.as_doc().value("ts"),
        Value::Timestamp(Timestamp { seconds: 8, increment: 2 })
    );
    assert_eq!(flag(&rig.client.ok(doc! { "ismaster" => 1 }), "ismaster"), Some(true));

    let view = view_of(MemberState::Primary, config(3));
    rig.member.publish(View { is_writable: false, ..view });
    let reply = hello(&rig);
    assert_eq!(
        (flag(&reply, "isWritablePrimary"), flag(&reply, "secondary")),
        (Some(false), Some(true))
    );

    rig.publish(MemberState::Secondary, 3);
    let reply = hello(&rig);
    assert_eq!(
        (flag(&reply, "isWritablePrimary"), flag(&reply, "secondary")),
        (Some(false), Some(true))
    );
    assert_eq!(text(&reply, "primary"), "other1:1");
    assert!(reply.as_doc().get("electionId").is_none());
    rig.publish(MemberState::Recovering, 3);
    assert_eq!(flag(&hello(&rig), "secondary"), Some(false));
}

#[test]
fn members_of_other_kinds_are_told_apart() {
    let rig = Rig::start();
    let mut set = config(5);
    set.members[1].priority = 0.0;
    set.members[2].is_arbiter = true;
    set.members[2].priority = 0.0;
    set.members[3].is_hidden = true;
    set.members[3].priority = 0.0;
    set.members[4].delay_secs = 60;
    set.members[4].priority = 0.0;
    set.members[4].is_hidden = true;
    set.members[1].tags.insert("dc".into(), "east".into());
    let as_member = |me: usize, state| {
        rig.member.publish(View { me: Some(me), ..view_of(state, set.clone()) });
        hello(&rig)
    };
    let reply = as_member(1, MemberState::Secondary);
    assert_eq!(reply.as_doc().value("hosts"), array!["test:1"]);
    assert_eq!(reply.as_doc().value("passives"), array!["other1:1"]);
    assert_eq!(reply.as_doc().value("arbiters"), array!["other2:1"]);
    assert_eq!(flag(&reply, "passive"), Some(true));
    assert_eq!(text(&at(&reply, "tags"), "dc"), "east");
    let reply = as_member(2, MemberState::Arbiter);
    assert_eq!((flag(&reply, "arbiterOnly"), flag(&reply, "secondary")), (Some(true), Some(false)));
    assert_eq!(flag(&reply, "passive"), None);
    assert_eq!(flag(&as_member(3, MemberState::Secondary), "hidden"), Some(true));
    let reply = as_member(4, MemberState::Secondary);
    assert_eq!((number(&reply, "secondaryDelaySecs"), text(&reply, "me")), (60, "other4:1".into()));
}

fn awaited(process: [u8; 12], counter: i64) -> DocBuf {
    doc! {
        "hello" => 1, "maxAwaitTimeMS" => 600_000,
        "topologyVersion" => doc! { "processId" => process, "counter" => counter },
    }
}

#[test]
fn an_awaited_hello_wakes_with_the_next_topology() {
    let rig = Rig::primary(3);
    // What is not news is answered at once.
    assert_eq!(topology(&rig.client.ok(awaited([1; 12], 0))), Some(1), "an older counter");
    assert_eq!(topology(&rig.client.ok(awaited([2; 12], 9))), Some(1), "another process");
    assert_eq!(rig.client.fails(awaited([1; 12], 2)), 51764);
    let waiting: Vec<Client> = (0..2).map(|_| rig.test.client()).collect();
    for client in &waiting {
        client.send(&awaited([1; 12], 1));
    }
    rig.publish(MemberState::Secondary, 3);
    for client in &waiting {
        let reply = client.receive().expect("a reply");
        assert_eq!((topology(&reply), flag(&reply, "secondary")), (Some(2), Some(true)));
    }
}

#[test]
fn an_exhaust_of_hellos_tells_each_topology() {
    let rig = Rig::primary(3);
    let mut message = Vec::new();
    let writer = MsgWriter::begin(&mut message, 7, 0, flags::EXHAUST_ALLOWED);
    {
        let mut body = DocWriter::new(&mut message);
        body.put_all(awaited([1; 12], 0).as_doc());
        body.put("$db", "admin");
    }
    writer.finish(&mut message).unwrap();
    rig.client.send_bytes(&message);
    let next = || {
        let bytes = rig.client.receive_bytes().expect("a reply");
        let (_, Message::Msg(reply)) = Message::parse(&bytes).unwrap() else { panic!("no OP_MSG") };
        let body = kauri_bson::Doc::from_bytes(reply.body).unwrap().to_buf();
        (topology(&body), reply.flags & flags::MORE_TO_COME != 0)
    };
    assert_eq!(next(), (Some(1), true), "an older counter");
    rig.publish(MemberState::Secondary, 3);
    assert_eq!(next(), (Some(2), true));
    rig.publish(MemberState::Recovering, 3);
    assert_eq!(next(), (Some(3), true));
    // The last one tells that the member ends.
    rig.member.quiesce(START_MS + 1_500);
    assert_eq!(next(), (Some(4), false));
}

#[test]
fn a_member_that_ends_says_how_long_it_is_there() {
    let rig = Rig::primary(3);
    let other = rig.test.client();
    other.send(&awaited([1; 12], 1));
    rig.member.quiesce(START_MS + 1_500);
    for reply in [other.receive().expect("a reply"), rig.client.run(&doc! { "hello" => 1 })] {
        assert_eq!(code_of(&reply), 91, "{}", show(&reply));
        assert_eq!(number(&reply, "remainingQuiesceTimeMillis"), 1_500);
        assert_eq!(topology(&reply), Some(2));
    }
}
