//! Drivers' messages pass through the proxy unchanged, over shared memory.

use super::stand::{Stand, eventually, find, insert, is_found, message, number, ping, reply};
use kauri_bson::{Doc, DocBuf, Value, array, doc};
use kauri_client::{ClientError, Connection};
use kauri_wire::{Compressor, Header, Message, compress, flags, write_query};

const SIZES: [usize; 9] =
    [0, 100, 4000, 16_300, 65_536, 70_000, 300_000, 5 << 20, (16 << 20) - 100];

#[test]
fn documents_of_all_sizes_go_through_shared_memory_and_nowhere_else() {
    let stand = Stand::start("sizes", &[]);
    stand.proxy.tells("\"Sessions with the server\",\"attr\":{\"transport\":\"sharedMemory\"}", 1);
    let unix = stand.unix("sharedMemory=off&rdma=off&socketTimeoutMS=60000");
    for uri in [stand.tcp("test"), unix] {
        let mut driver = Connection::open(&uri).unwrap();
        driver.command("test", &doc! { "drop" => "c" }).ok();
        let sends =
            || (0..2).map(|w| stand.status(&format!("transportWorkers.{w}.sends"))).sum::<i64>();
        let (sends_before, frames_before) = (sends(), stand.status("sharedMemory.framesIn"));
        for (id, bytes) in SIZES.into_iter().enumerate() {
            driver.command("test", &insert(id as i32, bytes)).unwrap();
        }
        for (id, bytes) in SIZES.into_iter().enumerate() {
            let reply = driver.command("test", &find(id as i32)).unwrap();
            assert!(is_found(&reply, id as i32, bytes), "{bytes} bytes");
        }
        // Each read of the status is a connection over the socket: hello and the command.
        assert!(sends() - sends_before <= 8);
        assert!(stand.status("sharedMemory.framesIn") - frames_before > 300);
    }
    // Many small documents up to the largest message.
    let mut driver = stand.driver();
    let text = "x".repeat(1 << 20);
    let document = |id: i32| Value::from(doc! { "_id" => id, "t" => text.as_str() });
    let documents = Value::array((0..45).map(document));
    let reply = driver.command("test", &doc! { "insert" => "large", "documents" => documents });
    assert_eq!(number(&reply.unwrap(), "n"), 45);
}

#[test]
fn many_requests_in_a_row_are_answered_in_their_order() {
    let stand = Stand::start("pipeline", &[]);
    let mut driver = stand.driver();
    driver.command("test", &insert(1, 20_000)).unwrap();
    let ids: Vec<i32> = (0..300).map(|_| driver.send("test", &find(1)).unwrap()).collect();
    for id in ids {
        let reply = driver.receive().unwrap();
        assert_eq!(reply.response_to, id);
        assert!(is_found(&reply.checked().unwrap(), 1, 20_000));
    }
}

#[test]
fn unacknowledged_writes_keep_their_order_and_outlive_their_driver() {
    let stand = Stand::start("silent", &[]);
    let mut driver = stand.driver();
    for id in 0..500 {
        let insert = insert(id, 100);
        driver.send_message(&message(id, flags::MORE_TO_COME, &insert)).unwrap();
    }
    let count = doc! { "count" => "c" };
    assert_eq!(number(&driver.command("test", &count).unwrap(), "n"), 500);
    // The last messages of a driver.
    for id in 500..600 {
        let insert = insert(id, 1000);
        driver.send_message(&message(id, flags::MORE_TO_COME, &insert)).unwrap();
    }
    drop(driver);
    eventually("all documents are inserted", || {
        number(&stand.direct().command("test", &count).unwrap(), "n") == 600
    });
    // Slow writes, for which the next driver of the session does not wait.
    stand.block("insert", 1500);
    let mut driver = stand.driver();
    let insert = insert(600, 10);
    driver.send_message(&message(1, flags::MORE_TO_COME, &insert)).unwrap();
    drop(driver);
    stand.until("connections.active", 2);
    let mut next = stand.driver();
    ping(&mut next);
    let counted = number(&stand.direct().command("test", &count).unwrap(), "n");
    assert_eq!(counted, 600, "the write is still under way");
    eventually("the document is inserted", || {
        number(&stand.direct().command("test", &count).unwrap(), "n") == 601
    });
}

fn hundred(driver: &mut Connection) -> i64 {
    let documents = Value::array((0..100).map(|id| Value::from(doc! { "_id" => id })));
    driver.command("test", &doc! { "insert" => "many", "documents" => documents }).unwrap();
    let find = doc! { "find" => "many", "batchSize" => 10 };
    number(&driver.command("test", &find).unwrap(), "cursor.id")
}

fn get_more(cursor: i64) -> DocBuf {
    doc! { "getMore" => cursor, "collection" => "many", "batchSize" => 10 }
}

#[test]
fn replies_to_an_exhaust_come_until_the_last() {
    let stand = Stand::start("exhaust", &[]);
    let mut driver = stand.driver();
    let cursor = hundred(&mut driver);
    driver.send_message(&message(77, flags::EXHAUST_ALLOWED, &get_more(cursor))).unwrap();
    // Later requests are answered after it.
    driver.send_message(&message(78, 0, &doc! { "count" => "many" })).unwrap();
    let mut replies = 0;
    loop {
        let (flags, _, body) = reply(&mut driver);
        replies += 1;
        if flags & flags::MORE_TO_COME == 0 {
            assert_eq!(number(&body, "cursor.id"), 0);
            break;
        }
    }
    assert!(replies >= 9, "{replies}");
    let (_, answered, body) = reply(&mut driver);
    assert_eq!((answered, number(&body, "n")), (78, 100));
}

fn hello_that_waits() -> DocBuf {
    let id = kauri_bson::Value::ObjectId([1; 12]);
    let version = doc! { "processId" => id, "counter" => 0i64 };
    doc! { "hello" => 1, "topologyVersion" => version, "maxAwaitTimeMS" => 20 }
}

#[test]
fn a_monitor_gets_hello_after_hello() {
    let stand = Stand::start("monitor", &[]);
    let mut monitor = stand.driver();
    monitor.send_message(&message(5, flags::EXHAUST_ALLOWED, &hello_that_waits())).unwrap();
    for _ in 0..5 {
        let (flags, _, body) = reply(&mut monitor);
        assert_ne!(flags & flags::MORE_TO_COME, 0);
        assert!(body.as_doc().value("isWritablePrimary").truthy());
        assert!(body.as_doc().get("hosts").is_none());
    }
    // A session with a running exhaust is not shared.
    stand.until("sharedMemory.sessions", 1);
    drop(monitor);
    stand.until("sharedMemory.sessions", 0);
    // The old handshake.
    let mut old = stand.driver();
    let mut query = Vec::new();
    let command = doc! { "isMaster" => 1, "helloOk" => true };
    write_query(&mut query, 3, 4, "admin.$cmd", -1, command.as_bytes()).unwrap();
    old.send_message(&query).unwrap();
    let (header, message) = Message::parse(old.receive_message().unwrap()).unwrap();
    let Message::Reply(reply) = message else { panic!("no OP_REPLY") };
    assert_eq!(header.response_to, 3);
    let body = Doc::from_bytes(reply.documents().next().unwrap()).unwrap();
    assert!(body.value("ismaster").truthy() && body.value("helloOk").truthy());
}

#[test]
fn compressed_messages_pass_with_their_flags() {
    let stand = Stand::start("compressed", &[]);
    let mut driver = stand.driver();
    let hello = doc! { "hello" => 1, "compression" => array!["zstd", "snappy", "zlib"] };
    driver.command("admin", &hello).unwrap();
    let cursor = hundred(&mut driver);
    let send = |driver: &mut Connection, id, flags, compressor, command: &DocBuf| {
        let mut small = Vec::new();
        compress(&message(id, flags, command), compressor, &mut small).unwrap();
        driver.send_message(&small).unwrap();
    };
    let more = |driver: &mut Connection| {
        let message = driver.receive_message().unwrap();
        assert_eq!(Header::parse(message).unwrap().op_code, 2012);
        let (_, Message::Compressed(message)) = Message::parse(message).unwrap() else { panic!() };
        let mut plain = Vec::new();
        message.decompress(&mut plain).unwrap();
        kauri_wire::flags_of(&plain) & flags::MORE_TO_COME != 0
    };
    for (id, compressor) in (0..).zip(Compressor::NEGOTIABLE) {
        send(&mut driver, id, flags::MORE_TO_COME, compressor, &insert(id, 5000));
        send(&mut driver, id, 0, compressor, &find(id));
        assert!(!more(&mut driver));
    }
    send(&mut driver, 9, flags::EXHAUST_ALLOWED, Compressor::Zstd, &get_more(cursor));
    while more(&mut driver) {}
    assert_eq!(number(&driver.command("test", &doc! { "count" => "c" }).unwrap(), "n"), 3);
    // An invalid compressed message ends only its driver's connection.
    let mut broken = Vec::new();
    compress(&message(1, 0, &find(1)), Compressor::Zlib, &mut broken).unwrap();
    broken[20] ^= 0x55;
    driver.send_message(&broken).unwrap();
    assert!(matches!(driver.receive_message(), Err(ClientError::Io(_))));
    ping(&mut stand.driver());
}

#[test]
fn cursors_and_errors_are_the_servers() {
    let stand = Stand::start("logical", &[]);
    let (mut one, mut other) = (stand.driver(), stand.driver());
    let cursor = hundred(&mut one);
    let reply = other.command("test", &get_more(cursor)).unwrap();
    assert_eq!(number(&reply, "cursor.id"), cursor);
    let lsid = doc! { "id" => Value::Binary { subtype: 4, bytes: vec![7; 16].into() } };
    // A standalone has no transactions; the error is the server's own.
    let begin = DocBuf::build(|out| {
        out.put_all(insert(1, 10).as_doc());
        out.put("lsid", lsid);
        out.put("txnNumber", 1i64);
        out.put("autocommit", false);
        out.put("startTransaction", true);
    });
    let error = one.command("test", &begin).unwrap_err();
    assert!(matches!(error, ClientError::Command(error) if error.code().number() == 20));
    let error = one.command("test", &doc! { "nonsense" => 1 }).unwrap_err();
    assert!(matches!(error, ClientError::Command(error) if error.code().number() == 59));
}
