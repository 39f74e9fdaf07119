//! Wakes a thread that waits for work or for shutdown.
//!
//! Invariant: a wake-up without a waiter is remembered, so the next wait returns at once.

use crate::lock;
use kauri_base::sync::{self, Condvar, Mutex};
use std::time::Duration;

/// See the module's head.
#[derive(Default)]
pub struct Wake {
    wanted: Mutex<bool>,
    condition: Condvar,
}

impl Wake {
    /// There is something new.
    pub fn wake(&self) {
        *lock(&self.wanted) = true;
        self.condition.notify_all();
    }

    /// Returns when there is, or the time has passed.
    pub fn wait(&self, timeout: Duration) {
        let mut wanted = lock(&self.wanted);
        if !*wanted {
            wanted = sync::wait_timeout(&self.condition, &self.wanted, wanted, timeout);
        }
        *wanted = false;
    }
}
