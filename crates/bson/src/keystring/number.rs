//! Numbers in keys: equal ones of any type have equal bytes, and no number is rounded.
//!
//! | first byte | numbers | then |
//! |---|---|---|
//! | 0x1E | NaN | |
//! | 0x1F | up to -2^63 | as 0x33, inverted |
//! | 0x20–0x27 | above -2^63, up to -1 | as 0x32–0x2B, inverted |
//! | 0x28 | above -1, below 0 | as 0x2A, inverted |
//! | 0x29 | 0 | |
//! | 0x2A | above 0, below 1 | double |
//! | 0x2B–0x32 | from 1, below 2^63 | 1–8 bytes: whole part · 2 + (1 if there is a fraction); fraction |
//! | 0x33 | from 2^63 | double |
//!
//! Fraction: 52 binary places, then a 1 if a rest follows, in groups of seven bits, each with a low
//! bit that says whether another group follows. The rest, which only a decimal can have: the 34
//! digits of its coefficient in 15 bytes.
//!
//! Double: the bits of the nearest double towards zero, times two, plus 1 if a rest follows. That
//! rest: the decimal's exponent in scientific notation plus 6176 in two bytes, then the 34 digits.
//!
//! Type bits: see `Kind`. A number with a rest is a decimal; a decimal's trailing zeros are counted.

use super::decode::Reader;
use super::type_bits::{TypeBits, TypeBitsReader};
use crate::bid::{EXPONENT_MIN, Parts, digits};
use crate::number::Number;
use crate::value::{Decimal128, Value};
use std::cmp::Ordering;

pub(crate) const NAN: u8 = 0x1E;
const NEGATIVE_SMALL: u8 = 0x28;
const ZERO: u8 = 0x29;
const POSITIVE_SMALL: u8 = 0x2A;
const POSITIVE_1_BYTE: u8 = 0x2B;
const POSITIVE_8_BYTES: u8 = 0x32;
pub(crate) const POSITIVE_LARGE: u8 = 0x33;

/// The sum of a tag and its counterpart of the other sign.
const MIRROR: u8 = NEGATIVE_SMALL + POSITIVE_SMALL;

const TWO_63: f64 = 9_223_372_036_854_775_808.0;
const FRACTION_BITS: u32 = 52;
/// Digits of a coefficient.
const DIGITS: i32 = 34;
const COEFFICIENT_BYTES: usize = 15;

/// What the type bits say of a number's type. Where a type is impossible (an int of 2^40) its code
/// is the default's.
///
/// Two bits where any type is possible; zero takes three, for its sign.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The default: the narrowest integer, or a double if it is no integer.
    Default = 0,
    Long = 1,
    Double = 2,
    Decimal = 3,
    /// Of zero only.
    NegativeDouble = 4,
    /// Of zero only.
    NegativeDecimal = 5,
}

const KIND_BITS: usize = 2;
const ZERO_KIND_BITS: usize = 3;
/// Trailing zeros of a decimal.
const ZEROS_BITS: usize = 6;
/// The exponent of a decimal zero.
const EXPONENT_BITS: usize = 14;

pub(super) fn put_int32(out: &mut Vec<u8>, bits: &mut TypeBits, value: i32) {
    bits.push(Kind::Default as u32, if value == 0 { ZERO_KIND_BITS } else { KIND_BITS });
    put_whole(out, value < 0, u64::from(value.unsigned_abs()));
}

pub(super) fn put_int64(out: &mut Vec<u8>, bits: &mut TypeBits, value: i64) {
    let kind = if i32::try_from(value).is_ok() { Kind::Long } else { Kind::Default };
    bits.push(kind as u32, if value == 0 { ZERO_KIND_BITS } else { KIND_BITS });
    put_whole(out, value < 0, value.unsigned_abs());
}

pub(super) fn put_double(out: &mut Vec<u8>, bits: &mut TypeBits, value: f64) {
    let negative = value < 0.0;
    let magnitude = value.abs();
    if value.is_nan() {
        bits.push(Kind::Default as u32, KIND_BITS);
        out.push(NAN);
    } else if value == 0.0 {
        let kind = if value.is_sign_negative() { Kind::NegativeDouble } else { Kind::Double };
        bits.push(kind as u32, ZERO_KIND_BITS);
        out.push(ZERO);
    } else if (1.0..TWO_63).contains(&magnitude) {
        let whole = magnitude as u64;
        let fraction = magnitude - whole as f64;
        if fraction == 0.0 {
            bits.push(Kind::Double as u32, KIND_BITS);
            put_whole(out, negative, whole);
        } else {
            bits.push(Kind::Default as u32, KIND_BITS);
            let scaled = (fraction * (1u64 << FRACTION_BITS) as f64) as u64;
            signed(out, negative, |out| put_fractional(out, whole, scaled, None));
        }
    } else {
        let kind = if value == -TWO_63 { Kind::Double } else { Kind::Default };
        bits.push(kind as u32, KIND_BITS);
        signed(out, negative, |out| put_as_double(out, magnitude, None));
    }
}

pub(super) fn put_decimal(out: &mut Vec<u8>, bits: &mut TypeBits, value: Decimal128) {
    let (negative, coefficient, exponent) = match value.parts() {
        Parts::Nan => {
            bits.push(Kind::Decimal as u32, KIND_BITS);
            return out.push(NAN);
        }
        Parts::Infinite { negative } => {
            bits.push(Kind::Decimal as u32, KIND_BITS);
            return signed(out, negative, |out| put_as_double(out, f64::INFINITY, None));
        }
        Parts::Finite { negative, coefficient: 0, exponent } => {
            let kind = if negative { Kind::NegativeDecimal } else { Kind::Decimal };
            bits.push(kind as u32, ZERO_KIND_BITS);
            bits.push(exponent.abs_diff(EXPONENT_MIN), EXPONENT_BITS);
            return out.push(ZERO);
        }
        Parts::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
    };
    let exact = match whole_part(coefficient, exponent) {
        Some((whole, rest, scale)) if whole >= 1 => {
            put_decimal_with_whole(out, negative, whole, rest, scale, coefficient)
        }
        _ => put_decimal_as_double(out, negative, coefficient, exponent),
    };
    if exact {
        bits.push(Kind::Decimal as u32, KIND_BITS);
    }
    bits.push(trailing_zeros(coefficient), ZEROS_BITS);
}

/// Writes a decimal from 1 up whose whole part fits. Answers whether no rest had to be written.
fn put_decimal_with_whole(
    out: &mut Vec<u8>,
    negative: bool,
    whole: u64,
    rest: u128,
    scale: u128,
    coefficient: u128,
) -> bool {
    if rest == 0 {
        put_whole(out, negative, whole);
        return true;
    }
    // Long division by the power of ten, one binary place after the other.
    let (mut fraction, mut rest) = (0u64, rest);
    for _ in 0..FRACTION_BITS {
        rest *= 2;
        fraction <<= 1;
        if rest >= scale {
            rest -= scale;
            fraction |= 1;
        }
    }
    let remainder = (rest != 0).then(|| normalized(coefficient));
    signed(out, negative, |out| put_fractional(out, whole, fraction, remainder));
    remainder.is_none()
}

/// Writes a decimal below 1 or from 2^63 up. Answers whether no rest had to be written.
fn put_decimal_as_double(
    out: &mut Vec<u8>,
    negative: bool,
    coefficient: u128,
    exponent: i32,
) -> bool {
    let parts = Parts::Finite { negative: false, coefficient, exponent };
    let decimal = Number::Decimal(Decimal128::from_parts(parts).unwrap_or(Decimal128::ZERO));
    let mut double = decimal.to_f64_lossy().min(f64::MAX);
    let mut order = Number::Double(double).compare(decimal);
    if order == Ordering::Greater {
        double = f64::from_bits(double.to_bits().saturating_sub(1));
        order = Ordering::Less;
    }
    let rest = (order == Ordering::Less).then(|| {
        let adjusted = exponent + digits(coefficient) - 1;
        (adjusted.abs_diff(EXPONENT_MIN) as u16, normalized(coefficient))
    });
    signed(out, negative, |out| put_as_double(out, double, rest));
    rest.is_none()
}

/// The whole part, what is left of the coefficient, and the power of ten that it counts in; `None`
/// from 2^63 up.
fn whole_part(coefficient: u128, exponent: i32) -> Option<(u64, u128, u128)> {
    let (whole, rest, scale) = if exponent >= 0 {
        if digits(coefficient) + exponent > 19 {
            return None;
        }
        (coefficient * 10u128.pow(exponent.unsigned_abs()), 0, 1)
    } else if exponent < -DIGITS {
        (0, coefficient, 1)
    } else {
        let scale = 10u128.pow(exponent.unsigned_abs());
        (coefficient / scale, coefficient % scale, scale)
    };
    u64::try_from(whole).ok().filter(|w| *w < 1 << 63).map(|whole| (whole, rest, scale))
}

/// The coefficient with all of its 34 digits.
fn normalized(coefficient: u128) -> u128 {
    coefficient * 10u128.pow((DIGITS - digits(coefficient)).max(0).unsigned_abs())
}

fn trailing_zeros(mut coefficient: u128) -> u32 {
    let mut zeros = 0;
    while coefficient != 0 && coefficient.is_multiple_of(10) {
        coefficient /= 10;
        zeros += 1;
    }
    zeros
}

/// Writes a positive number, and turns it round if it should be negative.
fn signed(out: &mut Vec<u8>, negative: bool, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put(out);
    if negative {
        out[start] = MIRROR - out[start];
        super::invert(out, start + 1);
    }
}

#[inline]
fn put_whole(out: &mut Vec<u8>, negative: bool, magnitude: u64) {
    match magnitude {
        0 => out.push(ZERO),
        0x8000_0000_0000_0000.. => signed(out, negative, |out| put_as_double(out, TWO_63, None)),
        _ => put_whole_part(out, negative, magnitude << 1),
    }
}

/// Writes the tag and the bytes of a whole part that has its fraction bit already.
#[inline]
fn put_whole_part(out: &mut Vec<u8>, negative: bool, shifted: u64) {
    let length = 8 - shifted.leading_zeros() as usize / 8;
    let tag = POSITIVE_1_BYTE + length as u8 - 1;
    let (tag, bytes) = if negative {
        (MIRROR - tag, (!shifted).to_be_bytes())
    } else {
        (tag, shifted.to_be_bytes())
    };
    out.push(tag);
    out.extend_from_slice(&bytes[8 - length..]);
}

fn put_fractional(out: &mut Vec<u8>, whole: u64, fraction: u64, rest: Option<u128>) {
    put_whole_part(out, false, whole << 1 | 1);
    // 52 places, the rest bit, three zeros: eight groups of seven.
    let mut left = (fraction << 4 | u64::from(rest.is_some()) << 3) << 8;
    loop {
        let group = (left >> 57) as u8;
        left <<= 7;
        out.push(group << 1 | u8::from(left != 0));
        if left == 0 {
            break;
        }
    }
    if let Some(coefficient) = rest {
        put_coefficient(out, coefficient);
    }
}

fn put_as_double(out: &mut Vec<u8>, magnitude: f64, rest: Option<(u16, u128)>) {
    out.push(if magnitude < 1.0 { POSITIVE_SMALL } else { POSITIVE_LARGE });
    let word = magnitude.to_bits() << 1 | u64::from(rest.is_some());
    out.extend_from_slice(&word.to_be_bytes());
    if let Some((exponent, coefficient)) = rest {
        out.extend_from_slice(&exponent.to_be_bytes());
        put_coefficient(out, coefficient);
    }
}

fn put_coefficient(out: &mut Vec<u8>, coefficient: u128) {
    out.extend_from_slice(&coefficient.to_be_bytes()[16 - COEFFICIENT_BYTES..]);
}

/// A number as its bytes have it.
enum Magnitude {
    /// Whole, below 2^63.
    Whole(u64),
    /// Whole part and 52 binary places.
    Fractional(u64, u64),
    /// Below 1 or from 2^63 up; perhaps infinite.
    Double(f64),
    /// A decimal that no double equals: 34 digits and the exponent in scientific notation.
    Decimal(u128, i32),
}

/// Reads a number whose tag has been read already.
pub(super) fn read(
    tag: u8,
    reader: &mut Reader<'_>,
    bits: &mut TypeBitsReader<'_>,
) -> Option<Value<'static>> {
    match tag {
        NAN => {
            return Some(match bits.read(KIND_BITS) == Kind::Decimal as u32 {
                true => Value::Decimal128(Decimal128::NAN),
                false => Value::Double(f64::NAN),
            });
        }
        ZERO => return read_zero(bits),
        _ => {}
    }
    let negative = tag < ZERO;
    let positive_tag = if negative { MIRROR - tag } else { tag };
    if negative {
        reader.flip();
    }
    let magnitude = read_magnitude(positive_tag, reader);
    if negative {
        reader.flip();
    }
    typed(magnitude?, negative, bits)
}

fn read_zero(bits: &mut TypeBitsReader<'_>) -> Option<Value<'static>> {
    let kind = bits.read(ZERO_KIND_BITS);
    Some(match kind {
        _ if kind == Kind::Default as u32 => Value::Int32(0),
        _ if kind == Kind::Long as u32 => Value::Int64(0),
        _ if kind == Kind::Double as u32 => Value::Double(0.0),
        _ if kind == Kind::NegativeDouble as u32 => Value::Double(-0.0),
        _ => {
            let negative = kind == Kind::NegativeDecimal as u32;
            let exponent = bits.read(EXPONENT_BITS) as i32 + EXPONENT_MIN;
            let parts = Parts::Finite { negative, coefficient: 0, exponent };
            Value::Decimal128(Decimal128::from_parts(parts)?)
        }
    })
}

fn read_magnitude(tag: u8, reader: &mut Reader<'_>) -> Option<Magnitude> {
    if !(POSITIVE_1_BYTE..=POSITIVE_8_BYTES).contains(&tag) {
        let word = reader.take_number(8)? as u64;
        if word & 1 == 0 {
            return Some(Magnitude::Double(f64::from_bits(word >> 1)));
        }
        let exponent = reader.take_number(2)? as i32 + EXPONENT_MIN;
        let coefficient = reader.take_number(COEFFICIENT_BYTES)?;
        return Some(Magnitude::Decimal(coefficient, exponent));
    }
    let length = usize::from(tag - POSITIVE_1_BYTE) + 1;
    let shifted = reader.take_number(length)? as u64;
    let whole = shifted >> 1;
    if shifted & 1 == 0 {
        return Some(Magnitude::Whole(whole));
    }
    let mut word = 0u64;
    for position in 0..8 {
        let group = reader.take()?;
        word |= u64::from(group >> 1) << (57 - 7 * position);
        if group & 1 == 0 {
            break;
        }
    }
    if word >> 11 & 1 == 0 {
        return Some(Magnitude::Fractional(whole, word >> 12));
    }
    let coefficient = reader.take_number(COEFFICIENT_BYTES)?;
    Some(Magnitude::Decimal(coefficient, digits(u128::from(whole)) - 1))
}

/// The value of the type that the type bits name.
fn typed(
    magnitude: Magnitude,
    negative: bool,
    bits: &mut TypeBitsReader<'_>,
) -> Option<Value<'static>> {
    let sign = if negative { -1.0 } else { 1.0 };
    if let Magnitude::Decimal(coefficient, adjusted) = magnitude {
        let zeros = trailing_zeros(coefficient);
        let reduced = coefficient.checked_div(10u128.checked_pow(zeros)?)?;
        let exponent = adjusted - (DIGITS - 1) + zeros as i32;
        return decimal(negative, reduced, exponent, bits);
    }
    let kind = bits.read(KIND_BITS);
    if kind == Kind::Decimal as u32 {
        return exact_decimal(magnitude, negative, bits);
    }
    Some(match magnitude {
        Magnitude::Whole(whole) => {
            let value = if negative { -(whole as i64) } else { whole as i64 };
            match i32::try_from(value) {
                _ if kind == Kind::Double as u32 => Value::Double(sign * whole as f64),
                Ok(narrow) if kind == Kind::Default as u32 => Value::Int32(narrow),
                _ => Value::Int64(value),
            }
        }
        Magnitude::Fractional(whole, fraction) => {
            let scaled = u128::from(whole) << FRACTION_BITS | u128::from(fraction);
            Value::Double(sign * (scaled as f64 / (1u64 << FRACTION_BITS) as f64))
        }
        Magnitude::Double(double) => {
            if negative && double == TWO_63 && kind == Kind::Default as u32 {
                Value::Int64(i64::MIN)
            } else {
                Value::Double(sign * double)
            }
        }
        Magnitude::Decimal(..) => return None,
    })
}

/// The decimal that equals a binary number.
fn exact_decimal(
    magnitude: Magnitude,
    negative: bool,
    bits: &mut TypeBitsReader<'_>,
) -> Option<Value<'static>> {
    let (mut mantissa, mut power) = match magnitude {
        Magnitude::Whole(whole) => (u128::from(whole), 0),
        Magnitude::Fractional(whole, fraction) => {
            (u128::from(whole) << FRACTION_BITS | u128::from(fraction), -(FRACTION_BITS as i32))
        }
        Magnitude::Double(double) if double.is_infinite() => {
            let parts = Parts::Infinite { negative };
            return Some(Value::Decimal128(Decimal128::from_parts(parts)?));
        }
        Magnitude::Double(double) => {
            let word = double.to_bits();
            let biased = (word >> 52 & 0x7FF) as i32;
            let fraction = u128::from(word & ((1 << 52) - 1));
            if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) }
        }
        Magnitude::Decimal(..) => return None,
    };
    if mantissa == 0 {
        return None;
    }
    let twos = mantissa.trailing_zeros();
    mantissa >>= twos;
    power += twos as i32;
    if power <= 0 {
        let fives = 5u128.checked_pow(power.unsigned_abs())?;
        return decimal(negative, mantissa.checked_mul(fives)?, power, bits);
    }
    // A power of two beyond the fives cannot become tens; it goes into the coefficient.
    let mut exponent = 0;
    while mantissa.is_multiple_of(5) && exponent < power {
        mantissa /= 5;
        exponent += 1;
    }
    let coefficient =
        mantissa.checked_mul(2u128.checked_pow((power - exponent).unsigned_abs())?)?;
    decimal(negative, coefficient, exponent, bits)
}

/// A decimal from its shortest form and the number of zeros it had.
fn decimal(
    negative: bool,
    reduced: u128,
    exponent: i32,
    bits: &mut TypeBitsReader<'_>,
) -> Option<Value<'static>> {
    let zeros = bits.read(ZEROS_BITS);
    let coefficient = reduced.checked_mul(10u128.checked_pow(zeros)?)?;
    let exponent = exponent - zeros as i32;
    Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent }).map(Value::Decimal128)
}
