//! The engine's section of `serverStatus`.

use crate::core::Core;
use kauri_bson::DocWriter;
use kauri_medium::{Delayed, MediumKind};

impl Core {
    /// Writes the section's fields.
    pub fn write_status(&self, out: &mut DocWriter<'_>) {
        self.write_medium(out);
        self.write_space(out);
        self.write_log(out);
        self.write_cleaner(out);
        self.write_cache(out);
        self.write_memory(out);
        self.write_snapshots(out);
        let (loaded, built, written) = self.start.images().counts();
        let mut images = out.document("indexImages");
        put(&mut images, "loaded", loaded);
        put(&mut images, "indexesBuilt", built);
        put(&mut images, "written", written);
        drop(images);
        let counters = &self.counters;
        let us = counters.recovery_us.get();
        let mut section = out.document("recovery");
        put(&mut section, "micros", us);
        put(&mut section, "records", counters.recovery_records.get());
        put(&mut section, "bytesRead", counters.recovery_bytes.get());
        let rate = counters.recovery_records.get() as f64 * 1e6 / us.max(1) as f64;
        section.put("recordsPerSecond", rate);
    }

    fn write_medium(&self, out: &mut DocWriter<'_>) {
        let kind = self.directory.medium().kind();
        let mut medium = out.document("medium");
        medium.put("kind", kind.name());
        medium.put("description", self.directory.medium().describe().as_str());
        medium.put("mapSync", kind == MediumKind::Dax);
        medium.put("staging", self.staging.is_some());
        medium.put("durableBy", kind.durable_by());
        medium.put("survivesPowerLoss", kind.power_loss());
        if let Some(latency) = self.cache.latency() {
            let mut added = medium.document("addedLatencyNanos");
            put(&mut added, "read", latency.get(Delayed::Read));
            put(&mut added, "line", latency.get(Delayed::Line));
            put(&mut added, "fence", latency.get(Delayed::Fence));
        }
    }

    fn write_space(&self, out: &mut DocWriter<'_>) {
        let usage = self.segments.usage();
        let segment_bytes = u64::from(self.segments.segment_bytes());
        put(out, "segmentBytes", segment_bytes);
        put(out, "segments", u64::from(usage.count));
        put(out, "segmentsFree", u64::from(usage.free));
        put(out, "segmentsEmptying", u64::from(self.segments.emptying()));
        put(out, "segmentsMax", u64::from(usage.limit));
        put(out, "liveBytes", usage.live_bytes);
        let used = u64::from(usage.count - usage.free) * segment_bytes;
        out.put("liveRatio", usage.live_bytes as f64 / used.max(1) as f64);
        out.put("scarcity", usage.scarcity());
        let (stores, graves, indexes) = {
            let maps = self.registry.read();
            (maps.stores.len(), maps.graves.len(), maps.indexes.len())
        };
        put(out, "collections", stores as u64);
        put(out, "collectionsDropped", graves as u64);
        put(out, "indexes", indexes as u64);
    }

    fn write_log(&self, out: &mut DocWriter<'_>) {
        let counters = &self.counters;
        let counts = self.head.counts();
        let cache = self.cache.stats();
        let mut log = out.document("log");
        put(&mut log, "lastCommit", self.visible().0);
        put(&mut log, "written", self.acks.written());
        put(&mut log, "durable", self.acks.durable());
        put(&mut log, "puts", counts.puts);
        put(&mut log, "tombstones", counts.tombstones);
        put(&mut log, "ddlRecords", counts.ddl_records);
        put(&mut log, "commitRecords", counts.commit_records);
        put(&mut log, "marks", counts.marks);
        put(&mut log, "documentBytes", counts.document_bytes);
        put(&mut log, "recordBytes", counts.record_bytes);
        put(&mut log, "summaryBytes", counters.summary_bytes.get());
        put(&mut log, "segmentsOpened", counters.segments_opened.get());
        put(&mut log, "storedBytes", cache.stored_bytes);
        // What waits to be stored, staged or not, will be.
        let stored = (cache.stored_bytes + cache.unstored_bytes) as f64;
        log.put("writeAmplification", stored / counts.document_bytes.max(1) as f64);
        put(&mut log, "flushes", counters.flushes.get());
        put(&mut log, "staged", counters.staged.get());
        put(&mut log, "syncs", counters.syncs.get());
        put(&mut log, "markSyncs", counters.mark_syncs.get());
        let syncs = counters.syncs.get().max(1) as f64;
        log.put("commitsPerSync", counters.synced_commits.get() as f64 / syncs);
    }

    fn write_cleaner(&self, out: &mut DocWriter<'_>) {
        let counters = &self.counters;
        let mut cleaner = out.document("cleaner");
        put(&mut cleaner, "segmentsCleaned", counters.segments_cleaned.get());
        put(&mut cleaner, "movedRecords", counters.moved_records.get());
        put(&mut cleaner, "movedBytes", counters.moved_bytes.get());
        put(&mut cleaner, "movedBytesOld", counters.moved_bytes_old.get());
    }

    fn write_snapshots(&self, out: &mut DocWriter<'_>) {
        let stats = self.snapshots.stats();
        let mut snapshots = out.document("snapshots");
        put(&mut snapshots, "held", stats.held);
        put(&mut snapshots, "oldestCommit", stats.oldest.unwrap_or(0));
        put(&mut snapshots, "versionsKept", stats.kept);
        put(&mut snapshots, "bytesKept", stats.kept_bytes);
        put(&mut snapshots, "givenUp", stats.given_up);
        put(&mut snapshots, "claims", self.claims.count() as u64);
        put(&mut snapshots, "pendingUnits", self.pending.count() as u64);
    }

    fn write_cache(&self, out: &mut DocWriter<'_>) {
        let stats = self.cache.stats();
        let mut cache = out.document("cache");
        put(&mut cache, "budgetBytes", stats.budget_bytes);
        put(&mut cache, "residentBytes", stats.resident_bytes);
        put(&mut cache, "unstoredBytes", stats.unstored_bytes);
        put(&mut cache, "hits", stats.hits);
        put(&mut cache, "misses", stats.misses);
        put(&mut cache, "evictions", stats.evictions);
        put(&mut cache, "reads", stats.reads);
        put(&mut cache, "readBytes", stats.read_bytes);
        put(&mut cache, "readErrors", stats.read_errors);
        put(&mut cache, "readersIdle", stats.readers_idle);
        cache.put("pressure", format!("{:?}", self.cache.pressure()).as_str());
    }
}

fn put(out: &mut DocWriter<'_>, name: &str, value: u64) {
    out.put(name, value as i64);
}
