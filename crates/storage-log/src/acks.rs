//! Acknowledgements: which commits are written and durable, and the tickets that wait for them.
//!
//! A ticket's number is its commit sequence, with [`DURABLE`] set if the ticket waits for durability. Invariant:
//! `stored`, `written` and `durable` only grow, and never pass the true state. After a failure they stand still,
//! and every unresolved ticket returns the failure.

use crate::lock;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use kauri_base::log::{self, Attr, Severity};
use kauri_base::ticket::TicketSource;
use kauri_base::waiters::ByNumber;
use kauri_base::{CommitSeq, Error, ErrorCode, Ticket};
use kauri_storage::{CommitTicket, StorageError};
use std::task::{Poll, Waker};
use std::time::Duration;

const DURABLE: u64 = 1 << 63;

/// Who gives commits to the kernel and makes them durable, for a thread that blocks on a ticket.
pub trait Flush: Send + Sync {
    /// Gives everything that is visible to the kernel. A failure is kept by [`Acks::fail`].
    fn make_written(&self);

    /// Makes everything up to this commit durable; the same.
    fn make_durable(&self, seq: u64);
}

/// Why nothing more is acknowledged.
pub enum End {
    /// The medium failed, or the engine is closed.
    Failed(String),
    /// The member was deposed, and units that it had applied are cut off: it begins again.
    CutOff,
}

impl End {
    fn error(&self) -> StorageError {
        match self {
            End::Failed(message) => StorageError::Io(message.clone()),
            End::CutOff => StorageError::NotPrimary,
        }
    }
}

/// See the module's head.
pub struct Acks {
    flush: Weak<dyn Flush>,
    stored: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    failure: OnceLock<End>,
    waiters: Mutex<Waiters>,
    /// Whether there may be any.
    waiting: AtomicBool,
    wake: Mutex<bool>,
    woken: Condvar,
    /// Whether a thread is there that syncs when it is woken.
    flusher_runs: AtomicBool,
}

#[derive(Default)]
struct Waiters {
    written: ByNumber,
    durable: ByNumber,
    /// Number of these waiters at which the flusher is woken.
    gathering: usize,
    /// Number of these waiters when durability was last reached.
    under_way: usize,
}

impl Acks {
    /// Everything up to `seq` is durable.
    pub fn new(flush: Weak<dyn Flush>, seq: u64) -> Arc<Self> {
        Arc::new(Acks {
            flush,
            stored: AtomicU64::new(seq),
            written: AtomicU64::new(seq),
            durable: AtomicU64::new(seq),
            failure: OnceLock::new(),
            waiters: Mutex::default(),
            waiting: AtomicBool::new(false),
            wake: Mutex::new(false),
            woken: Condvar::new(),
            flusher_runs: AtomicBool::new(false),
        })
    }

    /// The tickets of a commit.
    pub fn tickets(self: &Arc<Self>, seq: u64) -> CommitTicket {
        let ticket = |number| {
            let source: Arc<dyn TicketSource> = self.clone();
            Some(Ticket::new(source, number))
        };
        let written = if self.written() >= seq { None } else { ticket(seq) };
        let durable = if self.durable() >= seq { None } else { ticket(seq | DURABLE) };
        CommitTicket::new(CommitSeq(seq), written, durable)
    }

    /// Everything up to this commit is with the kernel, whether it may be acknowledged already or not.
    #[inline]
    pub fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// Everything up to this commit is with the kernel and may be acknowledged.
    #[inline]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Everything up to this commit is durable.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Why nothing more is acknowledged, if that is so.
    #[inline]
    pub fn failure(&self) -> Option<&End> {
        self.failure.get()
    }

    /// Notes that everything up to `seq` is with the kernel.
    pub fn set_stored(&self, seq: u64) {
        self.stored.fetch_max(seq, Ordering::AcqRel);
    }

    /// Everything up to `seq`, and nothing more, is with the kernel and durable: what was behind it, all of it durable,
    /// has been cut off. No other thread raises the marks meanwhile.
    pub fn cut(&self, seq: u64) {
        let waiters = lock(&self.waiters);
        for mark in [&self.stored, &self.written, &self.durable] {
            mark.store(seq, Ordering::Release);
        }
        drop(waiters);
    }

    /// Notes that everything that is with the kernel may be acknowledged.
    fn set_stored_written(&self) {
        let wakers = {
            // With the lock: what is stored does not become less meanwhile.
            let mut waiters = lock(&self.waiters);
            let seq = self.stored();
            self.written.fetch_max(seq, Ordering::AcqRel);
            waiters.written.take_reached(seq)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notes that everything up to `seq` may be acknowledged as written.
    pub fn set_written(&self, seq: u64) {
        if self.written.fetch_max(seq, Ordering::AcqRel) < seq {
            let wakers = lock(&self.waiters).written.take_reached(seq);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Notes that everything up to `seq` is durable.
    pub fn set_durable(&self, seq: u64) {
        if self.durable.fetch_max(seq, Ordering::AcqRel) < seq {
            let wakers = {
                let mut waiters = lock(&self.waiters);
                waiters.under_way = waiters.durable.len();
                waiters.durable.take_reached(seq)
            };
            wakers.into_iter().for_each(Waker::wake);
            self.set_written(seq);
        }
    }

    /// Records that everything up to `seq` is durable and may be acknowledged. The thread that assigns commit
    /// sequences calls this, in their order: other callers that raise a mark know no higher number.
    #[inline]
    pub fn reach(&self, seq: u64) {
        self.stored.store(seq, Ordering::Release);
        self.written.store(seq, Ordering::Release);
        self.durable.store(seq, Ordering::Release);
        // Either who is about to wait sees the marks, or this sees that somebody waits.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) {
            self.wake_reached(seq);
        }
    }

    #[cold]
    fn wake_reached(&self, seq: u64) {
        let mut waiters = lock(&self.waiters);
        let mut wakers = waiters.written.take_reached(seq);
        wakers.extend(waiters.durable.take_reached(seq));
        let some = !waiters.written.is_empty() || !waiters.durable.is_empty();
        self.waiting.store(some, Ordering::Relaxed);
        drop(waiters);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Fails if nothing more may be acknowledged.
    #[inline]
    pub fn check_alive(&self) -> Result<(), StorageError> {
        self.failure().map_or(Ok(()), |end| Err(end.error()))
    }

    /// The medium failed: nothing more is acknowledged. Answers the error to give.
    pub fn fail(&self, what: &str, error: impl std::fmt::Display) -> StorageError {
        let message = format!("{what}: {error}");
        if self.end(End::Failed(message.clone())) {
            log::line(
                Severity::Fatal,
                "STORAGE",
                6_200_001,
                "pmlog",
                "Cannot write the log; no further writes are accepted. Check the disk, then restart",
                Attr::new().str("error", &message),
            );
        }
        StorageError::Io(message)
    }

    /// Nothing more is acknowledged. Answers whether this is the first reason.
    pub fn end(&self, why: End) -> bool {
        let first = self.failure.set(why).is_ok();
        let wakers = {
            let mut waiters = lock(&self.waiters);
            waiters.written.take_all().chain(waiters.durable.take_all())
        };
        wakers.for_each(Waker::wake);
        first
    }

    /// Whether any ticket waits for durability.
    pub fn is_durability_wanted(&self) -> bool {
        !lock(&self.waiters).durable.is_empty()
    }

    /// Sets whether a thread exists that syncs when it is woken. A thread that clears this syncs once more
    /// afterwards, for waiters that relied on it.
    pub fn set_flusher_runs(&self, runs: bool) {
        self.flusher_runs.store(runs, Ordering::SeqCst);
    }

    /// Whether the flusher's thread is there.
    pub fn flusher_runs(&self) -> bool {
        self.flusher_runs.load(Ordering::SeqCst)
    }

    /// Wakes the flusher.
    pub fn wake_flusher(&self) {
        let mut wake = lock(&self.wake);
        if !*wake {
            *wake = true;
            self.woken.notify_one();
        }
    }

    /// Number of waiters for durability when it was last reached.
    pub fn under_way(&self) -> usize {
        lock(&self.waiters).under_way
    }

    /// The flusher waits until `count` tickets wait for durability, or until the timeout. Returns whether they do.
    pub fn gather(&self, count: usize, timeout: Duration) -> bool {
        {
            let mut waiters = lock(&self.waiters);
            if waiters.durable.len() >= count {
                return true;
            }
            waiters.gathering = count;
            // What it says, the flusher is about to do.
            *lock(&self.wake) = false;
        }
        self.wait_for_wake(timeout);
        let mut waiters = lock(&self.waiters);
        waiters.gathering = 0;
        waiters.durable.len() >= count
    }

    /// The flusher waits until it is woken or the time has passed.
    pub fn wait_for_wake(&self, timeout: Duration) {
        let mut wake = lock(&self.wake);
        if !*wake {
            let waited = self.woken.wait_timeout(wake, timeout);
            wake = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *wake = false;
    }

    fn reached(&self, number: u64) -> Option<kauri_base::Result<()>> {
        let seq = number & !DURABLE;
        // Before the marks: what was reached before the failure is reached.
        let failure = self.failure();
        let up_to = if number & DURABLE != 0 { self.durable() } else { self.written() };
        if up_to >= seq {
            return Some(Ok(()));
        }
        failure.map(|end| {
            Err(match end {
                End::Failed(message) => Error::new(ErrorCode::InternalError, message.clone()),
                End::CutOff => StorageError::NotPrimary.into(),
            })
        })
    }
}

impl TicketSource for Acks {
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<kauri_base::Result<()>> {
        if let Some(result) = self.reached(number) {
            return Poll::Ready(result);
        }
        let durable = number & DURABLE != 0;
        let mut waiters = lock(&self.waiters);
        self.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Again under the lock: whoever raises the mark takes the lock afterwards, or sees nobody waiting
        // and has raised it before.
        if let Some(result) = self.reached(number) {
            return Poll::Ready(result);
        }
        let list = if durable { &mut waiters.durable } else { &mut waiters.written };
        list.add(number & !DURABLE, waker);
        // Under the lock, so that who gathers isn't woken by what came before.
        if durable && waiters.durable.len() >= waiters.gathering {
            self.wake_flusher();
        }
        drop(waiters);
        Poll::Pending
    }

    fn before_blocking(&self, number: u64) {
        let Some(flush) = self.flush.upgrade() else { return };
        // A failure is what the ticket answers then.
        if number & DURABLE != 0 {
            if self.flusher_runs() {
                return;
            }
            flush.make_durable(number & !DURABLE);
        } else {
            flush.make_written();
            // A thread that blocks holds up more than the throttle would.
            self.set_stored_written();
        }
    }
}
