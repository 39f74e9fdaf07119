//! What the cleaner knows from round to round: where its copies go, which records are old, and whether moving them
//! gains anything.

use crate::format::Stream;
use crate::lock;
use crate::open_segment::OpenSegment;
use crate::wake::Wake;
use kauri_base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use kauri_base::sync::{Mutex, MutexGuard};
use kauri_medium::Guard;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of victims after which the gain of cleaning is judged: they must have given the space of one segment.
const JUDGED_VICTIMS: u64 = 16;
/// The same for dense victims: with cold segments that are 98 % live it takes fifty to free one.
const JUDGED_DENSE_VICTIMS: u64 = 128;
/// Victims are dense if more than this percentage of their room is moved.
const DENSE_PERCENT: u64 = 90;

/// Weight of the newest victim in the mean age.
const MEAN_WEIGHT: f64 = 1.0 / 32.0;

/// The cleaner's part of the engine.
#[derive(Default)]
pub struct Cleaning {
    round: Mutex<Cleaner>,
    wake: Wake,
    freed: Wake,
    /// Whether there are emptied segments that wait for commits.
    has_emptied: AtomicBool,
    /// Copies of the log that are being made.
    copies: AtomicUsize,
}

impl Cleaning {
    /// Notes whether emptied segments wait until commits of the replicated log are committed.
    pub fn set_emptied(&self, some: bool) {
        self.has_emptied.store(some, Ordering::SeqCst);
    }

    /// A copy of the log begins: no segment is given back. With the round's lock held.
    pub fn begin_copy(&self) {
        self.copies.fetch_add(1, Ordering::SeqCst);
    }

    /// It has ended.
    pub fn end_copy(&self) {
        self.copies.fetch_sub(1, Ordering::SeqCst);
        self.wake();
    }

    /// Whether there are such. Exact, if one has begun, with the round's lock held.
    pub fn is_copied(&self) -> bool {
        self.copies.load(Ordering::SeqCst) > 0
    }

    /// More is committed: wakes the cleaner if that was waited for.
    pub fn note_committed(&self) {
        if self.has_emptied.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Held during a round.
    pub fn lock(&self) -> MutexGuard<'_, Cleaner> {
        lock(&self.round)
    }

    /// Wakes the cleaner's thread.
    pub fn wake(&self) {
        self.wake.wake();
    }

    /// The cleaner's thread waits until it is woken or the time has passed.
    pub fn wait_for_work(&self, timeout: Duration) {
        self.wake.wait(timeout);
    }

    /// Wakes a writer that waits for a free segment.
    pub fn note_freed(&self) {
        self.freed.wake();
    }

    /// A writer waits until a segment is free or the time has passed.
    pub fn wait_for_freed(&self, timeout: Duration) {
        self.freed.wait(timeout);
    }
}

/// The state of cleaning.
#[derive(Default)]
pub struct Cleaner {
    /// The destinations of copies.
    pub outputs: Outputs,
    /// Emptied segments that are not given back yet, each with the last commit that had begun to be applied by then.
    pub emptied: VecDeque<(u64, u32)>,
    /// Which records are old.
    pub ages: Ages,
    /// What keeps memory in place during a round.
    pub guard: Option<Guard>,
    /// Whether no writer waits for this round, so that it can pause.
    pub paced: bool,
    /// What it took and gave so far.
    pub work: Work,
    /// The work done when it was last judged.
    judged: Work,
    /// Until segments of this epoch have been opened the cleaner moves nothing: large records can lie
    /// so that moving them gains nothing. Writers that need room still try.
    pause_until: u64,
}

impl Cleaner {
    /// Whether moving records is given up until segments of a later epoch have been opened.
    pub fn is_paused(&self, epoch_next: u64) -> bool {
        epoch_next < self.pause_until
    }

    /// Judges the work since it was last judged, if it is enough for that.
    pub fn judge(&mut self, segment_room: u64, epoch_next: u64) {
        let work = self.work.since(self.judged);
        let hopeless = work.is_hopeless(segment_room);
        if hopeless {
            self.pause_until = epoch_next + JUDGED_VICTIMS;
        }
        if hopeless || work.emptied >= JUDGED_DENSE_VICTIMS {
            self.judged = self.work;
        }
    }
}

/// What cleaning took and gave, in bytes of [`OpenSegment::room`].
///
/// [`OpenSegment::room`]: crate::open_segment::OpenSegment::room
#[derive(Clone, Copy, Default)]
pub struct Work {
    /// Segments emptied.
    pub emptied: u64,
    /// Room that copies took.
    pub moved: u64,
    /// Room that was left at the ends of segments when the next copy didn't fit.
    pub gaps: u64,
}

impl Work {
    pub fn since(self, before: Work) -> Work {
        Work {
            emptied: self.emptied - before.emptied,
            moved: self.moved - before.moved,
            gaps: self.gaps - before.gaps,
        }
    }

    /// Whether it was enough to be judged, and gained next to nothing: dense segments give little each,
    /// but many of them give something; large records that leave gaps wherever they are never do.
    /// `segment_room` is that of an empty segment.
    pub fn is_hopeless(self, segment_room: u64) -> bool {
        let emptied = self.emptied * segment_room;
        let dense = self.moved > emptied / 100 * DENSE_PERCENT;
        let judged = if dense { JUDGED_DENSE_VICTIMS } else { JUDGED_VICTIMS };
        let gained = emptied.saturating_sub(self.moved + self.gaps);
        self.emptied >= judged && gained < emptied / judged
    }
}

/// A segment of each stream.
#[derive(Default)]
pub struct Outputs {
    young: Option<OpenSegment>,
    old: Option<OpenSegment>,
}

impl Outputs {
    /// The open one of a stream.
    pub fn of(&mut self, stream: Stream) -> &mut Option<OpenSegment> {
        match stream {
            Stream::CleanerOld => &mut self.old,
            _ => &mut self.young,
        }
    }

    /// Whether there is room for a record.
    pub fn fits(&mut self, stream: Stream, record_bytes: u32) -> bool {
        self.of(stream).as_ref().is_some_and(|open| open.fits(u64::from(record_bytes), 1))
    }
}

/// Learns which records are old: those unchanged for longer than the mean of moved records. So it follows the load,
/// and needs no state from before a restart.
#[derive(Default)]
pub struct Ages {
    mean: Option<f64>,
    sum: f64,
    count: u32,
}

impl Ages {
    /// Whether a record of this age, in commits, is old.
    pub fn take(&mut self, age: u64) -> bool {
        self.sum += age as f64;
        self.count += 1;
        self.mean.is_some_and(|mean| age as f64 > mean)
    }

    /// A victim's records have all been seen.
    pub fn end_victim(&mut self) {
        let of_victim = self.sum / f64::from(self.count.max(1));
        if self.count > 0 {
            let mean = self.mean.unwrap_or(of_victim);
            self.mean = Some(mean + (of_victim - mean) * MEAN_WEIGHT);
        }
        (self.sum, self.count) = (0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_mean_is_old() {
        let mut ages = Ages::default();
        assert!(!ages.take(1_000_000), "nothing to compare with");
        ages.take(0);
        ages.end_victim();
        assert!(ages.take(500_001) && !ages.take(499_999));
        ages.end_victim();
        ages.end_victim();
        // The load has changed: all that is moved is younger.
        for _ in 0..500 {
            ages.take(90);
            ages.take(110);
            ages.end_victim();
        }
        assert!(ages.take(105) && !ages.take(95));
    }
}
