//! One member of a set.
//!
//! A member is driven by its owner, which has the clock, the network and the disk. The owner calls [`Consensus::tick`]
//! at regular times, [`Consensus::step`] for each message, and [`Consensus::propose`] on the leader; after any of these
//! and after each sync of the log it calls [`Consensus::advance`], sends the messages and applies the entries that this
//! returns, and tells so by [`Consensus::applied`].
//!
//! There are two commit points. The *written* one has been written by a quorum, the *durable* one is durable on a
//! quorum; it is never beyond the first. With [`Acknowledge::Durable`] a member acknowledges entries when they are
//! durable, and both are one. With [`Acknowledge::Written`] it does so when they are written, and elections follow the
//! rule of [`power_loss`].
//!
//! Invariants: a term and a vote are durable before a message tells of them. A change of the membership comes into
//! force when it is committed, and is durable on the member then. A follower forwards nothing. Election timeouts are drawn from the
//! owner's random source; raft-rs' own are overwritten before they are looked at.

mod duties;
mod proposals;

use crate::codec::{Envelope, Kind, Message};
use crate::entry::{Change, Entry, MEMBERS_MAX, Membership, Payload};
use crate::guard::{self, Refused, View};
use crate::log::{HardState, Log};
use crate::power_loss::{Ballot, Mark};
use crate::quorum;
use crate::store::{self, Store};
use crate::translate;
use kauri_base::RandomSource;
use raft::{ProgressState, RawNode, ReadOnlyOption, StateRole};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// Bytes of entries in a message, as raft-rs counts them. An entry has two at least.
const ENTRY_BYTES_MAX: u64 = 2 * crate::codec::ENTRIES_MAX as u64;
/// Messages of entries to one follower that are not answered, at most.
const IN_FLIGHT_MAX: usize = 64;
/// Ranks by which a member's election timeout is longer, at most.
const RANKS_MAX: usize = 2;

/// raft-rs' timers are fixed at its start. It counts parts of an election timeout, this many, and ticks of the owner are as
/// many parts as the timeout in force says.
const ELECTION_PARTS: usize = 40;
/// The election timeout of a member that does not stand: nobody waits so many parts.
const FROZEN_PARTS: usize = 1 << 40;

/// When a member acknowledges entries to the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledge {
    /// When a process death does not lose them.
    Written,
    /// When a power loss does not lose them.
    Durable,
}

/// What a member is told at its start. All but `id` is the same on all members of a set.
#[derive(Clone, Debug)]
pub struct Config {
    /// The set's id.
    pub set: u64,
    /// The member's id, not 0.
    pub id: u64,
    /// When entries are acknowledged.
    pub acknowledge: Acknowledge,
    /// Ticks without a leader before an election at least; each timeout is longer by up to as much again.
    pub election_ticks: usize,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: usize,
    /// The members' priorities; without one it is 1. A leader hands over to a member of higher priority. A member of
    /// priority 0 leads only until another can; an arbiter is one.
    pub priorities: BTreeMap<u64, u32>,
}

/// A member's role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks whether it would be elected, or for votes.
    Candidate,
    /// Leads.
    Leader,
}

/// Why something was not proposed. Nothing has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposeError {
    /// The member does not lead.
    NotLeader,
    /// The leader hands over, or has not committed an entry of its term.
    NotReady,
    /// A frame without units, or a configuration that is too long.
    Invalid,
    /// Another change of the membership is under way.
    ChangePending,
    /// No such change can be made of this membership.
    InvalidChange,
    /// The leader cannot remove itself: hand over first.
    HandOverFirst,
}

impl fmt::Display for ProposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProposeError::NotLeader => "the member is not the leader",
            ProposeError::NotReady => "the leader is not ready",
            ProposeError::Invalid => "the entry is not valid",
            ProposeError::ChangePending => "another change of the members is under way",
            ProposeError::InvalidChange => "the change is not valid for these members",
            ProposeError::HandOverFirst => "the leader cannot remove itself",
        })
    }
}

impl std::error::Error for ProposeError {}

/// A member that cannot start: the state on its log is damaged.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the member cannot start: {}", self.0)
    }
}

impl std::error::Error for StartError {}

/// What the owner has to do.
#[derive(Debug, Default)]
pub struct Output {
    /// To send, in any order, as often as not at all.
    pub messages: Vec<Envelope>,
    /// To apply, in this order.
    pub committed: Vec<Entry>,
    /// Reads that may be answered, by the number that was given: once the entry at the index is applied.
    pub reads: Vec<(u64, u64)>,
}

/// Messages that wait until the writes before them are durable.
struct Pending {
    number: u64,
    writes: u64,
    messages: Vec<(Message, u64, bool)>,
}

/// See the module.
pub struct Consensus<L: Log> {
    node: RawNode<Store<L>>,
    config: Config,
    random: Arc<dyn RandomSource>,
    membership: Membership,
    mark: Mark,
    ballot: Ballot,
    /// The newest starts of the other members.
    boots: BTreeMap<u64, u64>,
    pending: VecDeque<Pending>,
    /// Committed entries that have not been given out.
    committed: VecDeque<Entry>,
    /// The log is that of the leader of this term up to this index.
    accepted: (u64, u64),
    /// What the leader of this term was told to be durable here.
    reported: (u64, u64),
    /// The leader's view: up to where the others' logs are durable.
    durable: BTreeMap<u64, u64>,
    /// The leader's first entry, when a member was last asked whether it follows there.
    probed: BTreeMap<u64, u64>,
    durable_commit: u64,
    /// The term, role and leader that the election timeout was drawn for.
    drawn_for: (u64, StateRole, u64),
    timeout_ticks: usize,
    /// What is left of ticks that were no whole part of an election timeout.
    tick_rest: usize,
    /// Ticks until a leader's next heartbeat.
    heartbeat_in_ticks: usize,
    /// Ticks until the member stands because its leader's process has ended; 0 for none.
    suspects_ticks: usize,
    is_frozen: bool,
    /// Ticks until a leader looks for a better one.
    hand_over_ticks: usize,
    output: Output,
}

impl<L: Log> Consensus<L> {
    /// Starts a member on its log. `lost_power`: written entries may have been lost since the last start. Entries up to
    /// `applied` are not given out again; it must not be below the log's membership.
    pub fn start(
        config: Config,
        mut log: L,
        random: Arc<dyn RandomSource>,
        lost_power: bool,
        applied: u64,
    ) -> Result<Self, StartError> {
        let mut state = log.hard_state().clone();
        let marks =
            config.acknowledge == Acknowledge::Written && !state.membership.voters.is_empty();
        state.boot += 1;
        state.lost_power = marks && (state.lost_power || lost_power);
        state.term = state.term.max(1);
        state.commit = state.commit.min(log.last()).max(state.membership_index);
        let (membership, is_marked) = (state.membership.clone(), state.lost_power);
        let applied = applied.clamp(state.membership_index, state.commit);
        log.set_hard_state(state);
        log.sync();
        let raft_config = raft_config(&config, applied);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&raft_config, Store(log), &logger)
            .map_err(|error| StartError(error.to_string()))?;
        let mut this = Consensus {
            node,
            config,
            random,
            membership,
            mark: Mark::new(is_marked),
            ballot: Ballot::default(),
            boots: BTreeMap::new(),
            pending: VecDeque::new(),
            committed: VecDeque::new(),
            accepted: (0, 0),
            reported: (0, 0),
            durable: BTreeMap::new(),
            probed: BTreeMap::new(),
            durable_commit: 0,
            drawn_for: (0, StateRole::Follower, 0),
            timeout_ticks: 0,
            tick_rest: 0,
            heartbeat_in_ticks: 0,
            suspects_ticks: 0,
            is_frozen: false,
            hand_over_ticks: 0,
            output: Output::default(),
        };
        this.settle();
        Ok(this)
    }

    /// A regular time has passed.
    pub fn tick(&mut self) {
        let raft = &self.node.raft;
        // The only voter would lead at once, and raft-rs wants all its entries persisted then.
        let waits =
            raft.prs().is_singleton() && raft.raft_log.persisted < raft.raft_log.last_index();
        if waits && raft.state != StateRole::Leader {
            return;
        }
        self.count_parts();
        self.count_heartbeat();
        self.count_suspicion();
        self.settle();
        if self.node.raft.state == StateRole::Leader {
            self.look_after_the_set();
        }
    }

    /// A message has arrived. A refusal is the sender's fault, or harmless; nothing has happened then, except that a
    /// sender that has not heard of this member's start will.
    pub fn step(&mut self, envelope: Envelope) -> Result<(), Refused> {
        let checked = self.check(&envelope);
        if checked == Err(Refused::Stale) && envelope.from_boot >= self.known_boot(envelope.from) {
            // Both may have started since; so the report has to be to the sender as it is now.
            self.note_boot(&envelope);
            self.send_report(envelope.from);
        }
        checked?;
        self.note_boot(&envelope);
        let Envelope {
            from,
            to_boot,
            term,
            last,
            durable,
            durable_commit,
            lost_power,
            message,
            ..
        } = envelope;
        let boot_is_known = to_boot != 0;
        let is_leaders = message.as_ref().is_some_and(|message| message.kind.is_leaders());
        let is_alive = message.as_ref().is_some_and(|message| message.kind == Kind::HeartbeatSeen);
        if let Some(message) = message {
            self.step_message(from, lost_power, message);
        }
        let own_term = self.term();
        if term == own_term && self.leads() {
            let end = self.durable.entry(from).or_default();
            *end = durable.min(self.node.raft.raft_log.last_index()).max(*end);
            if lost_power && is_alive && self.node.raft.prs().get(from).is_some() {
                // Its answer to entries, though there be none, is what takes its mark away.
                self.node.raft.send_append(from);
            }
        }
        if term == own_term && is_leaders && self.leader() == Some(from) {
            if boot_is_known {
                self.mark.hears(term, last);
            }
            self.collect();
            let end = if self.accepted.0 == term { self.accepted.1 } else { 0 };
            let end = end.min(self.node.raft.raft_log.committed);
            self.durable_commit = self.durable_commit.max(durable_commit.min(end));
        }
        self.settle();
        Ok(())
    }

    fn check(&self, envelope: &Envelope) -> Result<(), Refused> {
        let raft = &self.node.raft;
        let term_of = |index| raft.raft_log.term(index).ok();
        let view = View {
            set: self.config.set,
            id: self.config.id,
            boot: self.boot(),
            term: raft.term,
            leads: self.leads(),
            leader: raft.leader_id,
            first: self.log().first(),
            last: raft.raft_log.last_index(),
            committed: raft.raft_log.committed,
            membership: &self.membership,
            known_boot: self.known_boot(envelope.from),
            term_of: &term_of,
        };
        guard::check(envelope, &view)
    }

    fn known_boot(&self, id: u64) -> u64 {
        self.boots.get(&id).copied().unwrap_or(0)
    }

    /// The sender's process has started anew, perhaps with a shorter log.
    fn note_boot(&mut self, envelope: &Envelope) {
        let from = envelope.from;
        if envelope.from_boot == self.known_boot(from) {
            return;
        }
        // Ids come from the network.
        if self.boots.len() >= 2 * MEMBERS_MAX && !self.boots.contains_key(&from) {
            return;
        }
        // What is to be sent was meant for the process before.
        self.collect();
        self.boots.insert(from, envelope.from_boot);
        self.probed.remove(&from);
        if !self.leads() {
            return;
        }
        let (first, last) = (self.log().first(), self.node.raft.raft_log.last_index());
        if let Some(progress) = self.node.raft.mut_prs().get_mut(from) {
            progress.matched = progress.matched.min(envelope.last);
            if progress.state != ProgressState::Snapshot {
                progress.become_probe();
                // Of what is before the log's first entry nothing can be sent.
                progress.next_idx = (envelope.last.min(last) + 1).max(first);
            }
        }
        if let Some(end) = self.durable.get_mut(&from) {
            *end = (*end).min(envelope.last);
        }
    }

    fn step_message(&mut self, from: u64, from_is_marked: bool, message: Message) {
        if matches!(message.kind, Kind::Voted | Kind::TakeOver) {
            // raft-rs wants a new leader's entries to be persisted. The member has not asked for this vote; and as the
            // only voter it would lead at once.
            self.collect();
            if !self.pending.is_empty() {
                return;
            }
        }
        let raft = &self.node.raft;
        let is_vote = match message.kind {
            Kind::PreVoted => {
                raft.state == StateRole::PreCandidate && message.term == raft.term + 1
            }
            Kind::Voted => raft.state == StateRole::Candidate && message.term == raft.term,
            _ => false,
        };
        let own = (self.config.id, self.mark.is_set);
        let steps = match is_vote && !message.reject {
            true => self.ballot.agree(&self.membership, own, (from, from_is_marked), message),
            false => vec![(from, message)],
        };
        for (from, message) in steps {
            let message = translate::to_raft(from, self.config.id, message);
            // What raft-rs refuses it has not looked at.
            let _ = self.node.step(message);
        }
    }

    /// Does what the calls before have brought, as far as the log's writes are durable.
    pub fn advance(&mut self) -> Output {
        self.collect();
        self.advance_durable_commit();
        self.give_out();
        self.report();
        std::mem::take(&mut self.output)
    }

    /// All entries up to `index`, which has been given out, are applied.
    pub fn applied(&mut self, index: u64) {
        if index > self.node.raft.raft_log.applied {
            self.node.advance_apply_to(index);
        }
    }

    fn collect(&mut self) {
        self.release();
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            let mut writes = 0;
            let entries: Vec<Entry> =
                ready.take_entries().iter().filter_map(store::from_raft).collect();
            if !entries.is_empty() {
                let log = self.log_mut();
                log.append(&entries);
                if self.config.acknowledge == Acknowledge::Durable {
                    writes = self.log().writes();
                }
            }
            if let Some(state) = ready.hs() {
                let (term, vote, commit) = (state.term, state.vote, state.commit);
                let before = self.log().hard_state().clone();
                let votes = before.term != term || before.vote != vote;
                self.log_mut().set_hard_state(HardState { term, vote, commit, ..before });
                if votes && self.leads() {
                    // The only voter has elected itself, and its messages do not wait.
                    self.log_mut().sync();
                } else if votes {
                    writes = self.log().writes();
                }
            }
            for read in ready.take_read_states() {
                if let Ok(number) = read.request_ctx.as_slice().try_into() {
                    self.output.reads.push((u64::from_le_bytes(number), read.index));
                }
            }
            let entries = ready.take_committed_entries();
            self.committed.extend(entries.iter().filter_map(store::from_raft));
            for message in ready.take_messages() {
                let is_marked = self.mark.is_set;
                if let Some((message, to)) = translate::from_raft(message) {
                    self.send(to, is_marked, Some(message));
                }
            }
            let messages = self.take_waiting(ready.take_persisted_messages());
            self.pending.push_back(Pending { number: ready.number(), writes, messages });
            self.node.advance_append_async(ready);
            self.release();
        }
        self.settle();
    }

    /// Messages that wait, and whether the member is marked as it decides on them.
    fn take_waiting(&mut self, messages: Vec<raft::eraftpb::Message>) -> Vec<(Message, u64, bool)> {
        let mut waiting = Vec::with_capacity(messages.len());
        for (message, to) in messages.into_iter().filter_map(translate::from_raft) {
            waiting.push((message, to, self.mark.is_set));
        }
        for (message, _, _) in &waiting {
            if message.kind == Kind::Appended && !message.reject && message.term == self.term() {
                let (term, index) = self.accepted;
                let before = if term == message.term { index } else { 0 };
                self.accepted = (message.term, before.max(message.index));
            }
        }
        let (term, index) = self.accepted;
        if self.mark.has(term, index) {
            self.take_mark_away();
        }
        waiting
    }

    fn take_mark_away(&mut self) {
        self.mark = Mark::new(false);
        let state = HardState { lost_power: false, ..self.log().hard_state().clone() };
        self.log_mut().set_hard_state(state);
    }

    /// Sends what waited for writes that are durable now.
    fn release(&mut self) {
        let durable = self.log().durable_writes();
        while self.pending.front().is_some_and(|pending| pending.writes <= durable)
            && let Some(pending) = self.pending.pop_front()
        {
            self.node.on_persist_ready(pending.number);
            for (message, to, is_marked) in pending.messages {
                self.send(to, is_marked, Some(message));
            }
        }
    }

    fn send(&mut self, to: u64, is_marked: bool, mut message: Option<Message>) {
        if let Some(message) = &mut message
            && message.kind.is_leaders()
            && !self.membership.votes(to)
        {
            // Voters that have lost power need not ask a learner. So it knows of no commit point that they can lose.
            message.commit = message.commit.min(self.durable_commit);
        }
        let durable = self.durable_here();
        if self.leader() == Some(to) {
            self.reported = (self.term(), durable);
        }
        let envelope = Envelope {
            set: self.config.set,
            from: self.config.id,
            to,
            from_boot: self.boot(),
            to_boot: self.known_boot(to),
            term: self.term(),
            last: self.log().last(),
            durable,
            durable_commit: self.durable_commit,
            lost_power: is_marked,
            message,
        };
        self.output.messages.push(envelope);
    }

    /// Up to where the log is durable and is that of the term's leader.
    fn durable_here(&self) -> u64 {
        let (term, index) = self.accepted;
        if term == self.term() { index.min(self.log().durable_last()) } else { 0 }
    }

    fn send_report(&mut self, to: u64) {
        self.send(to, self.mark.is_set, None);
    }

    /// Tells the leader what has become durable.
    fn report(&mut self) {
        let Some(leader) = self.leader().filter(|&id| id != self.config.id) else { return };
        if self.config.acknowledge == Acknowledge::Written
            && self.reported != (self.term(), self.durable_here())
            && self.durable_here() > 0
        {
            self.send_report(leader);
        }
    }

    fn advance_durable_commit(&mut self) {
        let committed = self.node.raft.raft_log.committed;
        if self.config.acknowledge == Acknowledge::Durable {
            self.durable_commit = self.durable_commit.max(committed);
            return;
        }
        if !self.leads() {
            return;
        }
        let (own, own_end) = (self.config.id, self.log().durable_last());
        let end_of = |id| match id == own {
            true => own_end,
            false => self.durable.get(&id).copied().unwrap_or(0),
        };
        let reached = quorum::reached(&self.membership, end_of).min(committed);
        // As with Raft's commit point: an entry of an earlier term may still be replaced.
        let is_own_term =
            self.node.raft.raft_log.term(reached).is_ok_and(|term| term == self.term());
        if reached > self.durable_commit && is_own_term {
            self.durable_commit = reached;
        }
    }

    /// Gives out committed entries. A change of the membership comes into force before its entry is given out.
    fn give_out(&mut self) {
        while let Some(entry) = self.committed.pop_front() {
            if let Payload::Membership(changes) = &entry.payload {
                self.change_membership(entry.index, changes);
            }
            self.output.committed.push(entry);
        }
    }

    fn change_membership(&mut self, index: u64, changes: &[Change]) {
        let own = self.config.id;
        let removes =
            |change: &Change| *change == Change::Removed(own) || *change == Change::Learner(own);
        let leaves = changes.is_empty() && !self.membership.voters.contains(&own);
        if self.leads() && (leaves || changes.iter().any(removes)) {
            // raft-rs keeps such a leader, and looks for its progress in vain.
            let term = self.term();
            self.node.raft.become_follower(term, 0);
        }
        // A change that raft-rs refuses has no effect on any member.
        let Ok(state) = self.node.apply_conf_change(&proposals::membership_change(changes)) else {
            return;
        };
        self.membership = store::membership(&state);
        let (membership, before) = (self.membership.clone(), self.log().hard_state().clone());
        let commit = before.commit.max(index);
        let state = HardState { membership, membership_index: index, commit, ..before };
        self.log_mut().set_hard_state(state);
        self.log_mut().sync();
        self.settle();
        self.collect();
    }

    fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    fn boot(&self) -> u64 {
        self.log().hard_state().boot
    }

    fn log_mut(&mut self) -> &mut L {
        &mut self.node.mut_store().0
    }

    /// The log, for the owner to sync it. Only this crate writes to it.
    pub fn log_for_sync(&mut self) -> &mut L {
        self.log_mut()
    }

    /// The log.
    pub fn log(&self) -> &L {
        &self.node.store().0
    }

    /// Ends the member, and returns its log.
    pub fn into_log(self) -> L
    where
        L: Default,
    {
        let mut this = self;
        std::mem::take(this.log_mut())
    }

    /// The term.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The role.
    pub fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// The leader of the term, if it is known.
    pub fn leader(&self) -> Option<u64> {
        Some(self.node.raft.leader_id).filter(|&id| id != 0)
    }

    /// The last index that a quorum has written.
    pub fn written_commit(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The last index that is durable on a quorum.
    pub fn durable_commit(&self) -> u64 {
        self.durable_commit
    }

    /// The membership in force.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Whether the member is marked: [`power_loss`].
    pub fn is_marked(&self) -> bool {
        self.mark.is_set
    }
}

fn raft_config(config: &Config, applied: u64) -> raft::Config {
    raft::Config {
        id: config.id,
        election_tick: ELECTION_PARTS,
        // The leader's own are sent before.
        heartbeat_tick: ELECTION_PARTS - 1,
        applied,
        max_size_per_msg: ENTRY_BYTES_MAX,
        max_inflight_msgs: IN_FLIGHT_MAX,
        max_committed_size_per_ready: ENTRY_BYTES_MAX,
        check_quorum: true,
        pre_vote: true,
        min_election_tick: ELECTION_PARTS,
        max_election_tick: FROZEN_PARTS + 1,
        read_only_option: ReadOnlyOption::Safe,
        // Members refuse votes to candidates of a lower priority, though their own logs may be older: then nobody is
        // elected. Priorities make timeouts longer instead.
        priority: 0,
        ..raft::Config::default()
    }
}
