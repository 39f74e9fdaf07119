//! A member's process on its emulated disk.

use kauri_base::clock::SeededRandom;
use kauri_base::virtual_time::VirtualClock;
use kauri_base::{CommitSeq, Result};
use kauri_emulator::Emulator;
use kauri_member::peers::{Dial, Dialing, Link, Sending};
use kauri_member::{Driver, Host, Member, Parts, SetCommitter, initial_sync};
use kauri_replication::simulated::Network;
use kauri_storage::{AppliedChange, StorageEngine, StorageError};
use kauri_storage_log::{Options, PmLog, install_copy};
use kauri_testkit::Dice;
use kauri_transport::{SeededWorkers, WorkerHandle, monotonic_ns};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The set's name.
pub const SET: &str = "rs";
const SEGMENT_BYTES: u32 = 64 << 10;
const MAINTENANCE_US_MAX: u64 = 20_000;

/// What all members share: the network, and which of them live.
#[derive(Clone)]
pub struct Wire {
    pub network: Arc<Mutex<Network<Vec<u8>>>>,
    /// The number of each living process, by member.
    pub lives: Arc<Mutex<BTreeMap<u64, u64>>>,
    /// Bytes of the log that members keep.
    pub log_bytes: u64,
}

/// The address of a member, and the member of an address.
pub fn host_of(member: u64) -> String {
    format!("member{member}:27017")
}

fn member_of(host: &str) -> u64 {
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
            let life = wire.lives.lock().unwrap().get(&to).copied();
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
            self.wire.network.lock().unwrap().send(monotonic_ns(), self.from, self.to, bytes);
        }
        Box::pin(std::future::ready(lives))
    }

    fn is_over(&self) -> bool {
        self.wire.lives.lock().unwrap().get(&self.to) != Some(&self.life)
    }
}

/// What the driver tells.
pub struct Server {
    number: u64,
    machine_run: u64,
    pub restart: Mutex<Option<String>>,
    pub elections: AtomicU64,
}

impl Host for Server {
    fn applied(&self, _: CommitSeq, _: &[AppliedChange]) -> std::result::Result<(), StorageError> {
        Ok(())
    }

    fn lead(&self) -> Result<()> {
        self.elections.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn restart(&self, why: &str) {
        *self.restart.lock().unwrap() = Some(why.to_owned());
    }

    fn machine_run(&self) -> String {
        self.machine_run.to_string()
    }

    fn is_self(&self, host: &str) -> bool {
        member_of(host) == self.number
    }

    fn aside(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

/// A process.
pub struct Process {
    pub workers: SeededWorkers,
    pub engine: Arc<PmLog>,
    pub member: Arc<Member>,
    pub server: Arc<Server>,
    pub committer: Arc<SetCommitter>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Process {
    /// Opens the disk.
    pub fn start(
        disk: &Emulator,
        dice: &Dice,
        wire: &Wire,
        number: u64,
        machine_run: u64,
    ) -> Result<Process> {
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            cache_bytes: 256 << 10,
            bytes_max: 512 * u64::from(SEGMENT_BYTES),
            read_threads: 0,
            mark_interval_bytes: 2048,
            sort_segments_min: 0,
            clock: Arc::new(VirtualClock),
            random: Arc::new(SeededRandom::new(dice.bits())),
            ..Options::default()
        };
        initial_sync::finish(disk, |prefix| install_copy(disk, prefix))
            .map_err(|error| kauri_base::Error::location(1, format!("finishing: {error}")))?;
        let engine = Arc::new(PmLog::open(Arc::new(disk.clone()), options)?);
        let workers = SeededWorkers::new(1)?;
        let worker = workers.executor().workers()[0].clone();
        let member = Member::new(SET);
        let (restart, elections) = (Mutex::default(), AtomicU64::new(0));
        let server = Arc::new(Server { number, machine_run, restart, elections });
        let driver = Driver::new(Parts {
            member: member.clone(),
            engine: engine.clone(),
            directory: Arc::new(disk.clone()),
            host: server.clone(),
            dial: Arc::new(Dialer { wire: wire.clone(), from: number }),
            log_bytes: wire.log_bytes,
            worker: worker.clone(),
            clock: Arc::new(VirtualClock),
            random: Arc::new(SeededRandom::new(dice.bits())),
        })?;
        worker.spawn(driver.run());
        let failure = Arc::<Mutex<Option<String>>>::default();
        worker.spawn(maintain(engine.clone(), worker.clone(), dice.fork(), failure.clone()));
        let (flushed, told) = (engine.clone(), member.clone());
        workers.executor().on_tick_end(Arc::new(move || {
            flushed.flush();
            if let Some(newest) = flushed.newest() {
                told.note_visible(newest.seq);
            }
        }));
        let statements = member.statements().clone();
        let committer = SetCommitter::new(engine.clone(), statements, Arc::new(VirtualClock));
        let committer = Arc::new(committer);
        Ok(Process { workers, engine, member, server, committer, failure })
    }

    /// What went wrong.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap().clone()
    }
}

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
            let text = format!("maintenance: {error}");
            failure.lock().unwrap().get_or_insert(text);
            return;
        }
    }
}
