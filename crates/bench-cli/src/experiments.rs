//! `kauri bench experiments` and `kauri bench experiment NAME`: named experiments, from the documents that the
//! project began with. They run the other commands of `kauri bench`.

use crate::run::{self, Outputs};
use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, Result};
use kauri_bench::experiments::file::{RunFile, Size, bind};
use kauri_bench::experiments::{Experiment, How, table};
use std::path::PathBuf;

/// The command line's form of the list.
pub fn list_command() -> Command {
    Command::new("experiments").about("Lists the named experiments")
}

/// The command line's form of one.
pub fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("experiment")
        .about("Runs a named experiment")
        .long_about(
            "Runs an experiment that `kauri bench experiments` lists. The default size takes a few minutes. The exit \
             status is 2, with the reason, if this program cannot run the experiment.",
        )
        .arg(Arg::new("name").required(true).value_name("NAME").help("Name of the experiment"))
        .arg(flag("full", "Run with the data size and duration for dedicated hardware").conflicts_with("quick"))
        .arg(flag("quick", "Run with little data for a short time, as a test of the command. The figures are meaningless"))
        .arg(Arg::new("bind_ip").long("bind_ip").value_name("ADDRESS").help(
            "Address that the started servers listen on. For RDMA, the address of the device [default: 127.0.0.1]",
        ))
        .arg(Arg::new("json").long("json").value_name("FILE").help("Write all figures to this file, as JSON"))
        .arg(
            Arg::new("html")
                .long("html")
                .value_name("FILE")
                .help("Write plots and tables to this file, as an HTML page. Not every experiment has a page"),
        )
}

/// Prints the list.
pub fn list() {
    print!("{}", table());
}

/// Makes one. False if it can't be made, for a reason that was told.
pub fn run(matches: &ArgMatches) -> Result<bool> {
    let name = matches.get_one::<String>("name").map(String::as_str).unwrap_or_default();
    let experiment = Experiment::of(name).ok_or_else(|| {
        Error::bad_value(format!(
            "unknown experiment '{name}'. `kauri bench experiments` lists the experiments"
        ))
    })?;
    eprintln!("{}, {}: {}", experiment.source, experiment.figure, experiment.shows);
    match experiment.how {
        How::Script(script) => {
            eprintln!("kauri: cannot run '{name}' from this program: run {script} as root");
            return Ok(false);
        }
        How::File(file) => run_file(matches, &file)?,
        How::Half(file, what) => {
            run_file(matches, &file)?;
            eprintln!("kauri: ran the part without {what}, which this server does not support yet");
        }
        How::Command { name, arguments, small, quick } => {
            let of_size = match (matches.get_flag("full"), matches.get_flag("quick")) {
                (true, _) => &[],
                (_, true) => quick,
                _ => small,
            };
            let mut line = vec!["bench", name];
            line.extend(arguments.iter().chain(of_size));
            if let Some(json) = matches.get_one::<String>("json") {
                line.extend(["--json", json]);
            }
            match (name, matches.get_one::<String>("bind_ip")) {
                (_, None) => {}
                ("standalone", Some(address)) => line.extend(["--bind", address]),
                _ => {
                    return Err(Error::bad_value(format!(
                        "'kauri bench {name}' does not take --bind_ip"
                    )));
                }
            }
            match (name, matches.get_one::<String>("html")) {
                (_, None) => {}
                ("standalone", Some(page)) => line.extend(["--page", page]),
                _ => {
                    return Err(Error::bad_value(format!(
                        "'kauri bench {name}' does not take --html"
                    )));
                }
            }
            eprintln!("kauri {}", line.join(" "));
            made_of(&line)?;
        }
    }
    Ok(true)
}

/// Runs another command of `kauri bench`.
fn made_of(line: &[&str]) -> Result<()> {
    let parsed = crate::command().try_get_matches_from(line);
    let parsed = parsed.map_err(|why| Error::bad_value(why.to_string()))?;
    crate::run(&parsed)
}

/// Runs one of the repository's run files.
fn run_file(matches: &ArgMatches, file: &RunFile) -> Result<()> {
    let size = match (matches.get_flag("full"), matches.get_flag("quick")) {
        (true, _) => Size::Full,
        (_, true) => Size::Quick,
        _ => Size::Small,
    };
    let mut table = file.of_size(size)?;
    if let Some(address) = matches.get_one::<String>("bind_ip") {
        bind(&mut table, address);
    }
    let path = |name: &str| matches.get_one::<String>(name).map(PathBuf::from);
    let (json, html) = (path("json"), path("html"));
    run::run_table(file.name, table, &Outputs { json, html, ..Outputs::default() })
}
