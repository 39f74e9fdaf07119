//! Wakes a side that sleeps.
//!
//! The server's bell is an event descriptor: the server only watches it and never reads it. The client's bell is a
//! socket, because ringing it must never block, whatever the client does with its end. Writing to an event
//! descriptor that both sides hold could block.

use crate::sys::{EventFd, receive_now, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// See the module's head.
#[derive(Debug)]
pub enum Bell {
    /// The server's.
    Event(EventFd),
    /// The client's: one end of a pair of sockets, or the other.
    Socket(OwnedFd),
}

impl Bell {
    /// The server's, and the same for its client to ring.
    pub fn of_server() -> io::Result<(Bell, OwnedFd)> {
        let event = EventFd::new()?;
        let same = event.as_fd().try_clone_to_owned()?;
        Ok((Bell::Event(event), same))
    }

    /// The client's, for the server to ring, and the end at which the client hears it.
    pub fn of_client() -> io::Result<(Bell, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Bell::Socket(ours.into()), theirs.into()))
    }

    /// Rings it. Never waits: if the buffer is full, there are enough signals.
    pub fn ring(&self) {
        match self {
            Bell::Event(event) => event.signal(),
            Bell::Socket(socket) => {
                let _ = send(socket.as_fd(), &[1]);
            }
        }
    }

    /// Forgets that it was rung.
    pub fn reset(&self) {
        match self {
            Bell::Event(event) => event.reset(),
            Bell::Socket(socket) => {
                while receive_now(socket.as_fd(), &mut [0; 64]).is_ok_and(|n| n == 64) {}
            }
        }
    }

    /// Readable once it was rung.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Bell::Event(event) => event.as_fd(),
            Bell::Socket(socket) => socket.as_fd(),
        }
    }
}
