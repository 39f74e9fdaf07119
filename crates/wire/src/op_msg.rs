//! OP_MSG: the message of current drivers, for requests and replies.
//!
//! ```text
//! header (16) | flags u32 | section ... | checksum u32 if flagged
//! section kind 0: one document, the body
//! section kind 1: size i32 | identifier cstring | document ...   size counts itself
//! ```

use crate::header::HEADER_BYTES;
use crate::reader::{Documents, Reader};
use kauri_base::{Error, ErrorCode, Result, bail};

/// Bits of the flags field.
pub mod flags {
    /// The message ends in a CRC-32C.
    pub const CHECKSUM_PRESENT: u32 = 1;
    /// Another message follows without a reply in between; in a request: no reply is expected.
    pub const MORE_TO_COME: u32 = 1 << 1;
    /// The client takes several replies to this request.
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;

    /// Bits that a reader must understand, or refuse the message.
    pub(super) const REQUIRED: u32 = 0xFFFF;
    pub(super) const REQUIRED_KNOWN: u32 = CHECKSUM_PRESENT | MORE_TO_COME;
}

const CHECKSUM_BYTES: usize = 4;
/// Maximum number of document sequences in a message, as in MongoDB.
pub const SEQUENCES_MAX: usize = 2;
const SECTION_BODY: u8 = 0;
const SECTION_SEQUENCE: u8 = 1;

/// A document sequence: an array of documents outside of the body, without the array's overhead.
#[derive(Clone)]
pub struct Sequence<'a> {
    /// The name of the field that it stands for.
    pub identifier: &'a str,
    /// Number of documents.
    pub count: usize,
    documents: Documents<'a>,
}

impl<'a> Sequence<'a> {
    /// Its documents in order; each is framed by its own length, and not validated further.
    pub fn documents(&self) -> Documents<'a> {
        self.documents.clone()
    }
}

/// A parsed OP_MSG, borrowing from the message.
#[derive(Clone)]
pub struct OpMsg<'a> {
    /// The flags as they came, unknown optional bits included.
    pub flags: u32,
    /// The body: whole by its own length, and not validated further.
    pub body: &'a [u8],
    sequences: [Option<Sequence<'a>>; SEQUENCES_MAX],
}

impl<'a> OpMsg<'a> {
    /// Parses a whole message. The caller has checked that the header says OP_MSG.
    ///
    /// Only a reader of BSON can detect a sequence whose name is also a field of the body: [`duplicate_field`]
    /// makes that error.
    pub fn parse(message: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(message);
        reader.bytes(HEADER_BYTES)?;
        let flags = reader.u32()?;
        if flags & flags::REQUIRED & !flags::REQUIRED_KNOWN != 0 {
            bail!(IllegalOpMsgFlag, "Message contains illegal flags value: Ob{flags:032b}");
        }
        let sections = check_checksum(message, flags)?;
        let mut msg = OpMsg { flags, body: &[], sequences: [None, None] };
        let mut reader = Reader::new(sections);
        while !reader.is_empty() {
            match reader.u8()? {
                SECTION_BODY => {
                    if !msg.body.is_empty() {
                        bail!(40430, "Multiple body sections in message");
                    }
                    msg.body = reader.document()?;
                }
                SECTION_SEQUENCE => msg.add_sequence(&mut reader)?,
                kind => bail!(40432, "Unknown section kind {kind}"),
            }
        }
        if msg.body.is_empty() {
            bail!(40587, "OP_MSG messages must have a body");
        }
        Ok(msg)
    }

    fn add_sequence(&mut self, reader: &mut Reader<'a>) -> Result<()> {
        let size = reader.i32()?;
        let Some(rest) = usize::try_from(size).ok().and_then(|size| size.checked_sub(4)) else {
            bail!(Overflow, "Invalid document sequence size {size}");
        };
        let mut section = Reader::new(reader.bytes(rest)?);
        let identifier = section.cstring()?;
        if self.sequences().any(|sequence| sequence.identifier == identifier) {
            bail!(40431, "Duplicate document sequence: {identifier}");
        }
        let (documents, count) = Documents::checked(section.rest())?;
        match self.sequences.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(Sequence { identifier, count, documents }),
            None => bail!(TooManyDocumentSequences, "Too many document sequences in OP_MSG"),
        }
        Ok(())
    }

    /// The document sequences, in the order in which they came.
    pub fn sequences(&self) -> impl Iterator<Item = &Sequence<'a>> {
        self.sequences.iter().flatten()
    }

    /// Whether the sender wants no answer.
    pub fn is_fire_and_forget(&self) -> bool {
        self.flags & flags::MORE_TO_COME != 0
    }

    /// Whether the sender takes several replies.
    pub fn allows_exhaust(&self) -> bool {
        self.flags & flags::EXHAUST_ALLOWED != 0
    }
}

/// Checks and removes the checksum, if there is one. The rest are the sections.
fn check_checksum(message: &[u8], flags: u32) -> Result<&[u8]> {
    let sections = message.get(HEADER_BYTES + 4..).unwrap_or_default();
    if flags & flags::CHECKSUM_PRESENT == 0 {
        return Ok(sections);
    }
    let Some(end) = sections.len().checked_sub(CHECKSUM_BYTES).filter(|end| *end > 0) else {
        bail!(51251, "Invalid message size for an OpMsg containing a checksum");
    };
    let (sections, _) = sections.split_at(end);
    let (covered, checksum) = message.split_at(message.len() - CHECKSUM_BYTES);
    if Reader::new(checksum).u32()? != crc32c::crc32c(covered) {
        bail!(ChecksumMismatch, "OP_MSG checksum does not match contents");
    }
    Ok(sections)
}

/// The flags of a message that is perhaps not well-formed, for deciding how to answer an error:
/// a sender that wants no answer gets none.
pub fn flags_of(message: &[u8]) -> u32 {
    crate::header::read_i32(message, HEADER_BYTES).map_or(0, |flags| flags as u32)
}

/// The error for a name that is both a field of the body and a sequence.
pub fn duplicate_field(identifier: &str) -> Error {
    Error::location(
        40433,
        format!("Duplicate field between body and document sequence {identifier}"),
    )
}

/// Whether this error of parsing a message is answered by closing the connection, since it shows
/// that the two sides don't understand each other.
pub fn is_connection_fatal(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::IllegalOpMsgFlag
            | ErrorCode::TooManyDocumentSequences
            | ErrorCode::ChecksumMismatch
            | ErrorCode::ProtocolError
    )
}
