//! The task of an outgoing session: connects, then moves messages in both directions until the session ends.

use super::connect::{Connect, PeerSession};
use super::state::{Change, Concerned, Phase, Shared};
use crate::contract::SessionEnd;
use crate::executor::Sleep;
use crate::reply::ReplyBuf;
use crate::sys::{COARSE_NS_MAX, monotonic_coarse_ns, monotonic_ns};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Messages that are moved before others have a turn.
const MESSAGES_A_POLL: usize = 64;
/// How long a change of the transport may take.
const UPGRADE_TIME_MAX: Duration = Duration::from_secs(5);
/// A session rests after one to two times this without a message.
const REST_AFTER: Duration = Duration::from_secs(1);
/// How long a session that is closed may take to send what waits.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// Starts the task of a session on its worker.
pub(super) fn start(shared: &Arc<Shared>, connect: Arc<dyn Connect>) {
    let ending = Ending(Arc::clone(shared));
    let worker = shared.worker.clone();
    worker.start_with(Box::new(move |_| Some(Box::pin(run(ending, connect)))));
}

/// Ends the session however its task ends, also if that never starts.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(Phase::Ended("its worker has ended".to_owned()));
    }
}

async fn run(ending: Ending, connect: Arc<dyn Connect>) {
    let shared = Arc::clone(&ending.0);
    let session = match connected(&shared, &*connect).await {
        Ok(session) => session,
        Err(error) => return shared.end(Phase::Unreachable(error.to_string())),
    };
    let mut task = Task {
        shared,
        session,
        sending: None,
        upgrading: None,
        closing: None,
        has_moved: true,
        rest: None,
    };
    task.open();
    poll_fn(|cx| {
        task.session.liveness().set_waker(cx.waker());
        Poll::Ready(())
    })
    .await;
    let why = poll_fn(|cx| task.poll(cx)).await;
    task.session.close();
    ending.0.end(Phase::Ended(why));
}

async fn connected(shared: &Shared, connect: &dyn Connect) -> io::Result<Box<dyn PeerSession>> {
    let mut connecting = connect.connect(&shared.worker);
    let mut limit = shared.worker.sleep(shared.options.connect_timeout);
    poll_fn(|cx| {
        {
            let mut state = shared.lock();
            state.note_task(cx.waker());
            if state.closing && !state.has_unsent() {
                return Poll::Ready(Err(io::Error::other("it was closed")));
            }
        }
        if let Poll::Ready(connected) = connecting.as_mut().poll(cx) {
            return Poll::Ready(connected);
        }
        Pin::new(&mut limit).poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    })
    .await
}

struct Task {
    shared: Arc<Shared>,
    session: Box<dyn PeerSession>,
    /// The message that is being sent, and its length.
    sending: Option<(ReplyBuf, usize)>,
    /// Until when the change of the transport may take.
    upgrading: Option<Sleep>,
    /// Until when what waits may be sent, once the session is closed.
    closing: Option<Sleep>,
    /// Whether messages have moved since `rest` began.
    has_moved: bool,
    /// The next look at that.
    rest: Option<Rest>,
}

/// A timer, and its time, so that most polls need not ask it.
struct Rest {
    sleep: Sleep,
    end_ns: u64,
}

/// What a poll in one direction came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    Something,
    Nothing,
}

impl Task {
    fn open(&self) {
        let mut state = self.shared.lock();
        state.phase = self.phase();
        self.shared.call_waiting(state);
    }

    fn phase(&self) -> Phase {
        let remote = self.session.info().remote.as_str().into();
        Phase::Open { transport: self.session.transport(), remote }
    }

    /// Ready with the reason why the session ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        for _ in 0..MESSAGES_A_POLL {
            if self.has_closed(cx) {
                return Poll::Ready("it was closed".to_owned());
            }
            if self.poll_upgrade(cx).is_pending() {
                return Poll::Pending;
            }
            // The order matters to `await_both`.
            let moved = match self.send(cx).and_then(|sent| Ok((sent, self.receive(cx)?))) {
                Ok(moved) => moved,
                Err(why) => return Poll::Ready(why),
            };
            if moved != (Moved::Nothing, Moved::Nothing) {
                self.has_moved = true;
            } else if !self.session.await_both() {
                self.rest(cx);
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Has the session rest when no message has moved for a while.
    fn rest(&mut self, cx: &mut Context<'_>) {
        if let Some(rest) = &mut self.rest {
            let is_due = monotonic_coarse_ns() >= rest.end_ns;
            if !is_due || Pin::new(&mut rest.sleep).poll(cx).is_pending() {
                return;
            }
            self.rest = None;
            if !self.has_moved && self.sending.is_none() {
                return self.session.rest();
            }
        }
        if std::mem::take(&mut self.has_moved) {
            let end_ns = monotonic_ns() + REST_AFTER.as_nanos() as u64;
            let mut sleep = self.shared.worker.sleep_until_ns(end_ns);
            // The clock that lags sees the end, too, when this wakes the task.
            let _begun = Pin::new(&mut sleep).poll(cx);
            self.rest = Some(Rest { sleep, end_ns: end_ns.saturating_sub(COARSE_NS_MAX) });
        }
    }

    /// Notes the waker; whether the session was closed and has nothing more to send.
    fn has_closed(&mut self, cx: &mut Context<'_>) -> bool {
        let mut state = self.shared.lock();
        state.note_task(cx.waker());
        if !state.closing {
            return false;
        }
        if self.sending.is_none() && !state.has_unsent() {
            return true;
        }
        drop(state);
        let worker = &self.shared.worker;
        let limit = self.closing.get_or_insert_with(|| worker.sleep(CLOSE_TIME_MAX));
        Pin::new(limit).poll(cx).is_ready()
    }

    /// Ready when no change of the transport is under way.
    fn poll_upgrade(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wanted = self.shared.lock().upgrade.wanted.take();
        let result = match (wanted, &mut self.upgrading) {
            (None, None) => return Poll::Ready(()),
            (Some(Change::Prepare { dialer, random }), _) => {
                self.session.prepare_rdma(&dialer, random)
            }
            (Some(Change::Begin(answer)), _) => match self.session.begin_upgrade(&answer) {
                Ok(()) => {
                    self.upgrading = Some(self.shared.worker.sleep(UPGRADE_TIME_MAX));
                    return self.poll_upgrade(cx);
                }
                Err(why) => Err(why),
            },
            (None, Some(limit)) => match self.session.poll_upgraded(cx) {
                Poll::Ready(result) => result.map(|()| Vec::new()),
                Poll::Pending if Pin::new(limit).poll(cx).is_pending() => return Poll::Pending,
                Poll::Pending => {
                    self.session.abandon_upgrade();
                    Err("the server did not answer through the new transport".to_owned())
                }
            },
        };
        self.upgrading = None;
        let mut state = self.shared.lock();
        state.phase = self.phase();
        state.upgrade.result = Some(result);
        let waker = state.upgrade.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Poll::Ready(())
    }

    /// Sends some of what waits.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<Moved, String> {
        if self.sending.is_none() {
            let Some(message) = self.shared.lock().next_unsent() else { return Ok(Moved::Nothing) };
            let length = message.len();
            self.sending = Some((ReplyBuf::written(message), length));
        }
        let Some((message, length)) = &mut self.sending else { return Ok(Moved::Nothing) };
        match self.session.poll_sink(cx, message) {
            Poll::Pending => Ok(Moved::Nothing),
            Poll::Ready(Err(end)) => Err(reason(&end)),
            Poll::Ready(Ok(())) => {
                let length = *length;
                self.sending = None;
                let mut state = self.shared.lock();
                state.note_sent(length);
                self.shared.call_waiting(state);
                Ok(Moved::Something)
            }
        }
    }

    /// Receives a message, if there is room for it.
    fn receive(&mut self, cx: &mut Context<'_>) -> Result<Moved, String> {
        let options = &self.shared.options;
        if self.shared.lock().is_full(options) {
            return Ok(Moved::Nothing);
        }
        let lease = match self.session.poll_source(cx) {
            Poll::Pending => return Ok(Moved::Nothing),
            Poll::Ready(Ok(lease)) => lease,
            Poll::Ready(Err(end)) => return Err(reason(&end)),
        };
        let message = self.session.request(&lease);
        let delivered = self.shared.lock().deliver(message, options.in_order);
        self.session.release(lease);
        match delivered.map_err(str::to_owned)? {
            Concerned::One(Some(waker)) => waker.wake(),
            Concerned::One(None) => {}
            Concerned::Waiting => self.shared.call_waiting(self.shared.lock()),
        }
        Ok(Moved::Something)
    }
}

fn reason(end: &SessionEnd) -> String {
    match end {
        SessionEnd::PeerClosed => "the server closed the connection",
        SessionEnd::Malformed => "the server sent what is no message",
        SessionEnd::Cancelled => "it was cancelled",
        SessionEnd::ReplyLength => "a message's length is not its header's",
        SessionEnd::ByService | SessionEnd::Panicked => "it was ended",
    }
    .to_owned()
}
