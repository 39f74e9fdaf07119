//! Integer operands.

use kauri_base::{Error, Result};
use kauri_bson::bid::Parts;
use kauri_bson::shell::elem_to_string;
use kauri_bson::{Elem, Number, Value};

/// A whole number of any type that fits a long.
pub(crate) fn to_long(elem: Elem<'_>) -> Result<i64> {
    let fail =
        |what: &str| Err(Error::failed_to_parse(format!("{what}: {}", elem_to_string(elem))));
    let Some(number) = elem.value().as_number() else { return fail("Expected a number in") };
    if number.is_nan() {
        return fail("Expected an integer, but found NaN in");
    }
    match number.to_i64_exact() {
        Some(whole) => Ok(whole),
        None if is_fraction(number) => fail("Expected an integer"),
        None => fail("Cannot represent as a 64-bit integer"),
    }
}

/// The same, not below zero.
pub(crate) fn to_non_negative_long(elem: Elem<'_>) -> Result<i64> {
    let number = to_long(elem)?;
    if number < 0 {
        let printed = elem_to_string(elem);
        return Err(Error::failed_to_parse(format!(
            "Expected a non-negative number in: {printed}"
        )));
    }
    Ok(number)
}

/// A whole number of any type that fits an int and is not below zero.
pub(crate) fn to_non_negative_int(elem: Elem<'_>) -> Result<u32> {
    let number = to_non_negative_long(elem)?;
    i32::try_from(number).map(|n| n as u32).map_err(|_| {
        let printed = elem_to_string(elem);
        Error::failed_to_parse(format!("Cannot represent as a 32-bit integer: {printed}"))
    })
}

/// A number truncated to a long; NaN, infinities and what is out of range are errors.
pub(crate) fn to_long_truncated(value: &Value<'_>) -> Result<i64> {
    let Some(number) = value.as_number() else {
        return Err(Error::bad_value("not a number"));
    };
    let finite = match number {
        Number::Int(_) => true,
        Number::Double(v) => v.is_finite(),
        Number::Decimal(v) => matches!(v.parts(), Parts::Finite { .. }),
    };
    if !finite {
        return Err(Error::bad_value("Unable to coerce NaN/Inf to integral type"));
    }
    truncated(number).ok_or_else(|| Error::bad_value("Out of bounds coercing to integral value"))
}

/// The number without its fraction, if that is a long.
#[inline]
pub(crate) fn truncated(number: Number) -> Option<i64> {
    match number {
        Number::Int(v) => Some(v),
        Number::Double(v) => Number::Double(v.trunc()).to_i64_exact(),
        Number::Decimal(v) => {
            let Parts::Finite { negative, coefficient, exponent } = v.parts() else { return None };
            if exponent >= 0 {
                return number.to_i64_exact();
            }
            // Coefficients have at most 34 digits.
            let power = exponent.unsigned_abs();
            let whole = if power > 34 { 0 } else { coefficient / 10u128.pow(power) };
            let whole = i128::try_from(whole).ok()?;
            i64::try_from(if negative { -whole } else { whole }).ok()
        }
    }
}

fn is_fraction(number: Number) -> bool {
    match number {
        Number::Int(_) => false,
        Number::Double(v) => v.is_finite() && v.trunc() != v,
        Number::Decimal(_) => truncated(number).is_some(),
    }
}
