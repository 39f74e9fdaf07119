//! Runs tests that need a device. It is a program rather than a test target, so that a machine without a device
//! cannot skip the tests and pass. This crate and `kauri-server` use it.

use std::panic::catch_unwind;
use std::time::Instant;

/// The name of a behaviour and its test.
pub type Test = (&'static str, fn());

/// Runs the tests whose names contain this, and ends the program. The last line has the form of `cargo test`'s.
pub fn run(suites: &[&[Test]], part_of_a_name: &str) -> ! {
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in suites.iter().copied().flatten() {
        if !name.contains(part_of_a_name) {
            continue;
        }
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
