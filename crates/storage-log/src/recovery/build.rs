//! Builds address tables, stores and counters from the records that count.
//!
//! Segments may be added in any order. Of all copies of a record the one with the highest commit sequence wins;
//! among equal ones, the one in the latest segment ([`crate::segments::Segment::order`]).

use crate::address::{Address, Slot};
use crate::chunked::Chunked;
use crate::collection::Collection;
use crate::format::RECORD_HEADER_BYTES;
use crate::format::record::{Kind, record_bytes};
use crate::format::resolution::Resolution;
use crate::format::summary::Entry;
use crate::lock;
use crate::on_medium::Kept;
use crate::on_medium::corrupt;
use crate::registry::Registry;
use crate::segments::{LiveCounts, Order, Segments};
use crate::slots::{PAGE_SLOTS, RECORDS_MAX};
use kauri_base::CollectionId;
use kauri_base::log::{self, Attr};
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex};
use kauri_medium::{EpochDomain, parallel};
use kauri_storage::StorageError;
use std::collections::{HashMap, HashSet};

/// Pages whose slots are filled in one go.
const PAGES_A_PART: usize = 64;

/// The newest copy of a record so far.
#[derive(Clone, Copy)]
struct Version {
    seq: u64,
    slot: Slot,
    payload_len: u32,
}

const NO_VERSION: Version = Version { seq: 0, slot: Slot::NONE, payload_len: 0 };

type Page = Box<[Version; PAGE_SLOTS as usize]>;

/// The places of the collection's own records.
#[derive(Default)]
struct Own {
    /// The newest create and drop records: their segments' order, and places.
    created: Option<(Order, Slot)>,
    dropped: Option<(Order, Slot)>,
}

/// What is known of one collection. Pages are locked one by one: the records of a page come together, so a thread
/// takes a lock once for many of them.
struct StoreBuilder {
    pages: Chunked<Mutex<Option<Page>>>,
    /// The highest id seen, plus one.
    limit: AtomicU64,
    physical: AtomicU64,
    is_dropped: AtomicBool,
    own: Mutex<Own>,
}

/// See the module's head.
pub struct Builder<'s> {
    domain: Arc<EpochDomain>,
    segments: &'s Segments,
    threads: usize,
    /// Which pending units count.
    resolution: Resolution,
    /// Later commits are not applied.
    applied: u64,
    stores: Mutex<HashMap<u32, Arc<StoreBuilder>>>,
    records: AtomicU64,
}

impl<'s> Builder<'s> {
    /// Nothing yet. The segments know their epochs already. Commits up to `applied` count.
    pub fn new(
        domain: Arc<EpochDomain>,
        segments: &'s Segments,
        threads: usize,
        (resolution, applied): (Resolution, u64),
    ) -> Self {
        let (stores, records) = Default::default();
        Builder { domain, segments, threads, resolution, applied, stores, records }
    }

    /// Records seen.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Adds what a segment holds. Several may be added at once by different threads. Answers the
    /// collections with records in it, some perhaps repeatedly.
    pub fn add_segment(&self, kept: &Kept) -> Result<Vec<u32>, StorageError> {
        let segment = kept.segment;
        let order = self.segments.get(segment).order();
        let mut entries: Vec<Entry> = Vec::new();
        let mut store: Option<(u32, Arc<StoreBuilder>)> = None;
        let mut collections = Vec::new();
        let mut records = 0;
        let mut impossible = None;
        let mut add_entries = |entries: &mut Vec<Entry>| {
            let Some(first) = entries.first() else { return };
            if store.as_ref().is_none_or(|(id, _)| *id != first.collection) {
                store = Some((first.collection, self.store(first.collection)));
                collections.push(first.collection);
            }
            if let Some((_, store)) = &store {
                store.add_entries(self.segments, segment, order, entries);
            }
            records += entries.len() as u64;
            entries.clear();
        };
        kept.contents.for_each(|entry| {
            if entry.seq > self.applied {
                return;
            }
            if self.resolution.is_pending(entry.kind, entry.seq) {
                // It keeps a drop record, should the unit be committed.
                self.store(entry.collection).physical.fetch_add(1, Ordering::Relaxed);
            }
            let Some(entry) = self.resolution.entry(entry) else { return };
            let of_document = matches!(entry.kind, Kind::Put | Kind::Tombstone);
            if entry.kind == Kind::Frame {
                return;
            }
            if entry.record >= RECORDS_MAX || (of_document && entry.record == 0) {
                impossible = Some(entry.offset);
            } else if entry.kind.is_member() {
                let page = |entry: &Entry| (entry.collection, entry.record / PAGE_SLOTS);
                if entries.first().is_some_and(|first| page(first) != page(&entry)) {
                    add_entries(&mut entries);
                }
                entries.push(entry);
            }
        });
        add_entries(&mut entries);
        self.records.fetch_add(records, Ordering::Relaxed);
        match impossible {
            None => Ok(collections),
            Some(offset) => Err(corrupt(format!(
                "segment {segment}: the record at offset {offset} has an invalid id"
            ))),
        }
    }

    fn store(&self, collection: u32) -> Arc<StoreBuilder> {
        let mut stores = lock(&self.stores);
        stores.entry(collection).or_insert_with(|| Arc::new(StoreBuilder::new())).clone()
    }

    /// Makes the stores.
    ///
    /// `since` names commits for some collections; answers which of their records have changed after
    /// those.
    pub fn finish(
        self,
        registry: &Registry,
        since: &HashMap<u32, u64>,
    ) -> HashMap<u32, HashSet<u64>> {
        let mut changed = HashMap::new();
        let stores =
            self.stores.into_inner().unwrap_or_else(kauri_base::sync::PoisonError::into_inner);
        let mut maps = registry.write();
        for (id, store) in stores {
            let collection = Collection::new(CollectionId(id), self.domain.clone());
            let physical = store.physical.load(Ordering::Relaxed);
            collection.physical.store(physical, Ordering::Relaxed);
            let (own, dropped) = {
                let own = lock(&store.own);
                let slot = own.dropped.or(own.created).map_or(Slot::NONE, |(_, slot)| slot);
                (slot, own.dropped.is_some())
            };
            if dropped {
                collection.dropped.store(true, Ordering::Relaxed);
                // With no record left to bury, the drop record itself is spent.
                if physical == 0 {
                    continue;
                }
            } else {
                let since = since.get(&id).copied();
                let fill = Fill { segments: self.segments, limit: store.limit(), since };
                let records = store.fill(fill, &self.domain, self.threads, &collection);
                if since.is_some() {
                    changed.insert(id, records);
                }
                if own.is_none() && id != CollectionId::CATALOG.0 {
                    let attr = Attr::new().num("collection", id);
                    log::warning(
                        "STORAGE",
                        6_200_004,
                        "initandlisten",
                        "Store has records, but no record that creates the store",
                        attr,
                    );
                }
            }
            if !own.is_none() {
                self.segments.add_live(own);
                collection.own_record.store(own.0, Ordering::Relaxed);
            }
            let map = if dropped { &mut maps.graves } else { &mut maps.stores };
            map.insert(CollectionId(id), Arc::new(collection));
        }
        changed
    }
}

/// Sums over the records of a store.
#[derive(Default)]
struct Sums {
    records: u64,
    bytes: u64,
    storage_bytes: u64,
    changed: Vec<u64>,
}

/// How slots are filled.
#[derive(Clone, Copy)]
struct Fill<'s> {
    segments: &'s Segments,
    /// The highest id, plus one.
    limit: u64,
    /// Records with later commits than this are reported.
    since: Option<u64>,
}

impl StoreBuilder {
    fn new() -> Self {
        StoreBuilder {
            pages: Chunked::new(),
            limit: AtomicU64::new(0),
            physical: AtomicU64::new(0),
            is_dropped: AtomicBool::new(false),
            own: Mutex::default(),
        }
    }

    /// Adds records of one page, in one segment.
    fn add_entries(&self, segments: &Segments, segment: u32, order: Order, entries: &[Entry]) {
        let mut versions = Vec::new();
        for entry in entries {
            let address = Address { segment, offset: entry.offset };
            match entry.kind {
                Kind::CreateStore | Kind::DropStore => self.add_own(entry.kind, address, order),
                Kind::Put | Kind::Tombstone => versions.push((entry, address)),
                _ => {}
            }
        }
        self.physical.fetch_add(versions.len() as u64, Ordering::Relaxed);
        let Some((first, _)) = versions.first() else { return };
        if self.is_dropped.load(Ordering::Relaxed) {
            return;
        }
        let page = self.pages.get_or_make(first.record / PAGE_SLOTS, || Mutex::new(None));
        let Some(page) = page else { return };
        let mut limit = 0;
        let mut page = lock(page);
        let page = page.get_or_insert_with(|| Box::new([NO_VERSION; PAGE_SLOTS as usize]));
        for (entry, address) in versions {
            limit = limit.max(entry.record + 1);
            let version = &mut page[(entry.record % PAGE_SLOTS) as usize];
            add_version(segments, version, entry, address, order);
        }
        self.limit.fetch_max(limit, Ordering::Relaxed);
    }

    fn add_own(&self, kind: Kind, address: Address, order: Order) {
        let new = Some((order, Slot::new(address, RECORD_HEADER_BYTES, false, 0)));
        let mut own = lock(&self.own);
        let place = if kind == Kind::CreateStore {
            self.physical.fetch_add(1, Ordering::Relaxed);
            &mut own.created
        } else {
            self.is_dropped.store(true, Ordering::Relaxed);
            &mut own.dropped
        };
        if place.is_none_or(|(newest, _)| newest < order) {
            *place = new;
        }
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    fn fill(
        &self,
        fill: Fill<'_>,
        domain: &Arc<EpochDomain>,
        threads: usize,
        collection: &Collection,
    ) -> HashSet<u64> {
        let Fill { segments, limit, .. } = fill;
        let mut pages = Vec::new();
        let mut next = self.pages.nearest(0, false);
        while let Some(number) = next.filter(|number| *number < limit.div_ceil(PAGE_SLOTS)) {
            pages.push(number);
            next = self.pages.nearest(number + 1, false);
        }
        let parts: Vec<&[u64]> = pages.chunks(PAGES_A_PART).collect();
        let sums = parallel::map(threads, parts.len(), |part| {
            let mut guard = domain.register();
            guard.enter();
            let mut live = segments.live_counts();
            let mut sums = Sums::default();
            for number in parts.get(part).copied().unwrap_or_default() {
                let page = self.pages.get(*number).and_then(|page| lock(page).take());
                let Some(page) = page else { continue };
                let words = page_words(fill, &page, number * PAGE_SLOTS, &mut live, &mut sums);
                collection.slots.fill_page(&guard, *number, &words);
            }
            segments.add_live_counts(live);
            sums
        });
        let sum = |of: fn(&Sums) -> u64| sums.iter().map(of).sum::<u64>();
        collection.slots.set_limit(limit);
        collection.records.store(sum(|sums| sums.records), Ordering::Relaxed);
        collection.bytes.store(sum(|sums| sums.bytes), Ordering::Relaxed);
        collection.storage_bytes.store(sum(|sums| sums.storage_bytes), Ordering::Relaxed);
        sums.iter().flat_map(|sums| sums.changed.iter().copied()).collect()
    }
}

/// Of two copies the one with the higher commit sequence counts; of equal ones, the one in the later segment.
fn add_version(
    segments: &Segments,
    version: &mut Version,
    entry: &Entry,
    address: Address,
    order: Order,
) {
    let before = version.slot;
    let is_newer = before.is_none()
        || version.seq < entry.seq
        || version.seq == entry.seq && segments.get(before.address().segment).order() <= order;
    let tombstone = entry.kind == Kind::Tombstone;
    if is_newer {
        let slot = Slot::new(address, record_bytes(entry.payload_len), tombstone, 0);
        let slot = slot.with_copies_of(before);
        *version = Version { seq: entry.seq, slot, payload_len: entry.payload_len };
    }
    if !tombstone {
        version.slot = version.slot.add_copy();
    }
}

/// The words of a page's slots.
fn page_words(
    fill: Fill<'_>,
    page: &Page,
    first: u64,
    live: &mut LiveCounts,
    sums: &mut Sums,
) -> [Slot; PAGE_SLOTS as usize] {
    let mut words = [Slot::NONE; PAGE_SLOTS as usize];
    for ((version, word), record) in page.iter().zip(&mut words).zip(first..) {
        let slot = version.slot;
        let spent = slot.is_tombstone() && slot.copies() == 0 && record + 1 < fill.limit;
        if slot.is_none() || spent {
            continue;
        }
        *word = slot;
        live.add(slot);
        if slot.is_live() {
            sums.records += 1;
            if fill.since.is_some_and(|since| version.seq > since) {
                sums.changed.push(record);
            }
            sums.bytes += u64::from(version.payload_len);
            sums.storage_bytes += u64::from(record_bytes(version.payload_len));
        }
    }
    words
}
