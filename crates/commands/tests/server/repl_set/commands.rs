//! The commands of replica sets: what they check, what they ask the driver, what they reply.

use super::{Rig, config, topology, view_of};
use crate::common::{START_MS, TestServer, at, code_of, number, refusal, show, text};
use kauri_base::{Error, ErrorCode, OpTime, Timestamp};
use kauri_bson::{DocBuf, DocWriter, Value, array, doc};
use kauri_commands::registry::Report;
use kauri_member::view::Place;
use kauri_member::{MemberState, PeerStatus, Progress, Request, SetConfig};
use kauri_wire::{MsgWriter, flags};
use std::task::Waker;
use std::time::Duration;

fn document(members: &[(i32, &str)], version: i32) -> DocBuf {
    let members = Value::array(
        members.iter().map(|(id, host)| Value::from(doc! { "_id" => *id, "host" => *host })),
    );
    doc! { "_id" => "rs0", "version" => version, "members" => members }
}

#[test]
fn a_standalone_server_refuses_them() {
    let test = TestServer::start();
    let admin = test.client().admin();
    for name in [
        "replSetGetStatus",
        "replSetGetConfig",
        "replSetReconfig",
        "replSetStepDown",
        "replSetStepUp",
        "replSetFreeze",
        "replSetMaintenance",
        "replSetSyncFrom",
        "replSetMessage",
    ] {
        assert_eq!(
            refusal(&admin, doc! { name => 1 }),
            (76, "not running with --replSet".into()),
            "{name}"
        );
    }
    let why = "This node was not started with replication enabled.";
    assert_eq!(refusal(&admin, doc! { "replSetInitiate" => doc! {} }), (76, why.into()));
    assert_eq!(admin.fails(doc! { "replSetHeartbeat" => "rs0" }), 59);
    let reply = admin.ok(doc! { "listCommands" => 1 });
    let commands = at(&reply, "commands");
    assert!(commands.as_doc().get("replSetGetStatus").is_some());
    assert!(commands.as_doc().get("replSetMessage").is_none());
}

#[test]
fn a_set_begins_with_this_member_alone() {
    let rig = Rig::start();
    assert_eq!(rig.client.admin().fails(doc! { "replSetGetConfig" => 1 }), 94);
    assert_eq!(rig.client.admin().fails(doc! { "replSetGetStatus" => 1 }), 94);
    let (request, reply) = rig.asks(doc! { "replSetInitiate" => doc! {} });
    let Request::Initiate(config) = request else { panic!("{request:?}") };
    assert_eq!(text(&reply, "me"), "test:1");
    assert_ne!(config.settings.set_id, [0; 12]);
    let expected =
        SetConfig { term: 1, ..SetConfig::alone("rs0", "test:1", config.settings.set_id) };
    assert_eq!(config, expected);
    rig.member.publish(view_of(MemberState::Primary, config));
    let again = doc! { "replSetInitiate" => doc! {} };
    assert_eq!(refusal(&rig.client.admin(), again), (23, "already initialized".into()));
}

#[test]
fn a_set_begins_with_a_configuration_that_names_this_member_once() {
    let rig = Rig::start();
    let admin = rig.client.admin();
    let refused = |config: DocBuf| refusal(&admin, doc! { "replSetInitiate" => config });
    let late = doc! { "_id" => 1, "host" => "other:1", "secondaryDelaySecs" => 9 };
    let members = [doc! { "_id" => 0, "host" => "test:1" }, late];
    let members = Value::array(members.iter().map(Value::from));
    let delayed = doc! { "_id" => "rs0", "members" => members };
    for (config, words) in [
        (document(&[(0, "other:1")], 1), "No host described in new configuration"),
        (document(&[(0, "test:1"), (1, "alias:1")], 1), "all map to this node"),
        (document(&[(0, "test:1"), (0, "other:1")], 1), "same _id field"),
        (document(&[(0, "test:1")], 2), "must  have version 1"),
        (doc! { "_id" => "rs1", "members" => array![] }, "with name rs1"),
        (doc! { "_id" => "rs0", "members" => 1 }, "wrong type 'int'"),
        (delayed, "priority must be 0 when secondaryDelaySecs is used"),
    ] {
        let (code, message) = refused(config);
        assert!(code == 93 && message.contains(words), "{code} {message}");
    }
    let given = document(&[(0, "alias:1"), (1, "other")], 1);
    let (request, _) = rig.asks(doc! { "replSetInitiate" => given });
    let Request::Initiate(config) = request else { panic!("{request:?}") };
    assert_eq!((config.members[1].host.as_str(), config.members.len()), ("other:27017", 2));
}

#[test]
fn a_set_does_not_begin_with_servers_that_do_not_answer_or_are_in_a_set() {
    let rig = Rig::start();
    let admin = rig.client.admin();
    let check = "replSetInitiate quorum check failed because not all proposed set members responded affirmatively: ";
    for (hosts, code, words) in [
        (["other:1", "down:1"], 74, format!("{check}down:1 failed with Connection refused")),
        (
            ["alone:1", "other:1"],
            74,
            format!("{check}alone:1 failed with not running with --replSet"),
        ),
        (
            ["down:1", "down:2"],
            74,
            format!("{check}down:1 failed with Connection refused, down:2 "),
        ),
        (["down:1", "taken:1"], 103, "taken:1 is a member of replica set 'rs9' already".to_owned()),
    ] {
        let given = document(&[(0, "test:1"), (1, hosts[0]), (2, hosts[1])], 1);
        let (found, message) = refusal(&admin, doc! { "replSetInitiate" => given });
        assert!(found == code && message.starts_with(&words), "{found} {message}");
    }
}

#[test]
fn a_driver_that_refuses_has_its_error_in_the_reply() {
    let rig = Rig::start();
    let admin = rig.client.admin();
    admin.send(&doc! { "replSetInitiate" => doc! {} });
    rig.answer(Err(Error::new(ErrorCode::NodeNotFound, "unreachable")));
    assert_eq!(code_of(&admin.receive().expect("a reply")), 74);
}

#[test]
fn a_reconfiguration_follows_the_one_in_force() {
    let rig = Rig::primary(2);
    let admin = rig.client.admin();
    let in_force = SetConfig { term: 3, ..config(2) };
    rig.member.publish(view_of(MemberState::Primary, in_force));
    let refused = |config: DocBuf| refusal(&admin, doc! { "replSetReconfig" => config });
    for (config, code, words) in [
        (document(&[(0, "test:1")], 1), 103, "must be greater than old"),
        (document(&[(0, "other1:1"), (1, "test:1")], 2), 103, "both have members with host"),
        (document(&[(0, "test:1"), (2, "a:1"), (3, "b:1")], 2), 103, "at most 1 voting"),
        (document(&[(1, "other1:1")], 2), 74, "maps to this node"),
        (document(&[(0, "test:1"), (1, "test:1")], 2), 103, "same host field"),
        (doc! { "_id" => "rs1", "members" => array![] }, 93, "with name rs1"),
    ] {
        let (found, message) = refused(config);
        assert!(found == code && message.contains(words), "{found} {message}");
    }
    assert_eq!(admin.fails(doc! { "replSetReconfig" => 1 }), 2);
    let given = document(&[(0, "test:1"), (1, "other1:1"), (2, "c:1")], 2);
    let (request, _) = rig.asks(doc! { "replSetReconfig" => given.clone() });
    let Request::Reconfigure { config, force: false } = request else { panic!("{request:?}") };
    assert_eq!((config.version, config.term, config.members.len()), (2, 3, 3));
    assert_eq!(config.settings.set_id, [7; 12], "the set keeps its id");

    rig.publish(MemberState::Secondary, 2);
    let reply = admin.run(&doc! { "replSetReconfig" => given.clone() });
    assert_eq!((code_of(&reply), topology(&reply)), (10107, Some(3)), "{}", show(&reply));
    let (request, _) = rig.asks(doc! { "replSetReconfig" => given, "force" => true });
    let Request::Reconfigure { config, force: true } = request else { panic!("{request:?}") };
    assert!(config.version > 10_000 && config.term == -1, "{}", config.version);
}

#[test]
fn an_arbiter_that_changes_the_default_write_concern_needs_one() {
    let rig = Rig::acknowledging(2);
    let admin = rig.client.admin();
    let arbiter = doc! { "_id" => 2, "host" => "c:1", "arbiterOnly" => true };
    let members =
        [(0, "test:1"), (1, "other1:1")].map(|(id, host)| doc! { "_id" => id, "host" => host });
    let members = Value::array(members.iter().chain([&arbiter]).map(Value::from));
    let given = doc! { "_id" => "rs0", "version" => 2, "members" => members };
    let (code, message) = refusal(&admin, doc! { "replSetReconfig" => &given });
    assert!(code == 103 && message.contains("setDefaultRWConcern"), "{code} {message}");
    admin.ok(doc! { "setDefaultRWConcern" => 1, "defaultWriteConcern" => doc! { "w" => 1 } });
    let (request, _) = rig.asks(doc! { "replSetReconfig" => given });
    assert!(matches!(request, Request::Reconfigure { force: false, .. }), "{request:?}");
}

#[test]
fn the_configuration_and_its_commitment_are_told() {
    let rig = Rig::primary(3);
    let admin = rig.client.admin();
    let reply = admin.ok(doc! { "replSetGetConfig" => 1 });
    assert_eq!(at(&reply, "config"), config(3).to_doc());
    let committed = || {
        let reply = admin.ok(doc! { "replSetGetConfig" => 1, "commitmentStatus" => true });
        reply.as_doc().value("commitmentStatus").truthy()
    };
    assert!(!committed());
    rig.member.set_peers(vec![PeerStatus { member: 2, config: (1, 1), ..PeerStatus::default() }]);
    assert!(committed());
    rig.publish(MemberState::Secondary, 3);
    assert_eq!(admin.fails(doc! { "replSetGetConfig" => 1, "commitmentStatus" => true }), 10107);
}

#[test]
fn operators_requests_reach_the_driver() {
    let rig = Rig::primary(3);
    let admin = rig.client.admin();
    for (command, words) in [
        (doc! { "replSetStepDown" => 5 }, "stepdown period must be longer than"),
        (doc! { "replSetStepDown" => -1 }, "must be a positive integer"),
        (
            doc! { "replSetStepDown" => 60, "secondaryCatchUpPeriodSecs" => -1 },
            "must be a positive or absent",
        ),
    ] {
        let (code, message) = refusal(&admin, command);
        assert!(code == 2 && message.contains(words), "{code} {message}");
    }
    let secs = Duration::from_secs;
    for (command, expected) in [
        (
            doc! { "replSetStepDown" => 0 },
            Request::StepDown { time: secs(60), catch_up: secs(10), force: false },
        ),
        (
            doc! { "replSetStepDown" => 5, "force" => true },
            Request::StepDown { time: secs(5), catch_up: secs(0), force: true },
        ),
        (doc! { "replSetStepUp" => 1 }, Request::StepUp),
    ] {
        assert_eq!(rig.asks(command).0, expected);
    }
    assert_eq!(admin.fails(doc! { "replSetFreeze" => 10 }), 95);
    assert_eq!(admin.fails(doc! { "replSetMaintenance" => true }), 95);
    rig.publish(MemberState::Secondary, 3);
    assert_eq!(admin.fails(doc! { "replSetStepDown" => 60 }), 10107);
    assert_eq!(admin.fails(doc! { "replSetMaintenance" => false }), 96);
    assert_eq!(rig.asks(doc! { "replSetFreeze" => 10 }).0, Request::Freeze(secs(10)));
    let (request, reply) = rig.asks(doc! { "replSetFreeze" => 0 });
    assert_eq!((request, text(&reply, "info")), (Request::Freeze(secs(0)), "unfreezing".into()));
    assert_eq!(rig.asks(doc! { "replSetMaintenance" => true }).0, Request::Maintenance(true));
    // Its log stands still before its files do.
    let (request, reply) = rig.asks(doc! { "fsync" => 1, "lock" => true });
    assert_eq!((request, number(&reply, "lockCount")), (Request::Hold, 1));
    admin.ok(doc! { "fsyncUnlock" => 1 });
}

#[test]
fn secondaries_sync_from_the_primary() {
    let rig = Rig::primary(3);
    let admin = rig.client.admin();
    let from = |host: &str| refusal(&admin, doc! { "replSetSyncFrom" => host }).0;
    assert_eq!(from("other1:1"), 95, "a primary syncs from nobody");
    rig.publish(MemberState::Secondary, 3);
    assert_eq!([from("nowhere:1"), from("test:1"), from("other2:1")], [74, 72, 72]);
    let reply = admin.ok(doc! { "replSetSyncFrom" => "other1:1" });
    assert_eq!(text(&reply, "syncFromRequested"), "other1:1");
}

#[test]
fn the_status_tells_when_another_member_was_elected() {
    let rig = Rig::primary(3);
    rig.publish(MemberState::Secondary, 4);
    let elected = Some((START_MS - 7, Timestamp { seconds: 9, increment: 1 }));
    let of = |member, state| PeerStatus { member, state, elected, ..PeerStatus::default() };
    rig.member.set_peers(vec![of(1, MemberState::Primary), of(2, MemberState::Secondary)]);
    let reply = rig.client.admin().ok(doc! { "replSetGetStatus" => 1 });
    let Value::Array(members) = reply.as_doc().value("members") else { panic!("no members") };
    let members: Vec<_> = members.as_doc().iter().filter_map(|member| member.as_doc()).collect();
    assert_eq!(members[1].value("electionDate"), Value::DateTime(START_MS - 7));
    assert!(
        matches!(members[1].value("electionTime"), Value::Timestamp(time) if time.seconds == 9)
    );
    for other in [members[0], members[2]] {
        assert!(other.get("electionDate").is_none() && other.get("electionTime").is_none());
    }
}

#[test]
fn the_status_tells_the_set_as_this_member_sees_it() {
    let rig = Rig::primary(3);
    let place = |seconds: u32| Place {
        optime: OpTime { term: 3, timestamp: Timestamp { seconds, increment: 1 } },
        wall_ms: i64::from(seconds) * 1000 + 5,
    };
    rig.member.set_progress(Progress {
        written: place(20),
        durable: place(19),
        applied: place(20),
        committed: place(18),
        ..Progress::default()
    });
    let answers = PeerStatus {
        member: 1,
        state: MemberState::Secondary,
        up_since_ms: START_MS - 5_000,
        answered_ms: START_MS - 100,
        ping_us: 1_700,
        written: place(18),
        durable: place(17),
        config: (1, 1),
        ..PeerStatus::default()
    };
    let down = PeerStatus {
        member: 2,
        state: MemberState::Down,
        error: "connection refused".into(),
        ..PeerStatus::default()
    };
    rig.member.set_peers(vec![answers, down]);
    let reply = rig.client.admin().ok(doc! { "replSetGetStatus" => 1 });
    let counts = [
        "myState",
        "term",
        "heartbeatIntervalMillis",
        "majorityVoteCount",
        "writeMajorityCount",
        "votingMembersCount",
        "writableVotingMembersCount",
        "syncSourceId",
    ];
    assert_eq!(counts.map(|field| number(&reply, field)), [1, 3, 250, 2, 2, 3, 3, -1]);
    let optimes = at(&reply, "optimes");
    let seconds = |field: &str| match at(&optimes, field).as_doc().value("ts") {
        Value::Timestamp(time) => time.seconds,
        _ => panic!("no time in {field}"),
    };
    let fields =
        ["lastCommittedOpTime", "readConcernMajorityOpTime", "appliedOpTime", "durableOpTime"];
    assert_eq!(fields.map(seconds), [18, 18, 20, 19]);
    assert_eq!(number(&at(&reply, "electionCandidateMetrics"), "numVotesNeeded"), 2);
    let Value::Array(members) = reply.as_doc().value("members") else { panic!("no members") };
    let members: Vec<DocBuf> =
        members.as_doc().iter().map(|m| m.as_doc().unwrap().to_buf()).collect();
    let states: Vec<String> = members.iter().map(|member| text(member, "stateStr")).collect();
    assert_eq!(states, ["PRIMARY", "SECONDARY", "(not reachable/healthy)"]);
    assert_eq!(members[0].as_doc().value("self"), Value::Bool(true));
    assert_eq!([0, 1, 2].map(|at| number(&members[at], "health")), [1, 1, 0]);
    assert_eq!((number(&members[1], "pingMs"), number(&members[1], "uptime")), (1, 5));
    assert_eq!(text(&members[1], "syncSourceHost"), "test:1");
    assert_eq!(text(&members[2], "lastHeartbeatMessage"), "connection refused");
    assert_eq!(text(&members[0], "infoMessage"), "");
    let sample = at(&rig.client.admin().ok(doc! { "getDiagnosticData" => 1 }), "data");
    let sampled = at(&sample, "replSetGetStatus");
    assert_eq!((text(&sampled, "set"), number(&sampled, "myState")), ("rs0".into(), 1));
    rig.member.note_failure("no space");
    let reply = rig.client.admin().ok(doc! { "replSetGetStatus" => 1 });
    let Value::Array(members) = reply.as_doc().value("members") else { panic!("no members") };
    let own = members.as_doc().first().and_then(|own| own.as_doc()).expect("itself").to_buf();
    assert_eq!(text(&own, "infoMessage"), "cannot write its log: no space");
    let repl = at(&rig.client.ok(doc! { "serverStatus" => 1 }), "repl");
    assert_eq!((text(&repl, "setName"), number(&repl, "setVersion")), ("rs0".into(), 1));
    let place = |seconds| {
        let timestamp = Timestamp { seconds, increment: 1 };
        Place { optime: OpTime { term: 1, timestamp }, wall_ms: 0 }
    };
    let progress = Progress { first: place(7), written: place(9), ..Progress::default() };
    rig.member.set_progress(progress);
    let oplog = at(&rig.client.ok(doc! { "serverStatus" => 1, "oplog" => 1 }), "oplog");
    let time = |name| oplog.as_doc().value(name);
    assert_eq!(time("earliestOptime"), place(7).optime.timestamp.into());
    assert_eq!(time("latestOptime"), place(9).optime.timestamp.into());
}

#[test]
fn a_members_message_reaches_the_driver_without_a_reply() {
    let rig = Rig::primary(3);
    let command = kauri_commands::registry::by_name()["replSetMessage"].command;
    assert!(command.report == Report::None && command.is_internal);
    let mut bytes = vec![9u8; 45 << 20];
    let message = Value::Binary { subtype: 0, bytes: bytes.clone().into() };
    let mut request = Vec::new();
    let writer = MsgWriter::begin(&mut request, 1, 0, flags::MORE_TO_COME);
    {
        let mut body = DocWriter::new(&mut request);
        body.put("replSetMessage", message);
        body.put("$db", "admin");
    }
    writer.finish(&mut request).unwrap();
    rig.client.send_bytes(&request);
    // The only reply is that to the next command.
    let reply = rig.client.ok(doc! { "buildInfo" => 1 });
    assert!(reply.as_doc().get("version").is_some(), "{}", show(&reply));
    let arrived = rig.member.take_arrived(Waker::noop(), false).expect("a message");
    assert!(arrived.messages == [std::mem::take(&mut bytes)]);
    assert_eq!(rig.client.admin().fails(doc! { "replSetMessage" => 1 }), 14);
}
