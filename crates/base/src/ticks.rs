//! Timestamps that a server assigns to fields that ask for its time (`Timestamp(0, 0)`, `$currentDate`).
//!
//! Invariant: each timestamp is later than all earlier ones, within a second and also after the clock is set back.

use crate::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module's head.
#[derive(Default)]
pub struct Ticks {
    /// Seconds, and below them the increment.
    last: AtomicU64,
}

impl Ticks {
    /// The next one, at this time.
    pub fn next(&self, unix_ms: i64) -> Timestamp {
        let first = u64::from((unix_ms / 1000) as u32) << 32 | 1;
        let next = |last: u64| (last + 1).max(first);
        // The closure never declines, so both hold the value before.
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |l| Some(next(l)));
        let now = next(last.unwrap_or_else(|last| last));
        Timestamp { seconds: (now >> 32) as u32, increment: now as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_ascend_strictly() {
        let ticks = Ticks::default();
        let at = |unix_ms| {
            let Timestamp { seconds, increment } = ticks.next(unix_ms);
            (seconds, increment)
        };
        assert_eq!(
            [5000, 5999, 6000, 4000, 7001].map(at),
            [(5, 1), (5, 2), (6, 1), (6, 2), (7, 1)]
        );
    }
}
