//! Tests of sessions over RDMA. scripts/lab runs them in a guest with Soft-RoCE. KAURI names the program,
//! KAURI_TEST_RDMA_ADDRESS the address.
//!
//! This is a program rather than a test target, so that a machine without a device cannot skip the tests and
//! pass. `rdma_tests [PART-OF-A-NAME]`; its last line has the form of `cargo test`'s. `rdma_tests --server` and
//! `rdma_tests --clients` are the two hosts of [`hosts`].

mod faults;
mod hosts;
mod large;
mod leaks;
mod raw;
#[path = "../rig/mod.rs"]
mod rig;
#[path = "../../../verbs/tests/runner.rs"]
mod runner;
mod sessions;
mod system_calls;

use runner::Test;

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    match argument.as_str() {
        "--server" => return hosts::server(),
        "--clients" => return hosts::clients(),
        _ => {}
    }
    let suites = [sessions::TESTS, faults::TESTS, large::TESTS, leaks::TESTS, system_calls::TESTS];
    runner::run(&suites, &argument)
}
