//! Tests that need an RDMA device. scripts/lab runs them in a guest with Soft-RoCE, on the first active port.
//!
//! This is a program rather than a test target, so that a machine without a device cannot skip the tests and
//! pass. `device_tests [PART-OF-A-NAME]`; its last line has the form of `cargo test`'s.

mod completions;
mod data;
mod failures;
mod lifetimes;
mod rig;
#[path = "../runner.rs"]
mod runner;
mod windows;

use runner::Test;

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == lifetimes::MEMLOCK_CHILD {
        return lifetimes::memlock_child();
    }
    let suites =
        [data::TESTS, windows::TESTS, failures::TESTS, completions::TESTS, lifetimes::TESTS];
    runner::run(&suites, &argument)
}
