//! Latencies in HDR histograms of three significant digits, like YCSB's: the error of a percentile is below a
//! thousandth.

/// What is longer need not be told apart from the longest, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Durations in nanoseconds, counted. Takes no memory before the first, and 140 KB after it.
#[derive(Clone, Default)]
pub struct Histogram {
    counts: Option<Box<hdrhistogram::Histogram<u32>>>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

fn empty() -> Option<Box<hdrhistogram::Histogram<u32>>> {
    // It fails for bounds that make no sense only.
    hdrhistogram::Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).ok().map(Box::new)
}

impl Histogram {
    fn count_of(&mut self, value_ns: u64, times: u32) {
        if self.counts.is_none() {
            self.counts = empty();
        }
        if let Some(counts) = &mut self.counts {
            counts.saturating_record_n(value_ns, times);
        }
    }

    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        self.count_of(value_ns, 1);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Adds what another one has counted.
    pub fn merge(&mut self, other: &Histogram) {
        if let Some(theirs) = &other.counts {
            theirs
                .iter_recorded()
                .for_each(|one| self.count_of(one.value_iterated_to(), one.count_at_value()));
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// For another process: count, sum, maximum, and how often each value was counted.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} {} {}", self.count, self.sum_ns, self.max_ns);
        for one in self.counts.iter().flat_map(|counts| counts.iter_recorded()) {
            text.push_str(&format!(" {}:{}", one.value_iterated_to(), one.count_at_value()));
        }
        text
    }

    /// What [`Histogram::to_text`] has written; `None` if that is something else.
    pub fn from_text(text: &str) -> Option<Histogram> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (count, sum_ns, max_ns) = (number()?, number()?, number()?);
        let mut histogram = Histogram { count, sum_ns, max_ns, ..Histogram::default() };
        let mut seen = 0;
        for word in words {
            let (value, times) = word.split_once(':')?;
            let times: u32 = times.parse().ok()?;
            histogram.count_of(value.parse().ok()?, times);
            seen += u64::from(times);
        }
        (seen == count).then_some(histogram)
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 }
    }

    /// The longest in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// What `fraction` (0 to 1) of them don't exceed, in nanoseconds; 0 if there are none.
    pub fn percentile_ns(&self, fraction: f64) -> u64 {
        // A little less, so that a tenth of 1,650 are 165 in floating point, too: as the Java histograms do it.
        let part = fraction.next_down();
        let value = self.counts.as_ref().map_or(0, |counts| counts.value_at_quantile(part));
        value.min(self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let (mut even, mut odd) = (Histogram::default(), Histogram::default());
        for value in 1..=100_000u64 {
            if value % 2 == 0 { even.record(value * 10) } else { odd.record(value * 10) }
        }
        even.merge(&odd);
        assert_eq!((even.count(), even.max_ns()), (100_000, 1_000_000));
        assert!((even.mean_ns() - 500_005.0).abs() < 1.0);
        for (fraction, exact) in [(0.01, 1e4), (0.5, 5e5), (0.99, 9.9e5), (0.999, 9.99e5)] {
            let got = even.percentile_ns(fraction) as f64;
            assert!((got - exact).abs() / exact < 0.001, "{got} for {exact}");
        }
        assert_eq!(Histogram::default().percentile_ns(0.5), 0);
    }

    #[test]
    fn text_comes_back() {
        let mut histogram = Histogram::default();
        (1..1000).for_each(|value| histogram.record(value * value));
        let text = histogram.to_text();
        let back = Histogram::from_text(&text).unwrap();
        assert_eq!((back.to_text(), back.count()), (text.clone(), 999));
        assert_eq!(back.percentile_ns(0.9), histogram.percentile_ns(0.9));
        let cut = text.rsplit_once(' ').unwrap().0;
        assert!(Histogram::from_text(cut).is_none(), "a bucket is missing");
        assert!(Histogram::from_text("1 2").is_none());
        assert!(Histogram::from_text(&Histogram::default().to_text()).is_some());
    }

    #[test]
    fn a_heavy_tail_keeps_its_percentiles() {
        // From a microsecond to minutes, each step rarer than the one before.
        let mut histogram = Histogram::default();
        let mut values: Vec<u64> =
            (1..=200_000u64).map(|n| 200_000_000_000_000 / (n * n)).collect();
        values.iter().for_each(|value| histogram.record(*value));
        values.sort_unstable();
        for fraction in [0.001, 0.5, 0.9, 0.99, 0.999, 0.9999] {
            let exact = values[(values.len() as f64 * fraction).ceil() as usize - 1] as f64;
            let got = histogram.percentile_ns(fraction) as f64;
            assert!((got - exact).abs() <= exact / 1000.0, "{fraction}: {got} for {exact}");
        }
        assert_eq!(histogram.max_ns(), *values.last().unwrap());
        // Longer than what is told apart.
        assert!((LONGEST_NS..2 * LONGEST_NS).contains(&histogram.percentile_ns(1.0)));
    }

    #[test]
    fn any_value_finds_a_bucket() {
        let mut histogram = Histogram::default();
        for exponent in 0..64 {
            histogram.record(1 << exponent);
        }
        histogram.record(u64::MAX);
        assert_eq!(histogram.count(), 65);
        assert_eq!(histogram.max_ns(), u64::MAX);
    }
}
