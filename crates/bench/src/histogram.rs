//! Latencies in log-linear buckets: 128 an octave, so a percentile is off by less than 1 %.

const SUB_BITS: u32 = 7;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
const EXPONENT_MAX: u32 = 41;
const BUCKETS: usize = (EXPONENT_MAX - SUB_BITS + 2) as usize * SUB_BUCKETS;

/// Durations in nanoseconds, counted.
#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

fn bucket_of(value_ns: u64) -> usize {
    if value_ns < SUB_BUCKETS as u64 {
        return value_ns as usize;
    }
    let exponent = 63 - value_ns.leading_zeros();
    if exponent > EXPONENT_MAX {
        return BUCKETS - 1;
    }
    let sub = (value_ns >> (exponent - SUB_BITS)) as usize & (SUB_BUCKETS - 1);
    (exponent - SUB_BITS + 1) as usize * SUB_BUCKETS + sub
}

fn lower_bound(bucket: usize) -> u64 {
    let (octave, sub) = (bucket / SUB_BUCKETS, (bucket % SUB_BUCKETS) as u64);
    if octave == 0 { sub } else { (SUB_BUCKETS as u64 + sub) << (octave - 1) }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, value_ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket_of(value_ns)) {
            *count += 1;
        }
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Adds what another one has counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// For another process: count, sum, maximum, and the buckets that hold anything.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} {} {}", self.count, self.sum_ns, self.max_ns);
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            text.push_str(&format!(" {bucket}:{count}"));
        }
        text
    }

    /// What another process has written.
    pub fn from_text(text: &str) -> Option<Histogram> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (count, sum_ns, max_ns) = (number()?, number()?, number()?);
        let mut histogram = Histogram { count, sum_ns, max_ns, ..Histogram::default() };
        for word in words {
            let (bucket, count) = word.split_once(':')?;
            *histogram.counts.get_mut(bucket.parse::<usize>().ok()?)? = count.parse().ok()?;
        }
        (histogram.counts.iter().sum::<u64>() == count).then_some(histogram)
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
        let rank = ((self.count as f64 * fraction).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            if seen + count >= rank {
                // Values are taken to lie evenly within their bucket.
                let width = lower_bound(bucket + 1) - lower_bound(bucket);
                let into = (rank - seen) as f64 / *count as f64;
                return (lower_bound(bucket) + (width as f64 * into) as u64).min(self.max_ns);
            }
            seen += count;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_one_percent() {
        let (mut even, mut odd) = (Histogram::default(), Histogram::default());
        for value in 1..=100_000u64 {
            if value % 2 == 0 { even.record(value * 10) } else { odd.record(value * 10) }
        }
        even.merge(&odd);
        assert_eq!((even.count(), even.max_ns()), (100_000, 1_000_000));
        assert!((even.mean_ns() - 500_005.0).abs() < 1.0);
        for (fraction, exact) in [(0.01, 1e4), (0.5, 5e5), (0.99, 9.9e5), (0.999, 9.99e5)] {
            let got = even.percentile_ns(fraction) as f64;
            assert!((got - exact).abs() / exact < 0.01, "{got} for {exact}");
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
