//! The lock of an operation in the experiment with lock granularities. The operation releases the lock while it
//! waits or yields, unless it was told to keep the lock.

use super::OperationContext;
use crate::operation_state::OperationState;
use crate::rw_lock::OperationLock;
use std::sync::atomic::Ordering;

impl OperationState {
    /// Whether it waits for a lock.
    pub fn waits_for_lock(&self) -> bool {
        self.waiting_for_lock.load(Ordering::Relaxed)
    }
}

impl OperationContext {
    /// Takes the lock under which the operation runs from now on.
    pub async fn take_lock(&mut self, lock: OperationLock) {
        self.lock = Some(lock);
        self.retake_lock().await;
    }

    /// Releases the lock: the operation needs no more data, or waits for others to change it. Without a lock,
    /// nothing happens.
    pub fn release_lock(&mut self) {
        if let Some(lock) = &mut self.lock {
            lock.release();
        }
    }

    /// Takes the lock again after `release_lock`.
    pub async fn retake_lock(&mut self) {
        let Some(lock) = self.lock.as_mut().filter(|lock| !lock.is_held()) else { return };
        if !lock.try_take() {
            self.state.waiting_for_lock.store(true, Ordering::Relaxed);
            lock.take(|| self.clock.monotonic()).await;
            self.state.waiting_for_lock.store(false, Ordering::Relaxed);
        }
    }

    /// Releases a held lock that may be released during waits.
    pub(super) fn give_way(&mut self) -> bool {
        let lock = self.lock.as_mut().filter(|lock| lock.yields() && lock.is_held());
        lock.is_some_and(|lock| {
            lock.release();
            true
        })
    }

    /// Takes the lock again if it gave way.
    pub(super) async fn come_back(&mut self, gave_way: bool) {
        if gave_way {
            self.retake_lock().await;
        }
    }
}
