//! Prefetches records for scans that meet records which are not in memory.
//!
//! A scan calls this for each batch. If the first record of the batch and the record after its last one are in
//! memory, that costs two lookups. Otherwise the next batches are prefetched while this one is used.

use crate::address::Slot;
use crate::collection::Collection;
use crate::core::Core;
use crate::format::RECORD_HEADER_BYTES;
use kauri_medium::Guard;

/// Number of records whose places are examined.
const RECORDS_AHEAD: usize = 512;
/// Bytes that are asked for at most.
const BYTES_AHEAD: u64 = 1 << 20;
/// Places of one segment with gaps up to this are read in one go.
const GAP_BYTES: u32 = 32 << 10;

/// The records by which a scan sees whether to read ahead.
#[derive(Default)]
pub struct Look {
    first: Option<(u64, Slot)>,
    next: Option<(u64, Slot)>,
}

impl Look {
    /// A record that the scan reaches, in this batch or the next.
    #[inline]
    pub fn at(&mut self, record: u64, slot: Slot, in_batch: bool) {
        if self.first.is_none() {
            self.first = Some((record, slot));
        }
        if !in_batch {
            self.next = Some((record, slot));
        }
    }

    /// Starts reads of missing data of this batch and the next ones.
    pub fn read_ahead(&self, core: &Core, guard: &Guard, store: &Collection, backward: bool) {
        for (record, slot) in [self.first, self.next].into_iter().flatten() {
            if is_cold(core, guard, slot) {
                read_ahead(core, guard, store, record, backward);
                return;
            }
        }
    }
}

/// Starts reading what a scan will want from `from` on.
fn read_ahead(core: &Core, guard: &Guard, store: &Collection, from: u64, backward: bool) {
    let mut words = Vec::new();
    let mut bytes = 0;
    store.slots.walk(guard, from, backward, |_, slot| {
        if slot.is_live() {
            words.push(slot);
            bytes += slot.size();
        }
        words.len() < RECORDS_AHEAD && bytes < BYTES_AHEAD
    });
    let mut range: Option<(u32, u32, u32)> = None;
    for word in words {
        let (address, len) = (word.address(), word.size() as u32);
        let end = address.offset.saturating_add(len);
        range = match range {
            Some((segment, first, last))
                if segment == address.segment
                    && address.offset.saturating_add(len + GAP_BYTES) >= first
                    && address.offset <= last.saturating_add(GAP_BYTES) =>
            {
                Some((segment, first.min(address.offset), last.max(end)))
            }
            other => {
                start(core, other);
                Some((address.segment, address.offset, end))
            }
        };
    }
    start(core, range);
}

fn start(core: &Core, range: Option<(u32, u32, u32)>) {
    if let Some((segment, first, last)) = range {
        let end = last.min(core.cache.end(segment));
        core.cache.prefetch(segment, first, end.saturating_sub(first) as usize);
    }
}

/// Whether a record is not in memory.
fn is_cold(core: &Core, guard: &Guard, word: Slot) -> bool {
    let address = word.address();
    let header = RECORD_HEADER_BYTES as usize;
    matches!(core.cache.try_read(guard, address.segment, address.offset, header), Ok(None))
}
