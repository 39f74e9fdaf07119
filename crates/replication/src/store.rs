//! A [`Log`] as raft-rs' storage.
//!
//! Entries of raft-rs are made from ours when it asks for them. A change of the membership stands in the entry's
//! context in our form; its data, which raft-rs checks when it is proposed, is not kept.

use crate::entry::{self, Entry, Frame, Membership, Payload};
use crate::log::Log;
use raft::eraftpb::{self, ConfState, EntryType, Snapshot};
use raft::util::limit_size;
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

pub(crate) struct Store<L>(pub L);

impl<L: Log> Storage for Store<L> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let state = self.0.hard_state();
        let hard_state = eraftpb::HardState {
            // raft-rs takes a message of term 0 for one of its own.
            term: state.term.max(1),
            vote: state.vote,
            // A power loss may have taken entries that were known to be committed.
            commit: state.commit.min(self.0.last()),
            ..Default::default()
        };
        Ok(RaftState { hard_state, conf_state: conf_state(&state.membership) })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        if low < self.0.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        let max_size = max_size.into();
        let mut entries = Vec::new();
        let mut bytes = 0;
        for index in low..high {
            let entry = self.0.entry(index).ok_or(Error::Store(StorageError::Unavailable))?;
            let entry = to_raft(&entry);
            // No entry counts less. What is too much is not read.
            bytes += 2 + (entry.data.len() + entry.context.len()) as u64;
            entries.push(entry);
            if max_size.is_some_and(|max| bytes > max) {
                break;
            }
        }
        limit_size(&mut entries, max_size);
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = match index < self.0.first() {
            true => StorageError::Compacted,
            false => StorageError::Unavailable,
        };
        self.0.term(index).ok_or(Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.0.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.0.last())
    }

    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

fn conf_state(membership: &Membership) -> ConfState {
    ConfState {
        voters: membership.voters.iter().copied().collect(),
        voters_outgoing: membership.outgoing.iter().copied().collect(),
        learners: membership.learners.iter().copied().collect(),
        learners_next: membership.learners_next.iter().copied().collect(),
        ..Default::default()
    }
}

/// The membership that raft-rs tells of.
pub(crate) fn membership(state: &ConfState) -> Membership {
    Membership {
        voters: state.voters.iter().copied().collect(),
        outgoing: state.voters_outgoing.iter().copied().collect(),
        learners: state.learners.iter().copied().collect(),
        learners_next: state.learners_next.iter().copied().collect(),
    }
}

const DATA_FRAME: u8 = 1;
const DATA_CONFIG: u8 = 2;

/// The data of a frame's entry.
pub(crate) fn frame_data(frame: &Frame) -> Vec<u8> {
    let mut data = vec![DATA_FRAME];
    frame.encode(&mut data);
    data
}

/// The data of a configuration's entry.
pub(crate) fn config_data(config: &[u8]) -> Vec<u8> {
    [&[DATA_CONFIG], config].concat()
}

/// Our entry as raft-rs'.
pub(crate) fn to_raft(entry: &Entry) -> eraftpb::Entry {
    let mut to = eraftpb::Entry { index: entry.index, term: entry.term, ..Default::default() };
    match &entry.payload {
        Payload::Blank => {}
        Payload::Frame(frame) => to.data = frame_data(frame).into(),
        Payload::Config(config) => to.data = config_data(config).into(),
        Payload::Membership(changes) => {
            let mut context = Vec::new();
            entry::encode_changes(changes, &mut context);
            to.set_entry_type(EntryType::EntryConfChangeV2);
            to.context = context.into();
        }
    }
    to
}

/// raft-rs' entry as ours. `None` if we cannot have made it.
pub(crate) fn from_raft(entry: &eraftpb::Entry) -> Option<Entry> {
    let payload = match entry.get_entry_type() {
        EntryType::EntryNormal if entry.data.is_empty() => Payload::Blank,
        EntryType::EntryNormal => match entry.data.split_first()? {
            (&DATA_FRAME, frame) => Payload::Frame(Frame::decode(frame)?),
            (&DATA_CONFIG, config) => Payload::Config(config.to_vec()),
            _ => return None,
        },
        EntryType::EntryConfChangeV2 => Payload::Membership(entry::decode_changes(&entry.context)?),
        EntryType::EntryConfChange => return None,
    };
    Some(Entry { index: entry.index, term: entry.term, payload })
}
