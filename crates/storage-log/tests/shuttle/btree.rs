//! Concurrent readers and writers of one tree.
//!
//! Each changing key has one writer, which counts its changes before and after each; the key's type bits are
//! the count. A reader therefore knows which counts are valid. None is older than the last count completed, or
//! seen by a reader, before its read began. None is newer than the last count begun when its read ended.

use crate::harness::explore;
use kauri_base::RecordId;
use kauri_base::sync::thread;
use kauri_storage::{Direction, IndexScan};
use kauri_storage_log::btree::BTree;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys with even numbers always exist, the others are added and removed.
const KEYS: u64 = 48;
const ROUNDS: u64 = 4;

/// Long enough that a page holds a dozen keys, with short bounds between pages.
fn key(number: u64) -> Vec<u8> {
    let mut key = format!("{number:04}").into_bytes();
    key.extend(std::iter::repeat_n(b'a' + (number * 7 % 26) as u8, 300));
    key
}

/// The known state of the changing keys; invisible to the scheduler.
struct Oracle {
    begun: Vec<AtomicU64>,
    /// Completed, or seen by a reader.
    done: Vec<AtomicU64>,
}

impl Oracle {
    fn new() -> Self {
        let counts = || (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        Oracle { begun: counts(), done: counts() }
    }

    fn done(&self, number: u64) -> u64 {
        self.done[number as usize].load(Ordering::SeqCst)
    }

    /// Checks the state of a key seen since `done` was read: its type bits, if it existed.
    fn saw(&self, number: u64, done: u64, bits: Option<&[u8]>) {
        let may = done..=self.begun[number as usize].load(Ordering::SeqCst);
        match bits {
            Some(bits) => {
                let count = u64::from(bits[0]);
                assert!(is_there(count) && may.contains(&count), "{number}: {count}, not {may:?}");
                self.done[number as usize].fetch_max(count, Ordering::SeqCst);
            }
            None => {
                assert!(may.clone().any(|c| !is_there(c)), "{number} is missing in {may:?}");
                if is_one_change(&may) {
                    let seen = if is_there(*may.start()) { may.end() } else { may.start() };
                    self.done[number as usize].fetch_max(*seen, Ordering::SeqCst);
                }
            }
        }
    }
}

fn is_one_change(may: &RangeInclusive<u64>) -> bool {
    may.end() - may.start() <= 1
}

/// The first change adds a key, the second changes its type bits, the third removes it.
fn is_there(count: u64) -> bool {
    !count.is_multiple_of(3)
}

fn write(tree: &BTree, oracle: &Oracle, numbers: impl Iterator<Item = u64> + Clone) {
    for count in 1..=ROUNDS {
        for number in numbers.clone() {
            oracle.begun[number as usize].store(count, Ordering::SeqCst);
            let bits = [count as u8];
            let bits = is_there(count).then_some(&bits[..]);
            tree.change(&key(number), RecordId(number), bits);
            oracle.done[number as usize].fetch_max(count, Ordering::SeqCst);
        }
    }
}

fn get(tree: &BTree, oracle: &Oracle, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let done = oracle.done(number);
        let bits = tree.get(&key(number), RecordId(number));
        if number % 2 == 0 {
            assert!(bits.is_some(), "{number} is always there");
            assert_eq!(tree.first(&key(number), |_| {}), Some(RecordId(number)));
        } else {
            oracle.saw(number, done, bits.as_deref());
        }
    }
}

fn scan(tree: &BTree, oracle: &Oracle, direction: Direction) {
    let done: Vec<_> = (0..KEYS).map(|number| oracle.done(number)).collect();
    let mut scan = IndexScan::new(direction, Vec::new(), Vec::new());
    let mut seen: Vec<(u64, Vec<u8>)> = Vec::new();
    while !scan.ended() {
        tree.fill(&mut scan);
        while let Some(entry) = scan.next_buffered() {
            assert_eq!(entry.key, key(entry.record.0));
            seen.push((entry.record.0, entry.type_bits.to_vec()));
        }
    }
    if direction == Direction::Backward {
        seen.reverse();
    }
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "{direction:?}: {seen:?}");
    for number in 0..KEYS {
        let at = seen.binary_search_by_key(&number, |(number, _)| *number);
        let bits = at.ok().map(|at| &*seen[at].1);
        if number % 2 == 0 {
            assert!(bits.is_some(), "{direction:?}: {number} is always there");
        } else {
            oracle.saw(number, done[number as usize], bits);
        }
    }
}

#[test]
fn readers_see_a_tree_that_writers_split_and_merge() {
    explore(3000, || {
        let (tree, oracle) = (Arc::new(BTree::new()), Arc::new(Oracle::new()));
        for number in (0..KEYS).step_by(2) {
            tree.insert(&key(number), RecordId(number), &[0]);
        }
        thread::scope(|scope| {
            let (tree, oracle) = (&*tree, &*oracle);
            scope.spawn(|| write(tree, oracle, (1..KEYS / 2).step_by(2)));
            scope.spawn(|| write(tree, oracle, (KEYS / 2 + 1..KEYS).step_by(2)));
            scope.spawn(|| {
                scan(tree, oracle, Direction::Forward);
                get(tree, oracle, 15..KEYS);
            });
            scope.spawn(|| {
                get(tree, oracle, 0..33);
                scan(tree, oracle, Direction::Backward);
            });
        });
        scan(&tree, &oracle, Direction::Forward);
        let odd_left = if is_there(ROUNDS) { KEYS / 2 } else { 0 };
        assert_eq!(tree.entries(), KEYS / 2 + odd_left);
    });
}
