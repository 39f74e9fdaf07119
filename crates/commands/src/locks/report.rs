//! Lock figures of `lockInfo` and `serverStatus`.

use super::{GLOBAL, Granularity, Locks};
use kauri_base::rw_lock::{LockCounts, LockStats};
use kauri_bson::{ArrayWriter, DocWriter};

impl Locks {
    /// Writes the locks that are held or waited for.
    pub(crate) fn write_info(&self, list: &mut ArrayWriter<'_>) {
        for (name, stats) in self.list() {
            if stats.readers + stats.readers_waiting + stats.writers_waiting > 0 || stats.writer {
                let mut entry = list.document();
                entry.put("resourceId", if name == GLOBAL { "{Global}" } else { name.as_str() });
                write_holders(&mut entry, &stats);
            }
        }
    }

    /// Writes the figures of all locks. False if there are none.
    pub(crate) fn write_status(&self, out: &mut DocWriter<'_>) -> bool {
        let Some(granularity) = self.granularity() else { return false };
        let mut below = LockStats::default();
        for (name, stats) in &self.list() {
            if name == GLOBAL {
                // Above other locks a share of it is an intent.
                let shared = if granularity == Granularity::Global { "R" } else { "r" };
                write_counts(stats, shared, &mut out.document(name));
            } else {
                add(&mut below.shared, &stats.shared);
                add(&mut below.exclusive, &stats.exclusive);
            }
        }
        match granularity {
            Granularity::Global => {}
            Granularity::Database => write_counts(&below, "R", &mut out.document("Database")),
            Granularity::Collection => write_counts(&below, "R", &mut out.document("Collection")),
        }
        true
    }
}

fn write_holders(out: &mut DocWriter<'_>, stats: &LockStats) {
    let modes = |shared, exclusive| [("S", shared), ("X", exclusive)];
    let held = modes(stats.readers, usize::from(stats.writer));
    let waiting = modes(stats.readers_waiting, stats.writers_waiting);
    for (name, all) in [("granted", held), ("pending", waiting)] {
        let mut list = out.array(name);
        for (mode, count) in all {
            (0..count).for_each(|_| list.document().put("mode", mode));
        }
    }
}

fn add(sum: &mut LockCounts, counts: &LockCounts) {
    sum.acquired += counts.acquired;
    sum.waited += counts.waited;
    sum.waiting += counts.waiting;
}

type Figure = fn(&LockCounts) -> u64;

const FIGURES: &[(&str, Figure)] = &[
    ("acquireCount", |counts| counts.acquired),
    ("acquireWaitCount", |counts| counts.waited),
    ("timeAcquiringMicros", |counts| counts.waiting.as_micros() as u64),
];

fn write_counts(stats: &LockStats, shared: &str, out: &mut DocWriter<'_>) {
    for (name, figure) in FIGURES {
        let mut counts = out.document(name);
        counts.put(shared, figure(&stats.shared) as i64);
        counts.put("W", figure(&stats.exclusive) as i64);
    }
}
