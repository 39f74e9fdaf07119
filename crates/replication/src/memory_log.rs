//! A log in memory, with the two ends of a real one, for tests.
//!
//! [`MemoryLog::begin_sync`] and [`MemoryLog::end_sync`] are the two moments of a sync that takes time.
//! [`MemoryLog::cut_power`] loses writes that no sync has covered: all, or all but some of the first.

use crate::entry::Entry;
use crate::log::{HardState, Log};
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Write {
    Entries(Vec<Entry>),
    State(Box<HardState>),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    entries: Vec<Entry>,
    state: HardState,
    durable_entries: Vec<Entry>,
    durable_state: HardState,
    /// The writes after `durable_writes`.
    pending: VecDeque<Write>,
    durable_writes: u64,
}

fn replace(entries: &mut Vec<Entry>, from: &[Entry]) {
    if let Some(first) = from.first() {
        assert!(first.index >= 1 && first.index <= entries.len() as u64 + 1, "a hole in the log");
        entries.truncate(first.index as usize - 1);
        entries.extend_from_slice(from);
    }
}

impl MemoryLog {
    /// An empty log of a member of this set.
    pub fn new(state: HardState) -> MemoryLog {
        MemoryLog { state: state.clone(), durable_state: state, ..MemoryLog::default() }
    }

    /// A durable log with these entries.
    pub fn with_entries(state: HardState, entries: Vec<Entry>) -> MemoryLog {
        MemoryLog { entries: entries.clone(), durable_entries: entries, ..MemoryLog::new(state) }
    }

    /// The writes that a sync would cover that begins now.
    pub fn begin_sync(&self) -> u64 {
        self.writes()
    }

    /// A sync that covers the writes up to `number` has ended.
    pub fn end_sync(&mut self, number: u64) {
        while self.durable_writes < number
            && let Some(write) = self.pending.pop_front()
        {
            self.make_durable(write);
        }
    }

    fn make_durable(&mut self, write: Write) {
        self.durable_writes += 1;
        match write {
            Write::Entries(entries) => replace(&mut self.durable_entries, &entries),
            Write::State(state) => self.durable_state = *state,
        }
    }

    /// The power is lost. Of the writes that are not durable the first `kept` reached the medium.
    pub fn cut_power(&mut self, kept: usize) {
        let kept = kept.min(self.pending.len()) as u64;
        self.end_sync(self.durable_writes + kept);
        self.durable_writes += self.pending.len() as u64;
        self.pending.clear();
        self.entries = self.durable_entries.clone();
        self.state = self.durable_state.clone();
    }

    /// The state that a power loss would leave.
    pub fn durable_state(&self) -> &HardState {
        &self.durable_state
    }

    /// The number of writes that are not durable.
    pub fn pending_writes(&self) -> usize {
        self.pending.len()
    }

    /// The entry at `index`, as a power loss would leave it.
    pub fn durable_entry(&self, index: u64) -> Option<&Entry> {
        self.durable_entries.get((index as usize).checked_sub(1)?)
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

impl Log for MemoryLog {
    fn first(&self) -> u64 {
        1
    }

    fn last(&self) -> u64 {
        self.entries.len() as u64
    }

    fn term(&self, index: u64) -> Option<u64> {
        match index {
            0 => Some(0),
            _ => self.entries.get(index as usize - 1).map(|entry| entry.term),
        }
    }

    fn entry(&self, index: u64) -> Option<Entry> {
        self.entries.get((index as usize).checked_sub(1)?).cloned()
    }

    fn append(&mut self, entries: &[Entry]) {
        replace(&mut self.entries, entries);
        self.pending.push_back(Write::Entries(entries.to_vec()));
    }

    fn hard_state(&self) -> &HardState {
        &self.state
    }

    fn set_hard_state(&mut self, state: HardState) {
        self.state = state.clone();
        self.pending.push_back(Write::State(Box::new(state)));
    }

    fn writes(&self) -> u64 {
        self.durable_writes + self.pending.len() as u64
    }

    fn durable_writes(&self) -> u64 {
        self.durable_writes
    }

    fn durable_last(&self) -> u64 {
        let replaced = self.pending.iter().filter_map(|write| match write {
            Write::Entries(entries) => entries.first().map(|first| first.index - 1),
            Write::State(_) => None,
        });
        replaced.fold(self.durable_entries.len() as u64, u64::min)
    }

    fn sync(&mut self) {
        self.end_sync(self.writes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Payload;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, payload: Payload::Blank }
    }

    fn terms(log: &MemoryLog) -> Vec<u64> {
        log.entries().iter().map(|entry| entry.term).collect()
    }

    #[test]
    fn a_power_loss_takes_what_no_sync_has_covered() {
        let mut log = MemoryLog::default();
        log.append(&[entry(1, 1), entry(2, 1)]);
        let sync = log.begin_sync();
        log.append(&[entry(2, 2), entry(3, 2)]);
        assert_eq!((log.last(), log.durable_last()), (3, 0));
        log.end_sync(sync);
        assert_eq!((log.last(), log.durable_last()), (3, 1), "2 is to be replaced");
        let mut other = log.clone();
        log.cut_power(0);
        assert_eq!(terms(&log), [1, 1]);
        other.cut_power(1);
        assert_eq!(terms(&other), [1, 2, 2]);
        assert_eq!((log.writes(), log.durable_writes()), (2, 2));
    }

    #[test]
    fn the_state_becomes_durable_in_the_order_of_writes() {
        let mut log = MemoryLog::default();
        log.set_hard_state(HardState { term: 3, ..HardState::default() });
        log.append(&[entry(1, 3)]);
        log.end_sync(1);
        assert_eq!((log.durable_state().term, log.durable_last()), (3, 0));
        log.cut_power(0);
        assert_eq!((log.hard_state().term, log.last()), (3, 0));
    }
}
