//! MongoDB's wire protocol: framing and codecs, without I/O.
//!
//! Position: above `base` only. Of a BSON document it knows only the length field and the final zero; the layers
//! above must validate the contents. Readers borrow from the message and never copy; writers append to the caller's
//! buffer. No input makes a reader panic, and no memory is allocated by a length that a peer only claims.

mod compressed;
mod header;
mod message;
mod op_msg;
mod op_query;
pub mod op_reply;
pub mod opcode;
mod reader;
mod writer;

pub use compressed::{Compressed, Compressor, compress};
pub use header::{HEADER_BYTES, Header, checked_length, claimed_length};
pub use message::{LegacyOp, Message};
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
