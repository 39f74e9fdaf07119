//! The cleaner's open segments, and which copy goes to which.
//!
//! What was changed lately will soon be changed again, what has been as it is for long will stay so. Kept
//! apart, segments of the one kind empty themselves, and those of the other need not be moved.
//!
//! Invariants:
//! - `cleaner_written` never tells of more than what was given to the kernel, stream by stream.
//! - Nothing goes back from old to young. So a recovery that finds several copies can tell the last one,
//!   and segments that have been emptied are free for it too.

use super::Cleaner;
use crate::core::Core;
use crate::format::Stream;
use crate::format::record::RecordHeader;
use crate::format::segment::{CleanerPositions, Position};
use crate::head::OpenSegment;
use crate::lock;
use crate::segments::Purpose;
use kauri_base::sync::atomic::Ordering;
use kauri_storage::StorageError;

/// How much the newest victim counts in the mean age.
const MEAN_WEIGHT: f64 = 1.0 / 32.0;

/// A segment of each stream.
#[derive(Default)]
pub struct Outputs {
    young: Option<OpenSegment>,
    old: Option<OpenSegment>,
}

impl Outputs {
    pub(super) fn of(&mut self, stream: Stream) -> &mut Option<OpenSegment> {
        match stream {
            Stream::CleanerOld => &mut self.old,
            _ => &mut self.young,
        }
    }

    fn fits(&mut self, stream: Stream, record_bytes: u32) -> bool {
        self.of(stream).as_ref().is_some_and(|open| open.fits(u64::from(record_bytes), 1))
    }
}

/// Learns which records are old: those that have not been changed for longer than the others that are
/// moved, on the mean. So it follows the load, and needs nothing from before a restart.
#[derive(Default)]
pub struct Ages {
    mean: Option<f64>,
    sum: f64,
    count: u32,
}

impl Ages {
    /// Whether a record of this age, in commits, is old.
    fn take(&mut self, age: u64) -> bool {
        self.sum += age as f64;
        self.count += 1;
        self.mean.is_some_and(|mean| age as f64 > mean)
    }

    /// A victim's records have all been seen.
    pub(super) fn end_victim(&mut self) {
        let of_victim = self.sum / f64::from(self.count.max(1));
        if self.count > 0 {
            let mean = self.mean.unwrap_or(of_victim);
            self.mean = Some(mean + (of_victim - mean) * MEAN_WEIGHT);
        }
        (self.sum, self.count) = (0.0, 0);
    }
}

impl Core {
    /// Where the copy of a record of a victim goes: makes sure that there is room for it in that
    /// stream's segment.
    pub(super) fn cleaner_room(
        &self,
        cleaner: &mut Cleaner,
        victim: u32,
        header: &RecordHeader,
    ) -> Result<Stream, StorageError> {
        let record_bytes = header.record_bytes();
        let age = self.visible.load(Ordering::Acquire).saturating_sub(header.seq);
        let old = cleaner.ages.take(age);
        let sorts = self.segments.usage().count >= self.options.sort_segments_min;
        let was_old = self.segments.get(victim).stream() == Stream::CleanerOld;
        let (wanted, other) = match was_old || old && sorts {
            true => (Stream::CleanerOld, Stream::Cleaner),
            false => (Stream::Cleaner, Stream::CleanerOld),
        };
        if cleaner.outputs.fits(wanted, record_bytes) {
            return Ok(wanted);
        }
        // Order is worth less than the last segments.
        let shares = !was_old && !self.segments.has_more_than_reserve();
        if shares && cleaner.outputs.fits(other, record_bytes) {
            return Ok(other);
        }
        // Nothing is pinned while a segment is opened.
        if let Some(guard) = &mut cleaner.guard {
            guard.leave();
        }
        self.close_output(cleaner, wanted)?;
        let preparing = lock(&self.preparing);
        let taken = self.segments.take(Purpose::Clean)?;
        *cleaner.outputs.of(wanted) = Some(self.open_segment(taken, wanted)?);
        drop(preparing);
        if let Some(guard) = &mut cleaner.guard {
            guard.enter();
        }
        Ok(wanted)
    }

    /// Gives what was moved to the kernel, in all streams.
    pub(super) fn store_moved(&self, cleaner: &mut Cleaner) -> Result<(), StorageError> {
        for stream in Stream::CLEANER {
            let Some(open) = cleaner.outputs.of(stream) else { continue };
            let position = open.position();
            open.storer()
                .store_pending("clean.moved.persist")
                .map_err(|error| self.fail("storing moved records", error))?;
            self.note_written(stream, position);
        }
        Ok(())
    }

    fn note_written(&self, stream: Stream, position: Position) {
        let mut written = lock(&self.cleaner_written);
        let of_streams: &mut CleanerPositions = &mut written;
        for (of, written) in Stream::CLEANER.into_iter().zip(of_streams) {
            if of == stream {
                *written = position;
            }
        }
    }

    /// Seals a stream's segment.
    fn close_output(&self, cleaner: &mut Cleaner, stream: Stream) -> Result<(), StorageError> {
        let Some(mut open) = cleaner.outputs.of(stream).take() else { return Ok(()) };
        if open.is_unused() {
            // Its header says that it is the cleaner's; the next start finds nothing in it.
            return Ok(());
        }
        cleaner.work.gaps += u64::from(open.room());
        let failed = |error: StorageError| self.fail("sealing a segment", error);
        open.append_end(open.seq_max()).map_err(failed)?;
        let position = open.position();
        self.seal(open)?;
        self.note_written(stream, position);
        Ok(())
    }

    /// For a clean shutdown: nothing is open any more.
    pub fn close_cleaner(&self) -> Result<(), StorageError> {
        let mut cleaner = lock(&self.cleaner);
        Stream::CLEANER.into_iter().try_for_each(|stream| self.close_output(&mut cleaner, stream))
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
