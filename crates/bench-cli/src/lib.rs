//! The command line of `kauri bench`: its arguments, the processes that it starts, its output. Without a subcommand
//! it compares a running server with a raw echo server.
//!
//! It starts its own program: as a server, as an echo server, as clients. `kauri-bench` has the measurements.

mod compare;
mod engine;
mod experiments;
mod limit;
mod options;
mod own;
mod replica_set;
mod run;
mod server;
mod standalone;
mod standalone_options;
mod transports;
#[cfg(feature = "lock-experiment")]
mod writelock;
mod ycsb;

use clap::{Arg, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::compare::Comparison;
use kauri_bench::crud::{self, Operation, Plan};
use kauri_bench::load::Report;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Child, ExitCode, Stdio};

/// The command line's form.
pub fn command() -> Command {
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help).value_name("N")
    };
    let bench = Command::new("bench")
        .about("Runs benchmarks. Without a subcommand: measures find, insert and update by _id on a running server, in turns \
             with a raw TCP echo server")
        .arg(
            Arg::new("address")
                .long("address")
                .default_value("127.0.0.1:27017")
                .value_name("HOST:PORT")
                .help("Address of the server"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_name("PID")
                .help("Process ID of the server, for its CPU time"),
        )
        .arg(
            Arg::new("operations")
                .long("operations")
                .default_value("find,insert,update")
                .value_name("LIST")
                .help("Operations to measure, separated by commas"),
        )
        .arg(number("documents", "100000", "Number of documents loaded before the measurement"))
        .arg(number("bytes", "1024", "Size of a document, in bytes"))
        .arg(number("connections", "1", "Number of connections"))
        .arg(number("threads", "1", "Number of threads of the load generator"))
        .arg(number("echo-threads", "2", "Number of threads of the echo server"))
        .arg(number("rounds", "5", "Number of rounds. Each round measures both servers"))
        .arg(number("seconds", "2", "Length of a measurement, in seconds"))
        .arg(number("seed", "1", "Seed of the random _ids"))
        .args_conflicts_with_subcommands(true)
        .subcommand(crate::engine::command())
        .subcommand(crate::experiments::list_command())
        .subcommand(crate::experiments::command())
        .subcommand(crate::standalone_options::command())
        .subcommand(crate::run::command())
        .subcommand(crate::compare::command())
        .subcommand(crate::transports::command())
        .subcommand(crate::ycsb::command());
    #[cfg(feature = "lock-experiment")]
    let bench = bench.subcommand(crate::writelock::command());
    bench
}

/// The forms of processes that `kauri bench` starts.
pub fn process_commands() -> [Command; 3] {
    [echo_command(), standalone::client_command(), run::client_command()]
}

/// Runs `kauri bench`, or a process that it has started, if that is what the command line asks for.
pub fn run_program(matches: &ArgMatches) -> Option<ExitCode> {
    match matches.subcommand()? {
        ("bench", matches) => Some(match matches.subcommand() {
            // Its status tells more than success or failure.
            Some(("compare", matches)) => match compare::run(matches) {
                Ok(is_worse) => ExitCode::from(u8::from(is_worse)),
                Err(error) => failure(&error, ExitCode::from(2)),
            },
            // 2 if it can't be made.
            Some(("experiment", matches)) => match experiments::run(matches) {
                Ok(is_made) => ExitCode::from(if is_made { 0 } else { 2 }),
                Err(error) => failure(&error, ExitCode::FAILURE),
            },
            _ => status(run(matches)),
        }),
        ("bench-client", matches) => Some(status(standalone::run_client(matches))),
        ("bench-run-client", _) => Some(status(run::run_client())),
        ("echo", matches) => Some(status(run_echo(matches))),
        _ => None,
    }
}

fn status(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error, ExitCode::FAILURE),
    }
}

fn failure(error: &Error, status: ExitCode) -> ExitCode {
    eprintln!("kauri: {}", error.message());
    status
}

/// The echo server's form: a process of its own.
fn echo_command() -> Command {
    Command::new("echo").hide(true).arg(Arg::new("threads").default_value("2"))
}

/// Runs the echo server.
fn run_echo(matches: &ArgMatches) -> Result<()> {
    crud::serve_echo(number(matches, "threads")? as usize).map_err(failed)
}

/// An echo server in a process of its own.
pub(crate) struct Echo {
    child: Child,
    address: SocketAddr,
}

impl Echo {
    /// Starts one with so many threads.
    pub fn start(threads: usize) -> Result<Echo> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = std::process::Command::new(program)
            .args(["echo", &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(failed)?;
        }
        let address = line
            .trim()
            .parse()
            .map_err(|_| Error::new(ErrorCode::OperationFailed, "the echo server did not start"))?;
        Ok(Echo { child, address })
    }
}

impl Echo {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs the measurements and prints them.
fn run(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("engine", matches)) => return crate::engine::run(matches),
        Some(("experiments", _)) => {
            crate::experiments::list();
            return Ok(());
        }
        Some(("run", matches)) => return run::run(matches),
        Some(("standalone", matches)) => return crate::standalone::run(matches),
        Some(("transports", matches)) => return crate::transports::run(matches),
        Some(("ycsb", matches)) => return crate::ycsb::run(matches),
        #[cfg(feature = "lock-experiment")]
        Some(("writelock", matches)) => return crate::writelock::run(matches),
        _ => {}
    }
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let address = text("address");
    let address =
        address.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(|| {
            Error::bad_value(format!("--address must be host:port, not '{address}'"))
        })?;
    let server_pid =
        match matches.get_one::<String>("pid") {
            None => None,
            Some(pid) => Some(pid.parse().map_err(|_| {
                Error::bad_value(format!("--pid must be a process id, not '{pid}'"))
            })?),
        };
    let operations = text("operations")
        .split(',')
        .map(|name| match name {
            "find" => Ok(Operation::Find),
            "insert" => Ok(Operation::Insert),
            "update" => Ok(Operation::Update),
            other => Err(Error::bad_value(format!(
                "--operations takes find, insert and update, not '{other}'"
            ))),
        })
        .collect::<Result<Vec<_>>>()?;
    let plan = Plan {
        address,
        server_pid,
        documents: number(matches, "documents")?.max(1) as i64,
        document_bytes: number(matches, "bytes")? as usize,
        connections: number(matches, "connections")?.max(1) as usize,
        threads: number(matches, "threads")?.max(1) as usize,
        echo_threads: number(matches, "echo-threads")?.max(1) as usize,
        rounds: number(matches, "rounds")?.max(1) as usize,
        seconds: number(matches, "seconds")?.max(1),
        seed: number(matches, "seed")?,
    };
    println!("loading {} documents of {} bytes", plan.documents, plan.document_bytes);
    crud::load(&plan).map_err(failed)?;
    let echo = Echo::start(plan.echo_threads)?;
    for operation in operations {
        println!(
            "\n{}: {} connection(s), {} generator thread(s), {} rounds of {} s",
            operation.name(),
            plan.connections,
            plan.threads,
            plan.rounds,
            plan.seconds
        );
        let comparison =
            crud::compare(&plan, operation, echo.address, Some(echo.child.id()), &mut print)
                .map_err(failed)?;
        print_comparison(&comparison);
    }
    Ok(())
}

fn p50(report: &Report) -> f64 {
    report.latency.percentile_ns(0.5) as f64 / 1000.0
}

fn print(name: &str, report: &Report) {
    let us = |fraction| report.latency.percentile_ns(fraction) as f64 / 1000.0;
    println!(
        "  {name:6} {:9.0}/s  p50 {:7.2} us  p95 {:7.2}  p99 {:7.2}  server CPU {:6.2} us  client CPU {:6.2} us  errors {}",
        report.throughput(),
        us(0.5),
        us(0.95),
        us(0.99),
        report.server_cpu_us().unwrap_or(0.0),
        report.client_cpu_us(),
        report.errors,
    );
}

fn print_comparison(comparison: &Comparison) {
    let (server, floor) = comparison.medians(p50);
    println!(
        "  median latency {server:.2} us, echo {floor:.2} us: {:+.2} us, ratio {:.3}",
        server - floor,
        comparison.ratio(p50)
    );
    println!("  throughput ratio {:.3}", comparison.ratio(Report::throughput));
    let cpu = |report: &Report| report.server_cpu_us().unwrap_or(0.0);
    let (server, floor) = comparison.medians(cpu);
    println!("  server CPU a request {server:.2} us, echo {floor:.2} us");
    let (asking, floor) = comparison.medians(Report::client_cpu_us);
    println!("  client CPU a request {asking:.2} us, of the echo {floor:.2} us");
}

fn number(matches: &ArgMatches, name: &str) -> Result<u64> {
    let text = matches.get_one::<String>(name).cloned().unwrap_or_default();
    text.parse().map_err(|_| Error::bad_value(format!("--{name} must be a number, not '{text}'")))
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}
