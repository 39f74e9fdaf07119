//! The locks, atomics and threads of the storage layers.
//!
//! They are the standard library's. With the feature `shuttle`, which only tests enable, they are those of a
//! scheduler that runs one thread of a test at a time and picks the next thread at each of these operations
//! (`crates/storage-log/tests/shuttle`). A lock that is never held during a wait may be the standard library's.

#[cfg(feature = "shuttle")]
pub use shuttle;
#[cfg(feature = "shuttle")]
use shuttle as runtime;
#[cfg(not(feature = "shuttle"))]
use std as runtime;

pub use runtime::{
    hint,
    sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
        atomic,
    },
    thread,
};

use std::time::Duration;

/// Waits to be notified, or until the time has passed; `guard` is of `mutex`.
#[cfg(not(feature = "shuttle"))]
pub fn wait_timeout<'m, T>(
    condition: &Condvar,
    _mutex: &'m Mutex<T>,
    guard: MutexGuard<'m, T>,
    timeout: Duration,
) -> MutexGuard<'m, T> {
    condition.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}

/// Under a scheduler that runs one thread at a time, any time may pass while other threads run.
#[cfg(feature = "shuttle")]
pub fn wait_timeout<'m, T>(
    _condition: &Condvar,
    mutex: &'m Mutex<T>,
    guard: MutexGuard<'m, T>,
    _timeout: Duration,
) -> MutexGuard<'m, T> {
    drop(guard);
    thread::yield_now();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub use std::sync::{Arc, LockResult, OnceLock, PoisonError, TryLockError, Weak};
