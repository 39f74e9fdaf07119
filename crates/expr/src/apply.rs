//! The arithmetic of `$add`, `$subtract`, `$multiply`, `$divide` and `$mod` on values, and steps of time, for
//! stages that compute without an expression.
//!
//! Each function returns `None` if an operand is not a number.

use crate::date::time_zone::TimeZone;
use crate::date::unit;
pub use crate::date::unit::Unit as TimeUnit;
use crate::numeric::Num;
use crate::ops::arithmetic;
use kauri_base::Result;
use kauri_bson::Value;

fn both(a: &Value<'_>, b: &Value<'_>) -> Option<(Num, Num)> {
    Num::of(a).zip(Num::of(b))
}

/// The sum of two numbers.
pub fn sum(a: &Value<'_>, b: &Value<'_>) -> Option<Value<'static>> {
    both(a, b).map(|(a, b)| arithmetic::sum(a, b).value())
}

/// `a` minus `b`.
pub fn difference(a: &Value<'_>, b: &Value<'_>) -> Option<Value<'static>> {
    both(a, b).map(|(a, b)| arithmetic::difference(a, b).value())
}

/// The product of two numbers.
pub fn product(a: &Value<'_>, b: &Value<'_>) -> Option<Value<'static>> {
    both(a, b).map(|(a, b)| arithmetic::product(a, b).value())
}

/// `a` divided by `b`; none if that is a division by zero, too.
pub fn quotient(a: &Value<'_>, b: &Value<'_>) -> Option<Value<'static>> {
    let (a, b) = both(a, b).filter(|(_, b)| !b.is_zero())?;
    Some(arithmetic::quotient(a, b))
}

/// The remainder of `a` divided by `b`; none for a division by zero, too.
pub fn remainder(a: &Value<'_>, b: &Value<'_>) -> Option<Value<'static>> {
    let (a, b) = both(a, b).filter(|(_, b)| !b.is_zero())?;
    Some(arithmetic::remainder(a, b))
}

/// The date `amount` units of time after `ms`, in UTC.
pub fn date_plus(ms: i64, unit: TimeUnit, amount: i64) -> Result<i64> {
    unit::add(ms, unit, amount, &TimeZone::Utc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_types_and_zero_divides_nothing() {
        let int = Value::Int32;
        assert_eq!(sum(&int(i32::MAX), &int(1)), Some(Value::Int64(1 << 31)));
        assert_eq!(difference(&int(1), &Value::Double(0.5)), Some(Value::Double(0.5)));
        assert_eq!(product(&int(3), &int(4)), Some(int(12)));
        assert_eq!(quotient(&int(1), &int(4)), Some(Value::Double(0.25)));
        assert_eq!(remainder(&int(7), &int(4)), Some(int(3)));
        assert_eq!(quotient(&int(1), &Value::Double(0.0)), None);
        assert_eq!(remainder(&int(1), &int(0)), None);
        assert_eq!(sum(&int(1), &Value::Null), None);
    }

    #[test]
    fn months_end_where_the_month_does() {
        const DAY_MS: i64 = 86_400_000;
        assert_eq!(date_plus(30 * DAY_MS, TimeUnit::Month, 1).unwrap(), 58 * DAY_MS);
        assert_eq!(TimeUnit::Month.fixed_ms(), None);
        assert_eq!(TimeUnit::Week.fixed_ms(), Some(7 * DAY_MS));
    }
}
