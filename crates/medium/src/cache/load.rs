//! Reads blocks that are not in memory, and the tickets that wait for them.
//!
//! A request is a range of adjacent blocks of one segment. A miss of a block that a request already covers gets
//! that request's ticket. A finished request is forgotten: its ticket, like any unknown ticket, reports that asking
//! again is worthwhile. Only failures are remembered, for a while. A failure makes the blocks empty again, so the
//! next miss makes a new request.
//!
//! First, a miss of a few blocks is read by the calling thread if the medium has them without waiting
//! ([`Medium::read_now`]): passing the request to another thread takes longer than the copy.
//!
//! A thread that blocks for one request reads it itself, which saves two context switches. So the latest awaited
//! request is passed to the threads only when the next one comes, or when its waiter turns out not to block.
//!
//! Awaited requests are read first, in request order. Prefetches are read after all of them, and never occupy all
//! threads. So a miss waits only for earlier misses, not for prefetches.

use super::evict::Evictor;
use super::table::{Table, add};
use super::{Pattern, SegmentId};
use crate::sync::lock;
use crate::{EpochDomain, Error, Guard, IoKind, Medium, Result};
use kauri_base::Ticket;
use kauri_base::sync::atomic::{AtomicBool, Ordering};
use kauri_base::sync::{Arc, Condvar, Mutex, PoisonError};
use kauri_base::ticket::TicketSource;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::task::{Poll, Waker};

/// Bytes of one read at most: beyond that several threads do better.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes that the thread with the miss copies itself: some 50 us.
const NOW_BYTES_MAX: usize = 256 << 10;
/// The error of a read that would have waited. It is never returned.
const NOT_NOW: Error = Error::Io { kind: IoKind::Read, errno: libc::EAGAIN };
/// Number of failures that are remembered for waiters that have not asked for their ticket yet.
const FAILURES_MAX: usize = 1024;
/// The ticket's number where there is nothing to wait for: no request has it.
const NOTHING: u64 = 0;
/// Prefetches beyond this number are not made.
const PREFETCHES_MAX: usize = 256;

struct Request {
    segment: SegmentId,
    blocks: Range<usize>,
    /// Number of blocks, from the first, with a waiter.
    wanted: usize,
    started: bool,
    /// Whether it was started as a prefetch.
    started_ahead: bool,
    wakers: Vec<Waker>,
}

/// A started request: blocks of a segment, of which this many have a waiter.
type Started = (SegmentId, Range<usize>, usize);

#[derive(Default)]
struct Requests {
    last_number: u64,
    open: HashMap<u64, Request>,
    /// Which open request covers a block.
    covering: HashMap<(SegmentId, usize), u64>,
    /// Awaited requests that were not started yet, for the threads. Here and below some may have been started
    /// anyway.
    waiting: VecDeque<u64>,
    /// Prefetches.
    ahead: VecDeque<u64>,
    /// Whether the threads have not been told yet of one request that will have a waiter.
    put_off: bool,
    /// Number of unfinished prefetches.
    reading_ahead: usize,
    /// Number of idle threads: a busy one looks for work before it waits, and needs no wake.
    idle: usize,
    failures: BTreeMap<u64, Error>,
}

pub(super) struct Loader {
    table: Arc<Table>,
    medium: Arc<dyn Medium>,
    domain: Arc<EpochDomain>,
    evictor: Arc<Evictor>,
    threaded: bool,
    readahead_blocks: usize,
    /// Threads that may read ahead at once.
    ahead_max: usize,
    closed: AtomicBool,
    requests: Mutex<Requests>,
    work: Condvar,
}

impl Loader {
    pub(super) fn new(
        table: Arc<Table>,
        medium: Arc<dyn Medium>,
        domain: Arc<EpochDomain>,
        evictor: Arc<Evictor>,
        threads: usize,
        readahead_bytes: usize,
    ) -> Self {
        let readahead_blocks = readahead_bytes / table.block_bytes;
        Loader {
            table,
            medium,
            domain,
            evictor,
            threaded: threads > 0,
            readahead_blocks,
            ahead_max: threads.saturating_sub(1).max(1),
            closed: AtomicBool::new(false),
            requests: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// A ticket for blocks of a segment, at least one of which was missing.
    pub(super) fn ticket(
        self: &Arc<Self>,
        segment: SegmentId,
        blocks: Range<usize>,
        pattern: Pattern,
    ) -> Ticket {
        add(&self.table.counters.misses, 1);
        let mut requests = lock(&self.requests);
        let ahead = if pattern == Pattern::Scan { self.readahead_blocks } else { 0 };
        let number = self.request(&mut requests, segment, blocks, ahead);
        drop(requests);
        Ticket::new(Arc::clone(self) as Arc<dyn TicketSource>, number)
    }

    /// Prefetches blocks.
    pub(super) fn prefetch(&self, segment: SegmentId, blocks: Range<usize>) {
        let mut requests = lock(&self.requests);
        if self.threaded && requests.open.len() < PREFETCHES_MAX {
            self.request(&mut requests, segment, blocks.start..blocks.start, blocks.len());
        }
    }

    /// Makes requests for missing blocks of `blocks` and of `ahead`, and returns one that the caller must wait for
    /// before it asks again.
    fn request(
        &self,
        requests: &mut Requests,
        segment: SegmentId,
        blocks: Range<usize>,
        ahead: usize,
    ) -> u64 {
        let Some(memory) = self.table.get(segment) else { return NOTHING };
        let mut answer = NOTHING;
        let in_use = (memory.end() as usize).div_ceil(self.table.block_bytes);
        let wanted_end = blocks.end;
        let end = (blocks.end + ahead).min(in_use);
        let most = REQUEST_BYTES_MAX / self.table.block_bytes;
        let mut next = blocks.start;
        while let Some(first) = memory.first_missing(next.min(end)..end) {
            if let Some(number) = requests.covering.get(&(segment, first)).copied() {
                if first < wanted_end {
                    requests.await_block(number, first);
                    answer = number;
                }
                next = first + 1;
                continue;
            }
            let mut last = first + 1;
            while last < end
                && last - first < most.max(1)
                && memory.first_missing(last..last + 1).is_some()
                && !requests.covering.contains_key(&(segment, last))
            {
                last += 1;
            }
            let wanted = wanted_end.clamp(first, last) - first;
            let number = requests.add(segment, first..last, wanted);
            if wanted > 0 {
                answer = number;
            }
            next = last;
            // What is put off is put off still: there is a thread for each other one.
            if self.threaded && (wanted == 0 || requests.put_off()) {
                self.tell(requests);
            }
        }
        answer
    }

    /// Loads missing blocks if the medium has them without waiting and no thread is reading any of them. Returns
    /// whether it did; otherwise a ticket is needed.
    pub(super) fn load_now(&self, guard: &Guard, segment: SegmentId, blocks: Range<usize>) -> bool {
        let Some(memory) = self.table.get(segment) else { return false };
        // Without threads whoever waits reads anyway.
        if !self.threaded || blocks.len() * self.table.block_bytes > NOW_BYTES_MAX {
            return false;
        }
        let Some(first) = memory.first_missing(blocks.clone()) else { return true };
        let blocks = first..blocks.end;
        let number = {
            let mut requests = lock(&self.requests);
            let covering = &requests.covering;
            if blocks.clone().any(|block| covering.contains_key(&(segment, block))) {
                return false;
            }
            requests.add_started(segment, blocks.clone())
        };
        self.evictor.make_room();
        let wanted = blocks.len();
        let result = self.load_by(guard, segment, blocks, wanted, |at, into| {
            if self.medium.read_now(at, into) { Ok(()) } else { Err(NOT_NOW) }
        });
        let mut requests = lock(&self.requests);
        match result {
            Ok(()) => {
                let wakers = requests.finish(number, Ok(()));
                drop(requests);
                wakers.into_iter().for_each(Waker::wake);
                self.evictor.relieve();
                true
            }
            Err(_) => {
                // Who came upon it meanwhile may wait already, and not come back before it is done.
                if requests.start_later(number) || requests.put_off() {
                    self.tell(&requests);
                }
                false
            }
        }
    }

    /// A thread's work, until [`Loader::close`].
    pub(super) fn run(&self) {
        let mut requests = lock(&self.requests);
        loop {
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            requests = match requests.next(self.ahead_max) {
                Some(number) => {
                    drop(requests);
                    self.perform(number);
                    lock(&self.requests)
                }
                None => {
                    requests.idle += 1;
                    let mut requests =
                        self.work.wait(requests).unwrap_or_else(PoisonError::into_inner);
                    requests.idle -= 1;
                    requests
                }
            };
        }
    }

    /// Wakes a thread.
    fn tell(&self, requests: &Requests) {
        if requests.idle > 0 {
            self.work.notify_one();
        }
    }

    /// Threads that wait for work.
    pub(super) fn idle(&self) -> usize {
        lock(&self.requests).idle
    }

    /// Reads a request's blocks unless another thread does.
    fn perform(&self, number: u64) {
        let Some(started) = lock(&self.requests).start(number) else { return };
        self.read(number, started);
    }

    /// Reads the blocks of a request that the caller has started.
    fn read(&self, number: u64, (segment, blocks, wanted): Started) {
        self.evictor.make_room();
        let result = self.load(segment, blocks, wanted);
        let wakers = lock(&self.requests).finish(number, result);
        wakers.into_iter().for_each(Waker::wake);
        self.evictor.relieve();
    }

    fn load(&self, segment: SegmentId, blocks: Range<usize>, wanted: usize) -> Result<()> {
        let mut guard = self.domain.register();
        guard.enter();
        let read = |at, into: &mut [u8]| self.medium.read(at, into);
        let result = self.load_by(&guard, segment, blocks, wanted, read);
        if result.is_err() {
            add(&self.table.counters.read_errors, 1);
        }
        result
    }

    /// Loads blocks with this read function, which gets offsets in the file.
    fn load_by(
        &self,
        guard: &Guard,
        segment: SegmentId,
        blocks: Range<usize>,
        wanted: usize,
        read: impl Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(memory) = self.table.get(segment) else { return Ok(()) };
        let mut untracked = Vec::new();
        let counters = &self.table.counters;
        let (count, result) = memory.load(
            guard,
            blocks,
            wanted,
            |offset, into| {
                let done = read(self.table.file_offset(segment, offset), into);
                if done != Err(NOT_NOW) {
                    add(&counters.reads, 1);
                    add(&counters.read_bytes, into.len() as u64);
                }
                done
            },
            |block| untracked.push(block),
        );
        self.table.count_load();
        self.table.arrived(segment, count, &untracked);
        result
    }

    /// Ends the threads' work. Open tickets answer [`Error::Closed`].
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let mut requests = lock(&self.requests);
        let open = std::mem::take(&mut requests.open);
        requests.covering.clear();
        drop(requests);
        self.work.notify_all();
        open.into_values().flat_map(|request| request.wakers).for_each(Waker::wake);
    }
}

impl Requests {
    fn add(&mut self, segment: SegmentId, blocks: Range<usize>, wanted: usize) -> u64 {
        let number = self.open(segment, blocks, wanted, false);
        let queue = if wanted > 0 { &mut self.waiting } else { &mut self.ahead };
        queue.push_back(number);
        number
    }

    /// A request that its maker performs, with a waiter for all of its blocks.
    fn add_started(&mut self, segment: SegmentId, blocks: Range<usize>) -> u64 {
        let wanted = blocks.len();
        self.open(segment, blocks, wanted, true)
    }

    fn open(
        &mut self,
        segment: SegmentId,
        blocks: Range<usize>,
        wanted: usize,
        started: bool,
    ) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.covering.extend(blocks.clone().map(|block| ((segment, block), number)));
        let (started_ahead, wakers) = (false, Vec::new());
        let request = Request { segment, blocks, wanted, started, started_ahead, wakers };
        self.open.insert(number, request);
        number
    }

    /// Delays telling the threads of a request. Returns whether another one was delayed, so that they must be told
    /// of one.
    fn put_off(&mut self) -> bool {
        std::mem::replace(&mut self.put_off, true)
    }

    /// Returns a started request to the threads. Returns whether it has a waiter.
    fn start_later(&mut self, number: u64) -> bool {
        self.open.get_mut(&number).is_some_and(|request| {
            request.started = false;
            self.waiting.push_back(number);
            !request.wakers.is_empty()
        })
    }

    fn is_to_do(&self, number: u64) -> bool {
        self.open.get(&number).is_some_and(|request| !request.started)
    }

    /// The next request for a thread to start.
    fn next(&mut self, ahead_max: usize) -> Option<u64> {
        while let Some(number) = self.waiting.pop_front() {
            if self.is_to_do(number) {
                return Some(number);
            }
        }
        while self.reading_ahead < ahead_max {
            let number = self.ahead.pop_front()?;
            if self.is_to_do(number) {
                return Some(number);
            }
        }
        None
    }

    /// Adds a waiter for a block of an open request.
    fn await_block(&mut self, number: u64, block: usize) {
        if let Some(request) = self.open.get_mut(&number) {
            if request.wanted == 0 && !request.started {
                self.waiting.push_back(number);
            }
            request.wanted = request.wanted.max(block + 1 - request.blocks.start);
        }
    }

    fn start(&mut self, number: u64) -> Option<Started> {
        let request = self.open.get_mut(&number).filter(|request| !request.started)?;
        request.started = true;
        request.started_ahead = request.wanted == 0;
        self.reading_ahead += usize::from(request.started_ahead);
        Some((request.segment, request.blocks.clone(), request.wanted))
    }

    fn finish(&mut self, number: u64, result: Result<()>) -> Vec<Waker> {
        if let Err(error) = result {
            self.failures.insert(number, error);
            if self.failures.len() > FAILURES_MAX {
                self.failures.pop_first();
            }
        }
        let Some(request) = self.open.remove(&number) else { return Vec::new() };
        self.reading_ahead -= usize::from(request.started_ahead);
        for block in request.blocks {
            self.covering.remove(&(request.segment, block));
        }
        request.wakers
    }
}

impl TicketSource for Loader {
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<kauri_base::Result<()>> {
        if !self.threaded {
            self.perform(number);
        }
        if self.closed.load(Ordering::Acquire) {
            return Poll::Ready(Err(Error::Closed.into()));
        }
        let requests = &mut *lock(&self.requests);
        if let Some(request) = requests.open.get_mut(&number) {
            if !request.wakers.iter().any(|known| known.will_wake(waker)) {
                request.wakers.push(waker.clone());
            }
            // Also one that was to be read ahead, which no thread may have been free for. Where a thread was
            // quicker and reads this one, another is put off: who waits here doesn't read that.
            let tell = std::mem::take(&mut requests.put_off) || !request.started;
            if tell {
                self.tell(requests);
            }
            return Poll::Pending;
        }
        match requests.failures.get(&number) {
            Some(error) => Poll::Ready(Err((*error).into())),
            None => Poll::Ready(Ok(())),
        }
    }

    fn before_blocking(&self, number: u64) {
        if !self.threaded {
            return;
        }
        let mut requests = lock(&self.requests);
        let Some(started) = requests.start(number) else { return };
        // Of the others the threads have been told.
        requests.put_off = false;
        drop(requests);
        self.read(number, started);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CacheConfig, SegmentCache};
    use super::*;
    use crate::Directory;
    use crate::plain::PlainDirectory;

    /// Blocks that have come meanwhile need no ticket, least of all one for what is to be read ahead for others.
    #[test]
    fn a_ticket_for_resident_data_is_ready() {
        let path = std::env::temp_dir().join(format!("kauri-load-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let medium = PlainDirectory::open(&path).unwrap().create_log("log", "t").unwrap();
        medium.grow(1 << 16).unwrap();
        let config = CacheConfig {
            segment_bytes: 1 << 16,
            segments_max: 1,
            io_threads: 1,
            ..CacheConfig::default()
        };
        let cache = SegmentCache::new(medium, EpochDomain::new(), config).unwrap();
        cache.adopt_segment(0, 1 << 16).unwrap();
        let loader = &cache.loader;
        loader.ticket(0, 0..1, Pattern::Point).wait().unwrap();
        // The thread has not been told of it.
        let ahead = lock(&loader.requests).add(0, 3..4, 0);
        loader.ticket(0, 0..1, Pattern::Point).wait().unwrap();
        assert!(lock(&loader.requests).is_to_do(ahead));
        drop(cache);
        std::fs::remove_dir_all(path).unwrap();
    }
}
