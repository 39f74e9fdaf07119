//! `kauri bench`: measures a running server against a raw echo server.

use clap::{Arg, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::compare::Comparison;
use kauri_bench::crud::{self, Operation, Plan};
use kauri_bench::load::Report;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Child, Stdio};

/// The command line's form.
pub fn command() -> Command {
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help).value_name("N")
    };
    Command::new("bench")
        .about("Measures find, insert and update by _id on a running server, in turns with a raw TCP echo")
        .arg(
            Arg::new("address")
                .long("address")
                .default_value("127.0.0.1:27017")
                .help("the server"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_name("PID")
                .help("the server's process, to count its CPU time"),
        )
        .arg(
            Arg::new("operations")
                .long("operations")
                .default_value("find,insert,update")
                .help("which, separated by commas"),
        )
        .arg(number("documents", "100000", "documents loaded before"))
        .arg(number("bytes", "1024", "size of a document"))
        .arg(number("connections", "1", "connections"))
        .arg(number("threads", "1", "threads of the load generator"))
        .arg(number("echo-threads", "2", "threads of the echo server"))
        .arg(number("rounds", "5", "rounds, each with both servers"))
        .arg(number("seconds", "2", "seconds of each measurement"))
        .arg(number("seed", "1", "seed of the random ids"))
        .args_conflicts_with_subcommands(true)
        .subcommand(crate::bench_writelock::command())
        .subcommand(crate::bench_engine::command())
        .subcommand(crate::bench_experiments::list_command())
        .subcommand(crate::bench_experiments::command())
        .subcommand(crate::bench_standalone_options::command())
        .subcommand(crate::bench_run::command())
        .subcommand(crate::bench_compare::command())
        .subcommand(crate::bench_transports::command())
        .subcommand(crate::bench_ycsb::command())
}

/// The echo server's form: a process of its own.
pub fn echo_command() -> Command {
    Command::new("echo").hide(true).arg(Arg::new("threads").default_value("2"))
}

/// Runs the echo server.
pub fn run_echo(matches: &ArgMatches) -> Result<()> {
    crud::serve_echo(number(matches, "threads")? as usize).map_err(failed)
}

/// An echo server in a process of its own.
pub struct Echo {
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
pub fn run(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("engine", matches)) => return crate::bench_engine::run(matches),
        Some(("experiments", _)) => {
            crate::bench_experiments::list();
            return Ok(());
        }
        Some(("run", matches)) => return crate::bench_run::run(matches),
        Some(("standalone", matches)) => return crate::bench_standalone::run(matches),
        Some(("transports", matches)) => return crate::bench_transports::run(matches),
        Some(("ycsb", matches)) => return crate::bench_ycsb::run(matches),
        Some(("writelock", matches)) => return crate::bench_writelock::run(matches),
        _ => {}
    }
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let address = text("address");
    let address =
        address.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(|| {
            Error::bad_value(format!("--address should be host:port, not '{address}'"))
        })?;
    let server_pid =
        match matches.get_one::<String>("pid") {
            None => None,
            Some(pid) => Some(pid.parse().map_err(|_| {
                Error::bad_value(format!("--pid should be a process id, not '{pid}'"))
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
    text.parse().map_err(|_| Error::bad_value(format!("--{name} should be a number, not '{text}'")))
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}
