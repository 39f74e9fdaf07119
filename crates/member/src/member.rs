//! The handle of this server's member, which commands and the driver share.
//!
//! Commands read the [`View`], wait by tickets, and make [`Request`]s. The driver, the one task that runs consensus,
//! takes requests and messages, and tells what has changed.

use crate::acks::{Acks, Concern};
use crate::config::SetConfig;
use crate::initial_sync::receiver::Progress as SyncProgress;
use crate::initial_sync::source::MadeCopy;
use crate::oplog::{LogPlace, LogReader};
use crate::statements::Statements;
use crate::view::{MemberState, PeerStatus, Place, Progress, View};
use kauri_base::ticket::TicketSource;
use kauri_base::waiters::ByNumber;
use kauri_base::{CommitSeq, Error, ErrorCode, Result, Ticket, Timestamp};
use kauri_storage::StorageEngine;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Bytes of messages of other members that wait for the driver, at most: the largest two.
const INBOX_BYTES_MAX: usize = 96 << 20;
/// Bytes that a message takes besides its own.
const MESSAGE_OVERHEAD_BYTES: usize = 64;
/// How long a write without room is tried again, for another member to take over.
const HAND_OVER_MS: u64 = 2_000;
/// Between two attempts to hand over for lack of room.
const HAND_OVER_EACH_MS: u64 = 10_000;
/// Requests that wait for the driver, at most.
const REQUESTS_MAX: usize = 1000;

/// What commands ask of the driver.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// `replSetInitiate`: this member begins the set. The configuration is checked.
    Initiate(SetConfig),
    /// `replSetReconfig`. Version and term are set.
    Reconfigure {
        /// The new configuration.
        config: SetConfig,
        /// Without a majority.
        force: bool,
    },
    /// `replSetStepDown`.
    StepDown {
        /// How long it does not lead again.
        time: Duration,
        /// How long it waits for another member to have everything.
        catch_up: Duration,
        /// Whether it steps down if none has.
        force: bool,
    },
    /// `replSetStepUp`.
    StepUp,
    /// `replSetFreeze`: it does not lead for this long; zero: it may again.
    Freeze(Duration),
    /// `replSetMaintenance`.
    Maintenance(bool),
    /// The engine's files are about to be locked: the log stands still until [`crate::Host::is_locked`] says no.
    Hold,
    /// There is no room for a write: another member, which may have some, is to lead.
    HandOver,
    /// Answered once the member is sure to lead still, and readers see all that was acknowledged before.
    ConfirmPrimary,
    /// Answered once readers see this time; a primary makes an entry for it if need be.
    Reach(Timestamp),
}

#[derive(Default)]
struct AnswerState {
    result: Option<Result<()>>,
    waker: Option<Waker>,
}

/// The driver's answer to a request. Dropping it forgets the answer, not the request.
pub struct Answer(Arc<Mutex<AnswerState>>);

impl Future for Answer {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The driver's side of an [`Answer`]. Dropped without an answer it says that the member ends.
pub struct Asker(Option<Arc<Mutex<AnswerState>>>);

impl Asker {
    /// Answers.
    pub fn answer(mut self, result: Result<()>) {
        self.give(result);
    }

    fn give(&mut self, result: Result<()>) {
        let Some(state) = self.0.take() else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let error = Error::new(ErrorCode::InterruptedAtShutdown, "the member ends");
        self.give(Err(error));
    }
}

/// What waits for the driver.
#[derive(Default)]
pub struct Arrived {
    /// Requests, in order.
    pub requests: VecDeque<(Request, Asker)>,
    /// Messages of members, in order.
    pub messages: VecDeque<Vec<u8>>,
    /// Copies for other members that are made.
    pub copies: Vec<MadeCopy>,
}

#[derive(Default)]
struct Inbox {
    arrived: Arrived,
    bytes: usize,
    /// There are commits without a frame.
    commits: bool,
    /// The driver gathers them: they need not wake it.
    gathers: bool,
    /// The last commit that the driver was told of.
    noted: u64,
    driver: Option<Waker>,
}

/// The times of commits: those of the last frame, and from where on the next ones count.
#[derive(Clone, Copy, Default)]
struct Times {
    /// The last frame's own commit, and the time of the last unit up to it.
    seq: u64,
    time: u64,
    /// The time of the first commit behind it.
    next: u64,
}

struct State {
    view: Arc<View>,
    progress: Progress,
    /// Why the log could not be written, and how much of it was durable.
    failure: Option<(String, Place)>,
    peers: Vec<PeerStatus>,
    sync: Option<SyncProgress>,
    times: Times,
    /// Waiters for a topology.
    topology: ByNumber,
}

/// See the module's head.
pub struct Member {
    set_name: String,
    acks: Arc<Acks>,
    statements: Arc<Statements>,
    state: Mutex<State>,
    inbox: Mutex<Inbox>,
    /// The newest time that anybody has told of.
    cluster_time: AtomicU64,
    /// How often the member could not write its log.
    failures: AtomicU64,
    /// When the member last lacked room for a write, in milliseconds of the committer's clock, and one more.
    lacked_room_ms: AtomicU64,
    /// The view's state, and whether writes are accepted, for a look without the lock.
    standing: AtomicU32,
    /// When the process ends, in milliseconds since 1970; 0 unless it is about to.
    quiesce_ends_ms: AtomicI64,
    log_place: Arc<LogPlace>,
    log_reader: OnceLock<Arc<LogReader>>,
    /// Bytes of the log that are kept.
    log_bytes: AtomicU64,
}

/// The bit of [`Member::standing`] of a member that accepts writes. The bits below are the state.
const WRITABLE: u32 = 1 << 8;
/// The bit of a configuration whose default write concern is `majority`.
const DEFAULT_MAJORITY: u32 = 1 << 9;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn to_number(time: Timestamp) -> u64 {
    u64::from(time.seconds) << 32 | u64::from(time.increment)
}

fn to_time(number: u64) -> Timestamp {
    Timestamp { seconds: (number >> 32) as u32, increment: number as u32 }
}

impl Member {
    /// A member of this set (`--replSet`), in state STARTUP.
    pub fn new(set_name: &str) -> Arc<Member> {
        let state = State {
            view: Arc::default(),
            progress: Progress::default(),
            failure: None,
            peers: Vec::new(),
            sync: None,
            times: Times::default(),
            topology: ByNumber::default(),
        };
        Arc::new(Member {
            set_name: set_name.to_owned(),
            acks: Arc::default(),
            statements: Arc::default(),
            state: Mutex::new(state),
            inbox: Mutex::default(),
            cluster_time: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            lacked_room_ms: AtomicU64::new(0),
            standing: AtomicU32::new(MemberState::Startup as u32),
            quiesce_ends_ms: AtomicI64::new(0),
            log_place: Arc::default(),
            log_reader: OnceLock::new(),
            log_bytes: AtomicU64::new(0),
        })
    }

    /// The set's name, from the option.
    pub fn set_name(&self) -> &str {
        &self.set_name
    }

    /// The member at the moment.
    pub fn view(&self) -> Arc<View> {
        lock(&self.state).view.clone()
    }

    /// Ready once `topologyVersion.counter` is greater than this.
    pub fn topology_after(self: &Arc<Self>, counter: i64) -> Ticket {
        let source: Arc<dyn TicketSource> = self.clone();
        Ticket::new(source, counter.max(0) as u64 + 1)
    }

    /// How far the log is.
    pub fn progress(&self) -> Progress {
        lock(&self.state).progress
    }

    /// The other members, in the order of the configuration.
    pub fn peers(&self) -> Vec<PeerStatus> {
        lock(&self.state).peers.clone()
    }

    /// The executed statements of numbered writes.
    pub fn statements(&self) -> &Arc<Statements> {
        &self.statements
    }

    /// Up to where the log can be read. The driver tells of it.
    pub fn log_place(&self) -> &Arc<LogPlace> {
        &self.log_place
    }

    /// The reader of the log, which this engine has.
    pub fn log_reader(&self, engine: &Arc<dyn StorageEngine>) -> &Arc<LogReader> {
        let new = || Arc::new(LogReader::new(engine.clone(), self.log_place.clone()));
        self.log_reader.get_or_init(new)
    }

    /// Bytes of the log that are kept for members that lack them (`--oplogSize`).
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    /// For the driver: sets that.
    pub fn set_log_bytes(&self, bytes: u64) {
        self.log_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A ticket for a commit of this member: when may it be acknowledged? `None`: now.
    pub fn acknowledged(&self, seq: CommitSeq, concern: &Concern) -> Result<Option<Ticket>> {
        self.acks.ticket(seq, concern)
    }

    /// The time of what a reader sees that enters when `visible` is the newest commit: `operationTime`.
    pub fn operation_time(&self, visible: CommitSeq) -> Timestamp {
        let times = lock(&self.state).times;
        to_time(match visible.0.checked_sub(times.seq) {
            // No frame has told of a time yet.
            _ if times.next == 0 && times.time == 0 => 0,
            None | Some(0) => times.time,
            Some(behind) => times.next + behind - 1,
        })
    }

    /// The newest time that anybody in the set has told of: `$clusterTime`.
    pub fn cluster_time(&self) -> Timestamp {
        to_time(self.cluster_time.load(Ordering::Relaxed))
    }

    /// `operationTime` and `$clusterTime` of a reply, when `visible` is the newest commit; `None` before the set has
    /// begun.
    pub fn times_of_reply(&self, visible: CommitSeq) -> Option<(Timestamp, Timestamp)> {
        let operation = to_number(self.operation_time(visible));
        let before = self.cluster_time.fetch_max(operation, Ordering::Relaxed);
        (operation != 0).then(|| (to_time(operation), to_time(operation.max(before))))
    }

    /// Somebody tells of this time. The caller has checked that it is not too far ahead of the clock.
    pub fn advance_cluster_time(&self, time: Timestamp) {
        self.cluster_time.fetch_max(to_number(time), Ordering::Relaxed);
    }

    /// Asks the driver.
    pub fn request(&self, request: Request) -> Answer {
        let answer = Arc::new(Mutex::new(AnswerState::default()));
        let asker = Asker(Some(answer.clone()));
        let mut inbox = lock(&self.inbox);
        if inbox.arrived.requests.len() >= REQUESTS_MAX {
            drop(inbox);
            asker.answer(Err(Error::new(ErrorCode::ExceededMemoryLimit, "too many requests")));
            return Answer(answer);
        }
        inbox.arrived.requests.push_back((request, asker));
        wake(inbox);
        Answer(answer)
    }

    /// A message of another member. Dropped if too much waits: members repeat what matters.
    pub fn receive(&self, message: &[u8]) {
        let mut inbox = lock(&self.inbox);
        let bytes = message.len() + MESSAGE_OVERHEAD_BYTES;
        if inbox.bytes + bytes > INBOX_BYTES_MAX {
            return;
        }
        inbox.bytes += bytes;
        inbox.arrived.messages.push_back(message.to_vec());
        wake(inbox);
    }

    /// For the driver: a copy for another member is made.
    pub fn give_copy(&self, made: MadeCopy) {
        let mut inbox = lock(&self.inbox);
        inbox.arrived.copies.push(made);
        wake(inbox);
    }

    /// Readers see everything up to this commit. Called at the end of a worker's tick: if it is news the driver closes
    /// a frame.
    pub fn note_visible(&self, seq: CommitSeq) {
        if !self.is_primary() {
            return;
        }
        let mut inbox = lock(&self.inbox);
        if inbox.noted < seq.0 {
            inbox.noted = seq.0;
            inbox.commits = true;
            if !inbox.gathers {
                wake(inbox);
            }
        }
    }

    /// For the driver: what has arrived; nothing but commits is something, too, unless it gathers them. `waker` is woken
    /// by the next arrival.
    pub fn take_arrived(&self, waker: &Waker, gathers: bool) -> Option<Arrived> {
        let mut inbox = lock(&self.inbox);
        inbox.gathers = gathers;
        inbox.driver = Some(waker.clone());
        let arrived = std::mem::take(&mut inbox.arrived);
        inbox.bytes = 0;
        // While they are gathered they are still to come.
        let commits = !gathers && std::mem::take(&mut inbox.commits);
        let Arrived { requests, messages, copies } = &arrived;
        let none = requests.is_empty() && messages.is_empty() && copies.is_empty();
        (!none || commits).then_some(arrived)
    }

    /// For the driver: the log could not be written.
    pub fn note_failure(&self, why: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let durable = state.progress.durable;
        state.failure = Some((why.to_owned(), durable));
    }

    /// Why the log could not be written, until more of it is durable than was then.
    pub fn failure(&self) -> Option<String> {
        lock(&self.state).failure.as_ref().map(|(why, _)| why.clone())
    }

    /// How often the log could not be written, so that the member left consensus for a while.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The engine has no room for a write: asks the driver to hand the leadership over. Returns whether that may be under
    /// way, so that the write is worth another attempt.
    pub fn lacks_room(&self, now_ms: u64) -> bool {
        let before = self.lacked_room_ms.load(Ordering::Relaxed);
        let age_ms = (now_ms + 1).saturating_sub(before);
        if before > 0 && age_ms < HAND_OVER_EACH_MS {
            return age_ms < HAND_OVER_MS;
        }
        let (new, order) = (now_ms + 1, Ordering::Relaxed);
        if self.lacked_room_ms.compare_exchange(before, new, order, order).is_ok() {
            drop(self.request(Request::HandOver));
        }
        true
    }

    /// For the driver: no other member can lead instead.
    pub fn cannot_hand_over(&self) {
        let rewind = |at: u64| Some(at.saturating_sub(HAND_OVER_MS).max(1));
        let _ = self.lacked_room_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rewind);
    }

    /// For the driver: the tickets' side.
    pub fn acks(&self) -> &Arc<Acks> {
        &self.acks
    }

    /// For the driver: the member is this from now on. Gives the view the next topology if `hello` tells something else
    /// than before.
    pub fn publish(&self, view: View) {
        self.publish_to(lock(&self.state), view);
    }

    fn publish_to(&self, mut state: MutexGuard<'_, State>, mut view: View) {
        let before = &state.view;
        view.is_quiescing |= self.quiesce_ends().is_some();
        let writable = if view.is_writable { WRITABLE } else { 0 };
        let is_majority = view.config.as_ref().is_some_and(|config| config.default_is_majority());
        let default = if is_majority { DEFAULT_MAJORITY } else { 0 };
        self.standing.store(view.state as u32 | writable | default, Ordering::Release);
        let is_same = (view.state, view.me, view.primary, view.term)
            == (before.state, before.me, before.primary, before.term)
            && (view.is_writable, view.is_quiescing) == (before.is_writable, before.is_quiescing)
            && view.config == before.config;
        let topology = before.topology + i64::from(!is_same);
        state.view = Arc::new(View { topology, ..view });
        let wakers = state.topology.take_reached(topology as u64);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The process ends at this time, in milliseconds since 1970: the member wants no new work.
    pub fn quiesce(&self, ends_ms: i64) {
        let state = lock(&self.state);
        self.quiesce_ends_ms.store(ends_ms.max(1), Ordering::Release);
        let view = (*state.view).clone();
        self.publish_to(state, view);
    }

    /// When the process ends, once [`Member::quiesce`] has told.
    pub fn quiesce_ends(&self) -> Option<i64> {
        Some(self.quiesce_ends_ms.load(Ordering::Acquire)).filter(|ends| *ends != 0)
    }

    /// For the driver: how far the log is.
    pub fn set_progress(&self, progress: Progress) {
        let mut state = lock(&self.state);
        state.progress = progress;
        state.failure.take_if(|(_, durable)| progress.durable.optime > durable.optime);
    }

    /// For the driver: how far this member's initial sync is.
    pub fn set_sync_progress(&self, progress: Option<SyncProgress>) {
        lock(&self.state).sync = progress;
    }

    /// How far this member's initial sync is, if there is one.
    pub fn sync_progress(&self) -> Option<SyncProgress> {
        lock(&self.state).sync.clone()
    }

    /// For the driver: the other members.
    pub fn set_peers(&self, peers: Vec<PeerStatus>) {
        lock(&self.state).peers = peers;
    }

    /// For the driver: everything up to commit `seq` has times up to `time`; the commit behind it has `next`.
    pub fn set_times(&self, seq: CommitSeq, time: u64, next: u64) {
        lock(&self.state).times = Times { seq: seq.0, time, next };
        self.advance_cluster_time(to_time(time));
    }

    /// The state of the view, and whether writes are accepted. Cheap.
    pub fn standing(&self) -> (MemberState, bool) {
        let standing = self.standing.load(Ordering::Acquire);
        (MemberState::from_number(standing & (WRITABLE - 1)), standing & WRITABLE != 0)
    }

    /// Whether a write that names no write concern waits for a majority. Cheap.
    pub fn default_is_majority(&self) -> bool {
        self.standing.load(Ordering::Acquire) & DEFAULT_MAJORITY != 0
    }

    /// Whether this member accepts writes.
    pub fn is_writable(&self) -> bool {
        self.standing().1
    }

    /// Whether this member leads.
    pub fn is_primary(&self) -> bool {
        self.standing().0 == MemberState::Primary
    }
}

fn wake(mut inbox: MutexGuard<'_, Inbox>) {
    let waker = inbox.driver.take();
    drop(inbox);
    waker.into_iter().for_each(Waker::wake);
}

impl TicketSource for Member {
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut state = lock(&self.state);
        if state.view.topology as u64 >= number {
            return Poll::Ready(Ok(()));
        }
        state.topology.add(number, waker);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_of_another_kind_has_the_next_topology() {
        let member = Member::new("rs0");
        assert_eq!(member.standing(), (MemberState::Startup, false));
        let primary = View { state: MemberState::Primary, is_writable: true, ..View::default() };
        member.publish(primary.clone());
        assert_eq!(member.standing(), (MemberState::Primary, true));
        assert_eq!(member.view().topology, 1);
        member.publish(primary.clone());
        assert_eq!(member.view().topology, 1, "it is the same");
        member.quiesce(5);
        assert!(member.view().is_quiescing && member.view().topology == 2);
        member.publish(primary);
        assert!(member.view().is_quiescing, "the driver does not end it");
    }

    #[test]
    fn times_of_replies_begin_with_the_set_and_never_fall_behind() {
        let member = Member::new("rs0");
        assert_eq!(member.times_of_reply(CommitSeq(9)), None);
        let time = |seconds, increment| Timestamp { seconds, increment };
        member.set_times(CommitSeq(4), to_number(time(10, 3)), to_number(time(11, 1)));
        assert_eq!(member.times_of_reply(CommitSeq(4)), Some((time(10, 3), time(10, 3))));
        assert_eq!(member.times_of_reply(CommitSeq(6)), Some((time(11, 2), time(11, 2))));
        member.advance_cluster_time(time(20, 1));
        assert_eq!(member.times_of_reply(CommitSeq(4)), Some((time(10, 3), time(20, 1))));
    }
}
