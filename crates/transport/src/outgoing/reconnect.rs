//! Sessions with one server, one after the other: a lost one is replaced when it is next asked for.
//!
//! Attempts back off: after a failure, requests fail at once until the next attempt may begin. So a server that is
//! down costs its users no time, and is not flooded when it comes back.

use super::connect::Connect;
use super::handle::{Outgoing, OutgoingOptions};
use super::state::OutgoingError;
use crate::executor::WorkerHandle;
use crate::sys::monotonic_ns;
use kauri_base::RandomSource;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What is done with a session before anybody has it: the handshake.
pub type Prepare = Arc<
    dyn Fn(Outgoing) -> Pin<Box<dyn Future<Output = Result<(), OutgoingError>> + Send>>
        + Send
        + Sync,
>;

/// How long to wait after failures in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackOff {
    /// After the first.
    pub first: Duration,
    /// At most.
    pub max: Duration,
}

impl BackOff {
    /// The wait after so many failures: doubled each time, and shortened by a random part of up to a half.
    fn after(self, failures: u32, random: &dyn RandomSource) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20));
        let longest = u64::try_from(doubled.min(self.max).as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(longest - random.next_u64() % (longest / 2 + 1))
    }
}

#[derive(Default)]
struct State {
    current: Option<Outgoing>,
    /// Whether an attempt is under way.
    is_opening: bool,
    failures: u32,
    /// The next attempt begins no sooner.
    not_before_ns: u64,
    last: Option<OutgoingError>,
    waiting: Vec<Waker>,
}

/// See the module's head.
pub struct Reconnecting {
    worker: WorkerHandle,
    connect: Arc<dyn Connect>,
    options: OutgoingOptions,
    back_off: BackOff,
    prepare: Prepare,
    random: Arc<dyn RandomSource>,
    state: Mutex<State>,
}

impl Reconnecting {
    /// Sessions that live on this worker. None is opened before the first is asked for.
    pub fn new(
        worker: &WorkerHandle,
        connect: Arc<dyn Connect>,
        options: OutgoingOptions,
        back_off: BackOff,
        prepare: Prepare,
        random: Arc<dyn RandomSource>,
    ) -> Arc<Reconnecting> {
        let (worker, state) = (worker.clone(), Mutex::default());
        Arc::new(Reconnecting { worker, connect, options, back_off, prepare, random, state })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, once it is prepared.
    pub async fn session(self: &Arc<Self>) -> Result<Outgoing, OutgoingError> {
        poll_fn(|cx| {
            let mut state = self.lock();
            if let Some(current) = state.current.as_ref().filter(|one| one.ended().is_none()) {
                return Poll::Ready(Ok(current.clone()));
            }
            state.current = None;
            if !state.is_opening
                && let Some(last) = state.last.clone()
                && monotonic_ns() < state.not_before_ns
            {
                return Poll::Ready(Err(last));
            }
            if !state.waiting.iter().any(|known| known.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            if !std::mem::replace(&mut state.is_opening, true) {
                // Not under the lock: on a worker that has ended the attempt fails at once.
                drop(state);
                self.open();
            }
            Poll::Pending
        })
        .await
    }

    /// Sends a request through the session. The deadline bounds the wait for the session, too.
    pub async fn request(
        self: &Arc<Self>,
        message: Vec<u8>,
        deadline_ns: u64,
    ) -> Result<Vec<u8>, OutgoingError> {
        let mut limit = self.worker.sleep_until_ns(deadline_ns);
        let mut session = Box::pin(self.session());
        let session = poll_fn(|cx| match session.as_mut().poll(cx) {
            Poll::Pending => {
                Pin::new(&mut limit).poll(cx).map(|()| Err(OutgoingError::TimedOut { sent: false }))
            }
            ready => ready,
        });
        session.await?.request(message, Some(deadline_ns)).await
    }

    fn open(self: &Arc<Self>) {
        let (this, opening) = (Arc::clone(self), Opening(Some(Arc::clone(self))));
        self.worker.spawn(async move {
            let connect = Arc::clone(&this.connect);
            let outgoing = Outgoing::open(&this.worker, connect, this.options.clone());
            let prepared = match outgoing.opened().await {
                Ok(()) => this.prepared(outgoing.clone()).await,
                Err(error) => Err(error),
            };
            opening.finish(prepared.map(|()| outgoing));
        });
    }

    /// The handshake may take as long as connecting.
    async fn prepared(&self, outgoing: Outgoing) -> Result<(), OutgoingError> {
        let mut prepared = (self.prepare)(outgoing);
        let mut limit = self.worker.sleep(self.options.connect_timeout);
        poll_fn(|cx| match prepared.as_mut().poll(cx) {
            Poll::Pending => {
                let late = Err(OutgoingError::TimedOut { sent: false });
                Pin::new(&mut limit).poll(cx).map(|()| late)
            }
            ready => ready,
        })
        .await
    }

    fn finish(&self, opened: Result<Outgoing, OutgoingError>) {
        let mut state = self.lock();
        state.is_opening = false;
        match opened {
            Ok(outgoing) => {
                state.current = Some(outgoing);
                (state.failures, state.last) = (0, None);
            }
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                let wait = self.back_off.after(state.failures, &*self.random);
                let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
                state.not_before_ns = monotonic_ns().saturating_add(wait_ns);
                state.last = Some(error);
            }
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// An attempt, which ends however its task ends.
struct Opening(Option<Arc<Reconnecting>>);

impl Opening {
    fn finish(mut self, opened: Result<Outgoing, OutgoingError>) {
        if let Some(of) = self.0.take() {
            of.finish(opened);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(of) = self.0.take() {
            of.finish(Err(OutgoingError::Unreachable("its worker has ended".to_owned())));
        }
    }
}
