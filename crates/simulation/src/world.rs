//! A run: from a seed to the outcome.

use crate::check;
use crate::client::Client;
use crate::history::{Death, History};
use crate::node::{Network, Node};
use crate::workload::{self, Produced};
use kauri_base::virtual_time;
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_testkit::Dice;
use kauri_transport::{SeededWorkers, WorkerHandle};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Turns after which a run has no end.
const TURNS_MAX: u64 = 3_000_000;
/// Turns between two deaths, at most.
const LIFE_TURNS_MAX: u64 = 10_000;
const DEATHS_MAX: u64 = 4;
const DEATH_IN_RECOVERY_PERCENT: u64 = 25;

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// A hash of every turn, every reply and every death: two runs of one seed have the same.
    pub hash: u64,
    /// The faults.
    pub faults: Vec<String>,
    /// Number of deaths.
    pub deaths: usize,
    /// Turns that workers had.
    pub turns: u64,
    /// Number of successful replies by kind of operation.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Runs the world of a seed.
pub fn run(seed: u64) -> Outcome {
    virtual_time::begin(seed);
    let history = Arc::new(History::default());
    let mut world = World::new(seed, &history);
    if let Err(fault) = world.run() {
        history.fault(fault);
    }
    world.end();
    virtual_time::end();
    let facts = history.facts();
    Outcome {
        hash: facts.hash,
        faults: check::faults(&facts),
        deaths: facts.deaths.len(),
        turns: world.turns,
        counts: facts.counts.clone(),
    }
}

type Program = Pin<Box<dyn Future<Output = ()> + Send>>;

struct World {
    dice: Dice,
    disk: Emulator,
    server_workers: usize,
    history: Arc<History>,
    network: Arc<Network>,
    node: Option<Node>,
    clients: SeededWorkers,
    /// Programs of clients that have not ended.
    running: Arc<AtomicUsize>,
    turns: u64,
}

impl World {
    fn new(seed: u64, history: &Arc<History>) -> World {
        let dice = Dice::new(seed);
        let config = match dice.below(3) {
            0 => EmulatorConfig::persistent_memory(),
            1 => EmulatorConfig { staging: true, ..EmulatorConfig::default() },
            _ => EmulatorConfig::default(),
        };
        World {
            disk: Emulator::new(config),
            server_workers: 1 + dice.below(3) as usize,
            history: history.clone(),
            network: Arc::default(),
            node: None,
            clients: SeededWorkers::new(2).unwrap_or_else(|error| panic!("{error}")),
            running: Arc::default(),
            turns: 0,
            dice,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.start()?;
        self.alone(|mut client| Box::pin(async move { workload::prepares(&mut client).await }))?;
        self.survey()?;
        self.network.open();
        self.start_clients();
        let deaths = self.dice.below(DEATHS_MAX + 1);
        for _ in 0..deaths {
            let turns = 1 + self.dice.below(LIFE_TURNS_MAX);
            if self.turn_while(turns)? {
                break;
            }
            self.die()?;
            self.survey()?;
            self.network.open();
        }
        self.turn_while(u64::MAX)?;
        self.survey()
    }

    /// Opens the disk, and serves it.
    fn start(&mut self) -> Result<(), String> {
        let node = Node::start(&self.disk, &self.dice.fork(), self.server_workers, &self.network);
        self.node = Some(node.map_err(|error| format!("the server does not start: {error}"))?);
        Ok(())
    }

    /// The server dies and is started again; it may die repeatedly during the start.
    fn die(&mut self) -> Result<(), String> {
        let death = self.draw_death();
        {
            let mut facts = self.history.facts();
            let now = facts.tick();
            facts.deaths.push((death, now));
            facts.life += 1;
            facts.mix(&[death as u8]);
        }
        let image = self.image(death, self.disk.events());
        self.end_node(image);
        while self.dice.percent(DEATH_IN_RECOVERY_PERCENT) {
            let before = self.disk.events();
            self.start()?;
            let written = self.disk.events() - before;
            let at = before + self.dice.below(written as u64 + 1) as usize;
            let death = self.draw_death();
            if let (Death::Power, Some(last)) = (death, self.history.facts().deaths.last_mut()) {
                last.0 = death;
            }
            let image = self.image(death, at);
            self.end_node(image);
        }
        self.start()
    }

    fn draw_death(&self) -> Death {
        if self.dice.percent(60) { Death::Power } else { Death::Process }
    }

    /// The disk after a death at this event.
    fn image(&self, death: Death, events: usize) -> Emulator {
        match death {
            Death::Power => self.disk.crash_seeded(events, self.dice.bits()),
            Death::Process => self.disk.process_death_at(events, usize::MAX),
        }
    }

    /// Ends the server, and puts this in the place of its disk.
    fn end_node(&mut self, disk: Emulator) {
        if let Some(node) = self.node.take() {
            node.die();
        }
        self.disk = disk;
    }

    /// Reads everything while no other client is connected.
    fn survey(&mut self) -> Result<(), String> {
        self.alone(|mut client| Box::pin(async move { workload::surveys(&mut client).await }))
    }

    /// Runs one client's program to its end, while no other client may connect.
    fn alone(&mut self, program: impl FnOnce(Client) -> Program) -> Result<(), String> {
        let Some(worker) = self.clients.executor().workers().first().cloned() else {
            return Err("no worker for clients".to_owned());
        };
        let client = self.client(&worker, true);
        let ended = Arc::new(AtomicUsize::new(0));
        let program = program(client);
        let end = ended.clone();
        worker.spawn(async move {
            program.await;
            end.store(1, Ordering::Relaxed);
        });
        while ended.load(Ordering::Relaxed) == 0 {
            self.turn()?;
        }
        Ok(())
    }

    fn client(&self, worker: &WorkerHandle, alone: bool) -> Client {
        Client::new(&self.network, &self.history, worker, self.dice.fork(), alone)
    }

    /// Starts all programs.
    fn start_clients(&mut self) {
        let (values, ids) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(1)));
        let produced = Arc::new(Produced::default());
        for number in 0..10 {
            let worker = self.clients.executor().workers().get(number % 2).cloned();
            let Some(worker) = worker else { continue };
            let mut client = self.client(&worker, false);
            let (values, ids, produced) = (values.clone(), ids.clone(), produced.clone());
            let operations = 10 + self.dice.below(100);
            let running = self.running.clone();
            running.fetch_add(1, Ordering::Relaxed);
            worker.spawn(async move {
                match number {
                    0..=2 => workload::lists(&mut client, operations, &values).await,
                    3 | 4 => workload::claims(&mut client, operations, &ids).await,
                    5 => workload::scans(&mut client, operations).await,
                    6 => workload::produces(&mut client, operations, &produced).await,
                    7 => workload::follows(&mut client, &produced).await,
                    8 => {
                        workload::defines(&mut client, operations / 3).await;
                        workload::is_refused(&mut client, operations / 3).await;
                    }
                    _ => workload::locks(&mut client, operations / 20).await,
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    /// Gives `turns` turns. Whether all programs ended before.
    fn turn_while(&mut self, turns: u64) -> Result<bool, String> {
        let end = self.turns.saturating_add(turns);
        while self.running.load(Ordering::Relaxed) > 0 {
            if self.turns >= end {
                return Ok(false);
            }
            self.turn()?;
        }
        Ok(true)
    }

    /// One turn of a ready worker; without one, time advances.
    fn turn(&mut self) -> Result<(), String> {
        if self.turns >= TURNS_MAX {
            return Err("the run has no end".to_owned());
        }
        let nodes = [Some(&self.clients), self.node.as_ref().map(Node::workers)];
        let nodes: Vec<&SeededWorkers> = nodes.into_iter().flatten().collect();
        let ready: Vec<(usize, usize)> = nodes
            .iter()
            .enumerate()
            .flat_map(|(node, workers)| workers.ready().map(move |worker| (node, worker)))
            .collect();
        let Some((node, worker)) = self.dice.pick(&ready).copied() else {
            let deadline_ns = nodes.iter().map(|w| w.next_deadline_ns()).min().unwrap_or(u64::MAX);
            if deadline_ns == u64::MAX {
                return Err("nobody has anything to do, and nobody waits for a time".to_owned());
            }
            virtual_time::advance_to(deadline_ns);
            return Ok(());
        };
        self.turns += 1;
        let dice = &self.dice;
        let polls = nodes[node].turn(worker, &mut |below| dice.below(below as u64) as usize);
        let word = (node as u64) << 48 | (worker as u64) << 32 | polls;
        let mut facts = self.history.facts();
        facts.mix(&word.to_le_bytes());
        facts.mix(&virtual_time::peek_ns().to_le_bytes());
        drop(facts);
        match self.node.as_ref().and_then(Node::failure) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn end(&mut self) {
        if let Some(node) = self.node.take() {
            node.die();
        }
        let clients = SeededWorkers::new(1).map(|none| std::mem::replace(&mut self.clients, none));
        clients.into_iter().for_each(SeededWorkers::die);
    }
}
