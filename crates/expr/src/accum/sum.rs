//! `$sum`, `$avg`, `$stdDevPop`, `$stdDevSamp`: numbers folded into one.
//!
//! Integers are summed exactly, doubles in a pair of doubles (the second has the rounding error of the first),
//! decimals separately. The widest type seen is the type of the result. Values that are not numbers are ignored.

use super::saved::{double, int};
use crate::numeric::{Num, int_or_long};
use kauri_base::Result;
use kauri_bson::{Decimal128, Doc, DocWriter, Value};

/// The widest type seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Width {
    #[default]
    Int,
    Long,
    Double,
    Decimal,
}

/// A running sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    width: Width,
    /// Exact: 2^64 longs fit.
    whole: i128,
    doubles: Option<DoubleSum>,
    decimals: Option<Box<Decimal128>>,
}

impl Sum {
    #[inline]
    pub fn add(&mut self, num: Num) {
        match num {
            Num::Int(v) => self.whole += i128::from(v),
            Num::Long(v) => {
                self.whole += i128::from(v);
                self.width = self.width.max(Width::Long);
            }
            Num::Double(v) => {
                self.doubles.get_or_insert_default().add(v);
                self.width = self.width.max(Width::Double);
            }
            Num::Decimal(v) => {
                match &mut self.decimals {
                    Some(sum) => **sum = decimal_sum(**sum, v),
                    None => self.decimals = Some(Box::new(decimal_sum(Decimal128::ZERO, v))),
                }
                self.width = Width::Decimal;
            }
        }
    }

    /// The same for `$avg` as an expression, which takes longs for doubles from the start.
    #[inline]
    pub fn add_to_mean(&mut self, num: Num) {
        match num {
            Num::Long(v) => self.add(Num::Double(v as f64)),
            other => self.add(other),
        }
    }

    pub fn merge(&mut self, other: &Sum) {
        self.width = self.width.max(other.width);
        self.whole += other.whole;
        if let Some(doubles) = &other.doubles {
            self.doubles.get_or_insert_default().merge(doubles);
        }
        if let Some(decimals) = &other.decimals {
            self.add(Num::Decimal(**decimals));
        }
    }

    /// See `saved`.
    pub fn save(&self, out: &mut DocWriter<'_>) {
        out.put("width", self.width as i64);
        out.put("high", (self.whole >> 64) as i64);
        out.put("low", self.whole as i64);
        if let Some(doubles) = &self.doubles {
            out.put("sum", doubles.sum);
            out.put("lost", doubles.lost);
            out.put("plain", doubles.plain);
        }
        if let Some(decimals) = &self.decimals {
            out.put_value("decimals", &Value::Decimal128(**decimals));
        }
    }

    pub fn restore(doc: Doc<'_>) -> Result<Sum> {
        let width = match int(doc, "width")? {
            0 => Width::Int,
            1 => Width::Long,
            2 => Width::Double,
            _ => Width::Decimal,
        };
        let low = u128::from(int(doc, "low")? as u64);
        let whole = i128::from(int(doc, "high")?) << 64 | low as i128;
        let doubles = match doc.get("sum") {
            None => None,
            Some(_) => Some(DoubleSum {
                sum: double(doc, "sum")?,
                lost: double(doc, "lost")?,
                plain: double(doc, "plain")?,
            }),
        };
        let decimals = match doc.value("decimals") {
            Value::Decimal128(decimals) => Some(Box::new(decimals)),
            _ => None,
        };
        Ok(Sum { width, whole, doubles, decimals })
    }

    /// All but the decimals, as one double.
    fn to_f64(&self) -> f64 {
        match &self.doubles {
            None => self.whole as f64,
            Some(doubles) => doubles.plus_whole(self.whole).value(),
        }
    }

    fn to_decimal(&self) -> Decimal128 {
        let rest = match &self.doubles {
            None => whole_decimal(self.whole),
            Some(doubles) => doubles.plus_whole(self.whole).to_decimal(),
        };
        self.decimals.as_deref().map_or(rest, |decimals| decimal_sum(*decimals, rest))
    }

    /// The sum, of the widest type seen.
    pub fn value(&self) -> Value<'static> {
        match self.width {
            Width::Decimal => Value::Decimal128(self.to_decimal()),
            Width::Double => Value::Double(self.to_f64()),
            width => match i64::try_from(self.whole) {
                Ok(whole) if width == Width::Int => int_or_long(whole),
                Ok(whole) => Value::Int64(whole),
                Err(_) => Value::Double(self.whole as f64),
            },
        }
    }

    /// The sum divided: a decimal if there was one, else a double.
    pub fn over(&self, count: u64) -> Value<'static> {
        let count = count as i64;
        match self.width {
            Width::Decimal => {
                let sum = self.to_decimal();
                let nan = sum.is_nan();
                Value::Decimal128(if nan { sum } else { sum / Decimal128::from(count) })
            }
            _ => Value::Double(self.to_f64() / count as f64),
        }
    }
}

/// A NaN stays unchanged, including its sign; of two, the first.
fn decimal_sum(a: Decimal128, b: Decimal128) -> Decimal128 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => a,
        (_, true) => b,
        _ => a + b,
    }
}

fn whole_decimal(v: i128) -> Decimal128 {
    // Halves of 64 bits: both are exact, and so is the sum below 10^34.
    let (high, low) = ((v >> 63) as i64, (v & i128::from(i64::MAX)) as i64);
    let shift = Decimal128::from(i64::MAX) + Decimal128::from(1);
    Decimal128::from(high) * shift + Decimal128::from(low)
}

/// A sum of doubles that remembers what rounding lost.
#[derive(Clone, Copy, Debug, Default)]
struct DoubleSum {
    sum: f64,
    lost: f64,
    /// The plain sum, which is right about infinities and NaN.
    plain: f64,
}

impl DoubleSum {
    #[inline]
    fn add(&mut self, v: f64) {
        self.plain += v;
        // Knuth's two-sum: exact, whichever is larger.
        let sum = self.sum + v;
        let part = sum - self.sum;
        self.lost += (self.sum - (sum - part)) + (v - part);
        self.sum = sum;
    }

    fn merge(&mut self, other: &DoubleSum) {
        let plain = self.plain + other.plain;
        self.add(other.sum);
        self.add(other.lost);
        self.plain = plain;
    }

    fn plus_whole(mut self, whole: i128) -> DoubleSum {
        // Three parts that are exact as doubles.
        let high = (whole >> 96) as f64 * 2f64.powi(96);
        let middle = (whole >> 48 & 0xFFFF_FFFF_FFFF) as f64 * 2f64.powi(48);
        let low = (whole & 0xFFFF_FFFF_FFFF) as f64;
        for part in [high, middle, low] {
            if part != 0.0 {
                self.add(part);
            }
        }
        self
    }

    fn value(self) -> f64 {
        let value = self.sum + self.lost;
        // An infinity makes the remainders NaN.
        if value.is_finite() { value } else { self.plain }
    }

    fn to_decimal(self) -> Decimal128 {
        if self.value().is_finite() && self.sum.is_finite() {
            Decimal128::from_f64_precise(self.sum) + Decimal128::from_f64_precise(self.lost)
        } else {
            Decimal128::from_f64(self.plain)
        }
    }
}

/// A running mean and the squared distances from it (Welford).
#[derive(Clone, Debug, Default)]
pub(crate) struct Deviation {
    count: u64,
    mean: f64,
    squares: f64,
    /// What is infinite or NaN makes the result null-less NaN.
    odd: bool,
}

impl Deviation {
    pub fn add(&mut self, v: f64) {
        if !v.is_finite() {
            self.odd = true;
        }
        self.count += 1;
        let delta = v - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (v - self.mean);
    }

    /// See `saved`.
    pub fn save(&self, out: &mut DocWriter<'_>) {
        out.put("count", self.count as i64);
        out.put("mean", self.mean);
        out.put("squares", self.squares);
        out.put("odd", self.odd);
    }

    pub fn restore(doc: Doc<'_>) -> Result<Deviation> {
        Ok(Deviation {
            count: int(doc, "count")? as u64,
            mean: double(doc, "mean")?,
            squares: double(doc, "squares")?,
            odd: doc.value("odd").truthy(),
        })
    }

    pub fn merge(&mut self, other: &Deviation) {
        if other.count == 0 {
            return;
        }
        let delta = other.mean - self.mean;
        let count = self.count + other.count;
        let (a, b, n) = (self.count as f64, other.count as f64, count as f64);
        if delta != 0.0 {
            // Merging with an empty one must not lose digits.
            self.mean =
                if self.count == 0 { other.mean } else { (a * self.mean + b * other.mean) / n };
            self.squares += delta * delta * (a * b / n);
        }
        self.squares += other.squares;
        self.count = count;
        self.odd |= other.odd;
    }

    /// The same over a frame whose start moves, as MongoDB has it there: what is not finite makes it null, and the
    /// deviation of one number is an int.
    pub fn value_of_moving_frame(&self, sample: bool) -> Value<'static> {
        match (self.count, sample) {
            _ if self.odd => Value::Null,
            (1, false) => Value::Int32(0),
            _ => self.value(sample),
        }
    }

    /// `null` if there are too few.
    pub fn value(&self, sample: bool) -> Value<'static> {
        let divisor = self.count.saturating_sub(u64::from(sample));
        match (divisor, self.odd) {
            (0, _) => Value::Null,
            (_, true) => Value::Double(f64::NAN),
            _ => Value::Double((self.squares / divisor as f64).sqrt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[Value<'_>]) -> Value<'static> {
        let mut sum = Sum::default();
        values.iter().filter_map(Num::of).for_each(|v| sum.add(v));
        // However the values are split, merging gives the same.
        for split in 0..=values.len() {
            let (mut left, mut right) = (Sum::default(), Sum::default());
            values[..split].iter().filter_map(Num::of).for_each(|v| left.add(v));
            values[split..].iter().filter_map(Num::of).for_each(|v| right.add(v));
            left.merge(&right);
            // What overflowed in one part has not overflowed in the other.
            if sum.value().as_f64_lossy().is_some_and(f64::is_finite) {
                assert_eq!(left.value(), sum.value(), "{values:?}");
            }
        }
        sum.value()
    }

    fn decimal(text: &str) -> Value<'static> {
        Value::Decimal128(Decimal128::parse(text).unwrap())
    }

    #[test]
    fn sums_take_the_widest_type() {
        let cases: Vec<(Vec<Value<'_>>, Value<'_>)> = vec![
            (vec![], 0.into()),
            (vec![1.into(), 2.into()], 3.into()),
            (vec![i32::MAX.into(), 1.into()], (i64::from(i32::MAX) + 1).into()),
            (vec![1.into(), 2i64.into()], 3i64.into()),
            (vec![i64::MAX.into(), i64::MAX.into()], (2.0 * i64::MAX as f64).into()),
            (vec![i64::MAX.into(), 1.into(), (-1).into()], i64::MAX.into()),
            (vec![1.into(), 0.5.into()], 1.5.into()),
            (vec![0.1.into(), 0.2.into(), 0.3.into()], 0.6.into()),
            (vec![1e308.into(), 1e308.into(), (-1e308).into()], f64::INFINITY.into()),
            (vec![1e16.into(), 1.into(), (-1e16).into()], 1.0.into()),
            (vec![f64::INFINITY.into(), 1.0.into()], f64::INFINITY.into()),
            (vec![1.into(), decimal("0.10")], decimal("1.10")),
            (vec![i64::MAX.into(), i64::MAX.into(), decimal("0")], decimal("18446744073709551614")),
        ];
        for (values, expected) in cases {
            assert_eq!(sum(&values), expected, "{values:?}");
        }
        assert!(sum(&[f64::INFINITY.into(), f64::NEG_INFINITY.into()]).is_nan());
    }

    #[test]
    fn deviations_merge() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        for split in 0..=values.len() {
            let (mut left, mut right) = (Deviation::default(), Deviation::default());
            values[..split].iter().for_each(|v| left.add(*v));
            values[split..].iter().for_each(|v| right.add(*v));
            left.merge(&right);
            let Value::Double(deviation) = left.value(false) else { panic!("no double") };
            assert!((deviation - 2.0).abs() < 1e-12);
        }
        assert_eq!(Deviation::default().value(false), Value::Null);
        let mut one = Deviation::default();
        one.add(5.0);
        assert_eq!(one.value(true), Value::Null);
        assert_eq!(one.value(false), Value::Double(0.0));
    }
}
