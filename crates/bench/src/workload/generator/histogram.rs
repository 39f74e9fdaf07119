//! Lengths with the frequencies of a file: `HistogramGenerator`.
//!
//! Invariant: as in YCSB, so that results agree, a bucket stands for its upper end, the last one for its lower end,
//! and each is drawn once too often at the cost of the next. This module must not know files: it reads text.

use super::super::random::Random;
use kauri_base::{Error, Result};

/// Draws by how often each length has been seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    block: i64,
    counts: Vec<i64>,
    all: i64,
}

impl Histogram {
    /// Of these counts, the first of lengths up to one block. None if nothing is counted, or more than
    /// 2^31 - 1.
    pub fn new(counts: Vec<i64>, block: i64) -> Option<Histogram> {
        let all = counts.iter().try_fold(0i64, |all, count| all.checked_add(*count))?;
        let right = (1..=i64::from(i32::MAX)).contains(&all) && counts.iter().all(|one| *one >= 0);
        right.then_some(Histogram { block, counts, all })
    }

    /// Of a histogram file's text: `BlockSize`, tab, number; then bucket, tab, count on each line. `name`
    /// is the file's in what is said of mistakes.
    pub fn parse(name: &str, text: &str) -> Result<Histogram> {
        let wrong = |line: usize, what: &str| {
            Error::bad_value(format!("the histogram file '{name}', line {line}: {what}"))
        };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let block = lines
            .next()
            .and_then(|(_, line)| line.strip_prefix("BlockSize\t"))
            .and_then(|block| block.trim().parse::<i32>().ok())
            .ok_or_else(|| wrong(1, "is not 'BlockSize', a tab and a number"))?;
        let mut counts = Vec::new();
        for (at, line) in lines {
            let (bucket, count) = line
                .split_once('\t')
                .and_then(|(bucket, count)| {
                    Some((bucket.parse::<usize>().ok()?, count.trim().parse::<i32>().ok()?))
                })
                .ok_or_else(|| wrong(at, "is not a bucket, a tab and a count"))?;
            if bucket > counts.len() {
                return Err(wrong(at, &format!("bucket {bucket} follows on {}", counts.len())));
            }
            counts.insert(bucket, i64::from(count));
        }
        let wrong = "the counts are not from 1 to 2147483647 in all";
        Histogram::new(counts, i64::from(block))
            .ok_or_else(|| Error::bad_value(format!("the histogram file '{name}': {wrong}")))
    }

    /// The next one.
    pub fn next(&self, random: &mut impl Random) -> i64 {
        let mut left = bounded(self.all as u32, random);
        let last = self.counts.len().saturating_sub(1);
        for (at, count) in self.counts.iter().take(last).enumerate() {
            left -= count;
            if left <= 0 {
                return (at as i64 + 1) * self.block;
            }
        }
        last as i64 * self.block
    }
}

/// One of `bound` numbers from 0 on as Java's `nextInt(bound)` makes it of 32-bit numbers: each exactly as
/// likely. `bound` is from 1 to 2^31 - 1.
fn bounded(bound: u32, random: &mut impl Random) -> i64 {
    let mask = bound - 1;
    if bound & mask == 0 {
        return i64::from(random.bits32() & mask);
    }
    loop {
        let bits = random.bits32() >> 1;
        let number = bits % bound;
        // Of the last, incomplete round of numbers none is taken.
        if bits - number <= (1 << 31) - bound {
            return i64::from(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::random::Seeded;
    use super::*;

    #[test]
    fn buckets_stand_for_their_ends() {
        let histogram = Histogram::new(vec![10, 0, 30, 60], 8).expect("a histogram");
        let mut random = Seeded::new(1);
        let mut counts = [0u32; 5];
        for _ in 0..100_000 {
            counts[(histogram.next(&mut random) / 8) as usize] += 1;
        }
        // The first bucket has 11 of 100, the second none, the third 30, the last one the rest, on the
        // third's length.
        assert_eq!([counts[0], counts[2], counts[4]], [0, 0, 0]);
        assert!(counts[1].abs_diff(11_000) < 400, "{counts:?}");
        assert!(counts[3].abs_diff(89_000) < 400, "{counts:?}");
        let one = Histogram::new(vec![4], 8).expect("a histogram");
        assert_eq!(one.next(&mut random), 0);
    }

    #[test]
    fn mistakes_are_named() {
        let parse = |text: &str| Histogram::parse("h.txt", text);
        let good = parse("BlockSize\t100\n0\t3\n1\t4\n").expect("a histogram");
        assert_eq!(good, Histogram::new(vec![3, 4], 100).expect("a histogram"));
        let wrong = |text: &str, what: &str| {
            let error = parse(text).expect_err("a mistake");
            let message = error.message();
            assert!(message.contains("'h.txt'") && message.contains(what), "{message}");
        };
        wrong("", "line 1");
        wrong("Block\t1\n", "line 1");
        wrong("BlockSize\t1\n0\t1\n2\t1\n", "line 3: bucket 2");
        wrong("BlockSize\t1\n0 1\n", "line 2");
        wrong("BlockSize\t1\n0\t0\n", "from 1");
    }
}
