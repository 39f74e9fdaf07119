//! The socket of a stream session, and its byte counters.

use super::channel::Channel;
use crate::executor::shared::WorkerShared;
use crate::reply::SendNow;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub(crate) struct StreamSocket {
    fd: OwnedFd,
    worker: Arc<WorkerShared>,
}

impl StreamSocket {
    pub fn new(fd: OwnedFd, worker: Arc<WorkerShared>) -> Self {
        StreamSocket { fd, worker }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Receives into the spare capacity of `buffer`.
    pub fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.receive_by(|fd| sys::recv_append(fd, buffer))
    }

    /// Counts what `receive` gets from the descriptor.
    pub fn receive_by(
        &self,
        receive: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.worker.stats.receives.add(1);
        let received = receive(self.fd())?;
        self.worker.stats.bytes_in.add(received as u64);
        Ok(received)
    }

    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.worker.stats.sends.add(1);
        self.note_sent(sys::send(self.fd(), bytes))
    }

    /// Counts a send that is about to be made with others.
    pub fn note_send_together(&self) {
        self.worker.stats.sends.add(1);
        self.worker.stats.sends_together.add(1);
    }

    /// Counts what a send came to.
    pub fn note_sent(&self, sent: io::Result<usize>) -> io::Result<usize> {
        if let Ok(sent) = &sent {
            self.worker.stats.bytes_out.add(*sent as u64);
        }
        sent
    }

    /// Ends the sending half; the peer reads what was sent, and then the end.
    pub fn shutdown(&self) {
        sys::shutdown_send(self.fd());
    }
}

impl SendNow for StreamSocket {
    fn send_now(&self, first: &[u8], second: &[u8]) -> usize {
        self.worker.stats.sends.add(1);
        let sent = sys::send_two(self.fd(), first, second).unwrap_or(0);
        self.worker.stats.bytes_out.add(sent as u64);
        sent
    }
}

impl Channel for StreamSocket {
    type State = ();

    fn open(fd: OwnedFd, (): (), worker: Arc<WorkerShared>) -> Self {
        StreamSocket::new(fd, worker)
    }

    fn take_state(&self) {}

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }

    fn plain(this: &Arc<Self>) -> Option<&Arc<StreamSocket>> {
        Some(this)
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.receive(buffer)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    fn shutdown(&self) {
        self.shutdown();
    }
}
