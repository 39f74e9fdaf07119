//! Sums of index entries by hash, which tell whether two sets of entries are equal.
//!
//! A check adds what the records should have and subtracts what the index has. A bucket whose sum is not zero
//! has an entry of one set alone. So no record's keys are made again for each of its entries.

use kauri_base::RecordId;
use std::hash::{BuildHasher, RandomState};

const BUCKETS: usize = 16 * 1024;

/// See the module's head.
pub struct EntrySums {
    /// Its seed is random, so that no client can choose keys whose sums are zero.
    hash: RandomState,
    buckets: Box<[u64]>,
}

impl Default for EntrySums {
    fn default() -> Self {
        EntrySums { hash: RandomState::new(), buckets: vec![0; BUCKETS].into() }
    }
}

impl EntrySums {
    /// Adds an entry.
    pub fn add(&mut self, key: &[u8], record: RecordId) {
        let hash = self.hash.hash_one((key, record.0));
        let sum = self.bucket(hash);
        *sum = sum.wrapping_add(hash);
    }

    /// Takes an entry away.
    pub fn subtract(&mut self, key: &[u8], record: RecordId) {
        let hash = self.hash.hash_one((key, record.0));
        let sum = self.bucket(hash);
        *sum = sum.wrapping_sub(hash);
    }

    /// Whether the entry's bucket is not zero.
    pub fn differs_at(&mut self, key: &[u8], record: RecordId) -> bool {
        let hash = self.hash.hash_one((key, record.0));
        *self.bucket(hash) != 0
    }

    /// Whether any bucket is not zero.
    pub fn differs(&self) -> bool {
        self.buckets.iter().any(|sum| *sum != 0)
    }

    fn bucket(&mut self, hash: u64) -> &mut u64 {
        // The sum is of the whole hash, and its upper bits vary within a bucket.
        &mut self.buckets[hash as usize % BUCKETS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_in_any_order_sum_to_zero_and_others_do_not() {
        let entries: Vec<_> =
            (0..100_000u64).map(|n| ((n % 7).to_le_bytes(), RecordId(n))).collect();
        let mut sums = EntrySums::default();
        entries.iter().for_each(|(key, record)| sums.add(key, *record));
        entries.iter().rev().skip(1).for_each(|(key, record)| sums.subtract(key, *record));
        let (key, record) = entries[99_999];
        assert!(sums.differs() && sums.differs_at(&key, record));
        let alike = entries.iter().filter(|(key, record)| sums.differs_at(key, *record)).count();
        assert!(alike < 100, "{alike} entries are in the bucket of one");
        sums.subtract(&key, record);
        assert!(!sums.differs());
        sums.subtract(&key, record);
        assert!(sums.differs(), "an entry twice is no entry");
    }
}
