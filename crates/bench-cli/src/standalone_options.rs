//! The command line of `kauri bench standalone`.

use crate::options::{list, number, value};
use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, Result};
use kauri_bench::standalone::models::Model;
use kauri_bench::standalone::requests::{Operation, Slice};
use kauri_bench::standalone::way::{WAYS, Way};
use std::path::PathBuf;
use std::time::Duration;

/// The command line's form.
pub fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("standalone")
        .about("Runs the experiments of `RDMA Optimization on MongoDB` with one server per data directory")
        .long_about(
            "Runs the experiments of `RDMA Optimization on MongoDB` with one server per data directory. 'put' inserts, \
             'get' finds by _id, 'mixed' does half of each, by document size, with the server's stages and the CPU time of both \
             sides. 'models' reads neural network models through GridFS. 'clients' measures one to four client processes of one \
             and two threads. Directories and transports take turns in every round. A measurement that fails has a row with the \
             reason.",
        )
        .arg(value("only", "LIST", "Experiments, separated by commas: put, get, mixed, models, clients [default: all]"))
        .arg(value("dirs", "LIST", "Data directories, separated by commas: disk, memory [default: both]"))
        .arg(flag("replica-set", "Start a replica set in each data directory instead of one server: a primary, two secondaries and an arbiter. Requests go to the primary; Gets and models are also read from secondaries"))
        .arg(value("disk-dir", "DIR", "Directory of the data on disk [default: the temporary directory]"))
        .arg(value("memory-dir", "DIR", "Directory of the data in memory, on a file system in memory [default: /dev/shm]"))
        .arg(value("transports", "LIST", "Transports, separated by commas: tcp, unix, sharedMemory, rdma [default: all; rdma only with a device]"))
        .arg(flag("rdma", "Measure RDMA even without a device"))
        .arg(value("bind", "ADDRESS", "Address that servers listen on and clients connect to. For RDMA, the address of the device [default: 127.0.0.1]"))
        .arg(value("sizes-kb", "LIST", "Sizes of documents, in KiB [default: 1,4,16,64,256,1024]"))
        .arg(value("model-mb", "LIST", "Sizes of models, in MiB [default: 91,219,528]"))
        .arg(value("clients", "LIST", "Numbers of client processes [default: 1,2,3,4]"))
        .arg(value("threads", "LIST", "Numbers of threads of a client process [default: 1,2]"))
        .arg(value("client-sizes-kb", "LIST", "Sizes of the documents of 'clients', in KiB [default: 1,1024]"))
        .arg(value("rounds", "N", "Number of rounds of a measurement [default: 5]"))
        .arg(value("millis", "N", "Length of a round, in ms [default: 300]"))
        .arg(value("put-mb", "N", "Maximum data inserted in a round, in MB [default: 256]"))
        .arg(value("spin-micros", "N", "Maximum time that servers and clients poll before they sleep, in microseconds [default: 0]"))
        .arg(value("ring-bytes", "N", "Size of a ring, in bytes [default: 1048576]"))
        .arg(value("cache-gb", "N", "Cache of a server, in GB [default: 2]"))
        .arg(value("seed", "N", "Seed of random numbers [default: 1]"))
        .arg(value("json", "FILE", "Write all figures to this file, as JSON"))
        .arg(value("page", "FILE", "Write plots and tables, beside the paper's numbers, to this file, as an HTML page"))
        .arg(flag("quick", "Run with little data for a short time, as a test of the command. The figures are meaningless"))
}

/// A data directory to be made.
pub struct Directory {
    /// `disk` or `memory`.
    pub name: &'static str,
    /// Where.
    pub within: PathBuf,
}

/// What is to be measured.
pub struct Plan {
    pub operations: Vec<Operation>,
    pub models: Vec<Model>,
    pub clients: Vec<usize>,
    pub threads: Vec<usize>,
    pub directories: Vec<Directory>,
    /// A replica set in each of them, instead of one server.
    pub has_set: bool,
    pub ways: Vec<&'static Way>,
    pub bind: String,
    pub sizes: Vec<u64>,
    pub client_sizes: Vec<u64>,
    pub rounds: usize,
    pub slice: Slice,
    pub spin_micros: u32,
    pub ring_bytes: u32,
    pub cache_gb: u64,
    pub seed: u64,
}

const PARTS: [&str; 5] = ["put", "get", "mixed", "models", "clients"];

fn numbers(matches: &ArgMatches, name: &str, default: &[u64]) -> Result<Vec<u64>> {
    let Some(list) = list(matches, name) else { return Ok(default.to_vec()) };
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    let numbers: Option<Vec<u64>> = list.into_iter().map(number).collect();
    numbers.ok_or_else(|| Error::bad_value(format!("--{name} takes numbers above 0")))
}

/// The first list, or the second for what is quick.
fn either<'l>(quick: bool, full: &'l [u64], small: &'l [u64]) -> &'l [u64] {
    if quick { small } else { full }
}

fn directories(matches: &ArgMatches) -> Result<Vec<Directory>> {
    let given = |name: &str| matches.get_one::<String>(name).map(PathBuf::from);
    let names = list(matches, "dirs").unwrap_or_else(|| vec!["disk", "memory"]);
    let directory = |name| match name {
        "disk" => {
            let within = given("disk-dir").unwrap_or_else(std::env::temp_dir);
            Ok(Directory { name: "disk", within })
        }
        "memory" => {
            let within = given("memory-dir").unwrap_or_else(|| "/dev/shm".into());
            Ok(Directory { name: "memory", within })
        }
        other => Err(Error::bad_value(format!("--dirs takes disk and memory, not '{other}'"))),
    };
    names.into_iter().map(directory).collect()
}

/// Whether the kernel knows of an RDMA device.
fn has_device() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

fn ways(matches: &ArgMatches) -> Result<Vec<&'static Way>> {
    let asked = list(matches, "transports");
    let mut ways = match &asked {
        None => WAYS.iter().filter(|way| !way.needs_device || has_device()).collect(),
        Some(names) => {
            let known = WAYS.iter().map(|way| way.name).collect::<Vec<_>>().join(", ");
            let way = |name: &&str| {
                Way::parse(name).ok_or_else(|| {
                    Error::bad_value(format!("--transports takes {known}, not '{name}'"))
                })
            };
            names.iter().map(way).collect::<Result<Vec<_>>>()?
        }
    };
    let rdma = WAYS.iter().filter(|way| way.needs_device && matches.get_flag("rdma"));
    ways.extend(rdma.filter(|way| !ways.contains(way)).collect::<Vec<_>>());
    Ok(ways)
}

fn spin_micros(matches: &ArgMatches) -> Result<u32> {
    let Some(text) = matches.get_one::<String>("spin-micros") else { return Ok(0) };
    text.parse()
        .map_err(|_| Error::bad_value(format!("--spin-micros must be a number, not '{text}'")))
}

impl Plan {
    /// What the command line asks for.
    pub fn parse(matches: &ArgMatches) -> Result<Plan> {
        let quick = matches.get_flag("quick");
        let parts = list(matches, "only").unwrap_or_else(|| PARTS.to_vec());
        if let Some(other) = parts.iter().find(|part| !PARTS.contains(part)) {
            let known = PARTS.join(", ");
            return Err(Error::bad_value(format!("--only takes {known}, not '{other}'")));
        }
        let with = |part: &str| parts.contains(&part);
        let or = |full: u64, small: u64| if quick { small } else { full };
        let all = |numbers: Vec<u64>| numbers.into_iter().map(|n| n as usize).collect();
        let bytes = |numbers: Vec<u64>| numbers.into_iter().map(|kb| kb << 10).collect();
        let models = numbers(matches, "model-mb", either(quick, &[91, 219, 528], &[1, 2, 3]))?;
        let clients = numbers(matches, "clients", either(quick, &[1, 2, 3, 4], &[1, 2]))?;
        let millis = number(matches, "millis", or(300, 40))?;
        let sizes =
            numbers(matches, "sizes-kb", either(quick, &[1, 4, 16, 64, 256, 1024], &[1, 1024]))?;
        let client_sizes = numbers(matches, "client-sizes-kb", either(quick, &[1, 1024], &[1]))?;
        if let Some(kb) = sizes.iter().chain(&client_sizes).find(|kb| **kb > 15 << 10) {
            return Err(Error::bad_value(format!("a document has at most 15360 KB, not {kb}")));
        }
        let named = |name: &&str| Operation::parse(name);
        Ok(Plan {
            operations: parts.iter().filter_map(named).collect(),
            models: match with("models") {
                true => models.into_iter().map(Model::of_megabytes).collect(),
                false => Vec::new(),
            },
            clients: if with("clients") { all(clients) } else { Vec::new() },
            threads: all(numbers(matches, "threads", &[1, 2])?),
            directories: directories(matches)?,
            has_set: matches.get_flag("replica-set"),
            ways: ways(matches)?,
            bind: matches.get_one::<String>("bind").cloned().unwrap_or("127.0.0.1".to_owned()),
            sizes: bytes(sizes),
            client_sizes: bytes(client_sizes),
            rounds: number(matches, "rounds", or(5, 1))? as usize,
            slice: Slice {
                warm_up: Duration::from_millis(millis / 5),
                measure: Duration::from_millis(millis),
                put_bytes_max: number(matches, "put-mb", or(256, 16))? << 20,
            },
            spin_micros: spin_micros(matches)?,
            ring_bytes: number(matches, "ring-bytes", 1 << 20)? as u32,
            cache_gb: number(matches, "cache-gb", 2)?,
            seed: number(matches, "seed", 1)?,
        })
    }
}
