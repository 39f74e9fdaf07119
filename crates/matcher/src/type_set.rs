//! Sets of types, as `$type` and `$jsonSchema` name them.

use kauri_bson::Type;

/// The operand of `$type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeSet {
    bits: u32,
    numbers: bool,
}

impl TypeSet {
    /// The empty set.
    pub const EMPTY: TypeSet = TypeSet { bits: 0, numbers: false };

    /// Adds a type.
    pub fn insert(&mut self, ty: Type) {
        self.bits |= 1 << bit_of(ty);
    }

    /// Adds all number types, as the alias `number` does.
    pub fn insert_numbers(&mut self) {
        self.numbers = true;
        for ty in [Type::Double, Type::Int32, Type::Int64, Type::Decimal128] {
            self.insert(ty);
        }
    }

    /// Whether the type is in it.
    #[inline]
    pub fn contains(self, ty: Type) -> bool {
        self.bits & (1 << bit_of(ty)) != 0
    }

    /// Whether the alias `number` was given.
    pub fn all_numbers(self) -> bool {
        self.numbers
    }

    /// Whether it has all number types.
    pub fn contains_numbers(self) -> bool {
        [Type::Double, Type::Int32, Type::Int64, Type::Decimal128]
            .into_iter()
            .all(|ty| self.contains(ty))
    }

    /// The types, by their numbers.
    pub fn iter(self) -> impl Iterator<Item = Type> {
        let types = [0xFF].into_iter().chain(1..=0x13).chain([0x7F]);
        types.filter_map(Type::from_byte).filter(move |ty| self.contains(*ty))
    }

    /// Whether it has no type.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Whether all types of this one are in the other.
    pub fn is_subset_of(self, other: TypeSet) -> bool {
        self.bits & !other.bits == 0
    }
}

fn bit_of(ty: Type) -> u32 {
    match ty {
        Type::MinKey => 30,
        Type::MaxKey => 31,
        other => other as u32,
    }
}
