//! The behaviour that every transport must have, over RDMA.

use crate::leaks::used;
use crate::raw::{Raw, until};
use crate::rig::{Server, Way, eventually, find, found, insert, message_to, suite};
use kauri_bson::doc;
use kauri_transport::rdma::DialedEnd;

pub const TESTS: &[crate::Test] = &[
    ("documents_of_all_sizes", documents_of_all_sizes),
    ("the_same_while_workers_spin", the_same_while_workers_spin),
    ("a_request_and_its_reply_are_one_frame_each", one_frame_each),
    ("many_requests_in_a_row", many_requests_in_a_row),
    ("a_request_received_while_a_reply_waits", a_request_received_while_a_reply_waits),
    ("a_large_request_and_a_large_reply", a_large_request_and_a_large_reply),
    ("messages_of_the_maximum_size", messages_of_the_maximum_size),
    ("cursors_errors_and_many_sessions", many_sessions),
    ("the_same_over_every_transport_at_once", the_same_over_every_transport),
    ("a_thousand_sessions_with_a_request_in_flight_each", a_thousand_sessions),
    ("the_cost_of_a_request", the_cost_of_a_request),
    ("the_cost_of_a_request_while_workers_sleep", the_cost_of_a_request_while_workers_sleep),
];

pub fn start(name: &str, args: &[&str]) -> Server {
    Server::start(name, &[&["--rdma", "require"], args].concat())
}

fn documents_of_all_sizes() {
    let server = start("sizes", &[]);
    suite::documents_of_all_sizes(&server, Way::Rdma, "");
    assert_eq!(server.status("rdma.switched"), 1);
    assert_eq!(server.status("rdma.failed"), 0);
}

fn the_same_while_workers_spin() {
    suite::documents_of_all_sizes(
        &start("spins", &["--spinMicros", "50"]),
        Way::Rdma,
        "spinMicros=50",
    );
}

fn one_frame_each() {
    suite::a_request_and_its_reply_are_one_frame_each(&start("frames", &[]), Way::Rdma);
}

fn many_requests_in_a_row() {
    suite::many_requests_in_a_row(&start("row", &[]), Way::Rdma);
}

/// A request received while a reply waits for credit is answered after that reply, even without further events.
fn a_request_received_while_a_reply_waits() {
    let server = start("heard", &[]);
    let mut other = server.open(Way::Tcp);
    other.command("test", &insert(1, 100_000)).unwrap();
    let mut raw = Raw::connect(&server);
    let mut end = raw.switch();
    let send = |end: &mut DialedEnd, command| {
        let message = message_to("test", &command);
        assert_eq!(end.send(&message, &[]), message.len());
    };
    send(&mut end, find(1));
    until("the reply's beginning", || end.look().unwrap().readable);
    let frames = server.status("rdma.framesIn");
    send(&mut end, insert(2, 10));
    server.until("rdma.framesIn", frames + 1);
    // All data in the ring is consumed at once, and the rest fits into it.
    let sent = server.status("rdma.framesOut") as u64;
    until("what the ring holds", || end.look().is_ok() && end.counts().frames_in == sent);
    assert!(end.receive(&mut Vec::with_capacity(1 << 20)) > 40_000);
    eventually("the request is carried out", || {
        let count = other.command("test", &doc! { "count" => "c" }).unwrap();
        count.as_doc().value("n").to_i64_saturating() == Some(2)
    });
}

fn a_large_request_and_a_large_reply() {
    suite::a_large_request_and_a_large_reply(&start("large", &[]), Way::Rdma, "");
}

fn messages_of_the_maximum_size() {
    suite::messages_of_the_maximum_size(&start("limits", &[]), Way::Rdma);
}

/// One server and one suite: over TCP, over the Unix domain socket, and through a proxy that uses RDMA.
fn the_same_over_every_transport() {
    let server = start("every", &[]);
    for way in [Way::Tcp, Way::Unix, Way::ProxyRdma] {
        suite::documents_of_all_sizes(&server, way, "");
    }
    suite::many_requests_in_a_row(&server, Way::ProxyRdma);
    suite::messages_of_the_maximum_size(&server, Way::ProxyRdma);
    suite::cursors_errors_and_many_sessions(&server, Way::ProxyRdma, 50);
    // Only sessions through the proxy.
    assert_eq!(server.status("rdma.switched"), server.status("rdma.offered"));
    assert_eq!(server.status("rdma.refused") + server.status("rdma.failed"), 0);
    let server = start("frames", &[]);
    suite::a_request_and_its_reply_are_one_frame_each(&server, Way::ProxyRdma);
}

fn many_sessions() {
    suite::cursors_errors_and_many_sessions(&start("sessions", &[]), Way::Rdma, 100);
}

/// Bytes pinned by all sessions together.
pub fn pinned(server: &Server) -> i64 {
    used(server)[0]
}

/// Bytes that a session pins.
const SESSION_BYTES: i64 = 144 << 10;

fn a_thousand_sessions() {
    kauri_transport::raise_descriptor_limit().unwrap();
    let server = start("thousand", &[]);
    let mut connections: Vec<_> = (0..1000).map(|_| server.open(Way::Rdma)).collect();
    assert_eq!(server.status("rdma.sessions"), 1000);
    assert_eq!(pinned(&server), 1000 * SESSION_BYTES);
    assert!(server.status("rdma.verbs.pinnedBytes") <= 256 << 20, "with what large messages take");
    for connection in &mut connections {
        connection.send("admin", &doc! { "ping" => 1 }).unwrap();
    }
    for connection in &mut connections {
        connection.receive().unwrap().checked().unwrap();
    }
    drop(connections);
    eventually("all resources are freed", || pinned(&server) == 0);
    assert_eq!(server.status("rdma.failed"), 0);
}

/// The server's cost of 1,600 finds, by the counters of its device.
fn spent(server: &Server, options: &str) -> impl Fn(&str) -> i64 {
    const COUNTERS: [&str; 8] = [
        "sendsPosted",
        "sendRequests",
        "sendRequestsSignalled",
        "receivesPosted",
        "completions",
        "registrations",
        "arms",
        "channelEvents",
    ];
    let mut connection = server.connect_by(Way::Rdma, options).unwrap();
    connection.command("test", &insert(1, 1000)).unwrap();
    let look = || COUNTERS.map(|name| server.status(&format!("rdma.verbs.{name}")));
    let before = look();
    for _ in 0..1600 {
        assert_eq!(found(&connection.command("test", &find(1)).unwrap()).len(), 1000);
    }
    let after = look();
    move |name| {
        let at = COUNTERS.iter().position(|known| *known == name).unwrap();
        after[at] - before[at]
    }
}

fn the_cost_of_a_request() {
    let server = start("costs", &["--spinMicros", "10000000"]);
    let spent = spent(&server, "spinMicros=10000000");
    // One post per reply; two simultaneous replies may share one.
    assert_eq!(spent("sendRequests"), 1600);
    assert!((1584..=1600).contains(&spent("sendsPosted")), "{}", spent("sendsPosted"));
    assert!(spent("sendRequestsSignalled") <= 1600 / 32 + 1);
    assert_eq!(spent("receivesPosted"), 1600 / 16);
    assert!(spent("completions") <= 1600 * 105 / 100, "{}", spent("completions"));
    assert_eq!((spent("registrations"), spent("arms"), spent("channelEvents")), (0, 0, 0));
}

fn the_cost_of_a_request_while_workers_sleep() {
    let server = start("asleep", &[]);
    let spent = spent(&server, "spinMicros=0");
    assert_eq!(spent("sendRequests"), 1600);
    assert!(spent("completions") <= 1600 * 105 / 100, "{}", spent("completions"));
    // Each read of the status puts the other sessions' worker to sleep, too.
    assert!(spent("arms") <= 1600 * 105 / 100 + 100, "{}", spent("arms"));
    assert!(spent("channelEvents") <= spent("arms"));
    assert_eq!(spent("registrations"), 0);
}
