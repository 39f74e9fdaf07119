//! Entries of the replicated log.
//!
//! An entry is blank (a leader's first), names a frame, changes the membership, or has a configuration. A frame is a range
//! of units of the engine's log: the entry holds the range and the size, so it has a few bytes.

use std::collections::BTreeSet;

/// Members of a set at most, learners included; MongoDB's limit.
pub const MEMBERS_MAX: usize = 50;
/// Bytes of a configuration at most.
pub const CONFIG_BYTES_MAX: usize = 64 << 10;
/// Members in one change at most.
pub const CHANGES_MAX: usize = 8;

/// A range of units of the engine's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// The sequence number of the first unit.
    pub first: u64,
    /// Number of units, at least 1.
    pub units: u32,
    /// Bytes of the units.
    pub bytes: u32,
}

impl Frame {
    /// Bytes of an encoded frame.
    pub const BYTES: usize = 16;

    /// The sequence number after the last unit.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.units))
    }

    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.first.to_le_bytes());
        for word in [self.units, self.bytes] {
            to.extend_from_slice(&word.to_le_bytes());
        }
    }

    pub(crate) fn decode(from: &[u8]) -> Option<Frame> {
        let (first, rest) = from.split_first_chunk::<8>()?;
        let (units, rest) = rest.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_first_chunk::<4>()?;
        let frame = Frame {
            first: u64::from_le_bytes(*first),
            units: u32::from_le_bytes(*units),
            bytes: u32::from_le_bytes(*bytes),
        };
        (rest.is_empty() && frame.first > 0 && frame.units > 0).then_some(frame)
    }
}

/// A change of the membership by one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A member that votes.
    Voter(u64),
    /// A member that only follows.
    Learner(u64),
    /// Not a member any more.
    Removed(u64),
}

impl Change {
    /// The member's id.
    pub fn member(&self) -> u64 {
        match *self {
            Change::Voter(id) | Change::Learner(id) | Change::Removed(id) => id,
        }
    }
}

/// The content of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Nothing: a leader's first entry.
    Blank,
    /// A range of units.
    Frame(Frame),
    /// A change of the membership. Several changes make it joint; none leaves the joint membership.
    Membership(Vec<Change>),
    /// The owner's configuration of the set, at most [`CONFIG_BYTES_MAX`].
    Config(Vec<u8>),
}

const TAG_VOTER: u8 = 1;
const TAG_LEARNER: u8 = 2;
const TAG_REMOVED: u8 = 3;

/// Encodes changes: a count, then a tag and an id each.
pub(crate) fn encode_changes(changes: &[Change], to: &mut Vec<u8>) {
    to.push(changes.len() as u8);
    for change in changes {
        to.push(match change {
            Change::Voter(_) => TAG_VOTER,
            Change::Learner(_) => TAG_LEARNER,
            Change::Removed(_) => TAG_REMOVED,
        });
        to.extend_from_slice(&change.member().to_le_bytes());
    }
}

/// The changes in these bytes, if nothing else is in them.
pub(crate) fn decode_changes(from: &[u8]) -> Option<Vec<Change>> {
    let (&count, rest) = from.split_first()?;
    let count = usize::from(count);
    if count > CHANGES_MAX || rest.len() != count * 9 {
        return None;
    }
    let mut changes = Vec::with_capacity(count);
    for bytes in rest.chunks_exact(9) {
        let (&tag, id) = bytes.split_first()?;
        let id = u64::from_le_bytes(id.try_into().ok()?);
        changes.push(match tag {
            TAG_VOTER if id > 0 => Change::Voter(id),
            TAG_LEARNER if id > 0 => Change::Learner(id),
            TAG_REMOVED if id > 0 => Change::Removed(id),
            _ => return None,
        });
    }
    Some(changes)
}

/// An entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its place in the log, from 1.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
    /// Its content.
    pub payload: Payload,
}

/// The members of a set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// The members that vote.
    pub voters: BTreeSet<u64>,
    /// While the membership is joint: the members that voted before it.
    pub outgoing: BTreeSet<u64>,
    /// The members that only follow.
    pub learners: BTreeSet<u64>,
    /// While the membership is joint: the members that will only follow after it.
    pub learners_next: BTreeSet<u64>,
}

impl Membership {
    /// A set of these voters.
    pub fn of(voters: impl IntoIterator<Item = u64>) -> Membership {
        Membership { voters: voters.into_iter().collect(), ..Membership::default() }
    }

    /// Whether two majorities decide.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether the member votes.
    pub fn votes(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.outgoing.contains(&id)
    }

    /// Whether it is a member at all.
    pub fn contains(&self, id: u64) -> bool {
        self.votes(id) || self.learners.contains(&id)
    }

    /// All members.
    pub fn members(&self) -> BTreeSet<u64> {
        self.voters.iter().chain(&self.outgoing).chain(&self.learners).copied().collect()
    }
}
