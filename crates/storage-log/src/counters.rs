//! Figures of an open engine.

use kauri_base::sync::atomic::{AtomicU64, Ordering};

/// A number that grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The current value.
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
#[allow(missing_docs, reason = "the names say it")]
pub struct Counters {
    pub flushes: Counter,
    pub staged: Counter,
    pub syncs: Counter,
    pub synced_commits: Counter,
    pub mark_syncs: Counter,
    pub segments_opened: Counter,
    pub summary_bytes: Counter,
    pub segments_cleaned: Counter,
    pub moved_records: Counter,
    pub moved_bytes: Counter,
    pub moved_bytes_old: Counter,
    pub recovery_us: Counter,
    pub recovery_records: Counter,
    pub recovery_bytes: Counter,
}
