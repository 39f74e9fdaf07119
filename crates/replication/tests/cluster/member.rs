//! A member of a simulated set: its process, if it runs, and its disk.

use kauri_base::clock::SeededRandom;
use kauri_replication::{
    Config, Consensus, Entry, HardState, Log, Membership, MemoryLog, Payload, Role,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the member's state machine has made of the entries.
#[derive(Default)]
pub struct Machine {
    pub applied: u64,
    /// The unit after the last one.
    pub next_unit: u64,
    /// Decides whether two machines have seen the same.
    pub hash: u64,
}

impl Machine {
    /// Applies the next entry. Fails if it does not follow the ones before.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        if entry.index != self.applied + 1 {
            return Err(format!("entry {} is applied after {}", entry.index, self.applied));
        }
        self.applied = entry.index;
        let mut word = entry.term;
        if let Payload::Frame(frame) = &entry.payload {
            if frame.first != self.next_unit.max(1) {
                let (first, next) = (frame.first, self.next_unit.max(1));
                return Err(format!("a frame begins with unit {first} where {next} is next"));
            }
            self.next_unit = frame.end();
            word ^= u64::from(frame.bytes) << 32;
        }
        self.hash = (self.hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        Ok(())
    }
}

/// A process.
pub struct Process {
    pub consensus: Consensus<MemoryLog>,
    pub machine: Machine,
    /// Proposed entries that are not acknowledged as durable: index, term, whether acknowledged as written.
    pub proposed: Vec<(u64, u64, bool)>,
    /// Reads that are not answered: what they must see.
    pub reads: BTreeMap<u64, u64>,
    pub written_commit: u64,
    pub durable_commit: u64,
    pub role: Role,
    /// The sync that is under way covers the writes up to this.
    pub sync: Option<u64>,
    pub is_marked: bool,
}

pub struct Member {
    pub id: u64,
    /// The number of its lives; events of others are void.
    pub life: u64,
    pub process: Option<Process>,
    /// The disk, while no process has it.
    disk: Option<MemoryLog>,
    pub tick_ns: u64,
    pub paused_until_ns: u64,
    /// Whether written entries may have been lost since the last start.
    pub lost_power: bool,
}

impl Member {
    pub fn new(id: u64, membership: Membership, tick_ns: u64) -> Member {
        let disk = MemoryLog::new(HardState { membership, ..HardState::default() });
        Member {
            id,
            life: 0,
            process: None,
            disk: Some(disk),
            tick_ns,
            paused_until_ns: 0,
            lost_power: false,
        }
    }

    /// Starts the process.
    pub fn start(&mut self, config: Config, seed: u64, tells: bool) -> Result<(), String> {
        let Some(log) = self.disk.take() else { return Ok(()) };
        self.life += 1;
        let mut machine = Machine::default();
        for index in 1..=log.hard_state().membership_index {
            machine.apply(&log.entry(index).ok_or("an applied entry is missing")?)?;
        }
        let random = Arc::new(SeededRandom::new(seed));
        let lost_power = self.lost_power && tells;
        let consensus = Consensus::start(config, log, random, lost_power, machine.applied)
            .map_err(|error| error.to_string())?;
        self.lost_power = false;
        self.process = Some(Process {
            written_commit: 0,
            durable_commit: 0,
            role: Role::Follower,
            proposed: Vec::new(),
            reads: BTreeMap::new(),
            sync: None,
            machine,
            is_marked: consensus.is_marked(),
            consensus,
        });
        Ok(())
    }

    /// Ends the process.
    pub fn kill(&mut self) {
        self.life += 1;
        self.paused_until_ns = 0;
        if let Some(process) = self.process.take() {
            self.disk = Some(process.consensus.into_log());
        }
    }

    /// Cuts the power: of the writes that are not durable the first `kept` stay.
    pub fn cut_power(&mut self, kept: usize) {
        self.kill();
        if let Some(disk) = &mut self.disk {
            disk.cut_power(kept);
        }
        self.lost_power = true;
    }

    pub fn log(&self) -> &MemoryLog {
        match (&self.process, &self.disk) {
            (Some(process), _) => process.consensus.log(),
            (None, Some(disk)) => disk,
            (None, None) => unreachable!("a member has its log"),
        }
    }

    /// Whether it may have lost what it has acknowledged.
    pub fn may_lack_entries(&self) -> bool {
        let is_marked = match &self.process {
            Some(process) => process.consensus.is_marked(),
            None => self.log().hard_state().lost_power,
        };
        self.lost_power || is_marked
    }

    pub fn has_written(&self, index: u64, term: u64) -> bool {
        self.log().term(index) == Some(term)
    }

    pub fn has_durable(&self, index: u64, term: u64) -> bool {
        index == 0 || self.log().durable_entry(index).is_some_and(|entry| entry.term == term)
    }

    pub fn leads(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.consensus.role() == Role::Leader)
    }
}
