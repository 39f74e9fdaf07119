//! Waking a thread that waits for work, or for its end.
//!
//! Invariant: who waits after a kick that nobody has waited for yet goes on at once.

use crate::lock;
use kauri_base::sync::{self, Condvar, Mutex};
use std::time::Duration;

/// See the module's head.
#[derive(Default)]
pub struct Kick {
    wanted: Mutex<bool>,
    condition: Condvar,
}

impl Kick {
    /// There is something new.
    pub fn kick(&self) {
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
