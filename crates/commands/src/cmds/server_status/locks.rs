//! The sections on locks. By default there are none (`lockGranularity`): `locks` is empty, and
//! `globalLock` keeps its shape, with what runs at the moment.

use crate::invocation::Invocation;
use crate::locks::Granularity;
use kauri_base::rw_lock::{LockCounts, LockStats};
use kauri_bson::DocWriter;

pub fn global_lock(invocation: &Invocation<'_>, out: &mut DocWriter<'_>) {
    let server = invocation.server;
    let up_ms = server.clock.unix_ms().saturating_sub(server.start.started_ms).max(0);
    let (mut readers, mut writers) = (0, 0);
    let (mut readers_waiting, mut writers_waiting) = (0, 0);
    server.operations.for_each(|running| {
        let writes = matches!(running.name, "insert" | "update" | "delete" | "findAndModify");
        *match (running.state.waits_for_lock(), writes) {
            (true, true) => &mut writers_waiting,
            (true, false) => &mut readers_waiting,
            (false, true) => &mut writers,
            (false, false) => &mut readers,
        } += 1;
    });
    out.put("totalTime", up_ms * 1000);
    write_clients(&mut out.document("currentQueue"), readers_waiting, writers_waiting);
    write_clients(&mut out.document("activeClients"), readers, writers);
}

fn write_clients(out: &mut DocWriter<'_>, readers: i32, writers: i32) {
    out.put("total", readers + writers);
    out.put("readers", readers);
    out.put("writers", writers);
}

pub fn locks(invocation: &Invocation<'_>, out: &mut DocWriter<'_>) {
    let locks = &invocation.server.locks;
    let Some(granularity) = locks.granularity() else { return };
    let list = locks.list();
    let mut below = LockStats::default();
    for (name, stats) in &list {
        if name == crate::locks::GLOBAL {
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
