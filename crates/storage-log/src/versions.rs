//! Old versions of one collection, kept in memory for held snapshots: former places of replaced records, the last
//! assigned ids, removed index entries.
//!
//! Each note is valid *until* a commit. A snapshot uses the first note with a later commit, and the current state
//! if there is none. A record above the id limit of a snapshot does not exist for that snapshot, so new records
//! need no notes.
//!
//! Invariants:
//! - A word and its note change together under the lock. So a reader that loads the word first and then looks here
//!   finds a note of the change that it missed. A reader that holds the lock sees no change of what is noted for
//!   its snapshot.
//! - A kept word counts as live in its segment. The cleaner moves the record and updates the word here
//!   ([`Versions::moved`]).

use crate::address::{Address, Slot};
use crate::btree::BTree;
use crate::segments::Segments;
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use kauri_base::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use kauri_base::{Access, CollectionId, IndexId, RecordId};
use kauri_storage::write_set::{bounds, is_range};
use kauri_storage::{Direction, IndexScan, StorageError};
use std::collections::{BTreeMap, HashMap};

/// How much all collections keep.
#[derive(Default)]
pub struct Retained {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Retained {
    /// Something is kept.
    pub fn add(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It is not any more.
    pub fn remove(&self, bytes: u64) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Old versions, limits and entries that are kept.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Their size: memory and log space.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Something that is kept.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The collection.
    pub collection: CollectionId,
    /// Which part of it.
    pub what: What,
    /// The commit that replaced it.
    pub until: u64,
}

/// What a [`Need`] is of.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A version of a record.
    Record(u64),
    /// The number of ids assigned.
    Limit,
    /// Whether an index had an entry.
    Entry(IndexId, Arc<[u8]>, RecordId),
}

/// Approximate memory of a note, besides its contents.
const NOTE_BYTES: u64 = 96;

/// See the module's head.
#[derive(Default)]
pub struct Versions {
    /// Number of notes. Raised before the noted state changes.
    notes: AtomicU64,
    kept: RwLock<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Old versions per record, oldest first.
    records: HashMap<u64, Vec<Old>>,
    /// Commits, and the first id that had not been given out before each.
    limits: Vec<(u64, u64)>,
    entries: HashMap<IndexId, Entries>,
}

type Entries = BTreeMap<(Arc<[u8]>, RecordId), Vec<OldEntry>>;

struct Old {
    /// The commit that wrote it.
    from: u64,
    /// The commit that replaced it.
    until: u64,
    slot: Slot,
}

struct OldEntry {
    until: u64,
    /// The type bits that it had, if it was there.
    bits: Option<Arc<[u8]>>,
}

impl OldEntry {
    fn bytes(&self, key: &[u8]) -> u64 {
        NOTE_BYTES + (key.len() + self.bits.as_ref().map_or(0, |bits| bits.len())) as u64
    }
}

impl Old {
    fn bytes(&self) -> u64 {
        NOTE_BYTES + if self.slot.is_none() { 0 } else { self.slot.size() }
    }
}

/// The result of a change of an entry.
pub enum KeptEntry {
    /// Nothing was noted.
    Nothing,
    /// A note with this key was made, which takes so much.
    Noted(Arc<[u8]>, u64),
    /// The note with this key of this commit equals the current state.
    Superfluous(Arc<[u8]>, u64),
}

/// A snapshot's view of the collection's records, valid while this exists.
pub struct RecordView<'v> {
    kept: RwLockReadGuard<'v, Kept>,
    seq: u64,
    /// The first id that is not there.
    pub limit: u64,
}

impl RecordView<'_> {
    /// Whether the record has an old version for the snapshot.
    pub fn has_old(&self, record: u64) -> bool {
        self.kept.old(record, self.seq).is_some_and(Slot::is_live)
    }
}

impl Kept {
    fn limit(&self, seq: u64) -> u64 {
        let at = self.limits.partition_point(|(until, _)| *until <= seq);
        self.limits.get(at).map_or(u64::MAX, |(_, limit)| *limit)
    }

    fn old(&self, record: u64, seq: u64) -> Option<Slot> {
        let versions = self.records.get(&record)?;
        versions.iter().find(|old| old.until > seq).map(|old| old.slot)
    }
}

impl Versions {
    fn read(&self) -> RwLockReadGuard<'_, Kept> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Kept> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The word of a record for a snapshot; `now` is the current one, loaded before.
    pub fn slot_at(&self, record: u64, seq: u64, now: Slot) -> Slot {
        if self.notes.load(Ordering::Acquire) == 0 {
            return now;
        }
        let kept = self.read();
        if record >= kept.limit(seq) {
            return Slot::NONE;
        }
        kept.old(record, seq).unwrap_or(now)
    }

    /// A snapshot's view of the records.
    pub fn view(&self, seq: u64) -> RecordView<'_> {
        let kept = self.read();
        let limit = kept.limit(seq);
        RecordView { kept, seq, limit }
    }

    /// Fills a scan of an index as a snapshot sees it.
    pub fn fill_index(
        &self,
        (index, keys): (IndexId, &BTree),
        seq: u64,
        scan: &mut IndexScan,
    ) -> Result<Access<()>, StorageError> {
        let kept = self.read();
        let limit = kept.limit(seq);
        let tree = |scan: &mut IndexScan| {
            keys.fill(scan);
            Ok(Access::Ready(()))
        };
        let skip = |record: RecordId| record.0 >= limit;
        let (low, high) = bounds(scan);
        let entries = kept.entries.get(&index).filter(|_| is_range(&low, &high));
        let Some(entries) = entries else {
            if limit == u64::MAX {
                return tree(scan);
            }
            return scan.refill_patched(std::iter::empty(), skip, tree);
        };
        let patch = entries.range((low, high)).filter_map(|((key, record), old)| {
            let old = old.iter().find(|old| old.until > seq)?;
            (record.0 < limit).then(|| (&**key, *record, old.bits.as_deref()))
        });
        match scan.direction() {
            Direction::Forward => scan.refill_patched(patch, skip, tree),
            Direction::Backward => scan.refill_patched(patch.rev(), skip, tree),
        }
    }

    /// Notes the word that a record had, and changes it by `swap`, which answers it. Answers what the
    /// note takes.
    pub fn keep_record(
        &self,
        record: u64,
        from: u64,
        until: u64,
        swap: impl FnOnce() -> Slot,
    ) -> u64 {
        let mut kept = self.write();
        self.notes.fetch_add(1, Ordering::AcqRel);
        let old = Old { from, until, slot: swap() };
        let bytes = old.bytes();
        kept.records.entry(record).or_default().push(old);
        bytes
    }

    /// Sets a new record by `set`, and notes that it was the first that was not there, if the snapshot
    /// needs that. Answers what the note takes.
    pub fn keep_limit(
        &self,
        record: u64,
        snapshot: u64,
        until: u64,
        set: impl FnOnce(),
    ) -> Option<u64> {
        let mut kept = self.write();
        let needed = kept.limits.last().is_none_or(|(last, _)| snapshot >= *last);
        if needed {
            self.notes.fetch_add(1, Ordering::AcqRel);
            kept.limits.push((until, record));
        }
        set();
        needed.then_some(NOTE_BYTES)
    }

    /// Changes an entry of an index, and notes the former state, if the newest snapshot needs that.
    pub fn keep_entry(
        &self,
        (index, keys, key, record): (IndexId, &BTree, &[u8], RecordId),
        bits: Option<&[u8]>,
        snapshot: u64,
        until: u64,
    ) -> KeptEntry {
        let mut kept = self.write();
        let before = keys.get(key, record);
        let same = before.as_deref() == bits;
        if same || record.0 >= kept.limit(snapshot) {
            keys.change(key, record, bits);
            return KeptEntry::Nothing;
        }
        let place = (Arc::<[u8]>::from(key), record);
        let known = kept.entries.get(&index).and_then(|entries| entries.get(&place));
        if let Some(last) = known.and_then(|old| old.last()).filter(|old| snapshot < old.until) {
            keys.change(key, record, bits);
            // What it says is what is so again.
            let superfluous = last.bits.as_deref() == bits;
            return match superfluous {
                true => KeptEntry::Superfluous(place.0, last.until),
                false => KeptEntry::Nothing,
            };
        }
        let old = OldEntry { until, bits: before.map(Arc::from) };
        let bytes = old.bytes(key);
        let key = place.0.clone();
        self.notes.fetch_add(1, Ordering::AcqRel);
        kept.entries.entry(index).or_default().entry(place).or_default().push(old);
        keys.change(&key, record, bits);
        KeptEntry::Noted(key, bytes)
    }

    /// Whether a snapshot, older than those that something was kept for so far, needs it too.
    pub fn is_needed(&self, need: &Need, snapshot: u64) -> bool {
        let kept = self.read();
        let before = |untils: &mut dyn Iterator<Item = u64>| {
            untils.take_while(|until| *until < need.until).last().unwrap_or(0)
        };
        let from = match &need.what {
            What::Record(record) => {
                let old = kept.records.get(record).into_iter().flatten();
                old.clone().find(|old| old.until == need.until).map_or(u64::MAX, |old| old.from)
            }
            What::Limit => before(&mut kept.limits.iter().map(|(until, _)| *until)),
            What::Entry(index, key, record) => {
                let entries = kept.entries.get(index);
                let old = entries.and_then(|e| e.get(&(key.clone(), *record)));
                before(&mut old.into_iter().flatten().map(|old| old.until))
            }
        };
        snapshot >= from
    }

    /// Forgets a note that no snapshot needs any more.
    pub fn free(&self, need: &Need, retained: &Retained, segments: &Segments) {
        let mut kept = self.write();
        let freed = match &need.what {
            What::Record(record) => kept.free_record(*record, need.until, segments),
            What::Limit => {
                let at = kept.limits.iter().position(|(until, _)| *until == need.until);
                at.map(|at| {
                    kept.limits.remove(at);
                    NOTE_BYTES
                })
            }
            What::Entry(index, key, record) => kept.free_entry(*index, key, *record, need.until),
        };
        if let Some(bytes) = freed {
            self.notes.fetch_sub(1, Ordering::AcqRel);
            retained.remove(bytes);
        }
    }

    /// Forgets everything: the collection has been dropped.
    pub fn clear(&self, retained: &Retained, segments: &Segments) {
        let mut kept = self.write();
        let Kept { records, limits, entries } = std::mem::take(&mut *kept);
        for old in records.into_values().flatten() {
            if !old.slot.is_none() {
                segments.remove_live(old.slot);
            }
            retained.remove(old.bytes());
        }
        limits.iter().for_each(|_| retained.remove(NOTE_BYTES));
        entries.iter().for_each(|(_, entries)| uncount_entries(entries, retained));
        self.notes.store(0, Ordering::Release);
    }

    /// Forgets the notes of a dropped index.
    pub fn clear_index(&self, index: IndexId, retained: &Retained) {
        let mut kept = self.write();
        if let Some(entries) = kept.entries.remove(&index) {
            let count = entries.values().map(Vec::len).sum::<usize>();
            self.notes.fetch_sub(count as u64, Ordering::AcqRel);
            uncount_entries(&entries, retained);
        }
    }

    /// Whether an old version is kept that is at this place. For the cleaner, which has seen the
    /// record's word before.
    pub fn is_at(&self, record: u64, address: Address) -> bool {
        if self.notes.load(Ordering::Acquire) == 0 {
            return false;
        }
        let kept = self.read();
        let old = kept.records.get(&record).into_iter().flatten();
        old.into_iter().any(|old| !old.slot.is_none() && old.slot.address() == address)
    }

    /// An old version has been moved: `new` is where it is. Answers the word that it had; `None` if it
    /// is not needed any more.
    pub fn moved(&self, record: u64, from: Address, new: Slot) -> Option<Slot> {
        if self.notes.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut kept = self.write();
        let mut old = kept.records.get_mut(&record).into_iter().flatten();
        let old = old.find(|old| !old.slot.is_none() && old.slot.address() == from)?;
        let before = old.slot;
        old.slot = new.with_copies_of(before);
        Some(before)
    }
}

impl Kept {
    fn free_record(&mut self, record: u64, until: u64, segments: &Segments) -> Option<u64> {
        let versions = self.records.get_mut(&record)?;
        let at = versions.iter().position(|old| old.until == until)?;
        let old = versions.remove(at);
        if versions.is_empty() {
            self.records.remove(&record);
        }
        if !old.slot.is_none() {
            segments.remove_live(old.slot);
        }
        Some(old.bytes())
    }

    fn free_entry(
        &mut self,
        index: IndexId,
        key: &Arc<[u8]>,
        record: RecordId,
        until: u64,
    ) -> Option<u64> {
        let entries = self.entries.get_mut(&index)?;
        let place = (key.clone(), record);
        let versions = entries.get_mut(&place)?;
        let at = versions.iter().position(|old| old.until == until)?;
        let bytes = versions.remove(at).bytes(key);
        if versions.is_empty() {
            entries.remove(&place);
        }
        if entries.is_empty() {
            self.entries.remove(&index);
        }
        Some(bytes)
    }
}

fn uncount_entries(entries: &Entries, retained: &Retained) {
    for ((key, _), old) in entries {
        old.iter().for_each(|old| retained.remove(old.bytes(key)));
    }
}
