//! Hash sums of index entries, which show whether two sets of entries are equal.
//!
//! A check adds the entries that the records should have and subtracts the entries of the index. A bucket with a
//! sum other than zero has an entry that only one set has. So the keys of a record are not generated again for each
//! of its entries.

use kauri_base::{RandomSource, RecordId};
use std::hash::{DefaultHasher, Hash, Hasher};

const BUCKETS: usize = 16 * 1024;

/// See the module's head.
pub struct EntrySums {
    /// Hashed in front of every entry, so that no client can choose keys whose sums are zero.
    seed: [u64; 2],
    buckets: Box<[u64]>,
}

impl EntrySums {
    /// Sums of no entries.
    pub fn new(random: &dyn RandomSource) -> EntrySums {
        let seed = [random.next_u64(), random.next_u64()];
        EntrySums { seed, buckets: vec![0; BUCKETS].into() }
    }

    fn hash(&self, key: &[u8], record: RecordId) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, key, record.0).hash(&mut hasher);
        hasher.finish()
    }

    /// Adds an entry.
    pub fn add(&mut self, key: &[u8], record: RecordId) {
        let hash = self.hash(key, record);
        let sum = self.bucket(hash);
        *sum = sum.wrapping_add(hash);
    }

    /// Takes an entry away.
    pub fn subtract(&mut self, key: &[u8], record: RecordId) {
        let hash = self.hash(key, record);
        let sum = self.bucket(hash);
        *sum = sum.wrapping_sub(hash);
    }

    /// Whether the entry's bucket is not zero.
    pub fn differs_at(&mut self, key: &[u8], record: RecordId) -> bool {
        let hash = self.hash(key, record);
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
    use kauri_base::clock::SeededRandom;

    #[test]
    fn only_equal_sets_sum_to_zero_in_any_order() {
        let entries: Vec<_> =
            (0..100_000u64).map(|n| ((n % 7).to_le_bytes(), RecordId(n))).collect();
        let mut sums = EntrySums::new(&SeededRandom::new(1));
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
