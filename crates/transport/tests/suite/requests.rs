//! One connection: requests, replies, and the ways in which they arrive.

use crate::common::{Echo, PATIENCE, Server, big_body, op, op_with_number, request};
use kauri_transport::ExecutorOptions;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

#[test]
fn a_request_is_answered_with_and_without_a_future() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask(b"e hello"), b"e hello");
    assert_eq!(client.ask(b"l hello"), b"l hello");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    let mut all = Vec::new();
    for i in 0..1000u32 {
        let op = if i % 3 == 0 { op::ECHO_LATER } else { op::ECHO };
        all.extend_from_slice(&request(&op_with_number(op, i)));
    }
    client.stream.write_all(&all).unwrap();
    for i in 0..1000u32 {
        assert_eq!(client.receive()[1..], i.to_le_bytes());
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = Server::start();
    let mut client = server.connect();
    for byte in request(b"e slow").into_iter().chain(request(b"l slower")) {
        client.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(client.receive(), b"e slow");
    assert_eq!(client.receive(), b"l slower");
}

#[test]
fn requests_of_every_size_around_the_buffer_sizes() {
    let server = Server::start();
    let mut client = server.connect();
    for base in [0, 1024, 4096, 16 * 1024, 64 * 1024, 128 * 1024, 1 << 20, 5 << 20] {
        for size in [base, base + 1, base + 16, base + 1000] {
            let mut body = big_body(size);
            body.insert(0, op::ECHO);
            let writer = std::thread::spawn({
                let mut stream = client.stream.try_clone().unwrap();
                let message = request(&body);
                move || stream.write_all(&message).unwrap()
            });
            assert!(client.receive() == body, "size {size}");
            writer.join().unwrap();
        }
    }
}

#[test]
fn a_large_message_followed_by_small_ones_in_the_same_write() {
    let server = Server::start();
    let mut client = server.connect();
    let mut big = big_body(200_000);
    big[0] = op::NO_REPLY;
    let mut all = request(&big);
    all.extend_from_slice(&request(b"e after"));
    all.extend_from_slice(&request(b"l and after"));
    client.stream.write_all(&all).unwrap();
    assert_eq!(client.receive(), b"e after");
    assert_eq!(client.receive(), b"l and after");
    assert_eq!(server.seen.no_replies.load(Ordering::SeqCst), 1);
}

#[test]
fn a_slow_reader_gets_a_big_reply_whole() {
    let server = Server::start();
    let mut client = server.connect();
    for len in [100_000, 3_000_000, 40_000_000u32] {
        client.send(&op_with_number(op::BIG, len));
        // A second connection is served while the reply of the first is blocked.
        let mut other = server.connect();
        assert_eq!(other.ask(b"e other"), b"e other");
        let reply = client.receive();
        assert_eq!(reply.len(), len as usize + 2);
        assert!(reply[0] == b'<' && reply[reply.len() - 1] == b'>');
        assert!(reply[1..reply.len() - 1] == big_body(len as usize));
    }
}

#[test]
fn fire_and_forget_is_not_answered() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(b"n one");
    client.send(b"n two");
    assert_eq!(client.ask(b"e three"), b"e three");
    assert_eq!(server.seen.no_replies.load(Ordering::SeqCst), 2);
}

#[test]
fn fire_and_forget_before_closing_is_still_processed() {
    let server = Server::start();
    let mut client = server.connect();
    for _ in 0..100 {
        client.send(b"n");
    }
    drop(client);
    server.seen.wait_for("no reply", 100);
    server.seen.wait_for("end", 1);
}

#[test]
fn exhaust_answers_one_request_several_times() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(b"x");
    for i in 1..=3u32 {
        assert_eq!(client.receive(), i.to_le_bytes());
    }
    assert_eq!(client.ask(b"e next"), b"e next");
}

#[test]
fn a_disconnect_in_the_middle_of_a_message_ends_the_session() {
    let server = Server::start();
    for cut in [1, 3, 4, 15, 16, 17, 99_999] {
        let mut client = server.connect();
        client.stream.write_all(&request(&big_body(100_000))[..cut]).unwrap();
    }
    server.seen.wait_for("end", 7);
    assert_eq!(server.connect().ask(b"e still there"), b"e still there");
}

#[test]
fn a_client_that_has_closed_its_sending_half_gets_its_answers() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(b"e one");
    client.send(b"l two");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.receive(), b"e one");
    assert_eq!(client.receive(), b"l two");
    assert_eq!(client.stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_command_is_notified_of_its_clients_disconnect() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(&[op::WAIT_FOR_END]);
    server.seen.wait_for("waiting", 1);
    drop(client);
    server.seen.wait_for("ended 279", 1);
    server.seen.wait_for("end", 1);
}

#[test]
fn the_service_may_close_with_and_without_a_reply() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask(&[op::REPLY_THEN_CLOSE]), b"bye");
    assert_eq!(client.read_to_end(), b"");
    let mut client = server.connect();
    client.send(&[op::CLOSE]);
    assert_eq!(client.read_to_end(), b"");
}

#[test]
fn a_reply_with_a_wrong_length_is_not_sent() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(&[op::BAD_LENGTH]);
    assert_eq!(client.read_to_end(), b"");
}

#[test]
fn large_messages_of_many_clients_take_no_more_than_their_budget() {
    const BYTES: usize = 1024 * 1024;
    const BUDGET: u64 = 2 * BYTES as u64 + 1000;
    let echo = Echo::default();
    let seen = Arc::clone(&echo.seen);
    let options = ExecutorOptions { workers: 2, arrivals_bytes_max: BUDGET, ..Default::default() };
    let server = Server::with_executor(&options, Arc::new(echo), seen, 100);
    let body: Vec<u8> = std::iter::once(b'e').chain(big_body(BYTES)).collect();
    let mut half = server.connect();
    half.stream.write_all(&request(&body)[..BYTES / 2]).unwrap();
    let until = |reached: &dyn Fn(u64) -> bool| {
        let end = Instant::now() + PATIENCE;
        while !reached(server.manager.stats().arrivals().bytes) {
            assert!(Instant::now() < end, "the budget is not taken or not freed");
            std::thread::yield_now();
        }
    };
    until(&|bytes| bytes > BYTES as u64);
    drop(half);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.connect();
                    for _ in 0..4 {
                        assert!(client.ask(&body) == body);
                    }
                })
            })
            .collect();
        while !clients.iter().all(|client| client.is_finished()) {
            assert!(server.manager.stats().arrivals().bytes <= BUDGET);
            // Small requests do not wait.
            assert_eq!(server.connect().ask(b"e"), b"e");
        }
    });
    until(&|bytes| bytes == 0);
}
