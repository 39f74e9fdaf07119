//! The contract of outgoing sessions, and connecting over TCP and Unix domain sockets.

use crate::contract::{Session, SessionInfo};
use crate::executor::io::{IoSource, WRITE};
use crate::executor::local::Local;
use crate::executor::{Sleep, WorkerHandle};
use crate::liveness::Liveness;
use crate::rdma::Dialer;
use crate::shared_memory::sys::{connect_unix_now, own_user as sys_own_user, peer_user};
use crate::stream::dialed::DialedSocket;
use crate::stream::session::StreamSession;
use crate::sys::{self, KeepAlive, monotonic_ns};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A session in the making.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn PeerSession>>>>>;

/// Opens sessions with one server.
pub trait Connect: Send + Sync + 'static {
    /// Begins to open a session on the calling worker. Dropping the future gives it up.
    fn connect(&self, worker: &WorkerHandle) -> Connecting;
}

/// A session whose other end is a server. One task polls `poll_source` and `poll_sink` at once, the latter first.
pub trait PeerSession: Session {
    /// Both directions wait. An event of either wakes the task from now on. True: polls in one direction may have
    /// found something for the other, so both have to be polled again.
    fn await_both(&mut self) -> bool {
        false
    }

    /// Nothing has come or gone for a while: the session keeps no memory that it can do without until then.
    fn rest(&mut self) {}

    /// Prepares the change to RDMA by this device. Answers the parameters of the request to the server; its answer is
    /// then that of RDMA. `random` should be.
    fn prepare_rdma(&mut self, _dialer: &Dialer, _random: u64) -> Result<Vec<u8>, String> {
        Err("this transport cannot be changed".to_owned())
    }

    /// Begins the change by the server's answer: to shared memory, or to RDMA if that is prepared. On an error the
    /// session stays as it is.
    fn begin_upgrade(&mut self, _answer: &[u8]) -> Result<(), String> {
        Err("this transport cannot be changed".to_owned())
    }

    /// Ready when the change is complete, or has failed and the session goes on as it was.
    fn poll_upgraded(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Err("this transport cannot be changed".to_owned()))
    }

    /// The change takes too long: the session goes on as it was.
    fn abandon_upgrade(&mut self) {}

    /// What messages go through, as in connection strings.
    fn transport(&self) -> &'static str {
        self.info().transport
    }
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A host name or an IP address, and a port.
    Tcp(String, u16),
    /// A Unix domain socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Silence after which a server is probed.
const KEEPALIVE: KeepAlive = KeepAlive { idle_s: 30, interval_s: 5, probes_max: 4 };
/// Between two tries while a Unix listener's queue is full.
const UNIX_RETRY_NS: u64 = 2_000_000;
/// How long an address of a name is tried while others are left.
const ADDRESS_NS_MAX: u64 = 5_000_000_000;
/// Threads that resolve names at once in this process.
const RESOLVERS_MAX: usize = 16;

/// Over TCP or a Unix domain socket.
pub struct SocketConnect {
    address: Address,
    own_user: bool,
}

impl SocketConnect {
    /// Opens sessions there.
    pub fn new(address: Address) -> Self {
        SocketConnect { address, own_user: false }
    }

    /// The same, if a process of this one's user listens there on a Unix domain socket.
    pub fn of_own_user(path: PathBuf) -> Self {
        SocketConnect { address: Address::Unix(path), own_user: true }
    }
}

impl Connect for SocketConnect {
    fn connect(&self, worker: &WorkerHandle) -> Connecting {
        let (address, worker, own_user) = (self.address.clone(), worker.clone(), self.own_user);
        Box::pin(async move {
            let local = Local::current().ok_or_else(not_here)?;
            match &address {
                Address::Unix(path) => {
                    let fd = loop {
                        match connect_unix_now(path) {
                            Ok(stream) => break OwnedFd::from(stream),
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                                worker.sleep_until_ns(monotonic_ns() + UNIX_RETRY_NS).await;
                            }
                            Err(error) => return Err(error),
                        }
                    };
                    if own_user && peer_user(fd.as_fd())? != sys_own_user() {
                        return Err(io::ErrorKind::PermissionDenied.into());
                    }
                    open(fd, &local, "unix", address.to_string(), String::new())
                }
                Address::Tcp(host, port) => {
                    let addresses = resolve(host, *port).await?;
                    let fd = connect_tcp(&addresses, &local, &worker).await?;
                    let stream = TcpStream::from(fd);
                    sys::set_tcp_options(stream.as_fd(), &KEEPALIVE)?;
                    let (remote, own) = (stream.peer_addr()?, stream.local_addr()?);
                    open(stream.into(), &local, "tcp", remote.to_string(), own.to_string())
                }
            }
        })
    }
}

fn not_here() -> io::Error {
    io::Error::other("sessions are opened on workers")
}

fn open(
    fd: OwnedFd,
    local: &Rc<Local>,
    transport: &'static str,
    remote: String,
    own: String,
) -> io::Result<Box<dyn PeerSession>> {
    let info = session_info(transport, remote, own, local.shared.id);
    let takes_beside = transport == "unix";
    let liveness = Arc::new(Liveness::default());
    let session = StreamSession::<DialedSocket>::over(fd, takes_beside, local, info, liveness)?;
    Ok(Box::new(session))
}

/// Who an outgoing session is. Their numbers are their own.
pub(crate) fn session_info(
    transport: &'static str,
    remote: String,
    local: String,
    worker: usize,
) -> Arc<SessionInfo> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Arc::new(SessionInfo {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        remote,
        local,
        transport,
        worker: AtomicUsize::new(worker),
        upgrade: Default::default(),
    })
}

/// The addresses are tried one after the other.
async fn connect_tcp(
    addresses: &[SocketAddr],
    local: &Rc<Local>,
    worker: &WorkerHandle,
) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (at, address) in addresses.iter().enumerate() {
        let left = addresses.len() - at > 1;
        let end_ns = if left { monotonic_ns().saturating_add(ADDRESS_NS_MAX) } else { u64::MAX };
        match connect_one(*address, local, worker.sleep_until_ns(end_ns)).await {
            Ok(fd) => return Ok(fd),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect_one(
    address: SocketAddr,
    local: &Rc<Local>,
    mut end: Sleep,
) -> io::Result<OwnedFd> {
    let stream = TcpStream::from(sys::begin_connect(address)?);
    let io = Rc::new(IoSource::new(Arc::default()));
    io.exhausted(WRITE);
    let key = local.watch(stream.as_fd(), Rc::clone(&io))?;
    let _unwatched = Unwatched { local: Rc::clone(local), key };
    let in_time = poll_fn(|cx| {
        if io.poll_ready(cx, WRITE).is_ready() {
            return Poll::Ready(true);
        }
        Pin::new(&mut end).poll(cx).map(|()| false)
    });
    if !in_time.await {
        return Err(io::ErrorKind::TimedOut.into());
    }
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    local.epoll.remove(stream.as_fd())?;
    Ok(stream.into())
}

struct Unwatched {
    local: Rc<Local>,
    key: u64,
}

impl Drop for Unwatched {
    fn drop(&mut self) {
        self.local.unwatch(self.key);
    }
}

/// What a thread that resolves a name tells its future.
#[derive(Default)]
struct Resolving {
    found: Option<io::Result<Vec<SocketAddr>>>,
    waker: Option<Waker>,
}

/// The addresses of a host. A name is resolved on a thread of its own, since the system's resolver blocks.
async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    static RESOLVERS: AtomicUsize = AtomicUsize::new(0);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    if RESOLVERS.fetch_add(1, Ordering::Relaxed) >= RESOLVERS_MAX {
        RESOLVERS.fetch_sub(1, Ordering::Relaxed);
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "too many names are being resolved",
        ));
    }
    let resolving: Arc<Mutex<Resolving>> = Arc::default();
    let (told, host) = (Arc::clone(&resolving), host.to_owned());
    let thread = std::thread::Builder::new().name("resolver".to_owned()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        RESOLVERS.fetch_sub(1, Ordering::Relaxed);
        let mut state = told.lock().unwrap_or_else(PoisonError::into_inner);
        state.found = Some(found);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    if let Err(error) = thread {
        RESOLVERS.fetch_sub(1, Ordering::Relaxed);
        return Err(error);
    }
    poll_fn(|cx| {
        let mut state = resolving.lock().unwrap_or_else(PoisonError::into_inner);
        match state.found.take() {
            Some(found) => Poll::Ready(found),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
