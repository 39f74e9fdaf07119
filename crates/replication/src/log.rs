//! The contract of the log's storage.
//!
//! The log has two ends. What is *written* outlives the process; what is *durable* outlives a power loss. Writes have
//! ascending numbers, and become durable in this order: [`Log::durable_writes`].

use crate::entry::{Entry, Membership};

/// What a member must not forget.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HardState {
    /// The newest term that the member has seen.
    pub term: u64,
    /// The member that it voted for in this term; 0 for none.
    pub vote: u64,
    /// The newest commit point that it has seen. May be older than the true one.
    pub commit: u64,
    /// The index of the entry that made the membership; 0 for the first one.
    pub membership_index: u64,
    /// The membership in force.
    pub membership: Membership,
    /// The number of the process's starts on this log.
    pub boot: u64,
    /// Whether a power loss may have taken written entries since, and they have not been fetched again.
    pub lost_power: bool,
}

/// A log and the state beside it.
pub trait Log {
    /// The index of the first entry that the log has, or of the next one if it has none: 1 unless the log was purged or
    /// began with the data of another member.
    fn first(&self) -> u64;
    /// The last index; that before the first if the log is empty.
    fn last(&self) -> u64;
    /// The term of the entry at `index`, and at that before the first; 0 for index 0. `None` elsewhere.
    fn term(&self, index: u64) -> Option<u64>;
    /// The entry at `index`.
    fn entry(&self, index: u64) -> Option<Entry>;
    /// Writes entries with ascending indexes from `entries[0].index`, in the place of all from there on.
    fn append(&mut self, entries: &[Entry]);
    /// The state as it was last written.
    fn hard_state(&self) -> &HardState;
    /// Writes the state.
    fn set_hard_state(&mut self, state: HardState);
    /// The number of the last write.
    fn writes(&self) -> u64;
    /// All writes up to this number are durable.
    fn durable_writes(&self) -> u64;
    /// The entries up to this index are durable as they are now.
    fn durable_last(&self) -> u64;
    /// Makes all writes durable, and waits for it.
    fn sync(&mut self);
}
