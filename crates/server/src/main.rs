//! The `kauri` binary: one program, a subcommand for each of its roles.

mod allocator;
mod bench;
mod bench_compare;
mod bench_engine;
mod bench_experiments;
mod bench_limit;
mod bench_options;
mod bench_own;
mod bench_run;
mod bench_server;
mod bench_standalone;
mod bench_standalone_options;
mod bench_transports;
mod bench_writelock;
mod bench_ycsb;
mod check;
mod control_group;
mod engine;
mod logging;
mod machine;
mod memory;
mod options;
mod proxy;
mod serve;
mod startup_warnings;
mod temporary;

use std::process::ExitCode;

/// Its status tells more than success or failure.
fn compare_results(matches: &clap::ArgMatches) -> ExitCode {
    match bench_compare::run(matches) {
        Ok(is_worse) => ExitCode::from(u8::from(is_worse)),
        Err(error) => {
            eprintln!("kauri: {}", error.message());
            ExitCode::from(2)
        }
    }
}

/// As [`compare_results`]: 2 if it can't be made.
fn experiment(matches: &clap::ArgMatches) -> ExitCode {
    match bench_experiments::run(matches) {
        Ok(is_made) => ExitCode::from(if is_made { 0 } else { 2 }),
        Err(error) => {
            eprintln!("kauri: {}", error.message());
            ExitCode::FAILURE
        }
    }
}

/// Stack of start-up and of checks, which parse stored definitions: more than requests may have had when they
/// stored them (`--stackKB`). Only what is used takes memory.
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

fn program() -> ExitCode {
    let matches = options::command().get_matches();
    if let Some(("bench", bench)) = matches.subcommand()
        && let Some(("experiment", experiment_of)) = bench.subcommand()
    {
        return experiment(experiment_of);
    }
    if let Some(("bench", bench)) = matches.subcommand()
        && let Some(("compare", compare)) = bench.subcommand()
    {
        return compare_results(compare);
    }
    let outcome = match matches.subcommand() {
        Some(("serve", serve)) => options::Options::parse(serve).and_then(serve::run),
        Some(("proxy", matches)) => proxy::run(matches),
        Some(("check", matches)) => check::run(matches),
        Some(("bench", matches)) => bench::run(matches),
        Some(("bench-client", matches)) => bench_standalone::run_client(matches),
        Some(("bench-run-client", _)) => bench_run::run_client(),
        Some(("echo", matches)) => bench::run_echo(matches),
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
