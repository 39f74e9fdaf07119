//! Opcodes that this server reads or writes.

/// OP_REPLY.
pub const REPLY: i32 = 1;
/// OP_QUERY.
pub const QUERY: i32 = 2004;
/// OP_COMPRESSED.
pub const COMPRESSED: i32 = 2012;
/// OP_MSG.
pub const MSG: i32 = 2013;
