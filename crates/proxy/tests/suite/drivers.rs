//! Drivers that disappear, that do not read, that send more than the server takes, and a proxy that stops.

use crate::stand::{message, proxy, received, server};
use kauri_bson::{DocBuf, array, doc};
use kauri_wire::{Message, MsgWriter, flags};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time without progress after which a sender counts as stalled.
const STALLED: Duration = Duration::from_secs(2);
/// More than all sockets and buffers on the way take.
const MESSAGES: usize = 200;
const MESSAGE_BYTES: usize = 1 << 20;

/// A driver whose first request, a hello, was answered.
fn driver(address: &str) -> TcpStream {
    let mut driver = TcpStream::connect(address).unwrap();
    driver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    driver.write_all(&message(&doc! { "hello" => 1, "$db" => "admin" }, 0)).unwrap();
    received(&mut driver).unwrap();
    driver
}

fn is_at_end(mut driver: &TcpStream) -> bool {
    match driver.read(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A reply to the request.
fn reply(request: &[u8], body: &DocBuf, flags: u32) -> Vec<u8> {
    let id = i32::from_le_bytes(request[4..8].try_into().unwrap());
    let mut reply = Vec::new();
    let writer = MsgWriter::begin(&mut reply, 1, id, flags);
    reply.extend_from_slice(body.as_bytes());
    writer.finish(&mut reply).unwrap();
    reply
}

fn is_hello(request: &[u8]) -> bool {
    let Message::Msg(msg) = Message::parse(request).unwrap().1 else { return false };
    kauri_bson::Doc::from_bytes(msg.body).unwrap().first().unwrap().key() == "hello"
}

/// A server that answers hellos. At another request `then` has the connection, and the request.
fn server_that(then: impl Fn(TcpStream, Vec<u8>) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, then) = (listener.local_addr().unwrap().port(), Arc::new(then));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, then) = (stream.unwrap(), Arc::clone(&then));
            std::thread::spawn(move || {
                while let Some(request) = received(&mut stream) {
                    if !is_hello(&request) {
                        return then(stream, request);
                    }
                    let greeting = doc! { "ok" => 1.0 };
                    stream.write_all(&reply(&request, &greeting, 0)).unwrap();
                }
            });
        }
    });
    port
}

/// Writes messages until nothing takes them any more. How many were written whole.
fn written(mut stream: &TcpStream, message: &[u8]) -> usize {
    stream.set_write_timeout(Some(STALLED)).unwrap();
    (0..MESSAGES).take_while(|_| stream.write_all(message).is_ok()).count()
}

fn ping() -> Vec<u8> {
    message(&doc! { "ping" => 1, "$db" => "admin" }, 0)
}

#[test]
fn a_driver_that_disappears_ends_its_session() {
    let (asked, is_asked) = channel();
    let (ended, has_ended) = channel();
    let (asked, ended) = (Mutex::new(asked), Mutex::new(ended));
    let port = server_that(move |mut stream, _| {
        asked.lock().unwrap().send(()).unwrap();
        ended.lock().unwrap().send(received(&mut stream).is_none()).unwrap();
    });
    let (proxy, _) = proxy(port, "");
    let mut driver = driver(&proxy.addresses()[0]);
    driver.write_all(&ping()).unwrap();
    is_asked.recv_timeout(Duration::from_secs(60)).unwrap();
    drop(driver);
    assert!(has_ended.recv_timeout(Duration::from_secs(60)).unwrap());
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_driver_is_disconnected_when_its_session_ends() {
    // The proxy's own hello, and the driver's.
    let port = server(Arc::new(|_, number, _| (number < 2).then(|| doc! { "ok" => 1.0 })));
    let (proxy, _) = proxy(port, "");
    let mut idle = driver(&proxy.addresses()[0]);
    // Nobody waits for a reply to the third request, at which the server closes.
    idle.write_all(&message(&doc! { "insert" => "c", "$db" => "test" }, flags::MORE_TO_COME))
        .unwrap();
    assert!(is_at_end(&idle));
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_session_serves_drivers_of_one_handshake() {
    let heard: Arc<Mutex<Vec<(usize, Option<String>)>>> = Arc::default();
    let hears = Arc::clone(&heard);
    let port = server(Arc::new(move |connection, _, command| {
        let client = command.get("client").map(|client| client.as_doc().unwrap().to_buf());
        let name = client.map(|client| kauri_bson::shell_text(client.as_doc()));
        hears.lock().unwrap().push((connection, name));
        Some(doc! { "ok" => 1.0 })
    }));
    let (proxy, _) = proxy(port, "");
    let hello = |name: &str| {
        let client = doc! { "application" => doc! { "name" => name } };
        let hello = doc! { "hello" => 1, "client" => client, "$db" => "admin" };
        let mut driver = TcpStream::connect(&proxy.addresses()[0]).unwrap();
        driver.write_all(&message(&hello, 0)).unwrap();
        received(&mut driver).unwrap();
        driver
    };
    crate::servers::rested(hello("one"));
    crate::servers::rested(hello("other"));
    let heard = heard.lock().unwrap();
    let named: Vec<_> = heard.iter().filter(|(_, name)| name.is_some()).collect();
    let [(first, _), (second, _)] = named[..] else { panic!("{named:?}") };
    assert_ne!(first, second, "the session has had another handshake");
    drop(heard);
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_server_waits_for_a_driver_that_does_not_read() {
    let (report, reported) = channel();
    let report = Mutex::new(report);
    let port = server_that(move |stream, request| {
        let body = doc! { "ok" => 1.0, "t" => "x".repeat(MESSAGE_BYTES).as_str() };
        let more = reply(&request, &body, flags::MORE_TO_COME);
        report.lock().unwrap().send(written(&stream, &more)).unwrap();
    });
    let (proxy, _) = proxy(port, "");
    let mut driver = driver(&proxy.addresses()[0]);
    let more = doc! { "getMore" => 1i64, "collection" => "c", "$db" => "test" };
    driver.write_all(&message(&more, flags::EXHAUST_ALLOWED)).unwrap();
    let written = reported.recv_timeout(Duration::from_secs(120)).unwrap();
    assert!(written < MESSAGES / 2, "{written} MB wait for the driver");
    // What was sent before is the driver's, then the end.
    for _ in 0..written {
        let reply = received(&mut driver).unwrap();
        assert!(reply.len() > MESSAGE_BYTES);
    }
    proxy.stop(Duration::from_secs(5));
}

#[test]
fn a_driver_waits_for_a_server_that_does_not_read() {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let port = server_that(move |_stream, _| {
        let _ = released.lock().unwrap().recv();
    });
    let (proxy, _) = proxy(port, "");
    let driver = driver(&proxy.addresses()[0]);
    let text = "x".repeat(MESSAGE_BYTES);
    let insert = doc! { "insert" => "c", "documents" => array![doc! { "t" => text.as_str() }] };
    let written = written(&driver, &message(&insert, flags::MORE_TO_COME));
    assert!(written < MESSAGES / 2, "{written} MB wait for the server");
    drop(release);
    proxy.stop(Duration::from_secs(5));
}

/// A server that answers other requests than hellos when it is told to.
fn server_on_demand() -> (u16, Receiver<()>, Sender<()>) {
    let (asked, is_asked) = channel();
    let (go, goes) = channel::<()>();
    let (asked, goes) = (Mutex::new(asked), Mutex::new(goes));
    let port = server_that(move |mut stream, request| {
        asked.lock().unwrap().send(()).unwrap();
        goes.lock().unwrap().recv().unwrap();
        stream.write_all(&reply(&request, &doc! { "ok" => 1.0 }, 0)).unwrap();
        let _ = received(&mut stream);
    });
    (port, is_asked, go)
}

#[test]
fn a_stopping_proxy_answers_what_is_asked() {
    let (port, is_asked, go) = server_on_demand();
    let (proxy, _) = proxy(port, "");
    let address = proxy.addresses()[0].clone();
    let (idle, mut busy) = (driver(&address), driver(&address));
    busy.write_all(&ping()).unwrap();
    is_asked.recv_timeout(Duration::from_secs(60)).unwrap();
    let stopping = std::thread::spawn(move || proxy.stop(Duration::from_secs(60)));
    // From here on sessions drain.
    assert!(is_at_end(&idle));
    go.send(()).unwrap();
    received(&mut busy).unwrap();
    assert!(is_at_end(&busy));
    stopping.join().unwrap();
}
