//! Log-linear histograms of nanoseconds: 16 buckets per octave, so the error of a percentile is at most one
//! sixteenth. Recording takes two plain loads and stores. One thread writes, any thread reads.

use crate::stats::Counter;

const SUB_BITS: u32 = 4;
const SUB_BUCKETS: usize = 1 << SUB_BITS;
/// Everything from 2^42 ns (73 minutes) on shares the last bucket.
const EXPONENT_MAX: u32 = 41;
const BUCKETS: usize = (EXPONENT_MAX - SUB_BITS + 2) as usize * SUB_BUCKETS;

/// Written by one thread.
pub(crate) struct Histogram {
    buckets: Box<[Counter]>,
    sum_ns: Counter,
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

/// The least value of a bucket.
fn lower_bound(bucket: usize) -> u64 {
    let (octave, sub) = (bucket / SUB_BUCKETS, (bucket % SUB_BUCKETS) as u64);
    if octave == 0 { sub } else { (SUB_BUCKETS as u64 + sub) << (octave - 1) }
}

impl Histogram {
    pub fn new() -> Self {
        let buckets = (0..BUCKETS).map(|_| Counter::default()).collect();
        Histogram { buckets, sum_ns: Counter::default() }
    }

    pub fn record(&self, value_ns: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(value_ns)) {
            bucket.add(1);
        }
        self.sum_ns.add(value_ns);
    }

    /// Adds the recorded values to `into`.
    pub fn merge_into(&self, into: &mut HistogramSnapshot) {
        for (count, bucket) in into.counts.iter_mut().zip(&self.buckets) {
            *count += bucket.get();
        }
        into.sum_ns = into.sum_ns.wrapping_add(self.sum_ns.get());
    }
}

/// What was recorded, summed over workers.
#[derive(Clone, Debug)]
pub struct HistogramSnapshot {
    counts: Vec<u64>,
    sum_ns: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        HistogramSnapshot { counts: vec![0; BUCKETS], sum_ns: 0 }
    }
}

impl HistogramSnapshot {
    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The value in nanoseconds that `fraction` (0 to 1) of all values do not exceed, within a bucket's width; 0
    /// without values.
    pub fn percentile_ns(&self, fraction: f64) -> u64 {
        let rank = ((self.count() as f64 * fraction).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let next = lower_bound(bucket + 1);
                return lower_bound(bucket) + (next - lower_bound(bucket)) / 2;
            }
        }
        0
    }

    /// The buckets that hold anything: least value in nanoseconds and count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (lower_bound(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_in_order() {
        let mut last = 0;
        for exponent in 0..64 {
            for offset in [0, 1, 3] {
                let value = (1u64 << exponent).saturating_add(offset << exponent >> 2);
                let bucket = bucket_of(value);
                assert!(bucket >= last && bucket < BUCKETS);
                last = bucket;
                if exponent <= EXPONENT_MAX {
                    assert!(lower_bound(bucket) <= value, "{value} in {bucket}");
                    assert!(value < lower_bound(bucket + 1), "{value} in {bucket}");
                }
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_within_a_sixteenth() {
        let histogram = Histogram::new();
        for value in 1..=10_000u64 {
            histogram.record(value * 100);
        }
        let mut snapshot = HistogramSnapshot::default();
        histogram.merge_into(&mut snapshot);
        histogram.merge_into(&mut snapshot);
        assert_eq!(snapshot.count(), 20_000);
        assert_eq!(snapshot.sum_ns(), 2 * 100 * 10_000 * 10_001 / 2);
        for (fraction, exact) in [(0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let got = snapshot.percentile_ns(fraction) as f64;
            assert!((got - exact).abs() <= exact / 16.0, "{got} for {exact}");
        }
        assert_eq!(HistogramSnapshot::default().percentile_ns(0.5), 0);
    }
}
