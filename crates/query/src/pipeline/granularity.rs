//! Preferred numbers, to which `$bucketAuto` rounds its boundaries: Renard and E series, 1-2-5, and
//! powers of two.

use kauri_base::{Result, bail};
use kauri_bson::{Decimal128, Value};

/// A series.
#[derive(Clone, Copy, Debug)]
pub enum Granularity {
    /// One decade of it; the others are the same times powers of ten.
    Series(&'static [u16]),
    PowersOfTwo,
}

const R5: &[u16] = &[10, 16, 25, 40, 63];
const R10: &[u16] = &[100, 125, 160, 200, 250, 315, 400, 500, 630, 800];
const R20: &[u16] = &[
    100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800,
    900,
];
const R40: &[u16] = &[
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280,
    300, 315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850,
    900, 950,
];
const R80: &[u16] = &[
    103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290,
    307, 325, 345, 365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875,
    925, 975,
];
const ONE_TWO_FIVE: &[u16] = &[10, 20, 50];
const E6: &[u16] = &[10, 15, 22, 33, 47, 68];
const E12: &[u16] = &[10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82];
const E24: &[u16] = &[
    10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
];
const E48: [u16; 48] = every(4);
const E96: [u16; 96] = every(2);
const E192: [u16; 192] = [
    100, 101, 102, 104, 105, 106, 107, 109, 110, 111, 113, 114, 115, 117, 118, 120, 121, 123, 124,
    126, 127, 129, 130, 132, 133, 135, 137, 138, 140, 142, 143, 145, 147, 149, 150, 152, 154, 156,
    158, 160, 162, 164, 165, 167, 169, 172, 174, 176, 178, 180, 182, 184, 187, 189, 191, 193, 196,
    198, 200, 203, 205, 208, 210, 213, 215, 218, 221, 223, 226, 229, 232, 234, 237, 240, 243, 246,
    249, 252, 255, 258, 261, 264, 267, 271, 274, 277, 280, 284, 287, 291, 294, 298, 301, 305, 309,
    312, 316, 320, 324, 328, 332, 336, 340, 344, 348, 352, 357, 361, 365, 370, 374, 379, 383, 388,
    392, 397, 402, 407, 412, 417, 422, 427, 432, 437, 442, 448, 453, 459, 464, 470, 475, 481, 487,
    493, 499, 505, 511, 517, 523, 530, 536, 542, 549, 556, 562, 569, 576, 583, 590, 597, 604, 612,
    619, 626, 634, 642, 649, 657, 665, 673, 681, 690, 698, 706, 715, 723, 732, 741, 750, 759, 768,
    777, 787, 796, 806, 816, 825, 835, 845, 856, 866, 876, 887, 898, 909, 920, 931, 942, 953, 965,
    976, 988,
];

/// The coarser E series are every second and fourth number of the finest.
const fn every<const N: usize>(step: usize) -> [u16; N] {
    let mut series = [0; N];
    let mut at = 0;
    while at < N {
        series[at] = E192[at * step];
        at += 1;
    }
    series
}

impl Granularity {
    /// The series of this name.
    pub fn named(name: &str) -> Option<Granularity> {
        Some(Granularity::Series(match name {
            "R5" => R5,
            "R10" => R10,
            "R20" => R20,
            "R40" => R40,
            "R80" => R80,
            "1-2-5" => ONE_TWO_FIVE,
            "E6" => E6,
            "E12" => E12,
            "E24" => E24,
            "E48" => &E48,
            "E96" => &E96,
            "E192" => &E192,
            "POWERSOF2" => return Some(Granularity::PowersOfTwo),
            _ => return None,
        }))
    }

    /// The next number of the series above the value; zero stays.
    pub fn round_up(self, value: &Value<'_>) -> Result<Value<'static>> {
        let Some(number) = checked(value)? else { return Ok(value.clone().into_owned()) };
        let (number, is_decimal) = number;
        if !number.is_finite() {
            return Ok(value.clone().into_owned());
        }
        match self {
            Granularity::PowersOfTwo => Ok(power_of_two(number.log2().floor() + 1.0, is_decimal)),
            Granularity::Series(series) => Ok(series_up(series, number).value(is_decimal)),
        }
    }

    /// The next number of the series below the value; zero stays.
    pub fn round_down(self, value: &Value<'_>) -> Result<Value<'static>> {
        let Some(number) = checked(value)? else { return Ok(value.clone().into_owned()) };
        let (number, is_decimal) = number;
        if !number.is_finite() {
            return Ok(value.clone().into_owned());
        }
        match self {
            Granularity::PowersOfTwo => Ok(power_of_two(number.log2().ceil() - 1.0, is_decimal)),
            Granularity::Series(series) => Ok(series_down(series, number).value(is_decimal)),
        }
    }
}

/// The number, and whether it is a decimal; none if it is zero.
fn checked(value: &Value<'_>) -> Result<Option<(f64, bool)>> {
    let Some(number) = value.as_f64_lossy().filter(|_| value.is_number()) else {
        bail!(
            40258,
            "A value of type '{}' cannot be used as a boundary for $bucketAuto with a specified \
             'granularity'",
            value.type_name()
        );
    };
    if number.is_nan() {
        bail!(
            40259,
            "A NaN value cannot be used as a boundary for $bucketAuto with a specified \
             'granularity'"
        );
    }
    if number < 0.0 {
        bail!(
            40260,
            "A negative value cannot be used as a boundary for $bucketAuto with a specified \
             'granularity': {}",
            kauri_bson::shell_value(value)
        );
    }
    let is_decimal = matches!(value, Value::Decimal128(_));
    Ok((number != 0.0).then_some((number, is_decimal)))
}

fn power_of_two(exponent: f64, is_decimal: bool) -> Value<'static> {
    let power = exponent.exp2();
    if is_decimal {
        return Value::Decimal128(Decimal128::from_f64(power));
    }
    match exponent as i64 {
        exponent @ 0..=30 => Value::Int32(1 << exponent),
        exponent @ 31..=62 => Value::Int64(1 << exponent),
        _ => Value::Double(power),
    }
}

/// A number of a series: a member of the decade, times a power of ten.
struct Preferred {
    member: u16,
    exponent: i32,
}

impl Preferred {
    fn to_f64(&self) -> f64 {
        scaled(self.member, self.exponent)
    }

    fn value(&self, is_decimal: bool) -> Value<'static> {
        if !is_decimal {
            return Value::Double(self.to_f64());
        }
        let text = format!("{}E{}", self.member, self.exponent);
        Value::Decimal128(Decimal128::parse(&text).unwrap_or(Decimal128::ZERO))
    }
}

/// By steps of ten, in which a double stays closest to what the decade's number looks like.
fn scaled(member: u16, exponent: i32) -> f64 {
    let factor = match exponent {
        0.. => (0..exponent).fold(1.0, |factor, _| factor * 10.0),
        _ => (exponent..0).fold(1.0, |factor, _| factor / 10.0),
    };
    f64::from(member) * factor
}

/// The exponent at which the number lies in the decade of the series or right behind its end.
fn decade(series: &[u16], number: f64) -> i32 {
    let first = f64::from(series.first().copied().unwrap_or(1));
    (number / first).log10().floor() as i32
}

fn series_up(series: &[u16], number: f64) -> Preferred {
    let start = decade(series, number) - 1;
    let candidates = (start..=start + 3).flat_map(|exponent| {
        series.iter().map(move |member| Preferred { member: *member, exponent })
    });
    candidates
        .into_iter()
        .find(|p| p.to_f64() > number)
        .unwrap_or(Preferred { member: series.first().copied().unwrap_or(1), exponent: start + 4 })
}

fn series_down(series: &[u16], number: f64) -> Preferred {
    let end = decade(series, number) + 1;
    let candidates = (end - 3..=end).rev().flat_map(|exponent| {
        series.iter().rev().map(move |member| Preferred { member: *member, exponent })
    });
    candidates
        .into_iter()
        .find(|p| p.to_f64() < number)
        .unwrap_or(Preferred { member: series.first().copied().unwrap_or(1), exponent: end - 4 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_their_size_and_order() {
        let sizes = [
            ("R5", 5),
            ("R10", 10),
            ("R20", 20),
            ("R40", 40),
            ("R80", 40),
            ("1-2-5", 3),
            ("E6", 6),
            ("E12", 12),
            ("E24", 24),
            ("E48", 48),
            ("E96", 96),
            ("E192", 192),
        ];
        for (name, size) in sizes {
            let Some(Granularity::Series(series)) = Granularity::named(name) else {
                panic!("no series {name}");
            };
            assert_eq!(series.len(), size, "{name}");
            assert!(series.windows(2).all(|w| w[0] < w[1]), "{name}");
        }
        assert!(Granularity::named("R6").is_none());
    }

    #[test]
    fn rounds_to_the_neighbours() {
        let cases = [
            ("R5", 1.0, 0.63, 1.6),
            ("R5", 100.0, 63.0, 160.0),
            ("R5", 0.8, 0.63, 1.0),
            ("E6", 10.0, 68.0 * 0.1, 15.0),
            ("1-2-5", 1000.0, 500.0, 2000.0),
            ("E192", 999.0, 988.0, 1000.0),
        ];
        for (name, number, down, up) in cases {
            let series = Granularity::named(name).unwrap();
            assert_eq!(series.round_down(&number.into()).unwrap(), down.into(), "{name} {number}");
            assert_eq!(series.round_up(&number.into()).unwrap(), up.into(), "{name} {number}");
        }
        let two = Granularity::PowersOfTwo;
        assert_eq!(two.round_up(&1.into()).unwrap(), Value::Int32(2));
        assert_eq!(two.round_down(&1.into()).unwrap(), Value::Double(0.5));
        assert_eq!(two.round_up(&1000.into()).unwrap(), Value::Int32(1024));
        assert_eq!(two.round_up(&0.into()).unwrap(), Value::Int32(0));
        let decimal = Value::Decimal128(Decimal128::from(10));
        let up = Granularity::named("R5").unwrap().round_up(&decimal).unwrap();
        assert_eq!(up, Value::Decimal128(Decimal128::parse("16").unwrap()));
    }
}
