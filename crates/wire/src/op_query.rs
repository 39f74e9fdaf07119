//! OP_QUERY: the handshake of drivers that do not know the server's version yet, and commands to `<db>.$cmd` of old
//! drivers.
//!
//! ```text
//! header (16) | flags u32 | namespace cstring | numberToSkip i32 | numberToReturn i32
//! | query document | fields document, optional
//! ```

use crate::header::HEADER_BYTES;
use crate::reader::Reader;
use kauri_base::{Result, bail};

/// Flag bits.
pub mod query_flags {
    /// `slaveOk`, `secondaryOk`: a secondary may answer.
    pub const SECONDARY_OK: u32 = 1 << 2;
}

const TYPE_DOCUMENT: u8 = 3;

/// A parsed OP_QUERY, borrowing from the message.
#[derive(Clone, Copy, Debug)]
pub struct OpQuery<'a> {
    /// The flags as they came.
    pub flags: u32,
    /// `db.collection`, or `db.$cmd` for a command.
    pub namespace: &'a str,
    /// Documents to leave out.
    pub number_to_skip: i32,
    /// Documents wanted in the first reply; -1 for commands.
    pub number_to_return: i32,
    /// The query or command as it came: whole by its own length, and not validated further.
    pub query: &'a [u8],
    /// The projection, if there is one.
    pub fields: Option<&'a [u8]>,
}

impl<'a> OpQuery<'a> {
    /// Parses a whole message. The caller has seen to it that the header says OP_QUERY.
    pub fn parse(message: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(message);
        reader.bytes(HEADER_BYTES)?;
        let flags = reader.u32()?;
        let namespace = reader.cstring()?;
        let number_to_skip = reader.i32()?;
        let number_to_return = reader.i32()?;
        let query = reader.document()?;
        let fields = if reader.is_empty() { None } else { Some(reader.document()?) };
        if !reader.is_empty() {
            bail!(ProtocolError, "OP_QUERY message has bytes after its last document");
        }
        Ok(OpQuery { flags, namespace, number_to_skip, number_to_return, query, fields })
    }

    /// The database, if this is a command.
    pub fn command_database(&self) -> Option<&'a str> {
        self.namespace.strip_suffix(".$cmd").filter(|database| !database.is_empty())
    }

    /// The command itself: drivers with a read preference wrap it as `{$query: command, ...}` (old
    /// ones as `{query: ...}`).
    pub fn command(&self) -> &'a [u8] {
        wrapped(self.query).unwrap_or(self.query)
    }
}

/// The document that is the first field of `document`, if that field is called `$query` or `query`.
fn wrapped(document: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(document);
    reader.i32().ok()?;
    if reader.u8().ok()? != TYPE_DOCUMENT {
        return None;
    }
    let name = reader.cstring().ok()?;
    if name != "$query" && name != "query" {
        return None;
    }
    reader.document().ok()
}
