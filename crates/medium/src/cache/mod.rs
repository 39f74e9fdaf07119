//! [`SegmentCache`]: log segments in memory.
//!
//! A log address is a segment and an offset in it. Each segment has its own range of memory, reserved on first use.
//! So a record is contiguous however many blocks it spans, and reading it takes a check of its blocks' states and
//! an addition. If the log file is memory, the segment's memory is the file's, and all data is present. Otherwise,
//! data beyond the budget is evicted block by block and read again from the medium on demand.

mod block;
#[cfg(test)]
mod block_tests;
mod evict;
mod load;
mod segment;
mod table;
mod writer;

pub use writer::{SealSites, SegmentStorer, SegmentWriter};

use crate::{Delayed, EpochDomain, Error, Guard, IoKind, Latency, Medium, Result};
use evict::Evictor;
use kauri_base::Access;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use load::Loader;
use std::thread::{self, JoinHandle};
use table::{Table, get, sub};

/// The number of a segment: its position in the log file.
pub type SegmentId = u32;

/// The configuration of a cache.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Bytes of a segment, a multiple of the block size. The log's format has it, so it can't change
    /// with the file.
    pub segment_bytes: usize,
    /// Bytes of a block: the unit of residency, a power of two and a multiple of 4096.
    pub block_bytes: usize,
    /// Most segments that the file may have.
    pub segments_max: u32,
    /// The offset of segment 0 in the file.
    pub first_byte: u64,
    /// Memory for blocks. It may be exceeded for a while when nothing can be evicted.
    pub budget_bytes: u64,
    /// Threads that read blocks. With 0, the thread that first polls or waits for the ticket reads the block, and
    /// the thread that exceeds the budget evicts.
    pub io_threads: usize,
    /// How far a scan's miss prefetches.
    pub readahead_bytes: usize,
    /// First part of the threads' names.
    pub name: &'static str,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig {
            segment_bytes: 64 << 20,
            block_bytes: 4 << 10,
            segments_max: 1 << 20,
            first_byte: 0,
            budget_bytes: 256 << 20,
            io_threads: 4,
            readahead_bytes: 256 << 10,
            name: "cache",
        }
    }
}

/// The access pattern of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Here and there: a miss reads the blocks asked for.
    Point,
    /// Forward: a miss prefetches, and prefetched blocks are evicted first.
    Scan,
    /// Directly after the previous read: a miss is like any other, and slow memory has prefetched it.
    Behind,
}

/// Counters and sizes of a cache.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CacheStats {
    /// The budget.
    pub budget_bytes: u64,
    /// Resident memory of blocks, including blocks that wait for readers before their eviction.
    pub resident_bytes: u64,
    /// Of these: waiting for readers.
    pub evicting_bytes: u64,
    /// Of these: appended and not yet stored.
    pub unstored_bytes: u64,
    /// Reads answered from memory (of all caches that share the domain).
    pub hits: u64,
    /// Reads that got a ticket.
    pub misses: u64,
    /// Evicted blocks.
    pub evictions: u64,
    /// Blocks that a reader used between their mark and their eviction.
    pub revivals: u64,
    /// Reads of the medium.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Reads of the medium that failed.
    pub read_errors: u64,
    /// Threads that read and have nothing to do just now.
    pub readers_idle: u64,
    /// Stores to the medium.
    pub stores: u64,
    /// Bytes of these.
    pub stored_bytes: u64,
    /// Bytes appended.
    pub appended_bytes: u64,
}

/// The memory pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// Within the budget.
    None,
    /// Over the budget, and blocks are being evicted.
    Evicting,
    /// Over the budget, and nothing can be evicted: everything is unstored or in use. Appending makes it worse:
    /// store, and let readers leave.
    Stuck,
}

/// What the cache, its writers and its storers share.
struct Shared {
    /// Held by deferred closures too.
    table: Arc<Table>,
    medium: Arc<dyn Medium>,
    domain: Arc<EpochDomain>,
    evictor: Arc<Evictor>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Guards inside may still look at the segments' memory.
        let table = Arc::clone(&self.table);
        self.domain.defer(Box::new(move || drop(table)));
        self.domain.collect();
    }
}

/// The memory of one log file's segments.
///
/// A segment's life: *free* → [`open_segment`](Self::open_segment) → appended to through its
/// [`SegmentWriter`] → [`seal`](SegmentWriter::seal)ed → read → [`recycle`](Self::recycle)d → free.
/// Segments that a recovery finds in the file are [adopted](Self::adopt_segment) as sealed.
pub struct SegmentCache {
    shared: Arc<Shared>,
    loader: Arc<Loader>,
    threads: Vec<JoinHandle<()>>,
}

impl SegmentCache {
    /// A cache over `medium` whose memory is protected by guards of `domain`.
    pub fn new(
        medium: Arc<dyn Medium>,
        domain: Arc<EpochDomain>,
        config: CacheConfig,
    ) -> Result<Self> {
        let table = Arc::new(Table::new(&config, medium.mapped())?);
        // Nothing is loaded and nothing evicted where the file's own memory is read.
        let threaded = config.io_threads > 0 && table.direct().is_none();
        let evictor = Arc::new(Evictor::new(Arc::clone(&table), Arc::clone(&domain), threaded));
        let loader = Arc::new(Loader::new(
            Arc::clone(&table),
            Arc::clone(&medium),
            Arc::clone(&domain),
            Arc::clone(&evictor),
            config.io_threads,
            config.readahead_bytes,
        ));
        let shared = Arc::new(Shared { table, medium, domain, evictor });
        let mut cache = SegmentCache { shared, loader, threads: Vec::new() };
        if threaded {
            cache.start_threads(&config)?;
        }
        Ok(cache)
    }

    fn start_threads(&mut self, config: &CacheConfig) -> Result<()> {
        for number in 0..config.io_threads {
            let loader = Arc::clone(&self.loader);
            self.start(format!("{}-read-{number}", config.name), move || loader.run())?;
        }
        let evictor = Arc::clone(&self.shared.evictor);
        self.start(format!("{}-evict", config.name), move || evictor.run())
    }

    fn start(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(name).spawn(work);
        self.threads.push(thread.map_err(|e| Error::from_io(IoKind::Open, &e))?);
        Ok(())
    }

    /// The guards' domain, for other shared objects.
    pub fn domain(&self) -> &Arc<EpochDomain> {
        &self.shared.domain
    }

    /// Whether the segments are the file's own memory: then published bytes are durable, and nothing is stored
    /// later, loaded or evicted.
    #[inline]
    pub fn is_direct(&self) -> bool {
        self.shared.table.direct().is_some()
    }

    /// The added latency of the file's own memory, if the segments are in it.
    pub fn latency(&self) -> Option<&Latency> {
        self.shared.table.latency()
    }

    /// The log file.
    pub fn medium(&self) -> &Arc<dyn Medium> {
        &self.shared.medium
    }

    /// Bytes that the file must have for `segment` to be opened.
    pub fn file_len_for(&self, segment: SegmentId) -> u64 {
        self.shared.table.file_offset(segment, self.shared.table.segment_bytes as u32)
    }

    /// Opens a free segment for appending. The file must be long enough already
    /// ([`Error::OutOfBounds`]).
    pub fn open_segment(&self, segment: SegmentId) -> Result<SegmentWriter> {
        if self.file_len_for(segment) > self.shared.medium.len() {
            return Err(Error::OutOfBounds);
        }
        let token = self.shared.table.get_or_reserve(segment)?.open()?;
        Ok(SegmentWriter::new(Arc::clone(&self.shared), segment, token))
    }

    /// Makes a free segment's first `end` bytes, which the file has, readable. The segment is sealed.
    pub fn adopt_segment(&self, segment: SegmentId, end: u32) -> Result<()> {
        let table = &self.shared.table;
        if end as usize > table.segment_bytes
            || table.file_offset(segment, end) > self.shared.medium.len()
        {
            return Err(Error::OutOfBounds);
        }
        table.get_or_reserve(segment)?.adopt(end)
    }

    /// Frees a sealed segment. The caller has unpublished every address in it; readers that entered before
    /// continue. After all have left, its contents are dropped, reads return [`Error::OutOfBounds`], and `then`
    /// runs: only now may the file's bytes be overwritten, and the segment opened again. Appended bytes that were
    /// never stored are lost.
    pub fn recycle(&self, segment: SegmentId, then: Box<dyn FnOnce() + Send>) -> Result<()> {
        let table = Arc::clone(&self.shared.table);
        table.get(segment).ok_or(Error::OutOfBounds)?.begin_recycling()?;
        // The second closure is deferred by the first through a weak reference: a closure must not
        // keep its own domain alive.
        let domain = Arc::downgrade(&self.shared.domain);
        self.shared.domain.defer(Box::new(move || {
            if let Some(memory) = table.get(segment) {
                memory.close();
            }
            let discard = move || {
                if let Some(memory) = table.get(segment) {
                    let blocks = u64::from(memory.discard());
                    sub(&table.counters.resident, blocks * table.block_bytes as u64);
                }
                then();
            };
            match domain.upgrade() {
                Some(domain) => domain.defer(Box::new(discard)),
                // The domain is being dropped: there is no guard left to wait for.
                None => discard(),
            }
        }));
        Ok(())
    }

    /// `len` bytes at an address, or a ticket if they have to be read first.
    ///
    /// Errors: the range isn't (all) appended, or the segment is free ([`Error::OutOfBounds`]); the
    /// guard hasn't entered or is of another domain. An I/O error is what the ticket resolves to, and
    /// asking again tries again.
    #[inline]
    pub fn read<'g>(
        &self,
        guard: &'g Guard,
        segment: SegmentId,
        offset: u32,
        len: usize,
    ) -> Result<Access<&'g [u8]>> {
        self.read_with(guard, segment, offset, len, Pattern::Point)
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
        match self.try_read(guard, segment, offset, len)? {
            Some(bytes) => {
                if pattern != Pattern::Behind
                    && let Some(latency) = self.shared.table.latency()
                {
                    latency.take(Delayed::Read, 1);
                }
                Ok(Access::Ready(bytes))
            }
            None => self.miss(guard, segment, offset, (len, len), pattern),
        }
    }

    /// Prefetches the cache lines of this range if it is in memory, so that they arrive while the first one is
    /// waited for.
    #[inline]
    pub fn prefetch_lines(&self, segment: SegmentId, offset: u32, len: usize) {
        if let Some(memory) = self.shared.table.get(segment) {
            memory.prefetch_lines(offset, len);
        }
    }

    /// Hints that this range is not needed again, except by current readers: its blocks are evicted before others.
    #[inline]
    pub fn fade(&self, segment: SegmentId, offset: u32, len: usize) {
        if len >= self.shared.table.block_bytes
            && !self.is_direct()
            && let Some(memory) = self.shared.table.get(segment)
        {
            memory.fade(offset, len);
        }
    }

    /// As [`SegmentCache::read`], for the first `len` of some `whole` bytes that will be wanted too: a
    /// miss reads all of them, as far as they have been appended.
    #[inline]
    pub fn read_part<'g>(
        &self,
        guard: &'g Guard,
        segment: SegmentId,
        offset: u32,
        len: usize,
        whole: usize,
    ) -> Result<Access<&'g [u8]>> {
        match self.try_read(guard, segment, offset, len)? {
            Some(bytes) => {
                if let Some(latency) = self.shared.table.latency() {
                    latency.take(Delayed::Read, 1);
                }
                Ok(Access::Ready(bytes))
            }
            None => {
                let appended = self.end(segment).saturating_sub(offset) as usize;
                let whole = whole.min(appended).max(len);
                self.miss(guard, segment, offset, (len, whole), Pattern::Point)
            }
        }
    }

    #[cold]
    fn miss<'g>(
        &self,
        guard: &'g Guard,
        segment: SegmentId,
        offset: u32,
        (len, whole): (usize, usize),
        pattern: Pattern,
    ) -> Result<Access<&'g [u8]>> {
        let shift = self.shared.table.block_bytes.trailing_zeros();
        let last = (offset as usize + whole - 1) >> shift;
        let blocks = offset as usize >> shift..last + 1;
        if pattern != Pattern::Scan
            && self.loader.load_now(guard, segment, blocks.clone())
            && let Some(bytes) = self.try_read(guard, segment, offset, len)?
        {
            return Ok(Access::Ready(bytes));
        }
        Ok(Access::WouldBlock(self.loader.ticket(segment, blocks, pattern)))
    }

    /// The bytes if they are in memory. Never causes I/O. Errors as [`SegmentCache::read`].
    #[inline]
    pub fn try_read<'g>(
        &self,
        guard: &'g Guard,
        segment: SegmentId,
        offset: u32,
        len: usize,
    ) -> Result<Option<&'g [u8]>> {
        if !guard.protects(&self.shared.domain) {
            return Err(Error::Misuse("reading without a guard inside the cache's domain"));
        }
        let Some(memory) = self.shared.table.get(segment) else { return Err(Error::OutOfBounds) };
        let found = memory.look(guard, offset, len)?;
        if found.is_some() {
            guard.count_hit();
        }
        Ok(found)
    }

    /// The bytes of a range from its beginning as far as they are in memory, perhaps none. Never causes I/O and
    /// never counts as use: for readers that read once and bypass the cache for the rest. Errors: the guard has not
    /// entered or is of another domain.
    pub fn peek<'g>(
        &self,
        guard: &'g Guard,
        segment: SegmentId,
        offset: u32,
        len: usize,
    ) -> Result<&'g [u8]> {
        if !guard.protects(&self.shared.domain) {
            return Err(Error::Misuse("reading without a guard inside the cache's domain"));
        }
        let memory = self.shared.table.get(segment);
        Ok(memory.map_or(&[], |memory| memory.peek(guard, offset, len)))
    }

    /// Starts reading what of a range is not in memory. With no I/O threads: nothing.
    pub fn prefetch(&self, segment: SegmentId, offset: u32, len: usize) {
        let Some(memory) = self.shared.table.get(segment) else { return };
        let len = len.min(memory.end().saturating_sub(offset) as usize);
        if len > 0 {
            self.loader.prefetch(segment, memory.blocks_of(offset, len));
        }
    }

    /// The appended length of a segment; 0 if it is free.
    pub fn end(&self, segment: SegmentId) -> u32 {
        self.shared.table.get(segment).map_or(0, |memory| memory.end())
    }

    /// How often blocks of a segment were read from the medium since it became readable. While it is 0, everything
    /// in it is as it was appended. Bytes that were checked when it was `n` are unchanged as long as it is `n`.
    #[inline]
    pub fn loads(&self, segment: SegmentId) -> u32 {
        self.shared.table.get(segment).map_or(0, |memory| memory.loads())
    }

    /// Memory for blocks, as was last set.
    pub fn budget(&self) -> u64 {
        get(&self.shared.table.counters.budget)
    }

    /// Memory that blocks hold now: [`CacheStats::resident_bytes`].
    #[inline]
    pub fn resident(&self) -> u64 {
        get(&self.shared.table.counters.resident)
    }

    /// Changes the budget. Eviction follows.
    pub fn set_budget(&self, bytes: u64) {
        self.shared.table.counters.budget.store(bytes, Ordering::Relaxed);
        self.shared.evictor.relieve();
    }

    /// The memory pressure, for the engine's back-pressure.
    pub fn pressure(&self) -> Pressure {
        self.shared.evictor.pressure()
    }

    /// Counters and sizes.
    pub fn stats(&self) -> CacheStats {
        let table = &self.shared.table;
        let counters = &table.counters;
        let unstored = |memory: &segment::Segment| {
            let stored = u64::from(memory.stored());
            u64::from(memory.end()).saturating_sub(stored)
        };
        CacheStats {
            budget_bytes: get(&counters.budget),
            resident_bytes: get(&counters.resident),
            evicting_bytes: get(&counters.evicting),
            unstored_bytes: table.used().map(unstored).sum(),
            hits: self.shared.domain.hits(),
            misses: get(&counters.misses),
            evictions: get(&counters.evictions),
            revivals: get(&counters.revivals),
            reads: get(&counters.reads),
            read_bytes: get(&counters.read_bytes),
            read_errors: get(&counters.read_errors),
            readers_idle: self.loader.idle() as u64,
            stores: get(&counters.stores),
            // Appending stores where the segments are the file's own memory.
            stored_bytes: get(&counters.stored_bytes)
                + if self.is_direct() { get(&counters.appended_bytes) } else { 0 },
            appended_bytes: get(&counters.appended_bytes),
        }
    }
}

impl Drop for SegmentCache {
    fn drop(&mut self) {
        self.loader.close();
        self.shared.evictor.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}
