//! The cost of the ordered index compared with `BTreeMap`: time per call, bytes per entry.
//!
//! `cargo run --release -p kauri-storage-log --example index_timing [entries]`

use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_storage::{Direction, IndexScan};
use kauri_storage_log::btree::BTree;
use std::collections::BTreeMap;
use std::hint::black_box;

/// Nanoseconds that this thread has run, without the machine's other load.
fn run_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Nanoseconds per call.
fn time(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = run_time();
    (0..calls).for_each(&mut call);
    (run_time() - start) as f64 / calls as f64
}

/// Index keys of ObjectIds: a type byte and 12 bytes.
fn object_ids(count: usize, random: Option<&SeededRandom>) -> Vec<[u8; 13]> {
    (0..count)
        .map(|i| {
            let mut key = [0x64; 13];
            match random {
                Some(random) => {
                    key[1..9].copy_from_slice(&random.next_u64().to_be_bytes());
                    key[9..].copy_from_slice(&(random.next_u64() as u32).to_be_bytes());
                }
                // Seconds, a process's five random bytes, a counter.
                None => {
                    key[1..5].copy_from_slice(&(0x6000_0000 + (i / 50_000) as u32).to_be_bytes());
                    key[5..].copy_from_slice(&(0x1234_5678_9a00_0000 + i as u64).to_be_bytes());
                }
            }
            key
        })
        .collect()
}

fn measure(name: &str, keys: &[[u8; 13]], order: &[usize]) {
    let tree = BTree::new();
    let insert = time(keys.len(), |i| tree.insert(&keys[i], RecordId(i as u64 + 1), b""));
    // In access order, because a server already has the key in its cache.
    let probes: Vec<_> = order.iter().map(|i| keys[*i]).collect();
    let get = time(keys.len(), |i| {
        assert_eq!(tree.first(black_box(&probes[i]), |_| {}), Some(RecordId(order[i] as u64 + 1)));
    });
    let mut scan = IndexScan::new(Direction::Forward, Vec::new(), Vec::new());
    let step = time(keys.len(), |_| {
        if scan.next_buffered().is_none() {
            tree.fill(&mut scan);
            assert!(scan.next_buffered().is_some());
        }
    });
    let bytes = tree.bytes() as f64 / keys.len() as f64;
    let remove = time(keys.len(), |i| {
        assert!(tree.remove(&probes[i], RecordId(order[i] as u64 + 1)));
    });
    println!(
        "{name}: insert {insert:.0} ns, get {get:.0} ns, scan {step:.0} ns an entry, \
         remove {remove:.0} ns, {bytes:.1} B an entry"
    );
}

fn main() {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let random = SeededRandom::new(1);
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, (random.next_u64() % (i as u64 + 1)) as usize);
    }
    let sequential = object_ids(count, None);
    let scattered = object_ids(count, Some(&random));
    measure("in order", &sequential, &order);
    measure("random", &scattered, &order);

    let mut sorted = scattered.clone();
    sorted.sort_unstable();
    let start = run_time();
    let entries = sorted.iter().zip(1..).map(|(key, id)| (&key[..], RecordId(id), &b""[..]));
    let tree = BTree::from_sorted(entries);
    let each = (run_time() - start) as f64 / count as f64;
    let bytes = tree.bytes() as f64 / count as f64;
    let probes: Vec<_> = order.iter().map(|i| sorted[*i]).collect();
    let get = time(count, |i| assert!(black_box(tree.first(&probes[i], |_| {})).is_some()));
    println!("bulk: {each:.0} ns, get {get:.0} ns, {bytes:.1} B an entry");

    let mut map = BTreeMap::new();
    let insert = time(count, |i| assert!(map.insert((scattered[i], i as u64 + 1), ()).is_none()));
    let get = time(count, |i| {
        let key = black_box((probes[i], 0));
        assert!(map.range(key..).next().is_some());
    });
    println!("BTreeMap, random: insert {insert:.0} ns, get {get:.0} ns");
}
