//! The thread that accepts a transport's connections.
//!
//! It does nothing else, so a busy worker delays no accept. When the process or the system is out of descriptors,
//! the thread logs that once and retries after a pause. Meanwhile connections wait in the kernel's queue.

use super::session::StreamSession;
use crate::contract::Session;
use crate::manager::{Origin, SessionManager};
use crate::rdma::Addresses;
use crate::shared_memory::sys::peer_user;
use crate::sys::{self, Epoll, EventFd, EventList, KeepAlive};
use kauri_base::log::{self, Attr};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections accepted from one socket before the others are looked at.
const ACCEPTS_A_TURN_MAX: usize = 64;
/// How long to wait when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// Event key of the order to stop.
const STOP_KEY: u64 = u64::MAX;

/// Silence after which a peer is probed. MongoDB caps the system's values at 300 s and 1 s.
const KEEPALIVE: KeepAlive = KeepAlive { idle_s: 300, interval_s: 1, probes_max: 9 };

/// A listening socket.
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    /// And the path that it is bound to.
    Unix(UnixListener, String),
}

impl Acceptor {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Acceptor::Tcp(listener) => listener.as_fd(),
            Acceptor::Unix(listener, _) => listener.as_fd(),
        }
    }

    pub fn address(&self) -> String {
        match self {
            Acceptor::Tcp(listener) => {
                listener.local_addr().map_or_else(|e| e.to_string(), |a| a.to_string())
            }
            Acceptor::Unix(_, path) => path.clone(),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Acceptor::Tcp(listener) => listener.set_nonblocking(true),
            Acceptor::Unix(listener, _) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<(OwnedFd, Origin)> {
        match self {
            Acceptor::Tcp(listener) => {
                let (stream, remote) = listener.accept()?;
                sys::set_tcp_options(stream.as_fd(), &KEEPALIVE)?;
                let local = stream.local_addr()?;
                let origin = Origin {
                    remote: remote.to_string(),
                    local: local.to_string(),
                    transport: "tcp",
                    addresses: Some(Addresses { own: local.ip(), peers: remote.ip() }),
                    peer_user: None,
                };
                Ok((stream.into(), origin))
            }
            Acceptor::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let peer_user = peer_user(stream.as_fd()).ok();
                let remote = "anonymous unix socket".to_owned();
                let local = path.clone();
                let origin =
                    Origin { remote, local, transport: "unix", addresses: None, peer_user };
                Ok((stream.into(), origin))
            }
        }
    }
}

/// A running accept thread.
pub(crate) struct Listener {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts to accept.
    pub fn start(acceptors: Vec<Acceptor>, manager: Arc<SessionManager>) -> io::Result<Self> {
        let stop = Arc::new(EventFd::new()?);
        let (all, stop_only) = (Epoll::new()?, Epoll::new()?);
        all.add_readable(stop.as_fd(), STOP_KEY)?;
        stop_only.add_readable(stop.as_fd(), STOP_KEY)?;
        for (key, acceptor) in acceptors.iter().enumerate() {
            acceptor.set_nonblocking()?;
            all.add_readable(acceptor.fd(), key as u64)?;
            let attr = Attr::new().str("address", acceptor.address());
            log::info("NETWORK", 23_015, "listener", "Listening on", attr);
        }
        let accepting = Accepting { acceptors, manager, all, stop_only, out_of_descriptors: false };
        let thread =
            std::thread::Builder::new().name("listener".into()).spawn(move || accepting.run())?;
        Ok(Listener { stop, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Accepting {
    acceptors: Vec<Acceptor>,
    manager: Arc<SessionManager>,
    all: Epoll,
    stop_only: Epoll,
    out_of_descriptors: bool,
}

impl Accepting {
    fn run(mut self) {
        let mut events = EventList::new(16);
        loop {
            if let Err(error) = self.all.wait(&mut events, None) {
                let attr = Attr::new().str("error", error.to_string());
                log::error("NETWORK", 7_100_004, "listener", "epoll failed; no more accepts", attr);
                return;
            }
            let keys: Vec<u64> = events.iter().map(|event| event.key).collect();
            for key in keys {
                if key == STOP_KEY {
                    return;
                }
                if !self.accept_some(key as usize) && self.pause(&mut events) {
                    return;
                }
            }
        }
    }

    /// Waits a short time. True if it was told to stop.
    fn pause(&self, events: &mut EventList) -> bool {
        self.stop_only.wait(events, Some(PAUSE)).is_err() || !events.is_empty()
    }

    /// False if accepting failed in a way that trying again at once would not mend.
    fn accept_some(&mut self, index: usize) -> bool {
        let Some(acceptor) = self.acceptors.get(index) else { return true };
        for _ in 0..ACCEPTS_A_TURN_MAX {
            match acceptor.accept() {
                Ok((fd, origin)) => {
                    self.out_of_descriptors = false;
                    self.manager.accept(origin, move |local, info, liveness| {
                        let session = StreamSession::open(fd, local, info, liveness)?;
                        Ok(Box::new(session) as Box<dyn Session>)
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if is_shortage(&error) => {
                    if !self.out_of_descriptors {
                        self.out_of_descriptors = true;
                        log_failure(acceptor, &error);
                    }
                    return false;
                }
                // The connection was gone before it was accepted.
                Err(_) => {}
            }
        }
        true
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

fn log_failure(acceptor: &Acceptor, error: &io::Error) {
    let attr = Attr::new().str("localEndpoint", acceptor.address()).str("error", error.to_string());
    let msg = "Error accepting new connection on local endpoint";
    log::warning("NETWORK", 23_023, "listener", msg, attr);
}
