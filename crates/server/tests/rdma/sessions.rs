//! What every transport has to do, done over RDMA.

use crate::rig::{Server, Way, suite};

pub const TESTS: &[crate::Test] = &[
    ("documents_of_all_sizes", documents_of_all_sizes),
    ("the_same_while_workers_spin", the_same_while_workers_spin),
    ("a_request_and_its_reply_are_one_frame_each", one_frame_each),
    ("many_requests_in_a_row", many_requests_in_a_row),
    ("a_large_request_and_a_large_reply", a_large_request_and_a_large_reply),
    ("cursors_errors_and_many_sessions", many_sessions),
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

fn a_large_request_and_a_large_reply() {
    suite::a_large_request_and_a_large_reply(&start("large", &[]), Way::Rdma, "");
}

fn many_sessions() {
    suite::cursors_errors_and_many_sessions(&start("sessions", &[]), Way::Rdma, 100);
}
