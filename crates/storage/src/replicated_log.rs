//! The engine's log as the log of a replica set: its commits in *frames*.
//!
//! A frame is one entry of the replicated log. It closes all units that were committed since the previous frame, so
//! the stored documents are the log's entries. It has a commit sequence of its own, behind those of its units.
//! An entry without documents (a new leader's, or a configuration) is a frame without units.
//!
//! Positions ascend: indexes by one, terms never fall. The replicated log assigns them; the engine keeps and finds
//! frames. Frames up to the *purged* position may be gone; all later ones can be read.
//!
//! A *leader* applies its units when it commits them, before their frame exists. A *follower* appends frames as the
//! leader has them, with the leader's record ids and commit sequences, and applies them once they are *committed*:
//! readers see nothing of them before. All members have the same commit sequences. After a start, whatever has not
//! been told to be committed is not applied, and units without a frame are gone.
//!
//! Units without records (indexes, definition numbers) are of this member alone: they need no role, no frame has them,
//! and a follower's owner commits them itself when it sees what was applied.

use crate::commit_ticket::CommitTicket;
use crate::error::StorageError;
use crate::pending_log::LogPosition;
use crate::unit::WriteUnit;
use kauri_base::{CollectionId, CommitSeq, RecordId};

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

/// A change of a record that a follower has applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedChange {
    /// The collection.
    pub collection: CollectionId,
    /// The record; 0 if the collection itself was created or dropped.
    pub record: RecordId,
    /// What happened.
    pub kind: AppliedKind,
}

/// What a follower has applied to a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum AppliedKind {
    Inserted,
    Updated,
    Deleted,
    StoreCreated,
    StoreDropped,
}

/// Told of each unit that a follower applies, as soon as readers see it. It may commit units without records.
pub trait AppliedUnits {
    /// A unit was applied.
    fn applied(&mut self, seq: CommitSeq, changes: &[AppliedChange]) -> Result<(), StorageError>;
}

/// Whether the end of a log could be cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Truncated {
    /// It is done, and durable.
    Done,
    /// Some of it was applied. It is gone after the next start; the engine accepts nothing more.
    AtNextStart,
}

/// Room that a unit lacks: what an engine has said of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoomWanted {
    /// For new documents, and not for what frees more than it takes.
    pub for_documents: bool,
    /// How much room there has been ever.
    pub before: u64,
}

/// See the module's head.
pub trait ReplicatedLog: Send + Sync {
    /// The first frame will be the one behind this position; everything committed so far is what the members begin
    /// with. Durable when this returns. Refused with `OutOfOrder` if there are frames.
    fn begin_frames(&self, base: LogPosition) -> Result<(), StorageError>;

    /// The log is none of a set any more: everything in it counts, units need no frames, and another replicated log may
    /// begin. Durable when this returns. Refused with `OutOfOrder` unless the member leads, and while units are
    /// committed. Nothing happens if there is none.
    fn end_frames(&self) -> Result<(), StorageError>;

    /// As [`StorageEngine::commit`](crate::StorageEngine::commit), for a caller that keeps frames from being closed:
    /// does not wait for room, which may come only with the next frame.
    fn commit_in_room(
        &self,
        unit: &mut WriteUnit<'_>,
    ) -> Result<Result<CommitTicket, RoomWanted>, StorageError>;

    /// Waits until there may be room for a unit that had none, or answers why there is none. The caller keeps no frames
    /// from being closed.
    fn wait_for_room(&self, wanted: RoomWanted) -> Result<(), StorageError>;

    /// Closes a frame with everything committed since the previous one. `OutOfOrder` unless its index is the next one
    /// and its term not lower than the previous one's. `time` is of its first unit. A member that follows may close one,
    /// too: of the units that it has committed while it led, which are applied, or without units, which is not.
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

    /// A frame without its units' records, as [`ReplicatedLog::read_frame`].
    fn read_frame_alone(&self, index: u64) -> Result<Option<Frame>, StorageError>;

    /// Bytes of the caller's that a frame can have.
    fn frame_data_bytes_max(&self) -> usize;

    /// The last frame that is older than the log's newest bytes, of which there are this many or somewhat more; the
    /// purged one if there is none.
    fn frames_before(&self, bytes: u64) -> u64;

    /// Bytes that frames take in the log, and the number of their commits, frames included; somewhat more.
    fn frames_extent(&self) -> (u64, u64);

    /// Frames up to this index are not read any more, so that the engine may reuse their space. Nothing beyond what is
    /// committed is purged.
    fn purge_frames(&self, index: u64) -> Result<(), StorageError>;

    /// Accepts units from now on: the member leads. `OutOfOrder` unless all frames are applied.
    fn lead(&self) -> Result<(), StorageError>;

    /// Accepts no more units, which answer `NotPrimary`, except those without records. When this returns no unit is
    /// under way. A log with frames begins in this state.
    fn follow(&self);

    /// Appends a frame and its units as another member has them, not applied. `OutOfOrder` unless it is the next one,
    /// its term is not lower than the previous one's, its units follow the last one in the log, and there are no units
    /// without a frame; or if this member leads. `Corruption` if the records are not what the frame says, or not
    /// whole units. The ticket is of the frame's own commit sequence.
    fn append_frame(
        &self,
        frame: &Frame,
        records: &[FrameRecord],
    ) -> Result<CommitTicket, StorageError>;

    /// Frames up to this index are durable on a quorum. Indexes beyond the last frame, and lower ones than before, are
    /// ignored. What the next start knows of this may be older.
    fn commit_frames(&self, index: u64);

    /// The last index that is known to be committed.
    fn committed(&self) -> u64;

    /// Applies the next frame if it is committed, unit by unit, and answers its position; `None` if there is none to
    /// apply. Blocks while it reads from the medium. After an error nothing more can be applied: the engine ends.
    fn apply_frame(
        &self,
        units: &mut dyn AppliedUnits,
    ) -> Result<Option<LogPosition>, StorageError>;

    /// The last frame whose units readers see. A leader's own frames are applied when they are closed.
    fn applied(&self) -> LogPosition;

    /// Cuts off the frames behind this index, and units without a frame. `OutOfOrder` below what is committed, or while
    /// the member leads.
    fn truncate_frames(&self, index: u64) -> Result<Truncated, StorageError>;
}
