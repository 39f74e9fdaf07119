//! `kauri bench experiments` and `kauri bench experiment NAME`: the experiments of the documents that the project began
//! with, each as one command. They are made of the other commands of `kauri bench`.

use crate::bench_run::{self, Outputs};
use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::experiments::file::{RunFile, Size, bind};
use kauri_bench::experiments::{Experiment, How, table};
use std::path::PathBuf;

/// The command line's form of the list.
pub fn list_command() -> Command {
    Command::new("experiments").about("Lists the experiments that have names")
}

/// The command line's form of one.
pub fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("experiment")
        .about("Makes one of the experiments that `kauri bench experiments` lists")
        .long_about(
            "Makes one of the experiments that `kauri bench experiments` lists: in a few minutes, or in full. Its status \
             is 2 if it can't be made by this program, with the reason.",
        )
        .arg(Arg::new("name").required(true).value_name("NAME").help("the experiment"))
        .arg(flag("full", "as large and as long as for a real machine").conflicts_with("quick"))
        .arg(flag("quick", "only to see that it runs; the figures mean nothing"))
        .arg(Arg::new("bind_ip").long("bind_ip").value_name("ADDRESS").help(
            "where servers listen that are started for it; for RDMA the device's [default: 127.0.0.1]",
        ))
        .arg(Arg::new("json").long("json").value_name("FILE").help("writes all figures there"))
        .arg(
            Arg::new("html")
                .long("html")
                .value_name("FILE")
                .help("writes a page of plots and tables there, for the experiments that have one"),
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
        Error::bad_value(format!("there is no experiment '{name}': see `kauri bench experiments`"))
    })?;
    eprintln!("{}, {}: {}", experiment.source, experiment.figure, experiment.shows);
    let place = Place::new()?;
    match experiment.how {
        How::Waits(what) => {
            eprintln!("kauri: '{name}' waits for {what}, which this server does not have yet");
            return Ok(false);
        }
        How::Script(script) => {
            eprintln!("kauri: '{name}' needs more than this program, and root: run {script}");
            return Ok(false);
        }
        How::File(file) => run_file(matches, &file)?,
        How::Half(file, what) => {
            run_file(matches, &file)?;
            eprintln!(
                "kauri: this was the part without {what}, which this server does not have yet"
            );
        }
        How::Command { name, arguments, small, quick } => {
            let of_size = match (matches.get_flag("full"), matches.get_flag("quick")) {
                (true, _) => &[],
                (_, true) => quick,
                _ => small,
            };
            let mut line = vec!["bench", name];
            line.extend(arguments.iter().chain(of_size));
            let dbpath = place.0.display().to_string();
            if name == "writelock" {
                line.extend(["--dbpath", &dbpath]);
            }
            if let Some(json) = matches.get_one::<String>("json") {
                line.extend(["--json", json]);
            }
            match (name, matches.get_one::<String>("bind_ip")) {
                (_, None) => {}
                ("standalone", Some(address)) => line.extend(["--bind", address]),
                _ => {
                    return Err(Error::bad_value(format!("'kauri bench {name}' takes no address")));
                }
            }
            match (name, matches.get_one::<String>("html")) {
                (_, None) => {}
                ("standalone", Some(page)) => line.extend(["--page", page]),
                _ => return Err(Error::bad_value(format!("'kauri bench {name}' writes no page"))),
            }
            eprintln!("kauri {}", line.join(" "));
            made_of(&line)?;
        }
    }
    Ok(true)
}

/// Runs another command of `kauri bench`.
fn made_of(line: &[&str]) -> Result<()> {
    let parsed = crate::bench::command().try_get_matches_from(line);
    let parsed = parsed.map_err(|why| Error::bad_value(why.to_string()))?;
    crate::bench::run(&parsed)
}

/// A directory that is gone afterwards.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Place> {
        let path = std::env::temp_dir().join(format!("kauri-experiment-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(failed)?;
        Ok(Place(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
    bench_run::run_table(file.name, table, &Outputs { json, html, ..Outputs::default() })
}

fn failed(why: std::io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, why.to_string())
}
