//! Reads by I/O threads: their order, the wake of each waiting operation, and shutdown.

use crate::common::{TempDir, matches_pattern, pattern_of, with_faults};
use kauri_base::{Access, Ticket};
use kauri_medium::cache::{Pattern, SegmentCache};
use kauri_medium::plain::PlainDirectory;
use kauri_medium::{CacheConfig, Directory, EpochDomain, Error, Medium, MediumKind, Result, Site};
use std::future::Future;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const SEGMENT: usize = 64 << 10;
const BLOCK: usize = 4096;

/// A medium whose reads wait at a gate.
struct Gated {
    inner: Arc<dyn Medium>,
    open: Mutex<bool>,
    opened: Condvar,
    arrived: AtomicUsize,
    /// The first blocks of the reads, in the order of arrival at the gate.
    order: Mutex<Vec<usize>>,
    /// The threads that performed reads.
    readers: Mutex<Vec<thread::ThreadId>>,
    /// Whether all data can be read without waiting at the gate.
    at_hand: AtomicBool,
    /// Runs during the next attempt to read without waiting.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Gated {
    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.opened.notify_all();
    }

    /// Waits until this many reads have reached the gate.
    fn wait_for_arrivals(&self, n: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.arrived.load(Ordering::Acquire) < n {
            if Instant::now() >= deadline {
                // Threads at the gate would delay the cache's end, and the test's.
                self.set(true);
                panic!("a read never comes");
            }
            thread::yield_now();
        }
    }
}

impl Medium for Gated {
    fn kind(&self) -> MediumKind {
        self.inner.kind()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn grow(&self, new_len: u64) -> Result<()> {
        self.inner.grow(new_len)
    }

    fn store(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.inner.store(offset, parts)
    }

    fn persist(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.inner.persist(offset, len, site)
    }

    fn drain(&self, site: Site) -> Result<()> {
        self.inner.drain(site)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.order.lock().unwrap().push(offset as usize / BLOCK);
        self.readers.lock().unwrap().push(thread::current().id());
        self.arrived.fetch_add(1, Ordering::Release);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
        self.inner.read(offset, into)
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        self.at_hand.load(Ordering::Acquire) && self.inner.read(offset, into).is_ok()
    }
}

/// A cache over a segment filled with its pattern, none of it in memory.
fn setup(io_threads: usize) -> (SegmentCache, Arc<Gated>, TempDir) {
    let dir = TempDir::new("tickets");
    let inner = PlainDirectory::open_with(dir.path(), with_faults(&Default::default()))
        .unwrap()
        .create_log("log", "t")
        .unwrap();
    inner.grow(SEGMENT as u64).unwrap();
    inner.store(0, &[IoSlice::new(&pattern_of(0, 0, 0, SEGMENT))]).unwrap();
    let gated = Arc::new(Gated {
        inner,
        open: Mutex::new(false),
        opened: Condvar::new(),
        arrived: AtomicUsize::new(0),
        order: Mutex::default(),
        readers: Mutex::default(),
        at_hand: AtomicBool::new(false),
        meanwhile: Mutex::default(),
    });
    let config = CacheConfig {
        segment_bytes: SEGMENT,
        block_bytes: BLOCK,
        segments_max: 1,
        io_threads,
        readahead_bytes: 4 * BLOCK,
        ..CacheConfig::default()
    };
    let medium = Arc::clone(&gated) as Arc<dyn Medium>;
    let cache = SegmentCache::new(medium, EpochDomain::new(), config).unwrap();
    cache.adopt_segment(0, SEGMENT as u32).unwrap();
    (cache, gated, dir)
}

fn miss(cache: &SegmentCache, offset: usize, len: usize, pattern: Pattern) -> Ticket {
    let mut guard = cache.domain().register();
    guard.enter();
    match cache.read_with(&guard, 0, offset as u32, len, pattern).unwrap() {
        Access::WouldBlock(ticket) => ticket,
        Access::Ready(_) => panic!("it is in memory"),
    }
}

fn is_in_memory(cache: &SegmentCache, offset: usize, len: usize) -> bool {
    let mut guard = cache.domain().register();
    guard.enter();
    match cache.try_read(&guard, 0, offset as u32, len).unwrap() {
        Some(bytes) => {
            assert!(matches_pattern(bytes, 0, 0, offset));
            true
        }
        None => false,
    }
}

/// Waits until all threads of the cache are idle. They then read only what is requested later.
fn wait_for_idle(cache: &SegmentCache, io_threads: u64) {
    while cache.stats().readers_idle < io_threads {
        thread::yield_now();
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

#[derive(Default)]
struct Woken {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// Waits as an executor does: it reads nothing itself and polls again only when woken. The first poll is
/// immediate.
fn as_an_executor(ticket: Ticket) -> impl FnOnce() -> kauri_base::Result<()> {
    let woken = Arc::new(Woken::default());
    let mut future = Box::pin(ticket);
    let mut ask = {
        let waker = Waker::from(Arc::clone(&woken));
        move || future.as_mut().poll(&mut Context::from_waker(&waker))
    };
    let mut answer = ask();
    move || loop {
        if let Poll::Ready(result) = answer {
            return result;
        }
        let (lock, patience) = (woken.woken.lock().unwrap(), Duration::from_secs(60));
        let waited = woken.changed.wait_timeout_while(lock, patience, |woken| !*woken).unwrap();
        assert!(!waited.1.timed_out(), "the waiter is not woken");
        let mut lock = waited.0;
        *lock = false;
        drop(lock);
        answer = ask();
    }
}

#[test]
fn a_blocking_waiter_performs_its_own_read() {
    let (cache, gate, _dir) = setup(2);
    gate.set(true);
    for (asked, block) in [0, 3, 6].into_iter().enumerate() {
        wait_for_idle(&cache, 2);
        let ticket = miss(&cache, block * BLOCK, 10, Pattern::Point);
        // Time for a thread to read, if it were requested to.
        (0..100).for_each(|_| thread::yield_now());
        ticket.wait().unwrap();
        assert!(is_in_memory(&cache, block * BLOCK, BLOCK));
        let readers = gate.readers.lock().unwrap();
        assert_eq!(*readers, vec![thread::current().id(); asked + 1]);
    }
    // The I/O threads read for an executor.
    as_an_executor(miss(&cache, 9 * BLOCK, 10, Pattern::Point))().unwrap();
    assert_ne!(gate.readers.lock().unwrap().pop(), Some(thread::current().id()));
}

#[test]
fn several_requested_reads_run_at_once_for_any_waiter() {
    // With `late`, threads have begun all reads but one before the first wait. Repeated, because a thread may
    // be as fast as the waiter.
    let cases = [(1, false), (2, false), (3, false), (2, true), (3, true)];
    for (blocks, late) in cases.into_iter().cycle().take(20 * cases.len()) {
        let (cache, gate, _dir) = setup(3);
        wait_for_idle(&cache, 3);
        let all = (0..blocks).map(|n| miss(&cache, 3 * n * BLOCK, 10, Pattern::Point));
        let mut tickets: Vec<Ticket> = all.collect();
        if late {
            gate.wait_for_arrivals(blocks - 1);
        }
        // Waits for the first one only, as a caller does that retries all reads later.
        let first = tickets.swap_remove(0);
        let waiter = thread::spawn(move || first.wait());
        gate.wait_for_arrivals(blocks);
        gate.set(true);
        waiter.join().unwrap().unwrap();
        tickets.iter().for_each(|ticket| ticket.wait().unwrap());
        assert!((0..blocks).all(|n| is_in_memory(&cache, 3 * n * BLOCK, BLOCK)));
    }
}

#[test]
fn a_waiter_is_served_even_if_the_first_requester_is_dropped() {
    // Repeated, because the cache's thread may or may not be faster than the waiter.
    for _ in 0..20 {
        let (cache, gate, _dir) = setup(1);
        gate.set(true);
        let cache = Arc::new(cache);
        wait_for_idle(&cache, 1);
        let (waits, waiting) = mpsc::channel();
        let other = Arc::clone(&cache);
        // While the first ticket tries to read without waiting, the second begins to wait.
        *gate.meanwhile.lock().unwrap() = Some(Box::new(move || {
            waits.send(as_an_executor(miss(&other, 0, 10, Pattern::Point))).unwrap();
        }));
        drop(miss(&cache, 0, 10, Pattern::Point));
        waiting.recv().unwrap()().unwrap();
        assert!(is_in_memory(&cache, 0, BLOCK));
        // A caller that only starts the read.
        miss(&cache, 3 * BLOCK, 10, Pattern::Point).begin();
        while !is_in_memory(&cache, 3 * BLOCK, 1) {
            thread::yield_now();
        }
    }
}

#[test]
fn cached_file_pages_are_read_without_a_ticket() {
    let (cache, gate, _dir) = setup(1);
    gate.at_hand.store(true, Ordering::Release);
    let mut guard = cache.domain().register();
    guard.enter();
    for (offset, len, pattern) in [
        (100, 50, Pattern::Point),
        (BLOCK - 1, 2, Pattern::Behind),
        (5 * BLOCK, 2 * BLOCK, Pattern::Point),
    ] {
        let Access::Ready(bytes) = cache.read_with(&guard, 0, offset as u32, len, pattern).unwrap()
        else {
            panic!("a ticket for what was at hand")
        };
        assert!(matches_pattern(bytes, 0, 0, offset));
    }
    // If only a part is requested at first, the whole read is performed.
    let part = cache.read_part(&guard, 0, 9 * BLOCK as u32, 10, 2 * BLOCK).unwrap();
    assert!(matches!(part, Access::Ready(bytes) if bytes.len() == 10));
    assert!(is_in_memory(&cache, 9 * BLOCK, 2 * BLOCK));
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.reads, stats.read_bytes), (0, 4, 6 * BLOCK as u64));
    // A scan prefetches, which is the I/O threads' work.
    let ticket = cache.read_with(&guard, 0, 12 * BLOCK as u32, 10, Pattern::Scan).unwrap();
    assert!(matches!(ticket, Access::WouldBlock(_)));
    gate.set(true);
}

#[test]
fn one_read_wakes_all_waiters_of_a_block() {
    let (cache, gate, _dir) = setup(2);
    let tickets: Vec<Ticket> = (0..8).map(|i| miss(&cache, i * 500, 100, Pattern::Point)).collect();
    let waiters: Vec<_> =
        tickets.into_iter().map(|ticket| thread::spawn(move || ticket.wait())).collect();
    gate.wait_for_arrivals(1);
    gate.set(true);
    for waiter in waiters {
        waiter.join().unwrap().unwrap();
    }
    assert!(is_in_memory(&cache, 0, BLOCK));
    assert_eq!(cache.stats().reads, 1);
}

#[test]
fn a_ticket_is_a_future_that_wakes_its_executor() {
    let (cache, gate, _dir) = setup(1);
    let ticket = miss(&cache, 0, 10, Pattern::Point);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(ticket);
    for _ in 0..3 {
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(wakes.0.load(Ordering::Acquire), 0);
    gate.set(true);
    while wakes.0.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
    assert!(matches!(future.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    assert!(is_in_memory(&cache, 0, BLOCK));
    assert_eq!(wakes.0.load(Ordering::Acquire), 1, "once, however often it was polled");
}

#[test]
fn reads_of_different_places_run_at_once() {
    let (cache, gate, _dir) = setup(3);
    let waiters =
        [0, 5, 10].map(|block| as_an_executor(miss(&cache, block * BLOCK, 10, Pattern::Point)));
    // All three are at the gate together.
    gate.wait_for_arrivals(3);
    gate.set(true);
    waiters.into_iter().for_each(|wait| wait().unwrap());
    assert!([0, 5, 10].iter().all(|block| is_in_memory(&cache, block * BLOCK, BLOCK)));
}

#[test]
fn a_long_read_waits_for_all_its_pieces() {
    let (cache, gate, _dir) = setup(2);
    gate.set(true);
    miss(&cache, 4 * BLOCK, 10, Pattern::Point).wait().unwrap();
    miss(&cache, 9 * BLOCK, 10, Pattern::Point).wait().unwrap();
    let mut asked = 0;
    while !is_in_memory(&cache, 0, SEGMENT) {
        asked += 1;
        miss(&cache, 0, SEGMENT, Pattern::Point).wait().unwrap();
    }
    assert!(asked <= 3, "{asked}: once for each piece at most");
    assert_eq!(cache.stats().reads, 5);
}

#[test]
fn prefetched_data_needs_no_wait() {
    let (cache, gate, _dir) = setup(1);
    gate.set(true);
    cache.prefetch(0, 2 * BLOCK as u32, 3 * BLOCK);
    cache.prefetch(0, 2 * BLOCK as u32, 3 * BLOCK);
    cache.prefetch(0, u32::MAX, 1);
    while !is_in_memory(&cache, 2 * BLOCK, 3 * BLOCK) {
        thread::yield_now();
    }
    assert!(!is_in_memory(&cache, BLOCK, 1) && !is_in_memory(&cache, 5 * BLOCK, 1));
    assert_eq!((cache.stats().reads, cache.stats().misses), (1, 0));
    // No data beyond the segment's end is read.
    miss(&cache, 15 * BLOCK, 10, Pattern::Scan).wait().unwrap();
    assert_eq!(cache.stats().read_bytes, 4 * BLOCK as u64);
}

#[test]
fn awaited_reads_come_before_prefetches() {
    let (cache, gate, _dir) = setup(1);
    let fetch = |block: usize| cache.prefetch(0, (block * BLOCK) as u32, BLOCK);
    fetch(0);
    gate.wait_for_arrivals(1);
    [2, 4, 6].into_iter().for_each(fetch);
    // A read without any request, and one that is already queued.
    let waiters =
        [8, 6].map(|block| as_an_executor(miss(&cache, block * BLOCK, 10, Pattern::Point)));
    gate.set(true);
    waiters.into_iter().for_each(|wait| wait().unwrap());
    while !is_in_memory(&cache, 4 * BLOCK, 1) {
        thread::yield_now();
    }
    assert_eq!(*gate.order.lock().unwrap(), [0, 8, 6, 2, 4]);
}

#[test]
fn prefetches_leave_a_thread_for_awaited_reads() {
    // A read without any request, and one that is already queued.
    for wanted in [8, 4] {
        let (cache, gate, _dir) = setup(2);
        [0, 2, 4].into_iter().for_each(|block| cache.prefetch(0, block * BLOCK as u32, BLOCK));
        gate.wait_for_arrivals(1);
        let wait = as_an_executor(miss(&cache, wanted * BLOCK, 10, Pattern::Point));
        // While the first is still at the gate.
        gate.wait_for_arrivals(2);
        assert_eq!(*gate.order.lock().unwrap(), [0, wanted]);
        gate.set(true);
        wait().unwrap();
        while ![2, 4].iter().all(|block| is_in_memory(&cache, block * BLOCK, 1)) {
            thread::yield_now();
        }
    }
}

#[test]
fn closing_the_cache_fails_its_waiters() {
    let (cache, gate, _dir) = setup(1);
    let started = as_an_executor(miss(&cache, 0, 10, Pattern::Point));
    gate.wait_for_arrivals(1);
    let queued = as_an_executor(miss(&cache, 8 * BLOCK, 10, Pattern::Point));
    let waiters = [started, queued].map(thread::spawn);
    // Closing waits for its thread, which is at the gate; waiters do not.
    let closing = thread::spawn(move || drop(cache));
    for waiter in waiters {
        let error = waiter.join().unwrap().unwrap_err();
        assert_eq!(error, kauri_base::Error::from(Error::Closed));
    }
    gate.set(true);
    closing.join().unwrap();
    assert_eq!(gate.arrived.load(Ordering::Acquire), 1, "what was queued is not read any more");
}

#[test]
fn memory_under_a_guard_outlives_the_cache() {
    let (cache, gate, _dir) = setup(2);
    gate.set(true);
    let domain = Arc::clone(cache.domain());
    let mut guard = domain.register();
    guard.enter();
    while !is_in_memory(&cache, 0, SEGMENT) {
        miss(&cache, 0, SEGMENT, Pattern::Point).wait().unwrap();
    }
    let Access::Ready(bytes) = cache.read(&guard, 0, 0, SEGMENT).unwrap() else { panic!() };
    drop(cache);
    for _ in 0..3 {
        domain.collect();
    }
    assert!(matches_pattern(bytes, 0, 0, 0));
    drop(domain);
    assert!(matches_pattern(bytes, 0, 0, 0));
}

#[test]
fn the_cache_thread_runs_deferred_closures() {
    let (cache, _gate, _dir) = setup(1);
    let domain = Arc::clone(cache.domain());
    let mut guard = domain.register();
    guard.enter();
    let (done, doing) = mpsc::channel();
    for number in 0..200 {
        let done = done.clone();
        domain.defer(Box::new(move || done.send((number, thread::current().id())).unwrap()));
    }
    assert_eq!(doing.try_recv(), Err(mpsc::TryRecvError::Empty));
    guard.leave();
    for number in 0..200 {
        let (next, by) = doing.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(next, number);
        assert_ne!(by, thread::current().id(), "the deferring thread does not run the closure");
    }
    drop(cache);
}
