//! One life of the server, from opening its disk to its death.

use kauri_base::clock::SeededRandom;
use kauri_base::temporary::MemoryStore;
use kauri_base::virtual_time::VirtualClock;
use kauri_base::{Clock, RandomSource, Result};
use kauri_bson::{DocBuf, Value};
use kauri_catalog::Catalog;
use kauri_commands::cursors::CursorManager;
use kauri_commands::server::{Machine, ProcessMemory};
use kauri_commands::spilling::SpillSettings;
use kauri_commands::{CommandService, Server, StartInfo, background, startup};
use kauri_emulator::Emulator;
use kauri_member::Member;
use kauri_storage::{Backend, StorageEngine};
use kauri_storage_log::{Options, PmLog};
use kauri_testkit::Dice;
use kauri_transport::fake::{FakeClient, FakeTransport};
use kauri_transport::{SeededWorkers, SessionManager, TransportLayer};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a segment: small, so that segments come and go in a short run.
const SEGMENT_BYTES: u32 = 64 << 10;
const CONNECTIONS_MAX: usize = 1_000;
/// The longest pause between two rounds of maintenance, in microseconds.
const MAINTENANCE_US_MAX: u64 = 30_000;

/// The connection point of clients to the running server.
#[derive(Default)]
pub struct Network(Mutex<Links>);

#[derive(Default)]
struct Links {
    transport: Option<FakeTransport>,
    /// Every client may connect.
    open: bool,
}

impl Network {
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to the server that runs, if it lets this client in.
    pub fn connect(&self, alone: bool) -> Option<FakeClient> {
        let links = self.lock();
        let transport = links.transport.as_ref().filter(|_| links.open || alone)?;
        transport.connect()
    }

    /// Admits all clients.
    pub fn open(&self) {
        self.lock().open = true;
    }

    fn set(&self, transport: Option<FakeTransport>) {
        let mut links = self.lock();
        links.open = false;
        let before = std::mem::replace(&mut links.transport, transport);
        drop(links);
        drop(before);
    }
}

/// A server that runs.
pub struct Node {
    workers: SeededWorkers,
    engine: Arc<PmLog>,
    network: Arc<Network>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Node {
    /// Opens the disk, and serves it. Nothing runs before the first turn.
    pub fn start(
        disk: &Emulator,
        dice: &Dice,
        workers: usize,
        network: &Arc<Network>,
    ) -> Result<Node> {
        let engine = open_engine(disk, dice)?;
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock);
        let random: Arc<dyn RandomSource> = Arc::new(SeededRandom::new(dice.bits()));
        let backend = Backend::local(engine.clone(), clock, random);
        let catalog = Arc::new(Catalog::open(&backend)?);
        let server = assemble(backend, catalog, "simulated:27017", None);
        let server = Arc::new(server);
        server.follow_parameters();
        server.parameters.set_at_startup("enableTestCommands", Value::Bool(true))?;
        startup::prepare(&server)?;
        let workers = SeededWorkers::new(workers)?;
        let flushed = engine.clone();
        workers.executor().on_tick_end(Arc::new(move || flushed.flush()));
        let service = Arc::new(CommandService::new(server.clone()));
        let manager = SessionManager::new(workers.executor().clone(), service, CONNECTIONS_MAX);
        let mut transport = FakeTransport::default();
        transport.setup()?;
        transport.start(&manager)?;
        network.set(Some(transport));
        let node = Node { workers, engine, network: network.clone(), failure: Arc::default() };
        if let Some(worker) = node.workers.executor().workers().first() {
            background::spawn(&server, worker);
            worker.spawn(maintain(
                node.engine.clone(),
                server.clone(),
                worker.clone(),
                dice.fork(),
                node.failure.clone(),
            ));
        }
        Ok(node)
    }

    /// The workers, for the code that gives turns.
    pub fn workers(&self) -> &SeededWorkers {
        &self.workers
    }

    /// The failure of maintenance.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The process dies. Take its disk's image before.
    pub fn die(self) {
        self.network.set(None);
        self.workers.die();
    }

    /// The process ends in order: connections are cut, everything is made durable.
    pub fn stop(self) -> std::result::Result<(), String> {
        self.network.set(None);
        self.workers.die();
        self.engine.close().map_err(|error| format!("closing: {error}"))
    }
}

fn open_engine(disk: &Emulator, dice: &Dice) -> Result<Arc<PmLog>> {
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 256 << 10,
        bytes_max: 96 * u64::from(SEGMENT_BYTES),
        read_threads: 0,
        mark_interval_bytes: 2048,
        sort_segments_min: 0,
        clock: Arc::new(VirtualClock),
        random: Arc::new(SeededRandom::new(dice.bits())),
        ..Options::default()
    };
    Ok(Arc::new(PmLog::open(Arc::new(disk.clone()), options)?))
}

/// A server of a simulated world: alone, or a member of a set.
pub(crate) fn assemble(
    backend: Arc<Backend>,
    catalog: Arc<Catalog>,
    host: &str,
    member: Option<Arc<Member>>,
) -> Server {
    let (clock, random) = (backend.clock().clone(), backend.random().clone());
    let (own, process_id) = (host.to_owned(), backend.new_object_id());
    Server {
        operation_memory: Default::default(),
        cursors: CursorManager::new(clock.clone(), random.clone()),
        plans: Default::default(),
        backend,
        catalog,
        process_id,
        operations: Default::default(),
        parameters: Default::default(),
        fail_points: Default::default(),
        start: StartInfo {
            argv: vec!["kauri".to_owned()],
            parsed: DocBuf::new(),
            host: host.to_owned(),
            member_host: host.to_owned(),
            port: 27017,
            dbpath: String::new(),
            started_ms: clock.unix_ms(),
            pid: 1,
            machine: Machine::default(),
            revision: "simulated",
        },
        clock,
        spilling: SpillSettings::new(Arc::new(MemoryStore::new())),
        random,
        counters: Default::default(),
        usage: Default::default(),
        memory: Box::new(ProcessMemory::default),
        system: Box::new(|_| {}),
        sessions: Default::default(),
        profiling: Default::default(),
        profiler: Default::default(),
        shutdown: Box::new(|_| {}),
        rotate_log: Box::new(|_| Ok(())),
        fsync_lock: Default::default(),
        auto_compact: Default::default(),
        member,
        is_self: Arc::new(move |host| host == own),
        greet: None,
        slow_ms: AtomicI64::new(i64::MAX),
        stopping: Default::default(),
    }
}

/// The work of the engine's threads, at drawn times.
async fn maintain(
    engine: Arc<PmLog>,
    server: Arc<Server>,
    worker: kauri_transport::WorkerHandle,
    dice: Dice,
    failure: Arc<Mutex<Option<String>>>,
) {
    loop {
        let pause_us =
            if dice.percent(50) { dice.below(500) } else { dice.below(MAINTENANCE_US_MAX) };
        worker.sleep(Duration::from_micros(pause_us)).await;
        // The engine's threads would wait.
        if server.fsync_lock.is_in_force() {
            continue;
        }
        let outcome = match dice.below(4) {
            0 => engine.clean_once().map(drop),
            _ => engine.flush_round(),
        };
        if let Err(error) = outcome {
            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| format!("maintenance: {error}"));
            return;
        }
    }
}
