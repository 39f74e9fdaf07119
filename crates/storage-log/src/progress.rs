//! Progress log lines of long work: at most one per second, from any thread.

use kauri_base::Clock;
use kauri_base::log::{self, Attr};
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

/// The progress of some work.
pub struct Progress<'c> {
    clock: &'c dyn Clock,
    started: Duration,
    /// When the next line is due, in microseconds after the start.
    due_us: AtomicU64,
    component: &'static str,
    message: &'static str,
    /// The name of the parts.
    parts_name: &'static str,
    of: u64,
    parts: AtomicU64,
    records: AtomicU64,
}

impl<'c> Progress<'c> {
    /// Nothing of `of` parts is done.
    pub fn new(
        clock: &'c dyn Clock,
        component: &'static str,
        message: &'static str,
        parts_name: &'static str,
        of: u64,
    ) -> Self {
        Progress {
            clock,
            started: clock.monotonic(),
            due_us: AtomicU64::new(INTERVAL.as_micros() as u64),
            component,
            message,
            parts_name,
            of,
            parts: AtomicU64::new(0),
            records: AtomicU64::new(0),
        }
    }

    /// More parts and records are done. Returns whether a line was logged, with the attributes that `more` adds.
    pub fn add(&self, parts: u64, records: u64, more: impl FnOnce(Attr) -> Attr) -> bool {
        let parts = self.parts.fetch_add(parts, Ordering::Relaxed) + parts;
        let records = self.records.fetch_add(records, Ordering::Relaxed) + records;
        let elapsed = self.clock.monotonic().saturating_sub(self.started);
        let elapsed_us = elapsed.as_micros() as u64;
        let due = self.due_us.load(Ordering::Relaxed);
        let next = elapsed_us + INTERVAL.as_micros() as u64;
        let ours = elapsed_us >= due
            && self
                .due_us
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if ours {
            let attr = Attr::new()
                .num("percent", parts * 100 / self.of.max(1))
                .num(self.parts_name, parts)
                .num("of", self.of)
                .num("documents", records)
                .num("documentsPerSecond", records * 1_000_000 / elapsed_us.max(1));
            log::info(self.component, 6_200_003, log::STARTUP_CTX, self.message, more(attr));
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::sync::atomic::AtomicU64;

    struct Stepping(AtomicU64);

    impl Clock for Stepping {
        fn unix_ms(&self) -> i64 {
            0
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(100, Ordering::Relaxed))
        }
    }

    #[test]
    fn there_is_one_line_a_second() {
        let clock = Stepping(AtomicU64::new(0));
        let progress = Progress::new(&clock, "STORAGE", "Working", "segments", 100);
        let lines = (0..100).filter(|_| progress.add(1, 10, |attr| attr)).count();
        assert!((9..=10).contains(&lines), "{lines} lines in ten seconds");
    }
}
