//! What can be chosen about an engine.

/// Options of [`crate::PmLog::open`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a segment, a power of two. Only for a new directory; an existing one keeps its own.
    pub segment_bytes: u32,
    /// Memory for documents.
    pub cache_bytes: u64,
    /// How long a commit that nobody waits for may stay undurable.
    pub commit_interval_ms: u64,
    /// Most bytes that the log may take; 0: as many as the file system has.
    pub bytes_max: u64,
    /// Threads that read what is not in memory. 0: whoever waits for a read performs it.
    pub read_threads: usize,
    /// Percentage of the log's bytes that should be live. The cleaner works as long as they are
    /// fewer; the higher, the less space and the more work.
    pub live_percent_target: u32,
    /// Bytes appended between two marks.
    pub mark_interval_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 64 << 20,
            cache_bytes: 256 << 20,
            commit_interval_ms: 100,
            bytes_max: 0,
            read_threads: 4,
            live_percent_target: 75,
            mark_interval_bytes: 16 << 10,
        }
    }
}
