//! Drivers, servers and proxies that end.

use super::stand::{Stand, eventually, insert, message, number, ping, session_of, terminate};
use kauri_bson::{array, doc};
use kauri_client::{ClientError, Connection};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn the_operation_of_a_disconnected_driver_is_cancelled() {
    let stand = Stand::start("goes", &[]);
    stand.direct().command("test", &insert(1, 10)).unwrap();
    // This operation would take days.
    let range = || doc! { "$set" => doc! { "a" => doc! { "$range" => array![0, 100_000] } } };
    let (unwind, count) = (|| doc! { "$unwind" => "$a" }, doc! { "$count" => "n" });
    let pipeline = array![range(), unwind(), range(), unwind(), range(), unwind(), count];
    let long = doc! { "aggregate" => "c", "pipeline" => pipeline, "cursor" => doc! {} };
    for unix in [false, true] {
        let uri = if unix { stand.unix("sharedMemory=off&rdma=off") } else { stand.tcp("test") };
        let mut driver = Connection::open(&uri).unwrap();
        driver.send("test", &long).unwrap();
        stand.until("connections.active", 2);
        assert_eq!(stand.status("sharedMemory.sessions"), 1);
        drop(driver);
        stand.until("connections.active", 1);
        stand.until("sharedMemory.sessions", 0);
    }
    stand.proxy.tells("The driver disconnected before the reply", 2);
    ping(&mut stand.driver());
}

#[test]
fn a_dead_server_ends_its_drivers_and_a_new_one_serves_the_next() {
    let mut stand = Stand::start("restart", &[]);
    stand.driver().command("test", &insert(1, 100)).unwrap();
    let (mut idle, mut busy) = (stand.driver(), stand.driver());
    let mut rests: Vec<_> = (0..5).map(|_| stand.driver()).collect();
    rests.iter_mut().for_each(ping);
    drop(rests);
    stand.block("find", 600_000);
    busy.send("test", &doc! { "find" => "c" }).unwrap();
    stand.until("connections.active", 2);
    stand.server.child.kill().unwrap();
    assert!(matches!(busy.receive(), Err(ClientError::Io(_))));
    assert!(matches!(idle.receive(), Err(ClientError::Io(_))), "though it has asked nothing");
    stand.proxy.tells("The session with the server failed", 1);
    stand.proxy.tells("The server ended the session", 1);
    // No server listens.
    let error = Connection::open(&stand.tcp("test")).unwrap_err();
    assert!(matches!(error, ClientError::Io(_)), "{error}");
    stand.proxy.tells("Cannot reach the server", 1);
    stand.restart_server();
    for _ in 0..10 {
        let mut driver = stand.driver();
        assert_eq!(number(&driver.command("test", &doc! { "count" => "c" }).unwrap(), "n"), 1);
    }
}

#[test]
fn invalid_bytes_end_only_their_senders_connection() {
    let stand = Stand::start("bytes", &[]);
    let mut honest = stand.driver();
    let before = stand.status("sharedMemory.switched");
    let ends = |bytes: &[u8]| {
        let mut driver = TcpStream::connect(("127.0.0.1", stand.port)).unwrap();
        driver.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        driver.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        match driver.read_to_end(&mut rest) {
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            Ok(_) => assert!(rest.is_empty() || bytes.len() > 16),
        }
    };
    ends(b"GET / HTTP/1.1\r\n\r\n");
    ends(&[0; 64]);
    ends(&[0xff; 64]);
    ends(&48_000_001i32.to_le_bytes());
    ends(&15i32.to_le_bytes());
    stand.proxy.tells("mstLen is invalid", 4);
    assert_eq!(stand.status("sharedMemory.switched"), before, "the server received none of them");
    // Invalid messages of valid lengths.
    for op_code in [0, 1, 2001, 2002, 2012, 2013, 9999] {
        let mut message = 40i32.to_le_bytes().to_vec();
        message.extend_from_slice(&[7; 8]);
        message.extend_from_slice(&i32::to_le_bytes(op_code));
        message.extend_from_slice(&[0xfd; 24]);
        ends(&message);
        ping(&mut honest);
    }
    // An invalid document gets a reply.
    let mut broken = message(1, 0, &doc! { "ping" => 1 });
    broken[30] = 0xee;
    honest.send_message(&broken).unwrap();
    assert!(honest.receive().unwrap().checked().is_err());
    ping(&mut honest);
}

#[test]
fn half_a_message_is_dropped_and_its_session_continues() {
    let stand = Stand::start("half", &[]);
    let mut driver = stand.driver();
    let session = session_of(&mut driver);
    driver.send_message(&message(1, 0, &doc! { "hello" => 1 })[..20]).unwrap();
    drop(driver);
    stand.proxy.tells("Connection ended", 1);
    assert_eq!(session_of(&mut stand.driver()), session);
}

#[test]
fn a_stopping_proxy_replies_first() {
    let mut stand = Stand::start("term", &[]);
    let (mut idle, mut busy, mut monitor) = (stand.driver(), stand.driver(), stand.driver());
    ping(&mut idle);
    let hello = monitor.command("admin", &doc! { "hello" => 1 }).unwrap();
    let version = hello.as_doc().value("topologyVersion").into_owned();
    let wait = doc! { "hello" => 1, "topologyVersion" => version, "maxAwaitTimeMS" => 600_000 };
    monitor.send("admin", &wait).unwrap();
    stand.block("find", 1000);
    busy.send("test", &doc! { "find" => "c" }).unwrap();
    stand.until("connections.active", 3);
    let socket = stand.socket();
    assert!(socket.exists());
    terminate(&stand.proxy);
    let began = std::time::Instant::now();
    assert!(matches!(idle.receive(), Err(ClientError::Io(_))));
    busy.receive().unwrap().checked().unwrap();
    assert!(matches!(busy.receive(), Err(ClientError::Io(_))));
    assert!(matches!(monitor.receive(), Err(ClientError::Io(_))));
    assert!(stand.proxy.child.wait().unwrap().success());
    assert!(began.elapsed() < std::time::Duration::from_secs(12), "it has waited for the monitor");
    eventually("the log is complete", || stand.proxy.told("Shutdown complete") == 1);
    assert!(!socket.exists());
    stand.until("sharedMemory.sessions", 0);
}

#[test]
fn a_stopped_proxy_leaves_nothing_behind() {
    let stand = Stand::start("leaks", &["--maxIdleSessions", "1"]);
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", stand.proxy.child.id())).unwrap().count();
    let threads =
        || std::fs::read_dir(format!("/proc/{}/task", stand.proxy.child.id())).unwrap().count();
    ping(&mut stand.driver());
    eventually("the first session has ended", || stand.proxy.told("Connection ended") == 1);
    let (before, threads_before) = (descriptors(), threads());
    for round in 0..100 {
        let mut driver = stand.driver();
        match round % 4 {
            0 => ping(&mut driver),
            1 => drop(driver.send("test", &doc! { "find" => "c" })),
            2 => drop(driver.send_message(&message(1, 2, &insert(round, 100)))),
            _ => drop(driver.send_message(&message(1, 0, &insert(round, 100))[..20])),
        }
    }
    eventually("descriptors are closed", || descriptors() <= before);
    assert!(threads() <= threads_before, "no driver has a thread");
}
