//! The byte channel between a stream session and its socket.
//!
//! A session reads, writes and ends its stream through a channel, and learns here what readiness of the descriptor
//! can't tell: bytes that the channel has received and not given, and bytes that it has taken and not sent. A channel
//! that encrypts also runs its handshake inside `receive` and `send`.
//!
//! Invariants:
//! - What needs the bare socket asks for it ([`Channel::plain`]): replies that leave together, and the change to shared
//!   memory or RDMA. A channel that transforms bytes answers `None`, and its session keeps to the stream.
//! - Sessions are compiled for each channel, so a plain one costs nothing.

use super::socket::StreamSocket;
use crate::executor::shared::WorkerShared;
use crate::reply::SendNow;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub(crate) trait Channel: SendNow + Sized + 'static {
    /// Whether this process has opened the connection, so that a server is at its other end.
    const IS_OUTGOING: bool = false;

    /// What a channel has besides its descriptor. It goes along when the session moves to another worker.
    type State: Send + 'static;

    /// A channel over a connected descriptor that does not block.
    fn open(fd: OwnedFd, state: Self::State, worker: Arc<WorkerShared>) -> Self;

    /// Takes the state, for a channel over a copy of the descriptor. This one is not used again.
    fn take_state(&self) -> Self::State;

    /// For readiness, and for where packets arrive. Its bytes belong to the channel.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The socket, if bytes pass through it unchanged.
    fn plain(this: &Arc<Self>) -> Option<&Arc<StreamSocket>>;

    /// Receives into the spare capacity of `buffer`. `Ok(0)` is the end of the stream.
    fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<usize>;

    /// Whether the next bytes come with a readiness event, after a receive of `received` into `room`.
    fn is_drained(&self, received: usize, room: usize) -> bool {
        received < room
    }

    /// Takes what it can of `bytes`; without any, sends what it keeps. It takes less only while the descriptor takes
    /// nothing more.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Whether it has taken or made bytes that are not sent yet. `send` goes on with them.
    fn keeps(&self) -> bool {
        false
    }

    /// Whether the handshake is complete, so that it takes bytes to be sent. `receive` goes on with it.
    fn is_open(&self) -> bool {
        true
    }

    /// Ends the sending half. The peer reads what was sent, then the end.
    fn shutdown(&self);
}
