//! Decodes keys into values.

use super::type_bits::TypeBitsReader;
use super::{ESCAPE, number, tag};
use crate::doc::DocBuf;
use crate::types::Type;
use crate::value::Value;
use crate::writer::{ArrayWriter, DocWriter};
use kauri_base::{Error, ErrorCode, Result, Timestamp, work};

/// The values of a key: one for each entry of `descending`, which says how the fields are ordered.
pub fn decode(
    bytes: &[u8],
    type_bits: &[u8],
    descending: impl IntoIterator<Item = bool>,
) -> Result<Vec<Value<'static>>> {
    let mut reader = Reader { bytes, mask: 0, exhausted: None };
    let mut bits = TypeBitsReader::new(type_bits);
    descending
        .into_iter()
        .map(|descending| {
            reader.mask = if descending { 0xFF } else { 0 };
            read_value(&mut reader, &mut bits).ok_or_else(|| {
                let undecodable =
                    || Error::new(ErrorCode::DataCorruptionDetected, "index key cannot be decoded");
                reader.exhausted.take().unwrap_or_else(undecodable)
            })
        })
        .collect()
}

/// Takes bytes off the front, inverted where the field is.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    mask: u8,
    /// Set where the stack was at its end.
    exhausted: Option<Error>,
}

impl Reader<'_> {
    /// Inverts what is read from here on once more.
    pub(super) fn flip(&mut self) {
        self.mask = !self.mask;
    }

    pub(super) fn take(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first ^ self.mask)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.first().map(|byte| byte ^ self.mask)
    }

    /// A big-endian number of this many bytes, at most 16.
    pub(super) fn take_number(&mut self, length: usize) -> Option<u128> {
        (0..length).try_fold(0, |n, _| Some(n << 8 | u128::from(self.take()?)))
    }

    fn take_bytes(&mut self, length: usize) -> Option<Vec<u8>> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken.iter().map(|byte| byte ^ self.mask).collect())
    }

    fn take_text(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            match self.take()? {
                0 => return Some(text),
                ESCAPE => text.push(self.take()?.checked_sub(1)?),
                byte => text.push(byte),
            }
        }
    }

    fn take_length(&mut self) -> Option<usize> {
        match self.take()? {
            0xFF => usize::try_from(self.take_number(4)?).ok(),
            short => Some(usize::from(short)),
        }
    }

    fn take_id(&mut self) -> Option<[u8; 12]> {
        self.take_bytes(12)?.try_into().ok()
    }
}

fn read_value(reader: &mut Reader<'_>, bits: &mut TypeBitsReader<'_>) -> Option<Value<'static>> {
    if let Err(error) = work::check_stack() {
        reader.exhausted = Some(error);
        return None;
    }
    Some(match reader.take()? {
        tag::MIN_KEY => Value::MinKey,
        tag::UNDEFINED => Value::Undefined,
        tag::NULL => Value::Null,
        number @ number::NAN..=number::POSITIVE_LARGE => number::read(number, reader, bits)?,
        tag::STRING => {
            let symbol = bits.read(1) == 1;
            let ty = if symbol { Type::Symbol } else { Type::String };
            Value::text_of_bytes(ty, reader.take_text()?.into())
        }
        tag::OBJECT => Value::Document(read_object(reader, bits)?.into()),
        tag::ARRAY => Value::Array(read_array(reader, bits)?.into()),
        tag::BINARY => {
            let length = reader.take_length()?;
            let subtype = reader.take()?;
            Value::Binary { subtype, bytes: reader.take_bytes(length)?.into() }
        }
        tag::OBJECT_ID => Value::ObjectId(reader.take_id()?),
        tag::FALSE => Value::Bool(false),
        tag::TRUE => Value::Bool(true),
        tag::DATE => Value::DateTime((reader.take_number(8)? as u64 ^ (1 << 63)) as i64),
        tag::TIMESTAMP => {
            let whole = reader.take_number(8)? as u64;
            Value::Timestamp(Timestamp { seconds: (whole >> 32) as u32, increment: whole as u32 })
        }
        tag::REGEX => {
            let (pattern, options) = (reader.take_text()?, reader.take_text()?);
            raw(Type::Regex, &[&pattern, &[0], &options, &[0]])?
        }
        tag::DB_POINTER => {
            let length = reader.take_length()?;
            let namespace = reader.take_bytes(length)?;
            let id = reader.take_id()?;
            raw(Type::DbPointer, &[&text_length(&namespace), &namespace, &[0], &id])?
        }
        tag::CODE => Value::text_of_bytes(Type::Code, reader.take_text()?.into()),
        tag::CODE_WITH_SCOPE => {
            let code = reader.take_text()?;
            let scope = read_object(reader, bits)?;
            let length = 4 + 4 + code.len() + 1 + scope.as_bytes().len();
            let length = (length as i32).to_le_bytes();
            let text = [&text_length(&code), &*code, &[0]].concat();
            raw(Type::CodeWithScope, &[&length, &text, scope.as_bytes()])?
        }
        tag::MAX_KEY => Value::MaxKey,
        _ => return None,
    })
}

/// The value of raw bytes that stand in parts.
fn raw(ty: Type, parts: &[&[u8]]) -> Option<Value<'static>> {
    let bytes = parts.concat();
    Some(Value::from_raw(ty, &bytes).into_owned()).filter(|value| !value.is_missing())
}

/// The length that stands before a text.
fn text_length(text: &[u8]) -> [u8; 4] {
    (text.len() as i32 + 1).to_le_bytes()
}

fn read_object(reader: &mut Reader<'_>, bits: &mut TypeBitsReader<'_>) -> Option<DocBuf> {
    let mut bytes = Vec::new();
    let mut writer = DocWriter::new(&mut bytes);
    // The canonical type before each name is there for the order alone.
    while reader.take()? != tag::END {
        let name = String::from_utf8(reader.take_text()?).ok()?;
        if name.contains('\0') {
            return None;
        }
        writer.put_value(&name, &read_value(reader, bits)?);
    }
    drop(writer);
    DocBuf::from_vec(bytes).ok()
}

fn read_array(reader: &mut Reader<'_>, bits: &mut TypeBitsReader<'_>) -> Option<DocBuf> {
    let mut bytes = Vec::new();
    let mut writer = ArrayWriter::new(&mut bytes);
    while reader.peek()? != tag::END {
        writer.push_value(&read_value(reader, bits)?);
    }
    reader.take()?;
    drop(writer);
    DocBuf::from_vec(bytes).ok()
}
