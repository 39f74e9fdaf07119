//! The sections on connections, bytes, and the time of requests in each stage.

use super::Source;
use kauri_bson::DocWriter;
use kauri_transport::rdma::Counters;
use kauri_transport::upgrade::{FastTransport, RdmaService};
use kauri_transport::{HistogramSnapshot, Stage};
use kauri_wire::Compressor;
use std::sync::atomic::Ordering;

pub fn connections(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let counts = source.transport.connections();
    out.put("current", counts.current as i32);
    out.put("available", counts.available as i32);
    out.put("totalCreated", counts.total_created as i32);
    out.put("rejected", counts.rejected as i32);
    let establishment = source.transport.establishment();
    out.put("queuedForEstablishment", establishment.queued as i64);
    out.put("active", counts.active as i32);
    out.put("threaded", 0);
    let mut limit = out.document("establishmentRateLimit");
    limit.put("rejected", establishment.rejected as i64);
    // No address is exempt.
    limit.put("exempted", 0i64);
    limit.put("interruptedDueToClientDisconnect", establishment.interrupted as i64);
}

pub fn network(source: &Source<'_>, out: &mut DocWriter<'_>) {
    let counts = source.transport.network();
    out.put("bytesIn", counts.bytes_in as i64);
    out.put("bytesOut", counts.bytes_out as i64);
    out.put("physicalBytesIn", counts.physical_bytes_in as i64);
    out.put("physicalBytesOut", counts.physical_bytes_out as i64);
    out.put("numSlowDNSOperations", 0i64);
    out.put("numSlowSSLOperations", 0i64);
    out.put("numRequests", counts.requests as i64);
    let arrivals = source.transport.arrivals();
    let mut large = out.document("largeMessages");
    large.put("bytes", arrivals.bytes as i64);
    large.put("bytesMax", arrivals.bytes_max as i64);
    large.put("waiting", arrivals.waiting as i64);
    large.put("endedAsSlow", arrivals.slow as i64);
    drop(large);
    let mut compression = out.document("compression");
    for compressor in Compressor::NEGOTIABLE {
        let all = &source.server.counters.compression;
        let Some(counts) = all.get(usize::from(compressor.id())) else { continue };
        let mut entry = compression.document(compressor.name());
        for (name, bytes_in, bytes_out) in [
            ("compressor", &counts.replies_plain, &counts.replies_packed),
            ("decompressor", &counts.requests_packed, &counts.requests_plain),
        ] {
            let mut side = entry.document(name);
            side.put("bytesIn", bytes_in.load(Ordering::Relaxed) as i64);
            side.put("bytesOut", bytes_out.load(Ordering::Relaxed) as i64);
        }
    }
}

/// Sessions that have changed over to shared memory, and frames through their rings.
pub fn shared_memory(source: &Source<'_>, out: &mut DocWriter<'_>) {
    fast_transport(source, out, FastTransport::SharedMemory);
}

/// The same over RDMA, with refusals and the device's counters.
pub fn rdma(source: &Source<'_>, out: &mut DocWriter<'_>) {
    match source.rdma {
        RdmaService::Off => out.put("state", "off"),
        RdmaService::Absent(why) => {
            out.put("state", "absent");
            out.put("reason", why.as_str());
        }
        RdmaService::On(host) => {
            out.put("state", "on");
            out.put("device", host.device());
        }
    }
    fast_transport(source, out, FastTransport::Rdma);
    let mut refusals = out.document("refusals");
    for (name, count) in source.transport.rdma_refusals() {
        refusals.put(name, count as i64);
    }
    drop(refusals);
    if let RdmaService::On(host) = source.rdma {
        let pool = host.pool_counts();
        let mut about_pool = out.document("pool");
        about_pool.put("bytes", pool.bytes as i64);
        about_pool.put("freeBytes", pool.free_bytes as i64);
        about_pool.put("exhausted", pool.exhausted as i64);
        drop(about_pool);
        device(&host.counters(), &mut out.document("verbs"));
    }
}

fn device(counters: &Counters, out: &mut DocWriter<'_>) {
    for (name, count) in [
        ("sendsPosted", counters.sends_posted),
        ("sendRequests", counters.send_requests),
        ("sendRequestsInline", counters.send_requests_inline),
        ("sendRequestsSignalled", counters.send_requests_signalled),
        ("sendBytes", counters.send_bytes),
        ("receivesPosted", counters.receives_posted),
        ("receiveRequests", counters.receive_requests),
        ("completions", counters.completions),
        ("completionErrors", counters.completion_errors),
        ("polls", counters.polls),
        ("pollsEmpty", counters.polls_empty),
        ("arms", counters.arms),
        ("channelEvents", counters.channel_events),
        ("registrations", counters.registrations),
        ("deregistrations", counters.deregistrations),
        ("pinnedBytes", counters.pinned_bytes),
        ("windowsAllocated", counters.windows_allocated),
        ("windowsDeallocated", counters.windows_deallocated),
        ("queuePairsCreated", counters.queue_pairs_created),
        ("queuePairsDestroyed", counters.queue_pairs_destroyed),
        ("leaks", counters.leaks),
    ] {
        out.put(name, count as i64);
    }
}

fn fast_transport(source: &Source<'_>, out: &mut DocWriter<'_>, transport: FastTransport) {
    let counts = source.transport.fast_transport(transport);
    out.put("sessions", counts.sessions as i64);
    out.put("offered", counts.offered as i64);
    out.put("switched", counts.switched as i64);
    out.put("withdrawn", counts.withdrawn as i64);
    out.put("refused", counts.refused as i64);
    out.put("failed", counts.failed as i64);
    out.put("framesIn", counts.frames_in as i64);
    out.put("framesOut", counts.frames_out as i64);
    out.put("creditsIn", counts.credits_in as i64);
    out.put("creditsOut", counts.credits_out as i64);
    if transport == FastTransport::Rdma {
        out.put("piecesIn", counts.pieces_in as i64);
        out.put("piecesOut", counts.pieces_out as i64);
    }
}

/// The time of requests by stage: `source` (first to last byte), `process` (in the command), `sink` (sending the
/// reply), `other` (readable, but not its turn yet), and, apart from requests, `idleWait`.
pub fn stages(source: &Source<'_>, out: &mut DocWriter<'_>) {
    for stage in Stage::ALL {
        histogram(&source.transport.stage(stage), &mut out.document(stage.name()));
    }
}

const PERCENTILES: &[(&str, f64)] =
    &[("p50Micros", 0.5), ("p95Micros", 0.95), ("p99Micros", 0.99), ("p999Micros", 0.999)];

fn histogram(snapshot: &HistogramSnapshot, out: &mut DocWriter<'_>) {
    let micros = |ns: u64| ns as f64 / 1000.0;
    let count = snapshot.count();
    out.put("count", count as i64);
    out.put("totalMicros", micros(snapshot.sum_ns()));
    out.put("averageMicros", micros(snapshot.sum_ns()) / count.max(1) as f64);
    for (name, fraction) in PERCENTILES {
        out.put(name, micros(snapshot.percentile_ns(*fraction)));
    }
}

pub fn workers(source: &Source<'_>, out: &mut DocWriter<'_>) {
    for worker in source.transport.workers() {
        let mut entry = out.document(&worker.id.to_string());
        entry.put("sessions", worker.sessions as i64);
        entry.put("active", worker.active as i64);
        entry.put("requests", worker.requests as i64);
        entry.put("waits", worker.waits as i64);
        entry.put("ticks", worker.ticks as i64);
        entry.put("polls", worker.polls as i64);
        entry.put("spins", worker.spins as i64);
        entry.put("spinHits", worker.spin_hits as i64);
        entry.put("receives", worker.receives as i64);
        entry.put("sends", worker.sends as i64);
        entry.put("sendsTogether", worker.sends_together as i64);
        entry.put("sessionsMoved", worker.moved as i64);
    }
}
