//! Moves the live records out of one segment.

use crate::address::{Address, Slot};
use crate::cleaning::Cleaner;
use crate::collection::Collection;
use crate::core::Core;
use crate::format::Stream;
use crate::format::record::{FLAG_ALONE, FLAG_MOVED, FLAG_OLD, Kind, RecordHeader};
use crate::reader::{Next, RawRecord, RecordReader};
use crate::slots::Swap;
use kauri_base::CollectionId;
use kauri_base::log::{self, Attr};
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_medium::Guard;
use kauri_storage::StorageError;
use std::time::Duration;

/// Moved bytes that are stored in one call. User writes to the file wait during the call.
const STORE_BYTES: u32 = 8 << 10;
/// Moved bytes after which the cleaner pauses.
const PAUSE_BYTES: u32 = 64 << 10;
/// Maximum pause per chunk: the cleaner need not exceed 100 MB/s unless space is scarce.
const PAUSE_MAX: Duration = Duration::from_micros(500);

/// The flags of a copy.
fn flags_in(stream: Stream) -> u8 {
    let old = if stream == Stream::CleanerOld { FLAG_OLD } else { 0 };
    FLAG_ALONE | FLAG_MOVED | old
}

impl Core {
    /// Moves what counts out of a segment. `false`: something in it can't be read, so it has to
    /// stay.
    pub(super) fn move_records(
        &self,
        cleaner: &mut Cleaner,
        victim: u32,
    ) -> Result<bool, StorageError> {
        let segment = self.segments.get(victim);
        if segment.live() == 0 {
            return Ok(true);
        }
        let guard = cleaner.guard.get_or_insert_with(|| self.domain.register());
        guard.enter();
        let result = self.move_all(cleaner, victim);
        cleaner.ages.end_victim();
        if let Some(guard) = &mut cleaner.guard {
            guard.leave();
        }
        result
    }

    fn move_all(&self, cleaner: &mut Cleaner, victim: u32) -> Result<bool, StorageError> {
        let segment = self.segments.get(victim);
        let mut reader = RecordReader::new(
            self.directory.medium(),
            self.directory.faults(),
            &self.segments,
            victim,
            segment.epoch(),
            segment.end(),
        );
        // Of damaged memory the kernel's answer is an error, a look the end.
        if !self.cache.is_direct() {
            reader = reader.with_memory(&self.cache, victim);
        }
        let resolution = self.pending.resolution();
        let (mut unstored, mut unpaused) = (0, 0);
        loop {
            let record = match reader.next().map_err(crate::io_error)? {
                Next::Finished => return Ok(true),
                Next::Bad(offset) => {
                    self.report_damage(victim, offset, None);
                    return Ok(false);
                }
                Next::Record(record) => record,
            };
            let address = Address { segment: victim, offset: record.offset };
            if record.header.kind == Kind::Resolution {
                self.move_resolution(cleaner, address, &record)?;
                continue;
            }
            let settled = resolution.settled(record.header.kind, record.header.seq);
            let Some(kind) = settled.filter(|kind| kind.is_member()) else { continue };
            let record = RawRecord { header: RecordHeader { kind, ..record.header }, ..record };
            let Some(owner) = self.owner(cleaner, address, &record.header) else { continue };
            if !record.payload_whole {
                self.report_damage(victim, record.offset, Some(&record.header));
                return Ok(false);
            }
            let bytes = record.header.record_bytes();
            let stream = self.cleaner_room(cleaner, victim, &record.header)?;
            self.move_record(cleaner, stream, &owner, address, &record)?;
            unstored += bytes;
            unpaused += bytes;
            if unstored >= STORE_BYTES {
                self.store_moved(cleaner)?;
                unstored = 0;
            }
            if unpaused >= PAUSE_BYTES {
                self.pause(cleaner);
                unpaused = 0;
            }
        }
    }

    /// Leaves processor and device to users, the more the less room is wanted.
    fn pause(&self, cleaner: &mut Cleaner) {
        let pause = PAUSE_MAX.mul_f64((1.0 - 2.0 * self.room_scarcity()).max(0.0));
        if !cleaner.paced || pause.is_zero() {
            return;
        }
        if let Some(guard) = &mut cleaner.guard {
            guard.leave();
            // The cleaner's pace; nothing is waited for.
            std::thread::sleep(pause);
            guard.enter();
        }
    }

    /// The collection of a record that counts and is at this place; `None` if it doesn't count.
    /// Forgets tombstones that nothing needs any more.
    fn owner(
        &self,
        cleaner: &Cleaner,
        address: Address,
        header: &RecordHeader,
    ) -> Option<Arc<Collection>> {
        let guard = cleaner.guard.as_ref()?;
        let collection = self.registry.store_or_grave(CollectionId(header.collection))?;
        let slot = match header.kind {
            Kind::CreateStore | Kind::DropStore => collection.own_record(),
            _ => collection.slots.load(guard, header.record),
        };
        if slot.is_none() || slot.address() != address {
            // Not the record, but perhaps what it was for somebody.
            let put = header.kind == Kind::Put;
            let kept = put && collection.versions.is_at(header.record, address);
            return kept.then_some(collection);
        }
        if slot.is_tombstone() && self.bury(guard, &collection, header.record, slot) {
            return None;
        }
        Some(collection)
    }

    /// Appends a copy and makes it the record, unless a writer was faster.
    fn move_record(
        &self,
        cleaner: &mut Cleaner,
        stream: Stream,
        collection: &Collection,
        from: Address,
        record: &RawRecord<'_>,
    ) -> Result<(), StorageError> {
        let Cleaner { outputs, guard: Some(guard), .. } = cleaner else { return Ok(()) };
        let Some(open) = outputs.of(stream) else { return Ok(()) };
        let header = RecordHeader { flags: flags_in(stream), ..record.header };
        let room = open.room();
        let (to, _) = open
            .append(&header, record.payload)
            .map_err(|error| self.fail("moving a record", error))?;
        open.publish(std::iter::empty(), "clean.copy.fence")
            .map_err(|error| self.fail("moving a record", error))?;
        let bytes = header.record_bytes();
        self.counters.moved_records.add(1);
        self.counters.moved_bytes.add(u64::from(bytes));
        if stream == Stream::CleanerOld {
            self.counters.moved_bytes_old.add(u64::from(bytes));
        }
        cleaner.work.moved += u64::from(room - open.room());
        let new = Slot::new(to, bytes, header.kind == Kind::Tombstone, 0);
        self.segments.add_live(new);
        if matches!(header.kind, Kind::CreateStore | Kind::DropStore) {
            self.switch_own_record(collection, header.kind, from, new);
            return Ok(());
        }
        collection.physical.fetch_add(1, Ordering::AcqRel);
        self.switch(guard, collection, &header, from, new);
        Ok(())
    }

    fn switch(
        &self,
        guard: &Guard,
        collection: &Collection,
        header: &RecordHeader,
        from: Address,
        new: Slot,
    ) {
        // The copy is physically there in any case, whether it becomes the record or not.
        let count = |slot: Slot| if header.kind == Kind::Put { slot.add_copy() } else { slot };
        let mut old = collection.slots.load(guard, header.record);
        loop {
            let here = !old.is_none() && old.address() == from;
            let word = if here { count(new.with_copies_of(old)) } else { count(old) };
            if old.is_none() {
                self.segments.remove_live(new);
                return;
            }
            match collection.slots.swap(guard, header.record, old, word) {
                Swap::Done if here => return self.segments.remove_live(old),
                Swap::Done => {
                    // A writer came between, or it was an old version before.
                    let kept = collection.versions.moved(header.record, from, new);
                    return self.segments.remove_live(kept.unwrap_or(new));
                }
                Swap::Other(other) => old = other,
            }
        }
    }

    fn switch_own_record(&self, collection: &Collection, kind: Kind, from: Address, new: Slot) {
        if kind == Kind::CreateStore {
            collection.physical.fetch_add(1, Ordering::AcqRel);
        }
        let old = collection.own_record();
        let here = !old.is_none() && old.address() == from;
        let swapped = here
            && collection
                .own_record
                .compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
        self.segments.remove_live(if swapped { old } else { new });
    }

    /// Moves the newest resolution record, unless a newer one exists.
    fn move_resolution(
        &self,
        cleaner: &mut Cleaner,
        from: Address,
        record: &RawRecord<'_>,
    ) -> Result<(), StorageError> {
        let old = self.pending.resolution_at();
        if old.is_none() || old.address() != from {
            return Ok(());
        }
        if !record.payload_whole {
            self.report_damage(from.segment, from.offset, Some(&record.header));
            return Err(StorageError::Corruption {
                collection: None,
                record: None,
                message: format!("the resolution record in segment {}", from.segment),
            });
        }
        let stream = self.cleaner_room(cleaner, from.segment, &record.header)?;
        let Some(open) = cleaner.outputs.of(stream) else { return Ok(()) };
        let header = RecordHeader { flags: flags_in(stream), ..record.header };
        let (to, _) = open
            .append(&header, record.payload)
            .map_err(|error| self.fail("moving a record", error))?;
        open.publish(std::iter::empty(), "clean.copy.fence")
            .map_err(|error| self.fail("moving a record", error))?;
        let new = Slot::new(to, header.record_bytes(), false, 0);
        self.segments.add_live(new);
        let moved = self.pending.move_resolution(old, new);
        self.segments.remove_live(if moved { old } else { new });
        Ok(())
    }

    fn report_damage(&self, segment: u32, offset: u32, header: Option<&RecordHeader>) {
        let mut attr = Attr::new().num("segment", segment).num("offset", offset);
        if let Some(header) = header {
            attr = attr.num("collection", header.collection).num("record", header.record);
        }
        log::error(
            "STORAGE",
            6_200_007,
            "log-cleaner",
            "Record is damaged; its segment cannot be cleaned. Stop the server and run kauri check",
            attr,
        );
    }
}
