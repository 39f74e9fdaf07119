//! Servers that do what a test tells them: members of a replica set, ones that die, ones that hang.

use crate::stand::{Answer, message, proxy, proxy_before, received, serve_all, server};
use kauri_bson::{Doc, Value, array, doc};
use kauri_client::{ClientError, Connection};
use kauri_wire::{Message, flags, write_query};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Ends a driver's connection, and waits until its session rests.
pub fn rested(driver: TcpStream) {
    static LINES: Mutex<String> = Mutex::new(String::new());
    let sink = |_, line: &str| LINES.lock().unwrap().push_str(line);
    kauri_base::log::install(Box::new(sink), Box::new(|| 0));
    let remote = driver.local_addr().unwrap().to_string();
    drop(driver);
    let ended = format!("\"Connection ended\",\"attr\":{{\"remote\":\"{remote}\"");
    let until = Instant::now() + Duration::from_secs(60);
    while !LINES.lock().unwrap().contains(&ended) {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
}

#[test]
fn a_driver_of_a_replica_set_stays_on_the_proxy() {
    let port = server(Arc::new(|_, _, command| {
        let name = command.first().unwrap().key().to_owned();
        Some(match name.as_str() {
            "hello" | "isMaster" => doc! {
                "isWritablePrimary" => true,
                "setName" => "rs0",
                "hosts" => array!["far:1", "away:2"],
                "primary" => "far:1",
                "me" => "far:1",
                "ok" => 1.0
            },
            // Fields of the same names elsewhere are nobody's business.
            _ => doc! { "setName" => "rs0", "hosts" => array!["far:1"], "ok" => 1.0 },
        })
    }));
    let (proxy, uri) = proxy(port, "");
    let address = proxy.addresses()[0].clone();
    let mut driver = Connection::open(&uri).unwrap();
    let stays = |body: Doc<'_>| {
        assert_eq!(body.value("hosts"), array![address.as_str()]);
        assert_eq!(body.value("me"), Value::from(address.as_str()));
        assert_eq!(body.value("primary"), Value::from(address.as_str()));
        assert_eq!(body.value("setName"), Value::from("rs0"));
    };
    stays(driver.command("admin", &doc! { "hello" => 1 }).unwrap().as_doc());
    let mut query = Vec::new();
    let command = doc! { "isMaster" => 1 };
    write_query(&mut query, 3, 4, "admin.$cmd", -1, command.as_bytes()).unwrap();
    driver.send_message(&query).unwrap();
    let Message::Reply(reply) = Message::parse(driver.receive_message().unwrap()).unwrap().1 else {
        panic!("no OP_REPLY")
    };
    stays(Doc::from_bytes(reply.documents().next().unwrap()).unwrap());
    let other = driver.command("admin", &doc! { "replSetGetConfig" => 1 }).unwrap();
    assert_eq!(other.as_doc().value("hosts"), array!["far:1"]);
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_secondary_that_falls_behind_is_followed_no_more() {
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let hosts = listeners.each_ref().map(|of| of.local_addr().unwrap().to_string());
    let primary_wrote_s = Arc::new(AtomicI64::new(1000));
    for (listener, is_primary) in listeners.into_iter().zip([true, false]) {
        let (hosts, wrote_s) = (hosts.clone(), Arc::clone(&primary_wrote_s));
        let answer: Answer = Arc::new(move |_, _, command| {
            if !matches!(command.first().unwrap().key(), "hello" | "isMaster") {
                return Some(doc! { "isPrimary" => is_primary, "ok" => 1.0 });
            }
            let seconds = if is_primary { wrote_s.load(Ordering::SeqCst) } else { 1000 };
            Some(doc! {
                "ok" => 1.0,
                "setName" => "r",
                "isWritablePrimary" => is_primary,
                "secondary" => !is_primary,
                "hosts" => array![hosts[0].as_str(), hosts[1].as_str()],
                "lastWrite" => doc! { "lastWriteDate" => Value::DateTime(seconds * 1000) },
                "maxWireVersion" => 25
            })
        });
        serve_all(listener, answer);
    }
    let options = "replicaSet=r&readPreference=secondaryPreferred&maxStalenessSeconds=90\
        &heartbeatFrequencyMS=500&localThresholdMS=60000";
    let (proxy, uri) = proxy_before(&hosts.join(","), options);
    let mut driver = Connection::open(&uri).unwrap();
    let mut is_primary = || {
        let reply = driver.command("test", &doc! { "ping" => 1 }).unwrap();
        reply.as_doc().value("isPrimary") == Value::Bool(true)
    };
    assert!(!is_primary());
    primary_wrote_s.store(1100, Ordering::SeqCst);
    let until = Instant::now() + Duration::from_secs(60);
    while !is_primary() {
        assert!(Instant::now() < until, "the secondary is followed still");
    }
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_session_that_dies_at_its_next_hello_is_replaced_and_nothing_else_is_said_twice() {
    // Which connection was asked what, and whether the client was named.
    let said: Arc<Mutex<Vec<(usize, String, bool)>>> = Arc::default();
    let heard = Arc::clone(&said);
    let port = server(Arc::new(move |connection, number, command| {
        let name = command.first().unwrap().key().to_owned();
        heard.lock().unwrap().push((connection, name.clone(), command.get("client").is_some()));
        // The proxy's own hello, that of the first driver, its ping, that of the second.
        let dies = connection == 0 && number == 3 || name == "insert";
        (!dies).then(|| doc! { "ok" => 1.0 })
    }));
    let (proxy, uri) = proxy(port, "");
    // One that says the same as the second driver, so that this gets its session.
    let (client, ping) = (doc! { "a" => 1 }, doc! { "ping" => 1 });
    let hello = doc! { "hello" => 1, "client" => client, "$db" => "admin" };
    let mut first = TcpStream::connect(&proxy.addresses()[0]).unwrap();
    for command in [&hello, &ping] {
        first.write_all(&message(command, 0)).unwrap();
        received(&mut first).unwrap();
    }
    rested(first);
    let mut second = TcpStream::connect(&proxy.addresses()[0]).unwrap();
    second.write_all(&message(&hello, 0)).unwrap();
    received(&mut second).unwrap();
    let hello = |connection, client| (connection, "hello".to_owned(), client);
    let ping = (0, "ping".to_owned(), false);
    let first = [hello(0, false), hello(0, true), ping];
    let second = [hello(0, false), hello(1, false), hello(1, true)];
    assert_eq!(*said.lock().unwrap(), [first, second].concat());
    // What is no hello is never said again.
    let insert = doc! { "insert" => "c", "documents" => array![doc! { "_id" => 1 }] };
    let mut driver = Connection::open(&uri).unwrap();
    assert!(matches!(driver.command("test", &insert), Err(ClientError::Io(_))));
    let inserts = || said.lock().unwrap().iter().filter(|(_, name, _)| name == "insert").count();
    assert_eq!(inserts(), 1);
    // Not even the first message of a driver.
    let mut driver = TcpStream::connect(&proxy.addresses()[0]).unwrap();
    driver.write_all(&message(&insert, 0)).unwrap();
    assert!(received(&mut driver).is_none());
    assert_eq!(inserts(), 2);
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_server_that_hangs_costs_a_driver_its_connection_and_the_proxy_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (proxy, uri) = proxy(silent.local_addr().unwrap().port(), "connectTimeoutMS=300");
    for _ in 0..3 {
        let error = Connection::open(&uri).unwrap_err();
        assert!(
            matches!(&error, ClientError::Io(error) if error.kind() != std::io::ErrorKind::TimedOut),
            "{error}"
        );
    }
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_reply_may_take_longer_than_the_handshake() {
    let port = server(Arc::new(|_, _, command| {
        if command.first().unwrap().key() == "ping" {
            // That it takes so long is what is tried.
            std::thread::sleep(Duration::from_millis(1500));
        }
        Some(doc! { "ok" => 1.0 })
    }));
    let (proxy, uri) = proxy(port, "connectTimeoutMS=1000");
    Connection::open(&uri).unwrap().command("admin", &doc! { "ping" => 1 }).unwrap();
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_proxy_ends_though_its_server_does_not_answer() {
    let port = server(Arc::new(|_, _, command| match command.first().unwrap().key() {
        "ping" => loop {
            std::thread::park();
        },
        _ => Some(doc! { "ok" => 1.0 }),
    }));
    let (proxy, uri) = proxy(port, "");
    let mut driver = Connection::open(&uri).unwrap();
    let ping = doc! { "ping" => 1, "$db" => "admin" };
    driver.send_message(&message(&ping, flags::MORE_TO_COME)).unwrap();
    driver.send("admin", &doc! { "ping" => 1 }).unwrap();
    let began = Instant::now();
    proxy.stop(Duration::from_millis(300));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(matches!(driver.receive(), Err(ClientError::Io(_))));
}
