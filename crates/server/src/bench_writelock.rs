//! `kauri bench writelock`: runs the write-lock experiment, a server of its own for each mode.

use clap::{Arg, ArgAction, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::writelock::disk::Device;
use kauri_bench::writelock::report::{self, Mode};
use kauri_bench::writelock::{self, Plan, Scatter, Target};
use kauri_bson::extjson::{self, Format};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start: it reads its whole index.
const START_PATIENCE: Duration = Duration::from_secs(900);

/// The command line's form.
pub fn command() -> Command {
    let value = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help)
    };
    let optional = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    Command::new("writelock")
        .about("Measures reads of hot documents beside writes at a given rate, for several lock granularities")
        .arg(optional("dbpath", "data directory of the servers that it starts; loaded if it is empty"))
        .arg(optional("address", "measures the server that is there, instead of starting any"))
        .arg(value("modes", "global/off,global/on,document/on", "lockGranularity/lockYielding of each server"))
        .arg(value("writes", "hot,cold", "which documents are written: those that are read, or the others"))
        .arg(value("rates", "0,4,8,12,16,20,24,28,32,36,40,44,48,64,96", "writes a second; 0 is measured in any case"))
        .arg(value("documents", "2000000", "documents loaded"))
        .arg(value("bytes", "112", "size of a document"))
        .arg(value("hot", "10000", "documents that are read, the first ones"))
        .arg(value("seconds", "10", "seconds of each measurement"))
        .arg(value("cache-gb", "0.0625", "cache of a server, in GB"))
        .arg(value("port", "27417", "port of the servers"))
        .arg(value("seed", "1", "seed of the random ids"))
        .arg(optional("device", "block device whose reads are counted, as in /sys/class/block"))
        .arg(optional("cgroup", "control group that a server is put into; may be repeated").action(ArgAction::Append))
        .arg(optional("load-only", "loads the data directory and ends").action(ArgAction::SetTrue))
        .arg(optional("json", "file that all figures are written to"))
        .arg(optional("svg", "picture of the reads beside cold writes"))
}

fn failed(error: io::Error) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

fn number<T: std::str::FromStr>(matches: &ArgMatches, name: &str) -> Result<T> {
    let text = text(matches, name);
    text.parse().map_err(|_| Error::bad_value(format!("--{name} should be a number, not '{text}'")))
}

struct Options {
    plan: Plan,
    modes: Vec<(String, String)>,
    scatters: Vec<Scatter>,
    rates: Vec<f64>,
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
                "--documents should be more than --hot, and that 1 or more",
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

/// A server that was started for a measurement.
struct Server {
    child: Child,
    target: Target,
}

impl Server {
    fn start(options: &Options, dbpath: &Path, mode: Option<&(String, String)>) -> Result<Server> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = std::process::Command::new(program);
        command
            .args(["serve", "--nounixsocket", "--bind_ip", "127.0.0.1", "--slowms", "100000"])
            .args(["--port", &options.port.to_string()])
            .args(["--cacheSizeGB", &options.cache_gb.to_string()])
            .arg("--dbpath")
            .arg(dbpath)
            .stdout(Stdio::null());
        if let Some((granularity, yielding)) = mode {
            command.args(["--setParameter", &format!("lockGranularity={granularity}")]);
            command.args(["--setParameter", &format!("lockYielding={yielding}")]);
        }
        let child = command.spawn().map_err(failed)?;
        let pid = child.id();
        let address = SocketAddr::from(([127, 0, 0, 1], options.port));
        let device = options.device.clone();
        let mut server = Server { child, target: Target { address, pid: Some(pid), device } };
        for cgroup in &options.cgroups {
            let file = cgroup.join("cgroup.procs");
            std::fs::write(&file, pid.to_string()).map_err(|error| {
                Error::new(ErrorCode::OperationFailed, format!("{}: {error}", file.display()))
            })?;
        }
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if let Some(status) = server.child.try_wait().map_err(failed)? {
                let message = format!("the server ended at its start: {status}");
                return Err(Error::new(ErrorCode::OperationFailed, message));
            }
            if TcpStream::connect(address).is_ok() {
                return Ok(server);
            }
            if Instant::now() > deadline {
                return Err(Error::new(ErrorCode::OperationFailed, "the server does not start"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it as a clean shutdown does.
    fn stop(mut self) -> Result<()> {
        let mut stream = TcpStream::connect(self.target.address).map_err(failed)?;
        // It may end before it answers.
        let _ = writelock::command(&mut stream, "admin", "shutdown");
        let status = self.child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::new(ErrorCode::OperationFailed, format!("the server: {status}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `stop` there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has the operating system forget the pages of the data, so that misses go to the device.
fn forget_pages(dbpath: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dbpath).map_err(failed)? {
        let mut input = std::ffi::OsString::from("if=");
        input.push(entry.map_err(failed)?.path());
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
            Error::bad_value(format!("--address should be host:port, not '{address}'"))
        })?;
        let target = Target { address, pid: None, device: options.device.clone() };
        load(&options, &target)?;
        println!("{}", report::heading());
        modes.push(measure(&options, &target, None, "as it is", &mut expected)?);
    } else {
        let dbpath = matches
            .get_one::<String>("dbpath")
            .map(PathBuf::from)
            .ok_or_else(|| Error::bad_value("--dbpath or --address is needed"))?;
        std::fs::create_dir_all(&dbpath).map_err(failed)?;
        // Without control groups: loading is not what is measured.
        let loader = Options { cgroups: Vec::new(), ..Options::parse(matches)? };
        let server = Server::start(&loader, &dbpath, None)?;
        load(&options, &server.target)?;
        server.stop()?;
        if matches.get_flag("load-only") {
            return Ok(());
        }
        println!("{}", report::heading());
        for mode in &options.modes {
            let server = Server::start(&options, &dbpath, Some(mode))?;
            let name = format!("{}/{}", mode.0, mode.1);
            let dbpath = Some(dbpath.as_path());
            modes.push(measure(&options, &server.target, dbpath, &name, &mut expected)?);
            server.stop()?;
        }
    }
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

fn measure(
    options: &Options,
    target: &Target,
    dbpath: Option<&Path>,
    name: &str,
    expected: &mut HashMap<i64, i64>,
) -> Result<Mode> {
    let mut mode = Mode { name: name.to_owned(), points: Vec::new() };
    for scatter in &options.scatters {
        writelock::warm(target, &options.plan).map_err(failed)?;
        for rate in &options.rates {
            dbpath.map_or(Ok(()), forget_pages)?;
            let point = writelock::measure(target, &options.plan, *scatter, *rate, expected);
            mode.points.push(point.map_err(failed)?);
            if let Some(point) = mode.points.last() {
                println!("{}", report::line(&mode, point));
            }
        }
    }
    Ok(mode)
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
