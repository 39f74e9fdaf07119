//! A transport in memory, for tests of the layers above: no sockets, and the test decides how many bytes the peer
//! accepts at a time.

use crate::contract::{Departure, Lease, Session, SessionEnd, SessionInfo, TransportLayer};
use crate::executor::WorkerHandle;
use crate::liveness::Liveness;
use crate::manager::{Origin, SessionManager};
use crate::outgoing::{Connect, Connecting, PeerSession, session_info};
use crate::reply::ReplyBuf;
use crate::sys::monotonic_ns;
use kauri_base::Result;
use kauri_wire::{checked_length, claimed_length};
use std::io;
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
        let theirs = ServerEnd(Some(Arc::clone(&pipe)));
        let accepted = manager.accept(origin, move |_, info, liveness| {
            let closed = {
                let mut state = theirs.pipe().lock();
                state.liveness = Some(Arc::clone(&liveness));
                state.client_closed
            };
            if closed {
                liveness.note_peer_closed();
            }
            let session = FakeSession { info, liveness, end: theirs, message: Vec::new() };
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
    /// What a client that waits as a future has taken of a message.
    received: Vec<u8>,
    /// How many bytes the client lets lie unread.
    window: usize,
    client_closed: bool,
    server_closed: bool,
    waker: Option<Waker>,
    /// Of the client, if it waits as a future.
    client_waker: Option<Waker>,
    liveness: Option<Arc<Liveness>>,
}

impl Default for PipeState {
    fn default() -> Self {
        PipeState {
            to_server: Vec::new(),
            to_client: Vec::new(),
            received: Vec::new(),
            window: usize::MAX,
            client_closed: false,
            server_closed: false,
            waker: None,
            client_waker: None,
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

    /// Lets the client know that something has changed.
    fn tell_client(&self, mut state: MutexGuard<'_, PipeState>) {
        let waker = state.client_waker.take();
        drop(state);
        self.changed.notify_all();
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
            if let Some(message) = take_message(&mut state.to_client) {
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

    /// The next whole message; `None` if the session ended.
    pub fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        // What has come of a message makes room for the rest of it.
        let mut message = None;
        let mut closed = false;
        self.pipe.act(|state| {
            let came = std::mem::take(&mut state.to_client);
            state.received.extend_from_slice(&came);
            message = take_message(&mut state.received);
            closed = state.server_closed;
            state.client_waker = Some(cx.waker().clone());
        });
        match message {
            None if !closed => Poll::Pending,
            message => Poll::Ready(message),
        }
    }

    /// Whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.pipe.lock().server_closed
    }

    /// Lets at most so many bytes of replies lie unread.
    pub fn set_window(&self, bytes: usize) {
        self.pipe.act(|state| state.window = bytes);
    }

    /// Waits until the session has ended. False if `patience` is over first.
    pub fn wait_closed(&self, patience: Duration) -> bool {
        let state = self.pipe.lock();
        let open = |state: &mut PipeState| !state.server_closed;
        let waited = self.pipe.changed.wait_timeout_while(state, patience, open);
        waited.unwrap_or_else(PoisonError::into_inner).0.server_closed
    }
}

impl FakeClient {
    fn close(&self) {
        self.pipe.act(|state| state.client_closed = true);
        let liveness = self.pipe.lock().liveness.clone();
        if let Some(liveness) = liveness {
            liveness.note_peer_closed();
        }
    }
}

impl Drop for FakeClient {
    fn drop(&mut self) {
        self.close();
    }
}

/// Outgoing sessions in memory.
pub struct FakeConnect {
    connect: Box<dyn Fn() -> Option<FakeClient> + Send + Sync>,
}

impl FakeConnect {
    /// `connect` makes a client of the server's transport; `None`: the server cannot be reached.
    pub fn new(connect: impl Fn() -> Option<FakeClient> + Send + Sync + 'static) -> Self {
        FakeConnect { connect: Box::new(connect) }
    }
}

impl Connect for FakeConnect {
    fn connect(&self, worker: &WorkerHandle) -> Connecting {
        let client = (self.connect)();
        let (remote, local) = ("fake".to_owned(), "fake".to_owned());
        let info = session_info("fake", remote, local, worker.id());
        Box::pin(async move {
            let client = client.ok_or(io::ErrorKind::ConnectionRefused)?;
            let liveness = Arc::new(Liveness::default());
            let session = FakePeer { info, liveness, client, message: Vec::new() };
            Ok(Box::new(session) as Box<dyn PeerSession>)
        })
    }
}

/// The client's end as a session.
struct FakePeer {
    info: Arc<SessionInfo>,
    liveness: Arc<Liveness>,
    client: FakeClient,
    message: Vec<u8>,
}

impl Session for FakePeer {
    fn info(&self) -> &Arc<SessionInfo> {
        &self.info
    }

    fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease, SessionEnd>> {
        if self.liveness.is_draining() {
            return Poll::Ready(Err(SessionEnd::Cancelled));
        }
        match self.client.poll_receive(cx) {
            Poll::Ready(Some(message)) => self.message = message,
            Poll::Ready(None) => return Poll::Ready(Err(SessionEnd::PeerClosed)),
            Poll::Pending => {
                let claimed = claimed_length(&self.client.pipe.lock().received);
                let is_sound = claimed.is_none_or(|claimed| checked_length(claimed).is_some());
                let malformed = Poll::Ready(Err(SessionEnd::Malformed));
                return if is_sound { Poll::Pending } else { malformed };
            }
        }
        let now_ns = monotonic_ns();
        let (ready_ns, first_byte_ns, last_byte_ns) = (now_ns, now_ns, now_ns);
        let range = 0..self.message.len();
        Poll::Ready(Ok(Lease { range, ready_ns, first_byte_ns, last_byte_ns }))
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
        _cx: &mut Context<'_>,
        message: &mut ReplyBuf,
    ) -> Poll<Result<(), SessionEnd>> {
        if !message.is_whole() {
            return Poll::Ready(Err(SessionEnd::ReplyLength));
        }
        if self.client.is_closed() {
            return Poll::Ready(Err(SessionEnd::PeerClosed));
        }
        self.client.send(message.unsent());
        message.note_sent(message.unsent().len());
        Poll::Ready(Ok(()))
    }

    fn recycle(&mut self, _reply: ReplyBuf) {}

    fn close(&mut self) {
        self.client.close();
    }
}

impl PeerSession for FakePeer {}

/// Takes the message that `bytes` begin with, if it is whole.
fn take_message(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let rest = bytes.split_off(message_length(bytes)?);
    Some(std::mem::replace(bytes, rest))
}

/// Length of the message that `bytes` begin with, if it is whole.
fn message_length(bytes: &[u8]) -> Option<usize> {
    let length = usize::try_from(claimed_length(bytes)?).ok()?;
    (bytes.len() >= length).then_some(length)
}

/// The server's end, as its descriptor of a socket: dropping it closes the connection.
struct ServerEnd(Option<Arc<Pipe>>);

impl ServerEnd {
    fn pipe(&self) -> &Pipe {
        self.0.as_deref().unwrap_or_else(|| unreachable!("it has left for another worker"))
    }

    fn close(&mut self) {
        if let Some(pipe) = &self.0 {
            let mut state = pipe.lock();
            state.server_closed = true;
            pipe.tell_client(state);
        }
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        self.close();
    }
}

struct FakeSession {
    info: Arc<SessionInfo>,
    liveness: Arc<Liveness>,
    end: ServerEnd,
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
        let mut state = self.end.pipe().lock();
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
        let mut state = self.end.pipe().lock();
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
        let all = reply.unsent().is_empty();
        if !all {
            state.waker = Some(cx.waker().clone());
        }
        self.end.pipe().tell_client(state);
        if all { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn recycle(&mut self, _reply: ReplyBuf) {}

    fn depart(&mut self) -> Option<Departure> {
        let (info, liveness) = (Arc::clone(&self.info), Arc::clone(&self.liveness));
        let end = ServerEnd(self.end.0.take());
        let session = FakeSession { info, liveness, end, message: Vec::new() };
        Some(Departure(Box::new(move |_| Ok(Box::new(session) as Box<dyn Session>))))
    }

    fn close(&mut self) {
        self.end.close();
    }
}
