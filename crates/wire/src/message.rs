//! A received message, by its opcode.

use crate::compressed::Compressed;
use crate::header::Header;
use crate::op_msg::OpMsg;
use crate::op_query::OpQuery;
use crate::op_reply::OpReply;
use crate::opcode;
use kauri_base::{Result, bail};

/// Opcodes that servers before 6.0 accepted and this one does not. Only OP_GET_MORE (like an OP_QUERY that is not a
/// command) expects a reply, and gets an error; the others end the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LegacyOp {
    /// OP_UPDATE.
    Update,
    /// OP_INSERT.
    Insert,
    /// OP_GET_MORE.
    GetMore,
    /// OP_DELETE.
    Delete,
    /// OP_KILL_CURSORS.
    KillCursors,
}

impl LegacyOp {
    fn from_opcode(op_code: i32) -> Option<Self> {
        Some(match op_code {
            2001 => LegacyOp::Update,
            2002 => LegacyOp::Insert,
            2005 => LegacyOp::GetMore,
            2006 => LegacyOp::Delete,
            2007 => LegacyOp::KillCursors,
            _ => return None,
        })
    }

    /// The name of the opcode.
    pub fn name(self) -> &'static str {
        match self {
            LegacyOp::Update => "OP_UPDATE",
            LegacyOp::Insert => "OP_INSERT",
            LegacyOp::GetMore => "OP_GET_MORE",
            LegacyOp::Delete => "OP_DELETE",
            LegacyOp::KillCursors => "OP_KILL_CURSORS",
        }
    }
}

/// A message by its opcode.
#[derive(Clone)]
pub enum Message<'a> {
    /// A command or its reply.
    Msg(OpMsg<'a>),
    /// A handshake, or an old driver's command.
    Query(OpQuery<'a>),
    /// The reply to `Query`; for clients.
    Reply(OpReply<'a>),
    /// Another message in compressed form.
    Compressed(Compressed<'a>),
    /// An unsupported opcode.
    Legacy(LegacyOp),
}

impl<'a> Message<'a> {
    /// Parses one whole message; its length in the header must be that of `bytes`.
    /// An error for which [`crate::is_connection_fatal`] holds ends the connection; any other is
    /// the reply.
    pub fn parse(bytes: &'a [u8]) -> Result<(Header, Self)> {
        let Some(header) = Header::parse(bytes) else {
            bail!(ProtocolError, "A message of {} bytes has no header", bytes.len());
        };
        if usize::try_from(header.length) != Ok(bytes.len()) {
            let length = header.length;
            bail!(ProtocolError, "Message length {length} in a message of {} bytes", bytes.len());
        }
        let message = match header.op_code {
            opcode::MSG => Message::Msg(OpMsg::parse(bytes)?),
            opcode::QUERY => Message::Query(OpQuery::parse(bytes)?),
            opcode::REPLY => Message::Reply(OpReply::parse(bytes)?),
            opcode::COMPRESSED => Message::Compressed(Compressed::parse(bytes)?),
            other => match LegacyOp::from_opcode(other) {
                Some(legacy) => Message::Legacy(legacy),
                None => bail!(ProtocolError, "Unknown opcode {other}"),
            },
        };
        Ok((header, message))
    }
}
