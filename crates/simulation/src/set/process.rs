//! One life of a member of the set, from opening its disk to its death.

use crate::node;
use kauri_base::clock::SeededRandom;
use kauri_base::virtual_time::VirtualClock;
use kauri_base::{Clock, CommitSeq, Error, ErrorCode, RandomSource, Result};
use kauri_bson::{DocWriter, Value};
use kauri_catalog::Catalog;
use kauri_commands::member_host::ServerHost;
use kauri_commands::{CommandService, Server, background, startup};
use kauri_emulator::Emulator;
use kauri_member::peers::{Dial, Dialing, Link, Sending};
use kauri_member::{Driver, Member, Parts, SetCommitter, initial_sync};
use kauri_replication::simulated::Network;
use kauri_storage::{Backend, Committer, StorageEngine};
use kauri_storage_log::{Options, PmLog, install_copy};
use kauri_testkit::Dice;
use kauri_transport::fake::{FakeClient, FakeTransport};
use kauri_transport::{SeededWorkers, SessionManager, TransportLayer, WorkerHandle, monotonic_ns};
use kauri_wire::{MsgWriter, flags};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The set's name.
pub const SET: &str = "rs";
const SEGMENT_BYTES: u32 = 64 << 10;
const CONNECTIONS_MAX: usize = 1_000;
/// The longest pause between two rounds of maintenance, in microseconds.
const MAINTENANCE_US_MAX: u64 = 20_000;
/// The longest wait of work for a thread of its own, in microseconds.
const ASIDE_US_MAX: u64 = 200_000;

/// The lock's content, whatever became of who held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all members share: the network, and which of them live.
#[derive(Clone)]
pub struct Wire {
    /// Between members.
    pub network: Arc<Mutex<Network<Vec<u8>>>>,
    /// The number of each living process, by member.
    pub lives: Arc<Mutex<BTreeMap<u64, u64>>>,
    /// Bytes of the log that members keep.
    pub log_bytes: u64,
}

/// The address of a member.
pub fn host_of(member: u64) -> String {
    format!("member{member}:27017")
}

/// The member of an address; 0: none.
pub fn member_of(host: &str) -> u64 {
    let number = host.trim_start_matches("member").split(':').next();
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

struct Dialer {
    wire: Wire,
    from: u64,
}

impl Dial for Dialer {
    fn dial(&self, worker: &WorkerHandle, host: &str) -> Dialing {
        let (wire, from, to) = (self.wire.clone(), self.from, member_of(host));
        let wait = worker.sleep(Duration::from_micros(200));
        Box::pin(async move {
            wait.await;
            let life = lock(&wire.lives).get(&to).copied();
            let life = life.ok_or("connection refused")?;
            Ok(Box::new(Cable { wire, from, to, life }) as Box<dyn Link>)
        })
    }
}

struct Cable {
    wire: Wire,
    from: u64,
    to: u64,
    /// The process at the other end.
    life: u64,
}

impl Link for Cable {
    fn send(&self, bytes: Vec<u8>) -> Sending<'_> {
        let lives = !self.is_over();
        if lives {
            lock(&self.wire.network).send(monotonic_ns(), self.from, self.to, bytes);
        }
        Box::pin(std::future::ready(lives))
    }

    fn is_over(&self) -> bool {
        lock(&self.wire.lives).get(&self.to) != Some(&self.life)
    }
}

/// A member's clock, which may be wrong.
#[derive(Default)]
pub struct Clocks {
    /// How far it is ahead, in milliseconds.
    pub ahead_ms: AtomicI64,
}

impl Clock for Clocks {
    fn unix_ms(&self) -> i64 {
        VirtualClock.unix_ms() + self.ahead_ms.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        VirtualClock.monotonic()
    }
}

/// What a process is started with.
pub struct Start<'a> {
    /// Its disk.
    pub disk: &'a Emulator,
    /// Its choices.
    pub dice: &'a Dice,
    /// Its links.
    pub wire: &'a Wire,
    /// Its number among the members.
    pub number: u64,
    /// The run of its machine.
    pub machine_run: u64,
    /// The machine's clock.
    pub clock: &'a Arc<Clocks>,
}

/// A member that runs.
pub struct Process {
    /// Its workers; the last one is the driver's.
    pub workers: SeededWorkers,
    /// Its engine.
    pub engine: Arc<PmLog>,
    /// Its member.
    pub member: Arc<Member>,
    /// Its server.
    pub server: Arc<Server>,
    /// Why it wants to begin again.
    pub restart: Arc<Mutex<Option<String>>>,
    /// Where clients connect.
    pub door: Arc<FakeTransport>,
    /// Work for threads of their own that was done: copies for other members, resumed index builds.
    pub asides: Arc<AtomicU64>,
    failure: Arc<Mutex<Option<String>>>,
    /// Other members' connections.
    peers: Mutex<BTreeMap<u64, FakeClient>>,
}

impl Process {
    /// Opens the disk, and serves it. Nothing runs before the first turn.
    pub fn start(of: &Start<'_>) -> Result<Process> {
        let failed = |error| Error::new(ErrorCode::OperationFailed, format!("finishing: {error}"));
        let install = |prefix: &str| install_copy(of.disk, prefix);
        initial_sync::finish(of.disk, install).map_err(failed)?;
        let engine = open_engine(of)?;
        let member = Member::new(SET);
        let server = Arc::new(assemble(of, &engine, &member)?);
        server.follow_parameters();
        server.parameters.set_at_startup("enableTestCommands", Value::Bool(true))?;
        server.parameters.set_at_startup("ttlMonitorSleepSecs", Value::Int32(1))?;
        startup::prepare(&server)?;
        let workers = SeededWorkers::new(2)?;
        let flushed = engine.clone();
        workers.executor().on_tick_end(Arc::new(move || flushed.flush()));
        watch_commits(&workers, &member, &engine);
        let service = Arc::new(CommandService::new(server.clone()));
        let manager = SessionManager::new(workers.executor().clone(), service, CONNECTIONS_MAX);
        let mut door = FakeTransport::default();
        door.setup()?;
        door.start(&manager)?;
        let process = Process {
            workers,
            engine,
            member,
            server,
            restart: Arc::default(),
            door: Arc::new(door),
            asides: Arc::default(),
            failure: Arc::default(),
            peers: Mutex::default(),
        };
        process.begin(of)?;
        Ok(process)
    }

    /// Starts its tasks.
    fn begin(&self, of: &Start<'_>) -> Result<()> {
        let [worker, own] = self.workers.executor().workers() else { return Ok(()) };
        background::spawn(&self.server, worker);
        let (engine, failure) = (self.engine.clone(), self.failure.clone());
        worker.spawn(maintain(engine, worker.clone(), of.dice.fork(), failure));
        let asides = self.asides.clone();
        let (restart, at_work, dice) = (self.restart.clone(), worker.clone(), of.dice.fork());
        let host = ServerHost {
            server: self.server.clone(),
            machine_run: of.machine_run.to_string(),
            restart: Box::new(move |why| *lock(&restart) = Some(why.to_owned())),
            aside: Box::new(move |work| {
                let wait = at_work.sleep(Duration::from_micros(dice.below(ASIDE_US_MAX)));
                let asides = asides.clone();
                at_work.spawn(async move {
                    wait.await;
                    asides.fetch_add(1, Ordering::Relaxed);
                    work();
                });
            }),
        };
        let driver = Driver::new(Parts {
            member: self.member.clone(),
            engine: self.engine.clone(),
            directory: Arc::new(of.disk.clone()),
            host: Arc::new(host),
            dial: Arc::new(Dialer { wire: of.wire.clone(), from: of.number }),
            log_bytes: of.wire.log_bytes,
            worker: own.clone(),
            clock: of.clock.clone(),
            random: Arc::new(SeededRandom::new(of.dice.bits())),
        })?;
        own.spawn(driver.run());
        Ok(())
    }

    /// A message of another member arrives.
    pub fn deliver(&self, from: u64, message: &[u8]) {
        let mut peers = lock(&self.peers);
        if peers.get(&from).is_none_or(FakeClient::is_closed) {
            let Some(connection) = self.door.connect_from(&host_of(from)) else { return };
            peers.insert(from, connection);
        }
        if let (Some(connection), Some(message)) = (peers.get(&from), command(message)) {
            connection.send(&message);
        }
    }

    /// The process dies. Take its disk's image before.
    pub fn die(self) {
        lock(&self.peers).clear();
        self.workers.die();
    }

    /// What went wrong.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }
}

/// A member's message as the command that brings it.
fn command(message: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(message.len() + 80);
    let writer = MsgWriter::begin(&mut out, 0, 0, flags::MORE_TO_COME);
    {
        let mut doc = DocWriter::new(&mut out);
        doc.put("replSetMessage", Value::Binary { subtype: 0, bytes: message.into() });
        doc.put("$db", "admin");
    }
    writer.finish(&mut out).ok()?;
    Some(out)
}

fn watch_commits(workers: &SeededWorkers, member: &Arc<Member>, engine: &Arc<PmLog>) {
    let (told, member, engine) = (AtomicU64::new(0), member.clone(), engine.clone());
    workers.executor().on_tick_end(Arc::new(move || {
        let now = engine.visible().0;
        if told.fetch_max(now, Ordering::Relaxed) < now {
            member.note_visible(CommitSeq(now));
        }
    }));
}

fn open_engine(of: &Start<'_>) -> Result<Arc<PmLog>> {
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        cache_bytes: 256 << 10,
        bytes_max: 512 * u64::from(SEGMENT_BYTES),
        read_threads: 0,
        mark_interval_bytes: 2048,
        sort_segments_min: 0,
        clock: of.clock.clone(),
        random: Arc::new(SeededRandom::new(of.dice.bits())),
        ..Options::default()
    };
    Ok(Arc::new(PmLog::open(Arc::new(of.disk.clone()), options)?))
}

fn assemble(of: &Start<'_>, engine: &Arc<PmLog>, member: &Arc<Member>) -> Result<Server> {
    let clock: Arc<dyn Clock> = of.clock.clone();
    let random: Arc<dyn RandomSource> = Arc::new(SeededRandom::new(of.dice.bits()));
    let statements = member.statements().clone();
    let committer = SetCommitter::new(engine.clone(), statements, clock.clone());
    let full = member.clone();
    let committer = committer.handing_over(move |now_ms| full.lacks_room(now_ms));
    let committer: Arc<dyn Committer> = Arc::new(committer);
    let backend = Backend::new(engine.clone(), committer, clock, random);
    let catalog = Arc::new(Catalog::open_member(&backend)?);
    Ok(node::assemble(backend, catalog, &host_of(of.number), Some(member.clone())))
}

/// The work of the engine's threads, at drawn times.
async fn maintain(
    engine: Arc<PmLog>,
    worker: WorkerHandle,
    dice: Dice,
    failure: Arc<Mutex<Option<String>>>,
) {
    loop {
        let short = dice.percent(60);
        let pause_us = if short { dice.below(500) } else { dice.below(MAINTENANCE_US_MAX) };
        worker.sleep(Duration::from_micros(pause_us)).await;
        let outcome = match dice.below(6) {
            0 => engine.clean_once().map(drop),
            _ => engine.flush_round(),
        };
        if let Err(error) = outcome {
            lock(&failure).get_or_insert_with(|| format!("maintenance: {error}"));
            return;
        }
    }
}
