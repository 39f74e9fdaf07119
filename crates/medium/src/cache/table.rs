//! The segments by number, and their totals.

use super::segment::{Dropping, Segment};
use super::{CacheConfig, SegmentId};
use crate::direct::{Direct, Mapped};
use crate::sync::lock;
use crate::{Error, Latency, Result};
use kauri_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex, OnceLock};

/// Counters that any thread changes and that no decision about memory safety uses: all relaxed.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) budget: AtomicU64,
    pub(super) resident: AtomicU64,
    pub(super) evicting: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) evictions: AtomicU64,
    pub(super) revivals: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) read_errors: AtomicU64,
    pub(super) stores: AtomicU64,
    pub(super) stored_bytes: AtomicU64,
    pub(super) appended_bytes: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub(super) fn sub(counter: &AtomicU64, n: u64) {
    counter.fetch_sub(n, Ordering::Relaxed);
}

pub(super) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// A block by name, as the clock knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockId {
    pub(super) segment: SegmentId,
    pub(super) block: u32,
    /// The number of loads when it arrived.
    pub(super) arrived: u32,
}

pub(super) struct Table {
    /// Filled when a segment is first used, and kept.
    segments: Box<[OnceLock<Box<Segment>>]>,
    /// The highest used number plus one.
    high: AtomicU32,
    pub(super) segment_bytes: usize,
    pub(super) block_bytes: usize,
    first_byte: u64,
    /// The file's memory, if the segments are in it.
    direct: Option<Arc<dyn Direct>>,
    /// Blocks whose names the clock takes into its ring when it moves next.
    arrivals: Mutex<Vec<BlockId>>,
    /// Requests that were loaded: the clock's measure of time. Wraps around.
    loads: AtomicU32,
    pub(super) counters: Counters,
}

impl Table {
    pub(super) fn new(config: &CacheConfig, mapped: Option<Mapped>) -> Result<Self> {
        let block_bytes = config.block_bytes;
        if !block_bytes.is_power_of_two()
            || block_bytes < 4096
            || config.segment_bytes == 0
            || !config.segment_bytes.is_multiple_of(block_bytes)
            || u32::try_from(config.segment_bytes).is_err()
        {
            return Err(Error::Misuse("segment or block size"));
        }
        let counters = Counters::default();
        counters.budget.store(config.budget_bytes, Ordering::Relaxed);
        Ok(Table {
            segments: (0..config.segments_max).map(|_| OnceLock::new()).collect(),
            high: AtomicU32::new(0),
            segment_bytes: config.segment_bytes,
            block_bytes,
            first_byte: config.first_byte,
            direct: mapped.map(|mapped| mapped.0),
            arrivals: Mutex::default(),
            loads: AtomicU32::new(0),
            counters,
        })
    }

    #[inline]
    pub(super) fn get(&self, segment: SegmentId) -> Option<&Segment> {
        self.segments.get(segment as usize)?.get().map(|segment| &**segment)
    }

    /// The file's memory, if the segments are in it.
    #[inline]
    pub(super) fn direct(&self) -> Option<&dyn Direct> {
        self.direct.as_deref()
    }

    /// The added latency of reads.
    #[inline]
    pub(super) fn latency(&self) -> Option<&Latency> {
        self.direct.as_ref().map(|direct| direct.latency())
    }

    /// The segment, its memory reserved now if it never was.
    pub(super) fn get_or_reserve(&self, id: SegmentId) -> Result<&Segment> {
        let slot = self.segments.get(id as usize).ok_or(Error::OutOfBounds)?;
        if slot.get().is_none() {
            let segment = match &self.direct {
                None => Segment::reserve(self.segment_bytes, self.block_bytes.trailing_zeros())?,
                Some(direct) => {
                    let offset = self.file_offset(id, 0);
                    Segment::of_file(&**direct, offset, self.segment_bytes)?
                }
            };
            // If another thread was faster, its segment stays and this one goes.
            let _ = slot.set(Box::new(segment));
            self.high.fetch_max(id + 1, Ordering::Release);
        }
        self.get(id).ok_or(Error::OutOfBounds)
    }

    /// All segments that were ever used.
    pub(super) fn used(&self) -> impl Iterator<Item = &Segment> {
        (0..self.high.load(Ordering::Acquire)).filter_map(|id| self.get(id))
    }

    /// The position of a segment's offset in the file.
    pub(super) fn file_offset(&self, segment: SegmentId, offset: u32) -> u64 {
        self.first_byte + u64::from(segment) * self.segment_bytes as u64 + u64::from(offset)
    }

    /// Counts blocks that became resident, and passes untracked ones to the clock.
    pub(super) fn arrived(&self, segment: SegmentId, count: u32, untracked: &[u32]) {
        add(&self.counters.resident, u64::from(count) * self.block_bytes as u64);
        if !untracked.is_empty() {
            let arrived = self.loads.load(Ordering::Relaxed);
            let names = untracked.iter().map(|block| BlockId { segment, block: *block, arrived });
            lock(&self.arrivals).extend(names);
        }
    }

    /// Counts a request whose blocks arrive next.
    pub(super) fn count_load(&self) {
        self.loads.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of loaded requests since a block arrived.
    pub(super) fn loads_since(&self, name: &BlockId) -> u32 {
        self.loads.load(Ordering::Relaxed).wrapping_sub(name.arrived)
    }

    /// Hands the names of new blocks to the clock.
    pub(super) fn take_arrivals(&self, into: &mut impl Extend<BlockId>) {
        let names = std::mem::take(&mut *lock(&self.arrivals));
        into.extend(names);
    }

    /// A deferred closure's work: settles a batch of marked blocks, neighbours together, and gives
    /// the names of those that stay back to the clock.
    pub(super) fn settle(&self, batch: &[BlockId]) {
        let (mut kept, mut dropping) = (Vec::new(), Vec::new());
        for run in batch.chunk_by(|a, b| a.segment == b.segment && a.block + 1 == b.block) {
            let Some(first) = run.first() else { continue };
            let Some(segment) = self.get(first.segment) else { continue };
            let blocks = first.block as usize..first.block as usize + run.len();
            segment.settle(blocks, &mut dropping, |block| kept.push(BlockId { block, ..*first }));
        }
        let dropped = Dropping::discard_all(dropping);
        let (marked, bytes) = (batch.len() as u64, self.block_bytes as u64);
        sub(&self.counters.resident, dropped * bytes);
        sub(&self.counters.evicting, marked * bytes);
        add(&self.counters.evictions, dropped);
        add(&self.counters.revivals, kept.len() as u64);
        lock(&self.arrivals).extend(kept);
    }
}
