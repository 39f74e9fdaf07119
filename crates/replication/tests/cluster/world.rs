//! A run: from a seed to the outcome.

use crate::ledger::Ledger;
use crate::member::Member;
use kauri_replication::codec;
use kauri_replication::consensus::Acknowledge;
use kauri_replication::simulated::{Network, Weather};
use kauri_replication::{Config, Frame, Log, Membership, Role};
use kauri_testkit::Dice;
use std::collections::BTreeMap;

pub const MS_NS: u64 = 1_000_000;
const TICK_NS: u64 = 15 * MS_NS;
const ELECTION_TICKS: usize = 10;
const HEARTBEAT_TICKS: usize = 3;
/// Until then the set must be well, after the last fault.
const WELL_NS_MAX: u64 = 10_000 * MS_NS;
const SET: u64 = 0x5e7;

#[derive(Clone, Copy)]
pub struct Settings {
    /// Drawn, if `None`.
    pub acknowledge: Option<Acknowledge>,
    /// Whether members are told of a power loss.
    pub power_loss_rule: bool,
}

pub struct Outcome {
    pub hash: u64,
    pub events: u64,
    pub faults: Vec<String>,
    pub counts: BTreeMap<&'static str, u64>,
}

impl Outcome {
    pub fn of_panic(text: String) -> Outcome {
        let faults = vec![format!("panic: {text}")];
        Outcome { hash: 0, events: 0, faults, counts: BTreeMap::new() }
    }
}

enum Event {
    Tick { at: usize, life: u64 },
    Synced { at: usize, life: u64, writes: u64 },
    Start { at: usize, life: u64 },
    Client,
    Fault,
}

pub struct World {
    pub dice: Dice,
    pub members: Vec<Member>,
    pub network: Network<Vec<u8>>,
    pub ledger: Ledger,
    pub now_ns: u64,
    acknowledge: Acknowledge,
    priorities: BTreeMap<u64, u32>,
    power_loss_rule: bool,
    sync_ns_max: u64,
    has_faults: bool,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    happened: u64,
    hash: u64,
    reads: u64,
    tells: bool,
}

pub fn run(seed: u64, settings: Settings) -> Outcome {
    let mut world = World::new(seed, settings);
    world.run();
    Outcome {
        hash: world.hash,
        events: world.happened,
        faults: world.ledger.faults,
        counts: world.ledger.counts,
    }
}

impl World {
    fn new(seed: u64, settings: Settings) -> World {
        let dice = Dice::new(seed);
        let voters = 3 + dice.below(3);
        let spares = dice.below(3);
        let drawn = if dice.percent(65) { Acknowledge::Written } else { Acknowledge::Durable };
        let members: Vec<Member> = (1..=voters + spares)
            .map(|id| {
                // A clock may go wrong by a tenth.
                let tick_ns = TICK_NS * (90 + dice.below(21)) / 100;
                Member::new(id, Membership::of(1..=voters), tick_ns)
            })
            .collect();
        let priorities = (1..=voters + spares).filter(|_| dice.percent(30));
        World {
            priorities: priorities.map(|id| (id, dice.below(3) as u32)).collect(),
            network: Network::new(dice.bits()),
            members,
            ledger: Ledger::default(),
            now_ns: 0,
            acknowledge: settings.acknowledge.unwrap_or(drawn),
            power_loss_rule: settings.power_loss_rule,
            sync_ns_max: [MS_NS / 2, 5 * MS_NS, 60 * MS_NS][dice.below(3) as usize],
            has_faults: true,
            events: BTreeMap::new(),
            scheduled: 0,
            happened: 0,
            hash: 0,
            reads: 0,
            tells: std::env::var_os("KAURI_SEED").is_some(),
            dice,
        }
    }

    fn run(&mut self) {
        for at in 0..self.members.len() {
            self.start(at);
        }
        self.schedule(MS_NS, Event::Client);
        self.schedule(200 * MS_NS, Event::Fault);
        let faulty_ns = MS_NS * (1_500 + self.dice.below(4_000));
        self.run_until(faulty_ns, |_| false);
        if !self.ledger.faults.is_empty() {
            return;
        }
        self.has_faults = false;
        self.network.heal();
        self.network.set_weather(Weather::FAIR);
        self.restart_all();
        let end_ns = self.now_ns + WELL_NS_MAX;
        self.run_until(end_ns, |world| world.well().is_some());
        let Some(leader) = self.well() else {
            let text = format!("the set does not become well: {}", self.describe());
            return self.ledger.fault(text);
        };
        self.ledger.ends(&self.members[leader]);
        self.take_one_more(leader);
    }

    /// The set, being well, takes an entry.
    fn take_one_more(&mut self, leader: usize) {
        let wanted = self.members[leader].log().last() + 1;
        self.propose(leader);
        let end_ns = self.now_ns + WELL_NS_MAX;
        self.run_until(end_ns, |world| {
            world.well().is_some_and(|leader| world.members[leader].log().last() >= wanted)
        });
        if self.well().is_none_or(|leader| self.members[leader].log().last() < wanted) {
            self.ledger.fault("a set that is well does not take an entry".to_owned());
        }
    }

    fn run_until(&mut self, end_ns: u64, is_enough: impl Fn(&World) -> bool) {
        let mut look_ns = 0;
        while self.now_ns < end_ns && self.ledger.faults.is_empty() {
            if self.now_ns >= look_ns {
                look_ns = self.now_ns + 20 * MS_NS;
                if is_enough(self) {
                    return;
                }
            }
            self.happen();
        }
    }

    fn schedule(&mut self, in_ns: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.now_ns + in_ns, self.scheduled), event);
    }

    /// For who looks into one seed.
    pub fn tell(&self, text: impl FnOnce() -> String) {
        if self.tells {
            println!("{:>9.3} ms: {}", self.now_ns as f64 / MS_NS as f64, text());
        }
    }

    fn mix(&mut self, words: &[u64]) {
        for word in words {
            self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }

    /// The next event, or arrival of a message.
    fn happen(&mut self) {
        self.happened += 1;
        let event_ns = self.events.keys().next().map_or(u64::MAX, |&(at_ns, _)| at_ns);
        let arrival_ns = self.network.next_ns().unwrap_or(u64::MAX);
        self.now_ns = self.now_ns.max(event_ns.min(arrival_ns));
        if arrival_ns < event_ns {
            return self.arrive();
        }
        let Some((_, event)) = self.events.pop_first() else { return };
        let now_ns = self.now_ns;
        match event {
            Event::Tick { at, life } if self.members[at].life == life => {
                self.mix(&[now_ns, at as u64]);
                let member = &mut self.members[at];
                let next_ns = member.paused_until_ns.max(now_ns) + member.tick_ns - now_ns;
                if member.paused_until_ns <= now_ns
                    && let Some(process) = &mut member.process
                {
                    process.consensus.tick();
                    self.pump(at);
                }
                self.schedule(next_ns, Event::Tick { at, life });
            }
            Event::Synced { at, life, writes } if self.members[at].life == life => {
                self.mix(&[now_ns, at as u64, writes]);
                if let Some(process) = &mut self.members[at].process {
                    process.consensus.log_for_sync().end_sync(writes);
                    process.sync = None;
                    self.pump(at);
                }
            }
            Event::Start { at, life } if self.members[at].life == life => self.start(at),
            Event::Client if self.has_faults => {
                self.client();
                let in_ns = 1 + self.dice.below(12 * MS_NS);
                self.schedule(in_ns, Event::Client);
            }
            Event::Fault if self.has_faults => {
                self.fault();
                let in_ns = MS_NS * (20 + self.dice.below(500));
                self.schedule(in_ns, Event::Fault);
            }
            _ => {}
        }
    }

    fn arrive(&mut self) {
        let Some(arrival) = self.network.receive(self.now_ns) else { return };
        let at = arrival.to as usize - 1;
        let paused_until_ns = self.members[at].paused_until_ns;
        if paused_until_ns > self.now_ns {
            return self.network.postpone(paused_until_ns, arrival);
        }
        self.mix(&[self.now_ns, arrival.from, arrival.to, crc_of(&arrival.message)]);
        let Some(process) = &mut self.members[at].process else { return };
        match codec::decode(&arrival.message) {
            Ok(envelope) => match process.consensus.step(envelope) {
                Ok(()) => {}
                Err(refused) if refused.is_harmless() => {
                    self.ledger.count("stale messages refused");
                }
                Err(refused) => {
                    let (from, to) = (arrival.from, arrival.to);
                    let envelope = codec::decode(&arrival.message);
                    self.ledger.fault(format!("{to} refuses {from}: {refused}: {envelope:?}"));
                }
            },
            Err(_) => self.ledger.fault("a member cannot read another's message".to_owned()),
        }
        self.pump(at);
    }

    fn config(&self, id: u64) -> Config {
        Config {
            set: SET,
            id,
            acknowledge: self.acknowledge,
            election_ticks: ELECTION_TICKS,
            heartbeat_ticks: HEARTBEAT_TICKS,
            priorities: self.priorities.clone(),
        }
    }

    fn start(&mut self, at: usize) {
        let (config, seed) = (self.config(at as u64 + 1), self.dice.bits());
        if self.members[at].process.is_some() {
            return;
        }
        self.tell(|| format!("{} starts", at + 1));
        if let Err(text) = self.members[at].start(config, seed, self.power_loss_rule) {
            return self.ledger.fault(text);
        }
        let life = self.members[at].life;
        let in_ns = self.dice.below(TICK_NS);
        self.schedule(in_ns, Event::Tick { at, life });
    }

    pub fn restart_later(&mut self, at: usize) {
        let life = self.members[at].life;
        let in_ns = MS_NS * (1 + self.dice.below(if self.dice.percent(70) { 200 } else { 2_000 }));
        self.schedule(in_ns, Event::Start { at, life });
    }

    pub fn restart_all(&mut self) {
        for at in 0..self.members.len() {
            if !self.has_faults {
                self.members[at].paused_until_ns = 0;
            }
            self.start(at);
        }
    }

    /// A client writes or reads on a member.
    fn client(&mut self) {
        let leads = (0..self.members.len()).filter(|&at| self.members[at].leads());
        let leads: Vec<usize> = leads.collect();
        let at = match self.dice.pick(&leads) {
            Some(&at) => at,
            None => self.dice.below(self.members.len() as u64) as usize,
        };
        if self.members[at].paused_until_ns > self.now_ns {
            return;
        }
        if self.dice.percent(80) {
            for _ in 0..1 + self.dice.below(3) {
                self.propose(at);
            }
            return;
        }
        let wanted = self.ledger.last_acknowledged();
        if let Some(process) = &mut self.members[at].process {
            self.reads += 1;
            if process.consensus.read(self.reads).is_ok() {
                process.reads.insert(self.reads, wanted);
            }
        }
        self.pump(at);
    }

    fn propose(&mut self, at: usize) {
        let (units, bytes) = (1 + self.dice.below(3) as u32, self.dice.bits() as u32);
        if let Some(process) = &mut self.members[at].process {
            let first = process.consensus.next_unit();
            let frame = Frame { first, units, bytes };
            if let Ok((index, term)) = process.consensus.propose(frame) {
                process.proposed.push((index, term, false));
            }
        }
        self.pump(at);
    }

    /// Lets a member do what it has to, and checks it.
    pub fn pump(&mut self, at: usize) {
        let Some(process) = &mut self.members[at].process else { return };
        let before = process.consensus.membership().clone();
        let mut output = process.consensus.advance();
        for entry in &output.committed {
            self.ledger.commits(at as u64 + 1, entry);
            if let Err(text) = process.machine.apply(entry) {
                self.ledger.fault(text);
            }
            process.consensus.applied(entry.index);
        }
        for (number, index) in output.reads.drain(..) {
            self.ledger.count("reads");
            let wanted = process.reads.remove(&number).unwrap_or(0);
            // What is gone with a quorum need not be seen.
            if index < wanted.min(self.ledger.last_acknowledged()) {
                self.ledger.fault(format!("a read sees entry {index}, {wanted} is acknowledged"));
            }
        }
        self.begin_sync(at);
        for envelope in &output.messages {
            self.ledger.sends(&self.members[at], envelope, self.acknowledge);
            let bytes = codec::encode(envelope);
            self.network.send(self.now_ns, envelope.from, envelope.to, bytes);
        }
        self.look_at_role(at);
        self.look_at_commit_points(at, &before);
    }

    fn begin_sync(&mut self, at: usize) {
        let sync_ns = match self.dice.percent(2) {
            true => self.dice.below(200 * MS_NS),
            false => self.dice.below(self.sync_ns_max),
        };
        let member = &mut self.members[at];
        let life = member.life;
        let Some(process) = &mut member.process else { return };
        let log = process.consensus.log();
        if process.sync.is_none() && log.pending_writes() > 0 {
            let writes = log.begin_sync();
            process.sync = Some(writes);
            self.schedule(sync_ns, Event::Synced { at, life, writes });
        }
    }

    fn look_at_role(&mut self, at: usize) {
        let Some(process) = &mut self.members[at].process else { return };
        let (role, term) = (process.consensus.role(), process.consensus.term());
        let becomes = role == Role::Leader && process.role != Role::Leader;
        process.role = role;
        if process.is_marked && !process.consensus.is_marked() {
            process.is_marked = false;
            self.ledger.count("marks taken away");
        }
        if role != Role::Leader {
            // What becomes of them, this member does not tell.
            process.proposed.clear();
            process.reads.clear();
        }
        if becomes {
            self.tell(|| format!("{} leads in term {term}: {}", at + 1, self.describe()));
            self.ledger.leads(&self.members[at], term);
        }
    }

    fn look_at_commit_points(&mut self, at: usize, before: &Membership) {
        let Some(process) = &mut self.members[at].process else { return };
        let consensus = &process.consensus;
        let (written, durable) = (consensus.written_commit(), consensus.durable_commit());
        let (was_written, was_durable) = (process.written_commit, process.durable_commit);
        (process.written_commit, process.durable_commit) = (written, durable);
        if written < was_written || durable < was_durable || durable > written {
            self.ledger.fault(format!(
                "commit points of {}: {was_written}, {was_durable}, then {written}, {durable}",
                at + 1
            ));
        }
        if process.role != Role::Leader {
            return;
        }
        let after = consensus.membership().clone();
        let log = consensus.log();
        let term_of = |index| log.term(index).unwrap_or(0);
        let points = [(written, was_written, false), (durable, was_durable, true)];
        let points =
            points.map(|(now, was, as_durable)| (now, now > was, term_of(now), as_durable));
        let mut told = Vec::new();
        process.proposed.retain_mut(|(index, term, as_written)| {
            let is_there = log.term(*index) == Some(*term);
            if is_there && *index <= written && !*as_written {
                *as_written = true;
                if self.acknowledge == Acknowledge::Written {
                    told.push((*index, *term, false));
                }
            }
            let is_durable = is_there && *index <= durable;
            if is_durable {
                told.push((*index, *term, true));
            }
            !is_durable
        });
        for (index, advanced, term, as_durable) in points {
            if advanced {
                self.ledger.commit_point(
                    &self.members,
                    [before, &after],
                    (index, term),
                    as_durable,
                );
            }
        }
        for (index, term, as_durable) in told {
            self.ledger.acknowledge(index, term, as_durable);
        }
    }

    /// The leader, if all members of its set have its log, committed and durable.
    fn well(&self) -> Option<usize> {
        let leader =
            self.members.iter().filter(|member| member.leads()).max_by_key(|member| {
                member.process.as_ref().map(|process| process.consensus.term())
            })?;
        let of = leader.process.as_ref()?;
        let (last, term) = (leader.log().last(), leader.log().term(leader.log().last())?);
        let membership = of.consensus.membership();
        let priority = |id: u64| self.priorities.get(&id).copied().unwrap_or(1);
        // It may be handing over still, and takes nothing then.
        let is_well = of.consensus.can_propose()
            && !membership.is_joint()
            && membership.voters.iter().all(|&id| priority(id) <= priority(leader.id))
            && of.consensus.durable_commit() == last
            && membership.members().iter().all(|&id| {
                let member = &self.members[id as usize - 1];
                member.process.as_ref().is_some_and(|process| {
                    member.log().last() == last
                        && member.log().term(last) == Some(term)
                        && process.consensus.written_commit() == last
                        && process.machine.applied == last
                        && process.machine.hash == of.machine.hash
                        && !process.consensus.is_marked()
                })
            });
        is_well.then_some(leader.id as usize - 1)
    }

    fn describe(&self) -> String {
        let mut text = format!("{:?}", self.acknowledge);
        for member in &self.members {
            let Some(process) = &member.process else { continue };
            let of = &process.consensus;
            text += &format!(
                "\n{} {:?} term {} leader {:?} last {} written {} durable {} applied {} marked {} {:?}",
                member.id,
                of.role(),
                of.term(),
                of.leader(),
                of.log().last(),
                of.written_commit(),
                of.durable_commit(),
                process.machine.applied,
                of.is_marked(),
                of.membership()
            );
        }
        text
    }
}

fn crc_of(bytes: &[u8]) -> u64 {
    bytes.last_chunk::<4>().map_or(0, |crc| u64::from(u32::from_le_bytes(*crc)))
}
