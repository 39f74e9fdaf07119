//! A task's identity and its waker.

use super::local::Local;
use super::shared::WorkerShared;
use super::slab::Key;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// What a task's wakers point to.
pub(crate) struct TaskHeader {
    pub worker: Arc<WorkerShared>,
    pub key: Key,
    /// It is in a run queue or in the mail: further wakes have no effect.
    pub queued: AtomicBool,
}

impl Wake for TaskHeader {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        // On its own worker a wake is a push onto the local queue, without lock or system call.
        if !Local::push_if_current(&self.worker, self.key) {
            self.worker.post_wake(self.key);
        }
    }
}
