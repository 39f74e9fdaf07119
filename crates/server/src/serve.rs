//! `kauri serve`: the database server.

use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::log::{self, Severity};
use kauri_base::{Clock, RandomSource, Result};
use kauri_bson::DocBuf;
use kauri_catalog::Catalog;
use kauri_commands::cursors::CursorManager;
use kauri_commands::{CommandService, Server, StartInfo};
use kauri_storage::{LocalCommitter, StorageEngine};
use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::{ExecutorOptions, ServiceExecutor, SessionManager, TransportLayer};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::mpsc;
use std::time::Duration;

/// Runs the server until it is told to end.
pub fn run(argv: &[String]) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let random: Arc<dyn RandomSource> = Arc::new(SeededRandom::from_entropy());
    let log_clock = clock.clone();
    log::install(
        Box::new(|severity, line| {
            if !matches!(severity, Severity::Debug(_)) {
                println!("{line}");
            }
        }),
        Box::new(move || log_clock.unix_ms()),
    );
    let port = argv
        .iter()
        .position(|a| a == "--port")
        .and_then(|i| argv.get(i + 1))
        .and_then(|p| p.parse().ok())
        .unwrap_or(27017);
    let engine: Arc<dyn StorageEngine> = Arc::new(kauri_storage::ephemeral::EphemeralEngine::new());
    let committer = Arc::new(LocalCommitter(engine.clone()));
    let catalog = Catalog::open(engine.clone(), committer, clock.clone(), random.clone())?;
    let (stop, stopped) = mpsc::channel();
    let server = Arc::new(Server {
        cursors: CursorManager::new(clock.clone(), random.clone()),
        catalog: Arc::new(catalog),
        process_id: kauri_bson::new_object_id((clock.unix_ms() / 1000) as u32, &*random),
        operations: Default::default(),
        parameters: Default::default(),
        fail_points: Default::default(),
        start: StartInfo {
            argv: argv.to_vec(),
            parsed: DocBuf::new(),
            host: format!("localhost:{port}"),
            port,
            dbpath: String::new(),
            started_ms: clock.unix_ms(),
            pid: std::process::id(),
            revision: "",
        },
        clock,
        random,
        counters: Default::default(),
        shutdown: Box::new(move |timeout| {
            let _ = stop.send(timeout);
        }),
        fsync_locks: AtomicI64::new(0),
        slow_ms: AtomicI64::new(100),
        stopping: Default::default(),
    });
    let executor = ServiceExecutor::start(&ExecutorOptions { workers: 0, spin_us: 0 })?;
    let flushed = engine.clone();
    executor.on_tick_end(Arc::new(move || flushed.flush()));
    let manager =
        SessionManager::new(executor, Arc::new(CommandService::new(server)), 100_000);
    let options = TcpOptions { port, ..TcpOptions::default() };
    let mut tcp = TcpTransport::new(options);
    tcp.setup()?;
    tcp.start(&manager)?;
    let _ = stopped.recv();
    tcp.shutdown();
    manager.shutdown(Duration::from_secs(10));
    engine.sync().map_err(kauri_base::Error::from)
}
