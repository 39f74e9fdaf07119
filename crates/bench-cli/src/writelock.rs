//! `kauri bench writelock`: runs the write-lock experiment with a server per mode.

use crate::server::Server;
use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::writelock::disk::Device;
use kauri_bench::writelock::report::{self, Mode};
use kauri_bench::writelock::{self, Plan, Point, Scatter, Target};
use kauri_bson::extjson::{self, Format};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// The command line's form.
pub fn command() -> Command {
    let value = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help)
    };
    let optional = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    Command::new("writelock")
        .about("Measures reads of hot documents during writes at given rates, for several lock granularities")
        .arg(optional("dbpath", "Data directory of the started servers. An empty directory is loaded first"))
        .arg(optional("address", "Address of a running server to measure, instead of starting servers"))
        .arg(value("modes", "global/off,global/on,document/on", "lockGranularity/lockYielding of each server, separated by commas"))
        .arg(value("writes", "hot,cold", "Documents that are written: hot ones (which are read), cold ones, or both"))
        .arg(value("rates", "0,4,8,12,16,20,24,28,32,36,40,44,48,64,96", "Rates in writes per second, separated by commas. Rate 0 is always measured"))
        .arg(value("documents", "2000000", "Number of documents"))
        .arg(value("bytes", "112", "Size of a document, in bytes"))
        .arg(value("hot", "10000", "Number of hot documents: the first ones, which are read"))
        .arg(value("seconds", "10", "Length of a measurement, in seconds"))
        .arg(value("rounds", "3", "Number of rounds. Each round measures every mode, and compares its points with its own reads without writes"))
        .arg(value("cache-gb", "0.0625", "Cache of a server, in GB"))
        .arg(value("port", "27417", "Port of the servers"))
        .arg(value("seed", "1", "Seed of the random _ids"))
        .arg(optional("device", "Block device whose reads are counted, as in /sys/class/block. Counts the control group's reads if it has a counter, else all reads"))
        .arg(optional("cgroup", "Control group for the servers; may be given several times").action(ArgAction::Append))
        .arg(optional("load-only", "Load the data directory and exit").action(ArgAction::SetTrue))
        .arg(optional("json", "Write all figures to this file, as JSON"))
        .arg(optional("svg", "Write a plot of the reads during cold writes to this file"))
}

fn failed(error: io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

fn number<T: std::str::FromStr>(matches: &ArgMatches, name: &str) -> Result<T> {
    let text = text(matches, name);
    text.parse().map_err(|_| Error::bad_value(format!("--{name} must be a number, not '{text}'")))
}

struct Options {
    plan: Plan,
    modes: Vec<(String, String)>,
    scatters: Vec<Scatter>,
    rates: Vec<f64>,
    rounds: usize,
    cache_gb: f64,
    port: u16,
    device: Option<Device>,
    cgroups: Vec<PathBuf>,
}

impl Options {
    fn parse(matches: &ArgMatches) -> Result<Options> {
        let plan = Plan {
            documents: number(matches, "documents")?,
            document_bytes: number(matches, "bytes")?,
            hot: number(matches, "hot")?,
            seconds: number::<u64>(matches, "seconds")?.max(1),
            seed: number(matches, "seed")?,
        };
        if plan.hot < 1 || plan.documents <= plan.hot {
            return Err(Error::bad_value(
                "--documents must be more than --hot, and --hot at least 1",
            ));
        }
        let mode = |mode: &str| match mode.split_once('/') {
            Some((granularity, yielding)) => Ok((granularity.to_owned(), yielding.to_owned())),
            None => {
                Err(Error::bad_value(format!("--modes takes granularity/yielding, not '{mode}'")))
            }
        };
        let scatter = |name: &str| match name {
            "hot" => Ok(Scatter::Hot),
            "cold" => Ok(Scatter::Cold),
            other => Err(Error::bad_value(format!("--writes takes hot and cold, not '{other}'"))),
        };
        let rate = |text: &str| match text.parse::<f64>() {
            Ok(rate) if (0.0..1e6).contains(&rate) => Ok(rate),
            _ => Err(Error::bad_value(format!("--rates takes numbers, not '{text}'"))),
        };
        let mut rates = text(matches, "rates").split(',').map(rate).collect::<Result<Vec<_>>>()?;
        rates.retain(|rate| *rate > 0.0);
        rates.insert(0, 0.0);
        Ok(Options {
            plan,
            modes: text(matches, "modes").split(',').map(mode).collect::<Result<_>>()?,
            scatters: text(matches, "writes").split(',').map(scatter).collect::<Result<_>>()?,
            rates,
            rounds: number::<usize>(matches, "rounds")?.max(1),
            cache_gb: number(matches, "cache-gb")?,
            port: number(matches, "port")?,
            device: matches.get_one::<String>("device").cloned().map(Device),
            cgroups: matches
                .get_many::<String>("cgroup")
                .map(|all| all.map(PathBuf::from).collect())
                .unwrap_or_default(),
        })
    }
}

impl Options {
    fn target(&self, address: SocketAddr, pid: Option<u32>) -> Target {
        let (device, cgroups) = (self.device.clone(), self.cgroups.clone());
        Target { address, pid, device, cgroups }
    }
}

/// A server that was started for a measurement.
struct Running {
    server: Server,
    target: Target,
}

impl Running {
    fn start(options: &Options, dbpath: &Path, mode: Option<&(String, String)>) -> Result<Running> {
        let mut arguments = vec!["--cacheSizeGB".to_owned(), options.cache_gb.to_string()];
        if let Some((granularity, yielding)) = mode {
            for parameter in
                [format!("lockGranularity={granularity}"), format!("lockYielding={yielding}")]
            {
                arguments.extend(["--setParameter".to_owned(), parameter]);
            }
        }
        let server = Server::start(options.port, dbpath, &arguments, &options.cgroups)?;
        let target = options.target(server.address(), Some(server.pid()));
        Ok(Running { server, target })
    }
}

/// Has the operating system forget the pages of the data, so that misses go to the device.
fn forget_pages(dbpath: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dbpath).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if !path.is_file() {
            continue;
        }
        let mut input = std::ffi::OsString::from("if=");
        input.push(path);
        let mut dd = std::process::Command::new("dd");
        let dd = dd.arg(input).args(["iflag=nocache", "count=0", "status=none"]);
        if !dd.status().map_err(failed)?.success() {
            return Err(Error::new(ErrorCode::OperationFailed, "dd could not drop cached pages"));
        }
    }
    Ok(())
}

/// Runs the experiment and prints it.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let options = Options::parse(matches)?;
    let mut modes = Vec::new();
    let mut expected = HashMap::new();
    if let Some(address) = matches.get_one::<String>("address") {
        let found = address.to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = found.ok_or_else(|| {
            Error::bad_value(format!("--address must be host:port, not '{address}'"))
        })?;
        let target = options.target(address, None);
        load(&options, &target)?;
        println!("{}", report::heading());
        modes.push(Mode { name: "as it is".to_owned(), points: Vec::new() });
        for round in 0..options.rounds {
            measure(&options, &target, None, &mut modes[0], round, &mut expected)?;
        }
    } else {
        let dbpath = matches
            .get_one::<String>("dbpath")
            .map(PathBuf::from)
            .ok_or_else(|| Error::bad_value("--dbpath or --address is required"))?;
        std::fs::create_dir_all(&dbpath).map_err(failed)?;
        // Without control groups: loading is not what is measured.
        let loader = Options { cgroups: Vec::new(), ..Options::parse(matches)? };
        let server = Running::start(&loader, &dbpath, None)?;
        load(&options, &server.target)?;
        server.server.stop()?;
        if matches.get_flag("load-only") {
            return Ok(());
        }
        println!("{}", report::heading());
        let name = |mode: &(String, String)| format!("{}/{}", mode.0, mode.1);
        let named = |mode| Mode { name: name(mode), points: Vec::new() };
        modes = options.modes.iter().map(named).collect();
        for round in 0..options.rounds {
            for (mode, results) in options.modes.iter().zip(&mut modes) {
                let running = Running::start(&options, &dbpath, Some(mode))?;
                let path = Some(dbpath.as_path());
                measure(&options, &running.target, path, results, round, &mut expected)?;
                running.server.stop()?;
            }
        }
    }
    println!(
        "\nall rounds (medians; misses, device reads and losses are sums)\n{}",
        report::heading()
    );
    report::summary_lines(&modes).iter().for_each(|line| println!("{line}"));
    write_files(matches, &modes)
}

fn load(options: &Options, target: &Target) -> Result<()> {
    let plan = &options.plan;
    if writelock::loaded(target).map_err(failed)? != plan.documents {
        println!("loading {} documents of {} bytes", plan.documents, plan.document_bytes);
        writelock::load(target, plan).map_err(failed)?;
    }
    Ok(())
}

/// Measures every point once, reads without writes at the beginning and at the end.
fn measure(
    options: &Options,
    target: &Target,
    dbpath: Option<&Path>,
    mode: &mut Mode,
    round: usize,
    expected: &mut HashMap<i64, i64>,
) -> Result<()> {
    for scatter in &options.scatters {
        writelock::warm(target, &options.plan).map_err(failed)?;
        let mut lines = Vec::new();
        for rate in options.rates.iter().chain(&[0.0]) {
            dbpath.map_or(Ok(()), forget_pages)?;
            let point = writelock::measure(target, &options.plan, *scatter, *rate, expected);
            lines.push(mode.points.len());
            mode.points.push(Point { round, ..point.map_err(failed)? });
        }
        // Only now is known what they are compared with.
        lines.iter().for_each(|point| println!("{}", report::line(mode, &mode.points[*point])));
    }
    Ok(())
}

fn write_files(matches: &ArgMatches, modes: &[Mode]) -> Result<()> {
    let about: Vec<(&str, String)> = ["documents", "bytes", "hot", "seconds", "cache-gb"]
        .map(|name| (name, text(matches, name)))
        .into();
    let write = |name: &str, contents: &dyn Fn() -> String| match matches.get_one::<String>(name) {
        None => Ok(()),
        Some(file) => std::fs::write(file, contents()).map_err(failed),
    };
    write("json", &|| {
        let document = report::document(modes, &about);
        extjson::doc_to_json(document.as_doc(), Format::Relaxed) + "\n"
    })?;
    write("svg", &|| report::plot(modes, Scatter::Cold))
}
