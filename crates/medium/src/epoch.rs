//! Epochs: when has the last reader of an object finished?
//!
//! A reader owns a [`Guard`] and *enters* before it reads shared memory; it *leaves* when it holds no reference any
//! more. A thread that removes an object first makes it unreachable (or marks it), then
//! [defers](EpochDomain::defer) the destruction. The deferred closure runs after every guard that had entered
//! before has left.
//!
//! Invariants:
//! - Entering and leaving never wait and never take a lock. A guard that stays entered for long only delays
//!   reclamation.
//! - Deferred closures run one at a time, in the order in which they were deferred.
//! - No closure runs on a thread that enters or leaves. [`EpochDomain::collect`] runs them: a cache's thread calls
//!   it, or, without one, `defer` from time to time.
//!
//! Correctness. Let `T` be the tag of a closure: the domain's epoch when it was deferred. A closure runs after a
//! scan that began after the epoch had grown beyond `T`, and that found no slot with an epoch of `T` or less.
//! - A reader whose slot the scan saw with a larger epoch has read that epoch (acquire) from an increment that came
//!   after the deferral under the queue's lock, so it saw the unlinking, too.
//! - A reader whose slot the scan saw empty, and that enters meanwhile: its fence (between its slot's store and its
//!   first read) comes after the scan's fence in the order of all SeqCst fences, else the scan would have seen the
//!   store. So it sees everything before the scan's fence, including the unlinking.
//! - A reader that had entered before and has left: its leaving store (release) was read by the scan (acquire), so
//!   its last read happened before the closure.

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence, lock};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex as StdMutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A slot of a guard that hasn't entered.
const OUTSIDE: u64 = 0;
/// How many deferrals pass before somebody is asked to collect.
const DEFERRALS_PER_COLLECT: usize = 64;
/// Waiting closures beyond which whoever defers more collects, even if a thread is there for it.
const BACKLOG_MAX: usize = 1 << 16;

/// On a cache line of its own: written by one reader, read by scans.
#[repr(align(64))]
struct Slot {
    /// [`OUTSIDE`], or the domain's epoch that the reader saw when it entered.
    entered: AtomicU64,
    /// Reads answered from memory under this guard: written by its owner only.
    hits: AtomicU64,
}

type Deferred = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    /// Tags never decrease from front to back.
    items: VecDeque<(u64, Deferred)>,
    deferrals: usize,
}

/// A family of guards, and of the closures that wait for them. One for an engine and its cache.
pub struct EpochDomain {
    epoch: AtomicU64,
    slots: Mutex<Slots>,
    queue: Mutex<Queue>,
    /// Held while deferred closures run, so that they run one at a time.
    collector: Mutex<()>,
    /// Threads that collect when they are unparked.
    collectors: Mutex<Vec<Thread>>,
}

#[derive(Default)]
struct Slots {
    /// Every slot that was ever made: as many as there were guards at once.
    all: Vec<Arc<Slot>>,
    /// Those of dropped guards, for the next ones.
    free: Vec<Arc<Slot>>,
}

impl EpochDomain {
    /// A domain without guards.
    pub fn new() -> Arc<Self> {
        Arc::new(EpochDomain {
            epoch: AtomicU64::new(1),
            slots: Mutex::new(Slots::default()),
            queue: Mutex::new(Queue::default()),
            collector: Mutex::new(()),
            collectors: Mutex::new(Vec::new()),
        })
    }

    /// A guard that hasn't entered. Takes a lock: made once per recovery unit, not per read.
    pub fn register(self: &Arc<Self>) -> Guard {
        let mut slots = lock(&self.slots);
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = Slot { entered: AtomicU64::new(OUTSIDE), hits: AtomicU64::new(0) };
                let slot = Arc::new(slot);
                slots.all.push(Arc::clone(&slot));
                slot
            }
        };
        drop(slots);
        Guard { domain: Arc::clone(self), slot, entered: false }
    }

    /// Runs `closure` when every guard that is inside now has left. It must not wait for a guard, nor
    /// own the last reference to this domain.
    pub fn defer(&self, closure: Box<dyn FnOnce() + Send>) {
        let (ask, backlog) = {
            let mut queue = lock(&self.queue);
            let tag = self.epoch.load(Ordering::Relaxed);
            queue.items.push_back((tag, closure));
            queue.deferrals += 1;
            (queue.deferrals.is_multiple_of(DEFERRALS_PER_COLLECT), queue.items.len())
        };
        if ask {
            match lock(&self.collectors).first() {
                Some(thread) if backlog < BACKLOG_MAX => return thread.unpark(),
                _ => {}
            }
            self.collect();
        }
    }

    /// This thread collects from now on whenever it is unparked, and at least now and then.
    pub(crate) fn add_collector(&self, thread: Thread) {
        lock(&self.collectors).push(thread);
    }

    /// It doesn't any more.
    pub(crate) fn remove_collector(&self, thread: &Thread) {
        lock(&self.collectors).retain(|other| other.id() != thread.id());
    }

    /// Deferred closures that have not run.
    pub fn pending(&self) -> usize {
        lock(&self.queue).items.len()
    }

    /// Runs the closures whose guards have all left; answers how many. If another thread is at it,
    /// none.
    pub fn collect(&self) -> usize {
        let Some(_collecting) = try_lock(&self.collector) else { return 0 };
        // Only what was deferred before the scan may be judged by it: its tags are below `now`.
        let now = {
            let queue = lock(&self.queue);
            let epoch = self.epoch.load(Ordering::Relaxed);
            match queue.items.back() {
                None => return 0,
                Some((tag, _)) if *tag == epoch => {
                    // Release: whoever enters with the new epoch sees what was unlinked before.
                    self.epoch.store(epoch + 1, Ordering::Release);
                    epoch + 1
                }
                Some(_) => epoch,
            }
        };
        let oldest = self.oldest_entered().min(now);
        let mut count = 0;
        while let Some(closure) = self.pop_older_than(oldest) {
            closure();
            count += 1;
        }
        count
    }

    fn pop_older_than(&self, oldest: u64) -> Option<Deferred> {
        let mut queue = lock(&self.queue);
        match queue.items.front() {
            Some((tag, _)) if *tag < oldest => queue.items.pop_front().map(|(_, closure)| closure),
            _ => None,
        }
    }

    /// The smallest epoch that a guard inside has; beyond all if there is none.
    fn oldest_entered(&self) -> u64 {
        fence(Ordering::SeqCst);
        let slots = lock(&self.slots);
        slots
            .all
            .iter()
            .map(|slot| slot.entered.load(Ordering::Acquire))
            .filter(|epoch| *epoch != OUTSIDE)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Reads that were answered from memory, under all guards that ever were.
    pub fn hits(&self) -> u64 {
        lock(&self.slots).all.iter().map(|slot| slot.hits.load(Ordering::Relaxed)).sum()
    }

    /// Waits until every guard that is inside now has left, or until the time is over (false). Never
    /// to be called by a thread whose own guard is inside: it would wait for itself.
    pub fn wait_quiescent(&self, timeout: Duration) -> bool {
        let left = Arc::new((StdMutex::new(false), Condvar::new()));
        let signal = Arc::clone(&left);
        self.defer(Box::new(move || {
            *signal.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            signal.1.notify_all();
        }));
        let start = Instant::now();
        loop {
            self.collect();
            let done = left.0.lock().unwrap_or_else(PoisonError::into_inner);
            if *done || start.elapsed() >= timeout {
                return *done;
            }
            // Leaving wakes nobody, so that it stays cheap: look again soon.
            let _ = left.1.wait_timeout(done, Duration::from_micros(200));
        }
    }
}

impl Drop for EpochDomain {
    fn drop(&mut self) {
        // No guard is left: each holds the domain.
        while let Some(closure) = self.pop_older_than(u64::MAX) {
            closure();
        }
    }
}

fn try_lock(mutex: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    use std::sync::TryLockError;
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A reader's place in the domain. May be sent to another thread. Memory that was read under it
/// borrows it, so it can neither leave nor be dropped while that memory is looked at.
pub struct Guard {
    domain: Arc<EpochDomain>,
    slot: Arc<Slot>,
    entered: bool,
}

impl Guard {
    /// From now on nothing that can be reached is taken away. Inside already: nothing happens, the
    /// older entry counts.
    #[inline]
    pub fn enter(&mut self) {
        if self.entered {
            return;
        }
        let epoch = self.domain.epoch.load(Ordering::Acquire);
        // Release: a scan that reads this store has everything that was read under earlier entries
        // behind it.
        self.slot.entered.store(epoch, Ordering::Release);
        fence(Ordering::SeqCst);
        self.entered = true;
    }

    /// Nothing that was read under this guard is looked at any more.
    #[inline]
    pub fn leave(&mut self) {
        if self.entered {
            self.entered = false;
            self.slot.entered.store(OUTSIDE, Ordering::Release);
        }
    }

    /// Whether it is inside.
    #[inline]
    pub fn is_entered(&self) -> bool {
        self.entered
    }

    /// The domain that it belongs to.
    pub fn domain(&self) -> &Arc<EpochDomain> {
        &self.domain
    }

    /// Whether reading under it is protected from the reclamation of `domain`.
    #[inline]
    pub(crate) fn protects(&self, domain: &Arc<EpochDomain>) -> bool {
        self.entered && Arc::ptr_eq(&self.domain, domain)
    }

    #[inline]
    pub(crate) fn count_hit(&self) {
        let hits = self.slot.hits.load(Ordering::Relaxed);
        self.slot.hits.store(hits + 1, Ordering::Relaxed);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.leave();
        lock(&self.domain.slots).free.push(Arc::clone(&self.slot));
    }
}
