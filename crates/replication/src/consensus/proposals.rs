//! What a leader is asked for: entries, changes of the membership, reads, and to hand over.

use super::{Consensus, ProposeError};
use crate::entry::{self, CHANGES_MAX, CONFIG_BYTES_MAX, Change, Frame, MEMBERS_MAX, Payload};
use crate::log::Log;
use crate::store;
use raft::Changer;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

impl<L: Log> Consensus<L> {
    /// Whether a frame or a configuration can be proposed now.
    pub fn can_propose(&self) -> bool {
        self.leads() && self.node.raft.lead_transferee.is_none()
    }

    /// Proposes a frame. Returns its index and term.
    pub fn propose(&mut self, frame: Frame) -> Result<(u64, u64), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        if frame.units == 0 {
            return Err(ProposeError::Invalid);
        }
        self.propose_data(store::frame_data(&frame))
    }

    /// Proposes a configuration. Returns its index and term.
    pub fn propose_config(&mut self, config: &[u8]) -> Result<(u64, u64), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        if config.len() > CONFIG_BYTES_MAX {
            return Err(ProposeError::Invalid);
        }
        self.propose_data(store::config_data(config))
    }

    /// Proposes an entry that has nothing but its place.
    pub fn propose_blank(&mut self) -> Result<(u64, u64), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        self.propose_data(Vec::new())
    }

    /// Gives the leadership up without a successor.
    pub fn step_down(&mut self) {
        if self.leads() {
            let term = self.term();
            self.node.raft.become_follower(term, 0);
            self.settle();
        }
    }

    fn propose_data(&mut self, data: Vec<u8>) -> Result<(u64, u64), ProposeError> {
        self.node.propose(Vec::new(), data).map_err(|_| ProposeError::NotReady)?;
        Ok((self.node.raft.raft_log.last_index(), self.term()))
    }

    /// The unit after those of the log's last frame; 1 if there is none.
    pub fn next_unit(&self) -> u64 {
        let log = &self.node.raft.raft_log;
        let unstable = log.unstable_entries().iter().rev().filter_map(store::from_raft);
        let first = self.log().first();
        let stored = (first..log.unstable.offset).rev().filter_map(|index| self.log().entry(index));
        let last = unstable.chain(stored).find_map(|entry| match entry.payload {
            Payload::Frame(frame) => Some(frame.end()),
            _ => None,
        });
        last.unwrap_or(1)
    }

    /// Proposes a change of the membership. Several changes go through a joint membership, which the leader leaves by
    /// itself.
    pub fn change(&mut self, changes: &[Change]) -> Result<(u64, u64), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        if self.node.raft.has_pending_conf() || self.membership.is_joint() {
            return Err(ProposeError::ChangePending);
        }
        if changes.is_empty() || changes.len() > CHANGES_MAX {
            return Err(ProposeError::InvalidChange);
        }
        let leaves = |change: &Change| !matches!(change, Change::Voter(_));
        if changes.iter().any(|change| change.member() == self.config.id && leaves(change)) {
            return Err(ProposeError::HandOverFirst);
        }
        let changed = membership_change(changes);
        let mut changer = Changer::new(self.node.raft.prs());
        let outcome = match changed.enter_joint() {
            Some(leaves_itself) => changer.enter_joint(leaves_itself, &changed.changes),
            None => changer.simple(&changed.changes),
        };
        let (membership, _) = outcome.map_err(|_| ProposeError::InvalidChange)?;
        let members = store::membership(&membership.to_conf_state()).members().len();
        if members > MEMBERS_MAX || changes.iter().any(|change| change.member() == 0) {
            return Err(ProposeError::InvalidChange);
        }
        self.propose_change(changes)
    }

    pub(super) fn propose_change(
        &mut self,
        changes: &[Change],
    ) -> Result<(u64, u64), ProposeError> {
        let mut context = Vec::new();
        entry::encode_changes(changes, &mut context);
        let change = membership_change(changes);
        self.node.propose_conf_change(context, change).map_err(|_| ProposeError::NotReady)?;
        Ok((self.node.raft.raft_log.last_index(), self.term()))
    }

    /// Asks for a read that sees all that was acknowledged before: [`Output::reads`] has the number once it may be
    /// answered, unless the leader loses its role before. Numbers must not repeat.
    pub fn read(&mut self, number: u64) -> Result<(), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        if !self.node.raft.commit_to_current_term() {
            return Err(ProposeError::NotReady);
        }
        self.node.read_index(number.to_le_bytes().to_vec());
        Ok(())
    }

    /// Hands the leadership over to a voter. Until it is over, or an election timeout has passed, nothing can be
    /// proposed.
    pub fn hand_over(&mut self, to: u64) -> Result<(), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        if !self.membership.votes(to) || to == self.config.id {
            return Err(ProposeError::InvalidChange);
        }
        self.node.transfer_leader(to);
        Ok(())
    }
}

/// raft-rs' form of changes.
pub(super) fn membership_change(changes: &[Change]) -> ConfChangeV2 {
    let mut change = ConfChangeV2::default();
    if changes.len() > 1 {
        change.set_transition(ConfChangeTransition::Explicit);
    }
    for of in changes {
        let mut single = ConfChangeSingle { node_id: of.member(), ..Default::default() };
        single.set_change_type(match of {
            Change::Voter(_) => ConfChangeType::AddNode,
            Change::Learner(_) => ConfChangeType::AddLearnerNode,
            Change::Removed(_) => ConfChangeType::RemoveNode,
        });
        change.mut_changes().push(single);
    }
    change
}
