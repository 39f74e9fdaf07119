//! Ending a record that can't be read, for repair: a commit that looks at nothing but its place.

use super::Unpublished;
use crate::address::Slot;
use crate::core::Core;
use crate::format::RECORD_HEADER_BYTES;
use crate::format::record::{FLAG_ALONE, Kind, RecordHeader};
use crate::lock;
use crate::segments::Purpose;
use kauri_base::sync::atomic::Ordering;
use kauri_base::{CollectionId, RecordId};
use kauri_storage::StorageError;

impl Core {
    /// Logs the end of a record, whatever is there. Nobody else commits, and no snapshot is held; sums
    /// over the collection are right again after the next start. `false` if there is no such record.
    pub fn bury_damaged(
        &self,
        collection: CollectionId,
        record: RecordId,
    ) -> Result<bool, StorageError> {
        self.check_alive()?;
        let store =
            self.registry.store(collection).ok_or(StorageError::StaleCatalog(collection))?;
        let header = |seq| RecordHeader {
            kind: Kind::Tombstone,
            flags: FLAG_ALONE,
            payload_len: 0,
            payload_crc: crc32c::crc32c(&[]),
            collection: collection.0,
            record: record.0,
            seq,
        };
        let mut guard = self.domain.register();
        guard.enter();
        let is_live = store.slots.load(&guard, record.0).is_live();
        guard.leave();
        if !is_live {
            return Ok(false);
        }
        loop {
            let latch = lock(&store.latch);
            let mut head = lock(&self.head);
            if !head.fits([0].into_iter()) {
                let prepared_ever = head.prepared_ever();
                drop((head, latch));
                self.make_room(Purpose::Delete, prepared_ever)?;
                continue;
            }
            let unpublished = Unpublished(self);
            let seq = head.next_seq();
            let appended = head.append(&header(seq), &[]);
            let appended = appended.and_then(|at| head.publish("commit.fence").map(|()| at));
            drop(head);
            let (address, _) =
                appended.map_err(|error| self.fail("appending to the log", error))?;
            let slot = Slot::new(address, RECORD_HEADER_BYTES, true, 0);
            guard.enter();
            self.segments.add_live(slot);
            let old = store.slots.update(&guard, record.0, |old| Some(slot.with_copies_of(old)));
            self.segments.remove_live(old);
            store.physical.fetch_add(1, Ordering::AcqRel);
            guard.leave();
            std::mem::forget(unpublished);
            self.publish(seq)?;
            return Ok(true);
        }
    }
}
