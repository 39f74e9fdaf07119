//! The cleaner's open segments, and which copy goes to which segment.
//!
//! Recently changed records will probably change again soon; old records will probably stay. With one stream for
//! each kind, segments of the first kind become empty by themselves, and segments of the second need no cleaning.
//!
//! Invariants:
//! - Bytes recorded as stored are in the kernel, per stream.
//! - Records never move from an old stream to a younger one. So a recovery that finds several copies can identify
//!   the last one, and emptied segments are free for recovery, too.

use crate::cleaning::Cleaner;
use crate::core::Core;
use crate::format::Stream;
use crate::format::record::RecordHeader;
use crate::segments::Purpose;
use kauri_storage::StorageError;

impl Core {
    /// The destination of a copy of a victim's record: makes sure that the stream's segment has space for it.
    pub(super) fn cleaner_room(
        &self,
        cleaner: &mut Cleaner,
        victim: u32,
        header: &RecordHeader,
    ) -> Result<Stream, StorageError> {
        let record_bytes = header.record_bytes();
        let age = self.visible().0.saturating_sub(header.seq);
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
        self.open_output(cleaner, wanted)?;
        if let Some(guard) = &mut cleaner.guard {
            guard.enter();
        }
        Ok(wanted)
    }

    /// Opens a stream's next segment.
    pub(super) fn open_output(
        &self,
        cleaner: &mut Cleaner,
        stream: Stream,
    ) -> Result<(), StorageError> {
        self.close_output(cleaner, stream)?;
        let opening = self.segments.begin_opening();
        let taken = self.segments.take(Purpose::Clean)?;
        *cleaner.outputs.of(stream) = Some(self.open_segment(&opening, taken, stream)?);
        drop(opening);
        Ok(())
    }

    /// Stores the moved records, in all streams.
    pub fn store_moved(&self, cleaner: &mut Cleaner) -> Result<(), StorageError> {
        for stream in Stream::CLEANER {
            let Some(open) = cleaner.outputs.of(stream) else { continue };
            let position = open.position();
            open.storer()
                .store_pending("clean.moved.persist")
                .map_err(|error| self.fail("storing moved records", error))?;
            self.durability.note_cleaner_stored(stream, position);
        }
        Ok(())
    }

    /// Seals a stream's segment.
    pub fn close_output(&self, cleaner: &mut Cleaner, stream: Stream) -> Result<(), StorageError> {
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
        self.durability.note_cleaner_stored(stream, position);
        Ok(())
    }

    /// For a clean shutdown: nothing is open any more.
    pub fn close_cleaner(&self) -> Result<(), StorageError> {
        let mut cleaner = self.cleaner.lock();
        Stream::CLEANER.into_iter().try_for_each(|stream| self.close_output(&mut cleaner, stream))
    }
}
