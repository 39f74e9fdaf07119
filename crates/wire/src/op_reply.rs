//! OP_REPLY: the reply to OP_QUERY.
//!
//! ```text
//! header (16) | responseFlags u32 | cursorID i64 | startingFrom i32 | numberReturned i32
//! | document ...
//! ```

use crate::header::HEADER_BYTES;
use crate::reader::{Documents, Reader};
use kauri_base::{Result, bail};

/// The query failed: the one document says why in `$err`.
pub const QUERY_FAILURE: u32 = 1 << 1;
/// The server can await data; always set.
pub const AWAIT_CAPABLE: u32 = 1 << 3;

/// A parsed OP_REPLY, borrowing from the message.
#[derive(Clone)]
pub struct OpReply<'a> {
    /// The flags as they came.
    pub response_flags: u32,
    /// The cursor that has more; 0 for none.
    pub cursor_id: i64,
    /// Number of documents.
    pub count: usize,
    documents: Documents<'a>,
}

impl<'a> OpReply<'a> {
    /// Parses a whole message. The caller has seen to it that the header says OP_REPLY.
    pub fn parse(message: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(message);
        reader.bytes(HEADER_BYTES)?;
        let response_flags = reader.u32()?;
        let cursor_id = reader.i64()?;
        let _starting_from = reader.i32()?;
        let number_returned = reader.i32()?;
        let (documents, count) = Documents::checked(reader.rest())?;
        if usize::try_from(number_returned) != Ok(count) {
            bail!(ProtocolError, "OP_REPLY says {number_returned} documents and has {count}");
        }
        Ok(OpReply { response_flags, cursor_id, count, documents })
    }

    /// Its documents in order.
    pub fn documents(&self) -> Documents<'a> {
        self.documents.clone()
    }
}
