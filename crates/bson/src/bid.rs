//! The decimal128 encoding of BSON: binary integer decimal (IEEE 754-2008, 3.5.2).
//!
//! A finite number is `(-1)^sign · coefficient · 10^exponent` with a coefficient below 10^34 and an exponent from
//! -6176 to 6111. Encodings with a larger coefficient are legal and mean zero. This module only decodes and
//! encodes; arithmetic is in `decimal`.

use crate::value::Decimal128;

/// The largest coefficient: 34 nines.
pub const COEFFICIENT_MAX: u128 = 10u128.pow(34) - 1;
/// The smallest exponent.
pub const EXPONENT_MIN: i32 = -6176;
/// The largest exponent.
pub const EXPONENT_MAX: i32 = 6111;

const SIGN: u64 = 1 << 63;
const INFINITE: u64 = 0b11110 << 58;
const NAN: u64 = 0b11111 << 58;

/// What an encoded decimal says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parts {
    /// `±coefficient · 10^exponent`.
    Finite {
        /// Whether the sign is set (zero has one too).
        negative: bool,
        /// At most [`COEFFICIENT_MAX`].
        coefficient: u128,
        /// From [`EXPONENT_MIN`] to [`EXPONENT_MAX`].
        exponent: i32,
    },
    /// An infinity.
    Infinite {
        /// Whether it is the negative one.
        negative: bool,
    },
    /// Not a number; sign and payload don't matter to anybody.
    Nan,
}

impl Decimal128 {
    /// Not a number.
    pub const NAN: Decimal128 = from_words(NAN, 0);
    /// Positive infinity.
    pub const INFINITY: Decimal128 = from_words(INFINITE, 0);
    /// Negative infinity.
    pub const NEG_INFINITY: Decimal128 = from_words(INFINITE | SIGN, 0);
    /// Zero with exponent 0.
    pub const ZERO: Decimal128 = from_words((-EXPONENT_MIN as u64) << 49, 0);

    /// Takes the encoding apart.
    pub fn parts(self) -> Parts {
        let (high, low) = self.words();
        let negative = high & SIGN != 0;
        match high >> 58 & 0x1F {
            0x1F => return Parts::Nan,
            0x1E => return Parts::Infinite { negative },
            _ => {}
        }
        let (biased, coefficient) = if high >> 61 & 3 == 3 {
            // The coefficient's implied top bits (100) put it beyond 10^34: it means zero.
            (high >> 47 & 0x3FFF, 0)
        } else {
            let coefficient = u128::from(high & ((1 << 49) - 1)) << 64 | u128::from(low);
            (high >> 49 & 0x3FFF, coefficient)
        };
        let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
        Parts::Finite { negative, coefficient, exponent: biased as i32 + EXPONENT_MIN }
    }

    /// Puts a decimal together; `None` if coefficient or exponent is out of range.
    pub fn from_parts(parts: Parts) -> Option<Decimal128> {
        Some(match parts {
            Parts::Nan => Decimal128::NAN,
            Parts::Infinite { negative: false } => Decimal128::INFINITY,
            Parts::Infinite { negative: true } => Decimal128::NEG_INFINITY,
            Parts::Finite { negative, coefficient, exponent } => {
                let in_range = (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent);
                if !in_range || coefficient > COEFFICIENT_MAX {
                    return None;
                }
                let biased = (exponent - EXPONENT_MIN) as u64;
                let sign = if negative { SIGN } else { 0 };
                from_words(sign | biased << 49 | (coefficient >> 64) as u64, coefficient as u64)
            }
        })
    }

    fn words(self) -> (u64, u64) {
        let whole = u128::from_le_bytes(self.0);
        ((whole >> 64) as u64, whole as u64)
    }
}

const fn from_words(high: u64, low: u64) -> Decimal128 {
    Decimal128(((high as u128) << 64 | low as u128).to_le_bytes())
}

/// The number of decimal digits of `n`; 0 has none.
pub(crate) fn digits(n: u128) -> i32 {
    n.checked_ilog10().map_or(0, |log| log as i32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_a_round_trip() {
        for negative in [false, true] {
            for coefficient in [0, 1, 10, u128::from(u64::MAX) + 1, COEFFICIENT_MAX] {
                for exponent in [EXPONENT_MIN, -1, 0, 1, EXPONENT_MAX] {
                    let parts = Parts::Finite { negative, coefficient, exponent };
                    assert_eq!(Decimal128::from_parts(parts).unwrap().parts(), parts);
                }
            }
            let parts = Parts::Infinite { negative };
            assert_eq!(Decimal128::from_parts(parts).unwrap().parts(), parts);
        }
        assert_eq!(Decimal128::NAN.parts(), Parts::Nan);
        let too_large =
            Parts::Finite { negative: false, coefficient: COEFFICIENT_MAX + 1, exponent: 0 };
        assert_eq!(Decimal128::from_parts(too_large), None);
    }

    #[test]
    fn reads_what_the_bson_specification_writes() {
        // bson-corpus decimal128-1: "1" and "-Infinity" and a coefficient that is too large.
        let one = from_words(0x3040_0000_0000_0000, 1);
        assert_eq!(one.parts(), Parts::Finite { negative: false, coefficient: 1, exponent: 0 });
        let infinite = from_words(0xF800_0000_0000_0000, 0);
        assert_eq!(infinite.parts(), Parts::Infinite { negative: true });
        let over = from_words(0x6C10_0000_0000_0000, 5);
        assert!(matches!(over.parts(), Parts::Finite { coefficient: 0, .. }));
    }
}
