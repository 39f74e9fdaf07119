//! The bytes that a session has received and not yet consumed.
//!
//! Memory grows with the bytes received, never with the length that a peer claims. A message that exceeds a pooled
//! buffer is received after its space was granted (`arrivals`). While other messages wait for space, its client
//! must send [`PACE_BYTES`] in each [`PACE`].

use crate::arrivals::Room;
use crate::executor::Sleep;
use crate::executor::local::Local;
use crate::pool::RECEIVE_BYTES;
use crate::sys::monotonic_ns;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Least capacity of the memory that an incomplete message moves into.
pub(super) const PARTIAL_BYTES_MIN: usize = 1024;
/// Capacity of an incomplete message per received byte.
const PARTIAL_GROWTH: usize = 4;
/// Interval of checks of a large message's progress.
pub(super) const PACE: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 5000 });
/// The least of it that has to come in between while others wait for room.
const PACE_BYTES: usize = 1024 * 1024;

/// A large message that is arriving.
struct Large {
    room: Room,
    pace: Option<Pace>,
}

/// The progress at the last check, and the time of the next one.
struct Pace {
    received: usize,
    sleep: Sleep,
}

impl Pace {
    fn from(received: usize, local: &Local) -> Pace {
        let deadline_ns = monotonic_ns() + PACE.as_nanos() as u64;
        Pace { received, sleep: Sleep::new(Arc::clone(&local.shared), deadline_ns) }
    }
}

/// The bytes received and not yet released: `bytes[start..]`.
#[derive(Default)]
pub(super) struct Inbox {
    pub bytes: Vec<u8>,
    pub start: usize,
    pub pooled: bool,
    /// Room for the large message that it begins with.
    large: Option<Large>,
}

impl Inbox {
    pub fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.start >= self.bytes.len()
    }

    /// Gives the memory back to where it came from.
    pub fn release(&mut self, local: &Local) {
        if self.bytes.capacity() == 0 {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        if std::mem::take(&mut self.pooled) {
            local.pool.give_receive(bytes);
        }
        self.start = 0;
    }

    /// Makes room to receive more of a message of `needed` bytes in all (or an unknown number).
    pub fn make_room(&mut self, needed: usize, local: &Local) {
        if self.is_empty() && !self.pooled {
            self.bytes = local.pool.take_receive();
            (self.start, self.pooled) = (0, true);
            return;
        }
        if self.pooled && needed <= RECEIVE_BYTES {
            if self.start + needed > self.bytes.capacity() {
                self.bytes.drain(..self.start);
                self.start = 0;
            }
            return;
        }
        if self.pooled {
            self.move_out(needed, local);
        }
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        if self.bytes.spare_capacity_mut().is_empty() {
            let grown = partial_capacity(self.bytes.len(), needed);
            self.bytes.reserve_exact(grown.saturating_sub(self.bytes.len()).max(1));
        }
    }

    /// Moves unread bytes from a pooled buffer into separate memory.
    pub fn move_out(&mut self, needed: usize, local: &Local) {
        let unread = self.unread();
        let mut own = Vec::with_capacity(partial_capacity(unread.len(), needed));
        own.extend_from_slice(unread);
        self.release(local);
        self.bytes = own;
    }

    /// Ready when space for a message of this size is granted; [`Inbox::end_message`] returns it.
    pub fn poll_room(&mut self, length: usize, waker: &Waker, local: &Local) -> Poll<()> {
        if length <= RECEIVE_BYTES {
            return Poll::Ready(());
        }
        let large = self.large.get_or_insert_with(|| Large {
            room: local.shared.arrivals.ask(length as u64),
            pace: None,
        });
        large.room.poll_given(waker)
    }

    /// Whether the client has sent less of a large message than it must while others wait for room. To be asked
    /// when there is nothing to receive; the task is woken when it is time to ask again.
    pub fn poll_slow(&mut self, cx: &mut Context<'_>, local: &Local) -> bool {
        let received = self.unread().len();
        let Some(large) = self.large.as_mut().filter(|large| large.room.is_given()) else {
            return false;
        };
        loop {
            let pace = large.pace.get_or_insert_with(|| Pace::from(received, local));
            if Pin::new(&mut pace.sleep).poll(cx).is_pending() {
                return false;
            }
            let arrivals = &local.shared.arrivals;
            if arrivals.is_wanted() && received < pace.received + PACE_BYTES {
                arrivals.note_slow();
                return true;
            }
            large.pace = None;
        }
    }

    /// The message that the inbox began with was taken.
    pub fn end_message(&mut self) {
        self.large = None;
    }
}

/// Room for a message of `needed` bytes of which `received` are there.
fn partial_capacity(received: usize, needed: usize) -> usize {
    (received * PARTIAL_GROWTH).max(PARTIAL_BYTES_MIN).min(needed).max(received)
}
