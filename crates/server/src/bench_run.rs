//! `kauri bench run`: an experiment that a run file describes, on servers that run already.

use crate::machine;
use clap::{Arg, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::run::plan::Plan;
use kauri_bench::run::report;
use kauri_bench::run::rounds::{self, Progress};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The command line's form.
pub fn command() -> Command {
    Command::new("run")
        .about("Runs a workload of YCSB's on several servers, or several addresses of one, in turns")
        .long_about(
            "Runs the experiment that a run file (TOML) describes: servers by their connection strings, \
             workloads by YCSB's properties, threads, rounds. Servers take turns in every round. What the \
             file says of a server's transport, topology, engine and medium has to be what is found there. \
             Each workload's collection, ycsb.usertable if it names no other, is dropped and filled anew. \
             Ctrl-C ends it with the results so far.",
        )
        .arg(Arg::new("file").required(true).value_name("FILE").help("the run file"))
        .arg(Arg::new("json").long("json").value_name("FILE").help("writes all figures there"))
}

/// Runs it and prints what came of it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let plan = Plan::load(Path::new(&text("file").unwrap_or_default()))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends it at once, whatever it waits for.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|why| failed(format!("cannot handle signals: {why}")))?;
    }
    let run = rounds::run(&plan, &stop, &mut |progress| tell(&plan, progress))?;
    for (server, observed) in plan.servers.iter().zip(&run.observed) {
        println!(
            "{}: {}, {} {}, {}",
            server.label,
            observed.transport,
            observed.topology.name(),
            observed.version,
            [&observed.engine, &observed.medium]
                .map(|told| told.as_deref().unwrap_or("?"))
                .join(" on "),
        );
    }
    println!("\n{}", report::table(&plan, &run));
    if let Some(path) = text("json") {
        let machine = machine::look();
        let about = [
            ("kauri", env!("CARGO_PKG_VERSION").to_owned()),
            ("client's processor", format!("{}, {} cores", machine.cpu, machine.cores)),
            ("client's memory", format!("{} MB", machine.memory_bytes >> 20)),
            ("client's system", format!("{}, Linux {}", machine.os_name, machine.os_version)),
        ];
        std::fs::write(&path, report::text(&plan, &run, &about))
            .map_err(|why| failed(format!("cannot write '{path}': {why}")))?;
    }
    let rounds = run.rows.iter().flat_map(|row| &row.rounds);
    let (errors, shown) = rounds.fold((0, None), |(errors, shown), figures| {
        (errors + figures.errors(), shown.or(figures.shown.first()))
    });
    if run.stopped {
        eprintln!("stopped before its end");
    }
    match shown {
        None => Ok(()),
        Some(why) => Err(failed(format!("{errors} operations went wrong; one of them: {why}"))),
    }
}

fn failed(why: impl Into<String>) -> Error {
    Error::new(ErrorCode::OperationFailed, why)
}

/// A line for who waits.
fn tell(plan: &Plan, progress: Progress<'_>) {
    match progress {
        Progress::Loading { server, workload, records, done } => {
            let so_far = if done { "" } else { " so far" };
            eprintln!("{workload}: {server} has {records} records{so_far}");
        }
        Progress::Measured { case, round, figures } => {
            let label = |labels: Vec<&str>, at: usize| {
                labels.get(at).map_or(String::new(), |l| (*l).to_owned())
            };
            let workload =
                label(plan.workloads.iter().map(|w| w.label.as_str()).collect(), case.workload);
            let server =
                label(plan.servers.iter().map(|s| s.label.as_str()).collect(), case.server);
            let (threads, rounds) = (case.threads, plan.rounds);
            let word = if threads == 1 { "thread" } else { "threads" };
            let round = round + 1;
            let per_s = figures.per_s();
            eprintln!(
                "{workload}, {threads} {word}, round {round} of {rounds}: {server} {per_s:.0} op/s"
            );
        }
    }
}
