//! The atomics and locks of `epoch` and the block states. A model checker's test compiles those sources with its
//! own module of this name.

use kauri_base::sync::PoisonError;
pub(crate) use kauri_base::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
pub(crate) use kauri_base::sync::{Mutex, MutexGuard};

/// A lock whose holder panicked is as good as any: what it guards is kept consistent by the order of
/// writes, not by unwinding.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
