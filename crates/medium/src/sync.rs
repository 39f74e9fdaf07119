//! The atomics that [`crate::epoch`] and the block states are written with. A model checker's test
//! compiles those sources against its own module of this name.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

/// A lock whose holder panicked is as good as any: what it guards is kept consistent by order of
/// writes, not by unwinding.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
