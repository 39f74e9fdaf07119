//! Finds a field by name in a raw document: the innermost loop of every expression.
//!
//! Names are short. One comparison of the first eight bytes of an element's name decides whether it is the
//! requested name, and one more finds its end. Malformed bytes end the search; nothing is read outside of the
//! document.

use kauri_base::work;
use kauri_bson::{Doc, Type};

/// A name with its first bytes as a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The name and its terminating zero.
    bytes: Box<[u8]>,
    word: u64,
    /// Covers the name and the zero; empty if they are longer than a word.
    mask: u64,
}

const WORD: usize = size_of::<u64>();

impl Wanted {
    pub fn new(name: &str) -> Wanted {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(0);
        let (mut word, mut mask) = ([0; WORD], [0; WORD]);
        if bytes.len() <= WORD {
            for ((byte, slot), covered) in bytes.iter().zip(&mut word).zip(&mut mask) {
                *slot = *byte;
                *covered = 0xFF;
            }
        }
        Wanted {
            bytes: bytes.into(),
            word: u64::from_le_bytes(word),
            mask: u64::from_le_bytes(mask),
        }
    }
}

/// How long a value is, by its type byte: a number of bytes, or one of the marks.
const SIZES: [u8; 256] = {
    let mut sizes = [INVALID; 256];
    sizes[Type::Double as usize] = 8;
    sizes[Type::String as usize] = TEXT;
    sizes[Type::Document as usize] = FRAMED;
    sizes[Type::Array as usize] = FRAMED;
    sizes[Type::Binary as usize] = BINARY;
    sizes[Type::Undefined as usize] = 0;
    sizes[Type::ObjectId as usize] = 12;
    sizes[Type::Bool as usize] = 1;
    sizes[Type::DateTime as usize] = 8;
    sizes[Type::Null as usize] = 0;
    sizes[Type::Regex as usize] = TWO_TEXTS;
    sizes[Type::DbPointer as usize] = POINTER;
    sizes[Type::Code as usize] = TEXT;
    sizes[Type::Symbol as usize] = TEXT;
    sizes[Type::CodeWithScope as usize] = FRAMED;
    sizes[Type::Int32 as usize] = 4;
    sizes[Type::Timestamp as usize] = 8;
    sizes[Type::Int64 as usize] = 8;
    sizes[Type::Decimal128 as usize] = 16;
    sizes[Type::MinKey as usize] = 0;
    sizes[Type::MaxKey as usize] = 0;
    sizes
};
/// The length that stands in front, and its own four bytes.
const TEXT: u8 = 0xF0;
/// The length that stands in front.
const FRAMED: u8 = 0xF1;
/// As text, and the subtype.
const BINARY: u8 = 0xF2;
/// As text, and an ObjectId.
const POINTER: u8 = 0xF3;
/// Two zero-terminated texts.
const TWO_TEXTS: u8 = 0xF4;
const INVALID: u8 = 0xFF;

/// The type and the raw value of the first element of this name.
#[inline]
pub(crate) fn find<'d>(doc: Doc<'d>, name: &Wanted) -> Option<(Type, &'d [u8])> {
    if doc.as_bytes().len() > LONG_BYTES {
        scan::<true>(doc, name)
    } else {
        scan::<false>(doc, name)
    }
}

/// Documents above this size are searched with a count of the work.
const LONG_BYTES: usize = 16 * 1024;

#[inline(always)]
fn scan<'d, const LONG: bool>(doc: Doc<'d>, name: &Wanted) -> Option<(Type, &'d [u8])> {
    let bytes = doc.as_bytes();
    // Without the length in front and the zero at the end.
    let mut rest = bytes.get(4..bytes.len() - 1)?;
    loop {
        if LONG {
            work::tick_infallible(1);
        }
        let (&ty, behind) = rest.split_first()?;
        let (found, value) = match behind.first_chunk::<WORD>() {
            Some(chunk) => {
                let word = u64::from_le_bytes(*chunk);
                let zeros = zero_bytes(word);
                if zeros != 0 {
                    let end = (zeros.trailing_zeros() / 8) as usize;
                    let found = word & name.mask == name.word && name.mask != 0;
                    (found, behind.get(end + 1..)?)
                } else {
                    long_name(behind, name)?
                }
            }
            None => long_name(behind, name)?,
        };
        let size = match SIZES[usize::from(ty)] {
            size if size < TEXT => usize::from(size),
            mark => variable_size(mark, value)?,
        };
        let (value, behind) = value.split_at_checked(size)?;
        if found {
            return Some((Type::from_byte(ty)?, value));
        }
        rest = behind;
    }
}

/// A mark in the highest bit of the lowest byte that is zero (bytes above it may be marked wrongly).
#[inline]
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    word.wrapping_sub(LOW) & !word & HIGH
}

/// Byte by byte: names longer than a word, and the document's last bytes.
#[inline(never)]
fn long_name<'d>(behind: &'d [u8], name: &Wanted) -> Option<(bool, &'d [u8])> {
    let end = behind.iter().position(|byte| *byte == 0)?;
    let (key, value) = behind.split_at_checked(end + 1)?;
    Some((key == &*name.bytes, value))
}

fn variable_size(mark: u8, value: &[u8]) -> Option<usize> {
    if mark == TWO_TEXTS {
        let first = value.iter().position(|byte| *byte == 0)? + 1;
        let second = value.get(first..)?.iter().position(|byte| *byte == 0)? + 1;
        return Some(first + second);
    }
    let length = usize::try_from(i32::from_le_bytes(*value.first_chunk()?)).ok()?;
    match mark {
        TEXT => Some(length + 4),
        FRAMED => Some(length),
        BINARY => Some(length + 5),
        POINTER => Some(length + 16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{Decimal128, DocBuf, Value, array, doc};

    fn samples() -> Vec<DocBuf> {
        let mut all = vec![
            doc! {},
            doc! { "" => 1, "a" => 2, "ab" => 3, "abcdefg" => 4, "abcdefgh" => 5, "abcdefghi" => 6 },
            doc! { "abcdefgh" => "x", "abcdefghijklmnop" => "y", "a" => 1, "a" => 2 },
            doc! { "é" => 1, "x" => Value::Null, "y" => Value::MinKey },
        ];
        all.push(DocBuf::build(|w| {
            w.put("regex", Value::Regex { pattern: "a".into(), options: "i".into() });
            w.put("pointer", Value::DbPointer { namespace: "a.b".into(), id: [1; 12] });
            w.put("binary", Value::Binary { subtype: 0, bytes: vec![1, 2].into() });
            w.put("scope", Value::CodeWithScope { code: "c".into(), scope: doc! {}.into() });
            w.put("decimal", Decimal128::ZERO);
            w.put("array", array![1, "b"]);
            w.put("doc", doc! { "inner" => 1 });
            w.put("flag", true);
        }));
        all
    }

    fn names() -> Vec<String> {
        let mut names: Vec<String> = ["", "a", "ab", "é", "none", "abcdefgx", "x\u{1}"]
            .iter()
            .map(|n| (*n).to_owned())
            .collect();
        names.extend(
            samples()
                .iter()
                .flat_map(|d| d.as_doc().iter().map(|e| e.key().to_owned()).collect::<Vec<_>>()),
        );
        names
    }

    #[test]
    fn finds_what_a_plain_search_finds() {
        for sample in samples() {
            for name in names() {
                let doc = sample.as_doc();
                let expected = doc.get(&name).map(|e| (e.ty(), e.value_bytes()));
                assert_eq!(find(doc, &Wanted::new(&name)), expected, "{name:?} in {sample:?}");
            }
        }
    }

    #[test]
    fn malformed_documents_end_the_search_as_a_plain_one() {
        for sample in samples() {
            let whole = sample.as_bytes();
            for position in 4..whole.len() - 1 {
                for byte in [0, 1, 2, 0x0B, 0x7F, 0x80, 0xFF] {
                    let mut bytes = whole.to_vec();
                    bytes[position] = byte;
                    let Ok(doc) = Doc::from_bytes(&bytes) else { continue };
                    for name in names() {
                        let plain = doc
                            .iter()
                            .find(|e| e.key_bytes() == name.as_bytes())
                            .map(|e| (e.ty(), e.value_bytes()));
                        assert_eq!(find(doc, &Wanted::new(&name)), plain);
                    }
                }
            }
        }
    }
}
