//! Reads records through the cache.

use crate::address::Slot;
use crate::collection::Collection;
use crate::core::Core;
use crate::format::RECORD_HEADER_BYTES;
use crate::format::record::{HeaderBytes, Kind, RecordHeader, Seed};
use crate::verified::LARGE_BYTES;
use kauri_base::{Access, RecordId};
use kauri_medium::Guard;
use kauri_medium::cache::Pattern;
use kauri_storage::StorageError;

/// The result for an id.
pub enum Lookup<T> {
    /// No document.
    Nothing,
    /// This one.
    Found(T),
}

/// A record's header, and where it was found.
pub struct FoundHeader {
    /// The word that led to it.
    pub slot: Slot,
    /// The epoch of the segment.
    pub epoch: u64,
    /// The segment's load count.
    pub loads: u32,
    /// The header.
    pub header: RecordHeader,
}

/// The current version's header.
#[inline]
pub fn header(
    core: &Core,
    guard: &Guard,
    store: &Collection,
    record: RecordId,
) -> Result<Access<Lookup<FoundHeader>>, StorageError> {
    header_at(core, guard, store, record, store.slots.load(guard, record.0))
}

/// The header of the version that a word leads to.
#[inline]
fn header_at(
    core: &Core,
    guard: &Guard,
    store: &Collection,
    record: RecordId,
    slot: Slot,
) -> Result<Access<Lookup<FoundHeader>>, StorageError> {
    if !slot.is_live() || store.is_dropped() {
        return Ok(Access::Ready(Lookup::Nothing));
    }
    let address = slot.address();
    let epoch = core.segments.get(address.segment).epoch();
    let loads = core.cache.loads(address.segment);
    let len = RECORD_HEADER_BYTES as usize;
    // If that isn't at hand, all of the record is read in one go.
    let whole = slot.size() as usize;
    match core.cache.read_part(guard, address.segment, address.offset, len, whole) {
        Ok(Access::Ready(bytes)) => {
            let header = decode(core, bytes, slot, epoch, loads)
                .filter(|h| {
                    matches!(h.kind, Kind::Put | Kind::PendingPut)
                        && h.collection == store.id.0
                        && h.record == record.0
                })
                .ok_or_else(|| corrupt(store, record, slot, "the record's header"))?;
            Ok(Access::Ready(Lookup::Found(FoundHeader { slot, epoch, loads, header })))
        }
        Ok(Access::WouldBlock(ticket)) => Ok(Access::WouldBlock(ticket)),
        Err(error) => Err(unreadable(store, record, slot, error)),
    }
}

/// Has the processor fetch what a word leads to: a hint.
#[inline]
pub fn fetch_lines(core: &Core, slot: Slot) {
    if slot.is_live() {
        let address = slot.address();
        core.cache.prefetch_lines(address.segment, address.offset, slot.size() as usize);
    }
}

/// As [`fetch_lines`], of the record's header alone: most of the rest's time is its address's translation.
#[inline]
pub fn fetch_header(core: &Core, slot: Slot) {
    if slot.is_live() {
        let address = slot.address();
        core.cache.prefetch_lines(address.segment, address.offset, 1);
    }
}

/// The current version's header and document.
#[inline]
pub fn document<'g>(
    core: &Core,
    guard: &'g Guard,
    store: &Collection,
    record: RecordId,
) -> Result<Access<Lookup<(RecordHeader, &'g [u8])>>, StorageError> {
    document_at(core, guard, store, record, store.slots.load(guard, record.0))
}

/// The header and document of the version that a word leads to.
#[inline]
pub fn document_at<'g>(
    core: &Core,
    guard: &'g Guard,
    store: &Collection,
    record: RecordId,
    slot: Slot,
) -> Result<Access<Lookup<(RecordHeader, &'g [u8])>>, StorageError> {
    fetch_lines(core, slot);
    let found = match header_at(core, guard, store, record, slot)? {
        Access::Ready(Lookup::Found(found)) => found,
        Access::Ready(Lookup::Nothing) => return Ok(Access::Ready(Lookup::Nothing)),
        Access::WouldBlock(ticket) => return Ok(Access::WouldBlock(ticket)),
    };
    let (address, header) = (found.slot.address(), found.header);
    let (offset, len) = (address.offset + RECORD_HEADER_BYTES, header.payload_len as usize);
    match core.cache.read_with(guard, address.segment, offset, len, Pattern::Behind) {
        Ok(Access::Ready(bytes)) => {
            if found.loads > 0 && !is_whole(core, &found, bytes) {
                return Err(corrupt(store, record, found.slot, "the document"));
            }
            Ok(Access::Ready(Lookup::Found((header, bytes))))
        }
        Ok(Access::WouldBlock(ticket)) => Ok(Access::WouldBlock(ticket)),
        Err(error) => Err(unreadable(store, record, found.slot, error)),
    }
}

#[inline]
fn decode(core: &Core, bytes: &[u8], slot: Slot, epoch: u64, loads: u32) -> Option<RecordHeader> {
    let bytes: &HeaderBytes = bytes.first_chunk()?;
    let address = slot.address();
    if loads > 0 && core.directory.faults().enabled("read.header.crc") {
        let seed = Seed::new(address.segment, epoch);
        return RecordHeader::decode(bytes, seed, address.offset).map(|(header, _)| header);
    }
    RecordHeader::decode_checked(bytes)
}

/// Whether a document that may have been read from the medium is intact. A document that was appended and stayed in
/// memory needs no check.
fn is_whole(core: &Core, found: &FoundHeader, bytes: &[u8]) -> bool {
    let whole = || crc32c::crc32c(bytes) == found.header.payload_crc;
    if !core.directory.faults().enabled("read.payload.crc") {
        return true;
    }
    if bytes.len() < LARGE_BYTES {
        return whole();
    }
    let address = found.slot.address();
    let place = (address.segment, found.epoch);
    core.verified.check(place, address.offset, found.loads, whole)
}

#[cold]
fn corrupt(store: &Collection, record: RecordId, slot: Slot, what: &str) -> StorageError {
    let address = slot.address();
    StorageError::Corruption {
        collection: Some(store.id),
        record: Some(record),
        message: format!(
            "{what} in segment {} at offset {} is damaged",
            address.segment, address.offset
        ),
    }
}

#[cold]
fn unreadable(
    store: &Collection,
    record: RecordId,
    slot: Slot,
    error: kauri_medium::Error,
) -> StorageError {
    match error {
        kauri_medium::Error::OutOfBounds => corrupt(store, record, slot, "the record's length"),
        error => crate::io_error(error),
    }
}
