//! Added latency: makes memory behave like slower memory, to study the cost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much slower than it is the mapped memory is to be, in nanoseconds; 0, the default, adds
/// nothing. May be changed at any time. Without a mapping there is nothing that it acts on.
#[derive(Default, Debug)]
pub struct Latency {
    read: AtomicU64,
    line: AtomicU64,
    fence: AtomicU64,
}

/// Reads, persisted lines and fences, as [`Latency`] adds to each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delayed {
    /// A read of a place that was not being read: one for each record.
    Read,
    /// A line of 64 bytes that is persisted.
    Line,
    /// A fence, at which a commit waits for its lines.
    Fence,
}

impl Latency {
    fn of(&self, what: Delayed) -> &AtomicU64 {
        match what {
            Delayed::Read => &self.read,
            Delayed::Line => &self.line,
            Delayed::Fence => &self.fence,
        }
    }

    /// Sets what is added to each.
    pub fn set(&self, what: Delayed, nanos: u64) {
        self.of(what).store(nanos, Ordering::Relaxed);
    }

    /// What is added to each.
    pub fn get(&self, what: Delayed) -> u64 {
        self.of(what).load(Ordering::Relaxed)
    }

    /// Takes the time of so many.
    #[inline]
    pub(crate) fn take(&self, what: Delayed, count: u64) {
        let nanos = self.get(what);
        if nanos > 0 {
            spin(Duration::from_nanos(nanos.saturating_mul(count)));
        }
    }
}

/// Memory that is slow keeps the processor waiting too.
#[cold]
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_delays_its_own_operation() {
        let latency = Latency::default();
        latency.set(Delayed::Line, 50_000);
        let elapsed = |what, count| {
            let start = Instant::now();
            latency.take(what, count);
            start.elapsed()
        };
        assert!(elapsed(Delayed::Line, 20) >= Duration::from_millis(1));
        latency.set(Delayed::Line, 0);
        latency.set(Delayed::Read, 2_000_000);
        assert!(elapsed(Delayed::Read, 1) >= Duration::from_millis(2));
        assert_eq!(
            [Delayed::Read, Delayed::Line, Delayed::Fence].map(|d| latency.get(d)),
            [2_000_000, 0, 0]
        );
    }
}
