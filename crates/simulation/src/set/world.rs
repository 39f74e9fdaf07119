//! A run: from a seed to what was wrong with it.

use super::client::{self, Client};
use super::definitions::{self, Definitions};
use super::process::{Clocks, Process, SET, Start, Wire, host_of, lock};
use super::settle::{self, Told};
use super::shared::{Counts, Shared};
use super::workload::{self, CAUSAL, Own};
use kauri_base::virtual_time;
use kauri_bson::{DocBuf, Value, doc};
use kauri_consistency::cycles::{Order, Promise};
use kauri_consistency::lists::{self, Fault, Step, Transaction};
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_member::MemberState;
use kauri_replication::simulated::{Network, Weather};
use kauri_storage::StorageEngine;
use kauri_testkit::Dice;
use kauri_transport::SeededWorkers;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;
/// How long there are faults.
const FAULTS_NS: u64 = 10 * SECOND_NS;
/// How long everything may take to be well again.
const HEALING_NS: u64 = 20 * SECOND_NS;
/// How long a set that is well may take to accept a write.
const LIVELY_NS: u64 = 10 * SECOND_NS;
/// Turns after which a run has no end.
const TURNS_MAX: u64 = 5_000_000;

/// The outcome of a run.
pub struct Outcome {
    /// What was wrong.
    pub faults: Vec<String>,
    /// What was met.
    pub counts: Counts,
    /// A hash of every turn and every reply: two runs of one seed have the same.
    pub hash: u64,
}

struct Node {
    disk: Emulator,
    process: Option<Process>,
    life: u64,
    machine_run: u64,
    clock: Arc<Clocks>,
    is_arbiter: bool,
    paused_until_ns: u64,
    down_until_ns: u64,
}

struct World {
    dice: Dice,
    nodes: BTreeMap<u64, Node>,
    wire: Wire,
    clients: SeededWorkers,
    shared: Arc<Shared>,
    own: Vec<Arc<Mutex<Own>>>,
    definitions: Arc<Mutex<Definitions>>,
    turns: u64,
    next_fault_ns: u64,
    has_faults: bool,
}

/// Runs the world of a seed.
pub fn run(seed: u64) -> Outcome {
    virtual_time::begin(seed);
    let mut world = World::new(seed);
    let mut faults = Vec::new();
    // A run that is cut short knows only a part of the history.
    let history = match world.run() {
        Ok(()) => world.shared.history(),
        Err(fault) => {
            faults.push(fault);
            Vec::new()
        }
    };
    faults.extend(world.shared.faults().into_iter().take(3));
    let order = |at: usize| match history.get(at) {
        Some(of) if of.client >= CAUSAL && of.client < 2 * CAUSAL => Order::Session,
        _ => Order::RealTime,
    };
    let found = lists::check_each(&history, Promise::STRICT_SERIALIZABLE, order);
    faults.extend(found.iter().take(3).map(|fault| explain(fault, &history)));
    let (counts, hash) = (world.shared.counts(), world.shared.hash());
    world.end();
    virtual_time::end();
    Outcome { faults, counts, hash }
}

/// A fault of a history, with the transactions that it is about.
fn explain(fault: &Fault, history: &[Transaction]) -> String {
    let value = match fault {
        Fault::Duplicate { value, .. } | Fault::Lost { value, .. } => Some(*value),
        _ => None,
    };
    let appends = |step: &Step| matches!(step, Step::Append(_, of) if Some(*of) == value);
    let writer = history.iter().find(|of| of.steps.iter().any(appends));
    format!("{fault:?}; {writer:?}")
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
        let dice = Dice::new(seed);
        let members = dice.pick(&[1, 3, 3, 3, 3, 3, 4, 5]).copied().unwrap_or(3);
        let has_arbiter = members > 2 && dice.percent(20);
        let network = Arc::new(Mutex::new(Network::new(dice.bits())));
        let log_bytes =
            dice.pick(&[1 << 16, 1 << 18, 1 << 20, 1 << 40]).copied().unwrap_or(1 << 18);
        let wire = Wire { network, lives: Arc::default(), log_bytes };
        let nodes = (1..=members).map(|number| {
            let node = Node {
                disk: Emulator::new(draw_disk(&dice)),
                process: None,
                life: 0,
                machine_run: 1,
                clock: Arc::default(),
                is_arbiter: has_arbiter && number == members,
                paused_until_ns: 0,
                down_until_ns: 0,
            };
            (number, node)
        });
        World {
            nodes: nodes.collect(),
            wire,
            clients: SeededWorkers::new(1).unwrap_or_else(|error| panic!("{error}")),
            shared: Arc::default(),
            own: Vec::new(),
            definitions: Arc::default(),
            turns: 0,
            next_fault_ns: 0,
            has_faults: false,
            dice,
        }
    }

    fn config(&self) -> DocBuf {
        let members = self.nodes.iter().map(|(number, node)| {
            Value::from(doc! {
                "_id" => (*number - 1) as i32, "host" => host_of(*number),
                "arbiterOnly" => node.is_arbiter, "priority" => i32::from(!node.is_arbiter),
            })
        });
        doc! { "_id" => SET, "version" => 1, "members" => Value::array(members) }
    }

    fn client(&self, number: u64, patience: Duration) -> Option<Client> {
        let worker = self.clients.executor().workers().first()?;
        Some(Client::new(number, &self.shared, worker, self.dice.fork(), patience))
    }

    /// Runs a program to its end.
    fn complete<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &mut self,
        program: impl FnOnce(Client) -> F,
    ) -> Result<T, String> {
        let client = self.client(99, Duration::from_secs(10)).ok_or("no worker for clients")?;
        let outcome = Arc::new(Mutex::new(None));
        let (told, program) = (outcome.clone(), program(client));
        let worker = self.clients.executor().workers().first().cloned();
        worker.ok_or("no worker for clients")?.spawn(async move {
            let result = program.await;
            *lock(&told) = Some(result);
        });
        loop {
            if let Some(result) = lock(&outcome).take() {
                return Ok(result);
            }
            self.turn()?;
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for number in self.numbers() {
            self.start(number)?;
        }
        let config = doc! { "replSetInitiate" => self.config() };
        let begun = self.complete(|mut client| async move {
            client.ask(1, "admin", &config).await.filter(|reply| client::code(reply) != 0)
        })?;
        if let Some(refused) = begun {
            return Err(format!("replSetInitiate: {}", client::text(&refused)));
        }
        self.until(20 * SECOND_NS, "the set has no leader", |world| world.leader().is_some())?;
        self.complete(|mut client| async move { workload::prepares(&mut client).await })??;
        self.shared.set_copies(self.with_data().len() as u64);
        self.start_clients();
        self.has_faults = true;
        let end = now_ns() + FAULTS_NS;
        while now_ns() < end {
            self.turn()?;
        }
        self.heal()?;
        self.settle()
    }

    fn start_clients(&mut self) {
        for number in 0..6 {
            let patience = Duration::from_millis(300 + self.dice.below(2_000));
            let Some(mut client) = self.client(number, patience) else { return };
            let (own, definitions) = (Arc::<Mutex<Own>>::default(), self.definitions.clone());
            if (2..=3).contains(&number) {
                self.own.push(own.clone());
            }
            let (shared, worker) = (self.shared.clone(), client.worker.clone());
            shared.begin_program();
            worker.spawn(async move {
                match number {
                    0 | 1 => workload::lists(&mut client).await,
                    2 | 3 => {
                        let mut mine = Own::new();
                        workload::own(&mut client, &mut mine).await;
                        *lock(&own) = mine;
                    }
                    4 => workload::streams(&mut client).await,
                    _ => {
                        let mut mine = Definitions::new();
                        definitions::defines(&mut client, &mut mine).await;
                        *lock(&definitions) = mine;
                    }
                }
                shared.end_program();
            });
        }
        if let Some(mut client) = self.client(50, Duration::from_secs(2)) {
            let worker = client.worker.clone();
            worker.spawn(async move { workload::operates(&mut client).await });
        }
    }

    fn numbers(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    fn with_data(&self) -> Vec<u64> {
        let data = self.nodes.iter().filter(|(_, node)| !node.is_arbiter);
        data.map(|(number, _)| *number).collect()
    }

    fn leader(&self) -> Option<u64> {
        let leads = |node: &Node| node.process.as_ref().is_some_and(|of| of.member.is_writable());
        self.nodes.iter().find(|(_, node)| leads(node)).map(|(number, _)| *number)
    }

    fn start(&mut self, number: u64) -> Result<(), String> {
        let dice = self.dice.fork();
        let Some(node) = self.nodes.get_mut(&number) else { return Ok(()) };
        node.life += 1;
        let start = Start {
            disk: &node.disk,
            dice: &dice,
            wire: &self.wire,
            number,
            machine_run: node.machine_run,
            clock: &node.clock,
        };
        let process = Process::start(&start);
        let process =
            process.map_err(|error| format!("member {number} does not start: {error}"))?;
        self.shared.set_door(number, Some(process.door.clone()));
        lock(&self.wire.lives).insert(number, node.life);
        node.process = Some(process);
        Ok(())
    }

    /// The process ends. With its power, if that is lost.
    fn kill(&mut self, number: u64, loses_power: bool) {
        let bits = self.dice.bits();
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let Some(process) = node.process.take() else { return };
        let events = node.disk.events();
        let disk = match loses_power {
            true => node.disk.crash_seeded(events, bits),
            false => node.disk.process_death_at(events, usize::MAX),
        };
        self.shared.count(if loses_power { "power losses" } else { "deaths" });
        if process.asides.load(Ordering::Relaxed) > 0 {
            self.shared.count("work aside");
        }
        self.shared.set_door(number, None);
        process.die();
        node.disk = disk;
        node.machine_run += u64::from(loses_power);
        node.paused_until_ns = 0;
        lock(&self.wire.lives).remove(&number);
    }

    /// One turn of a ready worker; without one, time advances.
    fn turn(&mut self) -> Result<(), String> {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            return Err(format!("the run has no end: {}", self.describe()));
        }
        self.deliver();
        self.look_after()?;
        let now = now_ns();
        if self.has_faults && now >= self.next_fault_ns {
            self.next_fault_ns = now + SECOND_NS / 10 + self.dice.below(2 * SECOND_NS);
            self.fault();
        }
        let awake = |node: &&Node| node.paused_until_ns <= now;
        let all = self.nodes.values().filter(awake).filter_map(|node| node.process.as_ref());
        let mut processes: Vec<&SeededWorkers> = all.map(|process| &process.workers).collect();
        processes.push(&self.clients);
        let ready: Vec<(usize, usize)> = processes
            .iter()
            .enumerate()
            .flat_map(|(at, workers)| workers.ready().map(move |worker| (at, worker)))
            .collect();
        let Some((at, worker)) = self.dice.pick(&ready).copied() else {
            let timers = processes.iter().map(|of| of.next_deadline_ns());
            let paused = self.nodes.values().map(|node| node.paused_until_ns);
            let down = self.nodes.values().map(|node| node.down_until_ns);
            let others = paused.chain(down).filter(|at| *at > now);
            let arrival = lock(&self.wire.network).next_ns();
            let fault = Some(self.next_fault_ns).filter(|_| self.has_faults);
            let next = timers.chain(others).chain(arrival).chain(fault).min();
            let Some(next) = next.filter(|next| *next < u64::MAX) else {
                return Err("nobody has anything to do".to_owned());
            };
            virtual_time::advance_to(next);
            return Ok(());
        };
        let (dice, of) = (&self.dice, processes.get(at));
        let polls =
            of.map_or(0, |of| of.turn(worker, &mut |below| dice.below(below as u64) as usize));
        for word in [(at as u64) << 32 | worker as u64, polls, now_ns()] {
            self.shared.mix(&word.to_le_bytes());
        }
        Ok(())
    }

    fn deliver(&mut self) {
        let now = now_ns();
        loop {
            let arrival = lock(&self.wire.network).receive(now);
            let Some(arrival) = arrival else { return };
            let Some(node) = self.nodes.get(&arrival.to) else { continue };
            if node.paused_until_ns > now {
                let until = node.paused_until_ns;
                lock(&self.wire.network).postpone(until, arrival);
            } else if let Some(process) = &node.process {
                process.deliver(arrival.from, &arrival.message);
            }
        }
    }

    /// Starts what is down long enough, and what wants to begin again.
    fn look_after(&mut self) -> Result<(), String> {
        let now = now_ns();
        for number in self.numbers() {
            let Some(node) = self.nodes.get(&number) else { continue };
            let Some(process) = &node.process else {
                if node.down_until_ns <= now {
                    self.start(number)?;
                }
                continue;
            };
            let restart = lock(&process.restart).take();
            if process.member.failures() > 0 {
                return Err(format!("member {number} stands still: {}", self.describe()));
            }
            if let Some(failure) = process.failure().filter(|_| restart.is_none()) {
                return Err(format!("member {number}: {failure}"));
            }
            if process.member.view().is_too_stale && self.may_wipe(number) {
                // What the member's log says is to be done.
                self.wipe(number, now);
                continue;
            }
            if let Some(why) = restart {
                match &*why {
                    why if why.starts_with("the initial sync") => self.shared.count("copies"),
                    why if why.starts_with("writes that") => self.shared.count("restarts"),
                    why => return Err(format!("member {number}: {why}")),
                }
                self.kill(number, false);
                self.start(number)?;
            }
        }
        Ok(())
    }

    fn fault(&mut self) {
        let numbers = self.numbers();
        let Some(number) = self.dice.pick(&numbers).copied() else { return };
        let long = now_ns() + self.dice.below(3 * SECOND_NS);
        match self.dice.below(11) {
            0..=2 => self.kill_for(number, self.dice.percent(40), long),
            3 => {
                // The power of all, or of a majority.
                let all = self.dice.percent(50);
                let count = if all { numbers.len() } else { numbers.len() / 2 + 1 };
                numbers.into_iter().take(count).for_each(|of| self.kill_for(of, true, long));
            }
            4 if self.dice.percent(60) => {
                self.shared.count("pauses");
                self.nodes.get_mut(&number).into_iter().for_each(|of| of.paused_until_ns = long);
            }
            4 => self.wipe(number, long),
            5 | 6 => self.cut(number),
            7 => {
                let weather = Weather {
                    delay_ns: (50_000, 50_000 + self.dice.below(20_000_000)),
                    lost_percent: self.dice.below(20),
                    duplicated_percent: self.dice.below(20),
                    late_percent: self.dice.below(20),
                    late_ns_max: 500_000_000,
                };
                lock(&self.wire.network).set_weather(weather);
            }
            8 => {
                // Executed statements are known for half an hour of this clock.
                let range = if self.dice.percent(80) { 5_000 } else { 600_000 };
                let ahead = self.dice.below(2 * range) as i64 - range as i64;
                self.shared.count("clock jumps");
                let node = self.nodes.get(&number);
                node.into_iter().for_each(|of| of.clock.ahead_ms.store(ahead, Ordering::Relaxed));
            }
            _ => self.mend(),
        }
    }

    fn kill_for(&mut self, number: u64, loses_power: bool, until_ns: u64) {
        self.kill(number, loses_power);
        self.nodes.get_mut(&number).into_iter().for_each(|of| of.down_until_ns = until_ns);
    }

    fn cut(&self, number: u64) {
        let others: Vec<u64> = self.numbers().into_iter().filter(|of| *of != number).collect();
        let mut network = lock(&self.wire.network);
        match self.dice.below(3) {
            0 => network.partition(&[vec![number], others]),
            1 => others.iter().for_each(|other| network.cut(number, *other)),
            _ => {
                let (one, two) = others.split_at(others.len() / 2);
                network.partition(&[[one, &[number]].concat(), [two, &[number]].concat()]);
            }
        }
        drop(network);
        self.shared.count("partitions");
    }

    /// Whether a member's disk may be emptied: one at a time, the set promises to survive that.
    fn may_wipe(&self, number: u64) -> bool {
        let range = |process: &Process| {
            process.engine.replicated_log().map(|log| log.frames()).unwrap_or_default()
        };
        let processes = || self.nodes.values().filter_map(|node| node.process.as_ref());
        let last = processes().map(|process| range(process).last.index).max().unwrap_or_default();
        let is_whole = |process: &Process| {
            let state = process.member.view().state;
            // One that was cut off for long is as good as none, and may not know that.
            let follows = range(process).last.index + 8 >= last;
            follows
                && matches!(
                    state,
                    MemberState::Primary | MemberState::Secondary | MemberState::Arbiter
                )
        };
        let others = self.nodes.iter().filter(|(other, _)| **other != number);
        let whole = others.filter(|(_, node)| node.process.as_ref().is_some_and(is_whole)).count();
        let process = self.nodes.get(&number).and_then(|node| node.process.as_ref());
        let is_stale = process.is_some_and(|process| process.member.view().is_too_stale);
        // One that is as good as lost already needs a majority without it.
        let others = self.nodes.len() - 1;
        let needed = if is_stale { (others / 2 + 1).min(others) } else { others };
        others >= 2 && whole >= needed
    }

    /// A member's disk is emptied.
    fn wipe(&mut self, number: u64, down_until_ns: u64) {
        if !self.may_wipe(number) {
            return;
        }
        self.kill(number, false);
        self.shared.count("wiped");
        let config = draw_disk(&self.dice);
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.disk = Emulator::new(config);
        node.down_until_ns = down_until_ns;
    }

    fn mend(&self) {
        let mut network = lock(&self.wire.network);
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
                format!(
                    "{number}: {:?} of {:?} in {}, {log:?}",
                    view.state, view.primary, view.term
                )
            }
            None => format!("{number}: down"),
        };
        self.nodes.iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// No more faults: the set is to accept writes soon.
    fn heal(&mut self) -> Result<(), String> {
        self.has_faults = false;
        self.mend();
        for node in self.nodes.values_mut() {
            node.down_until_ns = 0;
            node.paused_until_ns = 0;
            node.clock.ahead_ms.store(0, Ordering::Relaxed);
        }
        let before = self.shared.counted("appends");
        self.until(LIVELY_NS, "no write is accepted after all is well", |world| {
            world.shared.counted("appends") > before
        })
    }

    /// Clients end, and all members are to tell the same.
    fn settle(&mut self) -> Result<(), String> {
        self.shared.set_over(true);
        self.until(HEALING_NS, "clients do not end", |world| world.shared.running() == 0)?;
        self.until(HEALING_NS, "members have no primary", |world| world.leader().is_some())?;
        let leader = self.leader().unwrap_or(1);
        self.complete(move |mut client| async move {
            settle::wait_for_expiry(&mut client, leader).await
        })??;
        self.until(HEALING_NS, "the members are not equal", World::is_even)?;
        let mut told: BTreeMap<u64, Told> = BTreeMap::new();
        for number in self.with_data() {
            let tells = self.complete(move |mut client| async move {
                settle::tells(&mut client, number).await
            })??;
            told.insert(number, tells);
        }
        let all = || told.iter();
        for ((one, first), (other, second)) in all().zip(all().skip(1)) {
            if let Some(difference) = settle::difference(first, second) {
                return Err(format!("members {one} and {other} differ: {difference}"));
            }
        }
        if let Some(told) = told.values().next() {
            settle::check_definitions(told, &lock(&self.definitions))?;
        }
        for own in self.own.clone() {
            let own = lock(&own).clone();
            self.complete(move |mut client| async move {
                settle::check_own(&mut client, leader, &own).await
            })??;
        }
        self.complete(
            move |mut client| async move { settle::read_lists(&mut client, leader).await },
        )?
    }

    /// Whether all members with data have applied the same.
    fn is_even(&self) -> bool {
        let places: Vec<_> = self
            .with_data()
            .into_iter()
            .map(|number| {
                let process = self.nodes.get(&number)?.process.as_ref()?;
                let log = process.engine.replicated_log().ok()?;
                let state = process.member.view().state;
                let is_well = matches!(state, MemberState::Primary | MemberState::Secondary);
                is_well.then(|| (log.frames().last, log.applied(), process.engine.visible()))
            })
            .collect();
        let first = places.first().copied().flatten();
        first.is_some_and(|first| first.0 == first.1 && places.iter().all(|of| *of == Some(first)))
    }

    fn end(mut self) {
        for number in self.numbers() {
            self.shared.set_door(number, None);
            let process = self.nodes.get_mut(&number).and_then(|node| node.process.take());
            process.into_iter().for_each(Process::die);
        }
        self.clients.die();
    }
}
