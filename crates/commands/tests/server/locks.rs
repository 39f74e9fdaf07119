//! `fsync` with `lock` keeps writers waiting, and nobody else.

use crate::common::{Client, PATIENCE, TestServer, code_of, number};
use kauri_bson::{DocBuf, array, doc};
use std::time::Duration;

fn insert(id: i32) -> DocBuf {
    doc! { "insert" => "c", "documents" => array![doc! { "_id" => id }] }
}

fn lock(client: &Client) -> i64 {
    number(&client.admin().ok(doc! { "fsync" => 1, "lock" => true }), "lockCount")
}

fn unlock(client: &Client) -> i64 {
    number(&client.admin().ok(doc! { "fsyncUnlock" => 1 }), "lockCount")
}

#[test]
fn writers_wait_until_it_is_unlocked_as_often_as_it_was_locked() {
    let test = TestServer::start();
    let (client, writer) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 0 }]);
    assert_eq!((lock(&client), lock(&client)), (1, 2));
    writer.send(&insert(1));
    assert!(writer.receive_within(Duration::from_millis(50)).is_none());
    // Readers go on.
    assert_eq!(client.all_ids("c"), [0]);
    assert_eq!(unlock(&client), 1);
    assert!(writer.receive_within(Duration::from_millis(50)).is_none());
    assert_eq!(unlock(&client), 0);
    assert_eq!(code_of(&writer.receive_within(PATIENCE).unwrap()), 0);
    assert_eq!(client.all_ids("c"), [0, 1]);
    assert_eq!(client.admin().fails(doc! { "fsyncUnlock" => 1 }), 20);
}

#[test]
fn every_kind_of_write_waits() {
    let test = TestServer::start();
    let client = test.client();
    client.insert("c", (0..4).map(|n| doc! { "_id" => n }));
    lock(&client);
    let writes = [
        insert(9),
        doc! { "update" => "c", "updates" => array![
            doc! { "q" => doc! { "_id" => 0 }, "u" => doc! { "$set" => doc! { "a" => 1 } } }
        ] },
        doc! { "delete" => "c", "deletes" => array![doc! { "q" => doc! { "_id" => 1 }, "limit" => 1 }] },
        doc! { "findAndModify" => "c", "query" => doc! { "_id" => 2 }, "remove" => true },
        doc! { "create" => "d" },
        doc! { "createIndexes" => "c", "indexes" => array![
            doc! { "key" => doc! { "a" => 1 }, "name" => "a" }
        ] },
    ];
    let writers: Vec<Client> = writes.iter().map(|_| test.client()).collect();
    writers.iter().zip(&writes).for_each(|(writer, write)| writer.send(write));
    for writer in &writers {
        assert!(writer.receive_within(Duration::from_millis(20)).is_none());
    }
    assert_eq!(client.all_ids("c"), [0, 1, 2, 3]);
    unlock(&client);
    for writer in &writers {
        assert_eq!(code_of(&writer.receive().unwrap()), 0);
    }
    assert_eq!(client.all_ids("c"), [0, 3, 9]);
    client.validate("c");
}

#[test]
fn a_waiting_writer_can_run_out_of_time() {
    let test = TestServer::start();
    let (client, writer) = (test.client(), test.client());
    client.insert("c", [doc! { "_id" => 0 }]);
    lock(&client);
    let limited = DocBuf::build(|w| {
        w.put_all(insert(1).as_doc());
        w.put("maxTimeMS", 1_000);
    });
    writer.send(&limited);
    assert!(writer.receive_within(Duration::from_millis(20)).is_none());
    test.clock.advance(Duration::from_secs(2));
    assert_eq!(code_of(&writer.receive().unwrap()), 50);
    unlock(&client);
    assert_eq!(client.all_ids("c"), [0]);
}
