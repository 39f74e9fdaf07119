//! Spilling of blocking stages: rows beyond the memory limit go into temporary files, in runs of records. They are
//! read back merged in order ([`ExternalSort`]; [`SpillingSort`] for a stage that sorts) or one run after the
//! other.
//!
//! Nothing here waits or does I/O: a [`TemporaryStore`] does that, and unfinished transfers return a ticket. Chunks
//! in transfer count as memory: a stage that spills or merges stays within the limit that made it spill, except for
//! records larger than that.
//!
//! Files live as long as the stages that own them. The end of a statement, or the close of a cursor, frees their
//! space.

mod external;
mod least;
mod merge;
mod run;
mod slice_order;
mod slice_sort;
mod sort;

pub(crate) use external::ExternalSort;
pub(crate) use least::Least;
pub(crate) use run::{Run, RunReader, RunWriter, SpillFile};
use slice_order::SliceOrder;
use slice_sort::SliceSort;
pub(crate) use sort::{RowBuffer, SpillingSort};

use kauri_base::operation::OperationState;
use kauri_base::temporary::TemporaryStore;
use kauri_base::{Error, ErrorCode, Result, limits, work};
use kauri_bson::DocWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory limits of an operation's blocking stages, and their temporary store.
#[derive(Clone)]
pub struct Spilling {
    /// The temporary store; none if there is none.
    pub place: Option<Arc<SpillPlace>>,
    /// `allowDiskUse`.
    pub allowed: bool,
    /// Memory of a sort.
    pub sort_bytes_max: usize,
    /// Memory of a `$group`.
    pub group_bytes_max: usize,
    /// Memory of a `$setWindowFields`: of its sort, and of one partition.
    pub window_bytes_max: usize,
    /// Memory of a `$bucketAuto`.
    pub bucket_auto_bytes_max: usize,
    /// Memory for the partitions of a `$densify`. It spills nothing.
    pub densify_bytes_max: usize,
    /// Documents that a `$densify` may make.
    pub densify_docs_max: u64,
    /// The operation, which records that it has spilled.
    pub operation: Option<Arc<OperationState>>,
}

impl Default for Spilling {
    /// Nowhere to spill to.
    fn default() -> Self {
        Spilling {
            place: None,
            allowed: false,
            sort_bytes_max: limits::SORT_BYTES_MAX,
            group_bytes_max: limits::GROUP_BYTES_MAX,
            window_bytes_max: limits::SORT_BYTES_MAX,
            bucket_auto_bytes_max: limits::SORT_BYTES_MAX,
            densify_bytes_max: limits::DENSIFY_BYTES_MAX,
            densify_docs_max: limits::DENSIFY_DOCS_MAX as u64,
            operation: None,
        }
    }
}

impl Spilling {
    /// Where to spill, if that may be done.
    pub(crate) fn place(&self) -> Option<&Arc<SpillPlace>> {
        self.place.as_ref().filter(|_| self.allowed)
    }

    /// Notes what a stage of this kind has spilled from memory.
    pub(crate) fn note(&self, kind: SpillKind, spilled: SpillStats) {
        if let Some(place) = &self.place {
            place.counters.of(kind).add(spilled);
        }
        if let Some(operation) = &self.operation {
            operation.note_disk_use();
        }
    }
}

/// Whether a stage that holds so many bytes and may spill does so before its own limit is reached.
#[inline]
pub(crate) fn spills_early(bytes: usize) -> bool {
    bytes > limits::SPILL_EARLY_BYTES && work::memory_is_short()
}

/// The temporary store of a server's operations, and its counters.
pub struct SpillPlace {
    /// Makes the files.
    pub store: Arc<dyn TemporaryStore>,
    /// Counters since the start.
    pub counters: SpillCounters,
}

impl SpillPlace {
    /// A place without anything spilled yet.
    pub fn new(store: Arc<dyn TemporaryStore>) -> SpillPlace {
        SpillPlace { store, counters: SpillCounters::default() }
    }
}

/// Which stages spill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpillKind {
    Sort,
    Group,
    BucketAuto,
    Windows,
}

/// `serverStatus.metrics.query`: spills by kind of stage.
#[derive(Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SpillCounters {
    pub sort: SpillCounter,
    pub group: SpillCounter,
    pub bucket_auto: SpillCounter,
    pub windows: SpillCounter,
    /// Rows that sorts have sorted, in memory or not, and their bytes.
    pub rows_sorted: AtomicU64,
    pub bytes_sorted: AtomicU64,
}

impl SpillCounters {
    fn of(&self, kind: SpillKind) -> &SpillCounter {
        match kind {
            SpillKind::Sort => &self.sort,
            SpillKind::Group => &self.group,
            SpillKind::BucketAuto => &self.bucket_auto,
            SpillKind::Windows => &self.windows,
        }
    }
}

/// [`SpillStats`] of all stages of a kind.
#[derive(Default)]
pub struct SpillCounter {
    spills: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    storage_bytes: AtomicU64,
}

impl SpillCounter {
    fn add(&self, stats: SpillStats) {
        self.spills.fetch_add(stats.spills, Ordering::Relaxed);
        self.records.fetch_add(stats.records, Ordering::Relaxed);
        self.bytes.fetch_add(stats.bytes, Ordering::Relaxed);
        self.storage_bytes.fetch_add(stats.storage_bytes, Ordering::Relaxed);
    }

    /// The figures.
    pub fn read(&self) -> SpillStats {
        SpillStats {
            spills: self.spills.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            storage_bytes: self.storage_bytes.load(Ordering::Relaxed),
        }
    }
}

/// The spills of a stage.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct SpillStats {
    /// Number of times that it spilled to free memory.
    pub spills: u64,
    /// Records written.
    pub records: u64,
    /// Freed memory.
    pub bytes: u64,
    /// Bytes written to files.
    pub storage_bytes: u64,
}

impl SpillStats {
    /// Adds those of another spill.
    pub(crate) fn add(&mut self, other: SpillStats) {
        self.spills += other.spills;
        self.records += other.records;
        self.bytes += other.bytes;
        self.storage_bytes += other.storage_bytes;
    }

    /// Writes them as `executionStats` has them.
    pub(crate) fn write(&self, out: &mut DocWriter<'_>) {
        out.put("usedDisk", self.spills > 0);
        out.put("spills", self.spills as i64);
        out.put("spilledDataStorageSize", self.storage_bytes as i64);
        out.put("spilledBytes", self.bytes as i64);
        out.put("spilledRecords", self.records as i64);
    }
}

/// Bytes of a chunk of a run where `chunks` of them share this memory.
pub(crate) fn chunk_bytes(bytes_max: usize, chunks: usize) -> usize {
    let share = bytes_max / chunks.max(1);
    share.clamp(limits::SPILL_PIECE_BYTES_MIN, limits::SPILL_PIECE_BYTES_MAX)
}

/// What was written cannot be read as it was.
pub(crate) fn damaged() -> Error {
    Error::new(ErrorCode::FileStreamFailed, "a temporary file does not hold what was written to it")
}

/// The eight bytes of a record's header as lengths of its key and of what follows.
fn lengths(header: &[u8]) -> Result<(usize, usize)> {
    let number = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(|bytes| u32::from_le_bytes(bytes) as usize)
    };
    number(0).zip(number(4)).ok_or_else(damaged)
}
