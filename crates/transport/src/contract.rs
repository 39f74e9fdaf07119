//! The transport contract: what a transport provides, what the service provides, and which side owns a buffer at
//! which time.
//!
//! A [`TransportLayer`] accepts connections and passes each to the `SessionManager` as a [`Session`]. The session
//! lives on one worker of the `ServiceExecutor`. There the `ServiceStateMachine` drives it: source a message, have
//! the [`ServiceEntryPoint`] process it, sink the reply. Nothing on this path changes threads. Between two requests
//! a session may move to another worker ([`Session::depart`]).
//!
//! Buffers:
//! - The *request* belongs to the session. [`Session::poll_source`] returns it as a [`Lease`]. Its bytes stay in
//!   place until [`Session::release`], across every suspension of the command. An idle session owns no buffer.
//!   Memory that a peer can still write to (an RDMA ring) is copied before it is leased, so a lease never changes
//!   under its reader.
//! - The *reply* is a [`ReplyBuf`] over memory that the session leases for one message. The service appends to it;
//!   [`Session::poll_sink`] takes the bytes back, and the session owns them until the transport is done with them.
//!   A service never keeps a pointer into either.
//! - A large payload may be *spliced* ([`ReplyBuf::splice`]): the transport may send it from its original place,
//!   during that call only. The part that the peer does not accept at once is copied, so a slow socket pins nothing
//!   of the storage engine.
//!
//! Must not know: BSON, commands, storage. Transports over completion queues and over readiness both fit: `poll_*`
//! only promise a wake when asking again is worthwhile.

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
    /// Binds the listening sockets. Nothing is accepted yet; an error leaves nothing behind.
    fn setup(&mut self) -> Result<()>;
    /// Accepts connections from now on and hands them to `manager`.
    fn start(&mut self, manager: &Arc<SessionManager>) -> Result<()>;
    /// The actual addresses (port 0 resolved), as clients would write them. Empty before `setup`.
    fn local_addresses(&self) -> Vec<String>;
    /// Stops accepting and closes the listening sockets. Accepted sessions continue; [`SessionManager::shutdown`]
    /// ends them.
    fn shutdown(&mut self);
}

/// The identity of a session: fixed from its acceptance on.
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
    /// The worker of the session; the session may move to another.
    pub worker: AtomicUsize,
    /// Its upgrade to a faster transport.
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
    /// The identity of the session.
    fn info(&self) -> &Arc<SessionInfo>;
    /// Whether the peer is still there; shared with the command that is being processed.
    fn liveness(&self) -> &Arc<Liveness>;
    /// Receives one whole message, header and length already checked.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease, SessionEnd>>;
    /// The message of a lease.
    fn request(&self, lease: &Lease) -> &[u8];
    /// Returns a lease: its bytes may be overwritten from now on.
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
    /// Between requests: opens the session on another worker, if it can move now. Then it is dropped without being
    /// closed.
    fn depart(&mut self) -> Option<Departure> {
        None
    }
    /// Ends the connection; what was sunk before is still delivered.
    fn close(&mut self);
}

/// Opens a session on the worker that it moves to.
pub struct Departure(pub(crate) Open);

pub(crate) type Open = Box<dyn FnOnce(&Rc<Local>) -> io::Result<Box<dyn Session>> + Send>;

/// One leased message: its place in the session, and its arrival time.
#[derive(Debug)]
pub struct Lease {
    /// Its range in the session's receive buffer.
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
    /// The peer closed the connection, or it broke: a normal event.
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

/// The service's state of a session (its Client: metadata, authentication, open cursors).
pub trait ClientState: Any + Send {}

impl dyn ClientState {
    /// The value of `start_session`, by its own type.
    pub fn downcast_mut<T: Any>(&mut self) -> Option<&mut T> {
        (self as &mut dyn Any).downcast_mut()
    }
}

/// The context of a request.
pub struct RequestContext<'a> {
    /// The client's session.
    pub session: &'a Arc<SessionInfo>,
    /// The service's state of this session.
    pub state: &'a mut dyn ClientState,
    /// Whether the client is still connected; checked whenever a long operation yields.
    pub liveness: &'a Arc<Liveness>,
    /// The session's worker: timers, yielding, tasks, the end of the tick.
    pub worker: &'a WorkerHandle,
    /// Counters and stage histograms of the whole service, for `serverStatus`.
    pub stats: &'a Arc<ServiceStats>,
    /// When the message was complete, by [`crate::monotonic_ns`].
    pub received_ns: u64,
}

/// The action after a request.
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

/// The result of [`ServiceEntryPoint::try_handle`].
pub enum Tried {
    /// Nothing: `reply` is untouched, and `handle_request` is to be called.
    No,
    /// It is handled.
    Done(Outcome),
    /// It is done and answered; the reply may go once the ticket is ready and
    /// [`ServiceEntryPoint::settle`] has seen it. A wait that takes longer than a tick becomes
    /// [`ServiceEntryPoint::wait_longer`].
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

    /// Called once when the ticket of [`Tried::After`] is not ready soon: waits for it, and settles the
    /// request. The service may end the wait early, and says so in the reply.
    fn wait_longer<'a>(
        &'a self,
        mut cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
        ticket: Ticket,
    ) -> Handling<'a> {
        Box::pin(async move {
            let result = ticket.await;
            self.settle(&mut cx, request, reply, result)
        })
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
