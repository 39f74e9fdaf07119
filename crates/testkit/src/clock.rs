//! A clock that only the test advances.

use kauri_base::Clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that only advances on request.
#[derive(Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// Lets this much time pass.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(by.as_nanos() as u64, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn unix_ms(&self) -> i64 {
        1_700_000_000_000 + (self.nanos.load(Ordering::Acquire) / 1_000_000) as i64
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Acquire))
    }
}
