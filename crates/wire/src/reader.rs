//! Reads fields from the front of a message, without trusting any length.

use kauri_base::{Error, ErrorCode, Result};

/// Size of the shortest BSON document: its length and its final zero.
const DOCUMENT_BYTES_MIN: usize = 5;

/// The unread rest of a message.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

fn cut_short() -> Error {
    Error::new(ErrorCode::Overflow, "Message ends in the middle of a field")
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| cut_short())
    }

    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// A string that ends in a zero byte, which is not part of it.
    pub fn cstring(&mut self) -> Result<&'a str> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or_else(cut_short)?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        std::str::from_utf8(text).map_err(|_| {
            Error::new(ErrorCode::BadValue, "A name in the message is not valid UTF-8")
        })
    }

    /// A BSON document, of which only the frame is checked: its length and its final zero.
    pub fn document(&mut self) -> Result<&'a [u8]> {
        let claimed = Reader { rest: self.rest }.i32()?;
        let length = usize::try_from(claimed).unwrap_or(0);
        if length < DOCUMENT_BYTES_MIN || length > self.rest.len() {
            return Err(Error::new(
                ErrorCode::InvalidBSON,
                format!(
                    "Invalid BSON document size {claimed} where {} bytes are left",
                    self.rest.len()
                ),
            ));
        }
        let document = self.bytes(length)?;
        if document.last() != Some(&0) {
            return Err(Error::new(ErrorCode::InvalidBSON, "BSON document does not end in EOO"));
        }
        Ok(document)
    }
}

/// The documents of a run of them that has been checked.
#[derive(Clone)]
pub struct Documents<'a> {
    rest: Reader<'a>,
}

impl<'a> Documents<'a> {
    /// Checks that `bytes` are whole documents one after the other. Returns their number, too.
    pub(crate) fn checked(bytes: &'a [u8]) -> Result<(Self, usize)> {
        let all = Reader::new(bytes);
        let mut reader = all;
        let mut count = 0;
        while !reader.is_empty() {
            reader.document()?;
            count += 1;
        }
        Ok((Documents { rest: all }, count))
    }
}

impl<'a> Iterator for Documents<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() { None } else { self.rest.document().ok() }
    }
}
