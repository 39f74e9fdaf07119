//! The section `metrics`: counters of documents, plans, cursors, commands and the TTL monitor.

use super::Source;
use crate::cmds;
use crate::server::Counters;
use kauri_bson::DocWriter;
use kauri_query::spill::{SpillCounter, SpillCounters};
use std::sync::atomic::{AtomicU64, Ordering};

fn read(counter: &AtomicU64) -> i64 {
    counter.load(Ordering::Relaxed) as i64
}

pub fn metrics(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let counters = &source.server.counters;
    commands(counters, &mut out.document("commands"));
    cursors(source, &mut out.document("cursor"));
    let found_by_id = read(&counters.found_by_id);
    {
        let mut document = out.document("document");
        document.put("deleted", read(&counters.docs_deleted));
        document.put("inserted", read(&counters.docs_inserted));
        document.put("returned", read(&counters.docs_returned) + found_by_id);
        document.put("updated", read(&counters.docs_updated));
    }
    {
        let mut operation = out.document("operation");
        operation.put("scanAndOrder", read(&counters.sorts));
        operation.put("waitsForMemory", read(&counters.memory_waits));
        operation.put("writeConflicts", read(&counters.write_conflicts));
    }
    query(&source.server.spilling.place.counters, &mut out.document("query"));
    {
        let mut executor = out.document("queryExecutor");
        executor.put("scanned", read(&counters.keys_scanned) + found_by_id);
        executor.put("scannedObjects", read(&counters.docs_scanned) + found_by_id);
    }
    let mut ttl = out.document("ttl");
    ttl.put("deletedDocuments", read(&counters.ttl_deleted));
    ttl.put("passes", read(&counters.ttl_passes));
}

/// Figures of sorts and spills.
fn query(counters: &SpillCounters, out: &mut DocWriter<'_>) {
    let spilled = |out: &mut DocWriter<'_>, name: &str, counter: &SpillCounter| {
        let (spilled, mut out) = (counter.read(), out.document(name));
        out.put("spilledBytes", spilled.bytes as i64);
        out.put("spilledDataStorageSize", spilled.storage_bytes as i64);
        out.put("spilledRecords", spilled.records as i64);
        out.put("spills", spilled.spills as i64);
    };
    spilled(out, "bucketAuto", &counters.bucket_auto);
    spilled(out, "group", &counters.group);
    spilled(out, "setWindowFields", &counters.windows);
    let (sorts, mut sort) = (counters.sort.read(), out.document("sort"));
    sort.put("spillToDisk", sorts.spills as i64);
    sort.put("spillToDiskBytes", sorts.storage_bytes as i64);
    sort.put("totalBytesSorted", read(&counters.bytes_sorted));
    sort.put("totalKeysSorted", read(&counters.rows_sorted));
}

fn commands(counters: &Counters, out: &mut DocWriter<'_>) {
    out.put("<UNKNOWN>", read(&counters.unknown_commands));
    for (command, (total, failed)) in cmds::ALL.iter().zip(counters.commands.read()) {
        let mut counter = out.document(command.name);
        counter.put("failed", failed as i64);
        counter.put("total", total as i64);
    }
}

fn cursors(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let counts = source.server.cursors.counts();
    out.put("timedOut", counts.timed_out as i64);
    out.put("totalOpened", counts.opened as i64);
    let mut open = out.document("open");
    open.put("noTimeout", counts.no_timeout as i64);
    open.put("pinned", counts.pinned as i64);
    open.put("total", counts.open as i64);
}
