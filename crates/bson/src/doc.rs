//! Views over raw documents.
//!
//! Invariant of [`Doc`]: the bytes are framed (length field right, zero at the end). The contents may still be
//! malformed if they were never validated. Iteration then ends early; it never panics and never reads out of
//! bounds.

use crate::types::Type;
use crate::value::Value;
use crate::writer::DocWriter;
use kauri_base::{Error, ErrorCode, Result, work};

/// Bytes of the smallest document.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

/// Documents below this size are walked at once.
const LONG_BYTES: usize = 16 * 1024;

/// A borrowed raw document (or array: an array is a document whose keys don't matter).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Doc<'a>(&'a [u8]);

impl<'a> Doc<'a> {
    /// The empty document.
    pub const EMPTY: Doc<'static> = Doc(EMPTY);

    /// A view of these bytes, which must be exactly one framed document.
    #[inline]
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Doc<'a>> {
        match framed(bytes) {
            Some(doc) if doc.0.len() == bytes.len() => Ok(doc),
            _ => Err(Error::new(ErrorCode::InvalidBSON, "invalid bson length or terminator")),
        }
    }

    /// The document at the start of these bytes, and the bytes behind it.
    pub fn split_prefix(bytes: &'a [u8]) -> Result<(Doc<'a>, &'a [u8])> {
        match framed(bytes) {
            Some(doc) => Ok((doc, &bytes[doc.0.len()..])),
            None => Err(Error::new(ErrorCode::InvalidBSON, "invalid bson length or terminator")),
        }
    }

    /// The raw bytes, length field included.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether it has no elements.
    pub fn is_empty(self) -> bool {
        self.0.len() == EMPTY.len()
    }

    /// The elements in order; ends at the first malformed one.
    #[inline]
    pub fn iter(self) -> Iter<'a> {
        Iter { rest: self.0.get(4..self.0.len() - 1).unwrap_or(&[]) }
    }

    /// The elements in order, each counted as work of the operation: for loops over what a client or a stored
    /// document sizes.
    #[inline]
    pub fn ticked(self) -> Ticked<'a> {
        Ticked(self.iter())
    }

    /// As [`Doc::count`], counted as work.
    pub fn count_ticked(self) -> Result<usize> {
        if self.0.len() < LONG_BYTES {
            return Ok(self.count());
        }
        self.ticked().try_fold(0, |count, elem| elem.map(|_| count + 1))
    }

    /// The first element of this name. The search through a long document is counted as work.
    pub fn get(self, key: &str) -> Option<Elem<'a>> {
        if self.0.len() < LONG_BYTES {
            return self.iter().find(|e| e.key_bytes() == key.as_bytes());
        }
        self.iter().find(|e| {
            work::tick_infallible(1);
            e.key_bytes() == key.as_bytes()
        })
    }

    /// The value of the first element of this name, `Missing` if there is none.
    pub fn value(self, key: &str) -> Value<'a> {
        self.get(key).map_or(Value::Missing, Elem::value)
    }

    /// The first element.
    pub fn first(self) -> Option<Elem<'a>> {
        self.iter().next()
    }

    /// The number of elements (walks them).
    pub fn count(self) -> usize {
        self.iter().count()
    }

    /// A copy that owns its bytes.
    pub fn to_buf(self) -> DocBuf {
        DocBuf(self.0.to_vec())
    }
}

impl<'a> IntoIterator for Doc<'a> {
    type Item = Elem<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[inline]
fn framed(bytes: &[u8]) -> Option<Doc<'_>> {
    let length = i32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    if length < EMPTY.len() {
        return None;
    }
    let doc = bytes.get(..length)?;
    (doc[length - 1] == 0).then_some(Doc(doc))
}

/// An owned raw document.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DocBuf(Vec<u8>);

impl DocBuf {
    /// The empty document.
    pub fn new() -> Self {
        DocBuf(EMPTY.to_vec())
    }

    /// Takes over bytes that must be exactly one framed document.
    pub fn from_vec(bytes: Vec<u8>) -> Result<DocBuf> {
        Doc::from_bytes(&bytes)?;
        Ok(DocBuf(bytes))
    }

    /// Builds a document: `DocBuf::build(|w| w.put("a", 1))`.
    pub fn build(fill: impl FnOnce(&mut DocWriter<'_>)) -> DocBuf {
        let mut bytes = Vec::with_capacity(64);
        let mut writer = DocWriter::new(&mut bytes);
        fill(&mut writer);
        drop(writer);
        DocBuf(bytes)
    }

    /// A view of it.
    pub fn as_doc(&self) -> Doc<'_> {
        Doc(&self.0)
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Gives the raw bytes away.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Default for DocBuf {
    fn default() -> Self {
        Self::new()
    }
}

/// A document that is borrowed or owned.
#[derive(Clone)]
pub enum DocCow<'a> {
    /// Borrowed.
    Borrowed(Doc<'a>),
    /// Owned.
    Owned(DocBuf),
}

impl<'a> DocCow<'a> {
    /// A view of it.
    pub fn as_doc(&self) -> Doc<'_> {
        match self {
            DocCow::Borrowed(doc) => *doc,
            DocCow::Owned(buf) => buf.as_doc(),
        }
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.as_doc().as_bytes()
    }

    /// Owned bytes, copied if they were borrowed.
    pub fn into_buf(self) -> DocBuf {
        match self {
            DocCow::Borrowed(doc) => doc.to_buf(),
            DocCow::Owned(buf) => buf,
        }
    }

    /// The same, owned.
    pub fn into_owned(self) -> DocCow<'static> {
        DocCow::Owned(self.into_buf())
    }

    /// Elements of a borrowed document live as long as what it borrows; of an owned one, as long as
    /// this.
    pub fn iter(&self) -> Iter<'_> {
        self.as_doc().iter()
    }
}

impl PartialEq for DocCow<'_> {
    /// Equal bytes; see `compare` for the query language's equality.
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<'a> From<Doc<'a>> for DocCow<'a> {
    fn from(doc: Doc<'a>) -> Self {
        DocCow::Borrowed(doc)
    }
}

impl From<DocBuf> for DocCow<'_> {
    fn from(buf: DocBuf) -> Self {
        DocCow::Owned(buf)
    }
}

/// One element: a name and a raw value.
#[derive(Clone, Copy)]
pub struct Elem<'a> {
    key: &'a [u8],
    ty: Type,
    value: &'a [u8],
}

impl<'a> Elem<'a> {
    /// Counts a look at the element, or a copy of it, as work of the operation.
    #[inline]
    pub fn tick(self) -> Result<()> {
        work::tick(1 + (self.value.len() / 64) as u32)
    }

    /// The name; empty if it is not UTF-8 (which validation refuses).
    pub fn key(self) -> &'a str {
        std::str::from_utf8(self.key).unwrap_or_default()
    }

    /// The name's bytes, without the zero.
    #[inline]
    pub fn key_bytes(self) -> &'a [u8] {
        self.key
    }

    /// The type.
    #[inline]
    pub fn ty(self) -> Type {
        self.ty
    }

    /// The value's raw bytes as they stand in the document.
    #[inline]
    pub fn value_bytes(self) -> &'a [u8] {
        self.value
    }

    /// The value.
    pub fn value(self) -> Value<'a> {
        Value::from_raw(self.ty, self.value)
    }

    /// The embedded document or array, if it is one.
    #[inline]
    pub fn as_doc(self) -> Option<Doc<'a>> {
        match self.ty {
            Type::Document | Type::Array => Doc::from_bytes(self.value).ok(),
            _ => None,
        }
    }
}

/// Iterates over the elements of a document.
#[derive(Clone)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = Elem<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Elem<'a>> {
        match split_elem(self.rest) {
            Some((elem, rest)) => {
                self.rest = rest;
                Some(elem)
            }
            None => {
                self.rest = &[];
                None
            }
        }
    }
}

/// See [`Doc::ticked`].
#[derive(Clone)]
pub struct Ticked<'a>(Iter<'a>);

impl<'a> Iterator for Ticked<'a> {
    type Item = Result<Elem<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Elem<'a>>> {
        let elem = self.0.next()?;
        Some(elem.tick().map(|()| elem))
    }

    // As `next` would again and again, but an order to end is not passed over.
    fn nth(&mut self, n: usize) -> Option<Result<Elem<'a>>> {
        for _ in 0..n {
            if let Err(ended) = self.next()? {
                return Some(Err(ended));
            }
        }
        self.next()
    }

    fn last(self) -> Option<Result<Elem<'a>>> {
        let mut last = None;
        for elem in self {
            let ended = elem.is_err();
            last = Some(elem);
            if ended {
                break;
            }
        }
        last
    }
}

// Called, it would return its halves through memory, and reading them back as one stalls the loop.
#[inline(always)]
fn split_elem(bytes: &[u8]) -> Option<(Elem<'_>, &[u8])> {
    let (&ty, rest) = bytes.split_first()?;
    let ty = Type::from_byte(ty)?;
    let end = find_zero(rest)?;
    let key = &rest[..end];
    let rest = &rest[end + 1..];
    let size = match FIXED_SIZES[ty as usize] {
        NOT_FIXED => value_size(ty, rest)?,
        size => usize::from(size),
    };
    let (value, rest) = rest.split_at_checked(size)?;
    Some((Elem { key, ty, value }, rest))
}

/// Position of the first zero byte. Names are short: eight bytes at once find most of them.
#[inline]
fn find_zero(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    if let Some(chunk) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let zeros = word.wrapping_sub(ONES) & !word & HIGH;
        if zeros != 0 {
            return Some((zeros.trailing_zeros() / 8) as usize);
        }
    }
    bytes.iter().position(|b| *b == 0)
}

const NOT_FIXED: u8 = 0xFF;

/// The sizes of types that have just one.
const FIXED_SIZES: [u8; 256] = {
    let mut sizes = [NOT_FIXED; 256];
    sizes[Type::Null as usize] = 0;
    sizes[Type::Undefined as usize] = 0;
    sizes[Type::MinKey as usize] = 0;
    sizes[Type::MaxKey as usize] = 0;
    sizes[Type::Bool as usize] = 1;
    sizes[Type::Int32 as usize] = 4;
    sizes[Type::Double as usize] = 8;
    sizes[Type::DateTime as usize] = 8;
    sizes[Type::Timestamp as usize] = 8;
    sizes[Type::Int64 as usize] = 8;
    sizes[Type::ObjectId as usize] = 12;
    sizes[Type::Decimal128 as usize] = 16;
    sizes
};

/// The size in bytes of a value at the start of `bytes`, of a type that has no fixed size.
fn value_size(ty: Type, bytes: &[u8]) -> Option<usize> {
    let length = || {
        let length = i32::from_le_bytes(*bytes.first_chunk::<4>()?);
        usize::try_from(length).ok()
    };
    match ty {
        Type::String | Type::Code | Type::Symbol => length()?.checked_add(4),
        Type::Document | Type::Array | Type::CodeWithScope => length(),
        Type::Binary => length()?.checked_add(5),
        Type::DbPointer => length()?.checked_add(4 + 12),
        Type::Regex => {
            let pattern = find_zero(bytes)? + 1;
            Some(pattern + find_zero(&bytes[pattern..])? + 1)
        }
        fixed => Some(usize::from(FIXED_SIZES[fixed as usize])),
    }
}

impl std::fmt::Debug for Doc<'_> {
    /// Cut where the stack ends: this is for messages.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if kauri_base::work::check_stack().is_err() {
            return f.write_str("...");
        }
        f.debug_map().entries(self.iter().map(|e| (e.key(), e.value()))).finish()
    }
}

impl std::fmt::Debug for DocBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_doc().fmt(f)
    }
}

impl std::fmt::Debug for DocCow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_doc().fmt(f)
    }
}
