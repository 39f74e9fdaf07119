//! The full structural check that bytes from outside pass once, before any other use.
//!
//! A valid document: lengths agree at every level, each document ends in a zero, types are known, strings and names
//! are terminated, names are UTF-8, booleans are 0 or 1, nesting is limited. Text of values may be any bytes, as in
//! MongoDB (see [`crate::not_utf8`]). Later iteration relies on these properties only, and finds every byte of the
//! document in some element.
//!
//! The check is iterative, because the sender chooses the nesting. The first walk only returns yes or no. A second
//! walk, with the path of the invalid element, produces the message, so that the first can be fast.

use crate::doc::Doc;
use crate::shell;
use crate::types::Type;
use crate::value::Value;
use kauri_base::{Error, ErrorCode, Result};

/// Checks that `bytes` are exactly one valid document with at most `depth_max` levels of documents and
/// arrays below it.
///
/// `InvalidBSON` (22) or, for the nesting, `Overflow` (15).
pub fn validate(bytes: &[u8], depth_max: usize) -> Result<Doc<'_>> {
    match walk(bytes, depth_max, &mut NoContext) {
        Ok(()) => Doc::from_bytes(bytes),
        Err(_) => Err(explain(bytes, depth_max)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    TooShort,
    LengthBeyondBuffer,
    NotTerminated,
    NestedTooShort,
    BeyondBuffer,
    Length,
    StringNotTerminated,
    Bool,
    UnknownType(u8),
    NameNotUtf8,
    TooDeep,
}

/// Follows the walk to know where a fault is.
trait Context {
    /// An element begins: its name and where it starts.
    fn element(&mut self, name: &[u8], start: usize);
    /// The current element's document begins.
    fn push(&mut self);
    /// A document ended.
    fn pop(&mut self);
    /// The current element ended here, and is good.
    fn element_end(&mut self, end: usize);
}

struct NoContext;

impl Context for NoContext {
    #[inline]
    fn element(&mut self, _: &[u8], _: usize) {}
    #[inline]
    fn push(&mut self) {}
    #[inline]
    fn pop(&mut self) {}
    #[inline]
    fn element_end(&mut self, _: usize) {}
}

/// Where enclosing documents end. Those of ordinary documents stay on the stack.
struct Ends {
    near: [usize; Ends::NEAR],
    far: Vec<usize>,
    count: usize,
}

impl Ends {
    const NEAR: usize = 8;

    #[inline]
    fn push(&mut self, end: usize) {
        match self.near.get_mut(self.count) {
            Some(slot) => *slot = end,
            None => self.far.push(end),
        }
        self.count += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<usize> {
        self.count = self.count.checked_sub(1)?;
        match self.near.get(self.count) {
            Some(end) => Some(*end),
            None => self.far.pop(),
        }
    }
}

fn walk(bytes: &[u8], depth_max: usize, context: &mut impl Context) -> Result<(), Fault> {
    let length = read_length(bytes, 0).ok_or(Fault::TooShort)?;
    if length < 5 {
        return Err(Fault::TooShort);
    }
    if length > bytes.len() {
        return Err(Fault::LengthBeyondBuffer);
    }
    if length < bytes.len() {
        return Err(Fault::Length);
    }
    if bytes[length - 1] != 0 {
        return Err(Fault::NotTerminated);
    }
    // `body` ends before the current document's final zero: no element may reach that.
    let mut body = &bytes[..length - 1];
    let mut at = 4;
    let mut ends = Ends { near: [0; Ends::NEAR], far: Vec::new(), count: 0 };
    loop {
        let Some(&ty) = body.get(at) else {
            // Elements never reach beyond `body`, so this is its very end.
            at += 1;
            context.pop();
            let Some(end) = ends.pop() else { return Ok(()) };
            body = &bytes[..end];
            context.element_end(at);
            continue;
        };
        let name_end = name_end(bytes, body.len(), at + 1)?;
        context.element(&body[at + 1..name_end], at);
        at = name_end + 1;
        match SIZES[usize::from(ty)] {
            size @ 0..=16 => {
                at += usize::from(size);
                if at > body.len() {
                    return Err(Fault::BeyondBuffer);
                }
            }
            STRING => at = string_end(body, at)?,
            DOCUMENT => {
                let start = at;
                let length = read_length(body, at).ok_or(Fault::BeyondBuffer)?;
                open(body, start, length)?;
                ends.push(body.len());
                context.push();
                if ends.count > depth_max {
                    return Err(Fault::TooDeep);
                }
                body = &body[..start + length - 1];
                at = start + 4;
                continue;
            }
            CODE_WITH_SCOPE => {
                let start = at;
                let length = read_length(body, at).ok_or(Fault::BeyondBuffer)?;
                let scope = string_end(body, at + 4)?;
                let scope_length = read_length(body, scope).ok_or(Fault::BeyondBuffer)?;
                open(body, scope, scope_length)?;
                if start + length != scope + scope_length {
                    return Err(Fault::Length);
                }
                ends.push(body.len());
                context.push();
                if ends.count > depth_max {
                    return Err(Fault::TooDeep);
                }
                body = &body[..scope + scope_length - 1];
                at = scope + 4;
                continue;
            }
            _ => at = special_end(body, at, ty)?,
        }
        context.element_end(at);
    }
}

/// Checks the frame of a nested document of this length.
#[inline]
fn open(body: &[u8], start: usize, length: usize) -> Result<(), Fault> {
    if length < 5 {
        return Err(Fault::NestedTooShort);
    }
    match body.get(start + length - 1) {
        Some(0) => Ok(()),
        Some(_) => Err(Fault::Length),
        None => Err(Fault::BeyondBuffer),
    }
}

/// A length field; negative ones become too large for any buffer.
#[inline]
fn read_length(body: &[u8], at: usize) -> Option<usize> {
    let bytes = body.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

/// The size of each type's value; above 16, what to do.
const STRING: u8 = 17;
const DOCUMENT: u8 = 18;
const CODE_WITH_SCOPE: u8 = 19;
const SPECIAL: u8 = 20;

const SIZES: [u8; 256] = {
    let mut sizes = [SPECIAL; 256];
    sizes[Type::Double as usize] = 8;
    sizes[Type::DateTime as usize] = 8;
    sizes[Type::Timestamp as usize] = 8;
    sizes[Type::Int64 as usize] = 8;
    sizes[Type::Int32 as usize] = 4;
    sizes[Type::ObjectId as usize] = 12;
    sizes[Type::Decimal128 as usize] = 16;
    sizes[Type::Null as usize] = 0;
    sizes[Type::Undefined as usize] = 0;
    sizes[Type::MinKey as usize] = 0;
    sizes[Type::MaxKey as usize] = 0;
    sizes[Type::String as usize] = STRING;
    sizes[Type::Code as usize] = STRING;
    sizes[Type::Symbol as usize] = STRING;
    sizes[Type::Document as usize] = DOCUMENT;
    sizes[Type::Array as usize] = DOCUMENT;
    sizes[Type::CodeWithScope as usize] = CODE_WITH_SCOPE;
    sizes
};

/// Booleans, binary data, regular expressions, pointers, and types that are none.
#[inline(never)]
fn special_end(body: &[u8], at: usize, ty: u8) -> Result<usize, Fault> {
    match Type::from_byte(ty) {
        Some(Type::Bool) => match body.get(at) {
            Some(0 | 1) => Ok(at + 1),
            Some(_) => Err(Fault::Bool),
            None => Err(Fault::BeyondBuffer),
        },
        Some(Type::Binary) => {
            let length = read_length(body, at).ok_or(Fault::BeyondBuffer)?;
            let end = at + 5 + length;
            if end > body.len() { Err(Fault::BeyondBuffer) } else { Ok(end) }
        }
        Some(Type::Regex) => {
            let options = zero(body, at)? + 1;
            Ok(zero(body, options)? + 1)
        }
        Some(Type::DbPointer) => {
            let end = string_end(body, at)? + 12;
            if end > body.len() { Err(Fault::BeyondBuffer) } else { Ok(end) }
        }
        _ if ty == 0 => Err(Fault::Length),
        _ => Err(Fault::UnknownType(ty)),
    }
}

/// Where the zero of a zero-terminated name stands, which must be below `limit`.
#[inline]
fn name_end(bytes: &[u8], limit: usize, start: usize) -> Result<usize, Fault> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Eight bytes at a time, for names are short: the first zero, and any byte beyond ASCII before.
    if let Some(chunk) = bytes.get(start..start + 8).and_then(|c| <[u8; 8]>::try_from(c).ok()) {
        let word = u64::from_le_bytes(chunk);
        let zeros = word.wrapping_sub(ONES) & !word & HIGH;
        if zeros != 0 {
            let below = (zeros & zeros.wrapping_neg()) - 1;
            let end = start + (zeros.trailing_zeros() / 8) as usize;
            if word & HIGH & below == 0 && end < limit {
                return Ok(end);
            }
        }
    }
    long_name_end(bytes.get(start..limit).ok_or(Fault::BeyondBuffer)?).map(|length| start + length)
}

#[inline(never)]
fn long_name_end(rest: &[u8]) -> Result<usize, Fault> {
    let length = zero(rest, 0)?;
    let name = &rest[..length];
    if name.is_ascii() || std::str::from_utf8(name).is_ok() {
        Ok(length)
    } else {
        Err(Fault::NameNotUtf8)
    }
}

/// Where the first zero from `start` on stands.
fn zero(body: &[u8], start: usize) -> Result<usize, Fault> {
    let rest = body.get(start..).ok_or(Fault::BeyondBuffer)?;
    rest.iter().position(|b| *b == 0).map(|length| start + length).ok_or(Fault::BeyondBuffer)
}

/// Where a string ends: length, text, zero.
#[inline]
fn string_end(body: &[u8], at: usize) -> Result<usize, Fault> {
    let length = read_length(body, at).ok_or(Fault::BeyondBuffer)?;
    let text = body.get(at + 4..at + 4 + length).ok_or(Fault::BeyondBuffer)?;
    if text.last() != Some(&0) {
        return Err(Fault::StringNotTerminated);
    }
    Ok(at + 4 + length)
}

/// Remembers the path to the current element and the whole _id.
#[derive(Default)]
struct Located {
    /// Names of the enclosing elements, then of the current one.
    path: Vec<Vec<u8>>,
    /// Levels below the top.
    depth: usize,
    start: usize,
    /// Where a good top-level _id stands.
    id: Option<(usize, usize)>,
}

impl Context for Located {
    fn element(&mut self, name: &[u8], start: usize) {
        self.path.truncate(self.depth);
        self.path.push(name.to_vec());
        if self.depth == 0 {
            self.start = start;
        }
    }

    fn push(&mut self) {
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.path.truncate(self.depth);
        self.depth = self.depth.saturating_sub(1);
    }

    fn element_end(&mut self, end: usize) {
        if self.depth == 0 && self.path.last().is_some_and(|name| name == b"_id") {
            self.id = Some((self.start, end));
        }
    }
}

#[cold]
fn explain(bytes: &[u8], depth_max: usize) -> Error {
    let mut located = Located::default();
    let Err(fault) = walk(bytes, depth_max, &mut located) else {
        return Error::new(ErrorCode::InvalidBSON, "invalid bson");
    };
    let reason = match fault {
        Fault::TooShort => "BSON data has to be at least 5 bytes".to_owned(),
        Fault::LengthBeyondBuffer => format!(
            "Incorrect BSON length {} should be less or equal to {}",
            read_length(bytes, 0).unwrap_or(0),
            bytes.len()
        ),
        Fault::NotTerminated => "BSON object not terminated with EOO".to_owned(),
        Fault::NestedTooShort => "Nested BSON object has to be at least 5 bytes".to_owned(),
        Fault::BeyondBuffer => "BSON size is larger than buffer size".to_owned(),
        Fault::Length => "incorrect BSON length".to_owned(),
        Fault::StringNotTerminated => "Not null terminated string".to_owned(),
        Fault::Bool => "BSON bool is neither false nor true".to_owned(),
        Fault::UnknownType(ty) => format!("Unrecognized BSON type {ty}"),
        Fault::NameNotUtf8 => "Found string that doesn't follow UTF-8 encoding.".to_owned(),
        Fault::TooDeep => "BSONObj exceeds maximum nested object depth".to_owned(),
    };
    let code = if fault == Fault::TooDeep { ErrorCode::Overflow } else { ErrorCode::InvalidBSON };
    let path = match located.path.as_slice() {
        [] => "?".to_owned(),
        names => String::from_utf8_lossy(&names.join(&b'.')).into_owned(),
    };
    let id = located.id.map_or(Value::Missing, |(start, end)| value_at(&bytes[start..end]));
    let object = match id {
        Value::Missing => "unknown _id".to_owned(),
        id => format!("_id: {}", shell::value_to_string(&id)),
    };
    Error::new(
        code,
        format!("{reason} in element with field name '{path}' in object with {object}"),
    )
}

/// The value of a good element of the name `_id`.
fn value_at(element: &[u8]) -> Value<'_> {
    const HEADER: usize = 1 + 3 + 1;
    let ty = element.first().and_then(|byte| Type::from_byte(*byte));
    match (ty, element.get(HEADER..)) {
        (Some(ty), Some(value)) => Value::from_raw(ty, value),
        _ => Value::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::{DocBuf, array, doc};
    use kauri_base::limits::DOCUMENT_DEPTH_MAX;

    fn check(bytes: &[u8]) -> Result<Doc<'_>> {
        validate(bytes, DOCUMENT_DEPTH_MAX)
    }

    fn message(bytes: &[u8]) -> String {
        let error = check(bytes).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidBSON);
        error.message().to_owned()
    }

    /// The document with one element of these raw bytes appended.
    fn with_element(doc: &DocBuf, element: &[u8]) -> Vec<u8> {
        let mut bytes = doc.as_bytes().to_vec();
        bytes.pop();
        bytes.extend_from_slice(element);
        bytes.push(0);
        let length = bytes.len() as i32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    const BAD_STRING: &[u8] = b"\x02bad\0\x02\0\0\0xx";

    #[test]
    fn messages_name_the_element_and_the_id() {
        let id = doc! { "_id" => 1 };
        assert_eq!(
            message(&with_element(&id, BAD_STRING)),
            "Not null terminated string in element with field name 'bad' in object with _id: 1"
        );
        let other = doc! { "x" => doc! { "_id" => "no" } };
        assert_eq!(
            message(&with_element(&other, BAD_STRING)),
            "Not null terminated string in element with field name 'bad' in object with unknown _id"
        );
        assert_eq!(
            message(&with_element(&doc! {}, b"\x02_id\0\x02\0\0\0xx")),
            "Not null terminated string in element with field name '_id' in object with unknown _id"
        );
        let bad = DocBuf::from_vec(with_element(&doc! { "x" => 2.0 }, BAD_STRING)).unwrap();
        let nested = doc! { "_id" => [7u8; 12], "nested" => array!["a", "b", bad], "z" => 1 };
        assert_eq!(
            message(nested.as_bytes()),
            "Not null terminated string in element with field name 'nested.2.bad' in object with \
             _id: ObjectId('070707070707070707070707')"
        );
        let after = with_element(&doc! { "a" => doc! { "b" => doc! {} } }, BAD_STRING);
        assert!(message(&after).contains("'bad'"));
    }

    #[test]
    fn each_fault_has_its_message() {
        let start = |bytes: &[u8]| message(bytes).split(" in element").next().unwrap().to_owned();
        let element = |bytes: &[u8]| start(&with_element(&doc! { "ok" => 1 }, bytes));
        assert_eq!(start(&[]), "BSON data has to be at least 5 bytes");
        assert_eq!(start(&[4, 0, 0, 0]), "BSON data has to be at least 5 bytes");
        let beyond = "Incorrect BSON length 6 should be less or equal to 5";
        assert_eq!(start(&[6, 0, 0, 0, 0]), beyond);
        assert_eq!(start(&[5, 0, 0, 0, 0, 0]), "incorrect BSON length");
        assert_eq!(start(&[5, 0, 0, 0, 1]), "BSON object not terminated with EOO");
        assert_eq!(start(&[0xFF, 0xFF, 0xFF, 0xFF, 0]).split(' ').next(), Some("Incorrect"));
        assert_eq!(element(b"\x08b\0\x02"), "BSON bool is neither false nor true");
        assert_eq!(element(b"\x90b\0\x01"), "Unrecognized BSON type 144");
        assert_eq!(element(b"\x10b\0\x01\0\0"), "BSON size is larger than buffer size");
        assert_eq!(element(b"\x02b\0\0\0\0\0"), "Not null terminated string");
        assert_eq!(element(b"\x02b\0\xFF\xFF\xFF\xFF\0"), "BSON size is larger than buffer size");
        assert_eq!(
            element(b"\x10\xC3\x28\0\0\0\0\0"),
            "Found string that doesn't follow UTF-8 encoding."
        );
        assert_eq!(
            element(b"\x03b\0\x04\0\0\0\0"),
            "Nested BSON object has to be at least 5 bytes"
        );
        assert_eq!(element(b"\x03b\0\x05\0\0\0\x01"), "incorrect BSON length");
        assert_eq!(element(b"\x03b\0\x06\0\0\0\0"), "BSON size is larger than buffer size");
        assert_eq!(element(b"\x05b\0\x02\0\0\0\0a"), "BSON size is larger than buffer size");
        assert_eq!(element(b"\x0Bb\0a\0i"), "BSON size is larger than buffer size");
        assert_eq!(element(b"\0\x10b\0\0\0\0\0"), "incorrect BSON length");
        let scope = b"\x0Fb\0\x0F\0\0\0\x02\0\0\0f\0\x05\0\0\0\0";
        assert!(check(&with_element(&doc! {}, scope)).is_ok());
        for (position, wrong) in [(3, 0x10), (7, 3), (13, 6), (13, 4)] {
            let mut scope = scope.to_vec();
            scope[position] = wrong;
            assert!(check(&with_element(&doc! {}, &scope)).is_err(), "{position}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nest = |levels: usize| (0..levels).fold(doc! {}, |inner, _| doc! { "a" => inner });
        assert!(check(nest(DOCUMENT_DEPTH_MAX).as_bytes()).is_ok());
        let error = check(nest(DOCUMENT_DEPTH_MAX + 1).as_bytes()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Overflow);
        assert!(error.message().starts_with("BSONObj exceeds maximum nested object depth in"));
        assert_eq!(check(nest(5000).as_bytes()).unwrap_err().code(), ErrorCode::Overflow);
    }

    /// The bytes of all elements, nested ones too, with their framing.
    fn consumed(doc: Doc<'_>) -> usize {
        let elements = doc.iter().map(|elem| {
            let header = 1 + elem.key_bytes().len() + 1;
            assert!(!elem.value().is_missing(), "{:?} has a bad value", elem.key());
            match elem.value() {
                Value::Document(inner) | Value::Array(inner) => header + consumed(inner.as_doc()),
                Value::CodeWithScope { code, scope } => {
                    header + 4 + 4 + code.len() + 1 + consumed(scope.as_doc())
                }
                _ => header + elem.value_bytes().len(),
            }
        });
        5 + elements.sum::<usize>()
    }

    #[test]
    fn valid_documents_are_readable_to_the_last_byte() {
        let (mut accepted, mut refused) = (0, 0);
        for seed in 0..60_000 {
            let mut random = Random::new(seed);
            let mut bytes = random.document(3).into_vec();
            if !random.chance(10) {
                for _ in 0..1 + random.below(2) {
                    let at = random.below(bytes.len() as u64) as usize;
                    match random.below(6) {
                        0 => bytes[at] = random.bits() as u8,
                        1 => bytes[at] ^= 1 << random.below(8),
                        2 => bytes[at] = random.pick(&[0, 1, 5, 0x7F, 0x80, 0xFF]),
                        3 => bytes[at] = bytes[at].wrapping_add(1),
                        4 if bytes.len() > 5 => {
                            bytes.remove(at);
                        }
                        _ => bytes.insert(at, random.bits() as u8),
                    }
                }
                // Most faults would be caught by the outermost length already.
                if random.chance(2) && bytes.len() >= 4 {
                    let length = bytes.len() as i32;
                    bytes[..4].copy_from_slice(&length.to_le_bytes());
                }
            }
            match check(&bytes) {
                Ok(doc) => {
                    accepted += 1;
                    assert_eq!(consumed(doc), bytes.len(), "seed {seed}: {bytes:?}");
                }
                Err(error) => {
                    refused += 1;
                    let code = error.code();
                    assert!(code == ErrorCode::InvalidBSON || code == ErrorCode::Overflow);
                    // What the bson crate takes, we take too.
                    let theirs = bson::Document::from_reader(bytes.as_slice());
                    let length = theirs.ok().and_then(|d| d.to_vec().ok()).map(|v| v.len());
                    assert_ne!(length, Some(bytes.len()), "seed {seed}: {error:?} for {bytes:?}");
                }
            }
            // Without validation there are no promises but that nothing panics.
            if let Ok(doc) = Doc::from_bytes(&bytes) {
                let _ = (format!("{doc:?}"), shell::doc_to_string(doc));
                let _ = crate::compare_docs(doc, doc);
            }
        }
        assert!(accepted > 10_000 && refused > 10_000, "{accepted} accepted, {refused} refused");
    }
}
