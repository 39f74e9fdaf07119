//! A hot set: `HotspotIntegerGenerator`, and a moving one, which YCSB does not have.
//!
//! Invariant: within the hot set and within the rest all numbers are equally likely. This module must not know
//! clocks: the position of a moving set follows from the time that the caller passes.

use super::super::random::Random;
use std::time::Duration;

/// The lowest numbers are the hot ones (`HotspotIntegerGenerator`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hotspot {
    low: i64,
    hot: i64,
    cold: i64,
    hot_share: f64,
}

impl Hotspot {
    /// Over the numbers from `low` to `high`, both included: the first `hot_fraction` of them are drawn
    /// `hot_share` of the time; both are from 0 to 1. None where a set is empty that would be drawn from;
    /// YCSB divides by 0 then, at the first draw.
    pub fn new(low: i64, high: i64, hot_fraction: f64, hot_share: f64) -> Option<Hotspot> {
        let count = high - low + 1;
        let hot = (count as f64 * hot_fraction) as i64;
        let cold = count - hot;
        let drawable = (hot > 0 || hot_share <= 0.0) && (cold > 0 || hot_share >= 1.0);
        drawable.then_some(Hotspot { low, hot, cold, hot_share })
    }

    /// How many numbers are hot.
    pub fn hot(&self) -> i64 {
        self.hot
    }

    /// The next one.
    pub fn next(&self, random: &mut impl Random) -> i64 {
        self.low + self.offset(random)
    }

    fn offset(&self, random: &mut impl Random) -> i64 {
        if random.unit() < self.hot_share {
            random.below(self.hot)
        } else {
            self.hot + random.below(self.cold)
        }
    }
}

/// When a hot set makes its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Every {
    /// After so many operations that choose a record, of all threads together; above 0.
    Operations(u64),
    /// After so much time; above 0.
    Time(Duration),
}

/// A hot set that moves (not in YCSB): popularity that drifts, which a cache has to follow.
///
/// The numbers form a ring. The hot set is a window of `hot_fraction` of them; at first it begins at the
/// lowest number, and with each step its beginning moves up by so many numbers, around the ring. What is in
/// it is drawn `hot_share` of the time. Without steps it is [`Hotspot`] to the number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MovingHotspot {
    hotspot: Hotspot,
    step: i64,
    every: Every,
}

impl MovingHotspot {
    /// Moves this one by `step` numbers each time.
    pub fn new(hotspot: Hotspot, step: i64, every: Every) -> MovingHotspot {
        MovingHotspot { hotspot, step, every }
    }

    /// When it moves.
    pub fn every(&self) -> Every {
        self.every
    }

    /// Where the hot set begins once so many operations have been asked for and so much time has passed.
    pub fn start(&self, operations: u64, elapsed: Duration) -> i64 {
        let steps = match self.every {
            Every::Operations(count) => u128::from(operations) / u128::from(count.max(1)),
            Every::Time(time) => elapsed.as_nanos() / time.as_nanos().max(1),
        };
        self.hotspot.low + self.around(steps, self.step)
    }

    /// `times` the step, modulo the ring.
    fn around(&self, times: u128, step: i64) -> i64 {
        let ring = i128::from(self.hotspot.hot + self.hotspot.cold).max(1);
        let times = (times % ring.unsigned_abs()).cast_signed();
        (times * i128::from(step)).rem_euclid(ring) as i64
    }

    /// The next one.
    pub fn next(&self, operations: u64, elapsed: Duration, random: &mut impl Random) -> i64 {
        let begin = self.start(operations, elapsed) - self.hotspot.low;
        let ring = self.hotspot.hot + self.hotspot.cold;
        self.hotspot.low + (begin + self.hotspot.offset(random)) % ring
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::random::Seeded;
    use super::*;

    #[test]
    fn the_hot_set_has_its_share() {
        let hotspot = Hotspot::new(10, 109, 0.2, 0.8).expect("a hotspot");
        assert_eq!(hotspot.hot(), 20);
        let mut random = Seeded::new(1);
        let drawn: Vec<i64> = (0..50_000).map(|_| hotspot.next(&mut random)).collect();
        assert!(drawn.iter().all(|number| (10..=109).contains(number)));
        let hot = drawn.iter().filter(|number| **number < 30).count();
        assert!(hot.abs_diff(40_000) < 500, "{hot}");
        assert!([10, 29, 30, 109].iter().all(|end| drawn.contains(end)));
    }

    #[test]
    fn an_empty_set_that_would_be_drawn_from_is_refused() {
        assert!(Hotspot::new(0, 9, 0.05, 0.8).is_none(), "half a record is none");
        assert!(Hotspot::new(0, 9, 0.05, 0.0).is_some());
        assert!(Hotspot::new(0, 9, 1.0, 0.8).is_none(), "nothing is cold");
        assert!(Hotspot::new(0, 9, 1.0, 1.0).is_some());
    }

    #[test]
    fn it_moves_by_operations_around_the_ring() {
        let hotspot = Hotspot::new(100, 109, 0.2, 1.0).expect("a hotspot");
        let moving = MovingHotspot::new(hotspot, 3, Every::Operations(50));
        let start = |operations| moving.start(operations, Duration::from_secs(1_000_000));
        assert_eq!([0, 49, 50, 149, 150, 199, 200].map(start), [100, 100, 103, 106, 109, 109, 102]);
        let mut random = Seeded::new(1);
        let drawn: Vec<i64> =
            (0..1000).map(|_| moving.next(150, Duration::ZERO, &mut random)).collect();
        assert!(drawn.contains(&109) && drawn.contains(&100), "the window wraps");
        assert!(drawn.iter().all(|number| [109, 100].contains(number)));
        let back = MovingHotspot::new(hotspot, -1, Every::Operations(1));
        assert_eq!(back.start(1, Duration::ZERO), 109);
        assert_eq!(
            back.start(u64::MAX, Duration::ZERO),
            100 + (-(u64::MAX as i128)).rem_euclid(10) as i64
        );
    }

    #[test]
    fn it_moves_by_time() {
        let hotspot = Hotspot::new(0, 99, 0.1, 0.9).expect("a hotspot");
        let moving = MovingHotspot::new(hotspot, 10, Every::Time(Duration::from_millis(500)));
        let start = |ms| moving.start(7, Duration::from_millis(ms));
        assert_eq!([0, 499, 500, 1000, 5000].map(start), [0, 0, 10, 20, 0]);
        let mut random = Seeded::new(3);
        let elapsed = Duration::from_millis(1200);
        let hot = (0..10_000)
            .filter(|_| (20..30).contains(&moving.next(0, elapsed, &mut random)))
            .count();
        assert!(hot.abs_diff(9_000) < 200, "{hot}");
    }

    #[test]
    fn without_steps_it_is_the_other_one() {
        let hotspot = Hotspot::new(5, 1004, 0.3, 0.7).expect("a hotspot");
        let moving = MovingHotspot::new(hotspot, 100, Every::Operations(1000));
        let (mut one, mut other) = (Seeded::new(8), Seeded::new(8));
        for operation in 0..1000 {
            let moved = moving.next(operation, Duration::ZERO, &mut one);
            assert_eq!(moved, hotspot.next(&mut other));
        }
    }
}
