//! What can be known and changed from outside while an operation runs.

use crate::clock::Clock;
use crate::codes::ErrorCode;
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// The state of a running operation that other threads may read and change.
#[derive(Debug)]
pub struct OperationState {
    /// `opid`.
    pub id: u64,
    /// The code that it was killed with; 0 while it may run.
    killed: AtomicI32,
    /// When it has to have ended, in nanoseconds of the monotonic clock; `u64::MAX` for never.
    deadline_ns: AtomicU64,
    /// How often it let others run.
    yields: AtomicU64,
    /// Whether it waits for a lock (`lockGranularity`).
    #[cfg(feature = "lock-experiment")]
    pub(crate) waiting_for_lock: AtomicBool,
    /// Whether it has put something into temporary files.
    used_disk: AtomicBool,
    /// Woken when it is killed.
    waiting: Mutex<Option<Waker>>,
}

impl Default for OperationState {
    fn default() -> Self {
        Self::new(0)
    }
}

impl OperationState {
    /// A running operation without a deadline.
    pub fn new(id: u64) -> Self {
        OperationState {
            id,
            killed: AtomicI32::new(0),
            deadline_ns: AtomicU64::new(u64::MAX),
            yields: AtomicU64::new(0),
            #[cfg(feature = "lock-experiment")]
            waiting_for_lock: AtomicBool::new(false),
            used_disk: AtomicBool::new(false),
            waiting: Mutex::new(None),
        }
    }

    /// Asks it to end with this code at its next look.
    pub fn kill(&self, code: ErrorCode) {
        let _ = self.killed.compare_exchange(0, code.number(), Ordering::AcqRel, Ordering::Acquire);
        if let Some(waiting) = self.waiting().take() {
            waiting.wake();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was asked to end.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire) != 0
    }

    /// How often it let others run.
    pub fn yields(&self) -> u64 {
        self.yields.load(Ordering::Relaxed)
    }

    /// Notes that something went into temporary files (`usedDisk`).
    pub fn note_disk_use(&self) {
        self.used_disk.store(true, Ordering::Relaxed);
    }

    /// Whether something did.
    pub fn used_disk(&self) -> bool {
        self.used_disk.load(Ordering::Relaxed)
    }

    /// Counts that it let others run.
    pub(crate) fn note_yield(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets when it has to have ended, by the monotonic clock; `None` for never.
    pub(crate) fn set_deadline(&self, end: Option<Duration>) {
        let ns = end.and_then(|end| u64::try_from(end.as_nanos()).ok());
        self.deadline_ns.store(ns.unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Sets who is woken when it is killed.
    pub(crate) fn set_waiting(&self, waker: Option<Waker>) {
        *self.waiting() = waker;
    }

    /// The time left, if there is a deadline.
    pub fn time_left(&self, clock: &dyn Clock) -> Option<Duration> {
        match self.deadline_ns.load(Ordering::Acquire) {
            u64::MAX => None,
            ns => Some(Duration::from_nanos(ns).saturating_sub(clock.monotonic())),
        }
    }

    /// Fails if the operation was killed or is out of time.
    pub(crate) fn check(&self, clock: &dyn Clock) -> Result<()> {
        match self.killed.load(Ordering::Acquire) {
            0 => {}
            code => {
                let code = ErrorCode::from_number(code);
                return Err(Error::new(code, interrupt_message(code)));
            }
        }
        if self.time_left(clock) == Some(Duration::ZERO) {
            return Err(Error::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
        }
        Ok(())
    }
}

/// Says whether the client that waits for the answer is still there.
pub trait ClientPresence: Send + Sync {
    /// False once the connection has broken.
    fn is_connected(&self) -> bool;
}

fn interrupt_message(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InterruptedAtShutdown => "interrupted at shutdown",
        ErrorCode::CursorKilled => "cursor was killed",
        _ => "operation was interrupted",
    }
}
