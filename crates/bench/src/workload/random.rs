//! Random numbers for the generators.
//!
//! A generator chooses the kind of number that it draws (64 bits, 32 bits, one of the unit interval), as YCSB's
//! generators do with Java's `ThreadLocalRandom`. So Java's numbers can replace ours, and the results can be
//! compared one for one.
//!
//! Invariant: one seed, one sequence. This module must not know time or threads: each thread gets its own source
//! ([`Seeded::of_thread`]).

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;

/// Where a generator's random numbers come from.
pub trait Random {
    /// Sixty-four random bits (Java's `nextLong`).
    fn bits64(&mut self) -> u64;

    /// Thirty-two random bits (Java's `nextInt`).
    fn bits32(&mut self) -> u32;

    /// From 0 to 1, without 1, in steps of 2^-53 (Java's `nextDouble`).
    fn unit(&mut self) -> f64;

    /// One of `count` numbers from 0 on, as YCSB takes it: the absolute value of a 64-bit number, modulo.
    /// `count` is above 0.
    fn below(&mut self, count: i64) -> i64 {
        debug_assert!(count > 0, "one of {count}");
        let positive = self.bits64().cast_signed().unsigned_abs();
        (positive % count.max(1).unsigned_abs()).cast_signed()
    }
}

/// The sequence of a seed.
pub struct Seeded {
    source: SeededRandom,
    half: Option<u32>,
}

impl Seeded {
    /// Of this seed.
    pub fn new(seed: u64) -> Seeded {
        Seeded { source: SeededRandom::new(seed), half: None }
    }

    /// A sequence for one of several threads of one run. The source steps through all 64-bit numbers in
    /// one order, so threads begin at places that are scattered over it.
    pub fn of_thread(seed: u64, thread: u64) -> Seeded {
        let place = SeededRandom::new(seed ^ thread.wrapping_mul(0xD1B5_4A32_D192_ED03));
        Seeded::new(place.next_u64())
    }
}

impl Random for Seeded {
    fn bits64(&mut self) -> u64 {
        self.source.next_own()
    }

    fn bits32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let bits = self.source.next_own();
        self.half = Some(bits as u32);
        (bits >> 32) as u32
    }

    fn unit(&mut self) -> f64 {
        (self.source.next_own() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of given numbers.
    struct Fixed(u64);

    impl Random for Fixed {
        fn bits64(&mut self) -> u64 {
            self.0
        }
        fn bits32(&mut self) -> u32 {
            self.0 as u32
        }
        fn unit(&mut self) -> f64 {
            0.0
        }
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let draw = |mut random: Seeded| {
            [random.bits64(), random.bits32().into(), random.bits32().into(), random.bits64()]
        };
        assert_eq!(draw(Seeded::new(7)), draw(Seeded::new(7)));
        assert_ne!(draw(Seeded::new(7)), draw(Seeded::new(8)));
        assert_eq!(draw(Seeded::of_thread(7, 1)), draw(Seeded::of_thread(7, 1)));
        assert_ne!(draw(Seeded::of_thread(7, 1)), draw(Seeded::of_thread(7, 2)));
        assert_ne!(draw(Seeded::of_thread(7, 1)), draw(Seeded::of_thread(8, 1)));
    }

    #[test]
    fn halves_are_of_one_number() {
        let (mut halves, mut whole) = (Seeded::new(3), Seeded::new(3));
        let (high, low) = (halves.bits32(), halves.bits32());
        assert_eq!(whole.bits64(), u64::from(high) << 32 | u64::from(low));
    }

    #[test]
    fn below_takes_the_absolute_value() {
        assert_eq!(Fixed((-7i64).cast_unsigned()).below(5), 2);
        assert_eq!(Fixed(7).below(5), 2);
        assert_eq!(Fixed(7).below(1), 0);
        // Java's Math.abs has no positive value for this one; ours has.
        assert_eq!(Fixed(1 << 63).below(5), ((1u64 << 63) % 5) as i64);
    }

    #[test]
    fn units_are_below_one() {
        let mut random = Seeded::new(1);
        assert!((0..10_000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
