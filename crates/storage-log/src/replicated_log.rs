//! The engine as a replicated log: see [`ReplicatedLog`].
//!
//! | module | holds |
//! |---|---|
//! | [`crate::frames`] | which frames there are |
//! | [`crate::frame_reader`], [`crate::frame_writer`] | reading and appending them |
//! | `crate::commit::apply_frames` | applying them |
//! | [`crate::cut_off`] | cutting off the log's end |

use crate::core::Core;
use crate::format::segment::Purged;
use crate::head::NotAppended;
use crate::segments::Purpose;
use kauri_storage::{
    AppliedUnits, CommitTicket, Frame, FrameRange, FrameRecord, LogPosition, ReplicatedLog,
    RoomWanted, StorageError, Truncated, WriteUnit,
};

impl ReplicatedLog for Core {
    fn begin_frames(&self, base: LogPosition) -> Result<(), StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        if self.frames.has_begun() || base.index == 0 {
            return Err(StorageError::OutOfOrder);
        }
        let next = loop {
            match self.head.begin_frames(&self.surroundings(false), base) {
                Ok(next) => break next,
                Err(NotAppended::Room(prepared_ever)) => {
                    self.make_room(Purpose::Delete, prepared_ever)?;
                }
                Err(NotAppended::Held) => return Err(StorageError::FilesHeld),
                Err(NotAppended::Failed(error)) => return Err(error),
            }
        };
        self.frames.begin(base, next);
        self.sync_all("commit.drain")?;
        self.durability.note_told(&self.horizon());
        Ok(())
    }

    fn end_frames(&self) -> Result<(), StorageError> {
        self.check_alive()?;
        let last = self.frames.range().last;
        if !self.frames.has_begun() {
            return Ok(());
        }
        if self.head.follows() {
            return Err(StorageError::OutOfOrder);
        }
        // It has the units without a frame. What was purged is of an earlier commit.
        let position = LogPosition { index: last.index + 1, ..last };
        let (frame, _) = self.append_own_frame(position, 0, &[])?;
        self.sync_all("commit.drain")?;
        let _order = self.frames.lock_order();
        let is_ended = loop {
            match self.head.end_frames(&self.surroundings(false), frame.seq.0) {
                Ok(is_ended) => break is_ended,
                Err(NotAppended::Room(prepared_ever)) => {
                    self.make_room(Purpose::Delete, prepared_ever)?;
                }
                Err(NotAppended::Held) => return Err(StorageError::FilesHeld),
                Err(NotAppended::Failed(error)) => return Err(error),
            }
        };
        if !is_ended {
            return Err(StorageError::OutOfOrder);
        }
        self.frames.end();
        self.sync_all("commit.drain")?;
        self.durability.note_told(&self.horizon());
        self.cleaner.wake();
        Ok(())
    }

    fn commit_in_room(
        &self,
        unit: &mut WriteUnit<'_>,
    ) -> Result<Result<CommitTicket, RoomWanted>, StorageError> {
        let committed = self.commit_once(unit, None)?;
        Ok(committed.map(|seq| self.acks.tickets(seq)))
    }

    fn wait_for_room(&self, wanted: RoomWanted) -> Result<(), StorageError> {
        let purpose = if wanted.for_documents { Purpose::Write } else { Purpose::Delete };
        self.make_room(purpose, wanted.before)
    }

    fn close_frame(
        &self,
        position: LogPosition,
        time: u64,
        data: &[u8],
    ) -> Result<(Frame, CommitTicket), StorageError> {
        self.append_own_frame(position, time, data)
    }

    fn frames(&self) -> FrameRange {
        self.frames.range()
    }

    fn term_of(&self, index: u64) -> Option<u64> {
        let purged = self.frames.range().purged;
        if index == purged.index {
            return Some(purged.term);
        }
        self.frames.get(index).map(|frame| frame.position.term)
    }

    fn read_frame(&self, index: u64) -> Result<Option<(Frame, Vec<FrameRecord>)>, StorageError> {
        let Some(at) = self.frames.get(index) else { return Ok(None) };
        let read = self.read_placed(&at);
        // While it was read it may have been purged or cut off, and its space used again.
        if self.frames.get(index) != Some(at) {
            return Ok(None);
        }
        read.map(|(frame, records)| {
            Some((frame, records.into_iter().map(|(_, record)| record).collect()))
        })
    }

    fn read_frame_alone(&self, index: u64) -> Result<Option<Frame>, StorageError> {
        let Some(at) = self.frames.get(index) else { return Ok(None) };
        let read = self.read_placed_alone(&at);
        if self.frames.get(index) != Some(at) {
            return Ok(None);
        }
        read.map(Some)
    }

    fn frame_data_bytes_max(&self) -> usize {
        self.data_bytes_max()
    }

    fn frames_before(&self, bytes: u64) -> u64 {
        let range = self.frames.range();
        let Some(last) = self.frames.get(range.last.index) else { return range.purged.index };
        let segments = self.user_segments(0, last.epoch);
        // The last one is not full.
        let kept = bytes.div_ceil(u64::from(self.segments.segment_bytes())) as usize + 1;
        let first_kept = segments.len().checked_sub(kept).and_then(|at| segments.get(at));
        first_kept.map_or(range.purged.index, |(_, epoch)| self.frames.last_before(*epoch))
    }

    fn frames_extent(&self) -> (u64, u64) {
        let Some((first, last)) = self.frames.ends() else { return (0, 0) };
        let segments = self.user_segments(first.start.epoch, last.epoch).len() as u64;
        (segments * u64::from(self.segments.segment_bytes()), last.seq + 1 - first.first)
    }

    fn purge_frames(&self, index: u64) -> Result<(), StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        let most = self.frames.committed().min(self.frames.applied().index);
        let Some(frame) = self.frames.get(index.min(most)) else { return Ok(()) };
        // The log has to end behind what is purged, whatever happens.
        if frame.seq > self.acks.durable() {
            self.sync_all("commit.drain")?;
        }
        self.durability.note_purged(Purged { position: frame.position, seq: frame.seq });
        self.frames.purge(frame.position);
        self.cleaner.wake();
        Ok(())
    }

    fn lead(&self) -> Result<(), StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        let _applying = self.frames.lock_applying();
        let is_applied = self.frames.has_begun() && self.head.set_follows(false, &self.acks);
        if is_applied { Ok(()) } else { Err(StorageError::OutOfOrder) }
    }

    fn follow(&self) {
        if self.frames.has_begun() {
            self.head.set_follows(true, &self.acks);
        }
    }

    fn append_frame(
        &self,
        frame: &Frame,
        records: &[FrameRecord],
    ) -> Result<CommitTicket, StorageError> {
        self.append_copied_frame(frame, records)
    }

    fn commit_frames(&self, index: u64) {
        if let Some(seq) = self.frames.commit(index) {
            self.durability.note_committed(seq);
            self.cleaner.note_committed();
        }
    }

    fn committed(&self) -> u64 {
        self.frames.committed()
    }

    fn apply_frame(
        &self,
        units: &mut dyn AppliedUnits,
    ) -> Result<Option<LogPosition>, StorageError> {
        self.apply_next_frame(units)
    }

    fn applied(&self) -> LogPosition {
        self.frames.applied()
    }

    fn truncate_frames(&self, index: u64) -> Result<Truncated, StorageError> {
        self.check_alive()?;
        let _order = self.frames.lock_order();
        let _applying = self.frames.lock_applying();
        let index = index.min(self.frames.range().last.index);
        if !self.head.follows() || index < self.frames.committed() {
            return Err(StorageError::OutOfOrder);
        }
        self.cut_off(index)
    }
}
