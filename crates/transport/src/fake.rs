//! A transport in memory, for tests of what lies above: no sockets, and the test decides how much
//! the peer takes at a time.

use crate::contract::{Departure, Lease, Session, SessionEnd, SessionInfo, TransportLayer};
use crate::liveness::Liveness;
use crate::manager::{Origin, SessionManager};
use crate::reply::ReplyBuf;
use crate::sys::monotonic_ns;
use kauri_base::Result;
use kauri_wire::{checked_length, claimed_length};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The transport.
#[derive(Default)]
pub struct FakeTransport {
    manager: Option<Arc<SessionManager>>,
}

impl FakeTransport {
    /// A new client. `None` if the transport is not started or the connection was refused.
    pub fn connect(&self) -> Option<FakeClient> {
        self.connect_from("fake")
    }

    /// The same, with this address.
    pub fn connect_from(&self, remote: &str) -> Option<FakeClient> {
        let manager = self.manager.as_ref()?;
        let pipe = Arc::new(Pipe::default());
        let origin = Origin {
            remote: remote.to_owned(),
            local: "fake".to_owned(),
            transport: "fake",
            addresses: None,
            peer_user: None,
        };
        let theirs = Arc::clone(&pipe);
        let accepted = manager.accept(origin, move |_, info, liveness| {
            let closed = {
                let mut state = theirs.lock();
                state.liveness = Some(Arc::clone(&liveness));
                state.client_closed
            };
            if closed {
                liveness.note_peer_closed();
            }
            let session = FakeSession { info, liveness, pipe: theirs, message: Vec::new() };
            Ok(Box::new(session) as Box<dyn Session>)
        });
        accepted.then_some(FakeClient { pipe })
    }
}

impl TransportLayer for FakeTransport {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn setup(&mut self) -> Result<()> {
        Ok(())
    }

    fn start(&mut self, manager: &Arc<SessionManager>) -> Result<()> {
        self.manager = Some(Arc::clone(manager));
        Ok(())
    }

    fn local_addresses(&self) -> Vec<String> {
        self.manager.iter().map(|_| "fake".to_owned()).collect()
    }

    fn shutdown(&mut self) {
        self.manager = None;
    }
}

/// Both directions of a connection.
#[derive(Default)]
struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

struct PipeState {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// How many bytes the client lets lie unread.
    window: usize,
    /// Where the client's packets arrive.
    core: Option<usize>,
    client_closed: bool,
    server_closed: bool,
    waker: Option<Waker>,
    liveness: Option<Arc<Liveness>>,
}

impl Default for PipeState {
    fn default() -> Self {
        PipeState {
            to_server: Vec::new(),
            to_client: Vec::new(),
            window: usize::MAX,
            core: None,
            client_closed: false,
            server_closed: false,
            waker: None,
            liveness: None,
        }
    }
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state as the client, and has the session look.
    fn act(&self, change: impl FnOnce(&mut PipeState)) {
        let waker = {
            let mut state = self.lock();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The client's end. Dropping it closes the connection.
pub struct FakeClient {
    pipe: Arc<Pipe>,
}

impl FakeClient {
    /// Sends bytes: messages, or any part of one.
    pub fn send(&self, bytes: &[u8]) {
        self.pipe.act(|state| state.to_server.extend_from_slice(bytes));
    }

    /// The next whole message; `None` if the session ended or `patience` is over.
    pub fn receive(&self, patience: Duration) -> Option<Vec<u8>> {
        let deadline = Instant::now() + patience;
        let mut state = self.pipe.lock();
        loop {
            if let Some(length) = message_length(&state.to_client) {
                let rest = state.to_client.split_off(length);
                let message = std::mem::replace(&mut state.to_client, rest);
                drop(state);
                self.pipe.act(|_| {});
                return Some(message);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.server_closed || left.is_zero() {
                return None;
            }
            let waited = self.pipe.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets at most so many bytes of replies lie unread.
    pub fn set_window(&self, bytes: usize) {
        self.pipe.act(|state| state.window = bytes);
    }

    /// Packets arrive on this core from now on.
    pub fn arrive_on(&self, core: usize) {
        self.pipe.lock().core = Some(core);
    }

    /// Waits until the session has ended. False if `patience` is over first.
    pub fn wait_closed(&self, patience: Duration) -> bool {
        let state = self.pipe.lock();
        let open = |state: &mut PipeState| !state.server_closed;
        let waited = self.pipe.changed.wait_timeout_while(state, patience, open);
        waited.unwrap_or_else(PoisonError::into_inner).0.server_closed
    }
}

impl Drop for FakeClient {
    fn drop(&mut self) {
        self.pipe.act(|state| state.client_closed = true);
        let liveness = self.pipe.lock().liveness.clone();
        if let Some(liveness) = liveness {
            liveness.note_peer_closed();
        }
    }
}

/// Length of the message that `bytes` begin with, if it is whole.
fn message_length(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(claimed_length(bytes)?).ok()?;
    (bytes.len() >= length).then_some(length)
}

struct FakeSession {
    info: Arc<SessionInfo>,
    liveness: Arc<Liveness>,
    pipe: Arc<Pipe>,
    message: Vec<u8>,
}

impl Session for FakeSession {
    fn info(&self) -> &Arc<SessionInfo> {
        &self.info
    }

    fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease, SessionEnd>> {
        let mut state = self.pipe.lock();
        if claimed_length(&state.to_server).is_some_and(|claimed| checked_length(claimed).is_none())
        {
            return Poll::Ready(Err(SessionEnd::Malformed));
        }
        if let Some(length) = message_length(&state.to_server) {
            let rest = state.to_server.split_off(length);
            self.message = std::mem::replace(&mut state.to_server, rest);
            let now_ns = monotonic_ns();
            let (ready_ns, first_byte_ns, last_byte_ns) = (now_ns, now_ns, now_ns);
            let range = 0..length;
            return Poll::Ready(Ok(Lease { range, ready_ns, first_byte_ns, last_byte_ns }));
        }
        if self.liveness.is_draining() {
            return Poll::Ready(Err(SessionEnd::Cancelled));
        }
        if state.client_closed {
            return Poll::Ready(Err(SessionEnd::PeerClosed));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn request(&self, lease: &Lease) -> &[u8] {
        self.message.get(lease.range.clone()).unwrap_or_default()
    }

    fn release(&mut self, _lease: Lease) {
        self.message = Vec::new();
    }

    fn reply_buf(&mut self, size_hint: usize) -> ReplyBuf {
        ReplyBuf::new(Vec::with_capacity(size_hint), None)
    }

    fn poll_sink(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut ReplyBuf,
    ) -> Poll<Result<(), SessionEnd>> {
        if !reply.is_whole() {
            return Poll::Ready(Err(SessionEnd::ReplyLength));
        }
        let mut state = self.pipe.lock();
        if state.client_closed {
            return Poll::Ready(Err(SessionEnd::PeerClosed));
        }
        if self.liveness.is_dropped() {
            return Poll::Ready(Err(SessionEnd::Cancelled));
        }
        let room = state.window.saturating_sub(state.to_client.len());
        let taken = reply.unsent().len().min(room);
        state.to_client.extend(reply.unsent().iter().take(taken));
        reply.note_sent(taken);
        self.pipe.changed.notify_all();
        if reply.unsent().is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn recycle(&mut self, _reply: ReplyBuf) {}

    fn arrives_on(&self) -> Option<usize> {
        self.pipe.lock().core
    }

    fn depart(&mut self) -> Option<Departure> {
        let (info, liveness) = (Arc::clone(&self.info), Arc::clone(&self.liveness));
        let pipe = Arc::clone(&self.pipe);
        let session = FakeSession { info, liveness, pipe, message: Vec::new() };
        Some(Departure(Box::new(move |_| Ok(Box::new(session) as Box<dyn Session>))))
    }

    fn close(&mut self) {
        self.pipe.lock().server_closed = true;
        self.pipe.changed.notify_all();
    }
}
