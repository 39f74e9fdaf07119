//! A reader-writer lock with asynchronous waiters, and an operation's holds of such locks.
//!
//! Only the experiment with lock granularities (`lockGranularity`) uses it. Correctness does not depend on it:
//! every reader and writer validates its data again at the end. It behaves like the locks of early MongoDB: many
//! readers or one writer, and *greedy* for writers. While a writer waits, new readers wait; a released lock goes to
//! a writer first. Within readers and within writers, the order is first come, first served. Waiting never blocks
//! the thread.
//!
//! The releasing thread passes the lock to the next waiter, so a woken waiter holds the lock already. A waiter that
//! is dropped leaves the queue, or releases the lock if the lock was passed to it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The mode of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// By readers.
    Shared,
    /// By one writer.
    Exclusive,
}

/// Figures of one mode.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LockCounts {
    /// Number of acquisitions.
    pub acquired: u64,
    /// Number of acquisitions that had to wait.
    pub waited: u64,
    /// Time spent in these waits.
    pub waiting: Duration,
}

/// Figures of a lock: current state and totals.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LockStats {
    /// Readers that hold it.
    pub readers: usize,
    /// Whether a writer holds it.
    pub writer: bool,
    /// Readers that wait.
    pub readers_waiting: usize,
    /// Writers that wait.
    pub writers_waiting: usize,
    /// Shared.
    pub shared: LockCounts,
    /// Exclusive.
    pub exclusive: LockCounts,
}

struct Waiter {
    number: u64,
    waker: Waker,
}

#[derive(Default)]
struct State {
    last_number: u64,
    readers: usize,
    writer: bool,
    readers_waiting: VecDeque<Waiter>,
    writers_waiting: VecDeque<Waiter>,
    /// Waiters that hold it and have not seen that yet.
    handed: Vec<u64>,
    shared: LockCounts,
    exclusive: LockCounts,
}

impl State {
    fn counts(&mut self, mode: LockMode) -> &mut LockCounts {
        match mode {
            LockMode::Shared => &mut self.shared,
            LockMode::Exclusive => &mut self.exclusive,
        }
    }

    fn queue(&mut self, mode: LockMode) -> &mut VecDeque<Waiter> {
        match mode {
            LockMode::Shared => &mut self.readers_waiting,
            LockMode::Exclusive => &mut self.writers_waiting,
        }
    }

    fn take(&mut self, mode: LockMode) -> bool {
        let free = match mode {
            LockMode::Shared => !self.writer && self.writers_waiting.is_empty(),
            LockMode::Exclusive => !self.writer && self.readers == 0,
        };
        if free {
            match mode {
                LockMode::Shared => self.readers += 1,
                LockMode::Exclusive => self.writer = true,
            }
            self.counts(mode).acquired += 1;
        }
        free
    }

    /// Passes a free lock to waiters; returns the wakers to call.
    fn hand_over(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        if self.writer || self.readers > 0 && !self.writers_waiting.is_empty() {
            return woken;
        }
        if let Some(writer) = self.writers_waiting.pop_front() {
            self.writer = true;
            self.exclusive.acquired += 1;
            self.handed.push(writer.number);
            woken.push(writer.waker);
            return woken;
        }
        while let Some(reader) = self.readers_waiting.pop_front() {
            self.readers += 1;
            self.shared.acquired += 1;
            self.handed.push(reader.number);
            woken.push(reader.waker);
        }
        woken
    }

    fn give_back(&mut self, mode: LockMode) -> Vec<Waker> {
        match mode {
            LockMode::Shared => self.readers = self.readers.saturating_sub(1),
            LockMode::Exclusive => self.writer = false,
        }
        self.hand_over()
    }
}

/// See the module's head.
#[derive(Default)]
pub struct RwLock(Mutex<State>);

impl RwLock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if that needs no wait.
    pub fn try_acquire(self: &Arc<Self>, mode: LockMode) -> Option<LockGuard> {
        let taken = self.state().take(mode);
        taken.then(|| LockGuard { lock: self.clone(), mode })
    }

    /// Takes the lock, waiting for it if need be.
    pub fn acquire(self: &Arc<Self>, mode: LockMode) -> Acquire {
        Acquire { lock: self.clone(), mode, number: None }
    }

    /// Adds a wait to the figures.
    pub fn note_wait(&self, mode: LockMode, time: Duration) {
        let mut state = self.state();
        let counts = state.counts(mode);
        counts.waited += 1;
        counts.waiting += time;
    }

    /// Current state and totals.
    pub fn stats(&self) -> LockStats {
        let state = self.state();
        LockStats {
            readers: state.readers,
            writer: state.writer,
            readers_waiting: state.readers_waiting.len(),
            writers_waiting: state.writers_waiting.len(),
            shared: state.shared,
            exclusive: state.exclusive,
        }
    }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

/// The lock, held until this is dropped.
pub struct LockGuard {
    lock: Arc<RwLock>,
    mode: LockMode,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let woken = self.lock.state().give_back(self.mode);
        wake(woken);
    }
}

/// A wait for the lock.
pub struct Acquire {
    lock: Arc<RwLock>,
    mode: LockMode,
    /// This waiter's number in the queue.
    number: Option<u64>,
}

impl Future for Acquire {
    type Output = LockGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LockGuard> {
        let lock = self.lock.clone();
        let mut state = lock.state();
        let mode = self.mode;
        match self.number {
            None if state.take(mode) => {}
            None => {
                state.last_number += 1;
                let number = state.last_number;
                state.queue(mode).push_back(Waiter { number, waker: cx.waker().clone() });
                drop(state);
                self.number = Some(number);
                return Poll::Pending;
            }
            Some(number) => {
                let Some(place) = state.handed.iter().position(|handed| *handed == number) else {
                    if let Some(own) = state.queue(mode).iter_mut().find(|w| w.number == number) {
                        own.waker.clone_from(cx.waker());
                    }
                    return Poll::Pending;
                };
                state.handed.swap_remove(place);
                self.number = None;
            }
        }
        drop(state);
        Poll::Ready(LockGuard { lock, mode })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mode = self.mode;
        let mut state = self.lock.state();
        let woken = match state.handed.iter().position(|handed| *handed == number) {
            Some(place) => {
                state.handed.swap_remove(place);
                state.give_back(mode)
            }
            None => {
                state.queue(mode).retain(|waiter| waiter.number != number);
                // Readers that waited only because a writer did.
                state.hand_over()
            }
        };
        drop(state);
        wake(woken);
    }
}

/// The locks that an operation holds, in the order in which they are taken.
pub struct OperationLock {
    wanted: Vec<(Arc<RwLock>, LockMode)>,
    held: Vec<LockGuard>,
    yields: bool,
}

impl OperationLock {
    /// Locks to be taken in this order. `yields`: they are released while the operation waits for data or yields,
    /// and taken again afterwards.
    pub fn new(wanted: Vec<(Arc<RwLock>, LockMode)>, yields: bool) -> Self {
        OperationLock { wanted, held: Vec::new(), yields }
    }

    /// Whether it gives way while the operation waits.
    pub fn yields(&self) -> bool {
        self.yields
    }

    /// Whether it is held.
    pub fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes what can be had without a wait: all or nothing.
    pub fn try_take(&mut self) -> bool {
        for (lock, mode) in &self.wanted {
            match lock.try_acquire(*mode) {
                Some(guard) => self.held.push(guard),
                None => {
                    self.release();
                    return false;
                }
            }
        }
        true
    }

    /// Takes all locks. `now` is the clock for the figures.
    pub async fn take(&mut self, now: impl Fn() -> Duration) {
        for (lock, mode) in &self.wanted {
            let guard = match lock.try_acquire(*mode) {
                Some(guard) => guard,
                None => {
                    let began = now();
                    let guard = lock.acquire(*mode).await;
                    lock.note_wait(*mode, now().saturating_sub(began));
                    guard
                }
            };
            self.held.push(guard);
        }
    }

    /// Gives all of it up, the last one first.
    pub fn release(&mut self) {
        while self.held.pop().is_some() {}
    }
}

impl Drop for OperationLock {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::LockMode::{Exclusive, Shared};
    use super::*;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(Mutex<u32>);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    struct Asking {
        wait: Pin<Box<Acquire>>,
        woken: Arc<Count>,
    }

    impl Asking {
        fn new(lock: &Arc<RwLock>, mode: LockMode) -> Asking {
            Asking { wait: Box::pin(lock.acquire(mode)), woken: Arc::default() }
        }

        fn poll(&mut self) -> Option<LockGuard> {
            let waker = Waker::from(self.woken.clone());
            match self.wait.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(guard) => Some(guard),
                Poll::Pending => None,
            }
        }

        fn was_woken(&self) -> bool {
            *self.woken.0.lock().unwrap() > 0
        }
    }

    #[test]
    fn a_waiting_writer_blocks_new_readers_and_goes_first() {
        let lock = Arc::new(RwLock::default());
        let first = lock.try_acquire(Shared).unwrap();
        let second = lock.try_acquire(Shared).unwrap();
        let mut writer = Asking::new(&lock, Exclusive);
        assert!(writer.poll().is_none());
        let mut reader = Asking::new(&lock, Shared);
        assert!(reader.poll().is_none() && lock.try_acquire(Shared).is_none());
        let mut later = Asking::new(&lock, Exclusive);
        assert!(later.poll().is_none());
        drop(first);
        assert!(!writer.was_woken());
        drop(second);
        assert!(writer.was_woken() && !reader.was_woken());
        let held = writer.poll().unwrap();
        assert!(lock.stats().writer && lock.try_acquire(Shared).is_none());
        drop(held);
        // The writer that came after the reader.
        assert!(later.was_woken() && !reader.was_woken());
        drop(later.poll().unwrap());
        let held = reader.poll().unwrap();
        assert_eq!((lock.stats().readers, lock.stats().exclusive.acquired), (1, 2));
        drop(held);
        assert!(lock.try_acquire(Exclusive).is_some());
    }

    #[test]
    fn a_dropped_waiter_blocks_no_other_waiter() {
        let lock = Arc::new(RwLock::default());
        let held = lock.try_acquire(Shared).unwrap();
        let mut writer = Asking::new(&lock, Exclusive);
        let mut reader = Asking::new(&lock, Shared);
        assert!(writer.poll().is_none() && reader.poll().is_none());
        // While it waits.
        drop(writer);
        assert!(reader.was_woken());
        let mut writer = Asking::new(&lock, Exclusive);
        assert!(writer.poll().is_none());
        drop((held, reader.poll().unwrap()));
        // When it was handed the lock and has not looked yet.
        assert!(writer.was_woken() && lock.stats().writer);
        drop(writer);
        assert_eq!(lock.stats().writers_waiting, 0);
        assert!(lock.try_acquire(Exclusive).is_some());
    }

    #[test]
    fn an_operation_takes_all_its_locks_and_counts_waits() {
        let (outer, inner) = (Arc::new(RwLock::default()), Arc::new(RwLock::default()));
        let wanted = vec![(outer.clone(), Shared), (inner.clone(), Exclusive)];
        let mut operation = OperationLock::new(wanted, true);
        let busy = inner.try_acquire(Shared).unwrap();
        assert!(!operation.try_take() && !operation.is_held());
        assert_eq!(outer.stats().readers, 0);
        let release = Arc::new(Mutex::new(Some(busy)));
        let told = release.clone();
        // The clock is asked when the wait begins and ends: the first time lets it end.
        let ticks = Mutex::new(Duration::ZERO);
        crate::operation::block_on(operation.take(|| {
            drop(told.lock().unwrap().take());
            let mut ticks = ticks.lock().unwrap();
            *ticks += Duration::from_micros(5);
            *ticks
        }));
        assert!(operation.is_held() && inner.stats().writer && outer.stats().readers == 1);
        let counts = inner.stats().exclusive;
        assert_eq!((counts.acquired, counts.waited), (1, 1));
        assert_eq!(counts.waiting, Duration::from_micros(5));
        operation.release();
        assert!(!inner.stats().writer && outer.stats().readers == 0);
    }
}
