//! The in-memory transport keeps the contract of a transport.

use crate::common::{Echo, PATIENCE, Seen, op, op_with_number, request};
use kauri_transport::fake::FakeTransport;
use kauri_transport::{ExecutorOptions, ServiceExecutor, SessionManager, TransportLayer};
use std::sync::Arc;
use std::time::Duration;

struct Server {
    transport: FakeTransport,
    manager: Arc<SessionManager>,
    executor: Arc<ServiceExecutor>,
    seen: Arc<Seen>,
}

impl Server {
    fn start() -> Self {
        let echo = Echo::default();
        let seen = Arc::clone(&echo.seen);
        let options = ExecutorOptions { workers: 1, ..Default::default() };
        let executor = ServiceExecutor::start(&options).unwrap();
        let manager = SessionManager::new(Arc::clone(&executor), Arc::new(echo), 2);
        let mut transport = FakeTransport::default();
        assert!(transport.connect().is_none(), "not started");
        transport.setup().unwrap();
        transport.start(&manager).unwrap();
        Server { transport, manager, executor, seen }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.transport.shutdown();
        self.manager.shutdown(Duration::ZERO);
        self.executor.shutdown();
    }
}

#[test]
fn requests_in_any_pieces_are_answered() {
    let server = Server::start();
    let client = server.transport.connect().unwrap();
    let all = [request(b"e one"), request(b"l two"), request(b"n"), request(b"e three")].concat();
    for piece in all.chunks(7) {
        client.send(piece);
    }
    for expected in [&b"e one"[..], b"l two", b"e three"] {
        assert_eq!(client.receive(PATIENCE).unwrap()[16..], *expected);
    }
}

#[test]
fn a_reply_waits_for_room() {
    let server = Server::start();
    let client = server.transport.connect().unwrap();
    client.set_window(1000);
    client.send(&request(&op_with_number(op::BIG, 200_000)));
    assert!(client.receive(Duration::from_millis(20)).is_none(), "the reply cannot be complete");
    client.set_window(usize::MAX);
    assert_eq!(client.receive(PATIENCE).unwrap().len(), 16 + 200_002);
}

#[test]
fn closing_ends_the_session_and_notifies_the_command() {
    let server = Server::start();
    let client = server.transport.connect().unwrap();
    client.send(&request(&[op::WAIT_FOR_END]));
    server.seen.wait_for("waiting", 1);
    drop(client);
    server.seen.wait_for("ended 279", 1);
    server.seen.wait_for("end", 1);
}

#[test]
fn a_bad_length_and_the_limit_close() {
    let server = Server::start();
    let client = server.transport.connect().unwrap();
    let other = server.transport.connect().unwrap();
    assert!(server.transport.connect().is_none(), "only two are allowed");
    client.send(&[1, 0, 0, 0]);
    assert!(client.wait_closed(PATIENCE));
    assert!(!other.wait_closed(Duration::ZERO));
}
