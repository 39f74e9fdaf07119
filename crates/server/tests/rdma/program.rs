//! Sessions over RDMA: run by scripts/lab in a guest with Soft-RoCE, with the program that KAURI names
//! and on the address that KAURI_TEST_RDMA_ADDRESS names.
//!
//! A program rather than a test target, so that a machine without a device can't pass it by skipping.
//! `rdma_tests [PART-OF-A-NAME]`; its last line has the form of `cargo test`'s.
//! `rdma_tests --server` and `rdma_tests --clients` are the two hosts of [`hosts`].

mod faults;
mod hosts;
mod leaks;
mod raw;
#[path = "../rig/mod.rs"]
mod rig;
mod sessions;

use std::panic::catch_unwind;
use std::time::Instant;

/// A behaviour's name and its test.
pub type Test = (&'static str, fn());

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    match argument.as_str() {
        "--server" => return hosts::server(),
        "--clients" => return hosts::clients(),
        _ => {}
    }
    let suites = [sessions::TESTS, faults::TESTS, leaks::TESTS];
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in suites.into_iter().flatten().filter(|(name, _)| name.contains(&argument)) {
        let start = Instant::now();
        let outcome = match catch_unwind(test) {
            Ok(()) => "ok",
            Err(_) => "FAILED",
        };
        println!("test {name} ... {outcome} ({} ms)", start.elapsed().as_millis());
        if outcome == "ok" { passed += 1 } else { failed += 1 }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed");
    std::process::exit(i32::from(failed > 0 || passed == 0));
}
