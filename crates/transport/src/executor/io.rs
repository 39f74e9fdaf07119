//! Readiness of one descriptor, for its session.
//!
//! Epoll reports changes only (edge-triggered). The bits say which calls may succeed. Events set them. The session
//! clears them when the kernel transferred less than requested. All of this happens on the session's worker.

use crate::liveness::Liveness;
use crate::sys::Event;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// There may be something to read.
pub(crate) const READ: u8 = 1;
/// There may be room to write.
pub(crate) const WRITE: u8 = 2;
/// The peer has closed: reading goes on to the end of the stream, whatever the last read gave.
const CLOSED: u8 = 4;

pub(crate) struct IoSource {
    ready: Cell<u8>,
    /// The events that the session waits for. Other events are recorded without a wake.
    interest: Cell<u8>,
    /// When the worker learned of the newest event.
    ready_ns: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    liveness: Arc<Liveness>,
}

impl IoSource {
    pub fn new(liveness: Arc<Liveness>) -> Self {
        IoSource {
            ready: Cell::new(WRITE),
            interest: Cell::new(0),
            ready_ns: Cell::new(0),
            waker: RefCell::new(None),
            liveness,
        }
    }

    /// Ready if `wanted` may be tried; if not, the task is woken when it may.
    pub fn poll_ready(&self, cx: &mut Context<'_>, wanted: u8) -> Poll<()> {
        if self.ready.get() & wanted != 0 {
            self.interest.set(0);
            return Poll::Ready(());
        }
        self.interest.set(wanted);
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// For a task that waits in both directions: an event of `what` wakes it, too.
    pub fn await_also(&self, what: u8) {
        self.interest.set(self.interest.get() | what);
    }

    /// Whether `what` may be tried.
    pub fn is_ready(&self, what: u8) -> bool {
        self.ready.get() & what != 0
    }

    /// Whether the session waits for an event.
    pub fn is_awaited(&self) -> bool {
        self.interest.get() != 0
    }

    /// The event that the session waited for has happened.
    pub fn stop_waiting(&self) {
        self.interest.set(0);
    }

    /// The kernel has nothing more to read, or no more room to write, until the next event.
    pub fn exhausted(&self, what: u8) {
        if what != READ || self.ready.get() & CLOSED == 0 {
            self.ready.set(self.ready.get() & !what);
        }
    }

    pub fn ready_ns(&self) -> u64 {
        self.ready_ns.get()
    }

    /// Records an event; wakes the session if it waits for that, or if its peer has disconnected.
    pub fn dispatch(&self, event: Event, now_ns: u64) {
        let mut bits = 0;
        if event.readable {
            bits |= READ;
        }
        if event.writable {
            bits |= WRITE;
        }
        self.ready_ns.set(now_ns);
        let awaited = self.interest.get() & bits != 0;
        if event.closed {
            bits |= CLOSED;
            self.liveness.note_peer_closed();
        }
        self.ready.set(self.ready.get() | bits);
        if awaited && let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}
