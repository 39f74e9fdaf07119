//! The distributions of `site.ycsb.generator`.
//!
//! Each draws the next number of its distribution from the caller's random numbers. Invariants: the arithmetic is
//! YCSB's, operation by operation, so that the same random numbers give the same results. A generator that threads
//! share (the counters) takes `&self`; one that each thread copies takes `&mut self` if it changes. This module
//! must not know clocks: a distribution that moves with time gets the time from the caller.

mod counter;
mod discrete;
mod histogram;
mod hotspot;
mod zipfian;

pub use counter::{ACKNOWLEDGED_WINDOW, AcknowledgedCounter, Counter, Sequential};
pub use discrete::Discrete;
pub use histogram::Histogram;
pub use hotspot::{Every, Hotspot, MovingHotspot};
pub use zipfian::{
    SCRAMBLED_ITEM_COUNT, SCRAMBLED_ZETA, ScrambledZipfian, SkewedLatest, ZIPFIAN_CONSTANT,
    Zipfian, zeta,
};

use super::random::Random;

/// Any number from one to another, each as likely (`UniformLongGenerator`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uniform {
    low: i64,
    count: i64,
}

impl Uniform {
    /// From `low` to `high`, both included; `low` is not above `high`.
    pub fn new(low: i64, high: i64) -> Uniform {
        debug_assert!(low <= high, "from {low} to {high}");
        Uniform { low, count: high - low + 1 }
    }

    /// The next one.
    pub fn next(&self, random: &mut impl Random) -> i64 {
        random.below(self.count) + self.low
    }
}

/// Intervals between events that come at random (`ExponentialGenerator`): small ones are more frequent, and
/// there is no largest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exponential {
    rate: f64,
}

impl Exponential {
    /// Of which `percentile` of a hundred are below `range`.
    pub fn of_percentile(percentile: f64, range: f64) -> Exponential {
        Exponential { rate: -(1.0 - percentile / 100.0).ln() / range }
    }

    /// The next one.
    pub fn next(&self, random: &mut impl Random) -> f64 {
        -random.unit().ln() / self.rate
    }
}

/// How long a field or a scan is.
#[derive(Clone, Debug)]
pub enum Length {
    /// Always the same (`ConstantIntegerGenerator`).
    Constant(i64),
    /// Each in a range as likely.
    Uniform(Uniform),
    /// The shorter, the likelier.
    Zipfian(Zipfian),
    /// As a file says.
    Histogram(Histogram),
}

impl Length {
    /// The next one.
    pub fn next(&self, random: &mut impl Random) -> i64 {
        match self {
            Length::Constant(length) => *length,
            Length::Uniform(uniform) => uniform.next(random),
            Length::Zipfian(zipfian) => zipfian.next(random),
            Length::Histogram(histogram) => histogram.next(random),
        }
    }
}

/// By which distribution records are chosen, but for those that threads share counters for.
#[derive(Clone, Debug)]
pub enum KeyChoice {
    /// Each as likely.
    Uniform(Uniform),
    /// Few are popular, scattered over all.
    Zipfian(ScrambledZipfian),
    /// Those inserted last are popular.
    Latest(SkewedLatest),
    /// Those at the beginning are popular.
    Hotspot(Hotspot),
    /// Popular are those in a window that moves.
    MovingHotspot(MovingHotspot),
    /// Those inserted last are likelier, by an exponential law.
    Exponential(Exponential),
    /// One after the other, all threads together.
    Sequential,
}

#[cfg(test)]
mod tests {
    use super::super::random::Seeded;
    use super::*;

    #[test]
    fn uniform_reaches_both_ends_and_nothing_else() {
        let (uniform, mut random) = (Uniform::new(-2, 3), Seeded::new(1));
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[(uniform.next(&mut random) + 2) as usize] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 600), "{counts:?}");
        assert_eq!(Uniform::new(5, 5).next(&mut random), 5);
    }

    #[test]
    fn exponential_has_its_percentile() {
        let (exponential, mut random) = (Exponential::of_percentile(90.0, 100.0), Seeded::new(1));
        let below = (0..100_000).filter(|_| exponential.next(&mut random) < 100.0).count();
        assert!(below.abs_diff(90_000) < 600, "{below}");
    }

    #[test]
    fn lengths_keep_their_range() {
        let mut random = Seeded::new(2);
        assert_eq!(Length::Constant(9).next(&mut random), 9);
        let zipfian = Length::Zipfian(Zipfian::new(1, 10));
        let drawn: Vec<i64> = (0..1000).map(|_| zipfian.next(&mut random)).collect();
        assert!(drawn.iter().all(|length| (1..=10).contains(length)));
        let ones = drawn.iter().filter(|length| **length == 1).count();
        assert!(ones.abs_diff(338) < 60, "1 / zeta(10) of them: {ones}");
    }
}
