//! System calls per request, by the workers' own counters.

use crate::common::{self, Server, op, op_with_number};
use std::io::Write;

/// Receives, sends and waits of all workers so far.
fn calls(server: &Server) -> [u64; 3] {
    let mut sum = [0; 3];
    for worker in server.manager.stats().workers() {
        sum[0] += worker.receives;
        sum[1] += worker.sends;
        sum[2] += worker.waits;
    }
    sum
}

#[test]
fn one_connection_costs_three_calls_a_request() {
    const REQUESTS: u64 = 500;
    let server = Server::with(1, 10);
    let mut client = server.connect();
    client.ask(b"e warm");
    let before = calls(&server);
    for _ in 0..REQUESTS {
        client.ask(b"e");
    }
    let after = calls(&server);
    assert_eq!(after[0] - before[0], REQUESTS, "receives");
    assert_eq!(after[1] - before[1], REQUESTS, "sends");
    assert!(after[2] - before[2] <= REQUESTS + 2, "{} waits", after[2] - before[2]);
}

#[test]
fn pipelined_requests_share_their_calls() {
    let server = Server::with(1, 10);
    let mut client = server.connect();
    client.ask(b"e warm");
    let before = calls(&server);
    client.stream.write_all(&common::request(b"e").repeat(10)).unwrap();
    (0..10).for_each(|_| assert_eq!(client.receive(), b"e"));
    let after = calls(&server);
    assert!(after[0] - before[0] <= 2, "{} receives for ten requests", after[0] - before[0]);
}

#[test]
fn a_large_payload_is_sent_in_one_call_if_the_socket_has_room() {
    let server = Server::with(1, 10);
    let mut client = server.connect();
    client.ask(b"e warm");
    let before = calls(&server);
    client.send(&op_with_number(op::BIG, 65_536));
    assert_eq!(client.receive().len(), 65_538);
    let after = calls(&server);
    // Bytes before the payload are sent with it; bytes behind it need a second call.
    assert_eq!(after[1] - before[1], 2, "sends");
}
