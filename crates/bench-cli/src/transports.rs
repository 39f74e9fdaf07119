//! `kauri bench transports`: one session over TCP, a Unix domain socket and shared memory, in turns, for several
//! spin times, compared with a raw TCP echo.

use crate::Echo;
use crate::server::{self, Server};
use clap::{Arg, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::compare::median;
use kauri_bench::transports::{self, Figures, Plan, Row};
use kauri_client::Uri;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `busy` means: workers never sleep.
const BUSY_MICROS: &str = "1000000000";

/// The command line's form.
pub fn command() -> Command {
    let value = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help).value_name("N")
    };
    Command::new("transports")
        .about("Compares TCP, Unix domain sockets and shared memory, in turns with a raw TCP echo server")
        .arg(value("spins", "0,10,50,busy", "Maximum times that server and client poll before they sleep, in microseconds; busy: never sleep"))
        .arg(value("rounds", "5", "Number of rounds. Each round measures every transport"))
        .arg(value("millis", "500", "Length of a measurement, in ms"))
        .arg(value("bytes", "1024", "Size of a small document, in bytes"))
        .arg(value("large-bytes", "1048576", "Size of a large document, in bytes"))
        .arg(value("ring-bytes", "1048576", "Size of a ring, in bytes"))
        .arg(value("sessions", "200", "Number of idle sessions whose CPU time is measured"))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

fn number<T: std::str::FromStr>(matches: &ArgMatches, name: &str) -> Result<T> {
    let text = matches.get_one::<String>(name).cloned().unwrap_or_default();
    text.parse().map_err(|_| Error::bad_value(format!("--{name} must be a number, not '{text}'")))
}

/// A directory that goes when it is dropped.
struct Place(PathBuf);

impl Place {
    fn make() -> Result<Place> {
        let place = std::env::temp_dir().join(format!("kauri-transports-{}", std::process::id()));
        std::fs::create_dir_all(place.join("db")).map_err(failed)?;
        Ok(Place(place))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It is in the system's own place for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Ways {
    port: u16,
    socket: String,
    ring_bytes: u32,
}

impl Ways {
    fn uri(&self, way: &str, spin: &str) -> Result<Uri> {
        let text = match way {
            "tcp" => format!("mongodb://127.0.0.1:{}/?sharedMemory=off", self.port),
            "unix" => format!("mongodb://{}/?sharedMemory=off", self.socket),
            _ => format!(
                "mongodb://{}/?sharedMemory=require&spinMicros={spin}&ringBytes={}",
                self.socket, self.ring_bytes
            ),
        };
        text.parse().map_err(failed)
    }
}

/// Runs the measurements and prints them.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let plan = Plan {
        bytes: number(matches, "bytes")?,
        large_bytes: number(matches, "large-bytes")?,
        slice: Duration::from_millis(number::<u64>(matches, "millis")?.max(1)),
    };
    let rounds: usize = number(matches, "rounds")?;
    let sessions: usize = number(matches, "sessions")?;
    let ring_bytes = number(matches, "ring-bytes")?;
    let spins = matches.get_one::<String>("spins").cloned().unwrap_or_default();
    let place = Place::make()?;
    let echo = Echo::start(1)?;
    let mut rows = vec![Row { spin: "-".to_owned(), way: "tcp echo".to_owned(), rounds: vec![] }];
    let mut copies = Vec::new();
    for spin in spins.split(',') {
        let micros = if spin == "busy" { BUSY_MICROS } else { spin };
        let port = server::free_port()?;
        let server = start(port, &place.0, micros)?;
        let socket = place.0.join(format!("mongodb-{port}.sock")).display().to_string();
        let ways = Ways { port, socket: socket.replace('/', "%2F"), ring_bytes };
        if rows.len() == 1 {
            transports::load(&ways.uri("tcp", micros)?, &plan).map_err(failed)?;
        }
        let names = ["tcp", "unix", "shared memory"];
        let mut here =
            names.map(|way| Row { spin: spin.to_owned(), way: way.to_owned(), rounds: vec![] });
        for round in 1..=rounds {
            eprintln!("spin {spin}: round {round} of {rounds}");
            let floor = transports::measure_echo(echo.address(), echo.pid(), &plan);
            rows.first_mut()
                .into_iter()
                .for_each(|row| row.rounds.extend(floor.as_ref().ok().cloned()));
            floor.map_err(failed)?;
            for row in &mut here {
                let uri = ways.uri(&row.way, micros)?;
                row.rounds.push(measured(&uri, server.pid(), &plan)?);
            }
            copies.push(transports::copy_rate(&plan));
        }
        rows.extend(here);
        if spin == "0" {
            let uri = ways.uri("shared memory", micros)?;
            let slice = Duration::from_secs(2);
            let idle = transports::idle_cpu(&uri, server.pid(), sessions, slice).map_err(failed)?;
            println!(
                "{sessions} idle sessions, {slice:?}: {:?} of processor time",
                idle.unwrap_or_default()
            );
        }
        server.stop()?;
    }
    let copy_rate = median(copies);
    println!("copying within a process: {:.0} MB/s", copy_rate / 1e6);
    print!("{}", transports::table(&rows, copy_rate));
    Ok(())
}

fn measured(uri: &Uri, pid: u32, plan: &Plan) -> Result<Figures> {
    transports::measure(uri, pid, plan).map_err(failed)
}

fn start(port: u16, place: &Path, spin: &str) -> Result<Server> {
    let prefix = place.display().to_string();
    let arguments = ["--workers", "1", "--spinMicros", spin, "--unixSocketPrefix", &prefix];
    Server::start(port, &place.join("db"), &arguments.map(str::to_owned), &[])
}
