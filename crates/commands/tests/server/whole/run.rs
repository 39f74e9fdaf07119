//! The threads of a run, and the replies that each of them accepts.

use crate::common::{Client, TestClock, TestServer, at, code_of, cursor_id, first_batch, show};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{DocBuf, doc};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// `QueryPlanKilled`.
const KILLED: i64 = 175;
/// Longer than a time slice, so that a running operation yields.
const STEP: Duration = Duration::from_millis(6);

/// The action that a thread repeats.
pub type Step = fn(&Run, &Actor);

/// One thread's connection and random numbers.
pub struct Actor {
    pub client: Client,
    random: SeededRandom,
}

impl Actor {
    /// A number below `limit`.
    pub fn dice(&self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }
}

/// See the module's head.
pub struct Run {
    clock: Arc<TestClock>,
    connect: Box<dyn Fn() -> Client + Sync>,
    seed: u64,
    reads_wanted: u64,
    reads: AtomicU64,
    /// Reads whose cursor had given rows when it was killed.
    killed: AtomicU64,
    /// Commands whose planning failed on every attempt.
    gave_up: AtomicU64,
    changes: AtomicU64,
    stop: AtomicBool,
    pub swapped: super::swapped::Generations,
    pub written: Mutex<super::writers::Model>,
}

/// Stops the other threads when a thread fails.
struct StopAll<'r>(&'r AtomicBool);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

impl Run {
    pub fn new(test: &Arc<TestServer>, seed: u64, reads_wanted: u64) -> Run {
        let server = test.clone();
        Run {
            clock: test.clock.clone(),
            connect: Box::new(move || server.client()),
            seed,
            reads_wanted,
            reads: AtomicU64::new(0),
            killed: AtomicU64::new(0),
            gave_up: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            swapped: Default::default(),
            written: Default::default(),
        }
    }

    pub fn client(&self) -> Client {
        (self.connect)()
    }

    /// Runs all steps, each on its own thread, until the readers have done enough reads.
    pub fn all(&self, readers: &[Step], others: &[Step]) {
        let actor = |number: usize| Actor {
            client: self.client(),
            random: SeededRandom::new(self.seed * 1000 + number as u64),
        };
        let is_stopped = || self.stop.load(Ordering::Acquire);
        let enough = || self.reads.load(Ordering::Relaxed) >= self.reads_wanted;
        std::thread::scope(|scope| {
            for (number, step) in others.iter().enumerate() {
                let actor = actor(100 + number);
                scope.spawn(move || {
                    let _stop = StopAll(&self.stop);
                    while !is_stopped() {
                        step(self, &actor);
                    }
                });
            }
            let all: Vec<_> = readers
                .iter()
                .enumerate()
                .map(|(number, step)| {
                    let actor = actor(number);
                    scope.spawn(move || {
                        let _stop = StopAll(&self.stop);
                        while !is_stopped() && !enough() {
                            step(self, &actor);
                            self.reads.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for reader in all {
                let _ = reader.join();
            }
            self.stop.store(true, Ordering::Release);
        });
    }

    /// A command's reply, successful or not. Advances the time.
    pub fn answer(&self, actor: &Actor, command: &DocBuf) -> DocBuf {
        self.clock.advance(STEP);
        actor.client.run(command)
    }

    /// A reply that must succeed; `None` if every plan was killed.
    #[track_caller]
    pub fn read(&self, actor: &Actor, command: &DocBuf) -> Option<DocBuf> {
        let reply = self.answer(actor, command);
        match code_of(&reply) {
            0 => Some(reply),
            KILLED => {
                self.gave_up.fetch_add(1, Ordering::Relaxed);
                None
            }
            _ => panic!("{} -> {}", show(command), show(&reply)),
        }
    }

    /// All rows of a cursor, in batches; `None` if it was killed.
    #[track_caller]
    pub fn rows(&self, actor: &Actor, command: &DocBuf) -> Option<Vec<DocBuf>> {
        let opened = self.read(actor, command)?;
        let (mut rows, mut id) = (first_batch(&opened), cursor_id(&opened));
        let ns = at(&opened, "cursor").as_doc().value("ns").as_str().unwrap().to_owned();
        let collection = ns.split_once('.').unwrap().1;
        while id != 0 {
            let size = 1 + actor.dice(100) as i64;
            let more = doc! { "getMore" => id, "collection" => collection, "batchSize" => size };
            let reply = self.answer(actor, &more);
            match code_of(&reply) {
                0 => {}
                KILLED => {
                    self.killed.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
                _ => panic!("{} -> {}", show(&more), show(&reply)),
            }
            let cursor = at(&reply, "cursor");
            let batch = cursor.as_doc().value("nextBatch");
            rows.extend(batch.as_array().unwrap().iter().map(|e| e.as_doc().unwrap().to_buf()));
            id = cursor_id(&reply);
        }
        Some(rows)
    }

    /// A definition change that succeeds or fails with one of these codes. Returns whether it succeeded.
    #[track_caller]
    pub fn change(&self, actor: &Actor, command: &DocBuf, codes: &[i64]) -> bool {
        self.change_on(&actor.client, command, codes)
    }

    /// The same on this connection.
    #[track_caller]
    pub fn change_on(&self, client: &Client, command: &DocBuf, codes: &[i64]) -> bool {
        self.clock.advance(STEP);
        let reply = client.run(command);
        let code = code_of(&reply);
        assert!(code == 0 || codes.contains(&code), "{} -> {}", show(command), show(&reply));
        self.changes.fetch_add(u64::from(code == 0), Ordering::Relaxed);
        code == 0
    }

    /// Fails if the run proves nothing: too few events, or too many commands given up.
    pub fn report(&self) {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (reads, changes) = (load(&self.reads), load(&self.changes));
        let (killed, gave_up) = (load(&self.killed), load(&self.gave_up));
        println!(
            "{reads} reads beside {changes} changes of definitions: {killed} cursors killed, {gave_up} \
             commands given up"
        );
        assert!(changes > 50 && killed > 0, "nothing happened: {changes} changes, {killed} killed");
        assert!(gave_up * 100 <= reads, "{gave_up} commands of {reads} found no plan that lasted");
    }
}
