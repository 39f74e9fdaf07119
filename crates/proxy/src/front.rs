//! The thread that accepts drivers and detects disconnects: a thread that waits for the server cannot see that its
//! driver has disconnected.
//!
//! Without free descriptors it logs that once and retries after a pause, like the server's listener. Meanwhile
//! connections wait in the kernel's queue.

use crate::lifeline::{Lifeline, Socket};
use crate::pool::Pool;
use crate::relay::{Identity, Relay};
use kauri_base::log::{self, Attr};
use kauri_transport::sys::{self, Epoll, EventFd, EventList, KeepAlive};
use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for threads to notice an immediate stop.
const END_GRACE: Duration = Duration::from_secs(2);
/// Event key of the order to stop.
const STOP_KEY: u64 = u64::MAX;
/// Event keys from here on are listening sockets; below are connections.
const ACCEPTOR_KEYS: u64 = u64::MAX - 1024;
/// As the server does.
const KEEPALIVE: KeepAlive = KeepAlive { idle_s: 300, interval_s: 1, probes_max: 9 };
/// A connection's thread needs little, and there may be many.
const STACK_BYTES: usize = 512 << 10;

/// A listening socket.
pub enum Acceptor {
    Tcp(TcpListener),
    /// And the path that it is bound to.
    Unix(UnixListener, String),
}

/// The sockets, ready to accept.
pub fn acceptors(
    tcp: Vec<TcpListener>,
    unix: Option<(UnixListener, String)>,
) -> io::Result<Vec<Acceptor>> {
    let unix = unix.map(|(listener, path)| Acceptor::Unix(listener, path));
    let acceptors: Vec<_> = tcp.into_iter().map(Acceptor::Tcp).chain(unix).collect();
    for acceptor in &acceptors {
        match acceptor {
            Acceptor::Tcp(listener) => listener.set_nonblocking(true)?,
            Acceptor::Unix(listener, _) => listener.set_nonblocking(true)?,
        }
    }
    Ok(acceptors)
}

impl Acceptor {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Acceptor::Tcp(listener) => listener.as_fd(),
            Acceptor::Unix(listener, _) => listener.as_fd(),
        }
    }

    /// A driver, and the addresses at both ends.
    fn accept(&self) -> io::Result<(Socket, String, String)> {
        match self {
            Acceptor::Tcp(listener) => {
                let (stream, remote) = listener.accept()?;
                sys::set_tcp_options(stream.as_fd(), &KEEPALIVE)?;
                let local = stream.local_addr()?.to_string();
                Ok((Socket::Tcp(stream), remote.to_string(), local))
            }
            Acceptor::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                Ok((Socket::Unix(stream), "anonymous unix socket".to_owned(), path.clone()))
            }
        }
    }
}

/// Connections that there are, by their ids.
#[derive(Default)]
struct Connections {
    all: Mutex<HashMap<u64, Arc<Lifeline>>>,
    one_ended: Condvar,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Lifeline>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all have ended within this time.
    fn ended_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut all = self.lock();
        while !all.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.one_ended.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn stop(&self, at_once: bool) {
        let all: Vec<_> = self.lock().values().cloned().collect();
        all.iter().for_each(|lifeline| lifeline.stop(at_once));
    }
}

/// Forgets a connection when its thread ends, however that is.
struct Registered {
    connections: Arc<Connections>,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.id);
        self.connections.one_ended.notify_all();
    }
}

/// The running thread.
pub struct Front {
    stop: Arc<EventFd>,
    connections: Arc<Connections>,
    thread: JoinHandle<()>,
}

impl Front {
    /// Accepts drivers from now on, up to this number of connections.
    pub fn start(
        acceptors: Vec<Acceptor>,
        pool: Arc<Pool>,
        connections_max: usize,
    ) -> io::Result<Front> {
        let stop = Arc::new(EventFd::new()?);
        let (all, stop_only) = (Epoll::new()?, Epoll::new()?);
        all.add_readable(stop.as_fd(), STOP_KEY)?;
        stop_only.add_readable(stop.as_fd(), STOP_KEY)?;
        for (key, acceptor) in (ACCEPTOR_KEYS..).zip(&acceptors) {
            all.add_readable(acceptor.fd(), key)?;
        }
        let connections = Arc::new(Connections::default());
        let watching = Watching {
            acceptors,
            all,
            stop_only,
            pool,
            connections: Arc::clone(&connections),
            connections_max,
            next_id: 1,
            is_short: false,
        };
        let builder = std::thread::Builder::new().name("listener".into());
        Ok(Front { stop, connections, thread: builder.spawn(move || watching.run())? })
    }

    /// Stops accepting, and ends all connections; those with requests in flight after `grace` at the latest.
    pub fn stop(self, grace: Duration) {
        self.stop.signal();
        // A panic there has been reported by the thread itself.
        let _ = self.thread.join();
        self.connections.stop(false);
        if !self.connections.ended_within(grace) {
            self.connections.stop(true);
            self.connections.ended_within(END_GRACE);
        }
    }
}

struct Watching {
    acceptors: Vec<Acceptor>,
    all: Epoll,
    stop_only: Epoll,
    pool: Arc<Pool>,
    connections: Arc<Connections>,
    connections_max: usize,
    next_id: u64,
    is_short: bool,
}

impl Watching {
    fn run(mut self) {
        let mut events = EventList::new(64);
        loop {
            if let Err(error) = self.all.wait(&mut events, None) {
                let attr = Attr::new().str("error", error.to_string());
                log::error("NETWORK", 6_300_108, "listener", "epoll failed; no more accepts", attr);
                return;
            }
            let keys: Vec<u64> = events.iter().map(|event| event.key).collect();
            for key in keys {
                match key {
                    STOP_KEY => return,
                    ACCEPTOR_KEYS.. => {
                        let pauses = !self.accept((key - ACCEPTOR_KEYS) as usize);
                        if pauses && self.stop_only.wait(&mut events, Some(PAUSE)).is_err() {
                            return;
                        }
                    }
                    id => {
                        let lifeline = self.connections.lock().get(&id).cloned();
                        if let Some(lifeline) = lifeline {
                            lifeline.driver_gone();
                        }
                    }
                }
            }
        }
    }

    /// False: there is a shortage that trying again at once would not mend.
    fn accept(&mut self, index: usize) -> bool {
        let Some(acceptor) = self.acceptors.get(index) else { return true };
        match acceptor.accept() {
            Ok((socket, remote, local)) => {
                self.is_short = false;
                if let Err(error) = self.admit(socket, remote, local) {
                    log_failure(&error);
                }
            }
            Err(error) if is_shortage(&error) => {
                if !std::mem::replace(&mut self.is_short, true) {
                    log_failure(&error);
                }
                return false;
            }
            // The connection was gone before it was accepted.
            Err(_) => {}
        }
        true
    }

    fn admit(&mut self, socket: Socket, remote: String, local: String) -> io::Result<()> {
        let count = self.connections.lock().len();
        if count >= self.connections_max {
            let attr = Attr::new().str("remote", &remote).num("connectionCount", count);
            let message = "Connection refused because there are too many open connections";
            log::info("NETWORK", 22942, "listener", message, attr);
            return Ok(());
        }
        let id = self.next_id;
        self.next_id += 1;
        let lifeline = Arc::new(Lifeline::new(socket));
        self.connections.lock().insert(id, Arc::clone(&lifeline));
        let registered = Registered { connections: Arc::clone(&self.connections), id };
        self.all.add_end(lifeline.socket.fd(), id)?;
        let attr = Attr::new()
            .str("remote", &remote)
            .num("connectionId", id)
            .num("connectionCount", count + 1);
        log::info("NETWORK", 22943, "listener", "Connection accepted", attr);
        let relay = Relay::new(Identity { id, remote, local }, lifeline, Arc::clone(&self.pool));
        let thread = std::thread::Builder::new().name(format!("conn{id}")).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let _registered = registered;
            relay.run();
        })?;
        Ok(())
    }
}

fn log_failure(error: &io::Error) {
    let attr = Attr::new().str("error", error.to_string());
    log::warning("NETWORK", 23023, "listener", "Error accepting new connection", attr);
}

fn is_shortage(error: &io::Error) -> bool {
    /// ENOMEM, ENFILE, EMFILE, ENOBUFS, as Linux numbers them.
    const SHORTAGES: [i32; 4] = [12, 23, 24, 105];
    error.raw_os_error().is_some_and(|code| SHORTAGES.contains(&code))
}
