//! Locks the files against changes, so that they can be copied one by one.
//!
//! Invariants:
//! - A thread that changes files without a commit (the preparer, the cleaner, a writer that needs a segment) enters
//!   first, and is refused while files are locked. It enters once, not again in nested calls.
//! - A commit checks [`Files::is_held`] with the head locked, before it appends. So after the thread that locks the
//!   files has held the head, nothing is appended; after its sync, the flusher has nothing to store.
//! - Reading changes no file. A sync without unsynced data changes no file, either.

use crate::lock;
use kauri_base::sync::atomic::{AtomicBool, Ordering};
use kauri_base::sync::{Condvar, Mutex, PoisonError};

/// See the module's head.
#[derive(Default)]
pub struct Files {
    state: Mutex<State>,
    /// Signalled when the last at work has left.
    left: Condvar,
    /// As `state` says.
    is_held: AtomicBool,
}

#[derive(Default)]
struct State {
    holds: u32,
    at_work: u32,
}

/// Work that changes files, until it is dropped.
pub struct Work<'f>(&'f Files);

impl Files {
    /// Whether files are locked, or about to be. Exact for the holder of the head.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Begins work that changes files; `None` while they are held.
    pub fn enter(&self) -> Option<Work<'_>> {
        let mut state = lock(&self.state);
        if state.holds > 0 {
            return None;
        }
        state.at_work += 1;
        Some(Work(self))
    }

    /// Begins a hold.
    pub fn hold(&self) {
        let mut state = lock(&self.state);
        state.holds += 1;
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// Returns when all work that had begun has ended.
    pub fn wait_for_work(&self) {
        let mut state = lock(&self.state);
        while state.at_work > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends one hold. Answers whether that was the last.
    pub fn let_go(&self) -> bool {
        let mut state = lock(&self.state);
        // A close has ended all of them.
        let was_held = state.holds > 0;
        state.holds = state.holds.saturating_sub(1);
        self.is_held.store(state.holds > 0, Ordering::Relaxed);
        was_held && state.holds == 0
    }

    /// Ends all holds.
    pub fn let_all_go(&self) {
        while lock(&self.state).holds > 0 {
            self.let_go();
        }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.at_work -= 1;
        if state.at_work == 0 {
            self.0.left.notify_all();
        }
    }
}
