//! Readers, an appender that recycles segments, eviction and loads run concurrently. Every byte is checked.

use crate::common::{Choices, TempDir, matches_pattern, pattern_of, with_faults};
use kauri_base::Access;
use kauri_medium::cache::SegmentCache;
use kauri_medium::plain::PlainDirectory;
use kauri_medium::{CacheConfig, Directory, EpochDomain, Guard, Medium, MediumKind, Result, Site};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const SEGMENT: usize = 64 << 10;
const BLOCK: usize = 4096;
const SEGMENTS: u32 = 32;
const BUDGET: usize = SEGMENTS as usize * SEGMENT / 8;

/// A reader's knowledge of a segment: its life and its published length, in one word.
#[derive(Default)]
struct Published(AtomicU64);

impl Published {
    fn set(&self, life: u32, end: u32) {
        self.0.store(u64::from(life) << 32 | u64::from(end), Ordering::Release);
    }

    fn get(&self) -> (u32, u32) {
        let word = self.0.load(Ordering::Acquire);
        ((word >> 32) as u32, word as u32)
    }
}

/// A medium that serves every third read at once; the I/O threads perform the others.
struct Sometimes(Arc<dyn Medium>, AtomicU64);

impl Medium for Sometimes {
    fn kind(&self) -> MediumKind {
        self.0.kind()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn grow(&self, new_len: u64) -> Result<()> {
        self.0.grow(new_len)
    }

    fn store(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.0.store(offset, parts)
    }

    fn persist(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.0.persist(offset, len, site)
    }

    fn drain(&self, site: Site) -> Result<()> {
        self.0.drain(site)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.0.read(offset, into)
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(3)
            && self.0.read(offset, into).is_ok()
    }
}

struct Setup {
    cache: SegmentCache,
    domain: Arc<EpochDomain>,
    published: Vec<Published>,
    done: AtomicBool,
    reads: AtomicU64,
    _dir: TempDir,
}

fn setup(io_threads: usize) -> Arc<Setup> {
    let dir = TempDir::new("stress");
    let medium = PlainDirectory::open_with(dir.path(), with_faults(&Default::default()))
        .unwrap()
        .create_log("log", "t")
        .unwrap();
    medium.grow(u64::from(SEGMENTS) * SEGMENT as u64).unwrap();
    let domain = EpochDomain::new();
    let config = CacheConfig {
        segment_bytes: SEGMENT,
        block_bytes: BLOCK,
        segments_max: SEGMENTS,
        budget_bytes: BUDGET as u64,
        io_threads,
        name: "stress",
        ..CacheConfig::default()
    };
    let medium = Arc::new(Sometimes(medium, AtomicU64::new(0)));
    let cache = SegmentCache::new(medium, Arc::clone(&domain), config).unwrap();
    let published = (0..SEGMENTS).map(|_| Published::default()).collect();
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    Arc::new(Setup { cache, domain, published, done, reads, _dir: dir })
}

impl Setup {
    /// Writes one life of a segment, publishing and storing it in parts.
    fn write(&self, segment: u32, life: u32, choices: &mut Choices) {
        let mut writer = self.cache.open_segment(segment).unwrap();
        while writer.remaining() > 0 {
            let len = (1 + choices.below(2500) as usize).min(writer.remaining() as usize);
            let bytes = pattern_of(segment, life, writer.end() as usize, len);
            writer.append(&[&bytes]).unwrap();
            self.published[segment as usize].set(life, writer.end());
            if choices.below(8) == 0 {
                writer.store_pending("t").unwrap();
            }
        }
        writer.seal("t").unwrap();
    }

    /// Reads and checks a random range. Returns whether it held data. `hold` keeps the guard for a while.
    fn read_once(&self, guard: &mut Guard, choices: &mut Choices, hold: bool) -> bool {
        let segment = choices.below(u64::from(SEGMENTS)) as u32;
        let len = 1 + choices.below(if hold { 20_000 } else { 3000 }) as usize;
        let place = choices.next();
        for _ in 0..1000 {
            guard.enter();
            let (life, end) = self.published[segment as usize].get();
            if (end as usize) < len {
                guard.leave();
                return false;
            }
            let offset = (place % (end as u64 - len as u64 + 1)) as usize;
            match self.cache.read(guard, segment, offset as u32, len).unwrap() {
                Access::Ready(bytes) => {
                    for _ in 0..if hold { 5 } else { 1 } {
                        let right = matches_pattern(bytes, segment, life, offset);
                        assert!(right, "segment {segment} life {life} offset {offset} len {len}");
                    }
                    guard.leave();
                    return true;
                }
                Access::WouldBlock(ticket) => {
                    guard.leave();
                    ticket.wait().unwrap();
                }
            }
        }
        panic!("a thousand misses in a row");
    }
}

fn reader(setup: &Setup, seed: u64, hold: bool) {
    let mut choices = Choices(seed);
    let mut guard = setup.domain.register();
    while !setup.done.load(Ordering::Relaxed) {
        let read = setup.read_once(&mut guard, &mut choices, hold);
        setup.reads.fetch_add(u64::from(read), Ordering::Relaxed);
    }
}

/// Unmarked blocks fit the budget, with room for blocks that readers are reviving or loading. Blocks that wait
/// for readers to leave come on top, in a number that the readers determine.
fn check_budget(setup: &Setup, budget: usize) {
    let mut stats = setup.cache.stats();
    for _ in 0..1000 {
        setup.cache.set_budget(budget as u64);
        stats = setup.cache.stats();
        let staying = stats.resident_bytes.saturating_sub(stats.evicting_bytes);
        if staying <= (budget + budget / 8) as u64 {
            return;
        }
    }
    panic!("{stats:?}");
}

/// Runs until there were this many segment lives and this many reads.
fn run(io_threads: usize, lives: u64, reads: u64) {
    let setup = setup(io_threads);
    let mut choices = Choices(77);
    for segment in 0..SEGMENTS {
        setup.write(segment, 1, &mut choices);
    }
    let readers: Vec<_> = (0..4)
        .map(|n| {
            let setup = Arc::clone(&setup);
            thread::spawn(move || reader(&setup, 1000 + n, n == 0))
        })
        .collect();
    let mut budget = BUDGET;
    let mut number = 0;
    while number < lives || setup.reads.load(Ordering::Relaxed) < reads {
        number += 1;
        let segment = choices.below(u64::from(SEGMENTS)) as u32;
        let (life, _) = setup.published[segment as usize].get();
        setup.published[segment as usize].set(0, 0);
        let (freed, free) = mpsc::channel();
        setup.cache.recycle(segment, Box::new(move || freed.send(()).unwrap())).unwrap();
        // The cache's thread collects; without one, this thread does.
        while free.recv_timeout(Duration::from_micros(100)).is_err() {
            setup.domain.collect();
        }
        setup.write(segment, life + 1, &mut choices);
        if number % 8 == 0 {
            // The budget changes, too.
            budget = BUDGET / 2 + choices.below(BUDGET as u64 / 2) as usize;
        }
        check_budget(&setup, budget);
    }
    setup.done.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    let stats = setup.cache.stats();
    assert!(stats.misses > reads / 10 && stats.evictions > reads / 10, "{stats:?}");
    // No reader is inside: marked blocks are freed, and the counts match the memory.
    assert!(setup.domain.wait_quiescent(Duration::from_secs(30)));
    setup.cache.set_budget(0);
    let mut guard = setup.domain.register();
    let mut steps = 0;
    while setup.cache.stats().resident_bytes > 0 {
        // A block loaded for a reader that has ended waits for it a while.
        for segment in 0..SEGMENTS {
            guard.enter();
            for offset in (0..SEGMENT as u32).step_by(BLOCK) {
                let _ = setup.cache.try_read(&guard, segment, offset, 1).unwrap();
            }
            guard.leave();
        }
        setup.cache.set_budget(0);
        thread::yield_now();
        steps += 1;
        assert!(steps < 1_000_000, "{:?}", setup.cache.stats());
    }
}

#[test]
fn everything_at_once_with_threads_that_read() {
    run(2, 100, 5000);
}

#[test]
fn everything_at_once_with_reads_on_the_waiting_thread() {
    run(0, 100, 5000);
}

#[test]
fn a_reader_needs_more_than_the_budget() {
    let setup = setup(2);
    let mut choices = Choices(5);
    for segment in 0..SEGMENTS {
        setup.write(segment, 1, &mut choices);
    }
    setup.cache.set_budget(BLOCK as u64);
    let readers: Vec<_> = (0..4)
        .map(|n| {
            let setup = Arc::clone(&setup);
            thread::spawn(move || {
                let mut choices = Choices(300 + n);
                let mut guard = setup.domain.register();
                for _ in 0..200 {
                    assert!(setup.read_once(&mut guard, &mut choices, true));
                }
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}
