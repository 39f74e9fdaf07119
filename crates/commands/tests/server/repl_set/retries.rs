//! Numbered writes: sent again they answer the same, and nothing happens twice.

use super::{Rig, config};
use crate::cold_disk::ColdEngine;
use crate::common::{Client, at, code_of, first_batch, lsid, number, show, write_errors};
use kauri_base::{Error, ErrorCode};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_member::MemberState;
use kauri_storage::{LogPosition, StorageEngine};
use std::time::Duration;

/// The command as a session's write of this number, with more fields.
fn numbered(command: &DocBuf, session: u8, number: i64, more: DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put("lsid", lsid(session));
        out.put("txnNumber", number);
        out.put_all(more.as_doc());
    })
}

fn insert(ids: impl IntoIterator<Item = i32>) -> DocBuf {
    let documents = Value::array(ids.into_iter().map(|id| Value::from(doc! { "_id" => id })));
    doc! { "insert" => "c", "documents" => documents }
}

fn increments(id: i32) -> DocBuf {
    let update = doc! { "$inc" => doc! { "a" => 1 } };
    let statement = doc! { "q" => doc! { "_id" => id }, "u" => update };
    doc! { "update" => "c", "updates" => array![statement] }
}

fn find_and(more: DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put("findAndModify", "c");
        out.put_all(more.as_doc());
    })
}

/// All documents.
fn state(client: &Client) -> Vec<DocBuf> {
    first_batch(&client.ok(doc! { "find" => "c", "sort" => doc! { "_id" => 1 } }))
}

/// A reply without what differs from one to the next.
fn plain(reply: &DocBuf) -> DocBuf {
    const OTHERS: [&str; 4] = ["retriedStmtIds", "retriedStmtId", "operationTime", "$clusterTime"];
    DocBuf::build(|out| {
        let fields = reply.as_doc().iter();
        fields.filter(|elem| !OTHERS.contains(&elem.key())).for_each(|elem| out.put_elem(elem));
    })
}

fn rig(is_express: bool) -> Rig {
    let rig = Rig::acknowledging(1);
    if !is_express {
        rig.leave_express_path();
    }
    rig
}

/// Commands with what a retry names as executed. There are documents 0 to 3.
fn commands() -> Vec<(DocBuf, Value<'static>)> {
    let inc = || doc! { "$inc" => doc! { "a" => 1 } };
    let one = || array![0];
    let update =
        |q: DocBuf, u: DocBuf, upsert: bool| doc! { "q" => q, "u" => u, "upsert" => upsert };
    let several = array![
        update(doc! { "_id" => 1 }, inc(), false),
        update(doc! { "_id" => 77 }, inc(), true),
        update(doc! { "_id" => 99 }, inc(), false),
    ];
    let deletes = array![
        doc! { "q" => doc! { "_id" => doc! { "$gt" => 1 } }, "limit" => 1 },
        doc! { "q" => doc! { "_id" => 55 }, "limit" => 1 },
        doc! { "q" => doc! { "_id" => doc! { "$gt" => 1 } }, "limit" => 1 },
    ];
    let by_id = array![doc! { "q" => doc! { "_id" => 2 }, "limit" => 1 }];
    let ops = array![
        doc! { "insert" => 0, "document" => doc! { "_id" => 20 } },
        doc! { "insert" => 0, "document" => doc! { "_id" => 21 } },
        doc! { "update" => 0, "filter" => doc! { "_id" => 20 }, "updateMods" => inc() },
        doc! { "update" => 0, "filter" => doc! { "b" => 1 }, "updateMods" => inc(), "upsert" => true },
        doc! { "delete" => 0, "filter" => doc! { "_id" => doc! { "$lt" => 5 } } },
    ];
    let bulk =
        doc! { "bulkWrite" => 1, "ops" => ops, "nsInfo" => array![doc! { "ns" => "test.c" }] };
    let fields = || doc! { "a" => 1, "_id" => 0 };
    vec![
        (insert([10]), one()),
        (insert([11, 12, 13]), array![0, 1, 2]),
        (insert([0]), Value::Missing),
        (increments(1), one()),
        (increments(98), Value::Missing),
        (doc! { "update" => "c", "updates" => several }, array![0, 1]),
        (doc! { "delete" => "c", "deletes" => deletes }, array![0, 2]),
        (doc! { "delete" => "c", "deletes" => by_id }, one()),
        (find_and(doc! { "query" => doc! { "_id" => 1 }, "update" => inc() }), 0.into()),
        (
            find_and(doc! {
                "query" => doc! { "_id" => 1 }, "update" => inc(), "new" => true, "fields" => fields(),
            }),
            0.into(),
        ),
        (find_and(doc! { "sort" => doc! { "_id" => -1 }, "remove" => true }), 0.into()),
        (
            find_and(doc! { "query" => doc! { "b" => 3 }, "update" => inc(), "upsert" => true }),
            0.into(),
        ),
        (
            find_and(doc! {
                "query" => doc! { "b" => 3 }, "update" => inc(), "upsert" => true, "new" => true,
            }),
            0.into(),
        ),
        (find_and(doc! { "query" => doc! { "b" => 3 }, "update" => inc() }), Value::Missing),
        (bulk, array![0, 1, 2, 3, 4]),
    ]
}

#[test]
fn every_command_answers_the_same_again_and_happens_once() {
    for is_express in [true, false] {
        for (at, (command, retried)) in commands().into_iter().enumerate() {
            let rig = rig(is_express);
            let is_bulk = command.as_doc().get("bulkWrite").is_some();
            let client = if is_bulk { rig.client.admin() } else { rig.test.client() };
            let command = numbered(&command, 1, at as i64, doc! {});
            let run = || {
                let reply = client.ok(command.clone());
                let field = ["retriedStmtIds", "retriedStmtId"]
                    .into_iter()
                    .find_map(|name| reply.as_doc().get(name));
                let named = field.map_or(Value::Missing, |elem| elem.value().into_owned());
                (plain(&reply), named)
            };
            let (first, none) = run();
            assert!(none.is_missing(), "{}", show(&command));
            let after = state(&rig.client);
            let mut last = first;
            for _ in 0..2 {
                let (again, named) = run();
                assert_eq!(show(&again), show(&last), "{}", show(&command));
                assert_eq!(named, retried, "{}", show(&command));
                assert_eq!(state(&rig.client), after, "{}", show(&command));
                last = again;
            }
            let counters = at_transactions(&rig);
            let wanted = match &retried {
                Value::Missing => [0, 0],
                Value::Array(list) => [2, 2 * list.as_doc().count() as i64],
                _ => [2, 2],
            };
            assert_eq!(counters, wanted, "{}", show(&command));
        }
    }
}

fn at_transactions(rig: &Rig) -> [i64; 2] {
    let status = rig.client.admin().ok(doc! { "serverStatus" => 1 });
    let section = at(&status, "transactions");
    ["retriedCommandsCount", "retriedStatementsCount"].map(|name| number(&section, name))
}

#[test]
fn simple_writes_are_numbered_on_the_express_path() {
    let rig = rig(true);
    let took_it = |command: DocBuf| {
        let before = rig.test.server.operations.next_id();
        rig.client.ok(command);
        rig.test.server.operations.next_id() == before + 1
    };
    let by_id = array![doc! { "q" => doc! { "_id" => 2 }, "limit" => 1 }];
    let delete = doc! { "delete" => "c", "deletes" => by_id };
    for (at, command) in [insert([10]), increments(1), delete].iter().enumerate() {
        let command = numbered(command, 1, at as i64, doc! {});
        assert!(took_it(command.clone()), "{}", show(&command));
        assert!(!took_it(command.clone()), "a retry: {}", show(&command));
    }
    assert_eq!(state(&rig.client).len(), 4);
}

#[test]
fn a_write_that_was_done_in_part_goes_on() {
    let rig = rig(true);
    let write = |ids: &[i32], more| rig.client.run(&numbered(&insert(ids.to_vec()), 1, 1, more));
    let reply = write(&[10, 11, 0, 12, 13], doc! { "ordered" => false });
    assert_eq!((number(&reply, "n"), write_errors(&reply)), (4, vec![(2, 11000)]));
    rig.client.ok(doc! { "delete" => "c", "deletes" => array![
        doc! { "q" => doc! { "_id" => doc! { "$in" => array![0, 13] } }, "limit" => 0 },
    ] });
    let reply = write(&[10, 11, 0, 12, 13], doc! {});
    assert_eq!((number(&reply, "n"), write_errors(&reply)), (5, vec![]), "{}", show(&reply));
    assert_eq!(reply.as_doc().value("retriedStmtIds"), array![0, 1, 3, 4]);
    assert_eq!(rig.client.all_ids("c"), [0, 1, 2, 3, 10, 11, 12], "13 was inserted before");
    // A statement that fails in front of one that was executed.
    let reply = write(&[20], doc! { "stmtId" => 9 });
    assert_eq!(number(&reply, "n"), 1);
    let numbers = doc! { "stmtIds" => array![8, 9, 10] };
    let reply = write(&[0, 20, 21], numbers);
    assert_eq!((number(&reply, "n"), write_errors(&reply)), (0, vec![(0, 11000)]));
}

#[test]
fn statements_have_numbers_and_writes_have_ages() {
    for is_express in [true, false] {
        let rig = rig(is_express);
        let run = |session, n, more| {
            let reply = rig.client.run(&numbered(&increments(1), session, n, more));
            let retried = reply.as_doc().get("retriedStmtIds").is_some();
            (code_of(&reply), retried)
        };
        let value = || {
            let found = first_batch(&rig.client.ok(doc! {
                "find" => "c", "filter" => doc! { "_id" => 1 },
            }));
            number(&found[0], "a")
        };
        assert_eq!(run(1, 5, doc! {}), (0, false));
        assert_eq!(run(1, 5, doc! { "stmtId" => 0 }), (0, true));
        assert_eq!(run(1, 5, doc! { "stmtId" => 3 }), (0, false));
        assert_eq!(run(1, 5, doc! { "stmtIds" => array![3] }), (0, true));
        assert_eq!(run(1, 4, doc! {}), (225, false));
        assert_eq!(value(), 2);
        assert_eq!(run(2, 4, doc! {}), (0, false), "another session");
        assert_eq!(run(1, 6, doc! {}), (0, false));
        assert_eq!(run(1, 5, doc! {}), (225, false));
        assert_eq!((run(1, 6, doc! {}), value()), ((0, true), 4));
        // A write that has changed nothing makes the older ones old all the same.
        let nothing = numbered(&increments(98), 1, 7, doc! {});
        rig.client.ok(nothing);
        assert_eq!(run(1, 6, doc! {}), (225, false));
        // Half an hour later nobody remembers.
        let test_clock = &rig.test.clock;
        test_clock.advance(Duration::from_secs(1_801));
        assert_eq!((run(2, 4, doc! {}), value()), ((0, false), 5));
    }
}

#[test]
fn what_cannot_be_numbered_is_refused() {
    let rig = rig(true);
    let run = |command: &DocBuf, more| rig.client.run(&numbered(command, 1, 1, more));
    let multi =
        doc! { "q" => doc! {}, "u" => doc! { "$set" => doc! { "a" => 1 } }, "multi" => true };
    let multi = doc! { "update" => "c", "updates" => array![multi] };
    for q in [doc! {}, doc! { "_id" => 1 }] {
        let all = doc! { "q" => q, "limit" => 0 };
        let reply = run(&doc! { "delete" => "c", "deletes" => array![all] }, doc! {});
        assert_eq!(write_errors(&reply), [(0, 72)], "{}", show(&reply));
        assert!(show(&reply).contains("retryable writes with limit=0"), "{}", show(&reply));
    }
    let reply = run(&multi, doc! {});
    assert_eq!(write_errors(&reply), [(0, 72)], "{}", show(&reply));
    assert!(show(&reply).contains("retryable writes with multi=true"), "{}", show(&reply));
    let without_session = DocBuf::build(|out| {
        out.put_all(insert([10]).as_doc());
        out.put("txnNumber", 1i64);
    });
    assert_eq!(rig.client.fails(without_session), 72);
    for (command, more, code) in [
        (insert([10]), doc! { "stmtIds" => array![1, 2] }, 72),
        (insert([10]), doc! { "stmtIds" => array![1], "stmtId" => 1 }, 72),
        (insert([10]), doc! { "stmtId" => "x" }, 14),
        (insert([10]), doc! { "stmtIds" => array!["x"] }, 14),
        (insert([10]), doc! { "autocommit" => false, "startTransaction" => true }, 20),
        (doc! { "find" => "c" }, doc! {}, 50768),
        (doc! { "create" => "d" }, doc! {}, 50768),
    ] {
        let reply = run(&command, more);
        assert_eq!(code_of(&reply), code, "{}", show(&reply));
    }
    assert_eq!(rig.client.fails(numbered(&insert([10]), 1, -1, doc! {})), 72);
    assert_eq!(rig.client.all_ids("c"), [0, 1, 2, 3]);
}

#[test]
fn attempts_at_the_same_time_happen_once() {
    const ROUNDS: i64 = 150;
    for is_express in [true, false] {
        let rig = rig(is_express);
        let remove = || find_and(doc! { "query" => doc! { "_id" => 3 }, "remove" => true });
        let clients: Vec<Client> = (0..4).map(|_| rig.test.client()).collect();
        for round in 0..ROUNDS {
            for command in [increments(1), increments(2), remove()] {
                let session = if command == increments(2) { 2 } else { 1 };
                let write = 2 * round + i64::from(command == remove());
                let command = numbered(&command, session, write, doc! {});
                clients.iter().for_each(|client| client.send(&command));
                for client in &clients {
                    let reply = client.receive().expect("a reply");
                    assert_eq!(code_of(&reply), 0, "{}", show(&reply));
                    let n = match reply.as_doc().get("n") {
                        Some(_) => number(&reply, "n"),
                        None => number(&at(&reply, "lastErrorObject"), "n"),
                    };
                    assert_eq!(n, 1, "{}", show(&reply));
                }
            }
            rig.client.insert("c", [doc! { "_id" => 3 }]);
        }
        let values: Vec<i64> =
            state(&rig.client)[1..3].iter().map(|doc| number(doc, "a")).collect();
        assert_eq!(values, [ROUNDS, ROUNDS]);
    }
}

#[test]
fn a_retry_waits_for_the_set_as_the_first_attempt_does() {
    for concern in [doc! { "w" => 1 }, doc! { "w" => "majority" }] {
        let rig = Rig::caught_up(config(3));
        let more = || doc! { "writeConcern" => &concern };
        let command = numbered(&increments(1), 1, 1, more());
        rig.client.send(&command);
        rig.until_one_waits();
        let other = rig.test.client();
        let short = doc! { "w" => 1, "wtimeout" => 1 };
        let timed = numbered(&increments(1), 1, 1, doc! { "writeConcern" => short });
        let reply = other.ok(timed);
        assert_eq!(number(&at(&reply, "writeConcernError"), "code"), 64, "{}", show(&reply));
        assert_eq!((number(&reply, "n"), number(&reply, "nModified")), (1, 1));
        other.send(&command);
        rig.acknowledge_present();
        for client in [&rig.client, &other] {
            let reply = client.receive().expect("a reply");
            assert!(reply.as_doc().get("writeConcernError").is_none(), "{}", show(&reply));
        }
    }
}

#[test]
fn the_end_of_the_leadership_may_be_retried() {
    let rig = Rig::caught_up(config(3));
    let concern = || doc! { "writeConcern" => doc! { "w" => 1 } };
    rig.client.send(&numbered(&increments(1), 1, 1, concern()));
    rig.until_one_waits();
    rig.member.acks().end(Error::new(ErrorCode::PrimarySteppedDown, "Primary stepped down"));
    rig.publish(MemberState::Secondary, 3);
    let reply = rig.client.receive().expect("a reply");
    assert_eq!(number(&at(&reply, "writeConcernError"), "code"), 189, "{}", show(&reply));
    assert_eq!(reply.as_doc().value("errorLabels"), array!["RetryableWriteError"]);
}

#[test]
fn a_large_result_that_is_not_kept_is_an_error() {
    let rig = rig(true);
    // The larger ones of one part of the table: both together have no room.
    let large = || Value::Binary { subtype: 0, bytes: vec![7; 9 << 20].into() };
    rig.client.insert("c", [doc! { "_id" => 50, "x" => large() }]);
    rig.client.insert("c", [doc! { "_id" => 54, "x" => large() }]);
    let command = |id: i32| {
        let update = doc! { "$set" => doc! { "a" => id } };
        let fields = doc! { "a" => 1 };
        let query = doc! { "_id" => id };
        let command = find_and(
            doc! { "query" => query, "update" => update, "new" => true, "fields" => fields },
        );
        numbered(&command, id as u8, 1, doc! {})
    };
    rig.client.ok(command(50));
    rig.client.ok(command(54));
    assert_eq!(rig.client.fails(command(50)), 217);
    let reply = rig.client.ok(command(54));
    assert_eq!(at(&reply, "value"), doc! { "_id" => 54, "a" => 54 });
}

/// Commands that the engine refuses once it follows: of one statement, and of several.
fn refused_by_a_follower() -> Vec<DocBuf> {
    let update =
        |id: i32| doc! { "q" => doc! { "_id" => id }, "u" => doc! { "$inc" => doc! { "a" => 1 } } };
    let delete = |id: i32| doc! { "q" => doc! { "_id" => id }, "limit" => 1 };
    let of = |count: i32| {
        let updates = Value::array((0..count).map(|id| Value::from(update(id))));
        let deletes = Value::array((0..count).map(|id| Value::from(delete(id))));
        [
            insert(10..10 + count),
            doc! { "update" => "c", "updates" => updates, "ordered" => false },
            doc! { "delete" => "c", "deletes" => deletes, "ordered" => false },
        ]
    };
    let changes =
        doc! { "query" => doc! { "_id" => 1 }, "update" => doc! { "$set" => doc! { "a" => 1 } } };
    let mut all = of(1).to_vec();
    all.extend(of(2));
    all.push(find_and(changes));
    all
}

fn refused_in_bulk() -> Vec<DocBuf> {
    let operations = [
        doc! { "insert" => 0, "document" => doc! { "_id" => 20 } },
        doc! {
            "update" => 0, "filter" => doc! { "_id" => 1 },
            "updateMods" => doc! { "$set" => doc! { "a" => 1 } },
        },
        doc! { "delete" => 0, "filter" => doc! { "_id" => 1 } },
    ];
    let bulk = |operation| {
        doc! {
            "bulkWrite" => 1, "ops" => array![operation],
            "nsInfo" => array![doc! { "ns" => "test.c" }],
        }
    };
    operations.into_iter().map(bulk).collect()
}

#[test]
fn a_write_that_meets_the_end_of_leadership_fails_as_a_whole() {
    let cold = ColdEngine::open();
    let log = cold.engine.replicated_log().unwrap();
    log.begin_frames(LogPosition { term: 1, index: 1 }).unwrap();
    log.lead().unwrap();
    let rig = Rig::start_on(cold.engine.clone()).leading(1);
    rig.acknowledge_all();
    rig.client.insert("c", (0..4).map(|n| doc! { "_id" => n }));
    // The engine accepts nothing any more, and the view does not say so yet.
    log.follow();
    let admin = rig.client.admin();
    let mut number = 0;
    for is_express in [true, false] {
        if !is_express {
            rig.leave_express_path();
        }
        let (own, bulk) = (refused_by_a_follower(), refused_in_bulk());
        let all = own.iter().map(|one| (&rig.client, one));
        for (client, command) in all.chain(bulk.iter().map(|one| (&admin, one))) {
            let reply = client.run(command);
            assert_eq!(code_of(&reply), 10107, "{} {}", show(command), show(&reply));
            number += 1;
            let reply = client.run(&numbered(command, 1, number, doc! {}));
            assert_eq!(code_of(&reply), 10107, "{} {}", show(command), show(&reply));
            let labels = reply.as_doc().value("errorLabels");
            assert_eq!(labels, array!["RetryableWriteError"], "{}", show(&reply));
        }
    }
}
