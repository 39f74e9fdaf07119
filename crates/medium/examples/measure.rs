//! The cost of the segment cache: `cargo run --release -p kauri-medium --example measure`. Each comparison
//! alternates with its baseline in one run. The program prints the median and the best of the rounds. It also
//! prints the median processor time of all threads, for machines with other load.

use kauri_base::Access;
use kauri_medium::plain::PlainDirectory;
use kauri_medium::{CacheConfig, Directory, EpochDomain, Guard, SegmentCache};
use std::hint::black_box;
use std::time::Instant;

const SEGMENT: usize = 64 << 20;
const SEGMENTS: u32 = 16;
const RECORD: usize = 1024;
const ROUNDS: usize = 15;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of processor time that all threads of this process have used.
#[allow(unsafe_code)]
fn cpu_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, to memory of that type.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn print(what: &str, wall: Vec<f64>, cpu: Vec<f64>) {
    let best = wall.iter().copied().fold(f64::INFINITY, f64::min);
    let (wall, cpu) = (median(wall), median(cpu));
    println!("  {what:<44} {wall:>9.1} ns, best {best:>9.1} ns, processor {cpu:>9.1} ns");
}

/// The time per turn of each of the bodies, alternating.
fn compare(n: usize, bodies: &mut [(&str, &mut dyn FnMut(usize))]) {
    let mut times = vec![(Vec::new(), Vec::new()); bodies.len()];
    for _ in 0..ROUNDS {
        for (body, (wall, cpu)) in bodies.iter_mut().zip(&mut times) {
            let (start, start_cpu) = (Instant::now(), cpu_ns());
            for turn in 0..n {
                (body.1)(turn);
            }
            wall.push(start.elapsed().as_nanos() as f64 / n as f64);
            cpu.push((cpu_ns() - start_cpu) / n as f64);
        }
    }
    for (body, (wall, cpu)) in bodies.iter().zip(times) {
        print(body.0, wall, cpu);
    }
}

fn addresses(n: usize, bytes: usize, len: usize) -> Vec<(u32, u32)> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    (0..n)
        .map(|_| {
            let at = next((bytes / len) as u64) as usize * len;
            ((at / SEGMENT) as u32, (at % SEGMENT) as u32)
        })
        .collect()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    field("VmRSS:") + field("VmPTE:")
}

fn open(path: &std::path::Path, budget_bytes: u64, io_threads: usize) -> SegmentCache {
    let directory = PlainDirectory::open(path).expect("the directory");
    let log = directory.create_log("log", "measure").expect("the log");
    log.grow(u64::from(SEGMENTS) * SEGMENT as u64).expect("space");
    let config =
        CacheConfig { budget_bytes, io_threads, segments_max: 1 << 16, ..CacheConfig::default() };
    SegmentCache::new(log, EpochDomain::new(), config).expect("the cache")
}

fn fetch(cache: &SegmentCache, guard: &mut Guard, segment: u32, offset: u32, len: usize) {
    loop {
        guard.enter();
        let ticket = match cache.read(guard, segment, offset, len).expect("an address") {
            Access::Ready(bytes) => {
                black_box(bytes);
                guard.leave();
                return;
            }
            Access::WouldBlock(ticket) => ticket,
        };
        guard.leave();
        ticket.wait().expect("a read");
    }
}

fn hot(cache: &SegmentCache) {
    let mut guard = cache.domain().register();
    let mut other = cache.domain().register();
    println!("guards");
    compare(
        1_000_000,
        &mut [("enter and leave", &mut |_| {
            other.enter();
            black_box(&other);
            other.leave();
        })],
    );
    guard.enter();
    for (what, bytes) in [("16 MB", 16 << 20), ("1 GB", SEGMENTS as usize * SEGMENT)] {
        println!("hot reads of 1 KB over {what}");
        let places = addresses(1 << 16, bytes, RECORD);
        let mut copy = [0u8; RECORD];
        let mut copied = [0u8; RECORD];
        let flat = vec![1u8; bytes];
        let read = |turn: usize| {
            let (segment, offset) = places[turn & 0xffff];
            match cache.read(&guard, segment, offset, RECORD) {
                Ok(Access::Ready(bytes)) => bytes,
                _ => panic!("not in memory"),
            }
        };
        compare(
            1 << 18,
            &mut [
                ("address only", &mut |turn| {
                    black_box(places[turn & 0xffff]);
                }),
                ("read", &mut |turn| {
                    black_box(read(turn));
                }),
                ("read and copy", &mut |turn| {
                    copy.copy_from_slice(read(turn));
                    black_box(&copy);
                }),
                ("copy from plain memory at the same places", &mut |turn| {
                    let (segment, offset) = places[turn & 0xffff];
                    let at = segment as usize * SEGMENT + offset as usize;
                    copied.copy_from_slice(&flat[at..at + RECORD]);
                    black_box(&copied);
                }),
            ],
        );
    }
    println!("hot reads of 1 MB over 1 GB");
    let places = addresses(1 << 12, SEGMENTS as usize * SEGMENT, 1 << 20);
    compare(
        1 << 12,
        &mut [("read", &mut |turn| {
            let (segment, offset) = places[turn];
            black_box(cache.read(&guard, segment, offset, 1 << 20).is_ok());
        })],
    );
}

fn cold(path: &std::path::Path) {
    let file = std::fs::File::open(path.join("log")).expect("the file");
    let places = addresses(1 << 16, SEGMENTS as usize * SEGMENT, RECORD);
    let mut block = vec![0; 4 << 10];
    for io_threads in [0, 4] {
        // A budget of one segment: nearly every read misses and evicts, all from the page cache.
        let cache = open(path, SEGMENT as u64, io_threads);
        (0..SEGMENTS).for_each(|s| cache.adopt_segment(s, SEGMENT as u32).expect("free"));
        let mut guard = cache.domain().register();
        println!("cold reads of 1 KB from the page cache, {io_threads} I/O threads");
        let (mut one, mut two) = (0, 0);
        compare(
            4096,
            &mut [
                ("read, wait, read", &mut |_| {
                    one += 1;
                    let (segment, offset) = places[one & 0xffff];
                    fetch(&cache, &mut guard, segment, offset, RECORD);
                }),
                ("pread of a block", &mut |_| {
                    use std::os::unix::fs::FileExt;
                    two += 1;
                    let (segment, offset) = places[two & 0xffff];
                    let at = u64::from(segment) * SEGMENT as u64 + u64::from(offset) / 4096 * 4096;
                    file.read_exact_at(&mut block, at).expect("a read");
                }),
            ],
        );
        println!("  {:?}", cache.stats());
    }
}

fn main() {
    let path = std::env::temp_dir().join(format!("kauri-measure-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory");
    let before = resident_kib();
    let cache = open(&path, 4 << 30, 4);
    let empty = resident_kib();
    let record = [7u8; RECORD];
    println!("appends of 1 KB, stored by 16");
    let mut writers: Vec<_> = (0..SEGMENTS).map(|s| cache.open_segment(s).expect("free")).collect();
    let mut times = [const { (Vec::new(), Vec::new()) }; 2];
    for writer in &mut writers {
        let mut sums = [(0.0, 0.0); 2];
        for _ in 0..SEGMENT / RECORD / 16 {
            for (kind, sum) in sums.iter_mut().enumerate() {
                let (start, start_cpu) = (Instant::now(), cpu_ns());
                if kind == 0 {
                    (0..16).for_each(|_| {
                        writer.append(&[&record[..32], &record[32..]]).expect("room");
                    });
                } else {
                    writer.store_pending("measure").expect("a store");
                }
                sum.0 += start.elapsed().as_nanos() as f64;
                sum.1 += cpu_ns() - start_cpu;
            }
        }
        for ((wall, cpu), sum) in times.iter_mut().zip(sums) {
            let n = (SEGMENT / RECORD / 16) as f64;
            wall.push(sum.0 / n);
            cpu.push(sum.1 / n);
        }
    }
    let [(append, append_cpu), (store, store_cpu)] = times;
    print("16 appends (with their page faults)", append, append_cpu);
    print("a store of 16 KB", store, store_cpu);
    drop(writers);
    let full = resident_kib();
    let data = (SEGMENTS as usize * SEGMENT) as u64 / 1024;
    println!("memory: {} KiB for an empty cache with room for 65536 segments,", empty - before);
    println!(
        "  {:.1} KiB a full segment beyond its 64 MB",
        (full - empty).saturating_sub(data) as f64 / f64::from(SEGMENTS)
    );
    hot(&cache);
    drop(cache);
    cold(&path);
    std::fs::remove_dir_all(&path).expect("removed");
}
