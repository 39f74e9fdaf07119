//! `kauri bench ycsb`: YCSB with one thread, pmlog against WiredTiger, without a server and under servers.

use crate::options::{self, list, number, value};
use crate::server::{Server, free_port};
use clap::{ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::engine::{self, HAS_WIREDTIGER, Kind, Scratch, WITHOUT_WIREDTIGER};
use kauri_bench::ycsb::{self, Driver, Engines, Level, Medium, Plan, Row, Wire, Workload};
use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// The command line's form.
pub fn command() -> Command {
    Command::new("ycsb")
        .about("Compares pmlog and WiredTiger with YCSB A to F, one thread, on several media and cache sizes")
        .long_about(
            "Runs the experiment of `PM aware storage engine for MongoDB`: YCSB's core workloads with one thread, \
             on pmlog and on WiredTiger (in a build with --features wiredtiger). Workloads: A half updates, B 5 % \
             updates, C reads, D reads of the latest, E scans of up to 100, F read-modify-write; Zipf .99; documents \
             of ten fields of 100 letters; updates of one field. All engines on all media are open at once and take \
             turns, slice by slice. Engines on the same medium run the same operations. If the cache is smaller than \
             the data, a warm-up of some seconds comes first. Level `engine` calls the storage interface. Level \
             `server` starts `kauri serve` for each engine and medium and uses one connection. Media: pm (a directory \
             in memory, which pmlog uses like persistent memory), flash (a directory on the disk), disk (a directory \
             that tests/disk/slow_disk.c slows down; scripts/ycsb prepares it). Figures are medians. A figure from too \
             few operations, or without turns, is VOID.",
        )
        .arg(value("level", "LIST", "Levels, separated by commas: engine, server [default: both]"))
        .arg(value("media", "LIST", "Media, separated by commas: pm, flash, disk [default: pm,flash; with --disk-dir also disk]"))
        .arg(value("workloads", "LETTERS", "Workloads, a string of letters A to F [default: all]"))
        .arg(value("ratios", "LIST", "Cache sizes as fractions of the data size [default: 2,0.5,0.1]"))
        .arg(value("address", "LIST", "Running servers to measure, as pmlog=HOST:PORT,wiredTiger=HOST:PORT, instead of starting servers"))
        .arg(value("documents", "N", "Number of documents [default: 200000]"))
        .arg(value("rounds", "N", "Number of slices of a measurement [default: 5]"))
        .arg(value("slice-ms", "N", "Length of a slice of the slower engine, in ms [default: 250]"))
        .arg(value("flash-dir", "DIR", "Directory of the medium 'flash' [default: the temporary directory]"))
        .arg(value("memory-dir", "DIR", "Directory of the medium 'pm' [default: /dev/shm]"))
        .arg(value("disk-dir", "DIR", "Directory of the medium 'disk' [default: none]"))
        .args(options::common())
}

fn plan(matches: &ArgMatches) -> Result<Plan> {
    let full = if matches.get_flag("quick") { Plan::quick() } else { Plan::full() };
    let directory = |name: &str| matches.get_one::<String>(name).map(PathBuf::from);
    let mut directories = HashMap::new();
    directories.insert(Medium::Pm, directory("memory-dir").unwrap_or_else(|| "/dev/shm".into()));
    directories.insert(Medium::Flash, directory("flash-dir").unwrap_or_else(std::env::temp_dir));
    let mut media = full.media;
    if let Some(disk) = directory("disk-dir") {
        directories.insert(Medium::Disk, disk);
        media.push(Medium::Disk);
    }
    if let Some(names) = list(matches, "media") {
        media = names.into_iter().map(Medium::parse).collect::<Result<_>>()?;
    }
    let ratio = |text: &str| match text.parse::<f64>() {
        Ok(ratio) if (1e-6..1e6).contains(&ratio) => Ok(ratio),
        _ => Err(Error::bad_value(format!("--ratios takes numbers above 0, not '{text}'"))),
    };
    Ok(Plan {
        workloads: match matches.get_one::<String>("workloads") {
            None => full.workloads,
            Some(letters) => Workload::parse(letters)?,
        },
        kinds: options::kinds(matches)?.unwrap_or(full.kinds),
        media,
        ratios: match list(matches, "ratios") {
            None => full.ratios,
            Some(list) => list.into_iter().map(ratio).collect::<Result<_>>()?,
        },
        documents: number(matches, "documents", full.documents)?.max(200),
        rounds: number(matches, "rounds", full.rounds as u64)? as usize,
        slice: Duration::from_millis(number(matches, "slice-ms", full.slice.as_millis() as u64)?),
        operations_min: full.operations_min,
        directories,
        seed: number(matches, "seed", full.seed)?,
    })
}

/// What a throttled disk's sync takes at least, else the comparison would say what isn't so.
const SLOW_SYNC_MIN: Duration = Duration::from_millis(1);

fn check_disk(plan: &Plan) -> Result<()> {
    if !plan.media.contains(&Medium::Disk) {
        return Ok(());
    }
    let time = engine::sync_time(plan.directory(Medium::Disk)?)?;
    eprintln!("the slow disk syncs in {:.2} ms", time.as_secs_f64() * 1e3);
    if time < SLOW_SYNC_MIN {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "the directory of the medium 'disk' is not slowed down: run scripts/ycsb, which prepares it",
        ));
    }
    Ok(())
}

/// Runs the experiment and prints the table.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let mut plan = plan(matches)?;
    if !HAS_WIREDTIGER {
        eprintln!("{WITHOUT_WIREDTIGER}");
    }
    let say = &mut |text: &str| eprintln!("{text}");
    let mut rows: Vec<Row> = Vec::new();
    if let Some(addresses) = list(matches, "address") {
        let mut given = Given::parse(&addresses)?;
        plan.media = vec![Medium::Given];
        plan.kinds = given.0.iter().map(|(kind, _)| *kind).collect();
        // Their caches are what they are.
        plan.ratios = vec![1.0];
        rows.extend(ycsb::run(&plan, &mut given, say)?);
    } else {
        check_disk(&plan)?;
        for level in list(matches, "level").unwrap_or_else(|| vec!["engine", "server"]) {
            rows.extend(match level {
                "engine" => ycsb::run(&plan, &mut Engines::new(&plan), say)?,
                "server" => ycsb::run(&plan, &mut Servers::new(&plan), say)?,
                other => {
                    return Err(Error::bad_value(format!(
                        "--level takes engine and server, not '{other}'"
                    )));
                }
            });
        }
    }
    print!("{}", ycsb::render(&rows));
    options::write_json(matches, || ycsb::json(&rows))
}

/// Servers of its own, one for each engine and medium.
struct Servers {
    scratches: HashMap<(Kind, Medium), Scratch>,
    plan: Plan,
}

impl Servers {
    fn new(plan: &Plan) -> Servers {
        Servers { scratches: HashMap::new(), plan: plan.clone() }
    }

    fn start(&self, kind: Kind, medium: Medium, cache_bytes: u64) -> Result<Server> {
        let scratch = self.scratches.get(&(kind, medium)).ok_or_else(|| {
            Error::new(ErrorCode::OperationFailed, "the data directory was not created")
        })?;
        let cache_gb = cache_bytes as f64 / (1u64 << 30) as f64;
        let mut arguments = ["--storageEngine", kind.name(), "--cacheSizeGB"].map(str::to_owned);
        let mut arguments: Vec<String> = arguments.iter_mut().map(std::mem::take).collect();
        arguments.push(format!("{cache_gb:.6}"));
        if kind == Kind::PmLog {
            let memory = if medium == Medium::Pm { "simulated" } else { "off" };
            arguments.extend(["--persistentMemory".to_owned(), memory.to_owned()]);
        }
        Server::start(free_port()?, scratch.path(), &arguments, &[])
    }
}

impl Level for Servers {
    fn name(&self) -> &'static str {
        "server"
    }

    fn load(&mut self, kind: Kind, medium: Medium, documents: u64) -> Result<()> {
        self.scratches.insert((kind, medium), Scratch::new(self.plan.directory(medium)?)?);
        let server = self.start(kind, medium, self.plan.cache_bytes(2.0))?;
        ycsb::load_server(server.address(), documents)?;
        server.stop()
    }

    fn open(&mut self, kind: Kind, medium: Medium, cache_bytes: u64) -> Result<Box<dyn Driver>> {
        let server = self.start(kind, medium, cache_bytes)?;
        Ok(Box::new(Wire::connect(server.address(), Box::new(|| server.stop()))?))
    }
}

/// Servers that were there.
struct Given(Vec<(Kind, SocketAddr)>);

impl Given {
    fn parse(addresses: &[&str]) -> Result<Given> {
        let parse = |text: &&str| {
            let wrong =
                || Error::bad_value(format!("--address takes pmlog=HOST:PORT,…, not '{text}'"));
            let (name, address) = text.split_once('=').ok_or_else(wrong)?;
            let kind = match name {
                "pmlog" => Kind::PmLog,
                "wiredTiger" => Kind::WiredTiger,
                _ => return Err(wrong()),
            };
            let address = address.to_socket_addrs().ok().and_then(|mut all| all.next());
            Ok((kind, address.ok_or_else(wrong)?))
        };
        Ok(Given(addresses.iter().map(parse).collect::<Result<_>>()?))
    }

    fn address(&self, kind: Kind) -> Result<SocketAddr> {
        let found = self.0.iter().find(|(of, _)| *of == kind).map(|(_, address)| *address);
        found.ok_or_else(|| {
            Error::new(ErrorCode::OperationFailed, "--address has no server of this engine")
        })
    }
}

impl Level for Given {
    fn name(&self) -> &'static str {
        "server"
    }

    fn load(&mut self, kind: Kind, _: Medium, documents: u64) -> Result<()> {
        ycsb::load_server(self.address(kind)?, documents)
    }

    fn open(&mut self, kind: Kind, _: Medium, _: u64) -> Result<Box<dyn Driver>> {
        Ok(Box::new(Wire::connect(self.address(kind)?, Box::new(|| Ok(())))?))
    }
}
