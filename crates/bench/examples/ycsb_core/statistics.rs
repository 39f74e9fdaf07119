//! Compares operations that both sides draw at random, by two tests of two samples. The chi-square test finds
//! single values that occur too often. The Kolmogorov-Smirnov test finds a distribution that leans to one side,
//! for example a slightly wrong exponent of a popularity distribution. It treats the values as continuous, so
//! it errs towards finding nothing.
//!
//! The seed of this side is fixed; the seed of the Java side is not. The likelihood returned is the probability
//! that two samples of one distribution differ at least as much as these.

use super::replay::draw_of;
use super::{Wrong, properties};
use kauri_bench::workload::{CoreWorkload, Operation, Seeded};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The seed of our side.
const SEED: u64 = 20_190_917;
/// Minimum number of samples of both sides in a bin. Neighbouring bins with fewer are merged.
const BIN_MIN: u64 = 40;

type Counts = BTreeMap<i64, u64>;

fn parsed(counts: &str) -> Result<Counts, Wrong> {
    let pair = |pair: &str| -> Result<(i64, u64), Wrong> {
        let (value, count) = pair.split_once(':').ok_or("no count")?;
        Ok((value.parse()?, count.parse()?))
    };
    counts.split(' ').map(pair).collect()
}

pub fn generator(spec: &str, counts: &str) -> Result<f64, Wrong> {
    let theirs = parsed(counts)?;
    let (mut draw, mut random) = (draw_of(spec)?, Seeded::new(SEED));
    let mut ours = Counts::new();
    for _ in 0..theirs.values().sum() {
        *ours.entry(draw(&mut random)).or_default() += 1;
    }
    Ok(likelihood(&ours, &theirs))
}

/// Counts for each operation: its kind; the number of the chosen record, or how many newer records exist; the
/// length of a scan.
pub fn operations(pairs: &str, what: &str, counts: &str) -> Result<f64, Wrong> {
    let theirs = parsed(counts)?;
    let wanted: u64 = theirs.values().sum();
    let workload = Arc::new(CoreWorkload::of(&properties(pairs))?);
    let (mut stream, _) = workload.thread(SEED, 0);
    let (mut ours, mut count) = (Counts::new(), 0);
    while count < wanted {
        let newest = workload.newest();
        let (kind, record, length) = match stream.next_operation() {
            Operation::Read { record, .. } => (0, Some(record), None),
            Operation::Update { record, .. } => (1, Some(record), None),
            Operation::Insert { record } => {
                workload.acknowledge(record)?;
                (2, None, None)
            }
            Operation::Scan { record, length, .. } => (3, Some(record), Some(length)),
            Operation::ReadModifyWrite { record, .. } => (4, Some(record), None),
        };
        let value = match what {
            "kinds" => Some(kind),
            "records" => record,
            "ages" => record.map(|record| newest - record),
            "lengths" => length,
            _ => return Err("nothing known is counted".into()),
        };
        if let Some(value) = value {
            *ours.entry(value).or_default() += 1;
            count += 1;
        }
    }
    Ok(likelihood(&ours, &theirs))
}

/// The likelihood that two samples of one distribution differ at least this much in one of both tests.
fn likelihood(ours: &Counts, theirs: &Counts) -> f64 {
    let mut both: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    ours.iter().for_each(|(value, count)| both.entry(*value).or_default().0 += count);
    theirs.iter().for_each(|(value, count)| both.entry(*value).or_default().1 += count);
    let both: Vec<(u64, u64)> = both.into_values().collect();
    (2.0 * chi_square(&both).min(kolmogorov_smirnov(&both))).min(1.0)
}

/// The sizes of both samples.
fn sums(both: &[(u64, u64)]) -> (f64, f64) {
    let (a, b) = both.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    (a as f64, b as f64)
}

fn kolmogorov_smirnov(both: &[(u64, u64)]) -> f64 {
    let (all_a, all_b) = sums(both);
    let (mut a, mut b, mut distance) = (0, 0, 0f64);
    for one in both {
        (a, b) = (a + one.0, b + one.1);
        distance = distance.max((a as f64 / all_a - b as f64 / all_b).abs());
    }
    let scaled = distance * (all_a * all_b / (all_a + all_b)).sqrt();
    // The series of Kolmogorov's distribution starts with an upper bound of it.
    (2.0 * (-2.0 * scaled * scaled).exp()).min(1.0)
}

fn chi_square(both: &[(u64, u64)]) -> f64 {
    let mut bins = vec![(0u64, 0u64)];
    for (a, b) in both {
        if bins.last().is_some_and(|(a, b)| a + b >= BIN_MIN) {
            bins.push((0, 0));
        }
        if let Some(bin) = bins.last_mut() {
            *bin = (bin.0 + a, bin.1 + b);
        }
    }
    // The last bin may be too small.
    if bins.len() > 1
        && let Some((a, b)) = bins.pop_if(|(a, b)| *a + *b < BIN_MIN)
        && let Some(bin) = bins.last_mut()
    {
        *bin = (bin.0 + a, bin.1 + b);
    }
    let (all_a, all_b) = sums(&bins);
    let ratio = (all_b / all_a).sqrt();
    let square =
        |(a, b): &(u64, u64)| (ratio * *a as f64 - *b as f64 / ratio).powi(2) / (a + b) as f64;
    let squares: f64 = bins.iter().map(square).sum();
    if bins.len() < 2 { 1.0 } else { upper_gamma((bins.len() - 1) as f64 / 2.0, squares / 2.0) }
}

/// The regularised upper incomplete gamma function: 1 minus the chi-square distribution with 2a degrees of
/// freedom at 2x.
fn upper_gamma(a: f64, x: f64) -> f64 {
    const STEPS: usize = 100_000;
    let factor = (a * x.ln() - x - ln_gamma(a)).exp();
    if x <= 0.0 {
        return 1.0;
    }
    if x < a + 1.0 {
        // The series of the lower function.
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for n in 1..STEPS {
            term *= x / (a + n as f64);
            sum += term;
            if term < sum * 1e-16 {
                break;
            }
        }
        return 1.0 - sum * factor;
    }
    // Legendre's continued fraction, by Lentz's method.
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for n in 1..STEPS {
        let n = n as f64;
        let an = n * (a - n);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        let change = c * d;
        fraction *= change;
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    factor * fraction
}

/// The logarithm of the gamma function, by Stirling's series behind a shift.
fn ln_gamma(a: f64) -> f64 {
    let shift = (10.0 - a).ceil().max(0.0) as u32;
    let mut z = a;
    let mut below = 0.0;
    for _ in 0..shift {
        below += z.ln();
        z += 1.0;
    }
    let series = 1.0 / (12.0 * z) - 1.0 / (360.0 * z.powi(3)) + 1.0 / (1260.0 * z.powi(5))
        - 1.0 / (1680.0 * z.powi(7));
    (z - 0.5) * z.ln() - z + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - below
}

/// Checks the tests themselves: values from tables, and a difference that must be found.
pub fn prove() -> Result<(), Wrong> {
    // Chi-square quantiles: degrees of freedom, value, upper tail.
    let table = [(1.0, 3.841459, 0.05), (10.0, 29.58830, 0.001), (100.0, 149.4493, 0.001)];
    for (degrees, value, above) in table {
        let found = upper_gamma(degrees / 2.0, value / 2.0);
        if (found / above - 1.0).abs() > 1e-4 {
            return Err(format!("chi-square {degrees} {value}: {found}").into());
        }
    }
    let sample = |draws: &mut dyn FnMut(&mut Seeded) -> i64, seed| {
        let (mut random, mut counts) = (Seeded::new(seed), Counts::new());
        (0..1_000_000).for_each(|_| *counts.entry(draws(&mut random)).or_default() += 1);
        counts
    };
    let (mut right, mut wrong) = (draw_of("zipfian 0 999 0.99")?, draw_of("zipfian 0 999 0.98")?);
    let first = sample(&mut right, 1);
    let (same, other) = (sample(&mut right, 2), sample(&mut wrong, 3));
    let (same, other) = (likelihood(&first, &same), likelihood(&first, &other));
    if same > 1e-4 && other < 1e-12 {
        Ok(())
    } else {
        Err(format!("the test finds {same} in equal samples, {other} in different ones").into())
    }
}
