//! Expiry on the server's own initiative: TTL documents, idle cursors, unused sessions.

use crate::common::{self, Client, START_MS, TestServer, cursor_id, lsid, number};
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_commands::background::{expire_cursors, expire_sessions, ttl};
use std::time::Duration;

fn date(seconds: i64) -> Value<'static> {
    Value::DateTime(START_MS + seconds * 1000)
}

fn index(client: &Client, collection: &str, spec: DocBuf) {
    client.ok(doc! { "createIndexes" => collection, "indexes" => array![spec] });
}

fn pass(test: &TestServer) {
    let server = test.server.clone();
    test.run(async move { ttl::pass(&server, || {}).await });
}

#[test]
fn documents_expire_by_the_dates_in_the_index() {
    let test = TestServer::start();
    let client = test.client();
    index(
        &client,
        "c",
        doc! { "key" => doc! { "at" => 1 }, "name" => "at", "expireAfterSeconds" => 60 },
    );
    client.insert(
        "c",
        [
            doc! { "_id" => 1, "at" => date(0) },
            doc! { "_id" => 2, "at" => date(1) },
            doc! { "_id" => 3, "at" => array![date(500), date(0)] },
            doc! { "_id" => 4, "at" => START_MS },
            doc! { "_id" => 5, "at" => Value::Null },
            doc! { "_id" => 6 },
            doc! { "_id" => 7, "at" => array![date(500), "x"] },
        ],
    );
    pass(&test);
    assert_eq!(client.all_ids("c"), [1, 2, 3, 4, 5, 6, 7]);
    test.clock.advance(Duration::from_secs(60));
    pass(&test);
    assert_eq!(client.all_ids("c"), [2, 4, 5, 6, 7]);
    test.clock.advance(Duration::from_secs(1));
    pass(&test);
    assert_eq!(client.all_ids("c"), [4, 5, 6, 7]);
    client.validate("c");
    let status = client.ok(doc! { "serverStatus" => 1 });
    let ttl = common::at(&common::at(&status, "metrics"), "ttl");
    assert_eq!((number(&ttl, "passes"), number(&ttl, "deletedDocuments")), (3, 3));
}

#[test]
fn hidden_partial_and_changed_indexes_expire_too_compound_ones_never() {
    let test = TestServer::start();
    let client = test.client();
    let spec = |name: &str, extra: DocBuf| {
        DocBuf::build(|w| {
            w.put("key", doc! { "at" => 1 });
            w.put("name", name);
            w.put("expireAfterSeconds", 0);
            w.put_all(extra.as_doc());
        })
    };
    let partial = doc! { "partialFilterExpression" => doc! { "kind" => "session" } };
    index(&client, "partial", spec("partial", partial));
    client.insert(
        "partial",
        [
            doc! { "_id" => 1, "at" => date(0), "kind" => "session" },
            doc! { "_id" => 2, "at" => date(0), "kind" => "other" },
        ],
    );
    index(&client, "hidden", spec("hidden", doc! {}));
    client.insert("hidden", [doc! { "_id" => 1, "at" => date(0) }]);
    client.ok(
        doc! { "collMod" => "hidden", "index" => doc! { "name" => "hidden", "hidden" => true } },
    );
    index(
        &client,
        "changed",
        doc! { "key" => doc! { "at" => 1 }, "name" => "changed", "expireAfterSeconds" => 1_000_000 },
    );
    client.insert(
        "changed",
        [doc! { "_id" => 1, "at" => date(-100) }, doc! { "_id" => 2, "at" => date(-10) }],
    );
    client.ok(doc! { "collMod" => "changed", "index" => doc! { "name" => "changed", "expireAfterSeconds" => 50 } });
    assert_eq!(
        client.fails(doc! { "createIndexes" => "compound", "indexes" => array![doc! {
        "key" => doc! { "at" => 1, "b" => 1 }, "name" => "c", "expireAfterSeconds" => 0 }] }),
        67,
    );
    pass(&test);
    assert_eq!(client.all_ids("partial"), [2]);
    assert_eq!(client.all_ids("hidden"), []);
    assert_eq!(client.all_ids("changed"), [2]);
}

#[test]
fn a_pass_deletes_more_than_a_batch() {
    let test = TestServer::start();
    let client = test.client();
    index(
        &client,
        "c",
        doc! { "key" => doc! { "at" => 1 }, "name" => "at", "expireAfterSeconds" => 0 },
    );
    for start in [0, 6_000] {
        client
            .insert("c", (start..start + 6_000).map(|n| doc! { "_id" => n, "at" => date(n % 2) }));
    }
    pass(&test);
    assert_eq!(client.all_ids("c"), (0..12_000).filter(|n| n % 2 == 1).collect::<Vec<i64>>());
}

#[test]
fn nothing_expires_while_the_server_is_locked() {
    let test = TestServer::start();
    let client = test.client();
    index(
        &client,
        "c",
        doc! { "key" => doc! { "at" => 1 }, "name" => "at", "expireAfterSeconds" => 0 },
    );
    client.insert("c", [doc! { "_id" => 1, "at" => date(0) }]);
    client.admin().ok(doc! { "fsync" => 1, "lock" => true });
    pass(&test);
    assert_eq!(client.all_ids("c"), [1]);
    client.admin().ok(doc! { "fsyncUnlock" => 1 });
    pass(&test);
    assert_eq!(client.all_ids("c"), []);
}

/// Opens a cursor with more batches.
fn open_cursor(client: &Client, extra: DocBuf) -> i64 {
    let reply = client.ok(DocBuf::build(|w| {
        w.put("find", "c");
        w.put("batchSize", 1);
        w.put_all(extra.as_doc());
    }));
    let id = cursor_id(&reply);
    assert_ne!(id, 0);
    id
}

fn get_more(id: i64) -> DocBuf {
    doc! { "getMore" => id, "collection" => "c", "batchSize" => 1 }
}

fn get_more_in(session: u8, id: i64) -> DocBuf {
    DocBuf::build(|w| {
        w.put_all(get_more(id).as_doc());
        w.put("lsid", lsid(session));
    })
}

fn some_docs(client: &Client) {
    client.insert("c", (0..30).map(|n| doc! { "_id" => n }));
}

#[test]
fn idle_cursors_are_closed() {
    let test = TestServer::start();
    let client = test.client();
    some_docs(&client);
    client.admin().ok(doc! { "setParameter" => 1, "cursorTimeoutMillis" => 5_000 });
    let idle = open_cursor(&client, doc! {});
    let used = open_cursor(&client, doc! {});
    let kept = open_cursor(&client, doc! { "noCursorTimeout" => true });
    test.clock.advance(Duration::from_millis(4_000));
    client.ok(get_more(used));
    test.clock.advance(Duration::from_millis(2_000));
    expire_cursors(&test.server);
    assert_eq!(client.fails(get_more(idle)), 43);
    client.ok(get_more(used));
    client.ok(get_more(kept));
    let status = client.ok(doc! { "serverStatus" => 1 });
    let cursors = common::at(&common::at(&status, "metrics"), "cursor");
    assert_eq!(number(&cursors, "timedOut"), 1);
}

#[test]
fn an_unused_session_ends_with_its_cursors() {
    let test = TestServer::start();
    let client = test.client();
    some_docs(&client);
    let unused = open_cursor(&client, doc! { "lsid" => lsid(1) });
    let refreshed = open_cursor(&client, doc! { "lsid" => lsid(2), "noCursorTimeout" => true });
    test.clock.advance(Duration::from_secs(29 * 60));
    client.ok(doc! { "refreshSessions" => array![lsid(2)] });
    test.clock.advance(Duration::from_secs(2 * 60));
    expire_sessions(&test.server);
    assert_eq!(client.fails(get_more_in(1, unused)), 43);
    client.ok(get_more_in(2, refreshed));
}

#[test]
fn a_find_by_id_refreshes_its_session() {
    let test = TestServer::start();
    let client = test.client();
    some_docs(&client);
    let cursor = open_cursor(&client, doc! { "lsid" => lsid(1), "noCursorTimeout" => true });
    for _ in 0..3 {
        test.clock.advance(Duration::from_secs(20 * 60));
        let find = doc! { "find" => "c", "filter" => doc! { "_id" => 1 }, "lsid" => lsid(1) };
        assert_eq!(number(&common::at(&client.ok(find), "cursor"), "id"), 0);
        expire_sessions(&test.server);
    }
    client.ok(get_more_in(1, cursor));
}

#[test]
fn ended_and_killed_sessions_lose_their_cursors() {
    let test = TestServer::start();
    let client = test.client();
    some_docs(&client);
    let cursors: Vec<i64> =
        (1..=5).map(|n| open_cursor(&client, doc! { "lsid" => lsid(n) })).collect();
    let alive = |n: u8| {
        let command = get_more_in(n, cursors[usize::from(n) - 1]);
        common::code_of(&client.run(&command)) == 0
    };
    client.ok(doc! { "endSessions" => array![lsid(1)] });
    assert_eq!([alive(1), alive(2)], [false, true]);
    client.ok(doc! { "killSessions" => array![lsid(2)] });
    assert_eq!([alive(2), alive(3)], [false, true]);
    client.ok(doc! { "killAllSessionsByPattern" => array![doc! { "lsid" => lsid(3) }] });
    assert_eq!([alive(3), alive(4)], [false, true]);
    client.ok(doc! { "killAllSessions" => Value::array([]) });
    assert_eq!([alive(4), alive(5)], [false, false]);
}
