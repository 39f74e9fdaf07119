//! Counts and times of operations per collection, for `top` and `$collStats`, and for the whole server, for
//! `opLatencies`.
//!
//! Counts only grow, and start at 0 with the server. They are sharded, and shards are allocated at first use, so
//! that workers do not write to each other's cache lines.

use kauri_bson::DocWriter;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of an operation, for `top`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OperationKind {
    /// `find`.
    Query,
    /// `getMore`.
    GetMore,
    /// `insert`.
    Insert,
    /// `update`.
    Update,
    /// `delete`.
    Remove,
    /// Another command that reads documents.
    Read,
    /// Another command that writes documents.
    Write,
    /// Any other command.
    #[default]
    Other,
}

/// Number of kinds.
const KINDS: usize = OperationKind::Other as usize + 1;

/// Classes of operations in latency reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LatencyClass {
    /// Operations that read documents.
    Reads,
    /// Operations that write documents.
    Writes,
    /// The rest.
    Commands,
}

/// Number of classes.
const CLASSES: usize = LatencyClass::Commands as usize + 1;

impl OperationKind {
    const ALL: [OperationKind; KINDS] = [
        OperationKind::Query,
        OperationKind::GetMore,
        OperationKind::Insert,
        OperationKind::Update,
        OperationKind::Remove,
        OperationKind::Read,
        OperationKind::Write,
        OperationKind::Other,
    ];

    /// The value of `op` in `currentOp`, the log and the profiler.
    pub fn op(self) -> &'static str {
        match self {
            OperationKind::Query => "query",
            OperationKind::GetMore => "getmore",
            OperationKind::Insert => "insert",
            OperationKind::Update => "update",
            OperationKind::Remove => "remove",
            OperationKind::Read | OperationKind::Write | OperationKind::Other => "command",
        }
    }

    /// Its class.
    pub fn class(self) -> LatencyClass {
        match self {
            OperationKind::Query | OperationKind::GetMore | OperationKind::Read => {
                LatencyClass::Reads
            }
            OperationKind::Insert
            | OperationKind::Update
            | OperationKind::Remove
            | OperationKind::Write => LatencyClass::Writes,
            OperationKind::Other => LatencyClass::Commands,
        }
    }
}

/// Least microseconds of the buckets of a histogram, as MongoDB has them: powers of two, and from 2 ms to 2 s
/// those between, too.
const LOWER_BOUNDS: [u64; 51] = lower_bounds();

const fn lower_bounds() -> [u64; 51] {
    let mut bounds = [0; 51];
    let (mut at, mut bound) = (1, 2);
    while at < bounds.len() {
        bounds[at] = bound;
        at += 1;
        if bound >= 2048 && bound < 2_097_152 {
            bounds[at] = bound + bound / 2;
            at += 1;
        }
        bound *= 2;
    }
    bounds
}

fn bucket_of(micros: u64) -> usize {
    LOWER_BOUNDS.partition_point(|bound| *bound <= micros) - 1
}

/// A count and a time in nanoseconds.
#[derive(Default)]
struct Tally {
    count: AtomicU64,
    time_ns: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Shard {
    kinds: [Tally; KINDS],
    buckets: Buckets,
}

struct Buckets([[AtomicU64; LOWER_BOUNDS.len()]; CLASSES]);

impl Default for Buckets {
    fn default() -> Self {
        Buckets(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

/// More workers than this share shards.
const SHARDS: usize = 16;

/// See the module's head.
#[derive(Default)]
pub struct OperationUsage {
    shards: [OnceLock<Box<Shard>>; SHARDS],
    scans: AtomicU64,
    tailing_scans: AtomicU64,
}

/// A number of operations, and their time in microseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Total {
    /// Number.
    pub count: u64,
    /// Their time.
    pub micros: u64,
}

impl OperationUsage {
    /// Counts an operation that a worker has served.
    #[inline]
    pub fn record(&self, worker: usize, kind: OperationKind, time_ns: u64) {
        let Some(shard) = self.shards.get(worker % SHARDS) else { return };
        let shard = shard.get_or_init(Box::default);
        if let Some(tally) = shard.kinds.get(kind as usize) {
            tally.count.fetch_add(1, Ordering::Relaxed);
            tally.time_ns.fetch_add(time_ns, Ordering::Relaxed);
        }
        let buckets = shard.buckets.0.get(kind.class() as usize);
        if let Some(bucket) = buckets.and_then(|all| all.get(bucket_of(time_ns / 1000))) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter_map(|shard| shard.get().map(|shard| &**shard))
    }

    /// The operations of some kinds.
    pub fn total(&self, wanted: impl Fn(OperationKind) -> bool) -> Total {
        let (mut count, mut time_ns) = (0, 0);
        for shard in self.shards() {
            for (_, tally) in
                OperationKind::ALL.iter().zip(&shard.kinds).filter(|(kind, _)| wanted(**kind))
            {
                count += tally.count.load(Ordering::Relaxed);
                time_ns += tally.time_ns.load(Ordering::Relaxed);
            }
        }
        Total { count, micros: time_ns / 1000 }
    }

    /// Counts a scan of the whole collection.
    pub fn count_scan(&self) {
        self.scans.fetch_add(1, Ordering::Relaxed);
    }

    /// That scan is a tailable cursor's.
    pub fn count_tailing_scan(&self) {
        self.tailing_scans.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of scans of the whole collection, and how many of them were tailable cursors'.
    pub fn scans(&self) -> (u64, u64) {
        (self.scans.load(Ordering::Relaxed), self.tailing_scans.load(Ordering::Relaxed))
    }

    /// Writes `{reads: {latency, ops}, writes, commands, transactions}`, with histograms or without.
    pub fn write_latencies(&self, out: &mut DocWriter<'_>, histograms: bool) {
        let classes = [
            ("reads", Some(LatencyClass::Reads)),
            ("writes", Some(LatencyClass::Writes)),
            ("commands", Some(LatencyClass::Commands)),
            ("transactions", None),
        ];
        for (name, class) in classes {
            let mut out = out.document(name);
            if histograms {
                self.write_histogram(&mut out, class);
            }
            let total = self.total(|kind| Some(kind.class()) == class);
            out.put("latency", total.micros as i64);
            out.put("ops", total.count as i64);
            out.put("queryableEncryptionLatencyMicros", 0i64);
        }
    }

    fn write_histogram(&self, out: &mut DocWriter<'_>, class: Option<LatencyClass>) {
        let mut histogram = out.array("histogram");
        let Some(class) = class else { return };
        for (bucket, bound) in LOWER_BOUNDS.iter().enumerate() {
            let in_shard = |shard: &Shard| {
                let buckets = shard.buckets.0.get(class as usize);
                let count = buckets.and_then(|all| all.get(bucket));
                count.map_or(0, |count| count.load(Ordering::Relaxed))
            };
            let count: u64 = self.shards().map(in_shard).sum();
            if count > 0 {
                let mut entry = histogram.document();
                entry.put("micros", *bound as i64);
                entry.put("count", count as i64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::DocBuf;

    #[test]
    fn buckets_are_as_mongodb_has_them() {
        assert_eq!(LOWER_BOUNDS[..13], [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072]);
        assert_eq!(LOWER_BOUNDS[28..33], [786_432, 1_048_576, 1_572_864, 2_097_152, 4_194_304]);
        assert_eq!(LOWER_BOUNDS[50], 1 << 40);
        assert!(LOWER_BOUNDS.is_sorted_by(|a, b| a < b));
        assert_eq!([0, 1, 2, 3071, 3072].map(bucket_of), [0, 0, 1, 11, 12]);
        assert_eq!(bucket_of(u64::MAX), 50);
    }

    #[test]
    fn operations_of_all_workers_are_counted_by_kind_and_class() {
        let usage = OperationUsage::default();
        usage.record(0, OperationKind::Query, 3_500);
        usage.record(1, OperationKind::Query, 2_600);
        usage.record(SHARDS + 1, OperationKind::Read, 5_000_000);
        usage.record(2, OperationKind::Insert, 10_000);
        usage.record(2, OperationKind::Other, 999);
        let queries = usage.total(|kind| kind == OperationKind::Query);
        assert_eq!(queries, Total { count: 2, micros: 6 });
        assert_eq!(usage.total(|_| true), Total { count: 5, micros: 5017 });
        let text = |histograms| {
            let doc = DocBuf::build(|out| usage.write_latencies(out, histograms));
            kauri_bson::shell_text(doc.as_doc())
        };
        let none = "queryableEncryptionLatencyMicros: 0";
        assert_eq!(
            text(false),
            format!(
                "{{ reads: {{ latency: 5006, ops: 3, {none} }}, writes: {{ latency: 10, ops: 1, {none} }}, \
                 commands: {{ latency: 0, ops: 1, {none} }}, transactions: {{ latency: 0, ops: 0, {none} }} }}"
            )
        );
        let reads = "histogram: [ { micros: 2, count: 2 }, { micros: 4096, count: 1 } ]";
        assert!(text(true).starts_with(&format!("{{ reads: {{ {reads}, ")), "{}", text(true));
        assert!(text(true).contains("transactions: { histogram: [], latency: 0"), "{}", text(true));
    }
}
