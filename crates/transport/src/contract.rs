//! The transport contract: what a transport gives, what the service behind it gives back, and who
//! owns which buffer when.
//!
//! A [`TransportLayer`] accepts connections and hands each to the `SessionManager` as a [`Session`].
//! The session lives on one worker of the `ServiceExecutor`; there the `ServiceStateMachine` drives it:
//! source a message, have the [`ServiceEntryPoint`] process it, sink the reply. Nothing on this path
//! changes threads. Between two requests a session may be opened anew on another worker
//! ([`Session::depart`]).
//!
//! Buffers:
//! - The *request* is the session's. [`Session::poll_source`] lends it as a [`Lease`]; its bytes stay
//!   where they are until [`Session::release`], across every suspension of the command. An idle
//!   session owns no buffer. What a peer can still write to (an RDMA ring) is copied before it is
//!   lent, so a lease never changes under its reader.
//! - The *reply* is a [`ReplyBuf`] over memory that the session leases for one message. The service
//!   appends to it; [`Session::poll_sink`] takes the bytes back, and they are the session's until the
//!   transport is done with them. A service never keeps a pointer into either.
//! - A large payload may be *spliced* ([`ReplyBuf::splice`]): offered to the transport from where it
//!   lies, during that call only. What the peer does not take at once is copied, so nothing of the
//!   storage engine stays pinned for a slow socket.
//!
//! Must not know: BSON, commands, storage. A transport over completion queues fits as one over
//! readiness does: `poll_*` only say "woken when worth asking again".

use crate::executor::WorkerHandle;
use crate::executor::local::Local;
use crate::liveness::Liveness;
use crate::manager::SessionManager;
use crate::reply::ReplyBuf;
use crate::stats::ServiceStats;
use crate::upgrade::UpgradePoint;
use kauri_base::{Result, Ticket};
use std::any::Any;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

/// One way for clients to reach the server: TCP, Unix domain sockets, RDMA.
pub trait TransportLayer: Send {
    /// `tcp`, `unix`, `rdma`, `fake`.
    fn name(&self) -> &'static str;
    /// Acquires what it listens on. Nothing is accepted yet; an error leaves nothing behind.
    fn setup(&mut self) -> Result<()>;
    /// Accepts connections from now on and hands them to `manager`.
    fn start(&mut self, manager: &Arc<SessionManager>) -> Result<()>;
    /// Where it really listens (port 0 resolved), as clients would write it. Empty before `setup`.
    fn local_addresses(&self) -> Vec<String>;
    /// Accepts no more and gives up what it listens on. Sessions already accepted go on; ending them
    /// is [`SessionManager::shutdown`].
    fn shutdown(&mut self);
}

/// Who a session is: fixed from its acceptance on.
#[derive(Debug)]
pub struct SessionInfo {
    /// `connectionId`: never reused within a process.
    pub id: u64,
    /// The client's address as MongoDB prints it (`127.0.0.1:52344`, `anonymous unix socket`).
    pub remote: String,
    /// The server's own address on this connection.
    pub local: String,
    /// The name of the transport that accepted it.
    pub transport: &'static str,
    /// The worker that it lives on; it may move to another.
    pub worker: AtomicUsize,
    /// Its way to shared memory.
    pub upgrade: UpgradePoint,
}

impl SessionInfo {
    /// Whether the client is on this host, by its address.
    pub fn is_local(&self) -> bool {
        match self.remote.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_canonical().is_loopback(),
            // A Unix domain socket.
            Err(_) => true,
        }
    }
}

/// A connection, on the worker that it belongs to (hence not `Send`).
///
/// Call order, kept by the `ServiceStateMachine`: `poll_source` until ready; `request` any number of
/// times; `poll_sink` with each reply; `release`. After an `Err` only `close` is called.
pub trait Session {
    /// Who it is.
    fn info(&self) -> &Arc<SessionInfo>;
    /// Whether the peer is still there; shared with the command that is being processed.
    fn liveness(&self) -> &Arc<Liveness>;
    /// Receives one whole message, header and length already checked.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease, SessionEnd>>;
    /// The message of a lease.
    fn request(&self, lease: &Lease) -> &[u8];
    /// Gives a lease back: its bytes may be overwritten from now on.
    fn release(&mut self, lease: Lease);
    /// Memory for one reply of about `size_hint` bytes.
    fn reply_buf(&mut self, size_hint: usize) -> ReplyBuf;
    /// Sends what `reply` holds. Ready: all of it was taken over, and `reply` is empty again.
    fn poll_sink(
        &mut self,
        cx: &mut Context<'_>,
        reply: &mut ReplyBuf,
    ) -> Poll<Result<(), SessionEnd>>;
    /// Takes the memory of a reply back, once it was sunk or is not wanted.
    fn recycle(&mut self, reply: ReplyBuf);
    /// The core on which the kernel takes its packets in, if that is known.
    fn arrives_on(&self) -> Option<usize> {
        None
    }
    /// Between requests: what opens it on another worker, if it can leave now. Then it is dropped without
    /// being closed.
    fn depart(&mut self) -> Option<Departure> {
        None
    }
    /// Ends the connection; what was sunk before is still delivered.
    fn close(&mut self);
}

/// Opens a session on the worker that it moves to.
pub struct Departure(pub(crate) Open);

pub(crate) type Open = Box<dyn FnOnce(&Rc<Local>) -> io::Result<Box<dyn Session>> + Send>;

/// One received message on loan: where it lies in its session, and when it came.
#[derive(Debug)]
pub struct Lease {
    /// Where it lies in the session's receive buffer.
    pub range: Range<usize>,
    /// When the worker learned that there was something to read.
    pub ready_ns: u64,
    /// When reading its first byte began.
    pub first_byte_ns: u64,
    /// When its last byte was there.
    pub last_byte_ns: u64,
}

/// Why a session ends.
#[derive(Debug)]
pub enum SessionEnd {
    /// The peer closed, or the connection broke: what clients do every day.
    PeerClosed,
    /// The peer sent what no MongoDB client sends; already logged by the transport.
    Malformed,
    /// The server is shutting down or has killed the session.
    Cancelled,
    /// The reply was not as long as its header had announced.
    ReplyLength,
    /// The service asked for it.
    ByService,
    /// The service panicked; already logged.
    Panicked,
}

/// What the service keeps for a session (its Client: metadata, authentication, open cursors).
pub trait ClientState: Any + Send {}

impl dyn ClientState {
    /// What `start_session` made, by its own type.
    pub fn downcast_mut<T: Any>(&mut self) -> Option<&mut T> {
        (self as &mut dyn Any).downcast_mut()
    }
}

/// What comes with a request.
pub struct RequestContext<'a> {
    /// Who asks.
    pub session: &'a Arc<SessionInfo>,
    /// What the service keeps for this session.
    pub state: &'a mut dyn ClientState,
    /// Whether the client is still there; look at it whenever a long operation yields.
    pub liveness: &'a Arc<Liveness>,
    /// The session's worker: timers, yielding, tasks, the end of the tick.
    pub worker: &'a WorkerHandle,
    /// Counters and stage histograms of the whole service, for `serverStatus`.
    pub stats: &'a Arc<ServiceStats>,
    /// When the message was complete, by [`crate::monotonic_ns`].
    pub received_ns: u64,
}

/// What is to happen after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Send the reply, then read the next request.
    Reply,
    /// Fire and forget: nothing is sent.
    NoReply,
    /// Send the reply, then call again with the same request for the next reply.
    Exhaust,
    /// End the session without a reply.
    Close,
    /// Send the reply, then end the session.
    ReplyThenClose,
}

/// What [`ServiceEntryPoint::try_handle`] made of a request.
pub enum Tried {
    /// Nothing: `reply` is untouched, and `handle_request` is to be called.
    No,
    /// It is handled.
    Done(Outcome),
    /// It is done and answered; the reply may go once the ticket is ready and
    /// [`ServiceEntryPoint::settle`] has seen it. Nobody can call the wait off.
    After(Ticket),
}

/// A command in progress. `Send`, so that no guard that belongs to a thread lives across a wait.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// The database behind the transports.
pub trait ServiceEntryPoint: Send + Sync + 'static {
    /// Called on the session's worker before its first request.
    fn start_session(&self, session: &Arc<SessionInfo>) -> Box<dyn ClientState>;

    /// Tried first: handles the request if that needs no boxed future, and no wait but for one
    /// ticket at the end.
    fn try_handle(
        &self,
        _cx: &mut RequestContext<'_>,
        _request: &[u8],
        _reply: &mut ReplyBuf,
    ) -> Tried {
        Tried::No
    }

    /// Called when the ticket of [`Tried::After`] is ready, before the reply goes. An error has to be
    /// made the reply.
    fn settle(
        &self,
        _cx: &mut RequestContext<'_>,
        _request: &[u8],
        _reply: &mut ReplyBuf,
        result: Result<()>,
    ) -> Outcome {
        if result.is_ok() { Outcome::Reply } else { Outcome::Close }
    }

    /// Handles one whole message (header included); appends one whole reply to `reply`.
    /// A panic ends this session only.
    fn handle_request<'a>(
        &'a self,
        cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
    ) -> Handling<'a>;

    /// The process ends: has all operations end that are running.
    fn end_operations(&self) {}

    /// Called once when the session has ended, however it ended.
    fn end_session(&self, session: &Arc<SessionInfo>, state: Box<dyn ClientState>);
}
