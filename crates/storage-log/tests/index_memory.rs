//! The memory that the ordered index reports equals the growth of the process, and it is small. The test has
//! its own process, so that no other test changes the process's memory.

use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_storage_log::btree::BTree;

const ENTRIES: u64 = 500_000;

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("resident pages");
    pages * 4096
}

fn check(name: &str, most: f64, fill: impl FnOnce(&BTree)) -> BTree {
    let before = resident_bytes();
    let tree = BTree::new();
    fill(&tree);
    let grown = (resident_bytes() - before) as f64;
    let (counted, entries) = (tree.bytes() as f64, tree.entries() as f64);
    println!("{name}: {:.1} B an entry, really {:.1}", counted / entries, grown / entries);
    assert_eq!(tree.entries(), ENTRIES);
    assert!((0.93..1.05).contains(&(counted / grown)), "counts {counted} B, takes {grown} B");
    assert!(grown / entries <= most, "{name}: {} B an entry", grown / entries);
    tree
}

/// A type byte, then the twelve bytes of an ObjectId.
fn object_id(bytes: u128) -> [u8; 13] {
    let mut key = [0x64; 13];
    key[1..].copy_from_slice(&bytes.to_be_bytes()[..12]);
    key
}

#[test]
fn the_reported_memory_is_the_real_one() {
    let random = SeededRandom::new(1);
    // Kept to the end: otherwise the next tree would grow into this one's memory unseen.
    let _scattered = check("random ObjectIds", 30.0, |tree| {
        for i in 1..=ENTRIES {
            let bytes = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
            tree.insert(&object_id(bytes), RecordId(i), b"");
        }
    });
    let _in_order = check("ObjectIds in order", 20.0, |tree| {
        for i in 1..=ENTRIES {
            tree.insert(&object_id(u128::from(i) << 32), RecordId(i), b"");
        }
    });
    let _few = check("100 values", 24.0, |tree| {
        for i in 1..=ENTRIES {
            tree.insert(&(i * 7919 % 100).to_be_bytes(), RecordId(i), b"\x01");
        }
    });
}
