//! MongoDB's wire protocol: framing and codecs, without I/O.
//!
//! Where it sits: above `base` only. It knows of a BSON document nothing but its length field and
//! its final zero; what is inside is the business of the layers above, who must validate it. Readers
//! borrow from the message and never copy; writers append to a buffer of the caller's. No input
//! makes a reader panic, and nothing is filled by a length that a peer merely claims.

mod compressed;
mod header;
mod message;
mod op_msg;
mod op_query;
pub mod op_reply;
mod reader;
mod writer;

pub use compressed::{Compressed, Compressor, compress};
pub use header::{HEADER_BYTES, Header, checked_length, claimed_length};
pub use message::{LegacyOp, Message, opcode};
pub use op_msg::{
    OpMsg, SEQUENCES_MAX, Sequence, duplicate_field, flags, flags_of, is_connection_fatal,
};
pub use op_query::{OpQuery, query_flags};
pub use op_reply::OpReply;
pub use reader::Documents;
pub use writer::{
    MsgWriter, ReplyWriter, SequenceWriter, begin_msg_of, begin_sequence_of, sequence_head_bytes,
    write_query,
};
