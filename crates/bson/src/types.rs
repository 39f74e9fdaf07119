//! BSON's element types: numbers on the wire, names in the query language.

/// The type byte of an element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Type {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Binary = 0x05,
    Undefined = 0x06,
    ObjectId = 0x07,
    Bool = 0x08,
    DateTime = 0x09,
    Null = 0x0A,
    Regex = 0x0B,
    DbPointer = 0x0C,
    Code = 0x0D,
    Symbol = 0x0E,
    CodeWithScope = 0x0F,
    Int32 = 0x10,
    Timestamp = 0x11,
    Int64 = 0x12,
    Decimal128 = 0x13,
    MinKey = 0xFF,
    MaxKey = 0x7F,
}

impl Type {
    /// The type of this byte, if there is one.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Type> {
        Some(match byte {
            0x01 => Type::Double,
            0x02 => Type::String,
            0x03 => Type::Document,
            0x04 => Type::Array,
            0x05 => Type::Binary,
            0x06 => Type::Undefined,
            0x07 => Type::ObjectId,
            0x08 => Type::Bool,
            0x09 => Type::DateTime,
            0x0A => Type::Null,
            0x0B => Type::Regex,
            0x0C => Type::DbPointer,
            0x0D => Type::Code,
            0x0E => Type::Symbol,
            0x0F => Type::CodeWithScope,
            0x10 => Type::Int32,
            0x11 => Type::Timestamp,
            0x12 => Type::Int64,
            0x13 => Type::Decimal128,
            0xFF => Type::MinKey,
            0x7F => Type::MaxKey,
            _ => return None,
        })
    }

    /// The alias in `$type`, in error messages and from the `$type` expression.
    pub fn alias(self) -> &'static str {
        match self {
            Type::Double => "double",
            Type::String => "string",
            Type::Document => "object",
            Type::Array => "array",
            Type::Binary => "binData",
            Type::Undefined => "undefined",
            Type::ObjectId => "objectId",
            Type::Bool => "bool",
            Type::DateTime => "date",
            Type::Null => "null",
            Type::Regex => "regex",
            Type::DbPointer => "dbPointer",
            Type::Code => "javascript",
            Type::Symbol => "symbol",
            Type::CodeWithScope => "javascriptWithScope",
            Type::Int32 => "int",
            Type::Timestamp => "timestamp",
            Type::Int64 => "long",
            Type::Decimal128 => "decimal",
            Type::MinKey => "minKey",
            Type::MaxKey => "maxKey",
        }
    }

    /// The type of this alias.
    pub fn from_alias(alias: &str) -> Option<Type> {
        const ALL: [Type; 21] = [
            Type::Double,
            Type::String,
            Type::Document,
            Type::Array,
            Type::Binary,
            Type::Undefined,
            Type::ObjectId,
            Type::Bool,
            Type::DateTime,
            Type::Null,
            Type::Regex,
            Type::DbPointer,
            Type::Code,
            Type::Symbol,
            Type::CodeWithScope,
            Type::Int32,
            Type::Timestamp,
            Type::Int64,
            Type::Decimal128,
            Type::MinKey,
            Type::MaxKey,
        ];
        ALL.into_iter().find(|t| t.alias() == alias)
    }

    /// Whether this is one of the four number types.
    pub fn is_number(self) -> bool {
        matches!(self, Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128)
    }

    /// The class that the comparison order sorts by: types of one class compare by value
    /// (`canonicalizeBSONType`; manual, "Comparison/Sort Order"). A missing value sorts as
    /// undefined does, between MinKey and null.
    pub fn canonical(self) -> u8 {
        match self {
            Type::MinKey => 0,
            Type::Undefined => 1,
            Type::Null => 5,
            Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => 10,
            Type::String | Type::Symbol => 15,
            Type::Document => 20,
            Type::Array => 25,
            Type::Binary => 30,
            Type::ObjectId => 35,
            Type::Bool => 40,
            Type::DateTime => 45,
            Type::Timestamp => 47,
            Type::Regex => 50,
            Type::DbPointer => 55,
            Type::Code => 60,
            Type::CodeWithScope => 65,
            Type::MaxKey => 127,
        }
    }
}
