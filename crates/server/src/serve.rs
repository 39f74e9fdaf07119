//! `kauri serve`: assembles, runs and stops the database server.

use crate::diagnostics::{self, Collection};
use crate::engine::Engine;
use crate::logging::Log;
use crate::options::Options;
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::log::{self, Attr};
use kauri_base::work::MemoryBudget;
use kauri_base::{Clock, Error, ErrorCode, RandomSource, Result};
use kauri_bson::Value;
use kauri_catalog::Catalog;
use kauri_commands::cursors::CursorManager;
use kauri_commands::parameters::{Kind, Parameter};
use kauri_commands::profiling::Profiling;
use kauri_commands::server::{VERSION, operation_memory_limits};
use kauri_commands::spilling::SpillSettings;
use kauri_commands::{CommandService, Server, StartInfo};
use kauri_machine::ControlGroups;
use kauri_medium::temporary::TemporaryDirectory;
use kauri_member::SetCommitter;
use kauri_storage::{Backend, Committer, LocalCommitter};
use kauri_transport::rdma::{RdmaHost, RdmaOptions};
use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::unix::{UnixOptions, UnixTransport};
use kauri_transport::upgrade::RdmaService;
use kauri_transport::{
    EstablishmentLimiter, ExecutorOptions, ServiceExecutor, SessionManager, TransportLayer,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Default time that a shutdown gives operations to finish.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
const CTX: &str = "initandlisten";

/// Maximum delay of a reply: less than a command may run before it yields, and several times the time to produce
/// all replies of a usual tick.
const REPLIES_HELD_US: u64 = 100;

/// Runs the server until it is stopped. The reason of a failure is in the log, too.
pub fn run(options: Options) -> Result<()> {
    let path = options.text("storage.dbPath", "/data/db");
    let outcome = serve(options);
    outcome.inspect_err(|error| {
        let attr = Attr::new().str("error", error.to_string()).str("dbPath", path);
        log::error("CONTROL", 20557, CTX, "DBException in initAndListen, terminating", attr);
    })
}

fn serve(options: Options) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let log = crate::logging::install(&options, &clock)?;
    let (stop, stopped) = mpsc::channel();
    handle_signals(stop.clone(), log.clone())?;
    log_start(&options);
    write_pid_file(&options)?;

    if let Err(error) = kauri_transport::raise_descriptor_limit() {
        let attr = Attr::new().str("error", error.to_string());
        log::warning("CONTROL", 6200101, CTX, "Cannot raise the limit of open files", attr);
    }
    if options.flag("storage.repair", false) {
        return crate::engine::repair(&options);
    }
    if options.flag("replication.leaveReplSet", false) {
        return crate::leave::run(&options);
    }
    crate::startup_warnings::log_all(&options);
    let rdma = open_rdma(&options)?;
    check_memory(&options, &rdma)?;
    crate::set::check_directory(&options)?;
    crate::set::finish_initial_sync(&options)?;
    let mut engine = Engine::open(&options)?;
    let memory_limit = kauri_machine::look().memory_limit_bytes;
    let (one_max, all_max) = operation_memory_limits(memory_limit);
    let operation_memory = MemoryBudget::new(one_max, all_max);
    let memory = engine.watch_memory(&options, operation_memory.clone())?;
    let temporary = Arc::new(crate::temporary::open(&options)?);
    let server =
        assemble(&options, &engine, clock, temporary.clone(), operation_memory, (stop, log))?;
    let executor = ServiceExecutor::start(&ExecutorOptions {
        name: None,
        workers: engine.workers(&options),
        stack_bytes: options.number("net.stackKB", 1024) as usize * 1024,
        arrivals_bytes_max: arrivals_bytes_max(memory_limit),
        spin_us: options.number("net.spinMicros", 0),
        replies_held_us: if options.text("net.ioUring", "on") == "on" {
            REPLIES_HELD_US
        } else {
            0
        },
        own_cores: options.text("net.workerCores", "own") == "own",
    })?;
    engine.define_parameters(&server.parameters);
    server.parameters.define("spinMicros", spin_parameter(&executor));
    crate::temporary::define_parameters(&server.parameters, &temporary);
    let limiter = Arc::new(EstablishmentLimiter::default());
    crate::establishment::define_parameters(&server.parameters, &limiter);
    let diagnostics = Arc::new(diagnostics::Settings::default());
    diagnostics.define_parameters(&server.parameters);
    server.follow_parameters();
    let level = options.number("systemLog.verbosity", 0).min(5) as i32;
    server.parameters.set_at_startup("logLevel", Value::Int32(level))?;
    let interval_ms = options.number("storage.journal.commitIntervalMs", 100) as i32;
    let interval = Parameter::new(interval_ms, Kind::Fixed);
    server.parameters.define("journalCommitInterval", interval);
    if options.flag("systemLog.quiet", false) {
        server.parameters.set_at_startup("quiet", Value::Bool(true))?;
    }
    for (name, value) in options.parameters() {
        server.parameters.set_at_startup(name, value.clone().into())?;
    }
    #[cfg(feature = "lock-experiment")]
    server.locks.set_up(&server.parameters)?;
    engine.start_maintenance()?;
    prepare(&server)?;
    let all = executor.clone();
    memory.on_freed(move || all.give_back_memory(crate::allocator::give_back_own));
    let flushed = engine.storage.clone();
    executor.on_tick_end(Arc::new(move || flushed.flush()));
    if let Some(member) = &server.member {
        let watch = crate::set::commit_watch(member.clone(), engine.storage.clone());
        executor.on_tick_end(Arc::new(watch));
    }
    let connections_max = options.number("net.maxIncomingConnections", 65_536) as usize;
    let service = Arc::new(CommandService::new(server.clone()));
    let manager = SessionManager::with_limiter(executor.clone(), service, connections_max, limiter);
    manager.allow_shared_memory(options.text("net.sharedMemory", "on") == "on");
    manager.serve_rdma(rdma);
    let mut transports = listen(&options)?;
    for transport in &mut transports {
        transport.start(&manager)?;
    }
    if let Some(worker) = executor.workers().first() {
        kauri_commands::background::spawn(&server, worker);
    }
    let of_member = crate::set::start(&options, &server)?;
    let collection = collect(&options, diagnostics, &server, &manager)?;
    let attr = Attr::new().num("port", server.start.port).str("ssl", "off");
    log::info("NETWORK", 23016, "listener", "Waiting for connections", attr);

    let grace = stopped.recv().ok().flatten().unwrap_or(SHUTDOWN_GRACE);
    log::info("CONTROL", 23138, CTX, "Shutting down", Attr::new().num("exitCode", 0));
    if let Some(member) = &server.member {
        member.quiesce(server.clock.unix_ms() + grace.as_millis() as i64);
    }
    server.stopping.store(true, Ordering::Release);
    server.catalog.end_builds();
    transports.iter_mut().for_each(|transport| transport.shutdown());
    manager.shutdown(grace);
    executor.shutdown();
    if let Some(of_member) = of_member {
        of_member.shutdown();
    }
    drop((collection, manager, executor, memory));
    engine.close()?;
    if let Some(file) = options.given("processManagement.pidFilePath") {
        let _ = std::fs::remove_file(file);
    }
    log::info("CONTROL", 8423404, CTX, "Shutdown complete", Attr::new());
    Ok(())
}

/// Begins to collect diagnostic data, in the data directory if the engine has one.
fn collect(
    options: &Options,
    settings: Arc<diagnostics::Settings>,
    server: &Arc<Server>,
    manager: &SessionManager,
) -> Result<Option<Collection>> {
    if options.text("storage.engine", "pmlog") == "ephemeralForTest" {
        return Ok(None);
    }
    let path = PathBuf::from(options.text("storage.dbPath", "/data/db"));
    let place = path.join(diagnostics::DIRECTORY);
    Collection::start(place, settings, server.clone(), manager).map(Some)
}

/// Default limit of large messages together, for a server with this memory (0: unknown), in bytes: one message of
/// maximum size always fits.
fn arrivals_bytes_max(memory: u64) -> u64 {
    if memory == 0 { 0 } else { (memory / 8).max(64 << 20) }
}

/// Fails if a control group leaves too little memory for the options.
fn check_memory(options: &Options, rdma: &RdmaService) -> Result<()> {
    let pool = match rdma {
        RdmaService::On(host) => host.pool_counts().bytes,
        _ => 0,
    };
    let limit = ControlGroups::of_process().limit();
    crate::memory::check_start(limit, options.gigabytes("storage.cacheSizeGB"), pool)
}

/// The longest that workers look for requests before they sleep, which may be changed.
fn spin_parameter(executor: &Arc<ServiceExecutor>) -> Parameter {
    let (now, executor) = (executor.spin_us(), Arc::downgrade(executor));
    let hook = move |value: &Value<'_>| {
        let micros = value.to_i64_saturating().and_then(|micros| u64::try_from(micros).ok());
        if let Some(executor) = executor.upgrade() {
            executor.set_spin_us(micros.unwrap_or(0));
        }
        Ok(())
    };
    Parameter::new(Value::Int64(now as i64), Kind::Long(0, i64::MAX)).with_hook(Arc::new(hook))
}

/// The RDMA device, if there is one and it may be used.
fn open_rdma(options: &Options) -> Result<RdmaService> {
    let mode = options.text("net.rdma.mode", "on");
    if mode == "off" {
        return Ok(RdmaService::Off);
    }
    let byte = |setting| options.given(setting).and_then(|number| number.parse().ok());
    let opened = RdmaHost::open(RdmaOptions {
        device: options.given("net.rdma.device").map(str::to_owned),
        port: byte("net.rdma.port"),
        gid_index: byte("net.rdma.gidIndex"),
        pinned_bytes_max: options.number("net.rdma.memoryMB", 256) << 20,
        pool_bytes: options.number("net.rdma.poolMB", 64) << 20,
    });
    match opened {
        Ok(host) => {
            let attr = Attr::new().str("device", host.device());
            log::info("NETWORK", 7_100_023, CTX, "RDMA enabled", attr);
            Ok(RdmaService::On(Arc::new(host)))
        }
        Err(error) if mode == "require" => {
            let why = format!(
                "--rdma require: RDMA is not available: {error}. Fix the device, or start with --rdma on"
            );
            Err(Error::new(ErrorCode::BadValue, why))
        }
        Err(error) => {
            let attr = Attr::new().str("reason", error.to_string());
            log::info("NETWORK", 7_100_024, CTX, "RDMA disabled", attr);
            Ok(RdmaService::Absent(error.to_string()))
        }
    }
}

fn assemble(
    options: &Options,
    engine: &Engine,
    clock: Arc<dyn Clock>,
    temporary: Arc<TemporaryDirectory>,
    operation_memory: Arc<MemoryBudget>,
    (stop, log): (mpsc::Sender<Option<Duration>>, Log),
) -> Result<Arc<Server>> {
    let random: Arc<dyn RandomSource> = Arc::new(SeededRandom::from_entropy());
    let member = crate::set::member(options);
    let storage = engine.storage.clone();
    let committer: Arc<dyn Committer> = match &member {
        Some(member) => {
            let statements = member.statements().clone();
            let committer = SetCommitter::new(storage.clone(), statements, clock.clone());
            let member = member.clone();
            Arc::new(committer.handing_over(move |now_ms| member.lacks_room(now_ms)))
        }
        None => Arc::new(LocalCommitter(storage.clone())),
    };
    let backend = Backend::new(storage, committer, clock.clone(), random.clone());
    let catalog = match &member {
        Some(_) => Catalog::open_member(&backend),
        None => Catalog::open(&backend),
    };
    let catalog = catalog.map_err(|error| crate::engine::explain_start(options, error))?;
    let port = options.number("net.port", 27017) as u16;
    let machine = kauri_machine::look();
    let process_id = backend.new_object_id();
    Ok(Arc::new(Server {
        operation_memory,
        cursors: CursorManager::new(clock.clone(), random.clone()),
        plans: Default::default(),
        backend,
        catalog: Arc::new(catalog),
        process_id,
        operations: Default::default(),
        parameters: Default::default(),
        #[cfg(feature = "lock-experiment")]
        locks: Default::default(),
        fail_points: Default::default(),
        start: StartInfo {
            argv: std::env::args().collect(),
            parsed: options.to_doc(),
            host: format!("{}:{port}", machine.hostname),
            member_host: crate::set::member_host(&bind_ips(options), port, &machine.hostname),
            port,
            dbpath: options.text("storage.dbPath", "/data/db"),
            started_ms: clock.unix_ms(),
            pid: std::process::id(),
            machine: machine.clone(),
            revision: option_env!("KAURI_REVISION").unwrap_or("unknown"),
        },
        clock,
        spilling: SpillSettings::new(temporary),
        random,
        counters: Default::default(),
        usage: Default::default(),
        memory: Box::new(kauri_machine::process_memory),
        system: Box::new(crate::system_metrics::write),
        sessions: Default::default(),
        profiling: Profiling::new(
            options.profiling_level(),
            options.decimal("operationProfiling.slowOpSampleRate", 1.0),
        ),
        profiler: Default::default(),
        shutdown: Box::new(move |seconds| {
            let _ = stop.send(Some(Duration::from_secs(seconds)));
        }),
        rotate_log: Box::new(move |comment| log.rotate(comment)),
        fsync_lock: Default::default(),
        auto_compact: Default::default(),
        member,
        is_self: crate::set::host_probe(port),
        greet: Some(Arc::new(crate::member_dialer::greet)),
        slow_ms: AtomicI64::new(options.number("operationProfiling.slowOpThresholdMs", 100) as i64),
        stopping: Default::default(),
    }))
}

/// The addresses to listen at; `*` is all of the machine's.
fn bind_ips(options: &Options) -> Vec<String> {
    if options.flag("net.bindIpAll", false) {
        return vec!["*".to_owned()];
    }
    let list = options.text("net.bindIp", "localhost");
    list.split(',').map(|ip| ip.trim().to_owned()).filter(|ip| !ip.is_empty()).collect()
}

/// The transports, listening but not accepting yet.
fn listen(options: &Options) -> Result<Vec<Box<dyn TransportLayer>>> {
    let port = options.number("net.port", 27017) as u16;
    let (bind_ips, ipv6) = (bind_ips(options), options.flag("net.ipv6", false));
    let mut tcp = TcpTransport::new(TcpOptions { bind_ips, port, ipv6 });
    tcp.setup()?;
    let port = tcp.socket_addresses().first().map_or(port, |address| address.port());
    let mut transports: Vec<Box<dyn TransportLayer>> = vec![Box::new(tcp)];
    if options.flag("net.unixDomainSocket.enabled", true) {
        let permissions = options.text("net.unixDomainSocket.filePermissions", "0700");
        let permissions = u32::from_str_radix(&permissions, 8).map_err(|_| {
            Error::new(
                ErrorCode::InvalidOptions,
                format!("--filePermissions must be octal, not '{permissions}'"),
            )
        })?;
        let mut unix = UnixTransport::new(UnixOptions {
            path_prefix: options.text("net.unixDomainSocket.pathPrefix", "/tmp").into(),
            port,
            permissions,
        });
        unix.setup()?;
        transports.push(Box::new(unix));
    }
    Ok(transports)
}

/// SIGTERM, SIGINT and SIGQUIT end the process in order, SIGUSR1 rotates its log. SIGHUP, SIGUSR2 and SIGXFSZ,
/// which a process ends by unless it says otherwise, are logged: a terminal that closes, a mistyped number and
/// a file that may not grow are no reason to stop.
pub fn handle_signals(stop: mpsc::Sender<Option<Duration>>, log: Log) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
    let of = [SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGHUP, SIGUSR2, SIGXFSZ];
    let mut signals = signal_hook::iterator::Signals::new(of)
        .map_err(|e| Error::new(ErrorCode::InternalError, format!("cannot handle signals: {e}")))?;
    let handle = move || {
        for signal in signals.forever() {
            let attr = Attr::new().num("signal", signal);
            log::info("CONTROL", 23377, "SignalHandler", "Received signal", attr);
            match signal {
                SIGUSR1 => {
                    // A failure is in the log that goes on.
                    let _ = log.rotate(None);
                }
                SIGTERM | SIGINT | SIGQUIT if stop.send(None).is_err() => return,
                SIGXFSZ => {
                    let msg = "File size limit reached (ulimit -f): writes to the file fail. Raise the limit \
                               and restart";
                    log::warning("CONTROL", 6_200_103, "SignalHandler", msg, Attr::new());
                }
                _ => {}
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(handle)
        .map(drop)
        .map_err(|e| Error::new(ErrorCode::InternalError, format!("cannot start a thread: {e}")))
}

fn log_start(options: &Options) {
    let attr = Attr::new()
        .num("pid", std::process::id())
        .num("port", options.number("net.port", 27017))
        .str("dbPath", options.text("storage.dbPath", "/data/db"))
        .str("storageEngine", options.text("storage.engine", "pmlog"))
        .str("version", VERSION);
    log::info("CONTROL", 4615611, CTX, "Kauri starting", attr);
}

fn write_pid_file(options: &Options) -> Result<()> {
    let Some(path) = options.given("processManagement.pidFilePath") else { return Ok(()) };
    std::fs::write(path, format!("{}\n", std::process::id())).map_err(|e| {
        Error::new(ErrorCode::FileOpenFailed, format!("cannot write the pid file {path}: {e}"))
    })
}

/// Makes the server's own collections. On a full disk it serves all the same, so that something can be
/// deleted.
fn prepare(server: &Server) -> Result<()> {
    match kauri_commands::startup::prepare(server) {
        Err(error) if error.code() == ErrorCode::OutOfDiskSpace => {
            let attr = Attr::new().str("error", error.to_string());
            let message = "Disk is full: startup_log was not updated. Reads are served. Delete documents or free \
                           disk space";
            log::warning("STORAGE", 6200102, CTX, message, attr);
            Ok(())
        }
        outcome => outcome,
    }
}
