//! The smaller sections.

use super::Source;
use crate::server::VERSION_ARRAY;
use kauri_bson::DocWriter;
use std::sync::atomic::{AtomicU64, Ordering};

fn read(counter: &AtomicU64) -> i64 {
    counter.load(Ordering::Relaxed) as i64
}

/// A section whose machinery this server does not have.
pub fn nothing(_source: &Source<'_>, _out: &mut DocWriter<'_>) {}

pub fn asserts(source: &Source<'_>, out: &mut DocWriter<'_>) {
    out.put("regular", 0i64);
    out.put("warning", 0i64);
    out.put("msg", 0i64);
    out.put("user", read(&source.server.counters.asserts_user));
    out.put("tripwire", 0i64);
    out.put("rollovers", 0i64);
}

pub fn catalog_stats(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let catalog = &source.server.catalog;
    let (mut users, mut capped, mut internal) = (0, 0, 0);
    for collection in catalog.all_collections() {
        let database = collection.ns.database();
        if matches!(database, "admin" | "config" | "local") || collection.ns.is_system() {
            internal += 1;
        } else {
            users += 1;
        }
        capped += i32::from(collection.options.capped.is_some());
    }
    let views: usize = catalog.databases().keys().map(|db| catalog.views_of(db).len()).sum();
    out.put("collections", users);
    out.put("capped", capped);
    out.put("clustered", 0);
    out.put("timeseries", 0);
    out.put("views", views as i32);
    out.put("internalCollections", internal);
    out.put("internalViews", 0);
    out.put("csfle", 0);
    out.put("queryableEncryption", 0);
}

pub fn extra_info(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let threads = source.transport.workers().len();
    out.put("note", "fields vary by platform");
    out.put("page_faults", 0i64);
    out.put("threads", threads as i64);
}

pub fn feature_compatibility(_source: &Source<'_>, out: &mut DocWriter<'_>) {
    out.put("major", VERSION_ARRAY[0]);
    out.put("minor", VERSION_ARRAY[1]);
    out.put("transitioning", 0);
}

pub fn flow_control(_source: &Source<'_>, out: &mut DocWriter<'_>) {
    out.put("enabled", false);
}

pub fn index_builds(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let all = source.server.catalog.all_collections();
    let building = all.iter().flat_map(|c| &c.indexes).filter(|index| !index.ready).count();
    out.put("inProgress", building as i64);
}

pub fn logical_sessions(source: &Source<'_>, out: &mut DocWriter<'_>) {
    out.put("activeSessionsCount", source.server.sessions.count() as i32);
}

pub fn memory(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let memory = (source.server.memory)();
    out.put("bits", usize::BITS as i32);
    out.put("resident", (memory.resident >> 20) as i32);
    out.put("virtual", (memory.mapped >> 20) as i32);
    out.put("supported", true);
}

/// Bytes that operations hold and may hold, and how many were ended because they wanted more.
pub fn operation_memory(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let budget = &source.server.operation_memory;
    let (operation_max, all_max) = budget.limits();
    out.put("bytesUsed", budget.used() as i64);
    out.put("operationBytesMax", operation_max as i64);
    out.put("allOperationsBytesMax", all_max as i64);
    out.put("operationsEnded", budget.refused() as i64);
}

/// Documents of `system.profile` that were stored, and those for which there was no room.
pub fn profiler(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let (written, left_out) = source.server.profiler.counts();
    out.put("written", written as i64);
    out.put("leftOut", left_out as i64);
}

pub fn mirrored_reads(_source: &Source<'_>, out: &mut DocWriter<'_>) {
    out.put("seen", 0i64);
    out.put("sent", 0i64);
}

/// `{opLatencies: {histograms: true}}` asks for histograms.
pub fn op_latencies(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let asked = source.body.get("opLatencies").and_then(|elem| elem.as_doc());
    let histograms = asked.is_some_and(|options| options.value("histograms").truthy());
    source.server.usage.write_latencies(out, histograms);
}

pub fn op_counters(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let counters = &source.server.counters;
    out.put("insert", read(&counters.insert));
    out.put("query", read(&counters.query));
    out.put("update", read(&counters.update));
    out.put("delete", read(&counters.delete));
    out.put("getmore", read(&counters.getmore));
    out.put("command", read(&counters.command));
}

pub fn op_counters_of_replication(_source: &Source<'_>, out: &mut DocWriter<'_>) {
    for name in ["insert", "query", "update", "delete", "getmore", "command"] {
        out.put(name, 0i64);
    }
}

pub fn storage_engine(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let engine = source.server.backend.engine();
    out.put("name", engine.name());
    out.put("supportsCommittedReads", true);
    out.put("oldestRequiredTimestampForCrashRecovery", kauri_base::Timestamp::default());
    out.put("supportsPendingDrops", false);
    out.put("dropPendingIdents", 0i64);
    out.put("supportsSnapshotReadConcern", false);
    out.put("readOnly", false);
    out.put("persistent", engine.name() != "ephemeralForTest");
    out.put("backupCursorOpen", false);
}

pub fn transactions(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let counters = &source.server.counters;
    for (name, counter) in [
        ("retriedCommandsCount", &counters.retried_commands),
        ("retriedStatementsCount", &counters.retried_statements),
    ] {
        out.put(name, counter.load(Ordering::Relaxed) as i64);
    }
    for name in [
        "transactionsCollectionWriteCount",
        "currentActive",
        "currentInactive",
        "currentOpen",
        "totalAborted",
        "totalCommitted",
        "totalStarted",
    ] {
        out.put(name, 0i64);
    }
}
