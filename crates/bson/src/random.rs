//! Random values for tests: all types, with few values of each, so that equal and neighbouring values are common.

use crate::bid::{COEFFICIENT_MAX, EXPONENT_MAX, EXPONENT_MIN, Parts};
use crate::doc::DocBuf;
use crate::value::{Decimal128, Value};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, Timestamp};

/// A seeded source of values. A failing test prints its seed.
pub struct Random {
    source: SeededRandom,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Random { source: SeededRandom::new(seed) }
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.source.next_u64() % bound
    }

    pub fn bits(&mut self) -> u64 {
        self.source.next_u64()
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A value of any type but missing.
    pub fn value(&mut self, depth: u32) -> Value<'static> {
        let value = self.valid_value(depth);
        if self.chance(4) { self.spoil(&value) } else { value }
    }

    /// A value whose own text is UTF-8.
    fn valid_value(&mut self, depth: u32) -> Value<'static> {
        match self.below(if depth == 0 { 22 } else { 25 }) {
            0 => Value::MinKey,
            1 => Value::MaxKey,
            2 => Value::Null,
            3 => Value::Undefined,
            4 => Value::Bool(self.chance(2)),
            5..=10 => self.number(),
            11 | 12 => Value::String(self.text().into()),
            13 => Value::Symbol(self.text().into()),
            14 => Value::Code(self.text().into()),
            15 => {
                let length = if self.chance(20) { 254 + self.below(3) } else { self.below(4) };
                let bytes: Vec<u8> = (0..length).map(|_| self.pick(&[0, 1, 255])).collect();
                Value::Binary { subtype: self.pick(&[0, 2, 4, 128]), bytes: bytes.into() }
            }
            16 => Value::ObjectId([self.pick(&[0, 1, 2, 255]); 12]),
            17 => Value::DateTime(self.integer()),
            18 => {
                let whole = self.integer() as u64;
                Value::Timestamp(Timestamp {
                    seconds: (whole >> 32) as u32,
                    increment: whole as u32,
                })
            }
            19 => Value::Regex {
                pattern: self.name().into(),
                options: self.pick(&["", "i", "im"]).into(),
            },
            20 => {
                let namespace = self.text().into();
                Value::DbPointer { namespace, id: [self.pick(&[0, 1, 255]); 12] }
            }
            21 => Value::CodeWithScope {
                code: self.text().into(),
                scope: self.document(depth.saturating_sub(1)).into(),
            },
            22 => {
                let values: Vec<_> = (0..self.below(4)).map(|_| self.value(depth - 1)).collect();
                Value::array(values)
            }
            _ => Value::Document(self.document(depth - 1).into()),
        }
    }

    /// The same with letters replaced by bytes that are not UTF-8, where it has text.
    fn spoil(&mut self, value: &Value<'_>) -> Value<'static> {
        let Some(ty) = value.ty() else { return Value::Missing };
        let mut raw = Vec::new();
        crate::writer::put_value_bytes(&mut raw, value);
        let text = match value {
            Value::String(v) | Value::Symbol(v) | Value::Code(v) => 4..4 + v.len(),
            Value::Regex { pattern, .. } => 0..pattern.len(),
            Value::DbPointer { namespace, .. } => 4..4 + namespace.len(),
            Value::CodeWithScope { code, .. } => 8..8 + code.len(),
            _ => 0..0,
        };
        for byte in &mut raw[text] {
            if self.chance(2) {
                *byte = self.pick(&[0x80, 0xBF, 0xC0, 0xED, 0xEF, 0xF4, 0xFF, b'a', 1, 2]);
            }
        }
        Value::from_raw(ty, &raw).into_owned()
    }

    pub fn document(&mut self, depth: u32) -> DocBuf {
        let count = self.below(4);
        DocBuf::build(|w| {
            for _ in 0..count {
                let name = self.name();
                w.put_value(&name, &self.value(depth));
            }
        })
    }

    pub fn name(&mut self) -> String {
        self.pick(&["", "a", "b", "ab", "a\u{1}", "é", "a\u{1}b", "0"]).to_owned()
    }

    fn text(&mut self) -> String {
        let letters = ['a', 'b', '\0', '\u{1}', '\u{2}', 'é', '\u{ffff}', '\u{10000}'];
        (0..self.below(4)).map(|_| self.pick(&letters)).collect()
    }

    fn integer(&mut self) -> i64 {
        let small = self.below(5) as i64 - 2;
        match self.below(8) {
            0..=2 => small,
            3 => i64::MAX - self.below(3) as i64,
            4 => i64::MIN + self.below(3) as i64,
            5 => self.bits() as i64,
            _ => (1i64 << self.below(63)).wrapping_mul(self.pick(&[1, -1])).wrapping_add(small),
        }
    }

    fn double(&mut self) -> f64 {
        let special = [
            0.0,
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            5e-324,
            0.1,
            0.5,
            1e22,
            1e23,
        ];
        match self.below(5) {
            0 => self.pick(&special),
            1 => self.integer() as f64,
            2 => self.integer() as f64 / self.pick(&[2.0, 8.0, 10.0, 1024.0]),
            3 => {
                // A neighbour of something round.
                let double = self.integer() as f64;
                let bits = double.to_bits().wrapping_add(self.below(3)).wrapping_sub(1);
                f64::from_bits(bits)
            }
            _ => f64::from_bits(self.bits()),
        }
    }

    fn decimal(&mut self) -> Decimal128 {
        let negative = self.chance(2);
        match self.below(10) {
            0 => {
                return self.pick(&[
                    Decimal128::NAN,
                    Decimal128::INFINITY,
                    Decimal128::NEG_INFINITY,
                ]);
            }
            1 => return Decimal128::from_f64_precise(self.double()),
            2 => return Decimal128::from(self.integer()),
            _ => {}
        }
        let random = u128::from(self.bits()) << 64 | u128::from(self.bits());
        let coefficient = match self.below(5) {
            0 => u128::from(self.below(4)),
            1 => 10u128.pow(self.below(34) as u32) * u128::from(1 + self.below(9)),
            2 => COEFFICIENT_MAX - u128::from(self.below(3)),
            3 => u128::from(self.integer().unsigned_abs()),
            _ => random % (COEFFICIENT_MAX + 1),
        };
        let exponent = match self.below(6) {
            0 => self.pick(&[EXPONENT_MIN, EXPONENT_MAX, 0, 1, -1]),
            1 => self.below(12_000) as i32 + EXPONENT_MIN,
            2 => self.below(700) as i32 - 350,
            _ => -(self.below(35) as i32),
        };
        let parts =
            Parts::Finite { negative, coefficient: coefficient.min(COEFFICIENT_MAX), exponent };
        Decimal128::from_parts(parts).unwrap_or(Decimal128::ZERO)
    }

    pub fn number(&mut self) -> Value<'static> {
        match self.below(5) {
            0 => Value::Int32(self.integer() as i32),
            1 => Value::Int64(self.integer()),
            2 => Value::Decimal128(self.decimal()),
            _ => Value::Double(self.double()),
        }
    }
}
