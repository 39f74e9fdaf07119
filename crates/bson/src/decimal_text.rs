//! Decimals to and from text, in MongoDB's form: `1E+3`, `0.00`, `NaN`, `-Infinity`.

use crate::bid::{COEFFICIENT_MAX, EXPONENT_MAX, EXPONENT_MIN, Parts, digits};
use crate::value::Decimal128;
use kauri_base::{Error, ErrorCode, Result};
use std::fmt;

/// Digits of a coefficient.
const DIGITS: i32 = 34;

impl Decimal128 {
    /// Negative NaN, which only text can ask for.
    pub const NEG_NAN: Decimal128 = {
        let mut bytes = Decimal128::NAN.0;
        bytes[15] |= 0x80;
        Decimal128(bytes)
    };

    /// Reads a number: digits with an optional point, sign and exponent, `NaN`, `inf` or `infinity`
    /// in any case; more than 34 digits are rounded, ties to even.
    ///
    /// `FailedToParse` for anything else, `Overflow` for what is too large or, unlike zero, too small
    /// (MongoDB's words in both; `$convert` wraps them).
    pub fn parse(text: &str) -> Result<Decimal128> {
        if text.is_empty() {
            return Err(Error::failed_to_parse("Empty string"));
        }
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        if unsigned.eq_ignore_ascii_case("nan") {
            return Ok(if negative { Decimal128::NEG_NAN } else { Decimal128::NAN });
        }
        if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
            return Ok(if negative { Decimal128::NEG_INFINITY } else { Decimal128::INFINITY });
        }
        match Scanned::scan(unsigned) {
            Some(scanned) => scanned.finish(negative),
            None => Err(Error::failed_to_parse("Failed to parse string to decimal")),
        }
    }
}

/// What a text of digits says: the first 35 significant ones and whether any other than zero came
/// after them.
struct Scanned {
    coefficient: u128,
    exponent: i64,
    sticky: bool,
}

impl Scanned {
    fn scan(text: &str) -> Option<Scanned> {
        let end = text.find(['e', 'E']).unwrap_or(text.len());
        let (mantissa, exponent) = (&text[..end], text.get(end + 1..));
        let mut scanned = Scanned { coefficient: 0, exponent: 0, sticky: false };
        let (mut point, mut any) = (false, false);
        for byte in mantissa.bytes() {
            match byte {
                b'.' if !point => point = true,
                b'0'..=b'9' => {
                    any = true;
                    if scanned.coefficient <= COEFFICIENT_MAX {
                        scanned.coefficient = scanned.coefficient * 10 + u128::from(byte - b'0');
                        scanned.exponent -= i64::from(point);
                    } else {
                        scanned.sticky |= byte != b'0';
                        scanned.exponent += i64::from(!point);
                    }
                }
                _ => return None,
            }
        }
        if !any {
            return None;
        }
        if let Some(exponent) = exponent {
            scanned.exponent += parse_exponent(exponent)?;
        }
        Some(scanned)
    }

    fn finish(self, negative: bool) -> Result<Decimal128> {
        let Scanned { coefficient, exponent, sticky } = self;
        let (lowest, highest) = (i64::from(EXPONENT_MIN), i64::from(EXPONENT_MAX));
        if coefficient == 0 {
            let exponent = exponent.clamp(lowest, highest) as i32;
            return Ok(make(negative, 0, exponent));
        }
        // Cut to 34 digits, and to the smallest exponent there is.
        let surplus = i64::from(digits(coefficient) - DIGITS).max(0);
        let cut = surplus.max(lowest - exponent);
        let (mut rounded, inexact) = round_half_even(coefficient, cut, sticky);
        let mut exponent = exponent + cut;
        if rounded > COEFFICIENT_MAX {
            rounded /= 10;
            exponent += 1;
        }
        if cut > surplus && inexact {
            let message = "Conversion from string to decimal would underflow";
            return Err(Error::new(ErrorCode::Overflow, message));
        }
        // Too large an exponent: zeros go over into the coefficient as far as there is room.
        let excess = (exponent - highest).max(0);
        if excess > i64::from(DIGITS - digits(rounded)) {
            let message = "Conversion from string to decimal would overflow";
            return Err(Error::new(ErrorCode::Overflow, message));
        }
        Ok(make(negative, rounded * 10u128.pow(excess as u32), (exponent - excess) as i32))
    }
}

fn make(negative: bool, coefficient: u128, exponent: i32) -> Decimal128 {
    let parts = Parts::Finite { negative, coefficient, exponent };
    Decimal128::from_parts(parts).unwrap_or(Decimal128::NAN)
}

/// A signed whole number, clamped far outside of what a decimal can hold.
fn parse_exponent(text: &str) -> Option<i64> {
    const FAR: i64 = 1 << 40;
    let (negative, unsigned) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude = unsigned.bytes().fold(0, |n, b| (n * 10 + i64::from(b - b'0')).min(FAR));
    Some(if negative { -magnitude } else { magnitude })
}

/// `coefficient / 10^places` to the nearest, and whether anything was lost.
fn round_half_even(coefficient: u128, places: i64, sticky: bool) -> (u128, bool) {
    if places <= 0 {
        return (coefficient, false);
    }
    let scale = u32::try_from(places).ok().and_then(|p| 10u128.checked_pow(p));
    let Some(scale) = scale else { return (0, true) };
    let (quotient, rest) = (coefficient / scale, coefficient % scale);
    let half = rest.cmp(&(scale - rest));
    let up = half.is_gt() || (half.is_eq() && (sticky || quotient % 2 == 1));
    (quotient + u128::from(up), rest != 0 || sticky)
}

impl fmt::Display for Decimal128 {
    /// To-scientific-string of the General Decimal Arithmetic: plain notation for exponents from
    /// -6 - digits to 0, else scientific.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (negative, coefficient, exponent) = match self.parts() {
            Parts::Nan => return f.write_str("NaN"),
            Parts::Infinite { negative: false } => return f.write_str("Infinity"),
            Parts::Infinite { negative: true } => return f.write_str("-Infinity"),
            Parts::Finite { negative, coefficient, exponent } => (negative, coefficient, exponent),
        };
        if negative {
            f.write_str("-")?;
        }
        let count = digits(coefficient).max(1);
        let adjusted = exponent + count - 1;
        if exponent > 0 || adjusted < -6 {
            let mut scale = 10u128.pow(count.unsigned_abs() - 1);
            write!(f, "{}", coefficient / scale)?;
            if count > 1 {
                let width = count as usize - 1;
                scale = scale.max(1);
                write!(f, ".{:0width$}", coefficient % scale)?;
            }
            return write!(f, "E{adjusted:+}");
        }
        if exponent == 0 {
            return write!(f, "{coefficient}");
        }
        // Between -39 and -1 here, since the number has at most 34 digits and is not below 1E-6.
        let width = exponent.unsigned_abs() as usize;
        match 10u128.checked_pow(exponent.unsigned_abs()) {
            Some(scale) => write!(f, "{}.{:0width$}", coefficient / scale, coefficient % scale),
            None => write!(f, "0.{coefficient:0width$}"),
        }
    }
}

impl fmt::Debug for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal128({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decimal::Rounding;
    use crate::number::Number;

    fn d(text: &str) -> Decimal128 {
        Decimal128::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn print(decimal: Decimal128) -> String {
        decimal.to_string()
    }

    #[test]
    fn text_survives_a_round_trip() {
        let same = "0 -0 1 1.0 1.00 0.1 0.000001 1E-7 1.23E-7 0E-6176 0E+6111 0.00 0E-7 1E+3 1.5E+3 \
                    12345678901234567890123456789.01234 NaN Infinity -Infinity 1E-6176 \
                    9.999999999999999999999999999999999E+6144 -1.000000000000000000000000000000000";
        for text in same.split_whitespace() {
            assert_eq!(print(d(text)), text);
        }
        for (text, printed) in [
            ("+123", "123"),
            ("007", "7"),
            (".5", "0.5"),
            ("5.", "5"),
            ("nan", "NaN"),
            ("-NAN", "NaN"),
            ("inf", "Infinity"),
            ("-iNfInItY", "-Infinity"),
            ("1.5e+3", "1.5E+3"),
            ("-0E-1", "-0.0"),
            ("0E+1", "0E+1"),
            ("+.0", "0.0"),
            ("0E+9999", "0E+6111"),
            ("0E-99999999999999999999", "0E-6176"),
            ("1E+6144", "1.000000000000000000000000000000000E+6144"),
            (".1797693134862315807E+309", "1.797693134862315807E+308"),
            ("12345678901234567890123456789012345", "1.234567890123456789012345678901234E+34"),
            ("12345678901234567890123456789012355", "1.234567890123456789012345678901236E+34"),
            ("123456789012345678901234567890123450001", "1.234567890123456789012345678901235E+38"),
            ("99999999999999999999999999999999995", "1.000000000000000000000000000000000E+35"),
            ("1.00000000000000000000000000000000099999", "1.000000000000000000000000000000001"),
            ("1.000000000000000000000000000000000099999", "1.000000000000000000000000000000000"),
        ] {
            assert_eq!(print(d(text)), printed, "{text}");
        }
        let long = format!("{}1", "0".repeat(1 << 20));
        assert_eq!(print(d(&long)), "1");
        assert_eq!(d("-nan"), Decimal128::NEG_NAN);
    }

    #[test]
    fn bad_text_is_refused() {
        let bad = "+ - . h 0x43 1E 1E+ 1E- 1.2.3 1E2E3 1_000 1,5 e5 .e5 1e+-5 infx --1 +-1 ١";
        for text in bad.split_whitespace().chain([" 1", "1 ", "1 2", "\t1", "\u{feff}1"]) {
            let error = Decimal128::parse(text).unwrap_err();
            assert_eq!(error.code(), ErrorCode::FailedToParse, "{text}");
        }
        assert_eq!(Decimal128::parse("").unwrap_err().message(), "Empty string");
        for text in [
            "1E+6145",
            "1E7000",
            "1E99999999999999999999",
            "99999999999999999999999999999999999E6110",
        ] {
            let error = Decimal128::parse(text).unwrap_err();
            assert!(error.message().ends_with("would overflow"), "{text}");
            assert_eq!(error.code(), ErrorCode::Overflow);
        }
        for text in ["1E-6177", "1.5E-6176", "1E-7000"] {
            let error = Decimal128::parse(text).unwrap_err();
            assert!(error.message().ends_with("would underflow"), "{text}");
        }
        assert_eq!(print(d("10E-6177")), "1E-6176");
    }

    #[test]
    fn doubles_keep_fifteen_digits() {
        for (double, text) in [
            (2.5, "2.50000000000000"),
            (-0.0, "-0"),
            (9.999999999999998e15, "1.00000000000000E+16"),
            (1.234567890123456, "1.23456789012346"),
            (1.234567890123455, "1.23456789012345"),
            (0.9999999999999996, "1.00000000000000"),
            (9_007_199_254_740_992.0, "9.00719925474099E+15"),
            (5e-324, "4.94065645841247E-324"),
            (f64::MIN, "-1.79769313486232E+308"),
            (f64::INFINITY, "Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(print(Decimal128::from_f64(double)), text);
        }
        for (double, text) in [
            (2.5, "2.5"),
            (1e22, "10000000000000000000000"),
            (0.1, "0.1000000000000000055511151231257827"),
            (-3.0, "-3"),
        ] {
            assert_eq!(print(Decimal128::from_f64_precise(double)), text);
        }
    }

    #[test]
    fn arithmetic_matches_mongodb() {
        for (a, op, b, expected) in [
            ("1.0", '+', "2", "3.0"),
            ("1", '+', "-1", "0"),
            ("-0", '+', "-0", "-0"),
            ("-0", '+', "0", "0"),
            ("1E+40", '+', "1", "1.000000000000000000000000000000000E+40"),
            ("9.999999999999999999999999999999999E+6144", '+', "1E+6144", "Infinity"),
            (
                "9999999999999999999999999999999999",
                '+',
                "1",
                "1.000000000000000000000000000000000E+34",
            ),
            ("Infinity", '-', "Infinity", "NaN"),
            ("0.3", '-', "0.1", "0.2"),
            ("1.10", '*', "2.0", "2.200"),
            ("-2", '*', "0", "-0"),
            (
                "9999999999999999999999999999999999",
                '*',
                "9",
                "8.999999999999999999999999999999999E+34",
            ),
            ("1E-6176", '*', "0.1", "0E-6176"),
            ("1E+6000", '*', "1E+6000", "Infinity"),
            ("1", '/', "3", "0.3333333333333333333333333333333333"),
            ("10", '/', "4", "2.5"),
            ("1.00", '/', "2", "0.50"),
            ("1", '/', "0", "Infinity"),
            ("0", '/', "0", "NaN"),
            ("10.5", '%', "3.2", "0.9"),
            ("10.5000000000000", '%', "3", "1.5000000000000"),
            ("-7", '%', "3", "-1"),
            ("-0", '%', "3", "-0"),
            ("10", '%', "-Infinity", "10"),
            ("Infinity", '%', "3", "NaN"),
            ("3", '%', "0", "NaN"),
            ("9.999999999999999999999999999999999E+6144", '%', "3", "0"),
            ("-9.999999999999999999999999999999999E+6144", '%', "3", "-0"),
            ("1E+6144", '%', "3", "1"),
            ("1E-6143", '%', "3", "1E-6143"),
            (
                "0.4999999999999999999999999999999999",
                '%',
                "1",
                "0.4999999999999999999999999999999999",
            ),
        ] {
            let (x, y) = (d(a), d(b));
            let result = match op {
                '+' => x + y,
                '-' => x - y,
                '*' => x * y,
                '/' => x / y,
                _ => x % y,
            };
            assert_eq!(print(result), expected, "{a} {op} {b}");
        }
    }

    #[test]
    fn functions_match_mongodb() {
        let check = |name: &str, argument: &str, result: Decimal128, expected: &str| {
            assert_eq!(print(result), expected, "{name}({argument})");
        };
        for (x, expected) in [
            ("1E-6143", "1"),
            ("1E+6144", "Infinity"),
            ("-9.999999999999999999999999999999999E+6144", "0E-6176"),
            ("1", "2.718281828459045235360287471352662"),
            ("-1", "0.3678794411714423215955237701614609"),
            ("-0", "1"),
            ("Infinity", "Infinity"),
            ("-Infinity", "0"),
            ("NaN", "NaN"),
        ] {
            check("exp", x, d(x).exp(), expected);
        }
        for (x, expected) in [
            ("1E-6143", "-14144.78022626242263692252150612605"),
            ("1E-6176", "-14220.76553433122614449511522413063"),
            ("9.999999999999999999999999999999999E+6144", "14149.38539644841072829055748903542"),
            ("1.0", "0"),
            ("2.718281828459045", "0.9999999999999999134157889710887611"),
            ("10", "2.302585092994045684017991454684364"),
            ("Infinity", "Infinity"),
            ("-1", "NaN"),
        ] {
            check("ln", x, d(x).ln(), expected);
        }
        for (x, expected) in [
            ("1E-6143", "-6143"),
            ("1E-6176", "-6176"),
            ("9.999999999999999999999999999999999E+6144", "6145"),
            ("100", "2"),
            ("2", "0.3010299956639811952137388947244930"),
        ] {
            check("log10", x, d(x).log10(), expected);
        }
        for (x, base, expected) in [
            ("1000", "10", "3.000000000000000000000000000000000"),
            ("64", "2", "5.999999999999999999999999999999999"),
            ("1E-6176", "10", "-6175.999999999999999999999999999999"),
            ("100", "10", "2"),
            ("32", "2", "5"),
            ("Infinity", "Infinity", "NaN"),
        ] {
            check("log", x, d(x).log(d(base)), expected);
        }
        for (x, y, expected) in [
            ("0.5", "2", "0.2500000000000000000000000000000000"),
            ("0.5000000000000000000000000000000001", "2", "0.2500000000000000000000000000000001"),
            ("10", "20", "100000000000000000000.0000000000000"),
            ("2", "100", "1267650600228229401496703205376.000"),
            ("-Infinity", "3", "-Infinity"),
            ("-Infinity", "-1", "0E-6176"),
            ("-0", "3", "0E-6176"),
            ("9.999999999999999999999999999999999E+6144", "1", "Infinity"),
            ("-9.999999999999999999999999999999999E+6144", "1", "-Infinity"),
            ("2", "NaN", "NaN"),
        ] {
            check("pow", x, d(x).pow(d(y)), expected);
        }
        for (x, expected) in [
            ("0.04", "0.2"),
            ("4", "2"),
            ("1.0", "1.0"),
            ("1.00000000000000000000000000000000", "1.0000000000000000"),
            ("1E+6144", "1.00000000000000000E+3072"),
            ("2", "1.414213562373095048801688724209698"),
            (
                "9.999999999999999999999999999999999E+6144",
                "3.162277660168379331998893544432718E+3072",
            ),
            ("1E-6176", "1E-3088"),
            ("-1", "NaN"),
            ("-0", "-0"),
        ] {
            check("sqrt", x, d(x).sqrt(), expected);
        }
    }

    #[test]
    fn quantize_rounds_in_the_requested_mode() {
        use Rounding::{Ceiling, Floor, HalfEven, Truncate};
        for (x, exponent, rounding, expected) in [
            ("2.5", 0, HalfEven, "2"),
            ("3.5", 0, HalfEven, "4"),
            ("2.51", 0, HalfEven, "3"),
            ("-2.7", 0, Truncate, "-2"),
            ("-2.1", 0, Floor, "-3"),
            ("-2.9", 0, Ceiling, "-2"),
            ("2.1", 0, Ceiling, "3"),
            ("1", -3, HalfEven, "1.000"),
            ("150", 2, HalfEven, "2E+2"),
            ("1E-6176", 0, Ceiling, "1"),
            ("1E-6176", 6111, HalfEven, "0E+6111"),
            ("1", -34, HalfEven, "NaN"),
            ("Infinity", 0, HalfEven, "Infinity"),
        ] {
            assert_eq!(print(d(x).quantize(exponent, rounding)), expected, "{x} to {exponent}");
        }
        assert_eq!(print(d("1E+3").round_to_integral(Floor)), "1E+3");
        assert_eq!(print(d("-1.50").round_to_integral(Floor)), "-2");
        assert_eq!(print(d("1.500").reduced()), "1.5");
    }

    /// Fast paths and libdecnumber must agree: the exact results are checked by comparison.
    #[test]
    fn exact_paths_agree_with_the_comparison() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        for _ in 0..20_000 {
            let a = Decimal128::from(next() as i64 - (1 << 30));
            let b = d(&format!("{}E{}", next() % 1_000_000, next() % 20));
            let sum = a + b;
            assert!(Number::Decimal(sum - b).compare(Number::Decimal(a)).is_eq(), "{a} + {b}");
            if !b.is_zero() {
                let product = a * b;
                assert!(Number::Decimal(product / b).compare(Number::Decimal(a)).is_eq());
            }
        }
    }
}
