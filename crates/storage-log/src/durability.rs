//! What of the log is durable, stream by stream, and the marks that tell so on the medium. The one place that says
//! how far the horizon, the marks and the cleaner may go.
//!
//! Invariants:
//! - The horizon tells of nothing that is not durable, and only grows, except with [`Durability::cut`].
//! - It tells of a commit as one of all members ([`Horizon::committed`]) only if that is so.
//! - Marks and segment headers tell a horizon that comes from here, so they never pass it.
//! - The cleaner empties only what a [`Bound`] covers: what is durable, has been applied, and stays so.

use crate::format::Stream;
use crate::format::segment::{CleanerPositions, Horizon, Position, Purged};
use crate::lock;
use crate::marks::Marks;
use kauri_base::sync::Mutex;
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use kauri_storage::LogPosition;
use std::time::Duration;

/// See the module's head.
pub struct Durability {
    horizon: Mutex<Horizon>,
    /// The last commit up to which a horizon on the medium says that a start applies: it is durable.
    told: AtomicU64,
    /// How far the cleaner's streams are stored.
    cleaner_stored: Mutex<CleanerPositions>,
    /// None where there can't be a mark file.
    marks: Option<Marks>,
}

impl Durability {
    /// All this is durable.
    pub fn new(horizon: Horizon, marks: Option<Marks>) -> Self {
        Durability {
            cleaner_stored: Mutex::new(horizon.cleaner()),
            told: AtomicU64::new(horizon.applied(u64::MAX)),
            horizon: Mutex::new(horizon),
            marks,
        }
    }

    /// What is known to be durable; of the log's segments so many have had a durable header.
    pub fn horizon(&self, initialised: u32) -> Horizon {
        let mut horizon = *lock(&self.horizon);
        horizon.segments = horizon.segments.max(initialised);
        horizon
    }

    /// As [`Durability::horizon`], where the log is memory and everything up to this commit and place of the head has
    /// been published, which makes it durable.
    pub fn horizon_of_memory(&self, seq: u64, head: Position, initialised: u32) -> Horizon {
        let cleaner = self.cleaner_stored();
        let mut durable = lock(&self.horizon);
        durable.seq = seq;
        durable.raise_stream(Stream::User, head);
        durable.raise_cleaner(&cleaner);
        drop(durable);
        self.horizon(initialised)
    }

    /// A replicated log begins: the horizon that tells so is not on the medium yet.
    pub fn begin_frames(&self, base: Purged) {
        self.note_purged(base);
        self.told.store(0, Ordering::Release);
    }

    /// The replicated log ends with this commit: everything counts as in a log that never was one.
    pub fn end_frames(&self, seq: u64) {
        self.note_purged(Purged { position: LogPosition::default(), seq });
    }

    /// Frames of the replicated log up to this one are given up: whatever is told of the horizon tells of that.
    pub fn note_purged(&self, purged: Purged) {
        lock(&self.horizon).raise_purged(purged);
    }

    /// Frames of the replicated log up to this commit are durable on a quorum.
    pub fn note_committed(&self, seq: u64) {
        let mut horizon = lock(&self.horizon);
        horizon.committed = horizon.committed.max(seq);
    }

    /// The last commit that a start applies once the medium tells the horizon; without a replicated log all of them.
    pub fn committed(&self) -> u64 {
        lock(&self.horizon).applied(u64::MAX)
    }

    /// A horizon is on the medium, durably.
    pub fn note_told(&self, horizon: &Horizon) {
        self.told.fetch_max(horizon.applied(u64::MAX), Ordering::AcqRel);
    }

    /// The last commit that the next start applies for certain; without a replicated log all of them.
    pub fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// The log has been cut off: this is durable, and nothing behind it counts. The first epoch behind the cut is told
    /// with it.
    pub fn cut(&self, horizon: Horizon, epoch_next: u64) {
        *lock(&self.horizon) = horizon;
        if let Some(marks) = &self.marks {
            marks.cut(epoch_next);
        }
    }

    /// A drain has returned. This had been stored before it began.
    pub fn drained(&self, seq: u64, user: Position, cleaner: &CleanerPositions) {
        let mut durable = lock(&self.horizon);
        durable.seq = durable.seq.max(seq);
        durable.raise_stream(Stream::User, user);
        durable.raise_cleaner(cleaner);
    }

    /// How far the cleaner's streams are with the kernel.
    pub fn cleaner_stored(&self) -> CleanerPositions {
        *lock(&self.cleaner_stored)
    }

    /// One of these streams is with the kernel up to this place.
    pub fn note_cleaner_stored(&self, stream: Stream, position: Position) {
        let stored = &mut *lock(&self.cleaner_stored);
        for (of, stored) in Stream::CLEANER.into_iter().zip(stored) {
            if of == stream {
                *stored = position;
            }
        }
    }

    /// Stores a mark of this horizon.
    pub fn store_mark(&self, horizon: impl FnOnce() -> Horizon) {
        if let Some(marks) = &self.marks {
            marks.store(horizon());
        }
    }

    /// A segment has a durable header of this epoch.
    pub fn note_opened(&self, segment: u32, epoch: u64) {
        if let Some(marks) = &self.marks {
            marks.opened(segment, epoch);
        }
    }

    /// Whether there are marks.
    pub fn has_marks(&self) -> bool {
        self.marks.is_some()
    }

    /// Whether it is time for [`Durability::sync_marks`]. Asked once a commit interval.
    pub fn is_mark_sync_due(&self, now: Duration) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.is_due(now))
    }

    /// Makes durable what marks tell. Answers whether that took a sync.
    pub fn sync_marks(&self, now: Duration) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.sync(now))
    }
}

/// Up to where the log is settled.
pub struct Bound {
    horizon: Horizon,
    visible: u64,
    committed: u64,
}

impl Bound {
    /// Of this horizon, with all commits up to this one applied.
    pub fn new(horizon: Horizon, visible: u64) -> Self {
        Bound { committed: horizon.applied(u64::MAX), horizon, visible }
    }

    /// Whether a stream is durable up to this place.
    pub fn covers(&self, stream: Stream, end: Position) -> bool {
        end <= self.horizon.stream(stream)
    }

    /// Whether every unit up to this one has been applied, and will never be cut off.
    pub fn covers_commit(&self, seq: u64) -> bool {
        seq <= self.visible.min(self.committed)
    }

    /// The last commit that is durable.
    pub fn durable_seq(&self) -> u64 {
        self.horizon.seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, offset: u32) -> Position {
        Position { epoch, offset }
    }

    #[test]
    fn what_the_cleaner_has_stored_is_durable_after_a_drain_that_began_later() {
        let durability = Durability::new(Horizon::default(), None);
        let before = durability.cleaner_stored();
        durability.note_cleaner_stored(Stream::CleanerOld, at(3, 4096));
        // A drain that had begun before tells nothing of it.
        durability.drained(7, at(2, 512), &before);
        let horizon = durability.horizon(5);
        assert_eq!((horizon.seq, horizon.segments), (7, 5));
        assert_eq!(horizon.stream(Stream::User), at(2, 512));
        assert_eq!(horizon.stream(Stream::CleanerOld), Position::default());
        durability.drained(7, at(2, 512), &durability.cleaner_stored());
        assert_eq!(durability.horizon(5).stream(Stream::CleanerOld), at(3, 4096));
        assert_eq!(durability.horizon(5).stream(Stream::Cleaner), Position::default());
    }

    #[test]
    fn the_horizon_does_not_go_back() {
        let durability = Durability::new(Horizon::default(), None);
        durability.drained(7, at(2, 512), &durability.cleaner_stored());
        durability.drained(6, at(1, 4096), &durability.cleaner_stored());
        let horizon = durability.horizon(0);
        assert_eq!((horizon.seq, horizon.stream(Stream::User)), (7, at(2, 512)));
    }

    #[test]
    fn a_bound_covers_what_is_durable_and_applied() {
        let durability = Durability::new(Horizon::default(), None);
        durability.drained(7, at(2, 512), &durability.cleaner_stored());
        let bound = Bound::new(durability.horizon(0), 6);
        assert!(bound.covers(Stream::User, at(1, 4096)) && bound.covers(Stream::User, at(2, 512)));
        assert!(!bound.covers(Stream::User, at(2, 513)));
        assert!(!bound.covers(Stream::Cleaner, at(1, 8)));
        assert!(bound.covers_commit(6) && !bound.covers_commit(7), "durable, but not applied");
    }
}
