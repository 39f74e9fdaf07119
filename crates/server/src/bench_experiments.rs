//! `kauri bench experiments` and `kauri bench experiment NAME`: the experiments of the documents that the project began
//! with, each as one command. They are made of the other commands of `kauri bench`.

use crate::bench_server::{Server, free_port};
use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::experiments::{Experiment, How, table};
use std::path::{Path, PathBuf};

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
        How::Puts(sizes_kb) => puts(matches, sizes_kb, &place.0)?,
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

/// The paper's first table. It says milliseconds, and means microseconds: its 312 for RDMA are the RDMA paper's 318 us.
const SINGULARITY_HOST: [(&str, [u32; 8]); 3] = [
    ("the paper's RDMA", [312, 317, 328, 351, 388, 445, 601, 871]),
    ("the paper's IPoIB", [661, 693, 742, 768, 940, 1125, 1494, 2368]),
    ("the paper's TCP/IP", [657, 771, 926, 982, 1076, 1254, 1836, 2788]),
];

/// 100 % Put on a server of its own over each transport that there is on one host. A Put writes a whole record; the
/// paper's networks can't be had on one host, so these are what stands for them.
fn puts(matches: &ArgMatches, sizes_kb: &[u64], place: &Path) -> Result<()> {
    let port = free_port()?;
    let folder = place.display().to_string();
    let arguments = ["--unixSocketPrefix", &folder].map(str::to_owned);
    let data = place.join("data");
    std::fs::create_dir_all(&data).map_err(failed)?;
    let server = Server::start(port, &data, &arguments, &[])?;
    let socket = format!("{folder}/mongodb-{port}.sock").replace('/', "%2F");
    let (rounds, seconds) = match (matches.get_flag("full"), matches.get_flag("quick")) {
        (true, _) => (10, 5.0),
        (_, true) => (1, 0.05),
        _ => (5, 0.5),
    };
    let mut file = format!(
        "name = '100 % Put by size'\nrounds = {rounds}\nwarmUpSeconds = {}\nseconds = {seconds}\n",
        seconds / 5.0
    );
    for (label, transport, uri) in [
        ("TCP", "tcp", format!("mongodb://127.0.0.1:{port}/?sharedMemory=off&rdma=off")),
        ("Unix socket", "unix", format!("mongodb://{socket}/?sharedMemory=off")),
        ("shared memory", "sharedMemory", format!("mongodb://{socket}/?sharedMemory=require")),
    ] {
        file +=
            &format!("[[server]]\nlabel = '{label}'\ntransport = '{transport}'\nuri = '{uri}'\n");
    }
    for kb in sizes_kb {
        file += &format!(
            "[[workload]]\nlabel = '{kb} KB'\nproperties = {{ recordcount = 200, fieldcount = 1, fieldlength = {}, \
             writeallfields = true, readproportion = 0, updateproportion = 1, scanproportion = 0, \
             insertproportion = 0 }}\n",
            kb << 10
        );
    }
    for (label, us) in SINGULARITY_HOST {
        let cells = sizes_kb.iter().zip(us).map(|(kb, us)| format!("'{kb} KB' = {us}"));
        let cells = cells.collect::<Vec<_>>().join(", ");
        file += &format!("[[reference]]\nlabel = \"{label}\"\nmicros = {{ {cells} }}\n");
    }
    let path = place.join("run.toml");
    std::fs::write(&path, file).map_err(failed)?;
    let path = path.display().to_string();
    let mut line = vec!["bench", "run", &path];
    for (option, name) in [("--json", "json"), ("--html", "html")] {
        line.extend(matches.get_one::<String>(name).into_iter().flat_map(|file| [option, file]));
    }
    made_of(&line)?;
    server.stop()
}

fn failed(why: std::io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, why.to_string())
}
