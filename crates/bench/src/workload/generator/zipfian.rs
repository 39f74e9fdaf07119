//! Zipf's law: `ZipfianGenerator`, `ScrambledZipfianGenerator`, `SkewedLatestGenerator`.
//!
//! The method of Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994): a sum over all
//! items (zeta) is kept, and extended when items are added.
//!
//! Invariant: as in YCSB, so that results agree, `eta` keeps the initial number of items while zeta grows with
//! them, and zeta does not shrink. This module must not know what the items are.

use super::super::random::Random;
use super::super::record::hash64;

/// The exponent that YCSB uses (`ZipfianGenerator.ZIPFIAN_CONSTANT`).
pub const ZIPFIAN_CONSTANT: f64 = 0.99;
/// Items of the distribution that is scrambled (`ScrambledZipfianGenerator.ITEM_COUNT`).
pub const SCRAMBLED_ITEM_COUNT: i64 = 10_000_000_000;
/// Their zeta, which takes minutes to compute (`ScrambledZipfianGenerator.ZETAN`).
pub const SCRAMBLED_ZETA: f64 = 26.46902820178302;

/// Zeta of `items`, given that of the first `known` of them: the sum of 1 / i^theta. From scratch, that is
/// `zeta(0, 0.0, items, theta)`.
pub fn zeta(known: i64, zeta_known: f64, items: i64, theta: f64) -> f64 {
    (known..items).fold(zeta_known, |sum, item| sum + 1.0 / ((item + 1) as f64).powf(theta))
}

/// The first item is the most popular one, the second the next (`ZipfianGenerator`).
#[derive(Clone, PartialEq, Debug)]
pub struct Zipfian {
    base: i64,
    items: i64,
    theta: f64,
    alpha: f64,
    zeta_of_two: f64,
    zeta: f64,
    /// How many items `zeta` is of.
    zeta_items: i64,
    eta: f64,
}

impl Zipfian {
    /// Over the numbers from `min` to `max`, both included.
    pub fn new(min: i64, max: i64) -> Zipfian {
        Zipfian::with_theta(min, max, ZIPFIAN_CONSTANT)
    }

    /// With this exponent.
    pub fn with_theta(min: i64, max: i64, theta: f64) -> Zipfian {
        Zipfian::with_zeta(min, max, theta, zeta(0, 0.0, max - min + 1, theta))
    }

    /// With zeta computed before.
    pub fn with_zeta(min: i64, max: i64, theta: f64, zeta_of_all: f64) -> Zipfian {
        let items = max - min + 1;
        debug_assert!(items >= 0, "from {min} to {max}");
        let mut zipfian = Zipfian {
            base: min,
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta_of_two: zeta(0, 0.0, 2, theta),
            zeta: zeta_of_all,
            zeta_items: items,
            eta: 0.0,
        };
        zipfian.set_eta();
        zipfian
    }

    fn set_eta(&mut self) {
        let share = (2.0 / self.items as f64).powf(1.0 - self.theta);
        self.eta = (1.0 - share) / (1.0 - self.zeta_of_two / self.zeta);
    }

    /// The next one.
    pub fn next(&self, random: &mut impl Random) -> i64 {
        self.draw(self.items, random)
    }

    /// The next one of so many items, which may be more than before.
    pub fn next_of(&mut self, items: i64, random: &mut impl Random) -> i64 {
        if items > self.zeta_items {
            self.zeta = zeta(self.zeta_items, self.zeta, items, self.theta);
            self.zeta_items = items;
            self.set_eta();
        }
        self.draw(items, random)
    }

    fn draw(&self, items: i64, random: &mut impl Random) -> i64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return self.base;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return self.base + 1;
        }
        let share = (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        self.base + (items as f64 * share) as i64
    }

    /// Zeta, of how many items it is, and eta: what the distribution is made of.
    pub fn parameters(&self) -> (f64, i64, f64) {
        (self.zeta, self.zeta_items, self.eta)
    }
}

/// Zipf's law with the popular items scattered over all (`ScrambledZipfianGenerator`): a rank among 10^10
/// is drawn and hashed, so that items that are added don't change which ones are popular.
#[derive(Clone, PartialEq, Debug)]
pub struct ScrambledZipfian {
    ranks: Zipfian,
    min: i64,
    items: i64,
}

impl ScrambledZipfian {
    /// Over the numbers from `min` to `max`, both included.
    pub fn new(min: i64, max: i64) -> ScrambledZipfian {
        debug_assert!(min <= max, "from {min} to {max}");
        let ranks = Zipfian::with_zeta(0, SCRAMBLED_ITEM_COUNT, ZIPFIAN_CONSTANT, SCRAMBLED_ZETA);
        ScrambledZipfian { ranks, min, items: max - min + 1 }
    }

    /// The next one.
    pub fn next(&self, random: &mut impl Random) -> i64 {
        self.min + hash64(self.ranks.next(random)) % self.items
    }
}

/// Zipf's law with the newest item as the most popular one (`SkewedLatestGenerator`).
#[derive(Clone, PartialEq, Debug)]
pub struct SkewedLatest {
    ages: Zipfian,
}

impl SkewedLatest {
    /// Where `newest` is the newest item's number.
    pub fn new(newest: i64) -> SkewedLatest {
        SkewedLatest { ages: Zipfian::new(0, newest - 1) }
    }

    /// The next one, where `newest` is the newest item's number now. Item 0 is as good as never drawn.
    pub fn next(&mut self, newest: i64, random: &mut impl Random) -> i64 {
        newest - self.ages.next_of(newest, random)
    }

    /// The distribution of ages.
    pub fn ages(&self) -> &Zipfian {
        &self.ages
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::random::Seeded;
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs()
    }

    #[test]
    fn zeta_is_a_sum_that_can_go_on() {
        assert_eq!(zeta(0, 0.0, 1, 0.99), 1.0);
        assert_eq!(zeta(0, 0.0, 2, 0.99), 1.0 + 1.0 / 2f64.powf(0.99));
        assert_eq!(zeta(0, 0.0, 0, 0.99), 0.0);
        let half = zeta(0, 0.0, 500, 0.99);
        assert_eq!(zeta(500, half, 1000, 0.99), zeta(0, 0.0, 1000, 0.99));
        assert!(near(zeta(0, 0.0, 1000, 0.99), 7.728953217284729));
    }

    /// 10^10 terms are too many here: the sum of the first ones and the integral over the others.
    #[test]
    fn zeta_of_the_scrambled_is_what_it_should_be() {
        let first = 1_000_000i64;
        let power = 1.0 - ZIPFIAN_CONSTANT;
        let integral = |n: f64| n.powf(power) / power;
        // Half a term for the trapezium's ends.
        let ends = 0.5
            * ((SCRAMBLED_ITEM_COUNT as f64).powf(-ZIPFIAN_CONSTANT)
                - (first as f64).powf(-ZIPFIAN_CONSTANT));
        let whole = zeta(0, 0.0, first, ZIPFIAN_CONSTANT) + integral(SCRAMBLED_ITEM_COUNT as f64)
            - integral(first as f64)
            + ends;
        assert!((whole - SCRAMBLED_ZETA).abs() < 1e-6, "{whole}");
    }

    #[test]
    fn growth_is_incremental_and_keeps_the_old_count_in_eta() {
        let (mut grown, mut random) = (Zipfian::new(0, 99), Seeded::new(1));
        let eta_before = grown.parameters().2;
        for items in 100..=1000 {
            let drawn = grown.next_of(items, &mut random);
            assert!((0..items).contains(&drawn));
        }
        let (zeta_grown, items, eta) = grown.parameters();
        assert_eq!((zeta_grown, items), (zeta(0, 0.0, 1000, ZIPFIAN_CONSTANT), 1000));
        assert!(eta != eta_before && eta != Zipfian::new(0, 999).parameters().2);
        // Fewer items than before change nothing.
        grown.next_of(10, &mut random);
        assert_eq!(grown.parameters(), (zeta_grown, items, eta));
    }

    #[test]
    fn few_items_work() {
        let mut random = Seeded::new(4);
        let one = Zipfian::new(7, 7);
        assert!((0..1000).all(|_| one.next(&mut random) == 7));
        let two = Zipfian::new(7, 8);
        let drawn: Vec<i64> = (0..1000).map(|_| two.next(&mut random)).collect();
        assert!(drawn.contains(&7) && drawn.contains(&8) && drawn.iter().all(|n| *n <= 8));
        let mut latest = SkewedLatest::new(0);
        assert_eq!(latest.next(0, &mut random), 0);
        assert!((0..100).all(|_| (1..=5).contains(&latest.next(5, &mut random))));
    }

    #[test]
    fn ranks_have_their_shares() {
        const DRAWS: u32 = 200_000;
        let (zipfian, mut random) = (Zipfian::new(0, 999), Seeded::new(9));
        let mut counts = [0u32; 1000];
        for _ in 0..DRAWS {
            counts[zipfian.next(&mut random) as usize] += 1;
        }
        for (rank, count) in counts.iter().take(2).enumerate() {
            let share = ((rank + 1) as f64).powf(-0.99) / zeta(0, 0.0, 1000, 0.99);
            let found = f64::from(*count) / f64::from(DRAWS);
            assert!((found - share).abs() < 0.004, "rank {rank}: {found}, not {share}");
        }
    }

    #[test]
    fn scrambled_numbers_are_hashes_in_their_range() {
        let (scrambled, mut random) = (ScrambledZipfian::new(100, 199), Seeded::new(9));
        let mut counts = [0u32; 100];
        for _ in 0..100_000 {
            counts[(scrambled.next(&mut random) - 100) as usize] += 1;
        }
        // The most popular of 10^10 has a share of 1 / zeta, and is where its hash says.
        let first = counts[(hash64(0) % 100) as usize];
        assert_eq!(counts.iter().max(), Some(&first));
        assert!(f64::from(first) / 100_000.0 > 1.0 / SCRAMBLED_ZETA);
    }

    #[test]
    fn latest_follows_the_newest() {
        let (mut latest, mut random) = (SkewedLatest::new(999), Seeded::new(2));
        for newest in [999, 1000, 1500, 2000] {
            let drawn: Vec<i64> = (0..10_000).map(|_| latest.next(newest, &mut random)).collect();
            assert!(drawn.iter().all(|number| (0..=newest).contains(number)));
            let first = drawn.iter().filter(|number| **number == newest).count();
            assert!((1000..1600).contains(&first), "{first} are the newest");
        }
    }
}
