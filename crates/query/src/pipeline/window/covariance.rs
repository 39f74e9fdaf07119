//! `$covariancePop` and `$covarianceSamp`.
//!
//! Running sums, in doubles, and in decimals after the first decimal. Infinities and NaN are counted separately, so
//! that they show only in the result.

use kauri_bson::{Decimal128, Doc, Value};
use std::ops::{Add, Div, Mul, Sub};

/// The pairs so far.
#[derive(Default)]
pub struct Covariance {
    /// Pairs of finite numbers.
    count: i32,
    doubles: Moments<f64>,
    decimals: Option<Moments<Decimal128>>,
    /// The sum of what was not finite.
    infinite: Option<f64>,
}

#[derive(Clone, Copy, Default)]
struct Moments<T> {
    sum_x: T,
    sum_y: T,
    /// The sum of the products of the deviations from the means.
    products: T,
}

impl<T> Moments<T>
where
    T: Copy + Add<Output = T> + Sub<Output = T> + Mul<Output = T> + Div<Output = T>,
{
    /// Adds a pair to so many, which are as many as `count` then.
    fn add(&mut self, x: T, y: T, before: Option<T>, count: T) {
        let deviation = before.map_or(x, |before| x - self.sum_x / before);
        self.sum_x = self.sum_x + x;
        self.sum_y = self.sum_y + y;
        self.products = self.products + deviation * (y - self.sum_y / count);
    }
}

impl Covariance {
    /// Adds a pair; other values are ignored.
    pub fn add(&mut self, pair: Doc<'_>) {
        let values: Vec<Value<'_>> = pair.iter().map(|elem| elem.value()).collect();
        let [x, y] = values.as_slice() else { return };
        let (Some(a), Some(b)) = (number(x), number(y)) else { return };
        if !is_finite(x, a) || !is_finite(y, b) {
            let of = |value: &Value<'_>, n: f64| if is_finite(value, n) { 0.0 } else { n };
            self.infinite = Some(self.infinite.unwrap_or(0.0) + of(x, a) + of(y, b));
            return;
        }
        if [x, y].iter().any(|v| matches!(v, Value::Decimal128(_))) && self.decimals.is_none() {
            let Moments { sum_x, sum_y, products } = self.doubles;
            self.decimals = Some(Moments {
                sum_x: Decimal128::from_f64_precise(sum_x),
                sum_y: Decimal128::from_f64_precise(sum_y),
                products: Decimal128::from_f64_precise(products),
            });
        }
        let before = Some(self.count).filter(|count| *count > 0);
        self.count = self.count.saturating_add(1);
        match &mut self.decimals {
            Some(moments) => {
                let (count, before) = (of_count(self.count), before.map(of_count));
                moments.add(decimal(x, a), decimal(y, b), before, count);
            }
            None => self.doubles.add(a, b, before.map(f64::from), f64::from(self.count)),
        }
    }

    /// The result: null if there are not enough pairs.
    pub fn value(&self, sample: bool) -> Value<'static> {
        let divisor = self.count - i32::from(sample);
        if divisor <= 0 {
            return Value::Null;
        }
        if self.count == 1 {
            return Value::Double(0.0);
        }
        match (self.infinite, &self.decimals) {
            (Some(infinite), None) => Value::Double(infinite),
            (Some(infinite), Some(_)) => Value::Decimal128(Decimal128::from_f64(infinite)),
            (None, Some(moments)) => Value::Decimal128(moments.products / of_count(divisor)),
            (None, None) => Value::Double(self.doubles.products / f64::from(divisor)),
        }
    }
}

/// A number of pairs as a double of 15 digits, by which MongoDB divides: the quotient has that many at least.
fn of_count(count: i32) -> Decimal128 {
    Decimal128::from_f64(f64::from(count))
}

fn number(value: &Value<'_>) -> Option<f64> {
    value.as_f64_lossy().filter(|_| value.is_number())
}

/// A decimal may be finite that is none as a double.
fn is_finite(value: &Value<'_>, double: f64) -> bool {
    match value {
        Value::Decimal128(decimal) => decimal.is_finite(),
        _ => double.is_finite(),
    }
}

fn decimal(value: &Value<'_>, double: f64) -> Decimal128 {
    match value {
        Value::Decimal128(decimal) => *decimal,
        Value::Int32(number) => Decimal128::from(*number),
        Value::Int64(number) => Decimal128::from(*number),
        _ => Decimal128::from_f64(double),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::array;

    fn of(pairs: &[Value<'static>], sample: bool) -> Value<'static> {
        let mut covariance = Covariance::default();
        pairs.iter().filter_map(Value::as_array).for_each(|pair| covariance.add(pair));
        covariance.value(sample)
    }

    #[test]
    fn of_pairs() {
        let pairs = [array![1, 2], array!["x", 2], array![3, 6], array![5], array![5, 10]];
        assert_eq!(of(&pairs[..1], false), Value::Double(0.0));
        assert_eq!(of(&pairs[..1], true), Value::Null);
        assert_eq!(of(&[], false), Value::Null);
        assert_eq!(of(&pairs, true), Value::Double(8.0));
        assert_eq!(of(&pairs, false), Value::Double(16.0 / 3.0));
        let decimal = Value::Decimal128(Decimal128::from(5));
        let with_decimal = [array![1, 2], array![3, 6], array![decimal, 10]];
        assert_eq!(of(&with_decimal, true), Value::Decimal128(Decimal128::from(8)));
        let infinite = [array![1, 2], array![f64::INFINITY, 6], array![5, 10]];
        assert_eq!(of(&infinite, false), Value::Double(f64::INFINITY));
        assert_eq!(of(&infinite[1..], false), Value::Double(0.0));
        assert_eq!(of(&infinite[1..2], false), Value::Null);
    }

    #[test]
    fn of_decimals_with_the_digits_of_mongodb() {
        let decimal = |text: &str| Value::Decimal128(Decimal128::parse(text).unwrap());
        let text = |pairs: &[Value<'static>], sample| match of(pairs, sample) {
            Value::Decimal128(decimal) => decimal.to_string(),
            other => panic!("{other:?}"),
        };
        let two = [array![decimal("1"), decimal("2")], array![decimal("3"), decimal("4")]];
        assert_eq!((text(&two, true), text(&two, false)), ("2".to_owned(), "1".to_owned()));
        let same =
            [array![decimal("42.5"), decimal("99.9")], array![decimal("42.5"), decimal("99.9")]];
        assert_eq!(text(&same, true), "0E+12");
        let tiny =
            [array![decimal("1E-6143"), decimal("2")], array![decimal("3E-6143"), decimal("4")]];
        assert_eq!(text(&tiny, true), "2E-6143");
    }
}
