//! `lockGranularity` and `lockYielding`: which operations wait while a writer holds the lock and waits for the
//! disk.

use crate::cold::Cold;
use crate::common::{Client, TestServer, at, first_batch, number, show, until};
use kauri_base::ErrorCode;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_commands::locks::Locks;
use kauri_commands::parameters::Parameters;
use std::time::Duration;

fn find(collection: &str, id: i32) -> DocBuf {
    doc! { "find" => collection, "filter" => doc! { "_id" => id } }
}

fn update(id: i32) -> DocBuf {
    let set = doc! { "$set" => doc! { "changed" => true } };
    doc! { "update" => "c", "updates" => array![doc! { "q" => doc! { "_id" => id }, "u" => set }] }
}

fn queued(client: &Client) -> (i64, i64) {
    let status = client.admin().ok(doc! { "serverStatus" => 1 });
    let queue = at(&at(&status, "globalLock"), "currentQueue");
    (number(&queue, "readers"), number(&queue, "writers"))
}

/// A counter of a lock, as `serverStatus` reports it.
fn count(client: &Client, path: [&str; 3]) -> i64 {
    let locks = at(&client.admin().ok(doc! { "serverStatus" => 1 }), "locks");
    number(&at(&at(&locks, path[0]), path[1]), path[2])
}

/// Whether a read of a hot document in this collection waits while an update of a cold one in `test.c` waits
/// for the disk.
fn waits(parameters: &[(&str, &'static str)], database: &str, collection: &str) -> bool {
    let cold = Cold::start(parameters);
    let (admin, reader) = (cold.test.client(), cold.test.client().on(database));
    reader.insert(collection, [doc! { "_id" => -1 }]);
    let place = cold.place_of(500);
    let writer = cold.send_and_miss(&update(500), place);
    reader.send(&find(collection, -1));
    let mut reply = None;
    until("it answers or waits for the lock", || {
        reply = reader.receive_within(Duration::ZERO);
        reply.is_some() || queued(&admin) == (1, 0)
    });
    let waited = reply.is_none();
    if waited {
        let list = admin.admin().ok(doc! { "lockInfo" => 1 });
        assert!(show(&list).contains("pending: [ { mode: \"S\" } ]"), "{}", show(&list));
        let ops = admin.admin().ok(doc! { "currentOp" => 1, "waitingForLock" => true });
        assert_eq!(ops.as_doc().value("inprog").as_array().map(|a| a.count()), Some(1));
    }
    cold.disk.gate.release(place);
    assert_eq!(number(&writer.receive().unwrap(), "nModified"), 1);
    let reply = reply.or_else(|| reader.receive()).unwrap();
    assert_eq!(first_batch(&reply).len(), 1);
    waited
}

#[test]
fn a_global_lock_held_over_a_miss_blocks_readers() {
    let mode = [("lockGranularity", "global"), ("lockYielding", "off")];
    assert!(waits(&mode, "elsewhere", "c"));
}

#[test]
fn a_yielding_global_lock_blocks_no_reader() {
    assert!(!waits(&[("lockGranularity", "global")], "test", "c"));
}

#[test]
fn a_database_lock_blocks_only_its_readers() {
    let mode = [("lockGranularity", "database"), ("lockYielding", "off")];
    assert!(waits(&mode, "test", "hot"));
    assert!(!waits(&mode, "elsewhere", "c"));
}

#[test]
fn a_collection_lock_blocks_only_its_readers() {
    let mode = [("lockGranularity", "collection"), ("lockYielding", "off")];
    assert!(waits(&mode, "test", "c"));
    assert!(!waits(&mode, "test", "hot"));
}

#[test]
fn by_default_there_is_no_lock() {
    assert!(!waits(&[], "test", "c"));
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", [doc! { "_id" => 1 }]);
    let status = client.admin().ok(doc! { "serverStatus" => 1 });
    // Monitoring tools take a server without a global lock for one older than 3.0.
    let none = doc! { "acquireCount" => doc! { "r" => 0i64, "w" => 0i64 } };
    assert_eq!(at(&status, "locks"), doc! { "Global" => none });
    let parameters = doc! { "getParameter" => 1, "lockGranularity" => 1, "lockYielding" => 1 };
    let shown = client.admin().ok(parameters);
    assert_eq!(shown.as_doc().value("lockGranularity"), Value::from("document"));
    assert_eq!(shown.as_doc().value("lockYielding"), Value::from("on"));
    let change = doc! { "setParameter" => 1, "lockGranularity" => "global" };
    assert_eq!(client.admin().fails(change), i64::from(ErrorCode::IllegalOperation.number()));
}

#[test]
fn a_waiting_writer_comes_before_new_readers() {
    let cold = Cold::start(&[("lockGranularity", "global"), ("lockYielding", "off")]);
    let admin = cold.test.client();
    let hot = 3_999;
    let place = cold.place_of(500);
    let first = cold.send_and_miss(&find("c", 500), place);
    // Readers share the lock, as long as no writer waits for it.
    let second = cold.test.client();
    assert_eq!(first_batch(&second.ok(find("c", hot))).len(), 1);
    let writer = cold.test.client();
    writer.send(&update(hot));
    until("the writer waits", || queued(&admin) == (0, 1));
    second.send(&find("c", hot));
    until("the reader waits behind it", || queued(&admin) == (1, 1));
    let before = [
        count(&admin, ["Global", "acquireCount", "W"]),
        count(&admin, ["Global", "acquireCount", "R"]),
    ];
    cold.disk.gate.release(place);
    assert_eq!(first_batch(&first.receive().unwrap()).len(), 1);
    assert_eq!(number(&writer.receive().unwrap(), "nModified"), 1);
    // The reader sees the update of the writer, which came first.
    let seen = second.receive().unwrap();
    assert_eq!(first_batch(&seen)[0].as_doc().value("changed"), Value::Bool(true));
    assert_eq!(count(&admin, ["Global", "acquireCount", "W"]), before[0] + 1);
    assert_eq!(count(&admin, ["Global", "acquireCount", "R"]), before[1] + 1);
    assert_eq!(count(&admin, ["Global", "acquireWaitCount", "W"]), 1);
    assert_eq!(count(&admin, ["Global", "acquireWaitCount", "R"]), 1);
}

/// Every command that reads or writes acquires its lock and releases it, whatever its result.
#[test]
fn no_lock_is_left_behind() {
    for granularity in ["global", "database", "collection"] {
        let test = TestServer::start_on(
            std::sync::Arc::new(kauri_storage::ephemeral::EphemeralEngine::new()),
            2,
            &[("lockGranularity", granularity)],
        );
        let client = test.client();
        client.insert("c", (0..300).map(|n| doc! { "_id" => n, "n" => n % 7 }));
        let sum = doc! { "_id" => "$n", "n" => doc! { "$sum" => 1 } };
        client.ok(doc! { "aggregate" => "c", "cursor" => doc! {},
        "pipeline" => array![doc! { "$group" => sum }, doc! { "$out" => "sums" }] });
        client.ok(doc! { "createIndexes" => "c", "indexes" => array![
            doc! { "key" => doc! { "n" => 1 }, "name" => "n" }
        ] });
        client.ok(doc! { "explain" => doc! { "count" => "c" } });
        assert_eq!(client.fails(doc! { "collMod" => "nothing" }), 26);
        assert_eq!(client.fails(doc! { "find" => "c", "filter" => doc! { "$no" => 1 } }), 2);
        client.ok(doc! { "listCollections" => 1 });
        client.admin().ok(doc! { "renameCollection" => "test.sums", "to" => "test.totals" });
        client.validate("c");
        client.on("other").insert("c", [doc! { "_id" => 1 }]);
        client.ok(doc! { "dropDatabase" => 1 });
        let list = client.admin().ok(doc! { "lockInfo" => 1 });
        let held = list.as_doc().value("lockInfo");
        assert_eq!(held.as_array().map(|a| a.count()), Some(0), "{}", show(&list));
        // The commands run one after the other and never wait.
        assert_eq!(count(&client, ["Global", "acquireWaitCount", "W"]), 0);
        assert!(test.server.locks.list().iter().all(|(_, s)| s.exclusive.waited == 0));
    }
}

#[test]
fn invalid_settings_are_refused() {
    let code = |settings: &[(&str, &'static str)]| {
        let parameters = Parameters::default();
        for (name, value) in settings {
            parameters.set_at_startup(name, Value::from(*value))?;
        }
        Locks::default().set_up(&parameters)
    };
    let error = |settings| code(settings).map_err(|error| error.code());
    assert_eq!(error(&[("lockGranularity", "row")]), Err(ErrorCode::BadValue));
    assert_eq!(error(&[("lockYielding", "no")]), Err(ErrorCode::BadValue));
    assert_eq!(error(&[("lockYielding", "off")]), Err(ErrorCode::BadValue));
    assert_eq!(error(&[("lockYielding", "off"), ("lockGranularity", "global")]), Ok(()));
    assert_eq!(error(&[("lockGranularity", "document"), ("lockYielding", "on")]), Ok(()));
}
