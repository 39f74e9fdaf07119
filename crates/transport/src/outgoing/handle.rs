//! The handle of an outgoing session.

use super::connect::Connect;
use super::state::{Change, OutgoingError, Phase, Shared, Waiter};
use super::task;
use crate::executor::{Sleep, WorkerHandle};
use crate::rdma::Dialer;
use kauri_wire::{HEADER_BYTES, checked_length, claimed_length};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Bounds of an outgoing session.
#[derive(Clone, Debug)]
pub struct OutgoingOptions {
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// Requests in flight at once. Requests whose futures were dropped count until their replies come.
    pub requests_max: usize,
    /// Bytes that wait to be sent. A single message may be longer.
    pub unsent_bytes_max: usize,
    /// Bytes of replies that nobody has taken. One message more may be received.
    pub untaken_bytes_max: usize,
    /// Whether messages that answer no request are kept, for [`Outgoing::receive`]. Otherwise they end the session.
    pub in_order: bool,
}

impl Default for OutgoingOptions {
    fn default() -> Self {
        OutgoingOptions {
            connect_timeout: Duration::from_secs(10),
            requests_max: 1000,
            unsent_bytes_max: 4 << 20,
            untaken_bytes_max: 4 << 20,
            in_order: false,
        }
    }
}

/// See [`super`]. Cheap to clone. The session ends when the last handle and the last request are dropped.
#[derive(Clone)]
pub struct Outgoing {
    held: Arc<Held>,
}

/// What all handles hold together.
struct Held(Arc<Shared>);

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closing = true;
        self.0.call_task(state);
    }
}

impl Outgoing {
    /// Begins to open a session on this worker. Requests may be made at once.
    pub fn open(
        worker: &WorkerHandle,
        connect: Arc<dyn Connect>,
        options: OutgoingOptions,
    ) -> Outgoing {
        let shared = Shared::new(worker.clone(), options);
        task::start(&shared, connect);
        Outgoing { held: Arc::new(Held(shared)) }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.held.0
    }

    /// Ready when the session is open, or with the reason why there is none.
    pub async fn opened(&self) -> Result<(), OutgoingError> {
        let mut waiter = Waiter::new(self.shared());
        poll_fn(|cx| {
            let mut state = self.shared().lock();
            if let Some(over) = state.ended() {
                return Poll::Ready(Err(over.error(false)));
            }
            if let Phase::Open { .. } = state.phase {
                return Poll::Ready(Ok(()));
            }
            waiter.wait(&mut state, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Sends a request, to which the session gives an id, and waits for its reply, until `deadline_ns` of
    /// [`crate::monotonic_ns`]. It is on its way before the future is polled, if there is room for it.
    pub fn request(&self, message: Vec<u8>, deadline_ns: Option<u64>) -> Request {
        Request::begin(self, message, deadline_ns, true)
    }

    /// Takes a message to be sent as it is, when there is room for it. Its reply, if any, comes to
    /// [`Outgoing::receive`].
    pub async fn send(&self, message: Vec<u8>) -> Result<(), OutgoingError> {
        Request::begin(self, message, None, false).await.map(|_| ())
    }

    /// The next message that answers no request.
    pub fn receive(&self) -> Receive {
        Receive { outgoing: self.clone() }
    }

    /// Prepares the change to RDMA by this device. Answers the parameters of the request to the server, whose answer
    /// [`Outgoing::upgrade`] takes. The inner error: why there is no RDMA. `random` should be.
    pub async fn prepare_rdma(
        &self,
        dialer: Arc<Dialer>,
        random: u64,
    ) -> Result<Result<Vec<u8>, String>, OutgoingError> {
        self.change(Change::Prepare { dialer, random }).await
    }

    /// Changes the session over by the server's answer: to shared memory (`shared_memory::request`), or to RDMA if that
    /// was prepared. The inner error: why it stays as it is.
    pub async fn upgrade(&self, answer: Vec<u8>) -> Result<Result<(), String>, OutgoingError> {
        let changed = self.change(Change::Begin(answer)).await?;
        Ok(changed.map(|_| ()))
    }

    async fn change(&self, change: Change) -> Result<Result<Vec<u8>, String>, OutgoingError> {
        self.ask_for(change);
        poll_fn(|cx| {
            let mut state = self.shared().lock();
            if let Some(over) = state.ended() {
                return Poll::Ready(Err(over.error(true)));
            }
            match state.upgrade.result.take() {
                Some(result) => Poll::Ready(Ok(result)),
                None => {
                    state.upgrade.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Hands a change to the session's task.
    fn ask_for(&self, change: Change) {
        let mut state = self.shared().lock();
        state.upgrade.wanted = Some(change);
        state.upgrade.result = None;
        self.shared().call_task(state);
    }

    /// What messages go through: `tcp`, `unix`, `sharedMemory`, `rdma`, `fake`. `None` while there is no session.
    pub fn transport(&self) -> Option<&'static str> {
        match self.shared().lock().phase {
            Phase::Open { transport, .. } => Some(transport),
            _ => None,
        }
    }

    /// The server's address, as far as the session knows it. `None` while there is no session.
    pub fn remote(&self) -> Option<Arc<str>> {
        match &self.shared().lock().phase {
            Phase::Open { remote, .. } => Some(Arc::clone(remote)),
            _ => None,
        }
    }

    /// Why the session is over, if it is.
    pub fn ended(&self) -> Option<OutgoingError> {
        self.shared().lock().ended().map(|over| over.error(false))
    }

    /// Has this called when the session ends, in place of what was to be called before; at once if it has ended.
    pub fn when_ended(&self, call: Option<Box<dyn FnOnce() + Send>>) {
        let mut state = self.shared().lock();
        if state.ended().is_none() {
            state.when_ended = call;
            return;
        }
        drop(state);
        if let Some(call) = call {
            call();
        }
    }

    /// The worker that the session lives on.
    pub fn worker(&self) -> &WorkerHandle {
        &self.shared().worker
    }

    /// Whether the session is open with nothing in flight, unsent or untaken.
    pub fn is_quiet(&self) -> bool {
        let state = self.shared().lock();
        matches!(state.phase, Phase::Open { .. }) && state.is_quiet()
    }

    /// Ends the session after what waits to be sent. Requests that wait for replies fail.
    pub fn close(&self) {
        let mut state = self.shared().lock();
        state.closing = true;
        self.shared().call_task(state);
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("phase", &self.shared().lock().phase).finish()
    }
}

/// Where a request's future is.
enum Progress {
    /// It waits for room.
    Ready(Vec<u8>),
    InFlight(i32),
    /// A message without an id was taken.
    Taken,
    Failed(OutgoingError),
    Done,
}

/// A request in flight. Dropping it forgets the reply; what was not sent is not sent.
#[must_use = "a request that is dropped is forgotten"]
pub struct Request {
    outgoing: Outgoing,
    progress: Progress,
    is_request: bool,
    sleep: Option<Sleep>,
    waiter: Waiter,
}

impl Request {
    fn begin(
        outgoing: &Outgoing,
        message: Vec<u8>,
        deadline_ns: Option<u64>,
        is_request: bool,
    ) -> Request {
        let length = claimed_length(&message).and_then(checked_length);
        let progress = match length {
            Some(length) if length == message.len() && length >= HEADER_BYTES => {
                Progress::Ready(message)
            }
            _ => Progress::Failed(OutgoingError::Invalid("its length is not its header's")),
        };
        let worker = &outgoing.shared().worker;
        let sleep = deadline_ns.map(|deadline_ns| worker.sleep_until_ns(deadline_ns));
        let (outgoing, waiter) = (outgoing.clone(), Waiter::new(outgoing.shared()));
        let mut request = Request { outgoing, progress, is_request, sleep, waiter };
        request.try_to_begin(None);
        request
    }

    fn try_to_begin(&mut self, cx: Option<&mut Context<'_>>) {
        let Progress::Ready(message) = &mut self.progress else { return };
        let shared = Arc::clone(self.outgoing.shared());
        let mut state = shared.lock();
        if let Some(over) = state.ended() {
            self.progress = Progress::Failed(over.error(false));
            return;
        }
        match (state.enqueue(message, self.is_request, &shared.options), cx) {
            (Some(id), _) => {
                self.progress = id.map_or(Progress::Taken, Progress::InFlight);
                shared.call_task(state);
            }
            (None, Some(cx)) => self.waiter.wait(&mut state, cx.waker()),
            (None, None) => {}
        }
    }

    fn take_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, OutgoingError>> {
        match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Failed(error) => Poll::Ready(Err(error)),
            Progress::Taken => Poll::Ready(Ok(Vec::new())),
            Progress::InFlight(id) => {
                let shared = Arc::clone(self.outgoing.shared());
                let mut state = shared.lock();
                let was_full = state.is_full(&shared.options);
                match state.take_answer(id, cx.waker()) {
                    Some(answer) => {
                        if was_full {
                            shared.call_task(state);
                            state = shared.lock();
                        }
                        shared.call_waiting(state);
                        Poll::Ready(answer)
                    }
                    None => {
                        self.progress = Progress::InFlight(id);
                        Poll::Pending
                    }
                }
            }
            waits => {
                self.progress = waits;
                Poll::Pending
            }
        }
    }
}

impl Future for Request {
    type Output = Result<Vec<u8>, OutgoingError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.try_to_begin(Some(cx));
        if let Poll::Ready(answer) = self.take_answer(cx) {
            return Poll::Ready(answer);
        }
        let over = self.sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(cx).is_ready());
        if !over {
            return Poll::Pending;
        }
        Poll::Ready(Err(OutgoingError::TimedOut { sent: self.abandon() }))
    }
}

impl Request {
    /// Whether it was sent.
    fn abandon(&mut self) -> bool {
        let Progress::InFlight(id) = std::mem::replace(&mut self.progress, Progress::Done) else {
            return false;
        };
        let shared = self.outgoing.shared();
        let mut state = shared.lock();
        let sent = state.abandon(id);
        shared.call_task(state);
        shared.call_waiting(shared.lock());
        sent
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The next message in order; see [`Outgoing::receive`].
#[must_use = "it does nothing unless it is polled"]
pub struct Receive {
    outgoing: Outgoing,
}

impl Future for Receive {
    type Output = Result<Vec<u8>, OutgoingError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.outgoing.shared();
        let mut state = shared.lock();
        let was_full = state.is_full(&shared.options);
        match state.take_received(cx.waker()) {
            Some(received) => {
                if was_full {
                    shared.call_task(state);
                }
                Poll::Ready(received)
            }
            None => Poll::Pending,
        }
    }
}
