//! Which frames of the replicated log the user stream has, and where.
//!
//! Invariants:
//! - Indexes are consecutive, and so are commit sequences: a frame begins behind the previous one.
//! - A segment of the user stream that has a frame which is not purged is not emptied ([`Frames::retains`]).
//! - Frames are applied in order, only committed ones where the member follows; only applied and committed ones are
//!   purged.
//! - A position counts as purged only after the horizon has it, so any later header on the medium tells of it before
//!   the space of a purged frame is used again.
//!
//! Locks: `order`, then `applying`, come before all others; the state's lock is one of the short ones.

use crate::address::Address;
use crate::format::segment::{Position, Purged};
use crate::head::Unframed;
use crate::lock;
use kauri_base::sync::{Mutex, MutexGuard};
use kauri_storage::{FrameRange, LogPosition};
use std::collections::VecDeque;

/// See the module's head.
#[derive(Default)]
pub struct Frames {
    order: Mutex<()>,
    applying: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    purged: LogPosition,
    /// The last one that is durable on a quorum, as far as is known.
    committed: u64,
    /// The last one that is applied.
    applied: LogPosition,
    /// Those behind `purged`, in order.
    frames: VecDeque<FrameAt>,
    /// Where the next one begins; none where there is no replicated log.
    next: Option<Position>,
}

/// A frame in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameAt {
    /// Its position in the replicated log.
    pub position: LogPosition,
    /// The commit of its first unit.
    pub first: u64,
    /// Its commit sequence.
    pub seq: u64,
    /// Where the first of its units begins, or a place before that.
    pub start: Position,
    /// The epoch of the segment with its record.
    pub epoch: u64,
    /// The place of its record.
    pub at: Address,
    /// The place behind its record.
    pub end: u32,
}

/// What recovery has found of the replicated log.
#[derive(Default)]
pub struct FoundFrames {
    /// The frames up to this one may be gone.
    pub purged: Purged,
    /// Those behind it, in order.
    pub frames: VecDeque<FrameAt>,
    /// Records behind the last one.
    pub unframed: Unframed,
    /// Commits up to this one are applied.
    pub applied: u64,
}

impl FoundFrames {
    /// The last one.
    pub fn last(&self) -> (LogPosition, u64) {
        let last = self.frames.back().map(|frame| (frame.position, frame.seq));
        last.unwrap_or((self.purged.position, self.purged.seq))
    }
}

impl Frames {
    /// The frames of a log.
    pub fn new(found: FoundFrames) -> Self {
        let purged = found.purged.position;
        let next = (purged.index > 0).then_some(found.unframed.start);
        let applied = found.frames.iter().rfind(|frame| frame.seq <= found.applied);
        let applied = applied.map_or(purged, |frame| frame.position);
        let committed = applied.index;
        let state = State { purged, committed, applied, frames: found.frames, next };
        Frames { order: Mutex::default(), applying: Mutex::default(), state: Mutex::new(state) }
    }

    /// Held while a frame is appended, or frames are purged or cut off: one after the other.
    pub fn lock_order(&self) -> MutexGuard<'_, ()> {
        lock(&self.order)
    }

    /// Held while a frame is applied.
    pub fn lock_applying(&self) -> MutexGuard<'_, ()> {
        lock(&self.applying)
    }

    /// Which there are.
    pub fn range(&self) -> FrameRange {
        let state = lock(&self.state);
        let last = state.frames.back().map_or(state.purged, |frame| frame.position);
        FrameRange { purged: state.purged, last }
    }

    /// The log begins: the first frame is behind this position, and begins at this place.
    pub fn begin(&self, base: LogPosition, next: Position) {
        let mut state = lock(&self.state);
        (state.purged, state.next) = (base, Some(next));
        (state.committed, state.applied) = (base.index, base);
    }

    /// The log is none of a set any more.
    pub fn end(&self) {
        *lock(&self.state) = State::default();
    }

    /// Adds the next one.
    pub fn push(&self, frame: FrameAt) {
        let mut state = lock(&self.state);
        state.next = Some(Position { epoch: frame.epoch, offset: frame.end });
        state.frames.push_back(frame);
    }

    /// Where the first one begins, or a place before that.
    pub fn start(&self) -> Position {
        let state = lock(&self.state);
        let first = state.frames.front().map(|first| first.start);
        first.or(state.next).unwrap_or_default()
    }

    /// Whether there is a replicated log.
    pub fn has_begun(&self) -> bool {
        lock(&self.state).next.is_some()
    }

    /// Raises what is committed to this index, if there is such a frame. Answers its commit.
    pub fn commit(&self, index: u64) -> Option<u64> {
        let frame = self.get(index)?;
        let mut state = lock(&self.state);
        if index <= state.committed {
            return None;
        }
        state.committed = index;
        Some(frame.seq)
    }

    /// The last one that is committed.
    pub fn committed(&self) -> u64 {
        lock(&self.state).committed
    }

    /// The last one that is applied.
    pub fn applied(&self) -> LogPosition {
        lock(&self.state).applied
    }

    /// Notes that.
    pub fn set_applied(&self, position: LogPosition) {
        lock(&self.state).applied = position;
    }

    /// The next one to be applied, if it is committed.
    pub fn next_committed(&self) -> Option<FrameAt> {
        let (next, committed) = {
            let state = lock(&self.state);
            (state.applied.index + 1, state.committed)
        };
        self.get(next).filter(|_| next <= committed)
    }

    /// Forgets those behind this index, at whose end is this place.
    pub fn cut(&self, index: u64, end: Position) {
        let mut state = lock(&self.state);
        while state.frames.back().is_some_and(|frame| frame.position.index > index) {
            state.frames.pop_back();
        }
        state.next = Some(end);
    }

    /// The frame of an index.
    pub fn get(&self, index: u64) -> Option<FrameAt> {
        let state = lock(&self.state);
        let nth = index.checked_sub(state.frames.front()?.position.index)?;
        state.frames.get(usize::try_from(nth).ok()?).copied()
    }

    /// The first one and the last one.
    pub fn ends(&self) -> Option<(FrameAt, FrameAt)> {
        let state = lock(&self.state);
        state.frames.front().copied().zip(state.frames.back().copied())
    }

    /// The last one whose record is in a segment before this epoch; the purged one if there is none.
    pub fn last_before(&self, epoch: u64) -> u64 {
        let state = lock(&self.state);
        let older = state.frames.partition_point(|frame| frame.epoch < epoch);
        state.purged.index + older as u64
    }

    /// Forgets frames up to this one. The horizon has the position already.
    pub fn purge(&self, position: LogPosition) {
        let mut state = lock(&self.state);
        state.purged = position;
        while state.frames.front().is_some_and(|frame| frame.position.index <= position.index) {
            state.frames.pop_front();
        }
    }

    /// Whether a segment of the user stream of this epoch has to stay as it is.
    pub fn retains(&self, epoch: u64) -> bool {
        let state = lock(&self.state);
        let start = state.frames.front().map(|first| first.start).or(state.next);
        start.is_some_and(|start| epoch >= start.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(index: u64, epoch: u64) -> FrameAt {
        FrameAt {
            position: LogPosition { term: 2, index },
            first: 10 * index,
            seq: 10 * index + 9,
            start: Position { epoch, offset: 4096 },
            epoch,
            at: Address { segment: 1, offset: 8192 },
            end: 8256,
        }
    }

    #[test]
    fn frames_are_found_until_they_are_purged() {
        let purged = LogPosition { term: 1, index: 4 };
        let frames = Frames::new(FoundFrames::default());
        assert_eq!((frames.range(), frames.retains(u64::MAX)), (FrameRange::default(), false));
        frames.begin(purged, Position { epoch: 9, offset: 4096 });
        assert_eq!(frames.range(), FrameRange { purged, last: purged });
        assert!(frames.retains(9) && !frames.retains(8));
        assert!(frames.get(4).is_none() && frames.get(5).is_none());
        (5..=9).for_each(|index| frames.push(frame(index, 2 * index)));
        assert_eq!(frames.get(7), Some(frame(7, 14)));
        assert_eq!((frames.get(4), frames.get(10)), (None, None));
        assert!(frames.retains(10) && !frames.retains(9));
        assert_eq!([10, 11, 12, 99].map(|epoch| frames.last_before(epoch)), [4, 5, 5, 9]);
        let purged = LogPosition { term: 2, index: 7 };
        frames.purge(purged);
        assert_eq!(frames.range(), FrameRange { purged, last: LogPosition { term: 2, index: 9 } });
        assert_eq!((frames.get(7), frames.get(8)), (None, Some(frame(8, 16))));
        assert!(frames.retains(16) && !frames.retains(15));
        frames.purge(LogPosition { term: 2, index: 9 });
        assert!(frames.retains(18) && !frames.retains(17));
    }
}
