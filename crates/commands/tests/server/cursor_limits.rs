//! Cursor limits: one client cannot use up all cursors, and its abandoned cursors end soon.

use crate::common::{Client, TestServer, code_of, cursor_id, lsid, until};
use kauri_base::limits;
use kauri_bson::{DocBuf, doc};
use kauri_commands::background::expire_cursors;
use std::time::Duration;

const EXCEEDED_MEMORY_LIMIT: i64 = 146;

fn find(extra: &DocBuf) -> DocBuf {
    DocBuf::build(|w| {
        w.put("find", "c");
        w.put("batchSize", 1);
        w.put_all(extra.as_doc());
    })
}

/// Opens this many cursors.
fn open(client: &Client, extra: &DocBuf, count: usize) -> Vec<i64> {
    let command = find(extra);
    (0..count).map(|_| cursor_id(&client.ok(command.clone()))).collect()
}

fn refusal(client: &Client, extra: &DocBuf) -> (i64, String) {
    let reply = client.run(&find(extra));
    let message = reply.as_doc().value("errmsg").as_str().unwrap_or_default().to_owned();
    (code_of(&reply), message)
}

fn with_docs(test: &TestServer) -> Client {
    let client = test.client();
    client.insert("c", (0..3).map(|n| doc! { "_id" => n }));
    client
}

#[test]
fn a_connection_has_a_limit_of_its_own() {
    let test = TestServer::start();
    let (client, other) = (with_docs(&test), test.client());
    let ids = open(&client, &doc! {}, limits::CURSORS_PER_CONNECTION_MAX);
    let (code, message) = refusal(&client, &doc! {});
    assert_eq!(code, EXCEEDED_MEMORY_LIMIT);
    assert!(message.contains("of this connection: the limit is 1000"), "{message}");
    assert_eq!(refusal(&client, &doc! { "lsid" => lsid(1) }).0, EXCEEDED_MEMORY_LIMIT);
    open(&other, &doc! {}, 1);
    // A killed, an exhausted and an expired cursor make room for three.
    client.ok(doc! { "killCursors" => "c", "cursors" => kauri_bson::array![ids[0]] });
    client.ok(doc! { "getMore" => ids[1], "collection" => "c" });
    open(&client, &doc! {}, 2);
    assert_eq!(refusal(&client, &doc! {}).0, EXCEEDED_MEMORY_LIMIT);
    test.clock.advance(Duration::from_millis(limits::CURSOR_IDLE_MS));
    expire_cursors(&test.server);
    open(&client, &doc! {}, limits::CURSORS_PER_CONNECTION_MAX);
    assert_eq!(test.server.cursors.counts().open, limits::CURSORS_PER_CONNECTION_MAX as u64);
}

#[test]
fn a_session_has_a_limit_over_all_its_connections() {
    let test = TestServer::start();
    let first = with_docs(&test);
    let in_session = doc! { "lsid" => lsid(1) };
    open(&first, &in_session, limits::CURSORS_PER_SESSION_MAX / 2);
    let second = test.client();
    open(&second, &in_session, limits::CURSORS_PER_SESSION_MAX / 2);
    for client in [&first, &second, &test.client()] {
        let (code, message) = refusal(client, &in_session);
        assert_eq!(code, EXCEEDED_MEMORY_LIMIT);
        assert!(message.contains("of this session: the limit is 1000"), "{message}");
    }
    open(&second, &doc! { "lsid" => lsid(2) }, 1);
    first.ok(doc! { "endSessions" => kauri_bson::array![lsid(1)] });
    open(&second, &in_session, 1);
}

#[test]
fn a_cursor_without_a_session_ends_soon_after_its_connection() {
    let test = TestServer::start();
    let stays = with_docs(&test);
    let gone = test.client();
    let orphan = open(&gone, &doc! { "noCursorTimeout" => true }, 1)[0];
    let taken_over = open(&gone, &doc! {}, 1)[0];
    let of_session = open(&gone, &doc! { "lsid" => lsid(1) }, 1)[0];
    let of_other = open(&stays, &doc! {}, 1)[0];
    drop(gone);
    until("the connection has ended", || test.server.cursors.counts().orphaned == 2);
    let more = |id: i64| doc! { "getMore" => id, "collection" => "c", "batchSize" => 1 };
    let step = Duration::from_millis(limits::CURSOR_ORPHAN_MS / 2 + 1);
    test.clock.advance(step);
    expire_cursors(&test.server);
    stays.ok(more(taken_over));
    test.clock.advance(step);
    expire_cursors(&test.server);
    assert_eq!(stays.fails(more(orphan)), 43);
    stays.ok(more(of_other));
    let in_session = DocBuf::build(|w| {
        w.put_all(more(of_session).as_doc());
        w.put("lsid", lsid(1));
    });
    stays.ok(in_session);
    test.clock.advance(2 * step);
    expire_cursors(&test.server);
    assert_eq!(stays.fails(more(taken_over)), 43);
}
