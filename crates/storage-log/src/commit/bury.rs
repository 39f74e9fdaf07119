//! Deletes an unreadable record, for repair: a commit that checks only the record's place.

use crate::address::{Address, Slot};
use crate::core::Core;
use crate::format::RECORD_HEADER_BYTES;
use crate::format::record::{FLAG_ALONE, Kind, RecordHeader};
use crate::head::{Append, Appended, NotAppended};
use crate::lock;
use crate::segments::Purpose;
use kauri_base::sync::atomic::Ordering;
use kauri_base::{CollectionId, RecordId};
use kauri_storage::StorageError;

impl Core {
    /// Logs the deletion of a record without reading it. No other thread commits, and no snapshot is held. Sums
    /// over the collection are right again after the next start. `false` if the record does not exist.
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
            let (appended, address) = match self.append_tombstone(header) {
                Ok(appended) => appended,
                Err(NotAppended::Room(prepared_ever)) => {
                    drop(latch);
                    self.make_room(Purpose::Delete, prepared_ever)?;
                    continue;
                }
                Err(NotAppended::Held) => return Err(StorageError::FilesHeld),
                Err(NotAppended::Failed(error)) => return Err(error),
            };
            let slot = Slot::new(address, RECORD_HEADER_BYTES, true, 0);
            guard.enter();
            self.segments.add_live(slot);
            let old = store.slots.update(&guard, record.0, |old| Some(slot.with_copies_of(old)));
            self.segments.remove_live(old);
            store.physical.fetch_add(1, Ordering::AcqRel);
            guard.leave();
            self.head.publish(appended)?;
            return Ok(true);
        }
    }

    fn append_tombstone(
        &self,
        header: impl Fn(u64) -> RecordHeader,
    ) -> Result<(Appended<'_>, Address), NotAppended> {
        let mut head = self.begin(Append::Unit, [0].into_iter())?;
        let (address, _) = head.append(&header(head.seq()), &[])?;
        Ok((head.finish()?, address))
    }
}
