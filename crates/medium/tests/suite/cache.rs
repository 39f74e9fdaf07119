//! The cache through its interface, on one thread: without I/O threads everything happens in the calling
//! thread.

use crate::common::{Choices, TempDir, matches_pattern, pattern_of, with_faults};
use kauri_base::Access;
use kauri_medium::cache::{Pattern, Pressure, SegmentCache};
use kauri_medium::faults::Fault;
use kauri_medium::plain::PlainDirectory;
use kauri_medium::{
    CacheConfig, Directory, EpochDomain, Error, Faults, Guard, IoKind, Medium, SegmentWriter,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEGMENT: usize = 64 << 10;
const BLOCK: usize = 4096;

struct Setup {
    _dir: TempDir,
    faults: Arc<Faults>,
    medium: Arc<dyn Medium>,
    domain: Arc<EpochDomain>,
    cache: SegmentCache,
}

fn setup(segments: u32, budget_bytes: usize, io_threads: usize) -> Setup {
    let dir = TempDir::new("cache");
    let faults = Arc::new(Faults::new());
    let directory = PlainDirectory::open_with(dir.path(), with_faults(&faults)).unwrap();
    let medium = directory.create_log("log", "t").unwrap();
    let config = CacheConfig {
        segment_bytes: SEGMENT,
        block_bytes: BLOCK,
        segments_max: 1024,
        first_byte: 4096,
        budget_bytes: budget_bytes as u64,
        io_threads,
        readahead_bytes: 4 * BLOCK,
        name: "test",
    };
    medium.grow(4096 + u64::from(segments) * SEGMENT as u64).unwrap();
    let domain = EpochDomain::new();
    let cache = SegmentCache::new(Arc::clone(&medium), Arc::clone(&domain), config).unwrap();
    Setup { _dir: dir, faults, medium, domain, cache }
}

impl Setup {
    fn guard(&self) -> Guard {
        let mut guard = self.domain.register();
        guard.enter();
        guard
    }

    /// Fills a segment with its pattern in records of uneven lengths, with stores in between.
    fn fill(&self, segment: u32, life: u32) -> SegmentWriter {
        let mut writer = self.cache.open_segment(segment).unwrap();
        let mut choices = Choices(u64::from(segment) + 1);
        while writer.remaining() > 0 {
            let len = (1 + choices.below(3000) as usize).min(writer.remaining() as usize);
            let offset = writer.end();
            let bytes = pattern_of(segment, life, offset as usize, len);
            let (one, two) = bytes.split_at(len / 3);
            assert_eq!(writer.append(&[one, two]), Ok(offset));
            if choices.below(4) == 0 {
                writer.store_pending("t").unwrap();
            }
        }
        writer
    }

    fn fill_and_seal(&self, segment: u32) {
        assert_eq!(self.fill(segment, 0).seal("t"), Ok(SEGMENT as u32));
    }

    fn check(&self, segment: u32, life: u32, offset: usize, len: usize) {
        for _ in 0..100 {
            let guard = self.guard();
            match self.cache.read(&guard, segment, offset as u32, len).unwrap() {
                Access::Ready(bytes) => {
                    assert_eq!(bytes.len(), len);
                    assert!(matches_pattern(bytes, segment, life, offset), "{segment} {offset}");
                    return;
                }
                Access::WouldBlock(ticket) => {
                    drop(guard);
                    ticket.wait().unwrap();
                }
            }
        }
        panic!("{segment} {offset} {len}: a hundred misses in a row");
    }

    fn is_in_memory(&self, segment: u32, offset: usize, len: usize) -> bool {
        let guard = self.guard();
        self.cache.try_read(&guard, segment, offset as u32, len).unwrap().is_some()
    }
}

#[test]
fn appended_bytes_are_readable_before_and_after_storing() {
    let s = setup(2, 1 << 20, 0);
    let mut writer = s.cache.open_segment(1).unwrap();
    assert_eq!(writer.append(&[b"hello ", b"", b"world"]), Ok(0));
    assert_eq!(writer.append(&[]), Ok(11));
    assert_eq!(writer.append(&[&[7; 5000]]), Ok(11));
    let guard = s.guard();
    let Access::Ready(bytes) = s.cache.read(&guard, 1, 6, 6).unwrap() else { panic!() };
    assert_eq!(bytes, b"world\x07");
    assert_eq!(s.cache.stats().unstored_bytes, 5011);
    assert_eq!(writer.storer().stored_end(), 0);
    assert_eq!(writer.storer().store_pending("t"), Ok(5011));
    assert_eq!(writer.store_pending("t"), Ok(5011));
    assert_eq!(s.cache.stats().stores, 1, "nothing pending, nothing stored");
    let mut on_medium = [0; 11];
    s.medium.read(4096 + SEGMENT as u64, &mut on_medium).unwrap();
    assert_eq!(&on_medium, b"hello world");
    assert_eq!(bytes, b"world\x07");
    let stats = s.cache.stats();
    assert_eq!((stats.stored_bytes, stats.appended_bytes, stats.unstored_bytes), (5011, 5011, 0));
    assert_eq!((stats.resident_bytes, stats.hits, stats.misses), (2 * BLOCK as u64, 1, 0));
}

#[test]
fn addresses_without_data_are_refused() {
    let s = setup(2, 1 << 20, 0);
    let mut writer = s.cache.open_segment(0).unwrap();
    writer.append(&[&[1; 100]]).unwrap();
    let guard = s.guard();
    let refused = |segment, offset, len| {
        let read = s.cache.read(&guard, segment, offset, len);
        assert!(matches!(read, Err(Error::OutOfBounds)), "{segment} {offset} {len}");
    };
    refused(0, 0, 101);
    refused(0, 100, 1);
    refused(0, u32::MAX, 1);
    refused(0, 1, usize::MAX);
    refused(1, 0, 1);
    refused(1023, 0, 1);
    refused(1024, 0, 1);
    refused(u32::MAX, 0, 1);
    assert!(matches!(s.cache.read(&guard, 0, 100, 0), Ok(Access::Ready([]))));
    assert_eq!(writer.append(&[&[1; SEGMENT - 99]]), Err(Error::OutOfBounds));
    assert_eq!(writer.end(), 100);
    assert!(matches!(s.cache.open_segment(2), Err(Error::OutOfBounds)), "beyond the file");
    assert_eq!(s.cache.adopt_segment(1, SEGMENT as u32 + 1), Err(Error::OutOfBounds));
    assert_eq!(s.cache.adopt_segment(2, 1), Err(Error::OutOfBounds));
}

#[test]
fn a_segment_has_one_writer_and_one_epoch_at_a_time() {
    let s = setup(2, 1 << 20, 0);
    let writer = s.fill(0, 0);
    let misuse = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Misuse(_))));
    misuse(s.cache.open_segment(0).map(drop));
    misuse(s.cache.adopt_segment(0, 1));
    misuse(s.cache.recycle(0, Box::new(|| ())));
    let storer = writer.storer();
    drop(writer);
    assert_eq!(storer.store_pending("t"), Ok(SEGMENT as u32), "dropping seals, stores continue");
    misuse(s.cache.open_segment(0).map(drop));
    s.cache.recycle(0, Box::new(|| ())).unwrap();
    misuse(s.cache.recycle(0, Box::new(|| ())));
    s.domain.collect();
    s.domain.collect();
    let mut writer = s.cache.open_segment(0).unwrap();
    writer.append(&[b"new"]).unwrap();
    misuse(storer.store_pending("t").map(drop));
    assert_eq!(writer.storer().stored_end(), 0);
}

#[test]
fn reading_needs_a_guard_that_is_inside_this_domain() {
    let s = setup(1, 1 << 20, 0);
    s.fill_and_seal(0);
    let outside = s.domain.register();
    assert!(matches!(s.cache.read(&outside, 0, 0, 1), Err(Error::Misuse(_))));
    let elsewhere = EpochDomain::new();
    let mut foreign = elsewhere.register();
    foreign.enter();
    assert!(matches!(s.cache.try_read(&foreign, 0, 0, 1), Err(Error::Misuse(_))));
}

#[test]
fn adopted_segments_are_read_from_the_medium() {
    let s = setup(3, 1 << 20, 0);
    s.fill_and_seal(2);
    let again = SegmentCache::new(
        Arc::clone(&s.medium),
        Arc::clone(&s.domain),
        CacheConfig {
            segment_bytes: SEGMENT,
            block_bytes: BLOCK,
            first_byte: 4096,
            segments_max: 3,
            io_threads: 0,
            ..CacheConfig::default()
        },
    )
    .unwrap();
    // Ends within a block, the rest of which is not read.
    again.adopt_segment(2, 2 * BLOCK as u32 + 100).unwrap();
    let guard = s.guard();
    let Access::WouldBlock(ticket) = again.read(&guard, 2, 4000, 4292).unwrap() else { panic!() };
    ticket.wait().unwrap();
    let Access::Ready(bytes) = again.read(&guard, 2, 4000, 4292).unwrap() else { panic!() };
    assert!(matches_pattern(bytes, 2, 0, 4000));
    assert_eq!(again.stats().read_bytes, 2 * BLOCK as u64 + 100);
    assert!(matches!(again.read(&guard, 2, 4000, 4293), Err(Error::OutOfBounds)));
    // The memory outlives the cache for as long as the guard stays.
    drop(again);
    s.domain.collect();
    assert!(matches_pattern(bytes, 2, 0, 4000));
}

#[test]
fn eight_times_the_budget_is_read_back_whole_within_the_budget() {
    let budget = 2 * SEGMENT;
    let s = setup(16, budget, 0);
    for segment in 0..16 {
        s.fill_and_seal(segment);
        assert!(s.cache.stats().resident_bytes <= (budget + SEGMENT) as u64);
    }
    let mut choices = Choices(42);
    for _ in 0..20_000 {
        let len = 1 + choices.below(6000) as usize;
        let offset = choices.below((SEGMENT - len) as u64) as usize;
        s.check(choices.below(16) as u32, 0, offset, len);
        // Two blocks above the budget may be resident until the next check.
        assert!(s.cache.stats().resident_bytes <= (budget + 2 * BLOCK) as u64);
    }
    let stats = s.cache.stats();
    assert!(stats.misses > 10_000 && stats.evictions > 10_000, "{stats:?}");
    assert_eq!(stats.hits, 20_000);
    assert_eq!(s.cache.pressure(), Pressure::None);
}

#[test]
fn used_blocks_stay() {
    let s = setup(16, 2 * SEGMENT, 0);
    (0..16).for_each(|segment| s.fill_and_seal(segment));
    let mut choices = Choices(7);
    let mut hot_misses = 0;
    for _ in 0..20_000 {
        // Half of the reads go to a fortieth of the data.
        s.check(choices.below(16) as u32, 0, choices.below(SEGMENT as u64 - 10) as usize, 10);
        let hot = choices.below(6) as usize * BLOCK;
        hot_misses += u32::from(!s.is_in_memory(5, hot, 10));
        s.check(5, 0, hot, 10);
    }
    // FIFO eviction would miss a fifth of them.
    assert!(hot_misses < 20_000 / 20, "{hot_misses} of 20000");
}

#[test]
fn unstored_blocks_are_not_evicted() {
    let s = setup(4, BLOCK, 0);
    let first = s.fill(0, 0);
    let stored = first.storer();
    stored.store_pending("t").unwrap();
    let mut writer = s.cache.open_segment(1).unwrap();
    let bytes = pattern_of(1, 0, 0, SEGMENT);
    for chunk in bytes.chunks(1000) {
        writer.append(&[chunk]).unwrap();
    }
    for _ in 0..10 {
        s.cache.set_budget(BLOCK as u64);
    }
    assert!(s.is_in_memory(1, 0, SEGMENT));
    assert_eq!(s.cache.pressure(), Pressure::Stuck);
    // The stored part of the open segment can be evicted, except for its last block, which is still written.
    writer.store_pending("t").unwrap();
    drop(writer);
    for _ in 0..10 {
        s.cache.set_budget(0);
    }
    assert!(!s.is_in_memory(1, 0, 1) && !s.is_in_memory(1, SEGMENT - 1, 1));
    assert_eq!(s.cache.stats().resident_bytes, 0);
    assert_eq!(s.cache.pressure(), Pressure::None);
    s.check(1, 0, 0, SEGMENT);
}

#[test]
fn a_peek_finds_resident_data_and_keeps_nothing() {
    let s = setup(4, 1 << 20, 0);
    let writer = s.fill(0, 0);
    writer.store_pending("t").unwrap();
    let found = |offset: usize, len: usize| {
        let guard = s.guard();
        let bytes = s.cache.peek(&guard, 0, offset as u32, len).unwrap();
        assert!(matches_pattern(bytes, 0, 0, offset));
        bytes.len()
    };
    assert_eq!(found(100, 5000), 5000);
    assert_eq!((found(100, 2 * SEGMENT), found(SEGMENT, 1), found(0, 0)), (SEGMENT - 100, 0, 0));
    assert_eq!(s.cache.peek(&s.guard(), 3, 0, 10), Ok(&[][..]));
    assert!(s.cache.peek(&s.domain.register(), 0, 0, 10).is_err(), "not inside");
    writer.seal("t").unwrap();
    s.cache.set_budget(0);
    s.cache.set_budget(1 << 20);
    s.check(0, 0, BLOCK, 2 * BLOCK);
    assert_eq!((found(0, BLOCK), found(BLOCK, SEGMENT)), (0, 2 * BLOCK));
    assert_eq!((found(BLOCK + 50, BLOCK), found(3 * BLOCK - 1, 2)), (BLOCK, 1));
    // Of two consecutive segments, the one that was only peeked at is evicted first.
    s.fill_and_seal(1);
    s.fill_and_seal(2);
    s.check(1, 0, 0, SEGMENT);
    {
        let guard = s.guard();
        assert_eq!(s.cache.peek(&guard, 2, 0, SEGMENT).map(<[u8]>::len), Ok(SEGMENT));
    }
    s.cache.set_budget(SEGMENT as u64 + 2 * BLOCK as u64);
    s.cache.set_budget(SEGMENT as u64 + 2 * BLOCK as u64);
    assert!(s.is_in_memory(1, 0, SEGMENT) && !s.is_in_memory(2, 0, SEGMENT));
    assert_eq!(s.cache.stats().misses, 1);
}

#[test]
fn the_block_at_the_end_of_an_open_segment_stays() {
    let s = setup(1, 0, 0);
    let mut writer = s.cache.open_segment(0).unwrap();
    let bytes = pattern_of(0, 0, 0, SEGMENT);
    for chunk in bytes.chunks(1000) {
        let offset = writer.append(&[chunk]).unwrap();
        writer.store_pending("t").unwrap();
        for _ in 0..5 {
            s.cache.set_budget(0);
        }
        let tail = writer.end() as usize % BLOCK;
        assert_eq!(s.cache.stats().resident_bytes, if tail == 0 { 0 } else { BLOCK as u64 });
        assert!(tail == 0 || s.is_in_memory(0, writer.end() as usize - 1, 1));
        s.check(0, 0, offset as usize, chunk.len());
    }
    writer.seal("t").unwrap();
    s.check(0, 0, 0, SEGMENT);
}

#[test]
fn a_sealed_segment_is_evicted_whole_and_read_back_to_its_end() {
    let s = setup(1, 1 << 20, 0);
    let mut writer = s.cache.open_segment(0).unwrap();
    writer.append(&[&pattern_of(0, 0, 0, 3 * BLOCK + 100)]).unwrap();
    writer.seal("t").unwrap();
    for _ in 0..10 {
        s.cache.set_budget(0);
    }
    assert_eq!(s.cache.stats().resident_bytes, 0);
    s.check(0, 0, 2 * BLOCK, BLOCK + 100);
    assert_eq!(s.cache.stats().read_bytes, BLOCK as u64 + 100);
    assert_eq!(s.cache.end(0), 3 * BLOCK as u32 + 100);
}

#[test]
fn an_entered_guard_delays_only_eviction() {
    let s = setup(4, 2 * SEGMENT, 0);
    s.fill_and_seal(0);
    s.fill_and_seal(1);
    let mut held = s.guard();
    let Access::Ready(bytes) = s.cache.read(&held, 0, 0, SEGMENT).unwrap() else { panic!() };
    s.cache.set_budget(0);
    for _ in 0..20 {
        s.cache.set_budget(0);
    }
    // Marked, unreachable without reviving them, and still resident.
    let stats = s.cache.stats();
    assert_eq!((stats.resident_bytes, stats.evicting_bytes), (2 << 16, 2 << 16));
    assert!(matches_pattern(bytes, 0, 0, 0));
    // Other threads read, revive, append and load at the same time.
    assert!(s.is_in_memory(1, 100, 100));
    s.fill_and_seal(2);
    s.check(2, 0, 5, 5000);
    assert!(matches_pattern(bytes, 0, 0, 0));
    held.leave();
    for _ in 0..20 {
        s.cache.set_budget(0);
    }
    assert!(s.cache.stats().revivals > 0);
    assert_eq!(s.cache.stats().resident_bytes, 0);
    assert!(!s.is_in_memory(0, 0, 1));
    s.check(0, 0, 0, SEGMENT);
}

#[test]
fn a_recycled_segment_is_readable_until_its_readers_have_left() {
    let s = setup(1, 1 << 20, 0);
    s.fill_and_seal(0);
    let mut before = s.guard();
    let freed = Arc::new(AtomicBool::new(false));
    let signal = Arc::clone(&freed);
    s.cache.recycle(0, Box::new(move || signal.store(true, Ordering::Relaxed))).unwrap();
    for _ in 0..5 {
        s.domain.collect();
    }
    let Access::Ready(bytes) = s.cache.read(&before, 0, 0, SEGMENT).unwrap() else { panic!() };
    assert!(!freed.load(Ordering::Relaxed));
    assert!(matches_pattern(bytes, 0, 0, 0));
    before.leave();
    // A later guard also holds the block, if it entered before the block was unlinked.
    let mut late = s.guard();
    let Access::Ready(bytes) = s.cache.read(&late, 0, 0, SEGMENT).unwrap() else { panic!() };
    for _ in 0..5 {
        s.domain.collect();
    }
    assert!(!freed.load(Ordering::Relaxed));
    assert!(matches_pattern(bytes, 0, 0, 0));
    assert!(matches!(s.cache.read(&late, 0, 0, 1), Err(Error::OutOfBounds)));
    late.leave();
    s.domain.collect();
    assert!(freed.load(Ordering::Relaxed));
    assert_eq!(s.cache.stats().resident_bytes, 0);
    // The next life of the segment.
    s.fill(0, 1).seal("t").unwrap();
    s.check(0, 1, 0, SEGMENT);
}

#[test]
fn a_failed_read_is_reported_and_the_next_one_tries_again() {
    let s = setup(1, 0, 0);
    s.fill_and_seal(0);
    for _ in 0..10 {
        s.cache.set_budget(0);
    }
    s.faults.inject(IoKind::Read, 0, 2, Fault::Eio);
    for _ in 0..2 {
        let guard = s.guard();
        let Access::WouldBlock(ticket) = s.cache.read(&guard, 0, 0, 10).unwrap() else { panic!() };
        let copy = ticket.clone();
        let error = ticket.wait().unwrap_err();
        assert_eq!(error.code(), kauri_base::ErrorCode::FileStreamFailed);
        assert_eq!(copy.wait().unwrap_err(), error, "every waiter gets the error");
    }
    assert_eq!(s.cache.stats().read_errors, 2);
    assert_eq!(s.cache.stats().resident_bytes, 0);
    s.check(0, 0, 0, SEGMENT);
}

#[test]
fn a_failed_store_keeps_the_bytes_for_the_next_try() {
    let s = setup(1, 0, 0);
    let mut writer = s.cache.open_segment(0).unwrap();
    writer.append(&[&pattern_of(0, 0, 0, 10_000)]).unwrap();
    s.faults.inject(IoKind::Store, 0, 1, Fault::Enospc);
    assert_eq!(writer.store_pending("t"), Err(Error::NoSpace));
    assert_eq!(writer.storer().stored_end(), 0);
    s.cache.set_budget(0);
    assert!(s.is_in_memory(0, 0, 10_000));
    assert_eq!(writer.store_pending("t"), Ok(10_000));
}

#[test]
fn a_scan_reads_ahead_and_a_point_read_does_not() {
    let s = setup(1, 1 << 20, 0);
    s.fill_and_seal(0);
    s.cache.set_budget(0);
    for _ in 0..10 {
        s.cache.set_budget(0);
    }
    s.cache.set_budget(1 << 20);
    s.check(0, 0, 0, 10);
    assert!(!s.is_in_memory(0, BLOCK, 10));
    let guard = s.guard();
    let at = 3 * BLOCK as u32;
    let Ok(Access::WouldBlock(ticket)) = s.cache.read_with(&guard, 0, at, 10, Pattern::Scan) else {
        panic!()
    };
    ticket.wait().unwrap();
    assert_eq!(s.cache.stats().reads, 2);
    assert!(s.is_in_memory(0, 3 * BLOCK, 5 * BLOCK), "the block and four ahead");
    assert!(!s.is_in_memory(0, 8 * BLOCK, 1));
    assert!(!s.is_in_memory(0, BLOCK, 1));
}

#[test]
fn readers_of_one_block_share_a_read() {
    let s = setup(1, 0, 0);
    s.fill_and_seal(0);
    for _ in 0..10 {
        s.cache.set_budget(0);
    }
    s.cache.set_budget(1 << 20);
    let guard = s.guard();
    let miss = |offset, len| match s.cache.read(&guard, 0, offset, len) {
        Ok(Access::WouldBlock(ticket)) => ticket,
        _ => panic!("in memory"),
    };
    let tickets = [miss(0, 10), miss(100, 10), miss(0, 3 * BLOCK), miss(2 * BLOCK as u32, 10)];
    assert_eq!(s.cache.stats().reads, 0);
    tickets.iter().for_each(|ticket| ticket.wait().unwrap());
    assert_eq!(s.cache.stats().reads, 2, "one block, then the two that follow");
    assert!(s.is_in_memory(0, 0, 3 * BLOCK));
    assert_eq!(s.cache.stats().read_bytes, 3 * BLOCK as u64);
}

#[test]
fn tickets_that_outlive_the_cache_fail() {
    let s = setup(1, 0, 0);
    s.fill_and_seal(0);
    for _ in 0..10 {
        s.cache.set_budget(0);
    }
    let guard = s.guard();
    let Access::WouldBlock(ticket) = s.cache.read(&guard, 0, 0, 10).unwrap() else { panic!() };
    drop(s.cache);
    assert_eq!(ticket.wait().unwrap_err().code(), kauri_base::ErrorCode::InterruptedAtShutdown);
}
