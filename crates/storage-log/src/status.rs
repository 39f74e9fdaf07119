//! Figures, and the engine's section of `serverStatus`.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What it has come to.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Figures of an open engine.
#[derive(Default)]
pub struct Counters {
    pub flushes: Counter,
    pub syncs: Counter,
    pub synced_commits: Counter,
    pub segments_opened: Counter,
    pub summary_bytes: Counter,
    pub segments_cleaned: Counter,
    pub moved_records: Counter,
    pub moved_bytes: Counter,
    pub recovery_us: Counter,
    pub recovery_records: Counter,
    pub recovery_bytes: Counter,
}

impl crate::core::Core {
    /// Writes the section's fields.
    pub fn write_status(&self, out: &mut kauri_bson::DocWriter<'_>) {
        let usage = self.segments.usage();
        out.put("segments", i64::from(usage.count));
        out.put("segmentsFree", i64::from(usage.free));
        out.put("liveBytes", usage.live_bytes as i64);
    }
}
