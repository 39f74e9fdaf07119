//! The task that runs a member: consensus over the engine's log.
//!
//! It takes what has arrived ([`Member::take_arrived`]), lets consensus do what follows, sends its messages, applies
//! what is committed, and publishes what has changed. All on one worker, one thing after the other.
//!
//! A leader opens the engine for writes once everything in its log is applied, its own first entry included. It closes a
//! frame of what workers have committed, and proposes it. Acknowledgements wait for its commit. Until then, but
//! not for long, the leader gathers the commits of the next frame: there are as many frames as the set's disks take, not
//! as many as there are writes.
//!
//! Invariants: nothing is sent after an append has failed. A view that says writable is published after the engine
//! accepts writes, and one that says otherwise before anybody learns of another leader from this member.

mod copying;
mod delay;
mod framing;
mod hold;
mod purging;
mod requests;
mod roles;
mod signs;
mod statements;

use crate::acks::Concern;
use crate::config::SetConfig;
use crate::entry_log::{self, EngineLog, Failure, Known};
use crate::initial_sync::source::Source;
use crate::member::{Asker, Member, Request};
use crate::message::{self, Invitation, Message, Status};
use crate::peers::{Dial, Peer};
use crate::stored::{StateFile, Stored};
use crate::view::{MemberState, PeerStatus, Place, Progress, View};
use crate::{checkpoint, initial_sync};
use kauri_base::log::{self, Attr};
use kauri_base::{Clock, CommitSeq, Error, ErrorCode, OpTime, RandomSource, Result, Timestamp};
use kauri_medium::Directory;
use kauri_replication::codec::Kind;
use kauri_replication::consensus::Acknowledge;
use kauri_replication::{Config, Consensus, Entry, Log, Payload, Role};
use kauri_storage::{
    AppliedChange, AppliedUnits, LogPosition, ReplicatedLog, StorageEngine, StorageError,
};
use kauri_transport::{WorkerHandle, monotonic_ns};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Between two ticks of consensus.
const TICK_NS: u64 = 25_000_000;
/// Ticks in a row that are made up for, if the worker was late.
const LATE_TICKS_MAX: u64 = 20;
/// Frames that a follower applies before it looks at its messages again.
const APPLIED_AT_ONCE: usize = 64;
/// The position before the first entry of a set that begins here.
pub(crate) const BASE: LogPosition = LogPosition { term: 1, index: 1 };
/// Time without a write after which a leader makes an entry, so that times go on.
const IDLE_NS: u64 = 10_000_000_000;

/// What a member needs of its server.
pub trait Host: Send + Sync {
    /// A unit was applied. It may commit units without records.
    fn applied(&self, seq: CommitSeq, changes: &[AppliedChange]) -> Result<(), StorageError>;

    /// The member leads, and writes are accepted: what only a leader may commit.
    fn lead(&self) -> Result<()>;

    /// The process has to begin again: what is in memory is not what is in the log.
    fn restart(&self, why: &str);

    /// Which run of the machine this is.
    fn machine_run(&self) -> String;

    /// Whether this address is this server's.
    fn is_self(&self, host: &str) -> bool;

    /// Whether the engine's files are locked, or are about to be: see [`Request::Hold`].
    fn is_locked(&self) -> bool {
        false
    }

    /// Whether a test wants this member to take no entries of the leader.
    fn stops_producer(&self) -> bool {
        false
    }

    /// Runs something that may block, beside everything else.
    fn aside(&self, work: Box<dyn FnOnce() + Send>);
}

/// What a driver is made of.
pub struct Parts {
    /// The handle.
    pub member: Arc<Member>,
    /// The engine, with a replicated log.
    pub engine: Arc<dyn StorageEngine>,
    /// The data directory.
    pub directory: Arc<dyn Directory>,
    /// The server.
    pub host: Arc<dyn Host>,
    /// How other members are reached.
    pub dial: Arc<dyn Dial>,
    /// Bytes of the log that are kept for members that lack them (`--oplogSize`).
    pub log_bytes: u64,
    /// The worker that it runs on. The engine may block it.
    pub worker: WorkerHandle,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn RandomSource>,
}

/// See the module's head.
pub struct Driver {
    parts: Parts,
    file: StateFile,
    /// None before the member is part of a set, and while it stands still.
    consensus: Option<Consensus<EngineLog>>,
    config: Option<Arc<SetConfig>>,
    number: u64,
    peers: BTreeMap<u64, PeerState>,
    role: Role,
    /// The leader accepts writes.
    is_open: bool,
    /// It has applied what the leader had committed when it first heard of it.
    has_caught_up: bool,
    /// How often maintenance was entered, and not left.
    maintenance: u32,
    /// Its files are locked.
    is_held: bool,
    /// The primary's log begins behind the end of this member's.
    is_stale: bool,
    elected: Option<(i64, Timestamp)>,
    frozen_until_ns: u64,
    /// Wants the leader to hand over.
    wants_to_lead: bool,
    /// Voters that have lost their logs, as they say: they are to follow only until they have it again.
    wiped: BTreeSet<u64>,
    /// While this member is in no set: the link with the member that has invited it.
    inviter: Option<Peer>,
    /// The initial sync of this member.
    joining: Option<copying::Joining>,
    /// Copies for other members, and until when none is begun.
    source: Source,
    no_copies_until_ns: u64,
    /// When an initial sync may begin again.
    next_sync_ns: u64,
    /// A checkpoint that is to be written before frames are purged.
    checkpoint: Option<purging::Checkpoint>,
    /// Messages that come in parts.
    arriving: message::Parts,
    has_told_of_malformed: bool,
    /// Reconfigurations that are proposed: index, term.
    proposed: VecDeque<(u64, u64, Asker)>,
    reads: BTreeMap<u64, (Asker, Option<u64>)>,
    next_read: u64,
    reaching: Vec<(u64, Asker)>,
    stepping_down: Option<requests::StepDown>,
    applied: Option<Known>,
    /// The log's first entry, and its place.
    first: (u64, Place),
    /// The commit sequence before the set's first entry.
    base_seq: u64,
    /// The last entry that consensus has given out as committed.
    given: u64,
    /// The last one that is known to be committed.
    kept: u64,
    last_proposal_ns: u64,
    tick_ns: u64,
    status_ns: u64,
    purge_ns: u64,
    /// When a member that stands still tries again.
    retry_ns: u64,
    is_over: bool,
}

/// What is known of another member.
struct PeerState {
    peer: Peer,
    status: Status,
    /// When it was last heard of, by this machine's clock; 0 for never.
    heard_ns: u64,
    heard_ms: i64,
    up_since_ms: i64,
    answered_ms: i64,
    ping_us: u64,
    losses: u64,
}

impl Driver {
    /// A driver of this member. Reads the state file; begins nothing.
    pub fn new(parts: Parts) -> Result<Driver> {
        let file = StateFile::new(parts.directory.clone());
        parts.member.set_log_bytes(parts.log_bytes);
        let mut driver = Driver {
            file,
            consensus: None,
            config: None,
            number: 0,
            peers: BTreeMap::new(),
            role: Role::Follower,
            is_open: false,
            has_caught_up: false,
            maintenance: 0,
            is_held: false,
            is_stale: false,
            elected: None,
            frozen_until_ns: 0,
            wants_to_lead: false,
            wiped: BTreeSet::new(),
            inviter: None,
            joining: None,
            source: Source::default(),
            no_copies_until_ns: 0,
            next_sync_ns: 0,
            checkpoint: None,
            arriving: message::Parts::default(),
            has_told_of_malformed: false,
            proposed: VecDeque::new(),
            reads: BTreeMap::new(),
            next_read: 1,
            reaching: Vec::new(),
            stepping_down: None,
            applied: None,
            first: (0, Place::default()),
            base_seq: 0,
            given: 0,
            kept: 0,
            last_proposal_ns: 0,
            tick_ns: monotonic_ns(),
            status_ns: 0,
            purge_ns: 0,
            retry_ns: 0,
            is_over: false,
            parts,
        };
        match driver.file.read()? {
            Some(stored) => driver.start(stored)?,
            None if driver.log()?.frames().last.index > 0 => {
                let message = "the data directory is of a member of a replica set, and its state file is missing: \
                               remove the directory's contents and let the member copy another one's data";
                return Err(Error::new(ErrorCode::UnrecoverableRollbackError, message));
            }
            None => {}
        }
        initial_sync::discard(&*driver.parts.directory).map_err(|error| {
            let text = format!("the rest of an initial sync cannot be removed: {error}");
            Error::new(ErrorCode::OperationFailed, text)
        })?;
        driver.publish();
        Ok(driver)
    }

    fn log(&self) -> Result<&dyn ReplicatedLog> {
        Ok(self.parts.engine.replicated_log()?)
    }

    /// Begins consensus on what is stored.
    fn start(&mut self, mut stored: Stored) -> Result<()> {
        if self.log()?.frames().last.index == 0 {
            // The process ended between the two steps of a beginning.
            self.log()?.begin_frames(BASE)?;
        }
        let config = SetConfig::parse(stored.config.as_doc())?;
        if config.name != self.parts.member.set_name() {
            let message = format!(
                "the data directory is of a member of replica set {}, and --replSet is {}",
                config.name,
                self.parts.member.set_name()
            );
            return Err(Error::new(ErrorCode::InvalidReplicaSetConfig, message));
        }
        // The engine's mark is newer, where term and vote have not changed for long.
        stored.state.commit = stored.state.commit.max(self.log()?.committed());
        let run = self.parts.host.machine_run();
        let lost_power = std::mem::replace(&mut stored.machine_run, run.clone()) != run;
        self.number = stored.number;
        let engine = self.parts.engine.clone();
        let statements = self.parts.member.statements().clone();
        let (seen, membership_index) = (stored.seen, stored.state.membership_index);
        let mut log = EngineLog::open(engine, self.file.clone(), stored, statements)?;
        let stored_config = config.clone();
        let config = newest_config(&mut log, config, (seen, membership_index));
        let applied = self.log()?.applied().index;
        self.applied = log.known(applied);
        self.read_statements(&log)?;
        let first = log.body(Log::first(&log));
        self.base_seq = match first {
            Some((frame, _)) if frame.position.index == BASE.index + 1 => frame.first.0 - 1,
            Some(_) => 0,
            None => self.parts.engine.visible().0,
        };
        let consensus = Consensus::start(
            consensus_config(&config, self.number),
            log,
            self.parts.random.clone(),
            lost_power,
            // Later configurations are read again.
            applied.min(seen.max(self.log()?.frames().purged.index)),
        );
        let consensus =
            consensus.map_err(|error| Error::new(ErrorCode::InternalError, error.to_string()))?;
        (self.given, self.kept) = (0, consensus.written_commit());
        self.role = consensus.role();
        self.consensus = Some(consensus);
        // Whom only the former one names may have to agree to leave.
        self.set_config(stored_config);
        self.set_config(config);
        self.set_frozen();
        Ok(())
    }

    fn set_config(&mut self, config: SetConfig) {
        let own = self.number;
        let membership = self.consensus.as_ref().map(|of| of.membership().clone());
        let is_named = |number: u64| config.members.iter().any(|of| of.number() == number);
        // It has to agree to leave.
        let leaves = |number: u64| {
            !is_named(number) && membership.as_ref().is_some_and(|of| of.contains(number))
        };
        self.peers.retain(|number, state| {
            match config.members.iter().find(|of| of.number() == *number) {
                Some(of) => of.host == state.peer.host,
                None => leaves(*number),
            }
        });
        let stored = self.consensus.as_ref().map(|of| of.log().stored().leaving.clone());
        let mut hosts: BTreeMap<u64, String> = stored.unwrap_or_default();
        hosts.retain(|number, _| leaves(*number));
        hosts.extend(config.members.iter().map(|of| (of.number(), of.host.clone())));
        for (number, host) in hosts.into_iter().filter(|(number, _)| *number != own) {
            let Parts { worker, dial, engine, .. } = &self.parts;
            self.peers.entry(number).or_insert_with(|| PeerState {
                peer: Peer::open(worker, dial.clone(), engine.clone(), (own, &host)),
                status: Status { state: MemberState::Unknown, ..Status::default() },
                heard_ns: 0,
                heard_ms: 0,
                up_since_ms: 0,
                answered_ms: 0,
                ping_us: 0,
                losses: 0,
            });
        }
        let leaving = self.peers.iter().filter(|(number, _)| leaves(**number));
        let leaving = leaving.map(|(number, of)| (*number, of.peer.host.clone())).collect();
        if let Some(consensus) = &mut self.consensus {
            let Config { election_ticks, heartbeat_ticks, mut priorities, .. } =
                consensus_config(&config, own);
            // Whoever is to leave hands over.
            let gone = consensus.membership().members().into_iter().chain([own]);
            priorities.extend(gone.filter(|of| !is_named(*of)).map(|of| (of, 0)));
            consensus.set_priorities(priorities);
            consensus.set_timing(election_ticks, heartbeat_ticks);
            consensus.log_for_sync().set_leaving(leaving);
        }
        self.wants_to_lead &= config.may_lead(own);
        self.config = Some(Arc::new(config));
    }

    /// Runs until the member ends or has to begin again.
    pub async fn run(mut self) {
        while !self.is_over {
            if self.has_to_apply() {
                kauri_transport::yield_now().await;
            }
            let gathers_until = self.gathers_until();
            let next_ns = self.next_ns().min(gathers_until.unwrap_or(u64::MAX));
            let mut tick = self.parts.worker.sleep_until_ns(next_ns);
            let arrived = poll_fn(|cx| {
                let arrived = self.parts.member.take_arrived(cx.waker(), gathers_until.is_some());
                if let Some(arrived) = arrived {
                    return Poll::Ready(Some(arrived));
                }
                if self.poll_durable(cx) || self.has_to_apply() {
                    return Poll::Ready(None);
                }
                Pin::new(&mut tick).poll(cx).map(|()| None)
            })
            .await;
            self.turn_or_end(arrived);
            self.parts.worker.want_tick_end();
        }
    }

    /// A panic leaves the member in no state to go on.
    fn turn_or_end(&mut self, arrived: Option<crate::member::Arrived>) {
        let turned = catch_unwind(AssertUnwindSafe(|| self.turn(arrived)));
        if let Err(panic) = turned {
            kauri_transport::log_panic("member", "The member has panicked", &*panic);
            self.is_over = true;
            self.parts.host.restart("the member has panicked");
        }
    }

    fn next_ns(&self) -> u64 {
        match &self.consensus {
            Some(_) => self.tick_ns + TICK_NS,
            None if self.joining.is_some() => self.tick_ns + TICK_NS,
            None if self.retry_ns > 0 => self.retry_ns,
            None => u64::MAX,
        }
    }

    /// Whether more has become durable.
    fn poll_durable(&mut self, cx: &mut std::task::Context<'_>) -> bool {
        let Some(consensus) = &mut self.consensus else { return false };
        let log = consensus.log_for_sync();
        let before = Log::durable_writes(log);
        log.poll_durable(cx);
        Log::durable_writes(log) != before || log.failure().is_some()
    }

    /// Everything that can be done now.
    fn turn(&mut self, arrived: Option<crate::member::Arrived>) {
        let now_ns = monotonic_ns();
        if self.consensus.is_none() && self.retry_ns > 0 && now_ns >= self.retry_ns {
            self.try_again();
        }
        if let Some(consensus) = &mut self.consensus {
            let Timestamp { seconds, increment } = self.parts.member.cluster_time();
            let log = consensus.log_for_sync();
            log.set_clock(self.parts.clock.unix_ms());
            log.advance_time(u64::from(seconds) << 32 | u64::from(increment));
        }
        let arrived = arrived.unwrap_or_default();
        // Before a message has the log cut off, which a copy would keep from happening.
        arrived.copies.into_iter().for_each(|made| self.take_made_copy(made));
        for bytes in arrived.messages {
            self.take_message(&bytes);
        }
        for (request, asker) in arrived.requests {
            self.take_request(request, asker);
        }
        self.pass_time(now_ns);
        self.go_on_copying(now_ns);
        self.leave_before_the_end();
        // Entries that were proposed come before the next frame.
        self.pump();
        self.close_frames();
        self.pump();
        self.after(now_ns);
        self.publish();
        self.answer_waiting();
    }

    fn take_message(&mut self, bytes: &[u8]) {
        match message::decode(bytes) {
            Ok(Message::Consensus(envelope, bodies)) => self.step(envelope, bodies),
            Ok(Message::Status(status)) => self.take_status(status),
            Ok(Message::Invitation(invitation)) => self.take_invitation(invitation),
            Ok(Message::Copy(message)) => self.take_copy_message(message),
            Ok(Message::Part(part)) => {
                let whole = match self.peers.contains_key(&part.from) {
                    true => self.arriving.take(part),
                    false => None,
                };
                match whole.map(|whole| message::decode(&whole)) {
                    Some(Ok(Message::Consensus(envelope, bodies))) => self.step(envelope, bodies),
                    Some(Ok(Message::Copy(message))) => self.take_copy_message(message),
                    _ => {}
                }
            }
            Err(message::Malformed) => {
                // Anybody can send them: one line tells enough.
                if !std::mem::replace(&mut self.has_told_of_malformed, true) {
                    let message =
                        "Dropped a message that is not one of a member, and will drop others";
                    log::warning("REPL", 6_400_001, "member", message, Attr::new());
                }
            }
        }
    }

    fn step(
        &mut self,
        envelope: kauri_replication::codec::Envelope,
        bodies: Vec<crate::entry_log::Body>,
    ) {
        let is_joining = self.is_joining();
        if self.drops(&envelope) {
            return;
        }
        let Some(consensus) = &mut self.consensus else { return };
        let elects = envelope.message.as_ref().is_some_and(|message| {
            matches!(message.kind, Kind::Vote | Kind::PreVote | Kind::TakeOver)
        });
        if is_joining && elects {
            return;
        }
        let is_of_set = self.peers.contains_key(&envelope.from)
            && self.config.as_ref().is_some_and(|config| set_number(config) == envelope.set);
        if is_of_set && envelope.term > consensus.term() {
            // The log may be cut off, if this member leads no longer.
            self.source.clear();
        }
        consensus.log_for_sync().offer(bodies);
        // A refusal is the sender's fault, or harmless.
        let _ = consensus.step(envelope);
        self.pump();
        if let Some(consensus) = &mut self.consensus {
            consensus.log_for_sync().forget_offers();
        }
    }

    fn pass_time(&mut self, now_ns: u64) {
        let due = now_ns.saturating_sub(self.tick_ns) / TICK_NS;
        if due == 0 {
            return;
        }
        self.tick_ns = if due > LATE_TICKS_MAX { now_ns } else { self.tick_ns + due * TICK_NS };
        self.watch_leader();
        if self.frozen_until_ns > 0 && now_ns >= self.frozen_until_ns {
            self.frozen_until_ns = 0;
        }
        self.set_frozen();
        if let Some(consensus) = &mut self.consensus {
            for _ in 0..due.min(LATE_TICKS_MAX) {
                consensus.tick();
            }
        }
        self.send_status(now_ns);
        self.purge(now_ns);
    }

    /// Lets consensus do what is to be done.
    fn pump(&mut self) {
        loop {
            let Some(consensus) = &mut self.consensus else { return };
            consensus.log_for_sync().store_state();
            let mut noop = std::task::Context::from_waker(std::task::Waker::noop());
            consensus.log_for_sync().poll_durable(&mut noop);
            let output = consensus.advance();
            if let Some(failure) = consensus.log().failure().cloned() {
                return self.fail(failure);
            }
            let is_idle = output.messages.is_empty()
                && output.committed.is_empty()
                && output.reads.is_empty();
            for envelope in output.messages {
                if let Some(state) = self.peers.get(&envelope.to) {
                    state.peer.send(envelope);
                }
            }
            for entry in &output.committed {
                self.take_committed(entry);
            }
            if !output.committed.is_empty() && !self.is_open {
                self.tell_committed();
            }
            for (number, index) in output.reads {
                if let Some(read) = self.reads.get_mut(&number) {
                    read.1 = Some(index);
                }
            }
            if !self.look_at_role() || is_idle {
                return;
            }
        }
    }

    fn take_committed(&mut self, entry: &Entry) {
        self.given = entry.index;
        self.kept = self.kept.max(entry.index);
        if let Payload::Config(bytes) = &entry.payload {
            self.take_config(bytes);
            if let Some(consensus) = &mut self.consensus {
                consensus.log_for_sync().note_told();
            }
        }
        if let Some(consensus) = &mut self.consensus {
            consensus.log_for_sync().note_seen(entry.index);
        }
    }

    /// A configuration that is committed, if it is newer than the one in force.
    fn take_config(&mut self, bytes: &[u8]) {
        let Ok(doc) = kauri_bson::Doc::from_bytes(bytes) else { return };
        let Ok(config) = SetConfig::parse(doc) else { return };
        let newer = self
            .config
            .as_ref()
            .is_none_or(|known| (config.term, config.version) > (known.term, known.version));
        if !newer {
            return;
        }
        if let Some(consensus) = &mut self.consensus {
            consensus.log_for_sync().set_config(doc.to_buf());
        }
        let attr = Attr::new().num("version", config.version).num("term", config.term);
        log::info("REPL", 21392, "member", "New replica set config in use", attr);
        self.set_config(config);
    }

    /// What has failed in the log.
    fn fail(&mut self, failure: Failure) {
        match failure {
            Failure::Restart => {
                self.leave_leadership();
                self.is_over = true;
                self.consensus = None;
                self.publish();
                // A process that is about to end does so.
                if self.parts.member.quiesce_ends().is_none() {
                    self.parts.host.restart("writes that the set has not kept are cut off");
                }
            }
            Failure::Engine(error) => self.stand_still(&error.to_string()),
            Failure::State(error) => self.stand_still(error.message()),
        }
    }

    /// The member leaves consensus for a while: the others go on.
    fn stand_still(&mut self, why: &str) {
        let attr = Attr::new().str("error", why);
        let message = "The member cannot write its log. It takes no part in the set, and tries again each second";
        log::warning("REPL", 6_400_002, "member", message, attr);
        self.parts.member.note_failure(why);
        self.leave_leadership();
        self.consensus = None;
        self.retry_ns = monotonic_ns() + 1_000_000_000;
    }

    fn try_again(&mut self) {
        self.retry_ns = 0;
        let started = match self.file.read() {
            Ok(Some(stored)) => self.start(stored),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = started {
            self.stand_still(error.message());
        }
    }

    fn has_to_apply(&self) -> bool {
        let Ok(log) = self.log() else { return false };
        self.consensus.is_some() && !self.is_held && log.applied().index < log.committed()
    }

    /// Applies what is committed, some of it.
    fn apply(&mut self) {
        if self.stands_still() {
            return;
        }
        self.release();
        let host = self.parts.host.clone();
        let mut units = Told(&*host);
        for _ in 0..APPLIED_AT_ONCE {
            let applied = match self.log() {
                Ok(log) => log.apply_frame(&mut units),
                Err(_) => return,
            };
            let learnt = applied.and_then(|applied| {
                let learn = |position: LogPosition| {
                    self.learn_statements(position.index).map(|()| position)
                };
                applied.map(learn).transpose()
            });
            match learnt {
                Ok(Some(position)) => self.note_applied(position.index),
                Ok(None) => break,
                Err(error) => {
                    self.is_over = true;
                    return self.parts.host.restart(&format!("an entry was not applied: {error}"));
                }
            }
        }
        let Ok(index) = self.log().map(|log| log.applied().index) else { return };
        if self.applied.as_ref().is_none_or(|known| known.entry.index < index) {
            self.note_applied(index);
        }
        let seen = if self.is_delayed() { self.given } else { index.min(self.given) };
        if let Some(consensus) = &mut self.consensus {
            consensus.applied(seen);
        }
    }

    /// Readers see everything up to this entry. Its time is told before the next one is applied.
    fn note_applied(&mut self, index: u64) {
        let Some(consensus) = &self.consensus else { return };
        if let Some(known) = consensus.log().known(index) {
            if !self.is_open {
                let (seq, time) = (CommitSeq(known.seq), known.time);
                self.parts.member.set_times(seq, time, time + 1);
            }
            self.applied = Some(known);
        }
    }

    /// Readers of a member that follows may be told of what is committed.
    fn tell_committed(&self) {
        let Some(consensus) = &self.consensus else { return };
        let seq = consensus.log().known(self.given).map_or(0, |known| known.seq);
        self.parts.member.acks().reach(|concern| match concern {
            Concern::Committed | Concern::Majority => seq,
            Concern::Members { .. } | Concern::Tagged { .. } => 0,
        });
    }
}

/// The membership may have been stored before a configuration from earlier entries, which consensus does not give out
/// again.
fn newest_config(
    log: &mut EngineLog,
    mut config: SetConfig,
    (seen, membership_index): (u64, u64),
) -> SetConfig {
    let first = (seen + 1).max(Log::first(log));
    for index in first..=membership_index {
        let Some(Payload::Config(bytes)) = log.known(index).map(|known| known.entry.payload) else {
            continue;
        };
        if let Ok(doc) = kauri_bson::Doc::from_bytes(&bytes)
            && let Ok(found) = SetConfig::parse(doc)
            && (found.term, found.version) > (config.term, config.version)
        {
            log.set_config(doc.to_buf());
            config = found;
        }
    }
    config
}

struct Told<'h>(&'h dyn Host);

impl AppliedUnits for Told<'_> {
    fn applied(&mut self, seq: CommitSeq, changes: &[AppliedChange]) -> Result<(), StorageError> {
        self.0.applied(seq, changes)
    }
}

fn consensus_config(config: &SetConfig, number: u64) -> Config {
    let ticks = |ms: i64| (ms.max(1) as u64 * 1_000_000).div_ceil(TICK_NS) as usize;
    let heartbeat_ticks = ticks(config.settings.heartbeat_interval_ms).max(1);
    let election_ticks = ticks(config.settings.election_timeout_ms).max(heartbeat_ticks + 2);
    Config {
        set: set_number(config),
        id: number,
        acknowledge: Acknowledge::Durable,
        election_ticks,
        heartbeat_ticks,
        priorities: priorities(config),
    }
}

/// The set's id as consensus has it.
pub(crate) fn set_number(config: &SetConfig) -> u64 {
    let [_, _, _, _, id @ ..] = config.settings.set_id;
    u64::from_le_bytes(id)
}

/// Priorities by their rank: consensus compares them only.
fn priorities(config: &SetConfig) -> BTreeMap<u64, u32> {
    let mut values: Vec<f64> = config.members.iter().map(|of| of.priority).collect();
    values.push(0.0);
    values.sort_by(f64::total_cmp);
    values.dedup();
    let rank = |priority: f64| values.iter().position(|value| *value == priority).unwrap_or(0);
    let of = |of: &crate::config::MemberConfig| (of.number(), rank(of.priority) as u32);
    config.members.iter().map(of).collect()
}

fn to_time(time: u64) -> Timestamp {
    Timestamp { seconds: (time >> 32) as u32, increment: time as u32 }
}

fn place_of(known: &Known) -> Place {
    let optime = OpTime { term: known.entry.term as i64, timestamp: to_time(known.time) };
    Place { optime, wall_ms: known.wall_ms }
}
