//! A driver's socket: reads whole messages, writes bytes.
//!
//! Bytes after a message wait in the buffer or in the kernel. Memory grows with the bytes received, not with the
//! length in a header.

use crate::lifeline::Lifeline;
use kauri_transport::shared_memory::sys::wait_readable;
use kauri_transport::sys::recv_append;
use kauri_wire::{HEADER_BYTES, checked_length, claimed_length};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Bytes received in one call.
const PIECE_BYTES: usize = 16 << 10;
/// Buffer size kept between messages.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Why there is no next message.
#[derive(Debug)]
pub enum Ended {
    /// The driver has closed its connection, or it broke.
    Driver,
    /// It sent an invalid message.
    Malformed(i32),
    /// The server has ended the session.
    Upstream,
}

/// See the module's head.
pub struct Driver {
    lifeline: Arc<Lifeline>,
    buffer: Vec<u8>,
    /// The beginning of the next message.
    start: usize,
}

impl Driver {
    pub fn new(lifeline: Arc<Lifeline>) -> Self {
        Driver { lifeline, buffer: Vec::new(), start: 0 }
    }

    /// Waits for the next message, or for the end of the upstream session, if there is one. The message is there until
    /// the next call.
    pub fn receive(&mut self, upstream: Option<BorrowedFd<'_>>) -> Result<&[u8], Ended> {
        loop {
            let unread = self.buffer.get(self.start..).unwrap_or_default();
            let mut wanted = HEADER_BYTES;
            if let Some(claimed) = claimed_length(unread) {
                wanted = checked_length(claimed).ok_or(Ended::Malformed(claimed))?;
                if unread.len() >= wanted {
                    let from = self.start;
                    self.start += wanted;
                    return Ok(self.buffer.get(from..self.start).unwrap_or_default());
                }
            }
            let missing = wanted - unread.len();
            self.fill(missing, upstream)?;
        }
    }

    fn fill(&mut self, missing: usize, upstream: Option<BorrowedFd<'_>>) -> Result<(), Ended> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        // Twice what has come, but no more than is missing.
        self.buffer.reserve(missing.min(self.buffer.len()).max(PIECE_BYTES));
        let fd = self.lifeline.socket.fd();
        loop {
            match recv_append(fd, &mut self.buffer) {
                Ok(0) => return Err(Ended::Driver),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Ended::Driver),
            }
            let waited = wait_readable(fd, upstream.unwrap_or(fd), None);
            let (driver, server) = waited.map_err(|_| Ended::Driver)?;
            if server && !driver && upstream.is_some() {
                return Err(Ended::Upstream);
            }
        }
    }
}
