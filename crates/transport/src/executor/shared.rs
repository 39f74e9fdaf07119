//! The part of a worker that other threads may use: its mailbox, its timers, its counters.

use super::local::{Local, LocalFuture};
use super::slab::Key;
use super::timer::Timers;
use crate::arrivals::Arrivals;
use crate::stats::WorkerStats;
use crate::sys::EventFd;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Creates a task on the worker's own thread, so that it need not be `Send`.
pub(crate) type Start = Box<dyn FnOnce(&Rc<Local>) -> Option<LocalFuture> + Send>;

/// Requests of other threads to a worker.
#[derive(Default)]
pub(crate) struct Mail {
    pub wakes: Vec<Key>,
    pub starts: Vec<Start>,
}

pub(crate) struct WorkerShared {
    /// Its number within the executor.
    pub id: usize,
    mail: Mutex<Mail>,
    /// There is mail, a nearer timer or the order to stop: don't sleep.
    attention: AtomicBool,
    /// The worker is in epoll_wait, or about to be, with a time-out.
    asleep: AtomicBool,
    pub event: EventFd,
    timers: Mutex<Timers>,
    next_deadline_ns: AtomicU64,
    pub tick_end_wanted: AtomicBool,
    pub stop: AtomicBool,
    /// Sessions that live here, for choosing the worker of a new one.
    pub sessions: AtomicUsize,
    /// It is pinned to its own core.
    pub stays: AtomicBool,
    /// It is blocked in a task (`watch`).
    pub held: AtomicBool,
    pub stats: WorkerStats,
    /// Memory of large messages, shared by all workers.
    pub arrivals: Arc<Arrivals>,
}

impl WorkerShared {
    #[cfg(test)]
    pub fn new(id: usize) -> io::Result<Self> {
        Self::with_arrivals(id, Arc::default())
    }

    pub fn with_arrivals(id: usize, arrivals: Arc<Arrivals>) -> io::Result<Self> {
        Ok(WorkerShared {
            id,
            mail: Mutex::default(),
            attention: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            event: EventFd::new()?,
            timers: Mutex::default(),
            next_deadline_ns: AtomicU64::new(u64::MAX),
            tick_end_wanted: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            stays: AtomicBool::new(false),
            held: AtomicBool::new(false),
            stats: WorkerStats::new(),
            arrivals,
        })
    }

    fn lock_mail(&self) -> std::sync::MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes one of this worker's tasks from another thread.
    pub fn post_wake(&self, task: Key) {
        self.lock_mail().wakes.push(task);
        self.call();
    }

    /// Has the worker start a task. Without a worker any more, the task never starts.
    pub fn post_start(&self, start: Start) {
        let mut mail = self.lock_mail();
        if self.stop.load(Ordering::Acquire) {
            // Not under the lock: what it holds may want to tell somebody.
            drop(mail);
            return drop(start);
        }
        mail.starts.push(start);
        drop(mail);
        self.call();
    }

    /// The worker ends: the last requests, after which none are accepted.
    pub fn take_last_mail(&self) -> Mail {
        let mut mail = self.lock_mail();
        self.stop.store(true, Ordering::Release);
        std::mem::take(&mut *mail)
    }

    /// Makes the worker check its mail, timers and orders soon.
    ///
    /// Either the worker sees `attention` before it sleeps, or this thread sees that it is asleep: both sides write
    /// one flag and read the other, in one total order. The eventfd costs a system call only if the worker sleeps.
    pub fn call(&self) {
        self.attention.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.event.signal();
        }
    }

    /// Announces that the worker is going to sleep. False: there is work.
    pub fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.attention.load(Ordering::SeqCst) {
            self.wake_up();
            return false;
        }
        true
    }

    /// Whether it sleeps, or is about to.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    pub fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Whether there was a call; for a worker that polls instead of sleeping.
    pub fn is_called(&self) -> bool {
        self.attention.load(Ordering::Relaxed)
    }

    /// The requests since the last call.
    pub fn take_mail(&self) -> Mail {
        // Cleared before the mail is taken: mail that comes in between is seen now, and once more.
        if self.is_called() && self.attention.swap(false, Ordering::SeqCst) {
            return std::mem::take(&mut *self.lock_mail());
        }
        Mail::default()
    }

    pub fn next_deadline_ns(&self) -> u64 {
        self.next_deadline_ns.load(Ordering::Relaxed)
    }

    /// Changes the timers, and wakes the worker if its next deadline came nearer.
    pub fn with_timers<R>(&self, change: impl FnOnce(&mut Timers) -> R) -> R {
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        let before_ns = timers.next_deadline_ns();
        let result = change(&mut timers);
        let after_ns = timers.next_deadline_ns();
        self.next_deadline_ns.store(after_ns, Ordering::Relaxed);
        drop(timers);
        if after_ns < before_ns && !Local::is_current(self) {
            self.call();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_comes_after_the_last_mail_is_dropped() {
        let worker = WorkerShared::new(0).unwrap();
        let held = Arc::new(());
        let start = |held: Arc<()>| -> Start {
            Box::new(move |_| {
                drop(held);
                None
            })
        };
        worker.post_start(start(Arc::clone(&held)));
        assert_eq!(worker.take_last_mail().starts.len(), 1);
        assert_eq!(Arc::strong_count(&held), 1);
        worker.post_start(start(Arc::clone(&held)));
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
