//! Predicts record ids from keys. It applies where the record id grows by one for each step of a power of two in
//! the keys' last bytes, as in an index of ascending numbers or of one client's ObjectIds. Larger numbers have
//! longer keys and other first bytes, so there is one prediction per key length (or group of lengths).
//!
//! A prediction is learned from a small part of the lookups and dropped at the first wrong result. With it, a
//! record can be fetched while the tree is still being searched. Predictions are hints: correctness does not depend
//! on them, nor on when a thread sees what another thread has learned. All threads read this data, so it is written
//! rarely.

use kauri_base::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// One record in this many updates the prediction while there is none.
const TEACHES_EACH: u64 = 16;

/// Number of distinguished key lengths.
const LENGTHS: usize = 4;

/// See the module's head.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Courses([Course; LENGTHS]);

/// That of keys of one length.
#[derive(Default)]
struct Course {
    /// The exponent of the step from key to key, and one; 0 as long as no course is known.
    step: AtomicU8,
    /// A record less the steps that its number is.
    offset: AtomicU64,
    /// The last lesson.
    number: AtomicU64,
    record: AtomicU64,
}

/// A key's last bytes as a number.
fn number_of(key: &[u8]) -> u64 {
    match key.last_chunk() {
        Some(last) => u64::from_be_bytes(*last),
        None => key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

impl Courses {
    #[inline]
    fn of(&self, key: &[u8]) -> &Course {
        &self.0[key.len() % LENGTHS]
    }

    /// The record that this key likely has.
    #[inline]
    pub(super) fn guess(&self, key: &[u8]) -> Option<u64> {
        self.of(key).guess(key)
    }

    /// Learns from the record of a key. `guess` is the prediction.
    #[inline]
    pub(super) fn learn(&self, key: &[u8], record: u64, guess: Option<u64>) {
        self.of(key).learn(key, record, guess);
    }
}

impl Course {
    #[inline]
    fn guess(&self, key: &[u8]) -> Option<u64> {
        let shift = self.step.load(Ordering::Relaxed).checked_sub(1)?;
        let steps = number_of(key) >> shift.min(63);
        Some(steps.wrapping_add(self.offset.load(Ordering::Relaxed)))
    }

    #[inline]
    fn learn(&self, key: &[u8], record: u64, guess: Option<u64>) {
        match guess {
            Some(guess) if guess == record => {}
            Some(_) => self.step.store(0, Ordering::Relaxed),
            None if record.is_multiple_of(TEACHES_EACH) => self.take_lesson(key, record),
            None => {}
        }
    }

    #[cold]
    fn take_lesson(&self, key: &[u8], record: u64) {
        let number = number_of(key);
        let numbers = number.wrapping_sub(self.number.load(Ordering::Relaxed));
        let records = record.wrapping_sub(self.record.load(Ordering::Relaxed));
        self.number.store(number, Ordering::Relaxed);
        self.record.store(record, Ordering::Relaxed);
        if records == 0 {
            return;
        }
        let zeros = |difference: u64| (difference as i64).unsigned_abs().leading_zeros();
        let shift = zeros(records).saturating_sub(zeros(numbers));
        // A whole step for each record: else keys are no such numbers.
        if records.checked_shl(shift) == Some(numbers) {
            self.offset.store(record.wrapping_sub(number >> shift), Ordering::Relaxed);
            self.step.store(shift as u8 + 1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_base::RandomSource;
    use kauri_base::clock::SeededRandom;

    /// Number of right and wrong predictions among `asked` records, whose keys `key` makes.
    fn guessed(course: &Courses, key: impl Fn(u64) -> Vec<u8>, asked: &[u64]) -> (usize, usize) {
        let (mut right, mut wrong) = (0, 0);
        for &record in asked {
            let guess = course.guess(&key(record));
            course.learn(&key(record), record, guess);
            match guess {
                Some(guess) if guess == record => right += 1,
                Some(_) => wrong += 1,
                None => {}
            }
        }
        (right, wrong)
    }

    fn some(seed: u64, below: u64) -> Vec<u64> {
        let random = SeededRandom::new(seed);
        (0..1000).map(|_| random.next_u64() % below).collect()
    }

    fn long(number: u64, step: u64) -> Vec<u8> {
        [b"prefix".as_slice(), &(number * step + 77).to_be_bytes()].concat()
    }

    #[test]
    fn ascending_keys_tell_their_records() {
        for step in [1, 2, 512] {
            let course = Courses::default();
            let (right, wrong) = guessed(&course, |n| long(n, step), &some(step, 1 << 20));
            assert!(right > 900 && wrong == 0, "{step}: {right}, {wrong}");
        }
        // Shorter than a number, and descending lookups.
        let course = Courses::default();
        let key = |record: u64| (3 * 65536 + 2 * record).to_be_bytes()[5..].to_vec();
        let asked: Vec<u64> = (0..1000).rev().collect();
        let (right, wrong) = guessed(&course, key, &asked);
        assert!(right > 900 && wrong == 0, "{right}, {wrong}");
    }

    #[test]
    fn keys_of_other_lengths_are_another_course() {
        // As numbers are encoded: those above 32767 have a byte more.
        let key = |record: u64| match record {
            0..32768 => [&[7], &(2 * record).to_be_bytes()[6..]].concat(),
            _ => [&[8], &(2 * record).to_be_bytes()[5..]].concat(),
        };
        let (right, wrong) = guessed(&Courses::default(), key, &some(1, 400_000));
        assert!(right > 850 && wrong == 0, "{right}, {wrong}");
    }

    #[test]
    fn other_keys_tell_nothing() {
        let random = |n: u64| (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
        assert_eq!(guessed(&Courses::default(), random, &some(1, 1 << 20)), (0, 0));
        assert_eq!(guessed(&Courses::default(), |n| long(n, 3), &some(1, 1 << 20)), (0, 0));
        assert_eq!(guessed(&Courses::default(), |_| Vec::new(), &some(1, 1 << 20)), (0, 0));
        // Makers that take turns: a wrong guess now and then.
        let makers =
            |n: u64| [(n % 2) as u8; 8].iter().chain(&(n / 2).to_be_bytes()).copied().collect();
        let (_, wrong) = guessed(&Courses::default(), makers, &some(2, 1 << 20));
        assert!(wrong < 100, "{wrong}");
    }

    #[test]
    fn a_new_course_is_learned_after_one_wrong_guess() {
        let course = Courses::default();
        guessed(&course, |n| long(n, 1), &some(1, 1 << 20));
        let (right, wrong) = guessed(&course, |n| long(n + 1_000_000, 1), &some(2, 1 << 20));
        assert!(right > 900 && wrong == 1, "{right}, {wrong}");
    }
}
