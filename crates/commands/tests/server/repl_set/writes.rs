//! What a write on a member waits for, and what its reply says when it has waited in vain.

use super::{ALL, Rig, config, topology, view_of};
use crate::common::{at, code_of, lsid, number, show, text};
use kauri_base::{Error, ErrorCode};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_member::{Concern, MemberState, SetConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

fn insert(id: i32, concern: &DocBuf) -> DocBuf {
    let documents = array![doc! { "_id" => id }];
    doc! { "insert" => "c", "documents" => documents, "writeConcern" => concern }
}

/// The same for the ordinary path.
fn many(id: i32, concern: &DocBuf) -> DocBuf {
    let documents = array![doc! { "_id" => id }, doc! { "_id" => id + 1_000 }];
    doc! { "insert" => "c", "documents" => documents, "writeConcern" => concern }
}

/// The error of the write concern, and its code; 0 without one.
fn concern_error(reply: &DocBuf) -> (i64, DocBuf) {
    assert_eq!(code_of(reply), 0, "{}", show(reply));
    match reply.as_doc().get("writeConcernError") {
        Some(_) => {
            let error = at(reply, "writeConcernError");
            (number(&error, "code"), error)
        }
        None => (0, doc! {}),
    }
}

/// A set of three with data in two places, and modes.
fn tagged() -> SetConfig {
    let mut set = config(3);
    for (member, place) in set.members.iter_mut().zip(["east", "west", "east"]) {
        member.tags.insert("dc".into(), place.into());
    }
    for (mode, count) in [("both", 2), ("three", 3)] {
        let tags = BTreeMap::from([("dc".to_owned(), count)]);
        set.settings.modes.insert(mode.into(), tags);
    }
    set
}

fn both() -> Concern {
    Concern::Tagged { values: BTreeMap::from([("dc".to_owned(), 2)]), durable: false }
}

#[test]
fn a_write_waits_for_what_its_concern_says() {
    let two = |durable| Concern::Members { count: 2, durable };
    for (at, (concern, wanted)) in [
        (doc! { "w" => 1 }, vec![Concern::Committed]),
        (doc! {}, vec![Concern::Majority]),
        (doc! { "w" => 1, "j" => true }, vec![Concern::Majority]),
        (doc! { "w" => "majority" }, vec![Concern::Majority]),
        (doc! { "w" => 2 }, vec![Concern::Committed, two(false)]),
        (doc! { "w" => 2, "j" => true }, vec![Concern::Majority, two(true)]),
        (doc! { "w" => "both" }, vec![Concern::Committed, both()]),
        (doc! { "w" => doc! { "dc" => 2 } }, vec![Concern::Committed, both()]),
    ]
    .into_iter()
    .enumerate()
    {
        for build in [insert, many] {
            let rig = Rig::caught_up(tagged());
            rig.client.send(&build(at as i32 + 10, &concern));
            rig.until_one_waits();
            for reached in &wanted {
                let early = rig.client.receive_within(Duration::ZERO);
                assert!(
                    early.is_none(),
                    "{concern:?}: {}",
                    early.map_or(String::new(), |r| show(&r))
                );
                let asked = Mutex::new(BTreeSet::new());
                rig.member.acks().reach(|known| {
                    asked.lock().unwrap().insert(known.clone());
                    if known == reached { ALL } else { 0 }
                });
                assert!(asked.into_inner().unwrap().contains(reached), "{concern:?} {reached:?}");
            }
            let reply = rig.client.receive().expect("a reply");
            assert_eq!(concern_error(&reply).0, 0, "{concern:?} {}", show(&reply));
        }
    }
}

#[test]
fn arbiters_make_one_member_the_default() {
    let mut set = config(3);
    set.members[2].is_arbiter = true;
    set.members[2].priority = 0.0;
    for build in [insert, many] {
        let rig = Rig::caught_up(set.clone());
        rig.client.send(&build(10, &doc! {}));
        rig.until_one_waits();
        rig.member.acks().reach(|known| if *known == Concern::Committed { ALL } else { 0 });
        assert_eq!(concern_error(&rig.client.receive().expect("a reply")).0, 0);
    }
}

#[test]
fn what_the_set_cannot_meet_is_an_error_of_the_concern() {
    let rig = Rig::acknowledging(3);
    rig.member.publish(view_of(MemberState::Primary, tagged()));
    for (nth, (concern, code)) in [
        (doc! { "w" => 3 }, 0),
        (doc! { "w" => 4 }, 100),
        (doc! { "w" => "none" }, 79),
        (doc! { "w" => "three" }, 100),
        (doc! { "w" => doc! { "dc" => 3 } }, 100),
        (doc! { "w" => doc! { "rack" => 1 } }, 100),
    ]
    .into_iter()
    .enumerate()
    {
        rig.client.send(&insert(nth as i32 + 10, &concern));
        rig.acknowledge_all();
        let mut reply = rig.client.receive_within(Duration::from_millis(1));
        while reply.is_none() {
            rig.acknowledge_all();
            reply = rig.client.receive_within(Duration::from_millis(1));
        }
        let reply = reply.expect("a reply");
        let (found, error) = concern_error(&reply);
        assert_eq!((found, number(&reply, "n")), (code, 1), "{concern:?}");
        if code != 0 {
            let shown = at(&at(&error, "errInfo"), "writeConcern");
            assert_eq!(shown.as_doc().value("w"), concern.as_doc().value("w"));
            assert_eq!(text(&shown, "provenance"), "clientSupplied");
        }
    }
    assert_eq!(rig.client.fails(insert(50, &doc! { "w" => 51 })), 9);
}

#[test]
fn a_wait_ends_with_its_time() {
    for concern in [
        doc! { "w" => 1, "wtimeout" => 1 },
        doc! { "w" => "majority", "wtimeout" => 1 },
        doc! { "w" => 2, "wtimeout" => 1 },
    ] {
        for build in [insert, many] {
            let rig = Rig::caught_up(config(3));
            let reply = rig.client.run(&build(10, &concern));
            let (code, error) = concern_error(&reply);
            assert_eq!(code, 64, "{}", show(&reply));
            assert_eq!(text(&error, "errmsg"), "waiting for replication timed out");
            let info = at(&error, "errInfo");
            assert_eq!(info.as_doc().value("wtimeout"), Value::Bool(true));
            let shown = at(&info, "writeConcern");
            assert_eq!(shown.as_doc().value("w"), concern.as_doc().value("w"));
            assert_eq!(number(&shown, "wtimeout"), 1);
        }
    }
}

#[test]
fn a_wait_ends_with_the_leadership() {
    for build in [insert, many] {
        for concern in [doc! { "w" => 1 }, doc! {}, doc! { "w" => 2 }] {
            let rig = Rig::caught_up(config(3));
            rig.client.send(&build(10, &concern));
            rig.until_one_waits();
            let why = Error::new(ErrorCode::PrimarySteppedDown, "Primary stepped down");
            rig.member.acks().end(why);
            rig.publish(MemberState::Secondary, 3);
            let reply = rig.client.receive().expect("a reply");
            assert_eq!(concern_error(&reply).0, 189, "{}", show(&reply));
            assert!(topology(&reply).is_some(), "{}", show(&reply));
        }
    }
}

#[test]
fn a_write_that_changes_nothing_waits_for_what_it_has_seen() {
    let rig = Rig::caught_up(config(3));
    rig.client.send(&insert(10, &doc! { "w" => 1 }));
    rig.until_one_waits();
    let other = rig.test.client();
    let nothing = doc! { "q" => doc! { "_id" => 99 }, "limit" => 1 };
    let delete = |concern: &DocBuf| {
        doc! { "delete" => "c", "deletes" => array![&nothing], "writeConcern" => concern }
    };
    assert_eq!(concern_error(&other.run(&delete(&doc! { "w" => 1 }))).0, 0);
    let timed = doc! { "w" => "majority", "wtimeout" => 1 };
    assert_eq!(concern_error(&other.run(&delete(&timed))).0, 64);
    rig.acknowledge_present();
    assert_eq!(concern_error(&other.run(&delete(&timed))).0, 0);
}

#[test]
fn errors_of_numbered_writes_have_their_label() {
    let rig = Rig::acknowledging(1);
    let numbered = |command: &DocBuf| {
        DocBuf::build(|out| {
            out.put_all(command.as_doc());
            out.put("lsid", lsid(1));
            out.put("txnNumber", 1i64);
        })
    };
    let command = numbered(&insert(10, &doc! {}));
    // A failpoint gives the labels that the server would, unless it says others.
    let labels = |data: DocBuf, command: &DocBuf| {
        rig.client.admin().ok(doc! {
            "configureFailPoint" => "failCommand", "mode" => doc! { "times" => 1 },
            "data" => data,
        });
        rig.client.run(command).as_doc().value("errorLabels").into_owned()
    };
    let fails = |code: i32| doc! { "failCommands" => array!["insert"], "errorCode" => code };
    let retryable = array!["RetryableWriteError"];
    assert_eq!(labels(fails(91), &command), retryable);
    assert!(labels(fails(91), &insert(11, &doc! {})).is_missing(), "it is not numbered");
    assert!(labels(fails(11000), &command).is_missing());
    let none = doc! {
        "failCommands" => array!["insert"], "errorCode" => 91, "errorLabels" => array![],
    };
    assert!(labels(none, &command).is_missing());
}

#[test]
fn defaults_of_the_set_are_kept_and_followed() {
    let rig = Rig::acknowledging(3);
    let admin = rig.client.admin();
    let get = || admin.ok(doc! { "getDefaultRWConcern" => 1 });
    let reply = get();
    let implicit = doc! { "w" => "majority", "wtimeout" => 0 };
    assert_eq!(at(&reply, "defaultWriteConcern"), implicit);
    assert_eq!(at(&reply, "defaultReadConcern"), doc! { "level" => "local" });
    assert_eq!(text(&reply, "defaultWriteConcernSource"), "implicit");
    let set = |field: &str, concern: DocBuf| {
        let command = DocBuf::build(|out| {
            out.put("setDefaultRWConcern", 1);
            out.put(field, concern);
        });
        code_of(&admin.run(&command))
    };
    for (field, concern) in [
        ("defaultWriteConcern", doc! { "w" => 0 }),
        ("defaultWriteConcern", doc! { "j" => true }),
        ("defaultReadConcern", doc! { "level" => "linearizable" }),
        ("comment", doc! {}),
    ] {
        assert_eq!(set(field, concern.clone()), 2, "{concern:?}");
    }
    assert_eq!(set("defaultWriteConcern", doc! { "w" => 2, "wtimeout" => 1 }), 0);
    assert_eq!(set("defaultReadConcern", doc! { "level" => "majority" }), 0);
    assert_eq!(set("defaultWriteConcern", doc! {}), 20, "it cannot be unset");
    let reply = get();
    assert_eq!(at(&reply, "defaultWriteConcern"), doc! { "w" => 2, "wtimeout" => 1 });
    assert_eq!(at(&reply, "defaultReadConcern"), doc! { "level" => "majority" });
    assert_eq!(text(&reply, "defaultWriteConcernSource"), "global");
    // Nobody has told of two members yet, so the default's time is over.
    for build in [insert, many] {
        let mut command = build(20, &doc! {});
        for concern in [doc! {}, doc! { "w" => 1 }] {
            let (code, _) = concern_error(&rig.client.run(&command));
            assert_eq!(code, if concern.as_doc().is_empty() { 64 } else { 0 });
            command = build(30, &doc! { "w" => 1 });
        }
        let deletes = array![doc! { "q" => doc! { "_id" => doc! { "$gte" => 20 } }, "limit" => 0 }];
        let one = doc! { "w" => 1 };
        rig.client.ok(doc! { "delete" => "c", "deletes" => deletes, "writeConcern" => one });
    }
}

#[test]
fn a_command_that_fails_tells_of_its_concern_too() {
    let rig = Rig::caught_up(config(3));
    let create = |concern: DocBuf| {
        let body = doc! {
            "create" => "c", "capped" => true, "size" => 4096, "writeConcern" => concern,
        };
        rig.client.run(&body)
    };
    let reply = create(doc! { "w" => 2, "wtimeout" => 1 });
    assert_eq!(code_of(&reply), 48, "{}", show(&reply));
    assert_eq!(number(&at(&reply, "writeConcernError"), "code"), 64, "{}", show(&reply));
    let reply = create(doc! { "w" => 7 });
    assert_eq!(code_of(&reply), 48);
    assert_eq!(number(&at(&reply, "writeConcernError"), "code"), 100);
    let reply = create(doc! { "w" => 1 });
    assert_eq!(code_of(&reply), 48);
    assert!(reply.as_doc().get("writeConcernError").is_none(), "{}", show(&reply));
}

#[test]
fn a_request_that_is_not_understood_does_not_wait() {
    let rig = Rig::caught_up(config(3));
    let concern = doc! { "w" => 3 };
    let with_concern = |command: DocBuf| {
        DocBuf::build(|out| {
            out.put_all(command.as_doc());
            out.put("writeConcern", &concern);
        })
    };
    for command in [
        doc! { "insert" => "c", "documents" => array![doc! {}], "unknown" => 1 },
        doc! { "update" => "c", "updates" => array![doc! { "q" => 1, "u" => doc! {} }] },
        doc! { "create" => "d", "capped" => 7, "unknown" => 1 },
    ] {
        rig.client.send(&with_concern(command));
        // Nothing is acknowledged by three members.
        let reply = rig.client.receive().expect("a reply");
        assert_ne!(code_of(&reply), 0);
        assert!(reply.as_doc().get("writeConcernError").is_none(), "{}", show(&reply));
    }
}
