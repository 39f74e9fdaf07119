//! The assignment of the proxy's sessions to drivers.

use super::stand::{Stand, eventually, message, number, ping, session_of};
use kauri_bson::{Value, array, doc};
use kauri_client::{ClientError, Connection, Transport};
use std::io::{Read, Write};

#[test]
fn an_idle_session_is_reused_for_the_same_handshake() {
    let stand = Stand::start("reuse", &[]);
    let open = |app: &str| Connection::open(&stand.tcp(app)).unwrap();
    // The connection that was opened to find the transport of the server.
    let mut first = open("first");
    let session = session_of(&mut first);
    assert_eq!(stand.status("sharedMemory.switched"), 1);
    drop(first);
    for gone in 1..20 {
        stand.proxy.tells("Connection ended", gone);
        let mut again = open("first");
        assert_eq!(session_of(&mut again), session);
        ping(&mut again);
    }
    stand.proxy.tells("Connection ended", 20);
    assert_eq!(stand.server.told(r#""name":"first""#), 1, "metadata is sent once");
    let (mut again, mut beside) = (open("first"), open("first"));
    assert_eq!(session_of(&mut again), session);
    assert_ne!(session_of(&mut beside), session, "it is in use");
    drop(again);
    stand.proxy.tells("Connection ended", 21);
    assert_eq!(session_of(&mut open("first")), session);
    let mut other = open("second");
    assert_ne!(session_of(&mut other), session, "it remembers another driver");
    stand.server.tells("second", 1);
    assert_eq!(stand.status("sharedMemory.switched"), 3);
}

#[test]
fn the_server_sees_the_drivers_metadata() {
    let stand = Stand::start("metadata", &[]);
    let mut driver = Connection::open(&stand.tcp("orchard")).unwrap();
    let pipeline = array![doc! { "$currentOp" => doc! { "idleConnections" => true } }];
    let command = doc! { "aggregate" => 1, "pipeline" => pipeline, "cursor" => doc! {} };
    let shown = driver.command("admin", &command).unwrap();
    assert!(kauri_bson::shell_text(shown.as_doc()).contains("orchard"));
    drop(driver);
    let mut driver = Connection::open(&stand.tcp("orchard")).unwrap();
    let shown = driver.command("admin", &command).unwrap();
    assert!(kauri_bson::shell_text(shown.as_doc()).contains("orchard"), "on a reused session");
    // Metadata sent twice is an error, the same as the server's.
    let client = doc! { "driver" => doc! { "name" => "n", "version" => "v" }, "os" => doc! { "type" => "t" } };
    let error = driver.command("admin", &doc! { "hello" => 1, "client" => client }).unwrap_err();
    assert!(matches!(error, ClientError::Command(error) if error.code().number() == 186));
}

#[test]
fn a_personal_session_is_not_reused() {
    let stand = Stand::start("personal", &[]);
    let sasl = doc! { "saslStart" => 1, "mechanism" => "SCRAM-SHA-256" };
    let compression = doc! { "hello" => 1, "compression" => array!["zlib"] };
    let speculative = doc! { "hello" => 1, "speculativeAuthenticate" => doc! { "saslStart" => 1 } };
    let mut seen = Vec::new();
    for command in [sasl, compression, speculative] {
        let mut driver = stand.driver();
        let session = session_of(&mut driver);
        assert!(!seen.contains(&session), "{command:?}");
        seen.push(session);
        let _ = driver.command("admin", &command);
        drop(driver);
        // The session has ended and is not idle.
        stand.until("sharedMemory.sessions", 0);
    }
    // A first hello that the server rejects.
    let mut driver = std::net::TcpStream::connect(("127.0.0.1", stand.port)).unwrap();
    let wrong = doc! { "hello" => 1, "client" => doc! { "driver" => 5 } };
    driver.write_all(&message(1, 0, &wrong)).unwrap();
    assert!(driver.read(&mut [0; 4096]).unwrap() > 16);
    drop(driver);
    stand.proxy.tells("Connection ended", 4);
    stand.until("sharedMemory.sessions", 0);
}

/// Drivers that have sent a request.
fn drivers_at_work(stand: &Stand, count: i64) -> Vec<Connection> {
    let mut drivers: Vec<_> = (0..count).map(|_| stand.driver()).collect();
    drivers.iter_mut().for_each(ping);
    assert_eq!(stand.status("sharedMemory.sessions"), count);
    drivers
}

#[test]
fn the_number_of_idle_sessions_is_limited() {
    let stand = Stand::start("bounds", &["--maxIdleSessions", "3", "--maxIdleSeconds", "600"]);
    drop(drivers_at_work(&stand, 8));
    stand.until("sharedMemory.sessions", 3);
    ping(&mut stand.driver());
}

#[test]
fn the_idle_time_of_sessions_is_limited() {
    let stand = Stand::start("rest", &["--maxIdleSeconds", "2"]);
    let drivers = drivers_at_work(&stand, 3);
    let rest = std::time::Instant::now();
    drop(drivers);
    stand.until("sharedMemory.sessions", 0);
    assert!(rest.elapsed() >= std::time::Duration::from_secs(2));
    ping(&mut stand.driver());
}

#[test]
fn two_hundred_drivers_at_once() {
    let stand = Stand::start("many", &[]);
    let mut drivers: Vec<_> = (0..200).map(|_| stand.driver()).collect();
    for (at, driver) in drivers.iter_mut().enumerate() {
        let document = |id: usize| Value::from(doc! { "_id" => (at * 100 + id) as i32 });
        let documents = Value::array((0..100).map(document));
        driver.send("test", &doc! { "insert" => "many", "documents" => documents }).unwrap();
    }
    for driver in &mut drivers {
        assert_eq!(number(&driver.receive().unwrap().checked().unwrap(), "n"), 100);
    }
    assert_eq!(stand.status("sharedMemory.sessions"), 200);
    let count = drivers[7].command("test", &doc! { "count" => "many" }).unwrap();
    assert_eq!(number(&count, "n"), 20_000);
    drop(drivers);
    // The maximum number of sessions.
    stand.until("sharedMemory.sessions", 100);
}

#[test]
fn drivers_beyond_the_limit_are_refused_until_one_disconnects() {
    let stand = Stand::start("bound", &["--maxIncomingConnections", "3"]);
    let mut drivers: Vec<_> = (0..3).map(|_| stand.driver()).collect();
    let error = Connection::open(&stand.tcp("test")).unwrap_err();
    assert!(matches!(error, ClientError::Io(_)), "{error}");
    stand.proxy.tells("too many open connections", 1);
    drivers.iter_mut().for_each(ping);
    drivers.pop();
    eventually("there is room again", || Connection::open(&stand.tcp("test")).is_ok());
}

#[test]
fn a_driver_of_the_proxy_cannot_switch_transports() {
    let stand = Stand::start("upgrade", &[]);
    let mut driver = Connection::open(&stand.unix("sharedMemory=auto")).unwrap();
    assert_eq!(driver.transport(), Transport::Unix);
    assert!(driver.fallback().unwrap().contains("clients of a proxy cannot switch transports"));
    ping(&mut driver);
    assert_eq!(stand.status("sharedMemory.refused"), 0, "the server is not asked");
    driver
        .send_message(&message(1, kauri_wire::flags::MORE_TO_COME, &doc! { "kauriUpgrade" => 1 }))
        .unwrap();
    ping(&mut driver);
}

#[test]
fn the_log_names_the_transport_of_sessions_and_the_reason() {
    let stand = Stand::with("ways", "sharedMemory=off&rdma=off", &[]);
    stand.proxy.tells("\"Sessions with the server\",\"attr\":{\"transport\":\"unix\"}", 1);
    let mut driver = stand.driver();
    ping(&mut driver);
    assert_eq!(stand.status("sharedMemory.offered"), 0);
    drop(driver);
    stand.direct().command("admin", &doc! { "shutdown" => 1 }).ok();
    // Over TCP there is no shared memory without the server's socket in /tmp.
    let stand = Stand::over_tcp("tcp");
    stand.proxy.tells("\"transport\":\"tcp\",\"fallback\":\"no shared memory", 1);
    ping(&mut stand.driver());
}
