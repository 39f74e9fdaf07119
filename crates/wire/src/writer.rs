//! Writes messages directly into the caller's buffer, so that a reply is built in the buffer that is sent. Lengths
//! are filled in when the message ends.

use crate::header::{HEADER_BYTES, Header};
use crate::opcode;
use kauri_base::limits::MESSAGE_BYTES_MAX;
use kauri_base::{Result, bail};

/// Begins an OP_MSG: header, flags and the body's section kind. The caller appends the body, one
/// document, to `out`, and then ends the message with [`MsgWriter::finish`].
#[must_use = "a message that is not finished has no length"]
#[derive(Debug)]
pub struct MsgWriter {
    start: usize,
    checksum: bool,
}

/// An open document sequence.
#[must_use = "a sequence that is not finished has no length"]
#[derive(Debug)]
pub struct SequenceWriter {
    size_at: usize,
}

fn begin(out: &mut Vec<u8>, request_id: i32, response_to: i32, op_code: i32) -> usize {
    let start = out.len();
    out.extend_from_slice(&Header { length: 0, request_id, response_to, op_code }.to_bytes());
    start
}

fn patch_i32(out: &mut [u8], at: usize, value: usize) {
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&(value as i32).to_le_bytes());
    }
}

fn finish(out: &mut [u8], start: usize) -> Result<()> {
    let length = out.len() - start;
    if length > MESSAGE_BYTES_MAX {
        bail!(
            BSONObjectTooLarge,
            "Message of {length} bytes exceeds the maximum of {MESSAGE_BYTES_MAX}"
        );
    }
    patch_i32(out, start, length);
    Ok(())
}

impl MsgWriter {
    /// Begins a message at the end of `out`. With `CHECKSUM_PRESENT` in `flags`, `finish` appends
    /// the checksum.
    pub fn begin(out: &mut Vec<u8>, request_id: i32, response_to: i32, flags: u32) -> Self {
        let start = begin(out, request_id, response_to, opcode::MSG);
        out.extend_from_slice(&flags.to_le_bytes());
        out.push(0);
        MsgWriter { start, checksum: flags & crate::flags::CHECKSUM_PRESENT != 0 }
    }

    /// The beginning of the message in the buffer.
    pub fn start(&self) -> usize {
        self.start
    }

    /// After the body: begins a document sequence. The caller appends documents to `out`.
    pub fn begin_sequence(&self, out: &mut Vec<u8>, identifier: &str) -> SequenceWriter {
        out.push(1);
        let size_at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(identifier.as_bytes());
        out.push(0);
        SequenceWriter { size_at }
    }

    /// Ends the message: sets its length, and its checksum if it has one. Fails if it exceeds the maximum length.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<()> {
        if self.checksum {
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            finish(out, self.start)?;
            let checksum = crc32c::crc32c(out.get(self.start..at).unwrap_or_default());
            out.truncate(at);
            out.extend_from_slice(&checksum.to_le_bytes());
            return Ok(());
        }
        finish(out, self.start)
    }
}

impl SequenceWriter {
    /// Ends the sequence.
    pub fn finish(self, out: &mut [u8]) {
        patch_i32(out, self.size_at, out.len() - self.size_at);
    }
}

/// An OP_MSG whose body's length is known beforehand: appends all that comes before the body, with
/// the final length in the header, so that the body may leave piece by piece. No checksum. If sections
/// follow, they count as the body's.
pub fn begin_msg_of(
    out: &mut Vec<u8>,
    request_id: i32,
    response_to: i32,
    flags: u32,
    body_bytes: usize,
) -> Result<()> {
    const BEFORE_BODY: usize = HEADER_BYTES + 4 + 1;
    let length = BEFORE_BODY + body_bytes;
    if length > MESSAGE_BYTES_MAX {
        bail!(
            BSONObjectTooLarge,
            "Message of {length} bytes exceeds the maximum of {MESSAGE_BYTES_MAX}"
        );
    }
    let flags = flags & !crate::flags::CHECKSUM_PRESENT;
    let writer = MsgWriter::begin(out, request_id, response_to, flags);
    patch_i32(out, writer.start, length);
    Ok(())
}

/// Bytes of a document sequence before its documents.
pub fn sequence_head_bytes(identifier: &str) -> usize {
    1 + 4 + identifier.len() + 1
}

/// A document sequence whose documents' length is known beforehand: appends all that comes before them.
pub fn begin_sequence_of(out: &mut Vec<u8>, identifier: &str, document_bytes: usize) {
    out.push(1);
    let size = sequence_head_bytes(identifier) - 1 + document_bytes;
    out.extend_from_slice(&(size as i32).to_le_bytes());
    out.extend_from_slice(identifier.as_bytes());
    out.push(0);
}

/// Begins an OP_REPLY; the caller appends its documents to `out` and calls
/// [`ReplyWriter::finish`].
#[must_use = "a message that is not finished has no length"]
#[derive(Debug)]
pub struct ReplyWriter {
    start: usize,
}

impl ReplyWriter {
    /// Begins a reply of `documents` documents with these `response_flags`
    /// ([`crate::op_reply`] names them).
    pub fn begin(
        out: &mut Vec<u8>,
        request_id: i32,
        response_to: i32,
        response_flags: u32,
        cursor_id: i64,
        documents: i32,
    ) -> Self {
        let start = begin(out, request_id, response_to, opcode::REPLY);
        out.extend_from_slice(&response_flags.to_le_bytes());
        out.extend_from_slice(&cursor_id.to_le_bytes());
        out.extend_from_slice(&0i32.to_le_bytes());
        out.extend_from_slice(&documents.to_le_bytes());
        ReplyWriter { start }
    }

    /// Ends the reply: its length.
    pub fn finish(self, out: &mut [u8]) -> Result<()> {
        finish(out, self.start)
    }
}

/// Appends a whole OP_QUERY, as drivers' first messages are.
pub fn write_query(
    out: &mut Vec<u8>,
    request_id: i32,
    flags: u32,
    namespace: &str,
    number_to_return: i32,
    query: &[u8],
) -> Result<()> {
    let start = begin(out, request_id, 0, opcode::QUERY);
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(namespace.as_bytes());
    out.push(0);
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(&number_to_return.to_le_bytes());
    out.extend_from_slice(query);
    finish(out, start)
}
