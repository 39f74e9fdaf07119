//! The sections on locks. Without locks, `locks` shows a global lock that was never taken, and `globalLock` keeps
//! its shape, with the running operations. The experiment with lock granularities has locks (`crate::locks`).

use super::Source;
use crate::ops::waits_for_lock;
use kauri_bson::DocWriter;
use kauri_catalog::usage::LatencyClass;

pub fn global_lock(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let server = source.server;
    let up_ms = server.clock.unix_ms().saturating_sub(server.start.started_ms).max(0);
    let (mut readers, mut writers) = (0, 0);
    let (mut readers_waiting, mut writers_waiting) = (0, 0);
    server.operations.for_each(|running| {
        let writes = running.kind.class() == LatencyClass::Writes;
        *match (waits_for_lock(&running.state), writes) {
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

#[cfg_attr(not(feature = "lock-experiment"), expect(unused_variables))]
pub fn locks(source: &Source<'_>, out: &mut DocWriter<'_>) {
    #[cfg(feature = "lock-experiment")]
    if source.server.locks.write_status(out) {
        return;
    }
    let mut global = out.document("Global");
    let mut counts = global.document("acquireCount");
    counts.put("r", 0i64);
    counts.put("w", 0i64);
}
