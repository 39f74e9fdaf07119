//! The `kauri` binary.

mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<String> = std::env::args().collect();
    match serve::run(&argv) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kauri: {}", error.message());
            ExitCode::FAILURE
        }
    }
}
