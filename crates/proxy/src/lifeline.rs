//! Ends a driver's connection from outside of its thread: because the driver has disconnected while the server
//! still works for it, or because the proxy stops.
//!
//! Invariant: two threads can learn that the driver has disconnected, the watcher and the thread that starts to
//! wait for the server. The later one closes the upstream session.

use kauri_client::HangUp;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A driver's socket.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }

    /// Sends all, and waits for that.
    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => io::Write::write_all(&mut &*stream, bytes),
            Socket::Unix(stream) => io::Write::write_all(&mut &*stream, bytes),
        }
    }

    fn shutdown(&self) {
        // It fails only if the connection has ended already.
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// The activity of the connection's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Doing {
    /// Waits for a request.
    #[default]
    Idle,
    /// Processes requests without replies: these are completed even if the driver disconnects.
    Silent,
    /// Waits for the server's reply.
    Request,
    /// Waits for the reply to a handshake or a monitor's request, which may be dropped when the proxy stops.
    Hello,
}

impl Doing {
    /// A driver that may disconnect waits for a reply.
    fn is_answered(self) -> bool {
        matches!(self, Doing::Request | Doing::Hello)
    }
}

#[derive(Default, Debug)]
struct State {
    doing: Doing,
    driver_gone: bool,
    stopping: bool,
    upstream: Option<Arc<HangUp>>,
}

/// See the module's head.
#[derive(Debug)]
pub struct Lifeline {
    /// The driver's.
    pub socket: Socket,
    state: Mutex<State>,
}

impl Lifeline {
    pub fn new(socket: Socket) -> Self {
        Lifeline { socket, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread has another session.
    pub fn attach(&self, upstream: Arc<HangUp>) {
        self.state().upstream = Some(upstream);
    }

    /// The thread does something else from now on.
    pub fn doing(&self, doing: Doing) {
        let mut state = self.state();
        state.doing = doing;
        let is_missed_by_none = state.driver_gone || state.stopping && doing == Doing::Hello;
        if doing.is_answered() && is_missed_by_none {
            state.hang_up();
        }
    }

    /// The driver has closed its side.
    pub fn driver_gone(&self) {
        let mut state = self.state();
        state.driver_gone = true;
        if state.doing.is_answered() {
            state.hang_up();
        }
    }

    /// Whether the driver has closed its side.
    pub fn is_driver_gone(&self) -> bool {
        self.state().driver_gone
    }

    /// Stops the proxy: after requests in flight, or at once.
    pub fn stop(&self, at_once: bool) {
        let mut state = self.state();
        state.stopping = true;
        if at_once || state.doing == Doing::Hello {
            state.hang_up();
        }
        if at_once || matches!(state.doing, Doing::Hello | Doing::Idle) {
            self.socket.shutdown();
        }
    }

    /// Whether the proxy ends.
    pub fn is_stopping(&self) -> bool {
        self.state().stopping
    }
}

impl State {
    fn hang_up(&self) {
        if let Some(upstream) = &self.upstream {
            upstream.now();
        }
    }
}
