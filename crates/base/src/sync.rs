//! The locks, atomics and threads that the storage layers are written with.
//!
//! They are the standard library's. With the feature `shuttle`, which only tests switch on, they are those
//! of a scheduler that runs a test's threads one at a time and chooses at each of these operations who
//! goes on (`crates/storage-log/tests/shuttle`). What nobody waits for with one of these locks held
//! may as well be the standard library's own.

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

/// Where threads take turns any time may have passed as soon as others have run.
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
