//! A small set whose messages the test delivers.

use kauri_base::clock::SeededRandom;
use kauri_replication::codec::{Envelope, Kind, Message};
use kauri_replication::consensus::Acknowledge;
use kauri_replication::{
    Config, Consensus, Entry, Frame, HardState, Log, Membership, MemoryLog, Payload, Role,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub const SET: u64 = 7;
pub const ELECTION_TICKS: usize = 10;

pub fn config(id: u64, acknowledge: Acknowledge) -> Config {
    Config {
        set: SET,
        id,
        acknowledge,
        election_ticks: ELECTION_TICKS,
        heartbeat_ticks: 3,
        priorities: BTreeMap::new(),
    }
}

/// Blank entries of these terms.
pub fn entries(terms: &[u64]) -> Vec<Entry> {
    let entry =
        |(at, &term): (usize, &u64)| Entry { index: at as u64 + 1, term, payload: Payload::Blank };
    terms.iter().enumerate().map(entry).collect()
}

pub fn terms(log: &MemoryLog) -> Vec<u64> {
    log.entries().iter().map(|entry| entry.term).collect()
}

pub fn disk(voters: u64, term: u64, log_terms: &[u64]) -> MemoryLog {
    let membership = Membership::of(1..=voters);
    let state = HardState { term, membership, ..HardState::default() };
    MemoryLog::with_entries(state, entries(log_terms))
}

pub fn member(config: Config, disk: MemoryLog) -> Consensus<MemoryLog> {
    let random = Arc::new(SeededRandom::new(config.id));
    Consensus::start(config, disk, random, false, 0).unwrap()
}

/// A message with these numbers, from a member in its first start.
pub fn envelope(from: u64, to: u64, message: Message) -> Envelope {
    Envelope {
        set: SET,
        from,
        to,
        from_boot: 1,
        to_boot: 0,
        term: message.term,
        last: 0,
        durable: 0,
        durable_commit: 0,
        lost_power: false,
        message: Some(message),
    }
}

/// All that a member has to do while its syncs take no time; what it sends.
pub fn run(member: &mut Consensus<MemoryLog>) -> Vec<Envelope> {
    let mut sent = Vec::new();
    loop {
        let output = member.advance();
        if let Some(last) = output.committed.last() {
            member.applied(last.index);
        }
        let is_idle = output.messages.is_empty() && output.committed.is_empty();
        sent.extend(output.messages);
        if is_idle && member.log().pending_writes() == 0 {
            return sent;
        }
        member.log_for_sync().sync();
    }
}

/// The messages of one kind.
pub fn of_kind(sent: &[Envelope], kind: Kind) -> Vec<Message> {
    sent.iter().filter_map(|e| e.message.clone()).filter(|m| m.kind == kind).collect()
}

pub struct Set {
    pub members: BTreeMap<u64, Consensus<MemoryLog>>,
    pub cut: BTreeSet<(u64, u64)>,
    pub under_way: VecDeque<Envelope>,
}

impl Set {
    pub fn new(members: impl IntoIterator<Item = Consensus<MemoryLog>>) -> Set {
        let by_id = members.into_iter().enumerate().map(|(at, member)| (at as u64 + 1, member));
        Set { members: by_id.collect(), cut: BTreeSet::new(), under_way: VecDeque::new() }
    }

    /// Members with these logs, all in one term.
    pub fn of(acknowledge: Acknowledge, term: u64, logs: &[&[u64]]) -> Set {
        let voters = logs.len() as u64;
        Set::new(
            logs.iter()
                .zip(1..)
                .map(|(log, id)| member(config(id, acknowledge), disk(voters, term, log))),
        )
    }

    pub fn get(&mut self, id: u64) -> &mut Consensus<MemoryLog> {
        self.members.get_mut(&id).unwrap()
    }

    /// Nobody hears this member, and it hears nobody.
    pub fn isolate(&mut self, id: u64) {
        for &other in self.members.keys() {
            self.cut.extend([(id, other), (other, id)]);
        }
    }

    fn collect(&mut self) {
        for member in self.members.values_mut() {
            self.under_way.extend(run(member));
        }
    }

    /// Delivers messages until there are none.
    pub fn deliver(&mut self) {
        self.collect();
        while let Some(envelope) = self.under_way.pop_front() {
            if self.cut.contains(&(envelope.from, envelope.to)) {
                continue;
            }
            if let Some(member) = self.members.get_mut(&envelope.to) {
                let outcome = member.step(envelope);
                assert!(outcome.is_ok_and_or_harmless(), "{outcome:?}");
            }
            self.collect();
        }
    }

    /// One member's time passes, until it stands for election.
    pub fn stand(&mut self, id: u64) {
        let term = self.get(id).term();
        for _ in 0..6 * ELECTION_TICKS {
            self.get(id).tick();
            if self.get(id).role() != Role::Follower || self.get(id).term() != term {
                break;
            }
        }
        self.deliver();
    }

    /// Everybody's time passes.
    pub fn tick(&mut self, ticks: usize) {
        for _ in 0..ticks {
            for member in self.members.values_mut() {
                member.tick();
            }
            self.deliver();
        }
    }

    pub fn leader(&self) -> Option<u64> {
        let leads = self.members.iter().filter(|(_, member)| member.role() == Role::Leader);
        leads.max_by_key(|(_, member)| member.term()).map(|(&id, _)| id)
    }

    /// Proposes on a member.
    pub fn propose(&mut self, id: u64) -> u64 {
        let first = self.get(id).next_unit();
        let frame = Frame { first, units: 1, bytes: 10 };
        self.get(id).propose(frame).unwrap().0
    }

    /// The logs' terms.
    pub fn logs(&self) -> Vec<Vec<u64>> {
        self.members.values().map(|member| terms(member.log())).collect()
    }

    /// Ends a member's process, and starts it again on what is left of its log.
    pub fn restart(&mut self, id: u64, config: Config, lost_power: bool) {
        let mut disk = self.members.remove(&id).unwrap().into_log();
        if lost_power {
            disk.cut_power(0);
        }
        let random = Arc::new(SeededRandom::new(id));
        let member = Consensus::start(config, disk, random, lost_power, 0).unwrap();
        self.members.insert(id, member);
    }
}

pub trait Harmless {
    fn is_ok_and_or_harmless(&self) -> bool;
}

impl Harmless for Result<(), kauri_replication::Refused> {
    fn is_ok_and_or_harmless(&self) -> bool {
        self.is_ok() || self.is_err_and(|refused| refused.is_harmless())
    }
}

pub fn last(member: &Consensus<MemoryLog>) -> u64 {
    member.log().last()
}
