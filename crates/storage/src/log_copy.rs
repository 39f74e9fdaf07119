//! A copy of an engine's files that is made while writes go on: the base of a backup, or of a member's initial sync.
//!
//! The copy has everything up to one commit, which was durable when the copy began, and nothing later. It opens as the
//! engine would after a power loss behind that commit, as the same data directory. Of a replicated log it has the frames
//! that are not purged.

use crate::error::StorageError;
use kauri_base::CommitSeq;

/// Bytes of the log file that a copy needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyPart {
    /// Where they begin in the file.
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
}

/// See the module's head. Until it is dropped the engine uses no space again that it needs, so the log grows, and no end
/// of a replicated log is cut off.
pub trait LogCopy: Send + Sync {
    /// The last commit that it has.
    fn seq(&self) -> CommitSeq;

    /// Files to be written as they are: name and contents.
    fn files(&self) -> &[(&'static str, Vec<u8>)];

    /// The name and the length of the log file. What is in none of the parts is zero, or a hole.
    fn log_file(&self) -> (&'static str, u64);

    /// The parts of the log file, in order.
    fn parts(&self) -> &[CopyPart];

    /// Bytes of a part: `offset` is one of the log file. Blocks while it reads from the medium.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StorageError>;
}
