//! Cuts off the end of a replicated log, as a recovery does that finds the log's end: by a cut in the metadata file.
//!
//! All streams leave their segments and everything is made durable. Then the metadata file with the cut replaces the
//! one before, in one step. Later segments have epochs behind the cut. Nothing points into what is cut off, unless some
//! of it was applied: then the engine ends, and the next start does the rest.

use crate::acks::End;
use crate::cleaning::Cleaner;
use crate::core::Core;
use crate::format::Stream;
use crate::format::meta::Cut;
use crate::format::segment::{Horizon, Position};
use crate::open_segment::OpenSegment;
use crate::segments::State;
use kauri_storage::{StorageError, Truncated};

impl Core {
    /// Cuts off everything behind the frame of this index, which exists or is the last purged one. With the order of
    /// frames held, on a member that follows.
    pub fn cut_off(&self, index: u64) -> Result<Truncated, StorageError> {
        let (seq, end) = self.end_of(index);
        if self.head.last() == seq {
            return Ok(Truncated::Done);
        }
        let Some(_work) = self.files.enter() else { return Err(StorageError::FilesHeld) };
        let mut cleaner = self.cleaner.lock();
        if self.cleaner.is_copied() {
            return Err(StorageError::FilesHeld);
        }
        let opening = self.segments.begin_opening();
        let unused = self.leave_segments(&mut cleaner)?;
        let syncing = self.flushing.lock_syncing();
        self.drain("truncate.drain")?;
        let mut horizon = self.durability.horizon(self.segments.initialised());
        horizon.seq = seq;
        horizon.streams[Stream::User as usize] = end;
        let epoch_next = self.segments.epoch_next();
        let cut = Cut { epoch_next, seq, streams: horizon.streams };
        let noted = self.directory.note_cut(cut, horizon, epoch_next);
        // It may have happened or not.
        noted.map_err(|error| self.fail("cutting off the log", error))?;
        let is_applied = self.visible().0 > seq;
        if is_applied {
            self.acks.end(End::CutOff);
        }
        self.forget_end(index, (seq, end), (horizon, epoch_next));
        if is_applied {
            return Ok(Truncated::AtNextStart);
        }
        for (segment, epoch) in self.user_segments(end.epoch, epoch_next) {
            if epoch == end.epoch {
                self.segments.get(segment).sealed(end.offset, seq);
            } else if !unused.contains(&segment) {
                self.discard(segment)?;
            }
        }
        unused.into_iter().try_for_each(|segment| self.discard(segment))?;
        drop((syncing, opening, cleaner));
        self.domain.collect();
        self.domain.collect();
        Ok(Truncated::Done)
    }

    /// The commit of a frame, or of the last purged one, and the place behind it.
    fn end_of(&self, index: u64) -> (u64, Position) {
        if let Some(frame) = self.frames.get(index) {
            return (frame.seq, Position { epoch: frame.epoch, offset: frame.end });
        }
        let purged = self.durability.horizon(0).purged.seq;
        (purged, self.frames.start())
    }

    /// Leaves and seals all open segments. Answers those without records.
    fn leave_segments(&self, cleaner: &mut Cleaner) -> Result<Vec<u32>, StorageError> {
        self.head.close()?;
        self.flush_now()?;
        self.seal_full()?;
        let mut unused: Vec<OpenSegment> = self.head.take_prepared().into();
        for stream in Stream::CLEANER {
            let output = cleaner.outputs.of(stream);
            match output.take_if(|open| open.is_unused()) {
                Some(open) => unused.push(open),
                None => self.close_output(cleaner, stream)?,
            }
        }
        let seal = |mut open: OpenSegment| {
            let number = open.segment;
            open.append_end(0)?;
            self.seal(open).map(|()| number)
        };
        unused.into_iter().map(seal).collect()
    }

    /// Nothing in memory knows any more of what is cut off.
    fn forget_end(&self, index: u64, (seq, end): (u64, Position), cut: (Horizon, u64)) {
        let staging = self.staging.as_ref().map(|staging| staging.pause());
        self.with_flushing(|stored| {
            self.head.cut(seq, end, || self.durability.cut(cut.0, cut.1));
            stored.cut(seq, end);
            self.flushing.forget_asked(seq);
            self.acks.cut(seq);
        });
        drop(staging);
        self.frames.cut(index, end);
    }

    /// Frees a segment that nothing points into, and in which nothing counts.
    fn discard(&self, segment: u32) -> Result<(), StorageError> {
        self.segments.get(segment).sealed(0, 0);
        self.segments.get(segment).set_state(State::Emptying);
        self.give_back(segment)
    }
}
