//! [`SegmentCache`]: log segments in memory.
//!
//! A log address is a segment and an offset in it. Each segment has a range of memory of its own,
//! reserved on first use, so a record is contiguous however many blocks it spans, and reading it is
//! a look at its blocks' states and an addition. What doesn't fit the budget is given back to the
//! operating system block by block and read again from the medium when somebody wants it.

mod segment;

pub use segment::{SegmentStorer, SegmentWriter};

use crate::{EpochDomain, Guard, Medium, Result};
use kauri_base::Access;
use std::sync::Arc;

/// The number of a segment: its place in the log file.
pub type SegmentId = u32;

/// How a cache is made.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Bytes of a segment, a multiple of the block size. The log's format has it, so it can't change
    /// with the file.
    pub segment_bytes: usize,
    /// Bytes of a block: the unit of residency, a power of two and a multiple of 4096.
    pub block_bytes: usize,
    /// Most segments that the file may have.
    pub segments_max: u32,
    /// Where segment 0 begins in the file.
    pub first_byte: u64,
    /// Memory for blocks. More may be used for a while when nothing can be given back.
    pub budget_bytes: u64,
    /// Threads that read blocks. With 0 the block is read by whoever first polls or waits for the
    /// ticket, and eviction is done by whoever exceeds the budget.
    pub io_threads: usize,
    /// How far a scan's miss reads ahead.
    pub readahead_bytes: usize,
    /// First part of the threads' names.
    pub name: &'static str,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig {
            segment_bytes: 64 << 20,
            block_bytes: 16 << 10,
            segments_max: 1 << 20,
            first_byte: 0,
            budget_bytes: 256 << 20,
            io_threads: 4,
            readahead_bytes: 256 << 10,
            name: "cache",
        }
    }
}

/// How a reader goes through the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Here and there: a miss reads the blocks asked for.
    Point,
    /// Onwards: a miss reads ahead, and what it reads is the first to go.
    Scan,
}

/// What a cache has done and holds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CacheStats {
    /// The budget.
    pub budget_bytes: u64,
    /// Memory that blocks hold now, those included that wait for readers before they are given back.
    pub resident_bytes: u64,
    /// Of these: waiting for readers.
    pub evicting_bytes: u64,
    /// Of these: appended and not yet stored.
    pub unstored_bytes: u64,
    /// Reads answered from memory (of all caches that share the domain).
    pub hits: u64,
    /// Reads that got a ticket.
    pub misses: u64,
    /// Blocks given back.
    pub evictions: u64,
    /// Blocks that a reader wanted between being chosen and being given back.
    pub revivals: u64,
    /// Reads of the medium.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Reads of the medium that failed.
    pub read_errors: u64,
    /// Stores to the medium.
    pub stores: u64,
    /// Bytes of these.
    pub stored_bytes: u64,
    /// Bytes appended.
    pub appended_bytes: u64,
}

/// How tight memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// Within the budget.
    None,
    /// Beyond it, and blocks are being given back.
    Evicting,
    /// Beyond it, and nothing can be given back: everything is unstored or in use. Appending more
    /// only makes it worse: store, and let readers leave.
    Stuck,
}

/// The memory of one log file's segments.
///
/// A segment's life: *free* → [`open_segment`](Self::open_segment) → appended to through its
/// [`SegmentWriter`] → [`seal`](SegmentWriter::seal)ed → read → [`recycle`](Self::recycle)d → free.
/// Segments that a recovery finds in the file are [adopted](Self::adopt_segment) as sealed.
pub struct SegmentCache {
    inner: Arc<segment::Inner>,
}

impl SegmentCache {
    /// A cache over `medium` whose memory is protected by guards of `domain`.
    pub fn new(
        medium: Arc<dyn Medium>,
        domain: Arc<EpochDomain>,
        config: CacheConfig,
    ) -> Result<Self> {
        Ok(SegmentCache { inner: segment::Inner::new(medium, domain, config)? })
    }

    /// The guards' domain, for other things that readers look at.
    pub fn domain(&self) -> &Arc<EpochDomain> {
        &self.inner.domain
    }

    /// The log file.
    pub fn medium(&self) -> &Arc<dyn Medium> {
        &self.inner.medium
    }

    /// Opens a free segment for appending. The file must be long enough already
    /// ([`crate::Error::OutOfBounds`]).
    pub fn open_segment(&self, segment: SegmentId) -> Result<SegmentWriter> {
        self.inner.open_segment(segment)
    }

    /// Makes a free segment's first `end` bytes, which the file has, readable. It is sealed.
    pub fn adopt_segment(&self, segment: SegmentId, end: u32) -> Result<()> {
        self.inner.adopt_segment(segment, end)
    }

    /// Frees a sealed segment. The caller has unpublished every address in it; readers that entered
    /// before go on reading. When all have left, its contents are dropped, reading it answers
    /// [`crate::Error::OutOfBounds`], and `then` runs: only now may the file's bytes be overwritten.
    /// What was appended and never stored is gone.
    pub fn recycle(&self, segment: SegmentId, then: Box<dyn FnOnce() + Send>) -> Result<()> {
        self.inner.recycle(segment, then)
    }

    /// `len` bytes at an address, or a ticket if they have to be read first.
    ///
    /// Errors: the range isn't (all) appended, or the segment is free; the guard hasn't entered or is
    /// of another domain. An I/O error is what the ticket resolves to, and asking again tries again.
    #[inline]
    pub fn read<'g>(
        &self,
        guard: &'g Guard,
        segment: SegmentId,
        offset: u32,
        len: usize,
    ) -> Result<Access<&'g [u8]>> {
        self.inner.read(guard, segment, offset, len, Pattern::Point)
    }

    /// As [`SegmentCache::read`], telling how the reader goes on.
    #[inline]
    pub fn read_with<'g>(
        &self,
        guard: &'g Guard,
        segment: SegmentId,
        offset: u32,
        len: usize,
        pattern: Pattern,
    ) -> Result<Access<&'g [u8]>> {
        self.inner.read(guard, segment, offset, len, pattern)
    }

    /// The bytes if they are in memory. Never causes I/O.
    #[inline]
    pub fn try_read<'g>(
        &self,
        guard: &'g Guard,
        segment: SegmentId,
        offset: u32,
        len: usize,
    ) -> Result<Option<&'g [u8]>> {
        self.inner.try_read(guard, segment, offset, len)
    }

    /// Starts reading what of a range is not in memory. With no I/O threads: nothing.
    pub fn prefetch(&self, segment: SegmentId, offset: u32, len: usize) {
        self.inner.prefetch(segment, offset, len);
    }

    /// How far a segment has been appended; 0 if it is free.
    pub fn end(&self, segment: SegmentId) -> u32 {
        self.inner.end(segment)
    }

    /// Changes the budget. Eviction follows.
    pub fn set_budget(&self, bytes: u64) {
        self.inner.set_budget(bytes);
    }

    /// How tight memory is: for the engine's back-pressure.
    pub fn pressure(&self) -> Pressure {
        self.inner.pressure()
    }

    /// What it has done and holds.
    pub fn stats(&self) -> CacheStats {
        self.inner.stats()
    }
}
