//! What a member does by itself: its election timeout, and a leader's care for the set.

use super::{Consensus, IN_FLIGHT_MAX, RANKS_MAX};
use crate::log::Log;
use raft::{ProgressState, StateRole};

impl<L: Log> Consensus<L> {
    /// Leaves a joint membership, and hands over to a better leader.
    pub(super) fn look_after_the_set(&mut self) {
        self.hand_over_ticks = self.hand_over_ticks.saturating_sub(1);
        if self.hand_over_ticks > 0 {
            return;
        }
        self.hand_over_ticks = self.hand_over_interval();
        let own = self.config.id;
        let stays = self.membership.voters.contains(&own);
        let raft = &self.node.raft;
        let can_change = !raft.has_pending_conf() && raft.commit_to_current_term();
        if self.membership.is_joint() && stays && can_change {
            // If this is not possible now, it is at the next time.
            let _ = self.propose_change(&[]);
            return;
        }
        let own_priority = self.priority(own);
        let last = raft.raft_log.last_index();
        let better = self.membership.voters.iter().filter(|&&id| {
            let follows = raft.prs().get(id).is_some_and(|progress| {
                progress.recent_active
                    && progress.state == ProgressState::Replicate
                    && progress.matched + IN_FLIGHT_MAX as u64 > last
            });
            id != own && follows && (!stays || self.priority(id) > own_priority)
        });
        if let Some(&to) = better.max_by_key(|&&id| self.priority(id)) {
            self.node.transfer_leader(to);
        }
    }

    /// Draws an election timeout when the term, the role or the leader is another, and sees to what a new leader is to
    /// forget.
    pub(super) fn settle(&mut self) {
        let raft = &self.node.raft;
        let now = (raft.term, raft.state, raft.leader_id);
        if now != self.drawn_for {
            let became_leader = now.1 == StateRole::Leader;
            self.drawn_for = now;
            let ticks = self.config.election_ticks;
            let drawn = self.random.next_u64() % ticks as u64;
            self.timeout_ticks = ticks * (1 + self.rank()) + drawn as usize;
            if became_leader {
                self.durable.clear();
                self.hand_over_ticks = self.hand_over_interval();
                if self.mark.is_set {
                    self.take_mark_away();
                }
            }
        }
        self.node.raft.set_randomized_election_timeout(self.timeout_ticks);
    }

    /// Not the interval of raft-rs' check of the quorum, which forgets who is active.
    fn hand_over_interval(&self) -> usize {
        self.config.election_ticks + self.config.election_ticks / 2
    }

    /// How much later than others this member is to stand for election.
    fn rank(&self) -> usize {
        let best = self.membership.voters.iter().map(|&id| self.priority(id)).max().unwrap_or(1);
        match self.priority(self.config.id) {
            0 => RANKS_MAX,
            own if own < best => 1,
            _ => 0,
        }
    }

    fn priority(&self, id: u64) -> u32 {
        self.config.priorities.get(&id).copied().unwrap_or(1)
    }
}
