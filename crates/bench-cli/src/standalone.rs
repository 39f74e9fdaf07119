//! `kauri bench standalone`: a server or a replica set per data directory, measured in turns over every transport.

use crate::options;
use crate::replica_set::{self, ReplicaSet};
use crate::server::{self, Server};
use crate::standalone_options::{Directory, Plan};
use clap::{Arg, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::standalone::clients::{self, Order};
use kauri_bench::standalone::requests::Slice;
use kauri_bench::standalone::rows::{
    At, ClientsCase, ClientsRound, ModelCase, Place, Report, SizeCase,
};
use kauri_bench::standalone::turns::in_turns;
use kauri_bench::standalone::way::{Listener, WAYS, Way};
use kauri_bench::standalone::{file_system, json, models, page, requests, size_text, table};
use kauri_client::{ClientError, Uri};
use kauri_machine as machine;
use std::path::PathBuf;

/// The hidden command of client processes.
const CLIENT: &str = "bench-client";

/// Its form.
pub fn client_command() -> Command {
    Command::new(CLIENT).hide(true).arg(Arg::new("order").num_args(1..).required(true))
}

/// A client process.
pub fn run_client(matches: &ArgMatches) -> Result<()> {
    let words: Vec<String> = matches.get_many("order").into_iter().flatten().cloned().collect();
    let order = Order::parse(&words)
        .ok_or_else(|| Error::bad_value(format!("{CLIENT} does not take {words:?}")))?;
    clients::serve(&order).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

/// A directory of our own, which goes when it is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is where such things are cleared away in any case.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server on a data directory, or a set whose primary it is. Fields are dropped in order: servers end before their
/// directory goes.
struct Running {
    server: Server,
    listener: Listener,
    /// The other members of the set.
    others: Vec<Server>,
    secondaries: Vec<Listener>,
    place: Place,
    _scratch: Scratch,
}

impl Running {
    fn start(directory: &Directory, plan: &Plan) -> Result<Running> {
        let name = format!("kauri-standalone-{}-{}", std::process::id(), directory.name);
        let scratch = Scratch(directory.within.join(name));
        let db = scratch.0.join("db");
        std::fs::create_dir_all(&db)
            .map_err(|error| failed(format!("cannot create {}: {error}", db.display())))?;
        let on = file_system::of(&db).map_err(failed)?;
        let prefix = scratch.0.display().to_string();
        let (spin, cache) = (plan.spin_micros.to_string(), plan.cache_gb.to_string());
        let arguments = ["--bind_ip", &plan.bind, "--spinMicros", &spin, "--cacheSizeGB", &cache];
        let arguments = [&arguments[..], &["--unixSocketPrefix", &prefix]].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let listener = |port| Listener {
            host: plan.bind.clone(),
            port,
            socket: scratch.0.join(format!("mongodb-{port}.sock")),
            spin_micros: plan.spin_micros,
            ring_bytes: plan.ring_bytes,
        };
        let file_system = format!("{} ({})", on.kind, on.source);
        let place = Place { name: directory.name.to_owned(), file_system };
        if plan.has_set {
            let set = ReplicaSet::start(&db, &arguments, listener)?;
            return Ok(Running {
                server: set.primary,
                listener: set.listener,
                others: set.others,
                secondaries: set.secondaries,
                place,
                _scratch: scratch,
            });
        }
        let port = server::free_port()?;
        let server = Server::start(port, &db, &arguments, &[])?;
        Ok(Running {
            server,
            listener: listener(port),
            others: Vec::new(),
            secondaries: Vec::new(),
            place,
            _scratch: scratch,
        })
    }

    /// The secondary that reads are measured from.
    fn secondary(&self, way: &Way) -> std::result::Result<Option<Uri>, ClientError> {
        self.secondaries.first().map(|secondary| way.uri(secondary)).transpose()
    }

    /// By which data is loaded.
    fn first_uri(&self) -> Result<Uri> {
        let first = WAYS.first().ok_or_else(|| failed("no transport is known"))?;
        first.uri(&self.listener).map_err(failed)
    }
}

/// A run.
struct Run {
    plan: Plan,
    running: Vec<Running>,
    report: Report,
    done: usize,
    groups: usize,
}

fn unknown_place() -> ClientError {
    ClientError::Uri("unknown data directory".to_owned())
}

impl Run {
    fn new(plan: Plan) -> Result<Run> {
        let running: Result<Vec<Running>> =
            plan.directories.iter().map(|directory| Running::start(directory, &plan)).collect();
        let running = running?;
        let places = running.iter().map(|running| running.place.clone()).collect();
        let has_set = plan.has_set;
        let report = Report { about: about(&plan), has_set, places, ..Report::default() };
        let groups = plan.sizes.len() * plan.operations.len()
            + plan.models.len()
            + plan.clients.len() * plan.threads.len() * plan.client_sizes.len() * 3;
        Ok(Run { plan, running, report, done: 0, groups })
    }

    /// Tells what is measured now.
    fn progress(&mut self, what: &str) {
        self.done += 1;
        eprintln!("{} of {}: {what}", self.done, self.groups);
    }

    /// Every data directory by every transport.
    fn everywhere(&self) -> Vec<At> {
        let ways = |place| self.plan.ways.iter().map(move |way| At { place, way });
        (0..self.running.len()).flat_map(ways).collect()
    }

    fn on_each(&self, act: impl Fn(&Uri) -> std::result::Result<(), ClientError>) -> Result<()> {
        self.running.iter().try_for_each(|running| act(&running.first_uri()?).map_err(failed))
    }

    /// The same, and waits until secondaries have it.
    fn store(&self, act: impl Fn(&Uri) -> std::result::Result<(), ClientError>) -> Result<()> {
        self.on_each(act)?;
        self.running.iter().try_for_each(|running| {
            replica_set::catch_up(&running.listener, &running.secondaries).map_err(failed)
        })
    }

    fn sizes(&mut self) -> Result<()> {
        if self.plan.operations.is_empty() {
            return Ok(());
        }
        for bytes in self.plan.sizes.clone() {
            self.store(|uri| requests::load(uri, bytes, self.plan.seed))?;
            for operation in self.plan.operations.clone() {
                self.progress(&format!("{} of {}", operation.name(), size_text(bytes)));
                let case = |at| SizeCase { at, operation, bytes };
                let cases = self.everywhere().into_iter().map(case).collect();
                let rows = in_turns(cases, self.plan.rounds, |case: &SizeCase, _| {
                    let running = self.running.get(case.at.place).ok_or_else(unknown_place)?;
                    let uri = case.at.way.uri(&running.listener)?;
                    let (pid, slice) = (running.server.pid(), &self.plan.slice);
                    let mut round = requests::measure(&uri, pid, operation, bytes, slice)?;
                    if operation == requests::Operation::Get
                        && let Some(uri) = running.secondary(case.at.way)?
                    {
                        let latency = requests::secondary_latency(&uri, operation, bytes, slice)?;
                        round.secondary = Some(latency);
                    }
                    Ok::<_, ClientError>(round)
                });
                self.report.sizes.extend(rows);
            }
        }
        self.on_each(requests::unload)
    }

    fn models(&mut self) -> Result<()> {
        if self.plan.models.is_empty() {
            return Ok(());
        }
        self.store(|uri| models::store(uri, &self.plan.models, self.plan.seed))?;
        let mut memory = Vec::new();
        for model in self.plan.models.clone() {
            self.progress(&format!("model {} of {}", model.name, size_text(model.bytes)));
            let case = |at| ModelCase { at, name: model.name.clone(), bytes: model.bytes };
            let cases = self.everywhere().into_iter().map(case).collect();
            // One round more, whose times are not counted: memory and cache are as they will be.
            let mut rows = in_turns(cases, self.plan.rounds + 1, |case: &ModelCase, _| {
                let running = self.running.get(case.at.place).ok_or_else(unknown_place)?;
                let uri = case.at.way.uri(&running.listener)?;
                let pid = running.server.pid();
                let mut round = models::read(&uri, pid, &case.name, &mut memory)?;
                if let Some(uri) = running.secondary(case.at.way)? {
                    let read = models::read(&uri, pid, &case.name, &mut memory)?;
                    round.secondary = Some(read.wall);
                }
                Ok::<_, ClientError>(round)
            });
            let counted = rows.iter_mut().filter_map(|row| row.rounds.as_mut().ok());
            counted.for_each(|rounds| drop(rounds.drain(..1)));
            self.report.models.extend(rows);
        }
        self.on_each(models::drop_all)
    }

    fn clients(&mut self) -> Result<()> {
        if self.plan.clients.is_empty() {
            return Ok(());
        }
        for bytes in self.plan.client_sizes.clone() {
            self.store(|uri| requests::load(uri, bytes, self.plan.seed))?;
            for operation in requests::Operation::ALL {
                for threads in self.plan.threads.clone() {
                    for clients in self.plan.clients.clone() {
                        let (name, size) = (operation.name(), size_text(bytes));
                        self.progress(&format!("{clients} x {threads} clients, {name} of {size}"));
                        let case = |at| ClientsCase { at, operation, bytes, clients, threads };
                        let cases = self.everywhere().into_iter().map(case).collect();
                        let rows = in_turns(cases, self.plan.rounds, |case: &ClientsCase, _| {
                            self.measure_clients(case)
                        });
                        self.report.clients.extend(rows);
                    }
                }
            }
        }
        self.on_each(requests::unload)
    }

    fn measure_clients(
        &self,
        case: &ClientsCase,
    ) -> std::result::Result<ClientsRound, ClientError> {
        let running = self.running.get(case.at.place).ok_or_else(unknown_place)?;
        let everybody = (case.clients * case.threads).max(1) as u64;
        let put_bytes_max = self.plan.slice.put_bytes_max / everybody;
        let order = |number, listener| Order {
            connection_string: case.at.way.connection_string(listener),
            operation: case.operation,
            bytes: case.bytes,
            threads: case.threads,
            slice: Slice { put_bytes_max, ..self.plan.slice },
            number,
        };
        let orders: Vec<Order> =
            (0..case.clients).map(|number| order(number, &running.listener)).collect();
        let program = std::env::current_exe()?;
        let mut round = clients::measure(&program, CLIENT, &orders, running.server.pid());
        if let Ok(round) = &mut round
            && case.operation == requests::Operation::Get
            && !running.secondaries.is_empty()
        {
            // Each client has a member of its own, in turn.
            let members = std::iter::once(&running.listener).chain(&running.secondaries).cycle();
            let orders: Vec<Order> =
                members.take(case.clients).enumerate().map(|(n, at)| order(n, at)).collect();
            let spread = clients::measure(&program, CLIENT, &orders, running.server.pid())?;
            round.spread_per_s = Some(spread.per_s);
        }
        let uri = self.running.get(case.at.place).map(Running::first_uri);
        match uri {
            Some(Ok(uri)) => requests::clean_up(&uri)?,
            _ => return Err(unknown_place()),
        }
        round
    }
}

/// What it is measured with and on.
fn about(plan: &Plan) -> Vec<(String, String)> {
    let machine = machine::look();
    let memory_gb = machine.memory_bytes as f64 / f64::from(1 << 30);
    let millis = plan.slice.measure.as_millis();
    let put_mb = plan.slice.put_bytes_max >> 20;
    let servers = match plan.has_set {
        false => "one server",
        true => {
            "a set of a primary, two secondaries and an arbiter; its members talk over RDMA if they have it, otherwise TCP"
        }
    };
    let names: Vec<&str> = plan.ways.iter().map(|way| way.label).collect();
    [
        ("kauri", env!("CARGO_PKG_VERSION").to_owned()),
        ("machine", format!("{}, {} cores, {memory_gb:.0} GB", machine.cpu, machine.cores)),
        ("system", format!("{}, Linux {}", machine.os_name, machine.os_version)),
        ("load at the beginning", load()),
        ("transports", format!("{}, client and server on one machine", names.join(", "))),
        ("servers", servers.to_owned()),
        ("rounds", format!("{} of {millis} ms, or of {put_mb} MB put", plan.rounds)),
        ("spinning", format!("{} us, servers and clients", plan.spin_micros)),
        ("rings", format!("{} bytes", plan.ring_bytes)),
        (
            "durability",
            "an acknowledged Put outlives the process at once, a power cut within 100 ms"
                .to_owned(),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Processes that ran or wanted to, on average of the last minute.
fn load() -> String {
    let told = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    told.split(' ').next().unwrap_or("?").to_owned()
}

fn write(matches: &ArgMatches, name: &str, contents: impl FnOnce() -> String) -> Result<()> {
    let Some(file) = matches.get_one::<String>(name) else { return Ok(()) };
    std::fs::write(file, contents())
        .map_err(|error| failed(format!("cannot write {file}: {error}")))
}

/// Runs the measurements and prints them.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let mut run = Run::new(Plan::parse(matches)?)?;
    run.sizes()?;
    run.models()?;
    run.clients()?;
    let Run { mut report, running, .. } = run;
    report.about.push(("load at the end".to_owned(), load()));
    for one in running {
        // The primary last: no other stands for election.
        one.others.into_iter().try_for_each(Server::stop)?;
        one.server.stop()?;
    }
    print!("{}", table::text(&report));
    options::write_json(matches, || json::text(&report))?;
    write(matches, "page", || page::html(&report))?;
    match report.failed() {
        0 => Ok(()),
        count => Err(failed(format!("{count} rows could not be measured"))),
    }
}
