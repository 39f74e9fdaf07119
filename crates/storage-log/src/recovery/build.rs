//! From the records that count to address tables, stores and counters.
//!
//! Segments may be added in any order: of all copies of a record the one with the highest commit
//! sequence wins, of equal ones that in the segment with the highest epoch.

use super::corrupt;
use super::scan::Kept;
use crate::address::{Address, Slot};
use crate::collection::{Collection, Registry};
use crate::format::RECORD_HEADER_BYTES;
use crate::format::record::{Kind, record_bytes};
use crate::format::summary::Entry;
use crate::segments::Segments;
use crate::slots::RECORDS_MAX;
use kauri_base::CollectionId;
use kauri_base::log::{self, Attr};
use kauri_medium::{EpochDomain, Guard};
use kauri_storage::StorageError;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PAGE_RECORDS: u64 = 512;

/// The newest copy of a record so far.
#[derive(Clone, Copy)]
struct Version {
    seq: u64,
    epoch: u64,
    slot: Slot,
    payload_len: u32,
}

const NO_VERSION: Version = Version { seq: 0, epoch: 0, slot: Slot::NONE, payload_len: 0 };

type Page = Box<[Version; PAGE_RECORDS as usize]>;

/// Hashes the numbers of pages: they are spread well enough by a multiplication.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// Pages of versions by number. Records come in runs, so the page last used is often the next.
#[derive(Default)]
struct Pages {
    places: HashMap<u64, usize, BuildHasherDefault<NumberHasher>>,
    pages: Vec<(u64, Page)>,
    last: usize,
}

impl Pages {
    fn version(&mut self, record: u64) -> &mut Version {
        let number = record / PAGE_RECORDS;
        if self.pages.get(self.last).is_none_or(|(last, _)| *last != number) {
            let new = self.pages.len();
            self.last = *self.places.entry(number).or_insert(new);
            if self.last == new {
                self.pages.push((number, Box::new([NO_VERSION; PAGE_RECORDS as usize])));
            }
        }
        &mut self.pages[self.last].1[(record % PAGE_RECORDS) as usize]
    }
}

#[derive(Default)]
struct StoreBuilder {
    pages: Pages,
    /// The highest id seen, plus one.
    limit: u64,
    physical: u64,
    /// The newest create and drop records: epoch and place.
    created: Option<(u64, Slot)>,
    dropped: Option<(u64, Slot)>,
}

/// See the module's head.
pub struct Builder {
    domain: Arc<EpochDomain>,
    places: HashMap<u32, usize>,
    stores: Vec<(u32, StoreBuilder)>,
    records: u64,
}

impl Builder {
    /// Nothing yet.
    pub fn new(domain: Arc<EpochDomain>) -> Self {
        Builder { domain, places: HashMap::new(), stores: Vec::new(), records: 0 }
    }

    /// Records seen.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Adds what a segment holds.
    pub fn add_segment(&mut self, kept: &Kept) -> Result<(), StorageError> {
        let (segment, epoch) = (kept.segment, kept.epoch);
        let mut last = 0;
        let mut impossible = None;
        kept.contents.for_each(|entry| {
            let of_document = matches!(entry.kind, Kind::Put | Kind::Tombstone);
            if entry.record >= RECORDS_MAX || (of_document && entry.record == 0) {
                impossible = Some(entry.offset);
            } else if entry.kind.is_member() {
                self.records += 1;
                let address = Address { segment, offset: entry.offset };
                if self.stores.get(last).is_none_or(|(id, _)| *id != entry.collection) {
                    last = self.place(entry.collection);
                }
                self.stores[last].1.add(&entry, address, epoch);
            }
        });
        match impossible {
            None => Ok(()),
            Some(offset) => Err(corrupt(format!(
                "segment {segment}: the record at offset {offset} has an id that is never given"
            ))),
        }
    }

    fn place(&mut self, collection: u32) -> usize {
        let new = self.stores.len();
        let place = *self.places.entry(collection).or_insert(new);
        if place == new {
            self.stores.push((collection, StoreBuilder::default()));
        }
        place
    }

    /// Makes the stores.
    pub fn finish(self, segments: &Segments, registry: &Registry) {
        let mut guard = self.domain.register();
        guard.enter();
        let mut maps = registry.write();
        for (id, store) in self.stores {
            let collection = Collection::new(CollectionId(id), self.domain.clone());
            collection.physical.store(store.physical, Ordering::Relaxed);
            let own = store.dropped.or(store.created).map_or(Slot::NONE, |(_, slot)| slot);
            if store.dropped.is_some() {
                collection.dropped.store(true, Ordering::Relaxed);
                // With no record left to bury, the drop record itself is spent.
                if store.physical == 0 {
                    continue;
                }
            } else {
                store.fill(&guard, segments, &collection);
                if own.is_none() && id != CollectionId::CATALOG.0 {
                    let attr = Attr::new().num("collection", id);
                    log::warning(
                        "STORAGE",
                        6_200_004,
                        "initandlisten",
                        "A store has records, but none that creates it",
                        attr,
                    );
                }
            }
            if !own.is_none() {
                segments.add_live(own);
                collection.own_record.store(own.0, Ordering::Relaxed);
            }
            let dropped = store.dropped.is_some();
            let map = if dropped { &mut maps.graves } else { &mut maps.stores };
            map.insert(CollectionId(id), Arc::new(collection));
        }
    }
}

impl StoreBuilder {
    fn add(&mut self, entry: &Entry, address: Address, epoch: u64) {
        let own = Slot::new(address, RECORD_HEADER_BYTES, false, 0);
        match entry.kind {
            Kind::CreateStore => {
                self.physical += 1;
                if self.created.is_none_or(|(newest, _)| newest < epoch) {
                    self.created = Some((epoch, own));
                }
            }
            Kind::DropStore => {
                if self.dropped.is_none_or(|(newest, _)| newest < epoch) {
                    self.dropped = Some((epoch, own));
                }
                self.pages = Pages::default();
            }
            Kind::Put | Kind::Tombstone => {
                self.physical += 1;
                if self.dropped.is_none() {
                    self.add_version(entry, address, epoch);
                }
            }
            Kind::Commit | Kind::End | Kind::Mark => {}
        }
    }

    fn add_version(&mut self, entry: &Entry, address: Address, epoch: u64) {
        self.limit = self.limit.max(entry.record.saturating_add(1));
        let version = self.pages.version(entry.record);
        let tombstone = entry.kind == Kind::Tombstone;
        if version.slot.is_none() || (version.seq, version.epoch) < (entry.seq, epoch) {
            let slot = Slot::new(address, record_bytes(entry.payload_len), tombstone, 0);
            let slot = slot.with_copies_of(version.slot);
            *version = Version { seq: entry.seq, epoch, slot, payload_len: entry.payload_len };
        }
        if !tombstone {
            version.slot = version.slot.add_copy();
        }
    }

    fn fill(&self, guard: &Guard, segments: &Segments, collection: &Collection) {
        let (mut records, mut bytes, mut storage_bytes) = (0, 0, 0);
        for (number, page) in &self.pages.pages {
            for (place, version) in page.iter().enumerate() {
                let record = number * PAGE_RECORDS + place as u64;
                let slot = version.slot;
                let spent = slot.is_tombstone() && slot.copies() == 0 && record + 1 < self.limit;
                if slot.is_none() || spent {
                    continue;
                }
                collection.slots.set_first(guard, record, slot);
                segments.add_live(slot);
                if slot.is_live() {
                    records += 1;
                    bytes += u64::from(version.payload_len);
                    storage_bytes += u64::from(record_bytes(version.payload_len));
                }
            }
        }
        collection.slots.set_limit(self.limit);
        collection.records.store(records, Ordering::Relaxed);
        collection.bytes.store(bytes, Ordering::Relaxed);
        collection.storage_bytes.store(storage_bytes, Ordering::Relaxed);
    }
}
