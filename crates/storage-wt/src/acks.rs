//! Acknowledgements: which commits are written and durable, and the tickets that wait for them.
//!
//! A ticket's number is its commit sequence, with [`DURABLE`] set if the ticket waits for durability. The marks
//! only grow, and never pass the true state.

use crate::core::Core;
use kauri_base::ticket::TicketSource;
use kauri_base::{CommitSeq, Error, ErrorCode, Ticket};
use kauri_storage::CommitTicket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

const DURABLE: u64 = 1 << 63;

/// See the module's head.
pub struct Acks {
    core: Weak<Core>,
    written: AtomicU64,
    durable: AtomicU64,
    failure: OnceLock<String>,
    waiters: Mutex<Vec<(u64, Waker)>>,
    kick: Mutex<bool>,
    kicked: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Acks {
    /// Everything up to `seq` is durable.
    pub fn new(core: Weak<Core>, seq: u64) -> Arc<Self> {
        Arc::new(Acks {
            core,
            written: AtomicU64::new(seq),
            durable: AtomicU64::new(seq),
            failure: OnceLock::new(),
            waiters: Mutex::default(),
            kick: Mutex::new(false),
            kicked: Condvar::new(),
        })
    }

    /// The tickets of a commit.
    pub fn tickets(self: &Arc<Self>, seq: CommitSeq) -> CommitTicket {
        let ticket = |number: u64| {
            let source: Arc<dyn TicketSource> = self.clone();
            self.reached(number).is_none().then(|| Ticket::new(source, number))
        };
        CommitTicket::new(seq, ticket(seq.0), ticket(seq.0 | DURABLE))
    }

    /// Everything up to this commit is with the kernel.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Everything up to this commit is durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Notes that everything up to `seq` is with the kernel, or on the medium.
    pub fn reach(&self, seq: u64, durable: bool) {
        let mut grew = self.written.fetch_max(seq, Ordering::AcqRel) < seq;
        if durable {
            grew |= self.durable.fetch_max(seq, Ordering::AcqRel) < seq;
        }
        if grew {
            self.wake();
        }
    }

    /// Nothing more is acknowledged.
    pub fn fail(&self, message: &str) {
        let _ = self.failure.set(message.to_owned());
        self.wake();
    }

    fn wake(&self) {
        let mut wakers = Vec::new();
        lock(&self.waiters).retain(|(number, waker)| {
            let reached = self.reached(*number).is_some();
            if reached {
                wakers.push(waker.clone());
            }
            !reached
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the flusher.
    pub fn kick(&self) {
        let mut kick = lock(&self.kick);
        if !*kick {
            *kick = true;
            self.kicked.notify_one();
        }
    }

    /// The flusher waits until it is woken or the time has passed.
    pub fn wait_for_kick(&self, timeout: Duration) {
        let mut kick = lock(&self.kick);
        if !*kick {
            let waited = self.kicked.wait_timeout(kick, timeout);
            kick = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *kick = false;
    }

    fn reached(&self, number: u64) -> Option<kauri_base::Result<()>> {
        let up_to = if number & DURABLE != 0 { self.durable() } else { self.written() };
        if up_to >= number & !DURABLE {
            return Some(Ok(()));
        }
        let failed = |message: &String| Err(Error::new(ErrorCode::InternalError, message.clone()));
        self.failure.get().map(failed)
    }
}

impl TicketSource for Acks {
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<kauri_base::Result<()>> {
        if let Some(result) = self.reached(number) {
            return Poll::Ready(result);
        }
        let mut waiters = lock(&self.waiters);
        // Again under the lock: whoever raises the mark takes the lock afterwards.
        if let Some(result) = self.reached(number) {
            return Poll::Ready(result);
        }
        let known = waiters.iter().any(|(wanted, w)| *wanted == number && w.will_wake(waker));
        if !known {
            waiters.push((number, waker.clone()));
        }
        drop(waiters);
        if number & DURABLE != 0 {
            self.kick();
        }
        Poll::Pending
    }

    fn before_blocking(&self, number: u64) {
        let Some(core) = self.core.upgrade() else { return };
        // A failure is what the ticket answers then.
        let _ = core.flush_log(number & DURABLE != 0);
    }
}
