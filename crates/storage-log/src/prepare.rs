//! Opens segments.
//!
//! Invariants:
//! - A segment's new header is durable before anything else is stored in the segment, and before its old contents
//!   are considered gone.
//! - Segments are opened one at a time, so user segments are used in epoch order.

use crate::core::Core;
use crate::format::record::Kind;
use crate::format::segment::{HEADER_COPY_AT, SegmentHeader};
use crate::format::summary::Entry;
use crate::format::{SEGMENT_HEADER_BYTES, Stream};
use crate::open_segment::OpenSegment;
use crate::reader::{Contents, read_contents};
use crate::segments::{Opening, Purpose, Taken};
use kauri_base::CollectionId;
use kauri_base::sync::atomic::Ordering;
use kauri_medium::{Guard, SegmentWriter};
use kauri_storage::StorageError;

/// Appends a segment's header. In persistent memory nothing is atomic as long as a header, so the second copy is
/// written after the first is durable: at any time one copy has its old or its new contents.
fn append_header(writer: &mut SegmentWriter, header: &SegmentHeader) -> kauri_medium::Result<()> {
    let bytes = header.encode();
    let (first, copy) = bytes.split_at(HEADER_COPY_AT);
    writer.set_site("segment.header.lines");
    writer.append(&[first])?;
    writer.publish(std::iter::empty(), "segment.header.fence")?;
    writer.set_site("segment.header.copy.lines");
    writer.append(&[copy])?;
    writer.publish(std::iter::empty(), "segment.header.copy.fence")
}

impl Core {
    /// Prepares one more segment for user writes, unless there have been more than `prepared_ever` by
    /// the time it is our turn. May take long: called without any latch.
    pub fn prepare(&self, purpose: Purpose, prepared_ever: u64) -> Result<(), StorageError> {
        let opening = self.segments.begin_opening();
        if self.head.prepared_ever() > prepared_ever {
            return Ok(());
        }
        let taken = self.segments.take(purpose)?;
        let mut segment = self.open_segment(&opening, taken, Stream::User)?;
        if let Some((from, to)) = segment.take_memory_range() {
            segment.storer().populate(from, to);
        }
        self.head.add_prepared(segment);
        drop(opening);
        // Also where nobody waits for it: the next write finds room.
        if purpose == Purpose::Write {
            self.tell_room(true);
        }
        Ok(())
    }

    /// Opens a segment that was taken.
    pub fn open_segment(
        &self,
        opening: &Opening<'_>,
        taken: Taken,
        stream: Stream,
    ) -> Result<OpenSegment, StorageError> {
        let segment = taken.segment;
        let failed = |error| self.fail("opening a segment", error);
        let old = if taken.old_contents { self.old_contents(segment) } else { None };
        let epoch = opening.take_epoch();
        let mut writer = self.cache.open_segment(segment).map_err(failed)?;
        let header = SegmentHeader {
            segment,
            epoch,
            directory: self.directory.id(),
            segment_bytes: self.segments.segment_bytes(),
            stream,
            horizon: self.horizon(),
        };
        let horizon = header.horizon;
        append_header(&mut writer, &header).map_err(failed)?;
        debug_assert_eq!(writer.end(), SEGMENT_HEADER_BYTES);
        writer.set_site(match stream {
            // Nothing counts on an image, so it needs no label of its own.
            Stream::User | Stream::Image => "commit.lines",
            Stream::Cleaner | Stream::CleanerOld => "clean.moved.lines",
        });
        writer.store_pending("segment.header.persist").map_err(failed)?;
        self.sync_all("segment.header.drain")?;
        self.durability.note_told(&horizon);
        self.segments.has_header(segment);
        self.segments.get(segment).opened(epoch, stream);
        self.durability.note_opened(segment, epoch);
        self.counters.segments_opened.add(1);
        if let Some(old) = old {
            self.forget(&old);
        }
        Ok(OpenSegment::new(writer, epoch, self.segments.segment_bytes()))
    }

    /// The contents of a segment that will be overwritten. `None` if it is unreadable: then nothing is forgotten,
    /// and tombstones live longer than necessary.
    fn old_contents(&self, segment: u32) -> Option<Contents> {
        let epoch = self.segments.get(segment).epoch();
        let end = self.segments.get(segment).end();
        let (medium, faults) = (self.directory.medium(), self.directory.faults());
        let read = read_contents(medium, faults, &self.segments, segment, epoch, end);
        read.ok().map(|(contents, _)| contents)
    }

    /// Records that were physically in the log no longer are.
    fn forget(&self, contents: &Contents) {
        let mut guard = self.domain.register();
        guard.enter();
        let resolution = self.pending.resolution();
        contents.for_each(|entry| {
            if let Some(entry) = resolution.entry(entry) {
                self.forget_record(&guard, &entry);
            }
        });
    }

    fn forget_record(&self, guard: &Guard, entry: &Entry) {
        if !matches!(entry.kind, Kind::Put | Kind::Tombstone | Kind::CreateStore) {
            return;
        }
        let id = CollectionId(entry.collection);
        let Some(collection) = self.registry.store_or_grave(id) else { return };
        if entry.kind == Kind::Put && !collection.is_dropped() {
            let slots = &collection.slots;
            let before = slots.update(guard, entry.record, |slot| Some(slot.remove_copy()));
            let now = before.remove_copy();
            if now.is_tombstone() && now.copies() == 0 {
                self.bury(guard, &collection, entry.record, now);
            }
        }
        self.forget_physical(&collection);
    }

    /// A record of a collection is not in the log any more, or will never count.
    pub fn forget_physical(&self, collection: &crate::collection::Collection) {
        if collection.physical.fetch_sub(1, Ordering::AcqRel) == 1 && collection.is_dropped() {
            self.bury_store(collection);
        }
    }

    /// Forgets a tombstone that nothing needs any more, unless its id is the highest.
    pub fn bury(
        &self,
        guard: &Guard,
        collection: &crate::collection::Collection,
        record: u64,
        tombstone: crate::address::Slot,
    ) -> bool {
        let spent = tombstone.is_tombstone() && tombstone.copies() == 0;
        if !spent || record + 1 >= collection.slots.limit() {
            return false;
        }
        let buried = collection.slots.clear(guard, record, tombstone);
        if buried {
            self.segments.remove_live(tombstone);
        }
        buried
    }

    /// Forgets a dropped store of which no record is left.
    fn bury_store(&self, collection: &crate::collection::Collection) {
        self.registry.write().graves.remove(&collection.id);
        let own = crate::address::Slot(collection.own_record.swap(0, Ordering::AcqRel));
        if !own.is_none() {
            self.segments.remove_live(own);
        }
    }
}
