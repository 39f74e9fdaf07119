//! The `kauri` binary: one program, a subcommand for each of its roles.

mod allocator;
mod check;
mod diagnostics;
mod engine;
mod establishment;
mod leave;
mod logging;
mod member_dialer;
mod memory;
mod option_table;
mod options;
mod proxy;
mod serve;
mod set;
mod startup_warnings;
mod system_metrics;
mod temporary;

use clap::Command;
use std::process::ExitCode;

/// Stack of startup and of checks, which parse stored definitions: more than requests may have had when they stored
/// them (`--stackKB`). Unused stack takes no memory.
const STACK_BYTES: usize = 80 * 1024 * 1024;

fn main() -> ExitCode {
    let thread = kauri_base::work::thread_with_stack("main", STACK_BYTES, program);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(status)) => status,
        // It has printed its panic.
        Ok(Err(_)) => ExitCode::from(101),
        Err(error) => {
            eprintln!("kauri: cannot start a thread: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program's command line.
fn command() -> Command {
    Command::new("kauri")
        .about("Kauri, a document database that speaks MongoDB's wire protocol")
        .version(kauri_commands::server::VERSION)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(options::command())
        .subcommand(proxy::command())
        .subcommand(check::command())
        .subcommand(kauri_bench_cli::command())
        .subcommands(kauri_bench_cli::process_commands())
}

fn program() -> ExitCode {
    let matches = command().get_matches();
    if let Some(status) = kauri_bench_cli::run_program(&matches) {
        return status;
    }
    let outcome = match matches.subcommand() {
        Some(("serve", serve)) => options::Options::parse(serve).and_then(serve::run),
        Some(("proxy", matches)) => proxy::run(matches),
        Some(("check", matches)) => check::run(matches),
        _ => Ok(()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kauri: {}", error.message());
            ExitCode::FAILURE
        }
    }
}
