//! Names of keys and values of fields, byte for byte as in YCSB.
//!
//! Implements `Utils.fnvhash64`, `CoreWorkload.buildKeyName`, `RandomByteIterator` and
//! `CoreWorkload.buildDeterministicValue`. Invariant: each is a function of its arguments. This module must not
//! know how a record is stored: it writes bytes into the caller's buffer.

use super::random::Random;

/// What YCSB hashes numbers with: 64-bit FNV-1a over the eight bytes, the lowest first, and of that the
/// absolute value (`Utils.fnvhash64`).
pub fn hash64(number: i64) -> i64 {
    const OFFSET_BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 1_099_511_628_211;
    let hash = number
        .to_le_bytes()
        .iter()
        .fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    hash.cast_signed().wrapping_abs()
}

/// In which order keys are to the records' numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertOrder {
    /// By the hash of the number: records inserted one after the other are not neighbours.
    Hashed,
    /// By the number.
    Ordered,
}

/// How keys are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyNames {
    /// Hashed or not.
    pub order: InsertOrder,
    /// Least digits, filled up with zeros (`zeropadding`).
    pub digits_min: usize,
}

impl KeyNames {
    /// Appends the key of a record's number: `user` and digits (`CoreWorkload.buildKeyName`).
    pub fn append(&self, number: i64, out: &mut String) {
        use std::fmt::Write;
        let number = match self.order {
            InsertOrder::Hashed => hash64(number),
            InsertOrder::Ordered => number,
        };
        out.push_str("user");
        let mark = out.len();
        // Writing to a String does not fail.
        let _ = write!(out, "{number}");
        let digits = out.len() - mark;
        if digits < self.digits_min {
            // The zeros stand before a minus sign, as in YCSB.
            let zeros = "0".repeat(self.digits_min - digits);
            out.insert_str(mark, &zeros);
        }
    }

    /// The key of a record's number.
    pub fn name(&self, number: i64) -> String {
        let mut name = String::with_capacity(24);
        self.append(number, &mut name);
        name
    }
}

/// Appends so many random ASCII characters from space on (`RandomByteIterator`): each 32 random bits make
/// six, of 31, 63, 127 possible codes by turns.
pub fn append_random(out: &mut Vec<u8>, length: usize, random: &mut impl Random) {
    let start = out.len();
    out.resize(start + length, 0);
    for letters in out.get_mut(start..).unwrap_or_default().chunks_mut(6) {
        let bits = random.bits32();
        // The last one takes the sign's bit, which Java's shift keeps.
        let six = [bits & 31, bits >> 5 & 63, bits >> 10 & 95, bits >> 15 & 31, bits >> 20 & 63, {
            (bits.cast_signed() >> 25).cast_unsigned() & 95
        }];
        for (letter, code) in letters.iter_mut().zip(six) {
            *letter = code as u8 + b' ';
        }
    }
}

/// A string's `hashCode` in Java, made longer by ASCII bytes one after the other.
fn java_hash(hash: i32, more: &[u8]) -> i32 {
    more.iter().fold(hash, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(*byte)))
}

/// Appends the value that a field of a key has under `dataintegrity`
/// (`CoreWorkload.buildDeterministicValue`): key, field, then hashes of what stands there so far, cut at the
/// length. Key and field are ASCII.
pub fn append_deterministic(out: &mut Vec<u8>, key: &str, field: &str, length: usize) {
    use std::io::Write;
    let start = out.len();
    out.extend_from_slice(key.as_bytes());
    out.push(b':');
    out.extend_from_slice(field.as_bytes());
    let mut hashed = start;
    let mut hash = 0;
    while out.len() - start < length {
        out.push(b':');
        hash = java_hash(hash, out.get(hashed..).unwrap_or_default());
        hashed = out.len();
        // Writing to a Vec does not fail.
        let _ = write!(out, "{hash}");
    }
    out.truncate(start + length);
}

#[cfg(test)]
mod tests {
    use super::super::random::Seeded;
    use super::*;

    /// Values that YCSB 0.17.0 gave.
    #[test]
    fn hashes_are_those_of_ycsb() {
        assert_eq!(hash64(0), 6284781860667377211);
        assert_eq!(hash64(1), 8517097267634966620);
        assert_eq!(hash64(2), 1820151046732198393);
        assert!([-1, i64::MIN, i64::MAX].iter().all(|number| hash64(*number) > 0));
    }

    #[test]
    fn keys_are_padded() {
        let hashed = KeyNames { order: InsertOrder::Hashed, digits_min: 1 };
        assert_eq!(hashed.name(0), "user6284781860667377211");
        let ordered = KeyNames { order: InsertOrder::Ordered, digits_min: 1 };
        assert_eq!(ordered.name(0), "user0");
        assert_eq!(ordered.name(1234), "user1234");
        let padded = KeyNames { order: InsertOrder::Ordered, digits_min: 8 };
        assert_eq!(padded.name(1234), "user00001234");
        assert_eq!(padded.name(123456789), "user123456789");
        assert_eq!(padded.name(-5), "user000000-5");
    }

    #[test]
    fn random_values_are_printable_and_have_their_length() {
        let mut random = Seeded::new(5);
        for length in [0, 1, 5, 6, 7, 100] {
            let mut out = b"before".to_vec();
            append_random(&mut out, length, &mut random);
            assert_eq!(out.len(), 6 + length);
            assert!(out.starts_with(b"before"));
            assert!(out.iter().all(|byte| (b' '..=0x7F).contains(byte)), "{out:?}");
        }
    }

    #[test]
    fn deterministic_values_are_cut() {
        let value = |length| {
            let mut out = Vec::new();
            append_deterministic(&mut out, "user1", "field0", length);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(value(0), "");
        assert_eq!(value(7), "user1:f");
        assert_eq!(value(12), "user1:field0");
        assert_eq!(value(13), "user1:field0:");
        let hash = java_hash(0, b"user1:field0:");
        assert!(value(100).starts_with(&format!("user1:field0:{hash}:")));
        assert_eq!(value(100).len(), 100);
        assert_eq!(java_hash(0, b"hello"), 99162322, "as Java documents it");
    }
}
