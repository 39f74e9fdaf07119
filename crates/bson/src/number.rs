//! The four number types as one: exact comparison across them, exact and lossy conversions.
//!
//! Comparison never rounds: 2^53 + 1 as a long is above 2^53 as a double, and the decimal 0.1 is
//! below the double 0.1. All NaNs are equal and below everything; the two zeros are equal.

use crate::bid::{Parts, digits};
use crate::value::{Decimal128, Value};
use std::cmp::Ordering;
use std::io::Write as _;

/// A number of any type.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// An int or a long.
    Int(i64),
    /// A double.
    Double(f64),
    /// A decimal.
    Decimal(Decimal128),
}

/// 2^63 as a double: the first one that no long can hold.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;

impl Number {
    /// Compares exactly, as the comparison order does.
    #[inline]
    pub fn compare(self, other: Number) -> Ordering {
        use Number::{Decimal, Double, Int};
        match (self, other) {
            (Int(a), Int(b)) => a.cmp(&b),
            (Double(a), Double(b)) => compare_doubles(a, b),
            (Int(a), Double(b)) => compare_int_double(a, b),
            (Double(a), Int(b)) => compare_int_double(b, a).reverse(),
            (Decimal(a), Decimal(b)) => compare_parts(a.parts(), b.parts()),
            (Decimal(a), Int(b)) => compare_parts(a.parts(), int_parts(b)),
            (Int(a), Decimal(b)) => compare_parts(int_parts(a), b.parts()),
            (Decimal(a), Double(b)) => compare_double_decimal(b, a.parts()).reverse(),
            (Double(a), Decimal(b)) => compare_double_decimal(a, b.parts()),
        }
    }

    /// Whether it is NaN.
    pub fn is_nan(self) -> bool {
        match self {
            Number::Int(_) => false,
            Number::Double(v) => v.is_nan(),
            Number::Decimal(v) => v.parts() == Parts::Nan,
        }
    }

    /// Whether it is a zero of either sign.
    pub fn is_zero(self) -> bool {
        match self {
            Number::Int(v) => v == 0,
            Number::Double(v) => v == 0.0,
            Number::Decimal(v) => matches!(v.parts(), Parts::Finite { coefficient: 0, .. }),
        }
    }

    /// The long that is exactly this number, if there is one.
    #[inline]
    pub fn to_i64_exact(self) -> Option<i64> {
        match self {
            Number::Int(v) => Some(v),
            Number::Double(v) => {
                let integral = (-TWO_63..TWO_63).contains(&v) && v.trunc() == v;
                integral.then_some(v as i64)
            }
            Number::Decimal(v) => match integral_part(v.parts())? {
                (whole, false) => whole,
                (_, true) => None,
            },
        }
    }

    /// The number without its fraction, at most `i64::MAX` and at least `i64::MIN`; NaN gives 0.
    pub fn to_i64_saturating(self) -> i64 {
        match self {
            Number::Int(v) => v,
            Number::Double(v) => v as i64,
            Number::Decimal(v) => match v.parts() {
                Parts::Nan => 0,
                Parts::Infinite { negative: true } => i64::MIN,
                Parts::Infinite { negative: false } => i64::MAX,
                parts @ Parts::Finite { negative, .. } => {
                    let saturated = if negative { i64::MIN } else { i64::MAX };
                    integral_part(parts).and_then(|(whole, _)| whole).unwrap_or(saturated)
                }
            },
        }
    }

    /// The nearest double; exact wherever a double can hold the number.
    pub fn to_f64_lossy(self) -> f64 {
        match self {
            Number::Int(v) => v as f64,
            Number::Double(v) => v,
            Number::Decimal(v) => decimal_to_f64(v.parts()),
        }
    }
}

impl Value<'_> {
    /// The number, if it is one.
    #[inline]
    pub fn as_number(&self) -> Option<Number> {
        Some(match self {
            Value::Int32(v) => Number::Int(i64::from(*v)),
            Value::Int64(v) => Number::Int(*v),
            Value::Double(v) => Number::Double(*v),
            Value::Decimal128(v) => Number::Decimal(*v),
            _ => return None,
        })
    }

    /// A number of any type as the nearest double.
    pub fn as_f64_lossy(&self) -> Option<f64> {
        self.as_number().map(Number::to_f64_lossy)
    }

    /// A number of any type whose value is exactly a long.
    pub fn as_i64_exact(&self) -> Option<i64> {
        self.as_number().and_then(Number::to_i64_exact)
    }

    /// A number of any type without its fraction, clamped to the longs; NaN gives 0.
    pub fn to_i64_saturating(&self) -> Option<i64> {
        self.as_number().map(Number::to_i64_saturating)
    }

    /// Whether it is a number and NaN.
    pub fn is_nan(&self) -> bool {
        self.as_number().is_some_and(Number::is_nan)
    }

    /// What expressions take it for where they want a boolean: false for `false`, zero, null,
    /// undefined and missing; all else, NaN and the empty string included, is true.
    pub fn truthy(&self) -> bool {
        match self {
            Value::Bool(v) => *v,
            Value::Missing | Value::Null | Value::Undefined => false,
            other => other.as_number().is_none_or(|n| !n.is_zero()),
        }
    }
}

#[inline]
fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

#[inline]
fn compare_int_double(a: i64, b: f64) -> Ordering {
    if b.is_nan() || b < -TWO_63 {
        return Ordering::Greater;
    }
    if b >= TWO_63 {
        return Ordering::Less;
    }
    let whole = b.trunc();
    a.cmp(&(whole as i64)).then_with(|| compare_doubles(whole, b))
}

fn int_parts(v: i64) -> Parts {
    Parts::Finite { negative: v < 0, coefficient: u128::from(v.unsigned_abs()), exponent: 0 }
}

/// -1, 0 or 1.
fn signum(negative: bool, zero: bool) -> i32 {
    match (zero, negative) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    }
}

fn compare_parts(a: Parts, b: Parts) -> Ordering {
    let key = |parts| match parts {
        Parts::Nan => -3,
        Parts::Infinite { negative } => 2 * signum(negative, false),
        Parts::Finite { negative, coefficient, .. } => signum(negative, coefficient == 0),
    };
    match (a, b) {
        (
            Parts::Finite { negative, coefficient: ca, exponent: ea },
            Parts::Finite { coefficient: cb, exponent: eb, .. },
        ) if key(a) == key(b) && ca != 0 => {
            let order = compare_magnitudes(ca, ea, cb, eb);
            if negative { order.reverse() } else { order }
        }
        _ => key(a).cmp(&key(b)),
    }
}

/// `ca · 10^ea` against `cb · 10^eb`, neither of them zero.
fn compare_magnitudes(ca: u128, ea: i32, cb: u128, eb: i32) -> Ordering {
    (digits(ca) + ea).cmp(&(digits(cb) + eb)).then_with(|| {
        // Equally many places before the point: the scaled coefficient has as many digits as the
        // other one, so it cannot overflow.
        let scale = 10u128.pow(ea.abs_diff(eb));
        if ea >= eb { (ca * scale).cmp(&cb) } else { ca.cmp(&(cb * scale)) }
    })
}

fn compare_double_decimal(a: f64, b: Parts) -> Ordering {
    let Parts::Finite { negative, coefficient, exponent } = b else {
        let infinite = |negative| if negative { f64::NEG_INFINITY } else { f64::INFINITY };
        return match b {
            Parts::Infinite { negative } => compare_doubles(a, infinite(negative)),
            _ => compare_doubles(a, f64::NAN),
        };
    };
    let sign_b = signum(negative, coefficient == 0);
    let sign_a = if a.is_nan() { -2 } else { signum(a < 0.0, a == 0.0) };
    if sign_a != sign_b || sign_a == 0 {
        return sign_a.cmp(&sign_b);
    }
    if a.is_infinite() {
        return if a > 0.0 { Ordering::Greater } else { Ordering::Less };
    }
    let order = compare_double_magnitude(a.abs(), coefficient, exponent);
    if negative { order.reverse() } else { order }
}

/// `a` (finite, above zero) against `coefficient · 10^exponent` (above zero), exactly.
fn compare_double_magnitude(a: f64, coefficient: u128, exponent: i32) -> Ordering {
    // Positive doubles lie between 10^-324 and 10^309.
    let places = digits(coefficient) + exponent;
    if places > 310 {
        return Ordering::Less;
    }
    if places < -325 {
        return Ordering::Greater;
    }
    let bits = a.to_bits();
    let biased = (bits >> 52 & 0x7FF) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, shift) =
        if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) };
    // Both sides times the powers of two and ten that make them whole numbers.
    let mut left = Wide::new(u128::from(mantissa));
    let mut right = Wide::new(coefficient);
    if shift >= 0 { &mut left } else { &mut right }.shift_left(shift.unsigned_abs());
    if exponent >= 0 { &mut right } else { &mut left }.scale_ten(exponent.unsigned_abs());
    left.compare(&right)
}

/// A whole number of bounded size on the stack. The largest that is built here is below
/// 2^113 · 2^1074 (right) or 2^53 · 2^971 (left) times 10^360, in all under 2400 bits.
struct Wide {
    limbs: [u64; Wide::LIMBS],
}

impl Wide {
    const LIMBS: usize = 40;

    fn new(value: u128) -> Wide {
        let mut limbs = [0; Wide::LIMBS];
        limbs[0] = value as u64;
        limbs[1] = (value >> 64) as u64;
        Wide { limbs }
    }

    fn scale(&mut self, factor: u64) {
        let mut carry = 0u128;
        for limb in &mut self.limbs {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        debug_assert_eq!(carry, 0, "the bound on the operands keeps this from overflowing");
    }

    fn scale_ten(&mut self, mut power: u32) {
        while power > 0 {
            let step = power.min(19);
            self.scale(10u64.pow(step));
            power -= step;
        }
    }

    fn shift_left(&mut self, mut bits: u32) {
        while bits > 0 {
            let step = bits.min(63);
            self.scale(1 << step);
            bits -= step;
        }
    }

    fn compare(&self, other: &Wide) -> Ordering {
        self.limbs.iter().rev().cmp(other.limbs.iter().rev())
    }
}

/// The whole part of a finite decimal (`None` inside where a long can't hold it) and whether a
/// fraction was cut off; `None` for infinities and NaN.
fn integral_part(parts: Parts) -> Option<(Option<i64>, bool)> {
    let Parts::Finite { negative, coefficient, exponent } = parts else { return None };
    let (whole, cut) = if coefficient == 0 {
        (Some(0), false)
    } else if exponent >= 0 {
        let scaled = (digits(coefficient) + exponent <= 20)
            .then(|| coefficient * 10u128.pow(exponent.unsigned_abs()));
        (scaled, false)
    } else if exponent < -34 {
        (Some(0), true)
    } else {
        let scale = 10u128.pow(exponent.unsigned_abs());
        (Some(coefficient / scale), !coefficient.is_multiple_of(scale))
    };
    let whole = whole.and_then(|w| i128::try_from(w).ok());
    Some((whole.and_then(|w| i64::try_from(if negative { -w } else { w }).ok()), cut))
}

fn decimal_to_f64(parts: Parts) -> f64 {
    match parts {
        Parts::Nan => f64::NAN,
        Parts::Infinite { negative: false } => f64::INFINITY,
        Parts::Infinite { negative: true } => f64::NEG_INFINITY,
        Parts::Finite { negative, coefficient, exponent } => {
            let magnitude = if exponent == 0 && coefficient < 1 << 53 {
                coefficient as u64 as f64
            } else {
                // The standard library's parser rounds correctly.
                let mut text = [0u8; 64];
                let mut rest = text.as_mut_slice();
                let _ = write!(rest, "{coefficient}e{exponent}");
                let left = rest.len();
                let end = text.len() - left;
                std::str::from_utf8(&text[..end])
                    .ok()
                    .and_then(|t| t.parse().ok())
                    .unwrap_or(f64::NAN)
            };
            if negative { -magnitude } else { magnitude }
        }
    }
}
