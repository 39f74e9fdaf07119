//! The engine's log as the log of a replica set: its commits in *frames*.
//!
//! A frame is one entry of the replicated log. It closes all units that were committed since the previous frame, so
//! the stored documents are the log's entries. It has a commit sequence of its own, behind those of its units.
//! An entry without documents (a new leader's, or a configuration) is a frame without units.
//!
//! Positions ascend: indexes by one, terms never fall. The replicated log assigns them; the engine keeps and finds
//! frames. Frames up to the *purged* position may be gone; all later ones can be read.

use crate::commit_ticket::CommitTicket;
use crate::error::StorageError;
use crate::pending_log::LogPosition;
use kauri_base::CommitSeq;

/// What a frame says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its position in the replicated log.
    pub position: LogPosition,
    /// The commit of its first unit; equal to `seq` if it has no units.
    pub first: CommitSeq,
    /// Its own commit sequence.
    pub seq: CommitSeq,
    /// The time of its first unit, as the caller counts it; the unit of commit `first + n` has time `time + n`.
    pub time: u64,
    /// Records of its units in the log, commit records included.
    pub records: u32,
    /// Bytes of these records in the log.
    pub bytes: u64,
    /// The caller's bytes.
    pub data: Vec<u8>,
}

/// One record of a frame's units as the log has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRecord {
    /// The kind, as the engine's format numbers it.
    pub kind: u8,
    /// Whether the record is a unit of its own.
    pub alone: bool,
    /// The collection; 0 where there is none.
    pub collection: u32,
    /// The record id; 0 where there is none.
    pub record: u64,
    /// The commit sequence of its unit.
    pub seq: CommitSeq,
    /// Its contents.
    pub payload: Vec<u8>,
}

/// Which frames there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameRange {
    /// Frames up to this one may be gone.
    pub purged: LogPosition,
    /// The last frame; equal to `purged` if there is none.
    pub last: LogPosition,
}

/// See the module's head.
pub trait ReplicatedLog: Send + Sync {
    /// The first frame will be the one behind this position; everything committed so far is what the members begin
    /// with. Durable when this returns. Refused with `OutOfOrder` if there are frames.
    fn begin_frames(&self, base: LogPosition) -> Result<(), StorageError>;

    /// Closes a frame with everything committed since the previous one. `OutOfOrder` unless its index is the next one
    /// and its term not lower than the previous one's. `time` is of its first unit.
    fn close_frame(
        &self,
        position: LogPosition,
        time: u64,
        data: &[u8],
    ) -> Result<(Frame, CommitTicket), StorageError>;

    /// Which frames there are.
    fn frames(&self) -> FrameRange;

    /// The term of a frame, also of the last purged one; `None` if it is gone or does not exist.
    fn term_of(&self, index: u64) -> Option<u64>;

    /// A frame with its units' records in their order, `None` if it is gone or does not exist. Blocks while it reads
    /// from the medium.
    fn read_frame(&self, index: u64) -> Result<Option<(Frame, Vec<FrameRecord>)>, StorageError>;

    /// Frames up to this index are not read any more, so that the engine may reuse their space.
    fn purge_frames(&self, index: u64) -> Result<(), StorageError>;
}
