//! Sums, products and bit operations of update operators, with MongoDB's rules for types.
//!
//! An int that overflows becomes a long; a long that overflows is an error. A double operand makes the result a
//! double, a decimal operand makes it a decimal.

use kauri_bson::{Decimal128, Value};

/// Which of the two arithmetic operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// `$inc`
    Add,
    /// `$mul`
    Multiply,
}

impl Arithmetic {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arithmetic::Add => "$inc",
            Arithmetic::Multiply => "$mul",
        }
    }

    /// The result, `None` if a long cannot hold it or a value is no number.
    #[inline]
    pub(crate) fn apply(self, a: &Value<'_>, b: &Value<'_>) -> Option<Value<'static>> {
        match (a, b) {
            (Value::Decimal128(_), _) | (_, Value::Decimal128(_)) => {
                let (a, b) = (to_decimal(a)?, to_decimal(b)?);
                Some(Value::Decimal128(match self {
                    Arithmetic::Add => a + b,
                    Arithmetic::Multiply => a * b,
                }))
            }
            (Value::Double(_), _) | (_, Value::Double(_)) => {
                let (a, b) = (a.as_f64_lossy()?, b.as_f64_lossy()?);
                Some(Value::Double(match self {
                    Arithmetic::Add => a + b,
                    Arithmetic::Multiply => a * b,
                }))
            }
            _ => {
                let ints = matches!((a, b), (Value::Int32(_), Value::Int32(_)));
                let (a, b) = (to_long(a)?, to_long(b)?);
                let long = match self {
                    Arithmetic::Add => a.checked_add(b)?,
                    Arithmetic::Multiply => a.checked_mul(b)?,
                };
                Some(match i32::try_from(long) {
                    Ok(int) if ints => Value::Int32(int),
                    _ => Value::Int64(long),
                })
            }
        }
    }
}

/// An operation of `$bit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitOp {
    And,
    Or,
    Xor,
}

impl BitOp {
    pub(crate) fn from_name(name: &str) -> Option<BitOp> {
        match name {
            "and" => Some(BitOp::And),
            "or" => Some(BitOp::Or),
            "xor" => Some(BitOp::Xor),
            _ => None,
        }
    }

    /// The result; `None` if a value is neither int nor long.
    pub(crate) fn apply(self, a: &Value<'_>, b: &Value<'_>) -> Option<Value<'static>> {
        let ints = matches!((a, b), (Value::Int32(_), Value::Int32(_)));
        let (a, b) = (to_long(a)?, to_long(b)?);
        let long = match self {
            BitOp::And => a & b,
            BitOp::Or => a | b,
            BitOp::Xor => a ^ b,
        };
        Some(match i32::try_from(long) {
            Ok(int) if ints => Value::Int32(int),
            _ => Value::Int64(long),
        })
    }
}

/// Whether two numbers are the same in type and value, so that writing one over the other counts as
/// no change (the zeros of either sign are, and decimals that differ in trailing zeros). A NaN is
/// not the same as itself.
pub(crate) fn is_identical(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a.as_number(), b.as_number()) {
        (Some(x), Some(y)) => a.ty() == b.ty() && !x.is_nan() && x.compare(y).is_eq(),
        _ => false,
    }
}

/// The number and its type as overflow errors write them.
pub(crate) fn describe(value: &Value<'_>) -> String {
    match value {
        Value::Int32(v) => format!("(NumberInt){v}"),
        Value::Int64(v) => format!("(NumberLong){v}"),
        other => crate::text::value(other),
    }
}

fn to_long(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(v) => Some(i64::from(*v)),
        Value::Int64(v) => Some(*v),
        _ => None,
    }
}

fn to_decimal(value: &Value<'_>) -> Option<Decimal128> {
    match value {
        Value::Int32(v) => Some(Decimal128::from(*v)),
        Value::Int64(v) => Some(Decimal128::from(*v)),
        Value::Double(v) => Some(Decimal128::from_f64(*v)),
        Value::Decimal128(v) => Some(*v),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_results() {
        use Value::{Double, Int32, Int64};
        let decimal = |n: i32| Value::Decimal128(Decimal128::from(n));
        for (op, a, b, expected) in [
            (Arithmetic::Add, Int32(1), Int32(2), Some(Int32(3))),
            (Arithmetic::Add, Int32(i32::MAX), Int32(1), Some(Int64(1 << 31))),
            (Arithmetic::Add, Int64(1), Int32(2), Some(Int64(3))),
            (Arithmetic::Add, Int64(i64::MAX), Int32(1), None),
            (Arithmetic::Add, Int64(i64::MIN), Int64(-1), None),
            (Arithmetic::Add, Int64(i64::MAX), Double(1.0), Some(Double(9223372036854775808.0))),
            (Arithmetic::Add, Int32(1), Double(0.5), Some(Double(1.5))),
            (Arithmetic::Add, Int32(1), decimal(2), Some(decimal(3))),
            (Arithmetic::Multiply, Int32(1 << 20), Int32(1 << 20), Some(Int64(1 << 40))),
            (Arithmetic::Multiply, Int32(-3), Int32(5), Some(Int32(-15))),
            (Arithmetic::Multiply, Int64(i64::MIN), Int32(-1), None),
            (Arithmetic::Multiply, Value::Null, Int32(1), None),
        ] {
            assert_eq!(op.apply(&a, &b), expected, "{a:?} {op:?} {b:?}");
        }
        let product = Arithmetic::Multiply.apply(&Double(2.0), &decimal(2));
        assert!(matches!(product, Some(Value::Decimal128(_))));
        assert_eq!(product.and_then(|v| v.as_i64_exact()), Some(4));
        assert_eq!(BitOp::And.apply(&Int32(12), &Int32(10)), Some(Int32(8)));
        assert_eq!(BitOp::Or.apply(&Int32(12), &Int64(1)), Some(Int64(13)));
        assert_eq!(BitOp::Xor.apply(&Int64(5), &Int32(5)), Some(Int64(0)));
        assert_eq!(BitOp::Xor.apply(&Double(5.0), &Int32(5)), None);
    }
}
