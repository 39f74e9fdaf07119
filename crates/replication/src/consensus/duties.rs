//! What a member does by itself: its election timeout, and a leader's care for the set.

use super::{Acknowledge, Consensus, ELECTION_PARTS, FROZEN_PARTS, IN_FLIGHT_MAX, RANKS_MAX};
use crate::log::Log;
use crate::quorum;
use raft::{ProgressState, StateRole};
use std::collections::BTreeMap;

impl<L: Log> Consensus<L> {
    /// Leaves a joint membership, and hands over to a better leader.
    pub(super) fn look_after_the_set(&mut self) {
        self.probe_what_is_there();
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
                self.heartbeat_in_ticks = self.config.heartbeat_ticks;
                if self.mark.is_set {
                    self.take_mark_away();
                }
            }
        }
        let parts = match self.is_frozen {
            true => FROZEN_PARTS,
            false => (self.timeout_ticks * ELECTION_PARTS).div_ceil(self.config.election_ticks),
        };
        // A leader's was drawn for a shorter timeout, perhaps, and does not matter.
        self.node.raft.set_randomized_election_timeout(parts.max(ELECTION_PARTS));
    }

    /// A tick, for raft-rs.
    pub(super) fn count_parts(&mut self) {
        self.tick_rest += ELECTION_PARTS;
        while self.tick_rest >= self.config.election_ticks {
            self.tick_rest -= self.config.election_ticks;
            if self.node.tick() && self.node.raft.state != StateRole::Leader {
                self.drawn_for.0 = 0;
            }
            self.settle();
        }
    }

    /// A leader's heartbeats.
    pub(super) fn count_heartbeat(&mut self) {
        self.heartbeat_in_ticks = self.heartbeat_in_ticks.saturating_sub(1);
        if self.heartbeat_in_ticks == 0 {
            self.heartbeat_in_ticks = self.config.heartbeat_ticks;
            self.node.ping();
        }
    }

    /// Another election timeout and interval of heartbeats, as in [`super::Config`]. They count from now on.
    pub fn set_timing(&mut self, election_ticks: usize, heartbeat_ticks: usize) {
        let config = &mut self.config;
        if (config.election_ticks, config.heartbeat_ticks) == (election_ticks, heartbeat_ticks) {
            return;
        }
        (config.election_ticks, config.heartbeat_ticks) = (election_ticks, heartbeat_ticks);
        (self.tick_rest, self.heartbeat_in_ticks) = (0, 0);
        if !self.leads() {
            // Draws a timeout again.
            self.drawn_for.0 = 0;
        }
        self.settle();
    }

    /// The leader's process has ended: an election begins soon, unless a leader is heard of before.
    pub fn suspect_leader(&mut self) {
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Follower && raft.leader_id != 0 {
            let term = raft.term;
            raft.become_follower(term, 0);
            let ticks = self.config.election_ticks;
            let drawn = self.random.next_u64() % (ticks as u64 / 4 + 1);
            self.suspects_ticks = 1 + ticks * self.rank() + drawn as usize;
            self.settle();
        }
    }

    /// Counts the ticks until a member without its leader stands.
    pub(super) fn count_suspicion(&mut self) {
        let raft = &self.node.raft;
        if raft.state != StateRole::Follower || raft.leader_id != 0 || self.is_frozen {
            self.suspects_ticks = 0;
        }
        if self.suspects_ticks == 1 {
            // What raft-rs refuses it has not looked at.
            let _ = self.node.campaign();
        }
        self.suspects_ticks = self.suspects_ticks.saturating_sub(1);
    }

    /// While it is frozen the member does not stand for election.
    pub fn set_frozen(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
        self.settle();
    }

    /// The log's first entries may be gone since a member was asked how far its own is. One that lacks more
    /// says so, and is not asked again.
    fn probe_what_is_there(&mut self) {
        let first = self.log().first();
        for (&id, progress) in self.node.raft.mut_prs().iter_mut() {
            if progress.state == ProgressState::Probe
                && progress.next_idx < first
                && self.probed.insert(id, first) != Some(first)
            {
                progress.next_idx = first;
                progress.resume();
            }
        }
    }

    /// Other priorities, as in [`super::Config`].
    pub fn set_priorities(&mut self, priorities: BTreeMap<u64, u32>) {
        self.config.priorities = priorities;
    }

    /// Another member has lost its log, as it says: the leader counts on nothing of it.
    pub fn has_lost_its_log(&mut self, id: u64) {
        self.collect();
        let first = self.log().first();
        self.durable.remove(&id);
        if let Some(progress) = self.node.raft.mut_prs().get_mut(id) {
            progress.matched = 0;
            progress.become_probe();
            progress.next_idx = progress.next_idx.max(first);
        }
    }

    /// The leader's view of another member's log: up to where it is written, and durable.
    pub fn reached_by(&self, id: u64) -> Option<(u64, u64)> {
        if !self.leads() {
            return None;
        }
        let written = self.node.raft.prs().get(id)?.matched;
        let durable = match self.config.acknowledge {
            Acknowledge::Durable => written,
            Acknowledge::Written => self.durable.get(&id).copied().unwrap_or(0).min(written),
        };
        Some((written, durable))
    }

    /// The last entry that a quorum of the membership in force is known by this leader to have. Before the membership
    /// changed, later entries may have been committed. 0 if it does not lead.
    pub fn reached_by_quorum(&self) -> u64 {
        let (own, last) = (self.config.id, self.log().last());
        let end_of = |id| if id == own { last } else { self.reached_by(id).map_or(0, |of| of.0) };
        if self.leads() { quorum::reached(&self.membership, end_of) } else { 0 }
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
