//! A run: from a seed to what was wrong with it.

mod crashes;
mod delayed;
mod reconfigurations;
mod scenarios;
mod settings;

pub use crashes::{
    come_back_to_strangers, copy_slowly, cut_off_while_purging, die_while_reconfiguring, purge_fast,
};
pub use delayed::delayed;
pub use scenarios::{force, force_five, gather, retry_after_purge, step_down_among_writes};
pub use settings::{answer_after_view, slower_elections};

use crate::client::{self, LISTS, Target};
use crate::node::{Process, SET, Wire, host_of};
use kauri_base::{RecordId, virtual_time};
use kauri_consistency::cycles::Promise;
use kauri_consistency::lists::{self, Transaction};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_member::acks::Concern;
use kauri_member::stored::StateFile;
use kauri_member::{MemberConfig, MemberState, Request, SetConfig};
use kauri_replication::simulated::{Network, Weather};
use kauri_storage::{LogPosition, StorageEngine};
use kauri_testkit::{Dice, model::Model};
use kauri_transport::{SeededWorkers, WorkerHandle};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const SECOND_NS: u64 = 1_000_000_000;
/// How long there are faults.
const FAULTS_NS: u64 = 15 * SECOND_NS;
/// How long everything may take to be well again.
const HEALING_NS: u64 = 20 * SECOND_NS;
const CLIENTS: u64 = 4;

macro_rules! counts {
    ($($(#[doc = $doc:literal])? $name:ident,)*) => {
        /// What was met in a run.
        #[derive(Default, Debug, Clone)]
        pub struct Counts { $($(#[doc = $doc])? pub $name: u64,)* }

        impl Counts {
            pub fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }

            /// What was not met.
            pub fn missing(&self) -> Vec<&'static str> {
                let all = [$((stringify!($name), self.$name)),*];
                all.into_iter().filter(|of| of.1 == 0).map(|of| of.0).collect()
            }
        }
    };
}

counts! {
    appends,
    reads,
    elections,
    restarts,
    deaths,
    power_losses,
    step_downs,
    partitions,
    /// Appends that were sent again.
    retries,
    /// Those that had been executed.
    answered,
    wiped,
    times,
    /// Initial syncs that were completed.
    copies,
    /// Members whose log has lost its beginning at the end.
    purged,
    /// Acknowledged changes of the configuration, by what they change.
    added,
    removed,
    arbiters,
    votes,
    hidden,
    priorities,
    /// Members that were removed before.
    returned,
    /// Pairs of different configurations, of which one was acknowledged.
    competing,
    /// Leaders that were cut off or killed after a configuration was proposed to them.
    doomed,
    /// Configurations that were refused, or whose outcome nobody was told.
    unfinished,
}

/// The outcome of a run.
pub struct Outcome {
    pub faults: Vec<String>,
    pub counts: Counts,
    pub hash: u64,
}

/// What clients share with the world.
#[derive(Default)]
pub struct Shared {
    targets: Mutex<Vec<Arc<Target>>>,
    history: Mutex<Vec<Transaction>>,
    counts: Mutex<Counts>,
    faults: Mutex<Vec<String>>,
    clock: AtomicU64,
    values: AtomicU64,
    over: AtomicBool,
    /// No more faults.
    is_healing: AtomicBool,
    changes: reconfigurations::Changes,
}

impl Shared {
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn next_value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn note(&self, transaction: Transaction) {
        self.history.lock().unwrap().push(transaction);
    }

    pub fn fault(&self, text: String) {
        self.faults.lock().unwrap().push(text);
    }

    pub fn count(&self, of: impl FnOnce(&mut Counts)) {
        of(&mut self.counts.lock().unwrap());
    }

    /// A member that runs.
    pub fn target(&self, dice: &Dice) -> Option<Arc<Target>> {
        dice.pick(&self.targets.lock().unwrap()).cloned()
    }
}

struct Node {
    disk: Emulator,
    process: Option<Process>,
    life: u64,
    machine_run: u64,
    paused_until_ns: u64,
    down_until_ns: u64,
    /// That of its member's view when it was looked at.
    topology: i64,
}

impl Node {
    fn new(disk: Emulator) -> Node {
        Node {
            disk,
            process: None,
            life: 0,
            machine_run: 1,
            paused_until_ns: 0,
            down_until_ns: 0,
            topology: -1,
        }
    }
}

struct World {
    dice: Dice,
    nodes: BTreeMap<u64, Node>,
    wire: Wire,
    clients: SeededWorkers,
    shared: Arc<Shared>,
    hash: u64,
    turns: u64,
    next_fault_ns: u64,
    has_faults: bool,
    has_changes: bool,
    /// The newest configuration that a member knows.
    newest: SetConfig,
    /// Who has led, by term.
    leaders: BTreeMap<i64, u64>,
    doom: Option<reconfigurations::Doom>,
    /// The place of a member whose readers see the past.
    delayed: Option<usize>,
}

/// Runs the world of a seed.
pub fn run(seed: u64) -> Outcome {
    virtual_time::begin(seed);
    let mut world = World::new(seed);
    let mut faults = Vec::new();
    if let Err(fault) = world.run() {
        faults.push(fault);
    }
    faults.extend(world.shared.faults.lock().unwrap().iter().take(3).cloned());
    let history = world.shared.history.lock().unwrap().clone();
    let promise = Promise::STRICT_SERIALIZABLE;
    for fault in lists::check(&history, promise).into_iter().take(3) {
        faults.push(format!("{fault:?}"));
    }
    let counts = world.shared.counts.lock().unwrap().clone();
    let hash = world.hash;
    world.end();
    virtual_time::end();
    Outcome { faults, counts, hash }
}

fn draw_disk(dice: &Dice) -> EmulatorConfig {
    match dice.below(3) {
        0 => EmulatorConfig::persistent_memory(),
        1 => EmulatorConfig { staging: true, ..EmulatorConfig::default() },
        _ => EmulatorConfig::default(),
    }
}

fn now_ns() -> u64 {
    virtual_time::peek_ns()
}

impl World {
    fn new(seed: u64) -> World {
        let members = Dice::new(!seed).pick(&[1, 3, 3, 3, 5]).copied().unwrap_or(3);
        let mut world = World::of(seed, members);
        world.delayed = (members > 1 && seed.is_multiple_of(4)).then_some(members as usize - 1);
        world
    }

    fn of(seed: u64, members: u64) -> World {
        let dice = Dice::new(seed);
        let network = Arc::new(Mutex::new(Network::new(dice.bits())));
        let log_bytes =
            dice.pick(&[1 << 16, 1 << 18, 1 << 20, 1 << 40]).copied().unwrap_or(1 << 18);
        let wire = Wire { network, lives: Arc::default(), log_bytes };
        let nodes =
            (1..=members).map(|number| (number, Node::new(Emulator::new(draw_disk(&dice)))));
        World {
            nodes: nodes.collect(),
            wire,
            clients: SeededWorkers::new(1).unwrap_or_else(|error| panic!("{error}")),
            shared: Arc::default(),
            hash: seed,
            turns: 0,
            next_fault_ns: 0,
            has_faults: false,
            has_changes: false,
            newest: SetConfig { version: 0, ..SetConfig::alone(SET, &host_of(1), [7; 12]) },
            leaders: BTreeMap::new(),
            doom: None,
            delayed: None,
            dice,
        }
    }

    fn config(&self) -> SetConfig {
        let mut config = SetConfig::alone(SET, &host_of(1), [7; 12]);
        config.members = self
            .nodes
            .keys()
            .map(|number| MemberConfig::new((*number - 1) as u8, &host_of(*number)))
            .collect();
        if let Some(late) = self.delayed.and_then(|at| config.members.get_mut(at)) {
            (late.delay_secs, late.priority) = (3, 0.0);
        }
        config
    }

    /// Asks a member's driver.
    fn ask(&mut self, number: u64, request: Request) -> Result<(), String> {
        let member = self.nodes[&number].process.as_ref().expect("it runs").member.clone();
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        self.clients.executor().workers()[0].spawn(async move {
            let result = member.request(request).await;
            *told.lock().unwrap() = Some(result);
        });
        self.until(20 * SECOND_NS, "no answer", |_| answer.lock().unwrap().is_some())?;
        let result = answer.lock().unwrap().take();
        result.expect("an answer").map_err(|error| error.to_string())
    }

    fn run(&mut self) -> Result<(), String> {
        for number in self.numbers() {
            self.start(number)?;
        }
        let first = self.nodes[&1].process.as_ref().expect("it runs").member.clone();
        let worker = self.clients.executor().workers()[0].clone();
        let mut prepared = None;
        if self.dice.percent(30) {
            // The set begins with data.
            let target = self.target_of(1).expect("it runs");
            prepared = Some(client::prepare(&target).map_err(|error| format!("data: {error}"))?);
        }
        let (config, began) = (self.config(), Arc::new(Mutex::new(None)));
        let told = began.clone();
        worker.spawn(async move {
            let result = first.request(Request::Initiate(config)).await;
            *told.lock().unwrap() = Some(result);
        });
        self.until(20 * SECOND_NS, "the set has no leader", |world| world.leader().is_some())?;
        if let Some(Err(error)) = began.lock().unwrap().take() {
            return Err(format!("replSetInitiate: {error}"));
        }
        let leader = self.leader().expect("it leads");
        let target = self.target_of(leader).expect("it runs");
        let seq = match prepared {
            Some(seq) => seq,
            None => client::prepare(&target).map_err(|error| format!("the lists: {error}"))?,
        };
        self.until(20 * SECOND_NS, "the lists are not acknowledged", |_| {
            matches!(target.member.acknowledged(seq, &Concern::Majority), Ok(None))
        })?;
        for client in 0..CLIENTS {
            let (shared, dice) = (self.shared.clone(), self.dice.fork());
            worker.spawn(client::run(client, shared, worker.clone(), dice));
        }
        worker.spawn(client::ask_for_times(self.shared.clone(), worker.clone(), self.dice.fork()));
        worker.spawn(client::step_down(self.shared.clone(), worker.clone(), self.dice.fork()));
        // Changes of priorities do not know of a member that must have none.
        self.has_changes = self.dice.percent(70) && self.delayed.is_none();
        if self.has_changes {
            let (shared, dice) = (self.shared.clone(), self.dice.fork());
            worker.spawn(reconfigurations::reconfigure(shared, worker.clone(), dice));
        }
        self.has_faults = true;
        let end = now_ns() + FAULTS_NS;
        while now_ns() < end {
            self.turn()?;
        }
        self.heal()?;
        self.settle()
    }

    fn numbers(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    fn leader(&self) -> Option<u64> {
        let leads = |node: &Node| node.process.as_ref().is_some_and(|of| of.member.is_writable());
        self.nodes.iter().find(|(_, node)| leads(node)).map(|(number, _)| *number)
    }

    fn target_of(&self, number: u64) -> Option<Arc<Target>> {
        let process = self.nodes.get(&number)?.process.as_ref()?;
        let (member, engine) = (process.member.clone(), process.engine.clone());
        let committer = process.committer.clone();
        Some(Arc::new(Target { member, engine, committer }))
    }

    fn tell_targets(&self) {
        let targets = self.numbers().into_iter().filter_map(|number| self.target_of(number));
        *self.shared.targets.lock().unwrap() = targets.collect();
    }

    fn start(&mut self, number: u64) -> Result<(), String> {
        let dice = self.dice.fork();
        let node = self.nodes.get_mut(&number).expect("a member");
        node.life += 1;
        let process = Process::start(&node.disk, &dice, &self.wire, number, node.machine_run);
        let process =
            process.map_err(|error| format!("member {number} does not start: {error}"))?;
        node.process = Some(process);
        self.wire.lives.lock().unwrap().insert(number, node.life);
        self.tell_targets();
        Ok(())
    }

    /// The process ends. With its power, if that is lost.
    fn kill(&mut self, number: u64, loses_power: bool) {
        let bits = self.dice.bits();
        let node = self.nodes.get_mut(&number).expect("a member");
        let Some(process) = node.process.take() else { return };
        let events = node.disk.events();
        let disk = match loses_power {
            true => node.disk.crash_seeded(events, bits),
            false => node.disk.process_death_at(events, usize::MAX),
        };
        let elections = process.server.elections.load(Ordering::Relaxed);
        self.shared.count(|counts| {
            counts.elections += elections;
            counts.deaths += 1;
            counts.power_losses += u64::from(loses_power);
        });
        process.workers.die();
        node.disk = disk;
        node.machine_run += u64::from(loses_power);
        node.paused_until_ns = 0;
        self.wire.lives.lock().unwrap().remove(&number);
        self.tell_targets();
    }

    /// One turn of a ready worker; without one, time advances.
    fn turn(&mut self) -> Result<(), String> {
        self.turns += 1;
        self.deliver();
        self.watch()?;
        self.look_after()?;
        let now = now_ns();
        if self.has_faults && now >= self.next_fault_ns {
            self.next_fault_ns = now + SECOND_NS / 10 + self.dice.below(2 * SECOND_NS);
            self.fault();
        }
        let awake = |node: &&Node| node.paused_until_ns <= now;
        let all = self.nodes.values().filter(awake).filter_map(|node| node.process.as_ref());
        let mut workers: Vec<&SeededWorkers> = all.map(|process| &process.workers).collect();
        workers.push(&self.clients);
        let ready: Vec<usize> =
            (0..workers.len()).filter(|at| workers[*at].ready().next().is_some()).collect();
        let Some(at) = self.dice.pick(&ready).copied() else {
            let timers = workers.iter().map(|of| of.next_deadline_ns());
            let paused = self.nodes.values().map(|node| node.paused_until_ns);
            let down = self.nodes.values().map(|node| node.down_until_ns);
            let others = paused.chain(down).filter(|at| *at > now);
            let arrival = self.wire.network.lock().unwrap().next_ns();
            let fault = Some(self.next_fault_ns).filter(|_| self.has_faults);
            let next = timers.chain(others).chain(arrival).chain(fault).min();
            let Some(next) = next.filter(|next| *next < u64::MAX) else {
                return Err("nobody has anything to do".to_owned());
            };
            virtual_time::advance_to(next);
            return Ok(());
        };
        let dice = &self.dice;
        let polls = workers[at].turn(0, &mut |below| dice.below(below as u64) as usize);
        for word in [at as u64, polls, now_ns()] {
            self.hash = (self.hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(17);
        }
        Ok(())
    }

    fn deliver(&mut self) {
        let now = now_ns();
        loop {
            let arrival = self.wire.network.lock().unwrap().receive(now);
            let Some(arrival) = arrival else { return };
            let Some(node) = self.nodes.get(&arrival.to) else { continue };
            if node.paused_until_ns > now {
                let until = node.paused_until_ns;
                self.wire.network.lock().unwrap().postpone(until, arrival);
            } else if let Some(process) = &node.process {
                process.member.receive(&arrival.message);
            }
        }
    }

    /// Starts what is down long enough, and what wants to begin again.
    fn look_after(&mut self) -> Result<(), String> {
        let now = now_ns();
        for number in self.numbers() {
            let node = &self.nodes[&number];
            match &node.process {
                Some(process) => {
                    if process.member.view().is_too_stale && self.may_wipe(number) {
                        // What the member's log says is to be done.
                        self.wipe(number, now);
                        continue;
                    }
                    let process = self.nodes[&number].process.as_ref().expect("it runs");
                    if process.member.failures() > 0 {
                        return Err(format!("member {number} stands still: {}", self.describe()));
                    }
                    let restart = process.server.restart.lock().unwrap().take();
                    if let Some(failure) = process.failure().filter(|_| restart.is_none()) {
                        return Err(format!("member {number}: {failure}"));
                    }
                    if let Some(why) = restart {
                        let is_copy = why.starts_with("the initial sync");
                        if !is_copy && !why.starts_with("writes that") {
                            return Err(format!("member {number}: {why}"));
                        }
                        self.shared.count(|counts| match is_copy {
                            true => counts.copies += 1,
                            false => counts.restarts += 1,
                        });
                        self.kill(number, false);
                        self.start(number)?;
                    }
                }
                None if node.down_until_ns <= now => self.start(number)?,
                None => {}
            }
        }
        Ok(())
    }

    fn fault(&mut self) {
        let numbers = self.numbers();
        let Some(number) = self.dice.pick(&numbers).copied() else { return };
        let long = now_ns() + self.dice.below(3 * SECOND_NS);
        match self.dice.below(if self.has_changes { 12 } else { 9 }) {
            0 | 1 => {
                let loses_power = self.dice.percent(40);
                self.kill(number, loses_power);
                self.nodes.get_mut(&number).expect("a member").down_until_ns = long;
            }
            2 => {
                // The power of all.
                for number in numbers {
                    self.kill(number, true);
                    self.nodes.get_mut(&number).expect("a member").down_until_ns = long;
                }
            }
            3 if self.dice.percent(70) => {
                self.nodes.get_mut(&number).expect("a member").paused_until_ns = long;
            }
            3 => self.wipe(number, long),
            4 | 5 => {
                let others: Vec<u64> = numbers.iter().copied().filter(|of| *of != number).collect();
                let mut network = self.wire.network.lock().unwrap();
                match self.dice.below(3) {
                    0 => network.partition(&[vec![number], others]),
                    1 => others.iter().for_each(|other| network.cut(number, *other)),
                    _ => {
                        let half = others.len() / 2;
                        let (mut one, mut two) = (others[..half].to_vec(), others[half..].to_vec());
                        one.push(number);
                        two.push(number);
                        network.partition(&[one, two]);
                    }
                }
                drop(network);
                self.shared.count(|counts| counts.partitions += 1);
            }
            6 => {
                let weather = Weather {
                    delay_ns: (50_000, 50_000 + self.dice.below(20_000_000)),
                    lost_percent: self.dice.below(20),
                    duplicated_percent: self.dice.below(20),
                    late_percent: self.dice.below(20),
                    late_ns_max: 500_000_000,
                };
                self.wire.network.lock().unwrap().set_weather(weather);
            }
            9 | 10 => self.doom_a_leader(),
            11 => self.empty_a_removed_one(long),
            _ => self.mend(),
        }
    }

    /// Whether a member's disk may be emptied: one of the voters at a time, the set promises to survive that.
    fn may_wipe(&self, number: u64) -> bool {
        let Some(membership) = self.leader().and_then(|leader| self.membership(leader)) else {
            return false;
        };
        let named = self.named();
        let agree = named.iter().filter(|of| **of != number).all(|of| {
            let of = self.membership(*of);
            of.is_none_or(|of| of == membership)
        });
        if !agree || membership.is_joint() {
            return false;
        }
        if !membership.votes(number) {
            return true;
        }
        if !self.shared.changes.are_over(&self.newest, &membership) {
            return false;
        }
        let range = |process: &Process| {
            process.engine.replicated_log().map(|log| log.frames()).unwrap_or_default()
        };
        let processes = || self.nodes.values().filter_map(|node| node.process.as_ref());
        let last = processes().map(|process| range(process).last.index).max().unwrap_or_default();
        let is_whole = |other: &&u64| {
            let process = self.nodes.get(other).and_then(|node| node.process.as_ref());
            process.is_some_and(|process| {
                // One that was cut off for long is as good as none, and may not know that.
                let follows = range(process).last.index + 8 >= last;
                let state = process.member.view().state;
                let is_well = matches!(state, MemberState::Secondary | MemberState::Arbiter);
                follows && (is_well || state == MemberState::Primary)
            })
        };
        let others: Vec<u64> = membership.voters.into_iter().filter(|of| *of != number).collect();
        let whole = others.iter().filter(is_whole).count();
        let is_running =
            |number: &u64| self.nodes.get(number).is_some_and(|of| of.process.is_some());
        let process = self.nodes[&number].process.as_ref();
        let is_stale = process.is_some_and(|process| process.member.view().is_too_stale);
        // One that is as good as lost already needs a majority without it.
        let needed = if is_stale { (others.len() / 2 + 1).min(others.len()) } else { others.len() };
        others.len() >= 2 && whole >= needed && named.iter().all(is_running)
    }

    /// Somebody who was removed, and whom nobody counts, may come back with nothing.
    fn empty_a_removed_one(&mut self, down_until_ns: u64) {
        let named = self.named();
        let removed: Vec<u64> =
            self.numbers().into_iter().filter(|number| !named.contains(number)).collect();
        if let Some(number) = self.dice.pick(&removed).copied() {
            self.wipe(number, down_until_ns);
        }
    }

    /// A member's disk is emptied.
    fn wipe(&mut self, number: u64, down_until_ns: u64) {
        if !self.may_wipe(number) {
            return;
        }
        self.kill(number, false);
        self.shared.changes.wait();
        self.shared.count(|counts| counts.wiped += 1);
        let config = draw_disk(&self.dice);
        let node = self.nodes.get_mut(&number).expect("a member");
        node.disk = Emulator::new(config);
        node.down_until_ns = down_until_ns;
    }

    fn mend(&self) {
        let mut network = self.wire.network.lock().unwrap();
        network.heal();
        network.set_weather(Weather::FAIR);
    }

    fn until(
        &mut self,
        time_ns: u64,
        what: &str,
        done: impl Fn(&World) -> bool,
    ) -> Result<(), String> {
        let end = now_ns() + time_ns;
        while !done(self) {
            if now_ns() >= end {
                return Err(format!("{what}: {}", self.describe()));
            }
            self.turn()?;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let of = |(number, node): (&u64, &Node)| match &node.process {
            Some(process) => {
                let (view, log) = (process.member.view(), process.engine.replicated_log());
                let log = log.map(|log| (log.frames(), log.applied(), log.committed()));
                let log = log.map(|(frames, applied, committed)| {
                    let place = |of: LogPosition| format!("{}.{}", of.term, of.index);
                    let (purged, last) = (place(frames.purged), place(frames.last));
                    format!("{purged} to {last}, applied {}, committed {committed}", applied.index)
                });
                let version = view.config.as_ref().map(|of| (of.term, of.version));
                let of = self.membership(*number).map(|of| (of.voters, of.learners));
                format!(
                    "{number}: {:?} of {:?} in {}, {log:?}, {version:?}, {of:?}",
                    view.state, view.primary, view.term
                )
            }
            None => format!("{number}: down"),
        };
        let of_config = |of: &MemberConfig| {
            format!("{} votes {} priority {}", of.number(), of.votes, of.priority)
        };
        let named: Vec<String> = self.newest.members.iter().map(of_config).collect();
        let nodes: Vec<String> = self.nodes.iter().map(of).collect();
        format!("{}: {}", named.join(", "), nodes.join("; "))
    }

    /// No more faults: the set is to accept writes.
    fn heal(&mut self) -> Result<(), String> {
        self.has_faults = false;
        self.doom = None;
        self.shared.is_healing.store(true, Ordering::Relaxed);
        self.mend();
        for node in self.nodes.values_mut() {
            node.down_until_ns = 0;
            node.paused_until_ns = 0;
        }
        let before = self.shared.counts.lock().unwrap().appends;
        self.until(HEALING_NS, "no write is accepted after all is well", |world| {
            world.shared.counts.lock().unwrap().appends > before + 3
        })
    }

    /// Clients end, and all members are to have the same.
    fn settle(&mut self) -> Result<(), String> {
        self.shared.over.store(true, Ordering::Relaxed);
        let end = now_ns() + 2 * SECOND_NS;
        while now_ns() < end {
            self.turn()?;
        }
        self.agree()?;
        self.until(HEALING_NS, "the members are not equal", |world| {
            let places: Vec<_> = world
                .with_data()
                .iter()
                .map(|number| {
                    let engine = &world.nodes[number].process.as_ref()?.engine;
                    let log = engine.replicated_log().ok()?;
                    Some((log.frames().last, log.applied(), engine.newest()?.seq))
                })
                .collect();
            let first = places.first().cloned().flatten();
            first.is_some_and(|first| {
                first.0 == first.1 && places.iter().all(|place| *place == Some(first))
            })
        })?;
        self.be_quiet()?;
        self.agree()?;
        let mut models = Vec::new();
        for number in self.with_data() {
            let engine = &self.nodes[&number].process.as_ref().expect("it runs").engine;
            let purged = engine.replicated_log().map_or(0, |log| log.frames().purged.index);
            self.shared.count(|counts| counts.purged += u64::from(purged > 1));
            let model = Model::read(&**engine).map_err(|error| format!("{number}: {error}"))?;
            models.push(model);
        }
        for model in &models[1..] {
            if model.hash() != models[0].hash() {
                return Err(format!("members differ: {}", models[0].differences(model)));
            }
        }
        // The final reads.
        for key in 0..client::KEYS {
            let record = models[0]
                .stores()
                .get(&LISTS)
                .and_then(|store| store.records.get(&RecordId(key + 1)));
            let record = record.ok_or("a list is gone")?;
            let doc = kauri_bson::Doc::from_bytes(record).map_err(|error| error.to_string())?;
            let sent = self.shared.tick();
            let steps = vec![lists::Step::Read(key, Some(client::list_of(doc)))];
            let outcome = lists::Outcome::Committed(self.shared.tick());
            self.shared.note(Transaction { client: 1000, sent, outcome, steps });
        }
        Ok(())
    }

    fn end(mut self) {
        for number in self.numbers() {
            if let Some(process) = self.nodes.get_mut(&number).and_then(|node| node.process.take())
            {
                process.workers.die();
            }
        }
        self.clients.die();
    }
}
