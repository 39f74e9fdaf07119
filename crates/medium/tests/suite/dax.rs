//! Memory-mapped log files: on real persistent memory, on ordinary memory in its place, and in the emulator.
//!
//! `KAURI_TEST_DAX_DIR` names a directory on a file system mounted with DAX; it is tested too, and mapping it
//! with `MAP_SYNC` must succeed. Without it, the directories of this machine must be detected as ordinary ones.

use crate::common::{Choices, TempDir, matches_pattern, pattern_of};
use kauri_base::Access;
use kauri_emulator::{Emulator, EmulatorConfig};
use kauri_medium::cache::SealSites;
use kauri_medium::plain::{DirectoryOptions, PlainDirectory};
use kauri_medium::{
    CacheConfig, Dax, Delayed, Directory, EpochDomain, Error, Latency, Medium, MediumKind,
    SegmentCache, SegmentWriter,
};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SEGMENT: usize = 64 << 10;
const SITES: SealSites =
    SealSites { pending: "t.pending", last: "t.last", last_lines: "t.lines", fence: "t.fence" };

fn dax_dir() -> Option<PathBuf> {
    std::env::var_os("KAURI_TEST_DAX_DIR").map(PathBuf::from)
}

fn open(path: &Path, dax: Dax) -> PlainDirectory {
    PlainDirectory::open_with(path, DirectoryOptions { dax, ..DirectoryOptions::default() })
        .unwrap()
}

/// A log of each kind that this machine has, and the directory that must live as long.
fn media() -> Vec<(Arc<dyn Medium>, Option<TempDir>)> {
    let temporary =
        |dir: TempDir, dax| (open(dir.path(), dax).create_log("log", "t").unwrap(), Some(dir));
    let mut media = vec![
        (Emulator::new(EmulatorConfig::persistent_memory()).create_log("log", "t").unwrap(), None),
        temporary(TempDir::new("simulated"), Dax::Simulated),
    ];
    if let Some(dir) = dax_dir() {
        media.push(temporary(TempDir::under(&dir, "dax"), Dax::Auto));
    }
    media
}

fn cache(medium: &Arc<dyn Medium>, segments: u32) -> SegmentCache {
    medium.grow(u64::from(segments) * SEGMENT as u64).unwrap();
    let config = CacheConfig {
        segment_bytes: SEGMENT,
        segments_max: 64,
        budget_bytes: 1 << 20,
        ..CacheConfig::default()
    };
    let cache = SegmentCache::new(Arc::clone(medium), EpochDomain::new(), config).unwrap();
    assert!(cache.is_direct());
    cache
}

fn publish(writer: &mut SegmentWriter) -> Result<(), Error> {
    writer.publish(std::iter::empty(), "t.publish")
}

#[test]
fn files_are_mapped_only_if_map_sync_succeeds() {
    let mut ordinary = vec![std::env::temp_dir(), PathBuf::from("/dev/shm")];
    let lasts = |dir: &Path| dax_dir().is_some_and(|dax| dir.starts_with(dax));
    ordinary.retain(|dir| dir.is_dir() && !lasts(dir));
    for dir in &ordinary {
        let dir = TempDir::under(dir, "ordinary");
        for dax in [Dax::Auto, Dax::Off] {
            let log = open(dir.path(), dax).create_log("log", "t").unwrap();
            assert_eq!(log.kind(), MediumKind::PlainFile, "{}", log.describe());
            assert!(log.mapped().is_none());
        }
        let log = open(dir.path(), Dax::Simulated).create_log("log", "t").unwrap();
        assert_eq!(log.kind(), MediumKind::SimulatedDax);
        assert!(log.describe().contains("simulates persistent memory"), "{}", log.describe());
    }
    if let Some(dir) = dax_dir() {
        let dir = TempDir::under(&dir, "dax");
        let log = open(dir.path(), Dax::Auto).create_log("log", "t").unwrap();
        assert_eq!(log.kind(), MediumKind::Dax, "MAP_SYNC has to succeed in {dir:?}");
        assert!(log.describe().contains("MAP_SYNC"), "{}", log.describe());
        println!("MAP_SYNC succeeded: {}", log.describe());
        let log = open(dir.path(), Dax::Off).create_log("log", "t").unwrap();
        assert_eq!(log.kind(), MediumKind::PlainFile);
    }
}

#[test]
fn published_bytes_are_readable_in_place_and_on_the_medium() {
    for (medium, _dir) in media() {
        let cache = cache(&medium, 2);
        let mut guard = cache.domain().register();
        guard.enter();
        let mut writer = cache.open_segment(1).unwrap();
        assert_eq!(writer.append(&[b"hello ", b"", b"world"]), Ok(0));
        assert_eq!(writer.append(&[&[7; 5000]]), Ok(11));
        assert_eq!((writer.end(), cache.end(1)), (5011, 0));
        let unpublished = cache.read(&guard, 1, 0, 5).map(drop);
        assert_eq!(unpublished, Err(Error::OutOfBounds), "it may not be durable yet");
        publish(&mut writer).unwrap();
        let Access::Ready(bytes) = cache.read(&guard, 1, 6, 6).unwrap() else { panic!() };
        assert_eq!(bytes, b"world\x07");
        let mut on_medium = [0; 12];
        medium.read(SEGMENT as u64, &mut on_medium).unwrap();
        assert_eq!(&on_medium, b"hello world\x07");
        assert_eq!(writer.store_pending("t"), Ok(5011), "no bytes are left to store");
        assert_eq!(writer.append(&[&vec![1; SEGMENT]]), Err(Error::OutOfBounds));

        writer.seal_with(b"the end", SITES).unwrap();
        let mut on_medium = [0; 7];
        medium.read(2 * SEGMENT as u64 - 7, &mut on_medium).unwrap();
        assert_eq!(&on_medium, b"the end");
        assert_eq!(cache.end(1), 5011);
        assert_eq!(cache.loads(1), 1, "bytes of the medium are to be checked");
        let stats = cache.stats();
        assert_eq!((stats.stored_bytes, stats.appended_bytes), (5018, 5011));
        assert_eq!((stats.resident_bytes, stats.unstored_bytes, stats.stores), (0, 0, 0));
        assert_eq!(bytes, b"world\x07");
    }
}

#[test]
fn a_mapped_file_is_stored_through_the_mapping_only() {
    for (medium, _dir) in media() {
        medium.grow(SEGMENT as u64).unwrap();
        medium.store(5, &[IoSlice::new(b"before")]).unwrap();
        let cache = cache(&medium, 1);
        let refused = medium.store(5, &[IoSlice::new(b"behind")]);
        assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
        cache.adopt_segment(0, 100).unwrap();
        let mut guard = cache.domain().register();
        guard.enter();
        let Access::Ready(bytes) = cache.read(&guard, 0, 5, 6).unwrap() else { panic!() };
        assert_eq!(bytes, b"before");
    }
}

#[test]
fn a_fence_covers_only_its_own_thread() {
    for (medium, _dir) in media() {
        let cache = cache(&medium, 1);
        let mut writer = cache.open_segment(0).unwrap();
        writer.append(&[b"mine"]).unwrap();
        let misuse = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Misuse(_))));
        let mut writer = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                misuse(publish(&mut writer));
                misuse(writer.append(&[b"theirs"]).map(drop));
                writer
            });
            other.join().unwrap()
        });
        assert_eq!(cache.end(0), 0);
        publish(&mut writer).unwrap();
        assert_eq!(cache.end(0), 4);
        // After publication any thread may read.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                writer.append(&[b", theirs"]).unwrap();
                publish(&mut writer).unwrap();
            });
        });
        assert_eq!(cache.end(0), 12);
    }
}

#[test]
fn one_fence_publishes_appends_to_several_segments() {
    for (medium, _dir) in media() {
        let cache = cache(&medium, 2);
        let mut full = cache.open_segment(0).unwrap();
        let mut next = cache.open_segment(1).unwrap();
        full.append(&[b"first"]).unwrap();
        next.append(&[b"second"]).unwrap();
        next.publish(std::iter::once(&mut full), "t").unwrap();
        assert_eq!((cache.end(0), cache.end(1)), (5, 6));
        drop(full);
        next.append(&[b"never published"]).unwrap();
        drop(next);
        assert_eq!(cache.end(1), 6);
    }
}

#[test]
fn a_file_grows_under_readers_and_reopens() {
    for (medium, _dir) in media() {
        let cache = cache(&medium, 1);
        let mut guard = cache.domain().register();
        guard.enter();
        let mut writer = cache.open_segment(0).unwrap();
        writer.append(&[&pattern_of(0, 0, 0, 1000)]).unwrap();
        publish(&mut writer).unwrap();
        let Access::Ready(early) = cache.read(&guard, 0, 0, 1000).unwrap() else { panic!() };
        assert_eq!(cache.open_segment(5).map(drop), Err(Error::OutOfBounds));
        medium.grow(6 * SEGMENT as u64).unwrap();
        let mut late = cache.open_segment(5).unwrap();
        late.append(&[&pattern_of(5, 0, 0, SEGMENT)]).unwrap();
        publish(&mut late).unwrap();
        assert!(matches_pattern(early, 0, 0, 0), "it stays where it is");
        let mut on_medium = vec![0; SEGMENT];
        medium.read(5 * SEGMENT as u64, &mut on_medium).unwrap();
        assert!(matches_pattern(&on_medium, 5, 0, 0));
    }
    for (dax, dir) in [(Dax::Simulated, TempDir::new("again"))]
        .into_iter()
        .chain(dax_dir().map(|dir| (Dax::Auto, TempDir::under(&dir, "again"))))
    {
        let medium = open(dir.path(), dax).create_log("log", "t").unwrap();
        let first = cache(&medium, 3);
        let mut writer = first.open_segment(2).unwrap();
        writer.append(&[&pattern_of(2, 0, 0, 3000)]).unwrap();
        publish(&mut writer).unwrap();
        drop((writer, first, medium));
        for dax in [dax, Dax::Off] {
            let medium = open(dir.path(), dax).open_log("log").unwrap();
            medium.persist(2 * SEGMENT as u64, SEGMENT as u64, "t").unwrap();
            medium.drain("t").unwrap();
            let mut on_medium = vec![0; 3000];
            medium.read(2 * SEGMENT as u64, &mut on_medium).unwrap();
            assert!(matches_pattern(&on_medium, 2, 0, 0));
            if dax != Dax::Off {
                let cache = cache(&medium, 3);
                cache.adopt_segment(2, 3000).unwrap();
                let mut guard = cache.domain().register();
                guard.enter();
                let read = cache.read(&guard, 2, 0, 3000).unwrap();
                let Access::Ready(bytes) = read else { panic!("mapped data needs no wait") };
                assert!(matches_pattern(bytes, 2, 0, 0));
            }
        }
    }
}

/// Readers check published data while segments are filled and recycled.
#[test]
fn readers_see_whole_records_of_one_epoch() {
    const RECORD: usize = 328;
    const LIVES: u32 = 25;
    for (medium, _dir) in media() {
        let cache = cache(&medium, 2);
        // The segment's life and the number of published records, combined in one number.
        let published = [AtomicU32::new(0), AtomicU32::new(0)];
        let stop = AtomicBool::new(false);
        let looked = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let read = |seed| {
                let mut guard = cache.domain().register();
                let mut choices = Choices(seed);
                while !stop.load(Ordering::Acquire) {
                    guard.enter();
                    let segment = choices.below(2) as u32;
                    let word = published[segment as usize].load(Ordering::Acquire);
                    let (life, records) = (word >> 16, word & 0xFFFF);
                    if records > 0 {
                        let offset = choices.below(u64::from(records)) as usize * RECORD;
                        let read = cache.read(&guard, segment, offset as u32, RECORD).unwrap();
                        let Access::Ready(bytes) = read else {
                            panic!("mapped data needs no wait")
                        };
                        assert!(matches_pattern(bytes, segment, life, offset));
                        looked.fetch_add(1, Ordering::Relaxed);
                    }
                    guard.leave();
                }
            };
            scope.spawn(move || read(7));
            let read_too = scope.spawn(move || read(8));
            for life in 0..LIVES {
                for segment in 0..2 {
                    let mut writer = cache.open_segment(segment).unwrap();
                    for record in 0..SEGMENT / RECORD {
                        let bytes = pattern_of(segment, life, record * RECORD, RECORD);
                        writer.append(&[&bytes[..32], &bytes[32..]]).unwrap();
                        if record % 3 == 0 {
                            publish(&mut writer).unwrap();
                            let word = life << 16 | (record as u32 + 1);
                            published[segment as usize].store(word, Ordering::Release);
                        }
                    }
                    publish(&mut writer).unwrap();
                    writer.seal("t").unwrap();
                    published[segment as usize].store(0, Ordering::Release);
                    let free = Arc::new(AtomicBool::new(false));
                    let freed = Arc::clone(&free);
                    let then = move || freed.store(true, Ordering::Release);
                    cache.recycle(segment, Box::new(then)).unwrap();
                    while !free.load(Ordering::Acquire) {
                        cache.domain().collect();
                        std::thread::yield_now();
                    }
                }
            }
            // On a busy machine the readers may not have run yet.
            let mut writer = cache.open_segment(0).unwrap();
            writer.append(&[&pattern_of(0, LIVES, 0, RECORD)]).unwrap();
            publish(&mut writer).unwrap();
            published[0].store(LIVES << 16 | 1, Ordering::Release);
            while looked.load(Ordering::Relaxed) < 100 && !read_too.is_finished() {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Release);
        });
    }
}

#[test]
fn latency_is_added_if_configured() {
    let dir = TempDir::new("latency");
    let latency = Arc::new(Latency::default());
    let options = DirectoryOptions {
        dax: Dax::Simulated,
        latency: Arc::clone(&latency),
        ..DirectoryOptions::default()
    };
    let directory = PlainDirectory::open_with(dir.path(), options).unwrap();
    let medium = directory.create_log("log", "t").unwrap();
    let cache = cache(&medium, 1);
    let mut writer = cache.open_segment(0).unwrap();
    let timed = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    // One millisecond each.
    const NANOS: u64 = 1_000_000;
    latency.set(Delayed::Line, NANOS);
    // 10 lines, the first of which it begins in.
    let append = timed(&mut || assert_eq!(writer.append(&[&[1; 640]]), Ok(0)));
    assert!(append >= Duration::from_nanos(10 * NANOS), "{append:?}");
    latency.set(Delayed::Line, 0);
    latency.set(Delayed::Fence, 5 * NANOS);
    let fence = timed(&mut || publish(&mut writer).unwrap());
    assert!(fence >= Duration::from_nanos(5 * NANOS), "{fence:?}");
    latency.set(Delayed::Fence, 0);
    latency.set(Delayed::Read, 3 * NANOS);
    let mut guard = cache.domain().register();
    guard.enter();
    let read = timed(&mut || assert!(cache.read(&guard, 0, 0, 640).is_ok()));
    assert!(read >= Duration::from_nanos(3 * NANOS), "{read:?}");
}

/// The possible remains of a record after a power loss on the emulated medium, with or without a fence.
fn leftovers(record: &[u8], fence: impl Fn(&Arc<dyn Medium>, &mut SegmentWriter)) -> Vec<Vec<u8>> {
    let emulator = Emulator::new(EmulatorConfig::persistent_memory());
    let medium = emulator.create_log("log", "t").unwrap();
    let cache = cache(&medium, 1);
    let mut writer = cache.open_segment(0).unwrap();
    writer.append(&[record]).unwrap();
    fence(&medium, &mut writer);
    let at = emulator.events();
    let images = (0..8000).map(|seed| {
        let image = emulator.crash_seeded(at, seed).open_log("log").unwrap();
        let mut bytes = vec![0; record.len()];
        image.read(0, &mut bytes).unwrap();
        bytes
    });
    let mut images: Vec<_> = images.collect();
    images.sort();
    images.dedup();
    images
}

#[test]
fn only_unfenced_bytes_are_torn_by_words() {
    let record = [1; 192];
    let images = leftovers(&record, |_, _| ());
    assert!(images.contains(&vec![0; 192]) && images.contains(&vec![1; 192]));
    for image in &images {
        assert!(image.chunks(8).all(|word| word.iter().all(|byte| *byte == word[0])), "{image:?}");
    }
    let is_whole = |line: &[u8]| line.iter().all(|byte| *byte == line[0]);
    let whole = images.iter().filter(|image| image.chunks(64).all(is_whole)).count();
    assert_eq!(whole, 8, "every subset of three lines");
    assert!(images.len() > 300, "{} kinds of torn lines", images.len());
    let one_word_missing = |image: &&Vec<u8>| image.iter().filter(|byte| **byte == 0).count() == 8;
    assert_eq!(images.iter().filter(one_word_missing).count(), 24, "each word alone");

    let fenced = leftovers(&record, |_, writer| publish(writer).unwrap());
    assert_eq!(fenced, [record.to_vec()]);
    let elsewhere = leftovers(&record, |medium, _| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let cache = SegmentCache::new(
                    Arc::clone(medium),
                    EpochDomain::new(),
                    CacheConfig { segment_bytes: SEGMENT, ..CacheConfig::default() },
                );
                let cache = cache.unwrap();
                publish(&mut cache.open_segment(0).unwrap()).unwrap();
            });
        });
    });
    assert!(elsewhere.len() > 300, "another thread's fence is not this one's");
}

#[test]
fn persisting_and_fencing_are_both_needed() {
    for off in ["t.publish", "append.lines"] {
        let emulator = Emulator::new(EmulatorConfig::persistent_memory());
        emulator.faults().disable(off);
        let medium = emulator.create_log("log", "t").unwrap();
        let cache = cache(&medium, 1);
        let mut writer = cache.open_segment(0).unwrap();
        writer.append(&[&[1; 64]]).unwrap();
        publish(&mut writer).unwrap();
        let image = emulator.crash_at(emulator.events(), &mut |_| 0).open_log("log").unwrap();
        let mut bytes = [9; 64];
        image.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 64], "without {off} nothing is certain");
    }
    // New space is durable.
    let emulator = Emulator::new(EmulatorConfig::persistent_memory());
    emulator.create_log("log", "t").unwrap().grow(4096).unwrap();
    let image = emulator.crash_at(emulator.events(), &mut |_| 0).open_log("log").unwrap();
    assert_eq!(image.len(), 4096);
}

/// Set for the process that must die.
const SHORTENED: &str = "KAURI_TEST_SHORTENED_LOG";

/// Reads memory whose part of the file no longer exists.
fn look_at_a_shortened_file(dir: &Path) -> ! {
    let log = open(dir, Dax::Simulated).create_log("log", "t").unwrap();
    let cache = cache(&log, 2);
    let mut writer = cache.open_segment(1).unwrap();
    writer.append(&[&[7; 20_000]]).unwrap();
    publish(&mut writer).unwrap();
    let mut guard = cache.domain().register();
    guard.enter();
    let Access::Ready(bytes) = cache.read(&guard, 1, 0, 20_000).unwrap() else { panic!() };
    let files = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    let file = files.into_iter().find(|path| path.to_string_lossy().contains("log")).unwrap();
    std::fs::File::options().write(true).open(file).unwrap().set_len(4096).unwrap();
    let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    panic!("the bytes are readable: {sum}");
}

/// If mapped memory is unreadable the process dies of the signal. Its message names the file, the position and
/// the remedy.
#[test]
fn a_failed_memory_access_names_the_file() {
    use std::os::unix::process::ExitStatusExt;
    if let Some(dir) = std::env::var_os(SHORTENED) {
        look_at_a_shortened_file(Path::new(&dir));
    }
    let dir = TempDir::new("shortened");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dax::a_failed_memory_access_names_the_file", "--nocapture"])
        .env(SHORTENED, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(7), "{said}");
    let lines: Vec<_> = said.lines().filter(|line| line.starts_with("kauri: fatal: ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    let path = dir.path().to_string_lossy();
    let place = format!("at byte {SEGMENT} ");
    for words in [&*path, &place, "SIGBUS", "truncated", "kauri check", "--verify", "--repair"] {
        assert!(lines[0].contains(words), "{words}: {}", lines[0]);
    }
}
