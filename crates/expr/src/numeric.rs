//! Numbers in expressions: widening and implicit conversions.

use kauri_base::{Result, bail};
use kauri_bson::bid::Parts;
use kauri_bson::decimal::Rounding;
use kauri_bson::{Decimal128, Value};

/// A number of one of the four types.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Num {
    Int(i32),
    Long(i64),
    Double(f64),
    Decimal(Decimal128),
}

impl Num {
    /// The number, if the value is one.
    #[inline]
    pub fn of(value: &Value<'_>) -> Option<Num> {
        Some(match value {
            Value::Int32(v) => Num::Int(*v),
            Value::Int64(v) => Num::Long(*v),
            Value::Double(v) => Num::Double(*v),
            Value::Decimal128(v) => Num::Decimal(*v),
            _ => return None,
        })
    }

    pub fn value(self) -> Value<'static> {
        match self {
            Num::Int(v) => Value::Int32(v),
            Num::Long(v) => Value::Int64(v),
            Num::Double(v) => Value::Double(v),
            Num::Decimal(v) => Value::Decimal128(v),
        }
    }

    /// The long, of an int or a long.
    pub fn whole(self) -> Option<i64> {
        match self {
            Num::Int(v) => Some(i64::from(v)),
            Num::Long(v) => Some(v),
            _ => None,
        }
    }

    pub fn to_f64(self) -> f64 {
        match self {
            Num::Int(v) => f64::from(v),
            Num::Long(v) => v as f64,
            Num::Double(v) => v,
            Num::Decimal(_) => self.value().as_f64_lossy().unwrap_or(f64::NAN),
        }
    }

    /// As a decimal; a double with 15 digits.
    pub fn to_decimal(self) -> Decimal128 {
        match self {
            Num::Int(v) => Decimal128::from(i64::from(v)),
            Num::Long(v) => Decimal128::from(v),
            Num::Double(v) => Decimal128::from_f64(v),
            Num::Decimal(v) => v,
        }
    }

    pub fn is_decimal(self) -> bool {
        matches!(self, Num::Decimal(_))
    }

    /// Whether it is a zero of either sign.
    pub fn is_zero(self) -> bool {
        match self {
            Num::Int(v) => v == 0,
            Num::Long(v) => v == 0,
            Num::Double(v) => v == 0.0,
            Num::Decimal(v) => v.is_zero(),
        }
    }

    /// Whether it equals a decimal.
    pub fn same(self, other: Decimal128) -> bool {
        kauri_bson::equal(&self.value(), &Value::Decimal128(other))
    }

    pub fn is_nan(self) -> bool {
        match self {
            Num::Double(v) => v.is_nan(),
            Num::Decimal(v) => v.is_nan(),
            _ => false,
        }
    }
}

/// An int where it fits, else a long.
pub(crate) fn int_or_long(v: i64) -> Value<'static> {
    i32::try_from(v).map_or(Value::Int64(v), Value::Int32)
}

/// The long that a finite decimal rounds to (ties to even), if there is one.
pub(crate) fn decimal_to_long(v: Decimal128) -> Option<i64> {
    let rounded = v.round_to_integral(Rounding::HalfEven);
    match rounded.parts() {
        Parts::Finite { .. } => Value::Decimal128(rounded).as_i64_exact(),
        _ => None,
    }
}

/// The long that a double rounds to (ties away from zero), if there is one.
pub(crate) fn double_to_long(v: f64) -> Option<i64> {
    Value::Double(v.round()).as_i64_exact()
}

/// The long that a number truncates to (a decimal is rounded). Refuses values that are not numbers or out of range.
pub(crate) fn coerce_to_long(value: &Value<'_>) -> Result<i64> {
    let Some(num) = Num::of(value) else {
        bail!(16004, "can't convert from BSON type {} to long", value.type_name());
    };
    let truncated = match num {
        Num::Int(v) => Some(i64::from(v)),
        Num::Long(v) => Some(v),
        Num::Double(v) => Value::Double(v.trunc()).as_i64_exact(),
        // MongoDB does not check decimals here: what is out of range becomes the smallest long.
        Num::Decimal(v) => Some(decimal_to_long(v).unwrap_or(i64::MIN)),
    };
    match truncated {
        Some(v) => Ok(v),
        None => bail!(31109, "Can't coerce out of range value {} to long", value_text(value)),
    }
}

/// A value as error messages show it.
pub(crate) fn value_text(value: &Value<'_>) -> String {
    kauri_bson::shell::value_to_string(value)
}
