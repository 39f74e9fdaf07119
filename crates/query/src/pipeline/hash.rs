//! Hashing for groups, sets and joins: fast for short keys, and keyed, so that a client cannot choose documents
//! that all collide.

use kauri_base::RandomSource;
use kauri_bson::Value;
use std::hash::{BuildHasher, Hasher};

const ROUND: u64 = 0x9E37_79B9_7F4A_7C15;

/// The key of a table.
#[derive(Clone, Copy, Debug)]
pub struct HashKey {
    a: u64,
    b: u64,
}

impl HashKey {
    /// A new one.
    pub fn new(random: &dyn RandomSource) -> HashKey {
        // Odd: a factor of zero would forget what was mixed in.
        HashKey { a: random.next_u64(), b: random.next_u64() | 1 }
    }

    /// A key by which all values that end alike hash alike.
    #[cfg(test)]
    pub fn weak() -> HashKey {
        HashKey { a: 1, b: ROUND }
    }

    /// The hash of a value: values that are equal in the comparison order hash alike.
    #[inline]
    pub fn hash_of(self, value: &Value<'_>) -> u64 {
        let mut hasher = self.build_hasher();
        kauri_bson::hash_value(value, &mut hasher);
        hasher.finish()
    }
}

impl BuildHasher for HashKey {
    type Hasher = FoldHasher;

    #[inline]
    fn build_hasher(&self) -> FoldHasher {
        FoldHasher { state: self.a, factor: self.b }
    }
}

/// Multiplies each word into the state and folds the product's halves together.
pub struct FoldHasher {
    state: u64,
    factor: u64,
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl FoldHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.factor ^ ROUND).rotate_left(23) ^ word;
    }
}

impl Hasher for FoldHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let word = chunk.try_into().map_or(0, u64::from_le_bytes);
            self.mix(word);
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    #[inline]
    fn write_i64(&mut self, value: i64) {
        self.mix(value as u64);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, self.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn spreads_keys_that_differ_little() {
        let key = HashKey { a: 1, b: 3 };
        let mut low = HashSet::new();
        let mut all = HashSet::new();
        for n in 0..4096 {
            let hash = key.hash_of(&Value::Int32(n));
            assert_eq!(hash, key.hash_of(&Value::Double(f64::from(n))));
            all.insert(hash);
            low.insert(hash & 0xFFFF);
        }
        assert_eq!(all.len(), 4096);
        // 4096 balls in 65536 bins leave about 3971 bins taken.
        assert!(low.len() > 3800, "{}", low.len());
        assert_ne!(key.hash_of(&"ab".into()), key.hash_of(&"ba".into()));
        assert_ne!(HashKey { a: 2, b: 3 }.hash_of(&1.into()), key.hash_of(&1.into()));
    }
}
