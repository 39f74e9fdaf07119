//! Memory budget of large messages that are being received, of all sessions together.
//!
//! A session continues to receive a large message after the budget has granted space for the whole message. Until
//! then the client waits. So messages in receipt never exceed the budget, however many clients send at once.
//!
//! Invariants:
//! - Space is granted to the smallest message first, so that a few huge messages delay no others. After
//!   [`PASSED_MAX`] others have passed a message, it is the next.
//! - A message that exceeds the budget is received alone.
//! - A message with granted space waits only for its client.
//!
//! This module must not know sessions. They end a client that is slow while others wait ([`Arrivals::is_wanted`]).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Number of smaller messages that may pass a waiting one.
const PASSED_MAX: u32 = 64;

/// The budget of one server.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Bytes; 0: no limit.
    bytes_max: u64,
    state: Mutex<State>,
    /// Clients that were ended because they were slow while others waited.
    slow: AtomicU64,
}

#[derive(Default)]
struct State {
    used: u64,
    /// In the order in which they asked.
    waiting: Vec<Arc<Waiter>>,
}

#[derive(Default)]
struct Waiter {
    bytes: u64,
    /// Number of messages that have passed it.
    passed: AtomicU32,
    given: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Granted and requested space.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ArrivalsSnapshot {
    /// Bytes that there is room for in messages that are arriving or at work.
    pub bytes: u64,
    /// The most that may be.
    pub bytes_max: u64,
    /// Messages that wait for room.
    pub waiting: u64,
    /// Clients that were ended because they were slow while others waited, since the start.
    pub slow: u64,
}

impl Arrivals {
    pub fn new(bytes_max: u64) -> Arc<Arrivals> {
        Arc::new(Arrivals { bytes_max, ..Default::default() })
    }

    /// Requests space for a message of this size.
    pub fn ask(self: &Arc<Self>, bytes: u64) -> Room {
        let waiter = Arc::new(Waiter { bytes, ..Waiter::default() });
        let mut state = self.state();
        state.waiting.push(Arc::clone(&waiter));
        self.give(&mut state);
        Room { arrivals: Arc::clone(self), waiter }
    }

    /// Whether any message waits for space.
    pub fn is_wanted(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// A client was ended because it was slow.
    pub fn note_slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> ArrivalsSnapshot {
        let state = self.state();
        ArrivalsSnapshot {
            bytes: state.used,
            bytes_max: self.bytes_max,
            waiting: state.waiting.len() as u64,
            slow: self.slow.load(Ordering::Relaxed),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives room to those whose turn it is, as far as there is some.
    fn give(&self, state: &mut State) {
        while let Some(place) = state.next() {
            let Some(next) = state.waiting.get(place) else { return };
            let fits = state.used + next.bytes <= self.bytes_max;
            if !fits && state.used > 0 && self.bytes_max > 0 {
                return;
            }
            let next = state.waiting.remove(place);
            for waiter in state.waiting.iter().take(place) {
                waiter.passed.fetch_add(1, Ordering::Relaxed);
            }
            state.used += next.bytes;
            next.given.store(true, Ordering::Release);
            if let Some(waker) = next.lock_waker().take() {
                waker.wake();
            }
        }
    }
}

impl State {
    /// The place of the one whose turn it is.
    fn next(&self) -> Option<usize> {
        let is_due = |waiter: &Arc<Waiter>| waiter.passed.load(Ordering::Relaxed) >= PASSED_MAX;
        let due = self.waiting.iter().position(is_due);
        let smallest = || self.waiting.iter().enumerate().min_by_key(|(_, waiter)| waiter.bytes);
        due.or_else(|| smallest().map(|(place, _)| place))
    }
}

impl Waiter {
    fn lock_waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Granted space, or a place in the queue. Returned when dropped.
pub(crate) struct Room {
    arrivals: Arc<Arrivals>,
    waiter: Arc<Waiter>,
}

impl Room {
    /// Ready when the room is there.
    pub fn poll_given(&self, waker: &Waker) -> Poll<()> {
        if self.is_given() {
            return Poll::Ready(());
        }
        *self.waiter.lock_waker() = Some(waker.clone());
        // It may have been given a moment ago, to nobody that could be woken.
        if self.is_given() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub fn is_given(&self) -> bool {
        self.waiter.given.load(Ordering::Acquire)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.arrivals.state();
        if self.is_given() {
            state.used -= self.waiter.bytes;
        } else {
            state.waiting.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        }
        self.arrivals.give(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_given(room: &Room) -> bool {
        room.poll_given(Waker::noop()).is_ready()
    }

    #[test]
    fn room_is_given_to_the_smallest_and_never_more_than_there_is() {
        let arrivals = Arrivals::new(100);
        let (first, second) = (arrivals.ask(60), arrivals.ask(40));
        let (large, small) = (arrivals.ask(50), arrivals.ask(41));
        assert!(is_given(&first) && is_given(&second));
        assert!(!is_given(&large) && !is_given(&small) && arrivals.is_wanted());
        drop(second);
        assert!(!is_given(&large) && !is_given(&small), "41 of 40");
        drop(first);
        assert!(is_given(&small) && is_given(&large) && !arrivals.is_wanted());
        let (large_too, small_too) = (arrivals.ask(50), arrivals.ask(9));
        assert!(is_given(&small_too) && !is_given(&large_too));
        assert_eq!(arrivals.snapshot().bytes, 100);
        drop((large, small, large_too, small_too));
        assert_eq!(arrivals.snapshot().bytes, 0);
    }

    #[test]
    fn smaller_ones_pass_only_so_often() {
        let arrivals = Arrivals::new(100);
        let first = arrivals.ask(60);
        let large = arrivals.ask(50);
        for _ in 0..PASSED_MAX {
            assert!(is_given(&arrivals.ask(1)));
        }
        let small = arrivals.ask(1);
        assert!(!is_given(&small) && !is_given(&large));
        drop(first);
        assert!(is_given(&small) && is_given(&large));
    }

    #[test]
    fn what_exceeds_the_budget_is_received_alone_and_who_goes_waits_no_more() {
        let arrivals = Arrivals::new(100);
        let small = arrivals.ask(10);
        let (huge, gone) = (arrivals.ask(1000), arrivals.ask(1001));
        assert!(is_given(&small) && !is_given(&huge));
        drop(gone);
        drop(small);
        let last = arrivals.ask(30);
        assert!(is_given(&huge) && !is_given(&last));
        drop(huge);
        assert!(is_given(&last));
        assert_eq!(
            arrivals.snapshot(),
            ArrivalsSnapshot { bytes: 30, bytes_max: 100, ..Default::default() }
        );
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let arrivals = Arc::new(Arrivals::default());
        let rooms: Vec<Room> = (0..10).map(|_| arrivals.ask(u64::MAX >> 8)).collect();
        assert!(rooms.iter().all(is_given));
    }
}
