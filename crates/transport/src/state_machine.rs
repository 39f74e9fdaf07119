//! The ServiceStateMachine: the life of one session, from acceptance to end.
//!
//! ```text
//! Created -> Source -> SourceWait -> Process -> SinkWait -> Source ...
//!                                    Process -> Source             fire and forget
//!                                    SinkWait -> Process           exhaust: the same request again
//! any but Ended -> EndSession -> Ended
//! ```
//!
//! One task per session runs it. After a bounded number of requests or a bounded time in one turn, the task yields,
//! so a client that keeps its socket full does not starve others. Stages share the clock reads at their borders:
//! about one read per stage.

use crate::contract::{
    ClientState, Departure, Handling, Lease, Outcome, RequestContext, ServiceEntryPoint, Session,
    SessionEnd, SessionInfo, Tried,
};
use crate::establishment::Queued;
use crate::executor::{Sleep, WorkerHandle, yield_now};
use crate::liveness::Liveness;
use crate::manager::SessionManager;
use crate::panics::log_panic;
use crate::reply::ReplyBuf;
use crate::stats::{Stage, WorkerStats};
use crate::steering::{Moving, Whereabouts};
use crate::sys::monotonic_ns;
use kauri_base::Ticket;
use kauri_base::log::{self, Attr};
use kauri_fiber::Fibered;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// Requests of one session in a row before others get their turn.
const REQUESTS_A_TURN_MAX: u32 = 16;
/// Time of one session in a row before others get their turn.
const TURN_NS_MAX: u64 = 2_000_000;

/// A wait that is longer has an operation of its own.
const BRIEF_WAIT: Duration = Duration::from_millis(1);

const PANICKED: &str = "Request panicked; its session was closed";

/// The states that MongoDB 4.0's ServiceStateMachine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionState {
    /// Accepted; nothing has happened yet.
    Created,
    /// About to ask for a message.
    Source,
    /// Waiting for a message.
    SourceWait,
    /// The service works on it.
    Process,
    /// The reply is being sent.
    SinkWait,
    /// The session is over, and is being cleaned up.
    EndSession,
    /// Gone.
    Ended,
}

impl SessionState {
    /// Whether `next` may follow.
    pub fn may_become(self, next: SessionState) -> bool {
        use SessionState::*;
        match self {
            Created => matches!(next, Source | EndSession),
            Source => matches!(next, SourceWait | EndSession),
            SourceWait => matches!(next, Process | EndSession),
            Process => matches!(next, SinkWait | Source | EndSession),
            SinkWait => matches!(next, Source | Process | EndSession),
            EndSession => next == Ended,
            Ended => false,
        }
    }
}

/// Drives one session.
pub(crate) struct ServiceStateMachine {
    state: SessionState,
    session: Box<dyn Session>,
    manager: Arc<SessionManager>,
    worker: WorkerHandle,
    client: Option<Box<dyn ClientState>>,
    /// Its place in the queue, before it begins.
    queued: Option<Queued>,
    whereabouts: Whereabouts,
    /// The session continues on another worker, so this end is not the session's.
    moved: bool,
    /// When the session last had nothing to do with a request; the idle wait begins here.
    idle_since_ns: u64,
    turn: Turn,
}

/// Why a session is no longer served here.
enum Left {
    Ended(SessionEnd),
    /// It continues on that worker.
    For(Departure, WorkerHandle),
}

/// The used part of the session's turn: since it last waited or yielded.
struct Turn {
    requests: u32,
    began_ns: u64,
    /// The command had to wait, so others have had their turn.
    waited: bool,
}

impl Turn {
    fn begin(&mut self, now_ns: u64) {
        *self = Turn { requests: 0, began_ns: now_ns, waited: false };
    }
}

impl ServiceStateMachine {
    pub fn new(
        session: Box<dyn Session>,
        manager: Arc<SessionManager>,
        worker: WorkerHandle,
    ) -> Self {
        ServiceStateMachine {
            state: SessionState::Created,
            session,
            manager,
            worker,
            client: None,
            queued: None,
            whereabouts: Whereabouts::default(),
            moved: false,
            idle_since_ns: monotonic_ns(),
            turn: Turn { requests: 0, began_ns: 0, waited: false },
        }
    }

    /// The same, which waits in this place of the queue first.
    pub fn queued(mut self, queued: Option<Queued>) -> Self {
        self.queued = queued;
        self
    }

    /// For a session that comes from another worker.
    pub fn going_on(
        session: Box<dyn Session>,
        manager: Arc<SessionManager>,
        worker: WorkerHandle,
        client: Box<dyn ClientState>,
        idle_since_ns: u64,
    ) -> Self {
        let mut machine = ServiceStateMachine::new(session, manager, worker);
        (machine.client, machine.idle_since_ns) = (Some(client), idle_since_ns);
        machine
    }

    fn enter(&mut self, next: SessionState) {
        debug_assert!(self.state.may_become(next), "{:?} -> {next:?}", self.state);
        self.state = next;
    }

    /// The whole life of the session.
    pub async fn run(mut self) {
        let liveness = Arc::clone(self.session.liveness());
        poll_fn(|cx| {
            liveness.set_waker(cx.waker());
            Poll::Ready(())
        })
        .await;
        if let Some(queued) = self.queued.take() {
            if let Err(end) = queued.wait(&self.worker, &liveness).await {
                return self.log_end(&end);
            }
            self.manager.stats().created.fetch_add(1, Ordering::Relaxed);
            self.idle_since_ns = monotonic_ns();
        }
        let entry = Arc::clone(self.manager.entry_point());
        let info = Arc::clone(self.session.info());
        if self.client.is_none() {
            match caught(|| entry.start_session(&info)) {
                Ok(client) => self.client = Some(client),
                Err(panic) => return self.log_panic(&*panic),
            }
        }
        self.enter(SessionState::Source);
        match self.serve().await {
            Left::Ended(end) => self.log_end(&end),
            Left::For(departure, worker) => self.go_on_elsewhere(departure, worker),
        }
    }

    async fn serve(&mut self) -> Left {
        loop {
            self.enter(SessionState::SourceWait);
            let mut waited = false;
            let sourced = poll_fn(|cx| {
                let polled = self.session.poll_source(cx);
                waited |= polled.is_pending();
                polled
            });
            let lease = match sourced.await {
                Ok(lease) => lease,
                Err(end) => return Left::Ended(end),
            };
            if waited {
                self.turn.begin(lease.last_byte_ns);
            }
            // Before the reply, whose acknowledgement may be taken in elsewhere.
            let looks = self.whereabouts.note_request();
            let core = if looks { self.session.arrives_on() } else { None };
            if let Err(end) = self.answer(lease).await {
                return Left::Ended(end);
            }
            self.enter(SessionState::Source);
            if looks {
                self.whereabouts.look(&self.manager, &self.worker, core);
            }
            if let Some(left) = self.steer() {
                return left;
            }
            self.end_turn_if_due().await;
        }
    }

    /// Between requests: leaves for another worker if the session is to be there.
    fn steer(&mut self) -> Option<Left> {
        let worker = self.whereabouts.leaves_for()?;
        let worker = self.manager.executor().workers().get(worker)?;
        if !worker.works() {
            return None;
        }
        let departure = self.session.depart()?;
        Some(Left::For(departure, worker.clone()))
    }

    fn go_on_elsewhere(&mut self, departure: Departure, worker: WorkerHandle) {
        self.moved = true;
        let moving = Moving {
            manager: Arc::clone(&self.manager),
            info: Arc::clone(self.session.info()),
            client: self.client.take(),
            idle_since_ns: self.idle_since_ns,
        };
        moving.start(departure, &self.worker, worker);
    }

    /// Processes one request and sinks its reply, or its replies.
    async fn answer(&mut self, lease: Lease) -> Result<(), SessionEnd> {
        let worker = self.worker.clone();
        let stats = &worker.shared.stats;
        stats.requests.add(1);
        stats.logical_in.add(lease.range.len() as u64);
        for (stage, duration_ns) in before_process(self.idle_since_ns, &lease) {
            stats.record(stage, duration_ns);
        }
        let _active = Active::new(&worker);
        self.idle_since_ns = lease.last_byte_ns;
        while self.answer_once(&lease, stats).await? {
            if self.session.liveness().is_draining() {
                return Err(SessionEnd::Cancelled);
            }
            self.end_turn_if_due().await;
        }
        self.session.release(lease);
        Ok(())
    }

    /// Processes the request and sinks what comes of it. True if there is another reply to come.
    async fn answer_once(
        &mut self,
        lease: &Lease,
        stats: &WorkerStats,
    ) -> Result<bool, SessionEnd> {
        self.enter(SessionState::Process);
        let began_ns = self.idle_since_ns;
        let mut reply = self.session.reply_buf(0);
        let outcome = self.process(lease, &mut reply, began_ns).await;
        let processed_ns = monotonic_ns();
        stats.record(Stage::Process, processed_ns.saturating_sub(began_ns));
        if self.turn.waited {
            self.turn.begin(processed_ns);
        }
        self.turn.requests += 1;
        self.idle_since_ns = processed_ns;
        let then = match outcome {
            Some(Outcome::Reply) => Ok(false),
            Some(Outcome::Exhaust) => Ok(true),
            Some(Outcome::ReplyThenClose) => Err(SessionEnd::ByService),
            Some(Outcome::NoReply | Outcome::Close) | None => {
                self.session.recycle(reply);
                return match outcome {
                    Some(Outcome::NoReply) => Ok(false),
                    Some(_) => Err(SessionEnd::ByService),
                    None => Err(SessionEnd::Panicked),
                };
            }
        };
        self.enter(SessionState::SinkWait);
        stats.logical_out.add(reply.total_len() as u64);
        let sunk = poll_fn(|cx| self.session.poll_sink(cx, &mut reply)).await;
        self.session.recycle(reply);
        let sunk_ns = monotonic_ns();
        stats.record(Stage::Sink, sunk_ns.saturating_sub(processed_ns));
        self.idle_since_ns = sunk_ns;
        sunk.and(then)
    }

    /// Runs the service on the request. `None`: it panicked.
    async fn process(
        &mut self,
        lease: &Lease,
        reply: &mut ReplyBuf,
        received_ns: u64,
    ) -> Option<Outcome> {
        let entry: &dyn ServiceEntryPoint = &**self.manager.entry_point();
        let request = self.session.request(lease);
        let liveness = self.session.liveness();
        let mut context = RequestContext {
            session: self.session.info(),
            state: &mut **self.client.as_mut()?,
            liveness,
            worker: &self.worker,
            stats: self.manager.stats(),
            received_ns,
        };
        let tried = caught(|| entry.try_handle(&mut context, request, reply));
        let handled = match tried {
            Ok(Tried::Done(outcome)) => Ok(outcome),
            Ok(Tried::After(mut ticket)) => {
                match wait_briefly(&mut ticket, &self.worker, liveness, &mut self.turn).await {
                    Waited::Ready(result) => {
                        caught(|| entry.settle(&mut context, request, reply, result))
                    }
                    Waited::Abandoned => Ok(Outcome::Close),
                    Waited::TooLong => {
                        match caught(|| entry.wait_longer(context, request, reply, ticket)) {
                            Ok(handling) => drive(handling, liveness, &mut self.turn).await,
                            Err(panic) => Err(panic),
                        }
                    }
                }
            }
            Ok(Tried::No) => match caught(|| entry.handle_request(context, request, reply)) {
                Ok(handling) => drive(handling, liveness, &mut self.turn).await,
                Err(panic) => Err(panic),
            },
            Err(panic) => Err(panic),
        };
        handled.inspect_err(|panic| self.log_panic(&**panic)).ok()
    }

    /// Lets others run if this session has had its share.
    async fn end_turn_if_due(&mut self) {
        let spent_ns = self.idle_since_ns.saturating_sub(self.turn.began_ns);
        if self.turn.requests >= REQUESTS_A_TURN_MAX || spent_ns >= TURN_NS_MAX {
            yield_now().await;
            self.turn.begin(monotonic_ns());
        }
    }

    fn ctx(&self) -> String {
        format!("conn{}", self.session.info().id)
    }

    fn log_panic(&self, panic: &(dyn Any + Send)) {
        log_panic(&self.ctx(), PANICKED, panic);
    }

    fn log_end(&self, end: &SessionEnd) {
        if matches!(end, SessionEnd::ReplyLength) {
            let attr = Attr::new().num("connectionId", self.session.info().id);
            log::error("NETWORK", 7_100_003, &self.ctx(), "Reply length and header differ", attr);
        }
    }
}

/// The stages from the end of the previous request to the last byte of this one. They add up to that time: events
/// before the end of the previous request count from that end on.
fn before_process(idle_since_ns: u64, lease: &Lease) -> [(Stage, u64); 3] {
    let ready_ns = lease.ready_ns.max(idle_since_ns);
    let first_byte_ns = lease.first_byte_ns.max(ready_ns);
    [
        (Stage::IdleWait, ready_ns - idle_since_ns),
        (Stage::Other, first_byte_ns - ready_ns),
        (Stage::Source, lease.last_byte_ns.saturating_sub(first_byte_ns)),
    ]
}

fn caught<T>(f: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(f))
}

/// How a brief wait for a ticket ended.
enum Waited {
    Ready(kauri_base::Result<()>),
    /// Nobody waits for the reply any more.
    Abandoned,
    TooLong,
}

/// Waits for a ticket to the end of the tick, where most become ready, and then [`BRIEF_WAIT`].
async fn wait_briefly(
    ticket: &mut Ticket,
    worker: &WorkerHandle,
    liveness: &Liveness,
    turn: &mut Turn,
) -> Waited {
    let mut is_first = true;
    let mut timer: Option<Sleep> = None;
    poll_fn(|cx| {
        if liveness.is_dropped() {
            return Poll::Ready(Waited::Abandoned);
        }
        if let Poll::Ready(result) = Pin::new(&mut *ticket).poll(cx) {
            return Poll::Ready(Waited::Ready(result));
        }
        turn.waited = true;
        if is_first {
            // Polled again behind the end of the tick, whether or not the ticket is ready then.
            is_first = false;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let timer = timer.get_or_insert_with(|| worker.sleep(BRIEF_WAIT));
        Pin::new(timer).poll(cx).map(|()| Waited::TooLong)
    })
    .await
}

/// Polls a command to its end, its panic, or until its reply is not expected any more. A long poll is suspended, so
/// that other tasks run.
async fn drive(
    handling: Handling<'_>,
    liveness: &Liveness,
    turn: &mut Turn,
) -> std::thread::Result<Outcome> {
    let mut handling = Fibered::new(handling);
    poll_fn(|cx| {
        if liveness.is_dropped() {
            return Poll::Ready(Ok(Outcome::Close));
        }
        match caught(|| Pin::new(&mut handling).poll(cx)) {
            Ok(Poll::Ready(outcome)) => Poll::Ready(Ok(outcome)),
            Ok(Poll::Pending) => {
                turn.waited = true;
                Poll::Pending
            }
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// Counts a request as in progress, and out again, however it ends.
struct Active<'a>(&'a WorkerHandle);

impl<'a> Active<'a> {
    fn new(worker: &'a WorkerHandle) -> Self {
        worker.shared.stats.active.add(1);
        Active(worker)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.shared.stats.active.sub(1);
    }
}

/// Runs however the session ends, also when its task is dropped where it waits.
impl Drop for ServiceStateMachine {
    fn drop(&mut self) {
        self.whereabouts.leave(&self.manager, &self.worker);
        if self.moved {
            return;
        }
        self.enter(SessionState::EndSession);
        self.session.close();
        let info = Arc::clone(self.session.info());
        if let Some(client) = self.client.take() {
            end_client(&self.manager, &info, client);
        }
        self.enter(SessionState::Ended);
        self.manager.session_ended(&info);
    }
}

/// Lets the service clean up behind a session that has ended.
pub(crate) fn end_client(
    manager: &SessionManager,
    info: &Arc<SessionInfo>,
    client: Box<dyn ClientState>,
) {
    if let Err(panic) = caught(|| manager.entry_point().end_session(info, client)) {
        log_panic(&format!("conn{}", info.id), PANICKED, &*panic);
    }
}

#[cfg(test)]
mod tests {
    use super::SessionState::{self, *};
    use super::{Lease, before_process};

    #[test]
    fn stages_before_processing_add_up_to_the_time_since_the_request_before() {
        // Idle since 100; ready, first byte, last byte, and what is waited, other and source.
        for (ready_ns, first_byte_ns, last_byte_ns, expected) in [
            (110, 125, 145, [10, 15, 20]),
            // Nobody had to tell: what was learned last is older than the request before.
            (40, 125, 145, [0, 25, 20]),
            // It had come before the request before was done.
            (40, 60, 145, [0, 0, 45]),
            (145, 145, 145, [45, 0, 0]),
            (100, 100, 100, [0, 0, 0]),
        ] {
            let lease = Lease { range: 0..0, ready_ns, first_byte_ns, last_byte_ns };
            let durations = before_process(100, &lease).map(|(_, duration_ns)| duration_ns);
            assert_eq!(durations, expected);
            assert_eq!(durations.iter().sum::<u64>(), last_byte_ns - 100);
        }
    }

    #[test]
    fn only_the_drawn_transitions_are_legal() {
        const ALL: [SessionState; 7] =
            [Created, Source, SourceWait, Process, SinkWait, EndSession, Ended];
        let legal = [
            (Created, Source),
            (Created, EndSession),
            (Source, SourceWait),
            (Source, EndSession),
            (SourceWait, Process),
            (SourceWait, EndSession),
            (Process, SinkWait),
            (Process, Source),
            (Process, EndSession),
            (SinkWait, Source),
            (SinkWait, Process),
            (SinkWait, EndSession),
            (EndSession, Ended),
        ];
        for from in ALL {
            for to in ALL {
                assert_eq!(from.may_become(to), legal.contains(&(from, to)), "{from:?} {to:?}");
            }
        }
    }
}
