//! `kauri bench run`: an experiment that a run file describes, on running servers or on servers that it starts.

use crate::own::Running;
use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::plots;
use kauri_bench::run::flags::Flags;
use kauri_bench::run::own::Owned;
use kauri_bench::run::plan::{self, Plan, Table};
use kauri_bench::run::processes::{self, Program};
use kauri_bench::run::rounds::{self, Case, Progress, Run};
use kauri_bench::run::{page, phases, report};
use kauri_machine as machine;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Flags, what run files call them, and their help.
const FLAGS: [(&str, &str, &str); 8] = [
    (
        "threads",
        "threads",
        "Threads of a process: a number, or several numbers separated by commas [default: 1]",
    ),
    (
        "processes",
        "processes",
        "Client processes: a number, or several numbers separated by commas [default: 1]",
    ),
    ("rounds", "rounds", "Number of measurements of each server [default: 3]"),
    ("seconds", "seconds", "Length of a measurement, in seconds [default: 5]"),
    ("operations", "operations", "Number of operations of a measurement, instead of --seconds"),
    (
        "phases",
        "phases",
        "Number of phases of a measurement, each with its own figures [default: 1]",
    ),
    (
        "warm-up-seconds",
        "warmUpSeconds",
        "Length of the warm-up before a measurement, in seconds [default: 1]",
    ),
    ("seed", "seed", "Seed of random numbers [default: 1]"),
];

/// Those that are not numbers of the whole run.
const MORE_FLAGS: [&str; 4] = ["uri", "workload", "property", "target"];

fn several(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).action(ArgAction::Append).help(help)
}

/// The experiment that flags describe.
fn table_of_flags(matches: &ArgMatches) -> Result<Table> {
    let all = |name: &str| {
        matches.get_many::<String>(name).map(|all| all.cloned().collect()).unwrap_or_default()
    };
    let given = |(flag, name, _): (&str, &'static str, &str)| {
        Some((name, matches.get_one::<String>(flag)?.clone()))
    };
    let flags = Flags {
        uris: all("uri"),
        workloads: all("workload"),
        properties: all("property"),
        target: matches.get_one("target").copied(),
        numbers: FLAGS.into_iter().filter_map(given).collect(),
    };
    flags.table()
}

/// What a run file says.
fn read(file: &str) -> Result<Table> {
    let text = std::fs::read_to_string(file)
        .map_err(|why| Error::bad_value(format!("cannot read '{file}': {why}")))?;
    plan::table(file, &text)
}

/// The command line's form.
pub fn command() -> Command {
    Command::new("run")
        .about("Runs YCSB workloads on several servers, or on several addresses of one server, in turns")
        .long_about(
            "Runs the experiment that a run file (TOML) describes: connection strings of servers, YCSB properties of \
             workloads, client processes, threads, rounds. Servers take turns in every round. The run fails if a \
             server's transport, topology, engine or medium differs from the run file. Each workload's collection \
             (default: ycsb.usertable) is dropped and loaded again. Ctrl-C ends the run and prints the results so \
             far. Flags can replace the run file: kauri bench run --uri \
             mongodb://127.0.0.1:27017/?sharedMemory=off --uri mongodb://127.0.0.1:27018 --workload B --property \
             recordcount=10000 --threads 1,8",
        )
        .arg(
            Arg::new("file")
                .required_unless_present("uri")
                .conflicts_with_all(FLAGS.map(|flag| flag.0).into_iter().chain(MORE_FLAGS))
                .value_name("FILE")
                .help("Run file (TOML)"),
        )
        .arg(several("uri", "URI", "Connection string of a server; may be given several times"))
        .arg(several("workload", "LETTER", "Workload, A to F; may be given several times [default: A]"))
        .arg(several("property", "NAME=VALUE", "YCSB property of all workloads; may be given several times"))
        .arg(
            Arg::new("target")
                .long("target")
                .value_name("N")
                .value_parser(clap::value_parser!(f64))
                .help("Target operations per second of all threads together [default: no limit]"),
        )
        .args(FLAGS.map(|(name, _, help)| Arg::new(name).long(name).value_name("N").help(help)))
        .arg(Arg::new("json").long("json").value_name("FILE").help("Write all figures to this file, as JSON"))
        .arg(
            Arg::new("html")
                .long("html")
                .value_name("FILE")
                .help("Write plots and tables to this file, as a self-contained HTML page"),
        )
        .arg(
            Arg::new("append")
                .long("append")
                .value_name("FILE")
                .requires("html")
                .help("Append the text of this file to the page, such as the table of another measurement"),
        )
        .arg(
            Arg::new("svg")
                .long("svg")
                .value_name("DIR")
                .help("Write the page's plots to this directory, as SVG files"),
        )
}

/// The hidden command that is a client process.
const CLIENT: &str = "bench-run-client";

/// Its form.
pub fn client_command() -> Command {
    Command::new(CLIENT).hide(true)
}

/// A client process.
pub fn run_client() -> Result<()> {
    // A terminal interrupts all of its processes; this one ends when it is told to, with what there is.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default())
        .map_err(|why| failed(format!("cannot handle signals: {why}")))?;
    processes::serve()
}

/// Where what came of it goes, besides standard output.
#[derive(Default)]
pub struct Outputs {
    /// All figures, as JSON.
    pub json: Option<PathBuf>,
    /// The page.
    pub html: Option<PathBuf>,
    /// The page's plots, each as a file in this directory.
    pub svg: Option<PathBuf>,
    /// A text that the page ends with.
    pub appended: Option<String>,
}

/// Runs it and prints what came of it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let (name, table) = match text("file") {
        Some(file) => (file.clone(), read(&file)?),
        None => ("the command line".to_owned(), table_of_flags(matches)?),
    };
    let appended = text("append").map(|file| {
        std::fs::read_to_string(&file).map_err(|why| failed(format!("cannot read '{file}': {why}")))
    });
    let path = |name: &str| text(name).map(PathBuf::from);
    let (json, html, svg) = (path("json"), path("html"), path("svg"));
    run_table(&name, table, &Outputs { json, html, svg, appended: appended.transpose()? })
}

/// The same of what a run file of this name says.
pub fn run_table(name: &str, mut table: Table, outputs: &Outputs) -> Result<()> {
    let within = Path::new(name).parent().unwrap_or(Path::new(""));
    let owned = Owned::take(name, &mut table)?;
    // Whatever else is wrong is told before anything is started.
    Plan::of_table(name, owned.fill(table.clone(), &owned.nowhere()), within)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends it at once, whatever it waits for.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|why| failed(format!("cannot handle signals: {why}")))?;
    }
    let own: Vec<Running> = owned
        .servers
        .iter()
        .zip(0..)
        .map(|(own, number)| Running::start(own, number))
        .collect::<Result<_>>()?;
    let places: Vec<_> = own.iter().map(|one| one.place.clone()).collect();
    let mut plan = Plan::of_table(name, owned.fill(table, &places), within)?;
    rounds::leave_out(&mut plan);
    let path = std::env::current_exe()
        .map_err(|why| failed(format!("cannot find the path of this program: {why}")))?;
    let program = Program { path, command: CLIENT };
    let run = rounds::run(&plan, &program, &stop, &mut |progress| tell(&plan, progress))?;
    own.into_iter().try_for_each(Running::stop)?;
    print(&plan, &run);
    write_reports(outputs, &plan, &run)?;
    let rounds = run.rows.iter().flat_map(|row| &row.rounds);
    let (errors, shown) = rounds.fold((0, None), |(errors, shown), figures| {
        (errors + figures.errors(), shown.or(figures.shown.first()))
    });
    if run.stopped {
        eprintln!("kauri: interrupted; the results are incomplete");
    }
    match shown {
        None => Ok(()),
        Some(why) => Err(failed(format!("{errors} operations failed. First error: {why}"))),
    }
}

fn print(plan: &Plan, run: &Run) {
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
    for one in &plan.left_out {
        println!("left out: {}", one.why);
    }
    println!("\n{}", report::table(plan, run));
    if plan.phases > 1 {
        println!("{}", phases::table(plan, run));
    }
}

/// What the figures were measured with.
fn about() -> [(&'static str, String); 4] {
    let machine = machine::look();
    [
        ("kauri", env!("CARGO_PKG_VERSION").to_owned()),
        ("client's processor", format!("{}, {} cores", machine.cpu, machine.cores)),
        ("client's memory", format!("{} MB", machine.memory_bytes >> 20)),
        ("client's system", format!("{}, Linux {}", machine.os_name, machine.os_version)),
    ]
}

fn write_reports(outputs: &Outputs, plan: &Plan, run: &Run) -> Result<()> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text)
            .map_err(|why| failed(format!("cannot write '{}': {why}", path.display())))
    };
    let about = about();
    if let Some(path) = &outputs.json {
        write(path, &report::text(plan, run, &about))?;
    }
    let page = page::html(plan, run, &about, outputs.appended.as_deref());
    if let Some(path) = &outputs.html {
        write(path, &page)?;
    }
    if let Some(directory) = &outputs.svg {
        std::fs::create_dir_all(directory)
            .map_err(|why| failed(format!("cannot create '{}': {why}", directory.display())))?;
        for (number, plot) in (1..).zip(plots::on_page(&page)) {
            write(&directory.join(format!("plot-{number}.svg")), &plot)?;
        }
    }
    Ok(())
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
        Progress::Measuring { case, round, so_far } => {
            let (time, operations) = (so_far.time.as_secs_f64(), so_far.operations);
            let per_s = operations as f64 / time.max(1e-9);
            let case = case_text(plan, case, round);
            let per_s = report::rate(per_s);
            eprintln!("{case} {per_s} op/s so far, {operations} operations in {time:.0} s");
        }
        Progress::Measured { case, round, figures } => {
            let per_s = report::rate(figures.per_s());
            eprintln!("{} {per_s} op/s", case_text(plan, case, round));
        }
    }
}

fn case_text(plan: &Plan, case: &Case, round: usize) -> String {
    let workload = plan.workloads.get(case.workload).map_or("", |workload| &workload.label);
    let server = plan.servers.get(case.server).map_or("", |server| &server.label);
    let (threads, rounds, round) = (case.threads, plan.rounds, round + 1);
    let word = if threads == 1 { "thread" } else { "threads" };
    let processes = match case.processes {
        1 => String::new(),
        several => format!("{several} processes of "),
    };
    format!("{workload}, {processes}{threads} {word}, round {round} of {rounds}: {server}")
}
