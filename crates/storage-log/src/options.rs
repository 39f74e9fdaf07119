//! Options of an engine.

use crate::format::SEGMENTS_MAX;
use crate::segments::CLEANER_RESERVE;
use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::sync::Arc;
use kauri_base::{Clock, RandomSource};

/// Segments of a log without a limit: 8 TB of 64 MB.
const SEGMENTS_DEFAULT_MAX: u32 = 1 << 17;

/// Options of [`crate::PmLog::open`].
#[derive(Clone)]
pub struct Options {
    /// Bytes of a segment, a power of two. Only for a new directory; an existing one keeps its own.
    pub segment_bytes: u32,
    /// Memory for documents.
    pub cache_bytes: u64,
    /// Additional memory that opening may need: a directory that needs more is refused.
    pub memory_bytes_max: u64,
    /// Maximum time until a commit without a waiter is durable.
    pub commit_interval_ms: u64,
    /// Most bytes that the log may take; 0: as many as the file system has.
    pub bytes_max: u64,
    /// Threads that read data which is not in memory. 0: the waiting thread reads.
    pub read_threads: usize,
    /// Threads that opening works with: recovery, and building indexes.
    pub open_threads: usize,
    /// Percentage of the log's bytes that should be live. The cleaner works as long as they are
    /// fewer; the higher, the less space and the more work.
    pub live_percent_target: u32,
    /// Segments that the log must have for the cleaner to keep old records apart from young ones: in
    /// a small log one more segment that is being filled costs more than that gains.
    pub sort_segments_min: u32,
    /// Bytes appended between two marks.
    pub mark_interval_bytes: u64,
    /// Most bytes, of memory and of the log, that old versions for held snapshots take.
    pub versions_bytes_max: u64,
    /// For pauses and figures.
    pub clock: Arc<dyn Clock>,
    /// For the id of a new directory.
    pub random: Arc<dyn RandomSource>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 64 << 20,
            cache_bytes: 256 << 20,
            memory_bytes_max: u64::MAX,
            commit_interval_ms: 100,
            bytes_max: 0,
            read_threads: 4,
            open_threads: 1,
            live_percent_target: 75,
            sort_segments_min: 64,
            mark_interval_bytes: 16 << 10,
            versions_bytes_max: kauri_base::limits::SNAPSHOT_VERSIONS_BYTES_MAX,
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SeededRandom::from_entropy()),
        }
    }
}

impl Options {
    /// Most segments that the log may have, what the cleaner may take beyond the limit included.
    pub(crate) fn segments_max(&self) -> u32 {
        match self.bytes_max {
            0 => SEGMENTS_DEFAULT_MAX,
            bytes => {
                let segments = bytes / u64::from(self.segment_bytes);
                segments.min(u64::from(SEGMENTS_MAX - CLEANER_RESERVE)) as u32 + CLEANER_RESERVE
            }
        }
    }
}
