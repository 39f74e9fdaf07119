//! Arithmetic on decimal128 by the rules of IEEE 754-2008 as MongoDB applies them: 34 digits, ties to even, results
//! with the preferred exponent of the operands (`1.0 + 2 = 3.0`).
//!
//! The encoding is split into coefficient and exponent. Sums and products that are exact in 34 digits are computed
//! here; results that need rounding use libdecnumber. Comparison is in `number`, text in `decimal_text`.

use crate::bid::{COEFFICIENT_MAX, EXPONENT_MAX, EXPONENT_MIN, Parts, digits};
use crate::value::Decimal128;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

/// How a quotient or a quantized number is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// To the nearest, ties to the even one.
    HalfEven,
    /// Towards zero.
    Truncate,
    /// Downwards.
    Floor,
    /// Upwards.
    Ceiling,
}

const SIGN_BYTE: usize = 15;
const SIGN_BIT: u8 = 0x80;
/// Digits of a coefficient.
const DIGITS: usize = 34;
/// Digits of intermediate results of transcendental functions, so that the last of the 34 is right.
const GUARD_DIGITS: usize = 50;

/// A libdecnumber number with room for [`GUARD_DIGITS`].
type Number = dec::Decimal<20>;
type Context = dec::Context<Number>;

impl Decimal128 {
    /// Whether it is NaN.
    pub fn is_nan(self) -> bool {
        self.parts() == Parts::Nan
    }

    /// Whether it is an infinity.
    pub fn is_infinite(self) -> bool {
        matches!(self.parts(), Parts::Infinite { .. })
    }

    /// Whether it is neither NaN nor an infinity.
    pub fn is_finite(self) -> bool {
        matches!(self.parts(), Parts::Finite { .. })
    }

    /// Whether it is a zero of either sign.
    pub fn is_zero(self) -> bool {
        matches!(self.parts(), Parts::Finite { coefficient: 0, .. })
    }

    /// Whether the sign is set, on zeros and NaNs too.
    pub fn is_negative(self) -> bool {
        self.0[SIGN_BYTE] & SIGN_BIT != 0
    }

    /// The same without its sign.
    pub fn abs(mut self) -> Decimal128 {
        self.0[SIGN_BYTE] &= !SIGN_BIT;
        self
    }

    /// The square root; NaN of what is below zero.
    pub fn sqrt(self) -> Decimal128 {
        let mut context = context(DIGITS);
        let mut number = to_dec(self);
        context.sqrt(&mut number);
        from_dec(&number)
    }

    /// e to this power; a result that is a whole number has no zeros after the point.
    pub fn exp(self) -> Decimal128 {
        let mut number = to_dec(self);
        context(GUARD_DIGITS).exp(&mut number);
        let result = round_dec(number);
        match result.parts() {
            Parts::Finite { coefficient, exponent, negative }
                if coefficient != 0
                    && (-33..0).contains(&exponent)
                    && coefficient.is_multiple_of(10u128.pow(exponent.unsigned_abs())) =>
            {
                finite(negative, coefficient / 10u128.pow(exponent.unsigned_abs()), 0)
            }
            _ => result,
        }
    }

    /// The natural logarithm.
    pub fn ln(self) -> Decimal128 {
        let mut number = to_dec(self);
        context(GUARD_DIGITS).ln(&mut number);
        through_binary128(number)
    }

    /// The logarithm to base 10.
    pub fn log10(self) -> Decimal128 {
        let mut number = to_dec(self);
        context(GUARD_DIGITS).log10(&mut number);
        through_binary128(number)
    }

    /// The logarithm to any base: a quotient of rounded logarithms, as MongoDB has it.
    pub fn log(self, base: Decimal128) -> Decimal128 {
        self.ln() / base.ln()
    }

    /// This to the power of `exponent`, with as many digits as fit (`2^3 = 8.000…`), as MongoDB
    /// answers.
    pub fn pow(self, exponent: Decimal128) -> Decimal128 {
        let mut context = context(GUARD_DIGITS);
        let mut number = to_dec(self);
        context.pow(&mut number, &to_dec(exponent));
        match round_dec(number).parts() {
            Parts::Finite { coefficient: COEFFICIENT_MAX, exponent: EXPONENT_MAX, negative } => {
                // MongoDB's binary approximation overflows here, even to the power of 1.
                if negative { Decimal128::NEG_INFINITY } else { Decimal128::INFINITY }
            }
            parts => padded(parts),
        }
    }

    /// The number rounded to this exponent: `quantize(-2)` keeps two places after the point. NaN
    /// if that takes more than 34 digits; infinities and NaN stay.
    pub fn quantize(self, exponent: i32, rounding: Rounding) -> Decimal128 {
        let Parts::Finite { negative, coefficient, exponent: from } = self.parts() else {
            return self;
        };
        let coefficient = if from >= exponent {
            let shift = from.abs_diff(exponent);
            if coefficient == 0 {
                Some(0)
            } else if digits(coefficient) as u32 + shift <= DIGITS as u32 {
                Some(coefficient * 10u128.pow(shift))
            } else {
                None
            }
        } else {
            Some(divide_rounded(coefficient, exponent.abs_diff(from), negative, rounding))
        };
        coefficient
            .and_then(|coefficient| {
                Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent })
            })
            .unwrap_or(Decimal128::NAN)
    }

    /// The whole number next to it; numbers that are whole stay as they are.
    pub fn round_to_integral(self, rounding: Rounding) -> Decimal128 {
        match self.parts() {
            Parts::Finite { exponent, .. } if exponent < 0 => self.quantize(0, rounding),
            _ => self,
        }
    }

    /// Without trailing zeros in the coefficient: `1.500` becomes `1.5`, `100` becomes `1E+2`.
    pub fn reduced(self) -> Decimal128 {
        let Parts::Finite { negative, mut coefficient, mut exponent } = self.parts() else {
            return self;
        };
        if coefficient == 0 {
            exponent = 0;
        }
        while coefficient != 0 && coefficient.is_multiple_of(10) && exponent < EXPONENT_MAX {
            coefficient /= 10;
            exponent += 1;
        }
        finite(negative, coefficient, exponent)
    }

    /// The double rounded to 15 digits, no more and no fewer, which is how MongoDB converts.
    pub fn from_f64(value: f64) -> Decimal128 {
        from_f64_digits(value, 15)
    }

    /// The double rounded to 34 digits, with no more of them than its exact value needs.
    pub fn from_f64_precise(value: f64) -> Decimal128 {
        let decimal = from_f64_digits(value, DIGITS);
        let Parts::Finite { negative, mut coefficient, mut exponent } = decimal.parts() else {
            return decimal;
        };
        while exponent < 0 && coefficient != 0 && coefficient.is_multiple_of(10) {
            coefficient /= 10;
            exponent += 1;
        }
        finite(negative, coefficient, exponent)
    }
}

impl From<i32> for Decimal128 {
    fn from(value: i32) -> Decimal128 {
        i64::from(value).into()
    }
}

impl From<i64> for Decimal128 {
    fn from(value: i64) -> Decimal128 {
        finite(value < 0, u128::from(value.unsigned_abs()), 0)
    }
}

impl From<crate::number::Number> for Decimal128 {
    fn from(value: crate::number::Number) -> Decimal128 {
        match value {
            crate::number::Number::Int(v) => v.into(),
            crate::number::Number::Double(v) => Decimal128::from_f64(v),
            crate::number::Number::Decimal(v) => v,
        }
    }
}

impl Neg for Decimal128 {
    type Output = Decimal128;

    fn neg(mut self) -> Decimal128 {
        self.0[SIGN_BYTE] ^= SIGN_BIT;
        self
    }
}

impl Add for Decimal128 {
    type Output = Decimal128;

    fn add(self, other: Decimal128) -> Decimal128 {
        exact_sum(self.parts(), other.parts())
            .unwrap_or_else(|| through_dec(self, other, |cx, a, b| cx.add(a, b)))
    }
}

impl Sub for Decimal128 {
    type Output = Decimal128;

    fn sub(self, other: Decimal128) -> Decimal128 {
        self + -other
    }
}

impl Mul for Decimal128 {
    type Output = Decimal128;

    fn mul(self, other: Decimal128) -> Decimal128 {
        exact_product(self.parts(), other.parts())
            .unwrap_or_else(|| through_dec(self, other, |cx, a, b| cx.mul(a, b)))
    }
}

impl Div for Decimal128 {
    type Output = Decimal128;

    fn div(self, other: Decimal128) -> Decimal128 {
        through_dec(self, other, |cx, a, b| cx.div(a, b))
    }
}

impl Rem for Decimal128 {
    type Output = Decimal128;

    /// The remainder of the truncated division, of the dividend's sign, exact however large the
    /// quotient is.
    fn rem(self, other: Decimal128) -> Decimal128 {
        let (dividend, divisor) = (self.parts(), other.parts());
        let Parts::Finite { negative, coefficient: ca, exponent: ea } = dividend else {
            return Decimal128::NAN;
        };
        let (cb, eb) = match divisor {
            Parts::Infinite { .. } => return self,
            Parts::Finite { coefficient, exponent, .. } if coefficient != 0 => {
                (coefficient, exponent)
            }
            _ => return Decimal128::NAN,
        };
        let rest = if ea >= eb {
            scaled_remainder(ca, ea.abs_diff(eb), cb)
        } else {
            let shift = ea.abs_diff(eb);
            if digits(cb) as u32 + shift > 38 { ca } else { ca % (cb * 10u128.pow(shift)) }
        };
        finite(negative, rest, ea.min(eb))
    }
}

/// `coefficient · 10^shift` modulo `modulus`.
fn scaled_remainder(coefficient: u128, mut shift: u32, modulus: u128) -> u128 {
    let mut rest = coefficient % modulus;
    while shift > 0 && rest != 0 {
        // Below 10^34, so four digits more fit.
        let step = shift.min(4);
        rest = rest * 10u128.pow(step) % modulus;
        shift -= step;
    }
    rest
}

fn finite(negative: bool, coefficient: u128, exponent: i32) -> Decimal128 {
    let parts = Parts::Finite { negative, coefficient, exponent };
    Decimal128::from_parts(parts).unwrap_or(Decimal128::NAN)
}

/// The sum, if both are finite and it is exact at the smaller exponent.
fn exact_sum(a: Parts, b: Parts) -> Option<Decimal128> {
    let (
        Parts::Finite { negative: na, coefficient: ca, exponent: ea },
        Parts::Finite { negative: nb, coefficient: cb, exponent: eb },
    ) = (a, b)
    else {
        return None;
    };
    let exponent = ea.min(eb);
    let scale = |coefficient: u128, from: i32| {
        let shift = from.abs_diff(exponent);
        let fits = digits(coefficient) as u32 + shift <= DIGITS as u32;
        fits.then(|| coefficient * 10u128.pow(shift))
    };
    let (ca, cb) = (scale(ca, ea)?, scale(cb, eb)?);
    let (negative, coefficient) = if na == nb {
        (na, ca + cb)
    } else if ca == cb {
        (false, 0)
    } else {
        (if ca > cb { na } else { nb }, ca.abs_diff(cb))
    };
    Decimal128::from_parts(Parts::Finite { negative, coefficient, exponent })
}

/// The product, if both are finite and it is exact.
fn exact_product(a: Parts, b: Parts) -> Option<Decimal128> {
    let (
        Parts::Finite { negative: na, coefficient: ca, exponent: ea },
        Parts::Finite { negative: nb, coefficient: cb, exponent: eb },
    ) = (a, b)
    else {
        return None;
    };
    if digits(ca) + digits(cb) > DIGITS as i32 {
        return None;
    }
    Decimal128::from_parts(Parts::Finite {
        negative: na != nb,
        coefficient: ca * cb,
        exponent: ea + eb,
    })
}

/// `coefficient / 10^places`, rounded.
fn divide_rounded(coefficient: u128, places: u32, negative: bool, rounding: Rounding) -> u128 {
    // Beyond 35 places all of it is far below one half.
    let (quotient, rest, half) = match 10u128.checked_pow(places) {
        Some(scale) => {
            let rest = coefficient % scale;
            (coefficient / scale, rest, rest.cmp(&(scale - rest)))
        }
        None => (0, coefficient, std::cmp::Ordering::Less),
    };
    let up = match rounding {
        Rounding::HalfEven => half.is_gt() || (half.is_eq() && quotient % 2 == 1),
        Rounding::Truncate => false,
        Rounding::Floor => negative && rest != 0,
        Rounding::Ceiling => !negative && rest != 0,
    };
    quotient + u128::from(up)
}

/// The same value with as many digits as fit, zero without a sign: what adding `0E-6176` makes of it.
fn padded(parts: Parts) -> Decimal128 {
    match parts {
        Parts::Finite { coefficient: 0, .. } => finite(false, 0, EXPONENT_MIN),
        Parts::Finite { negative, coefficient, exponent } => {
            let room = DIGITS as i32 - digits(coefficient);
            let shift = room.min(exponent - EXPONENT_MIN).max(0);
            finite(negative, coefficient * 10u128.pow(shift.unsigned_abs()), exponent - shift)
        }
        other => Decimal128::from_parts(other).unwrap_or(Decimal128::NAN),
    }
}

fn from_f64_digits(value: f64, significant: usize) -> Decimal128 {
    if value.is_nan() {
        return Decimal128::NAN;
    }
    if value.is_infinite() {
        return if value > 0.0 { Decimal128::INFINITY } else { Decimal128::NEG_INFINITY };
    }
    if value == 0.0 {
        return finite(value.is_sign_negative(), 0, 0);
    }
    // The standard library prints the exact value, correctly rounded: "d.ddd…e±x".
    let text = format!("{:.*e}", significant - 1, value.abs());
    let Some((mantissa, exponent)) = text.split_once('e') else { return Decimal128::NAN };
    let coefficient =
        mantissa.bytes().filter(u8::is_ascii_digit).fold(0, |n, d| n * 10 + u128::from(d - b'0'));
    let exponent = exponent.parse().unwrap_or(0) - (significant as i32 - 1);
    finite(value < 0.0, coefficient, exponent)
}

fn context(precision: usize) -> Context {
    let mut context = Context::default();
    // With guard digits the exponents are as wide as libdecnumber's functions allow: overflow and
    // underflow are the final rounding's business. None of these calls can fail.
    let (lowest, highest) = if precision == DIGITS { (-6143, 6144) } else { (-999_999, 999_999) };
    let _ = context.set_precision(precision);
    let _ = context.set_max_exponent(highest);
    let _ = context.set_min_exponent(lowest);
    context.set_clamp(precision == DIGITS);
    context.set_rounding(dec::Rounding::HalfEven);
    context
}

fn through_dec(
    a: Decimal128,
    b: Decimal128,
    operation: impl FnOnce(&mut Context, &mut Number, &Number),
) -> Decimal128 {
    let mut number = to_dec(a);
    operation(&mut context(DIGITS), &mut number, &to_dec(b));
    from_dec(&number)
}

/// Rounds an intermediate result to the 113 bits of a binary128 and then to 34 digits. MongoDB's
/// library takes logarithms in binary128, and its last digit shows it.
fn through_binary128(number: Number) -> Decimal128 {
    const BITS: i32 = 113;
    let rounded = round_dec(number);
    let magnitude = crate::number::Number::Decimal(rounded).to_f64_lossy().abs();
    if !magnitude.is_normal() {
        return rounded;
    }
    let mut context = context(GUARD_DIGITS);
    let binade = (magnitude.to_bits() >> 52) as i32 - 1023;
    // The double may have been rounded up to the next power of two, hence the second try.
    for shift in [BITS - 1 - binade, BITS - binade] {
        let mut scale = context.from_i32(2);
        context.pow(&mut scale, &dec::Decimal::<20>::from(shift));
        let mut scaled = number;
        context.mul(&mut scaled, &scale);
        context.round(&mut scaled);
        if magnitude_of(&scaled) >= 1 << (BITS - 1) {
            context.div(&mut scaled, &scale);
            return round_dec(scaled);
        }
    }
    rounded
}

/// Rounds an intermediate result to 34 digits.
fn round_dec(mut number: Number) -> Decimal128 {
    context(DIGITS).plus(&mut number);
    from_dec(&number)
}

const DEC_NEGATIVE: u8 = 0x80;
const DEC_INFINITE: u8 = 0x40;
const DEC_SPECIAL: u8 = 0x70;

fn to_dec(value: Decimal128) -> Number {
    let sign = |negative| if negative { DEC_NEGATIVE } else { 0 };
    match value.parts() {
        Parts::Nan => Number::nan(),
        Parts::Infinite { negative } => {
            Number::from_raw_parts(1, 0, sign(negative) | DEC_INFINITE, [0; 20])
        }
        Parts::Finite { negative, coefficient, exponent } => {
            // Units of three digits, the lowest first.
            let mut units = [0; 20];
            let mut rest = coefficient;
            for six in units.chunks_exact_mut(6) {
                const STEP: u128 = 10u128.pow(18);
                let mut low = (rest % STEP) as u64;
                rest /= STEP;
                for unit in six {
                    *unit = (low % 1000) as u16;
                    low /= 1000;
                }
            }
            let count = digits(coefficient).max(1) as u32;
            Number::from_raw_parts(count, exponent, sign(negative), units)
        }
    }
}

fn from_dec(number: &Number) -> Decimal128 {
    let (_, exponent, bits, _) = number.to_raw_parts();
    let negative = bits & DEC_NEGATIVE != 0;
    if bits & DEC_SPECIAL != 0 {
        return match (bits & DEC_INFINITE != 0, negative) {
            (true, false) => Decimal128::INFINITY,
            (true, true) => Decimal128::NEG_INFINITY,
            (false, _) => Decimal128::NAN,
        };
    }
    finite(negative, magnitude_of(number), exponent)
}

/// The coefficient, which must have at most 36 digits.
fn magnitude_of(number: &Number) -> u128 {
    let (count, _, _, units) = number.to_raw_parts();
    let used = (count as usize).div_ceil(3).min(12);
    units[..used].iter().rev().fold(0, |n, unit| n * 1000 + u128::from(*unit))
}
