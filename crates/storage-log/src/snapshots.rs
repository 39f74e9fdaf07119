//! Held snapshots: which there are, and what is kept for each.
//!
//! Invariants:
//! - A snapshot's commit is the last one that had its number when the snapshot was taken, under the
//!   head's mutex; so every unit appended later knows that there is one to keep versions for, and
//!   every earlier one is applied by the time the holder reads.
//! - What was replaced is kept for a snapshot that lies between the commit that wrote it and the one
//!   that replaced it; it is listed with the newest such snapshot, and goes over to the next older one
//!   that needs it, or away, when that one is released.
//! - With more than may be kept the oldest snapshot is given up: first it is said so, then freed. A
//!   reader looks whether it has been, after it has read.
//! - Nobody holds the list for long, since whoever takes a snapshot waits for it with the head's mutex:
//!   what an ended snapshot needed is gone through in pieces.
//!
//! Locks: `head`, then the list of snapshots, then a collection's versions.

use crate::address::Slot;
use crate::btree::BTree;
use crate::collection::Collection;
use crate::core::Core;
use crate::lock;
use crate::segments::Segments;
use crate::versions::KeptEntry;
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex};
use kauri_base::{CollectionId, CommitSeq, IndexId, RecordId};
use kauri_storage::StorageError;
use std::collections::{BTreeMap, HashMap};

/// A snapshot that a recovery unit holds.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// The last commit that it shows.
    pub seq: u64,
    /// Which one it is of all that were ever taken.
    pub number: u64,
}

/// See the module's head.
#[derive(Default)]
pub struct Snapshots {
    list: Mutex<List>,
    /// Snapshots of this commit or an earlier one that were held have been given up.
    given_up: AtomicU64,
    /// How many.
    given_up_count: AtomicU64,
    /// Old versions, limits and entries that are kept.
    kept: AtomicU64,
    /// What they take: memory, and space of the log.
    kept_bytes: AtomicU64,
}

#[derive(Default)]
struct List {
    held: BTreeMap<u64, Snapshot>,
    /// What ended snapshots needed and has not been gone through.
    ended: Vec<(u64, Vec<(Need, Arc<Collection>)>)>,
}

#[derive(Default)]
struct Snapshot {
    holders: u64,
    needs: Needs,
}

/// Needs of ended snapshots that are gone through under one hold of the list.
const PIECE_RELEASED: usize = 512;
/// The same for a writer that has kept something more.
const PIECE_KEPT: usize = 64;

/// Something that is kept.
#[derive(PartialEq, Eq, Hash)]
pub struct Need {
    /// The collection.
    pub collection: CollectionId,
    /// What of it.
    pub what: What,
    /// The commit that replaced it.
    pub until: u64,
}

/// What a snapshot needs, with the collection that keeps it.
type Needs = HashMap<Need, Arc<Collection>>;

/// See [`Need`].
#[derive(PartialEq, Eq, Hash)]
pub enum What {
    /// A version of a record.
    Record(u64),
    /// How many ids had been given out.
    Limit,
    /// Whether an index had an entry.
    Entry(IndexId, Arc<[u8]>, RecordId),
}

/// Figures.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SnapshotStats {
    pub held: u64,
    pub oldest: Option<u64>,
    pub kept: u64,
    pub kept_bytes: u64,
    pub given_up: u64,
}

impl Snapshots {
    /// Figures.
    pub fn stats(&self) -> SnapshotStats {
        let held = &lock(&self.list).held;
        SnapshotStats {
            held: held.values().map(|snapshot| snapshot.holders).sum(),
            oldest: held.keys().next().copied(),
            kept: self.kept.load(Ordering::Relaxed),
            kept_bytes: self.kept_bytes.load(Ordering::Relaxed),
            given_up: self.given_up_count.load(Ordering::Relaxed),
        }
    }

    /// Fails if the snapshot has been given up. Looked at after reading.
    pub fn check(&self, hold: Hold) -> Result<(), StorageError> {
        if self.given_up.load(Ordering::Acquire) >= hold.seq && hold.seq > 0 {
            return Err(StorageError::SnapshotTooOld);
        }
        Ok(())
    }

    fn count(&self, bytes: u64) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        self.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Something that was kept is not any more.
    pub fn uncount(&self, bytes: u64) {
        self.kept.fetch_sub(1, Ordering::Relaxed);
        self.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Hands some of what ended snapshots needed to the next older ones that need it, and frees what
    /// none does. Answers whether there is more.
    fn hand_down(&self, list: &mut List, most: usize, segments: &Segments) -> bool {
        let List { held, ended } = list;
        let Some((seq, needs)) = ended.last_mut() else { return false };
        let mut older = held.range_mut(..*seq).next_back();
        for (need, store) in needs.drain(needs.len().saturating_sub(most)..) {
            match &mut older {
                Some((seq, snapshot)) if store.versions.is_needed(&need, **seq) => {
                    snapshot.needs.insert(need, store);
                }
                _ => store.versions.free(&need, self, segments),
            }
        }
        if needs.is_empty() {
            ended.pop();
        }
        !ended.is_empty()
    }
}

impl Core {
    /// Holds the current state.
    pub fn hold(&self) -> Result<Hold, StorageError> {
        let hold = {
            let mut head = lock(&self.head);
            let hold = Hold { seq: head.seq(), number: head.hold() };
            lock(&self.snapshots.list).held.entry(hold.seq).or_default().holders += 1;
            hold
        };
        // Units that have their number already are applied without waiting for anything.
        let mut turns = 0u32;
        while self.visible().0 < hold.seq {
            turns += 1;
            if turns < 64 {
                kauri_base::sync::hint::spin_loop();
            } else if let Err(error) = self.check_alive() {
                self.release(hold);
                return Err(error);
            } else {
                kauri_base::sync::thread::yield_now();
            }
        }
        Ok(hold)
    }

    /// Ends a hold.
    pub fn release(&self, hold: Hold) {
        lock(&self.head).release();
        let mut more = {
            let mut list = lock(&self.snapshots.list);
            let Some(snapshot) = list.held.get_mut(&hold.seq) else { return };
            snapshot.holders -= 1;
            snapshot.holders == 0 && list.end(hold.seq)
        };
        while more {
            let mut list = lock(&self.snapshots.list);
            more = self.snapshots.hand_down(&mut list, PIECE_RELEASED, &self.segments);
        }
    }

    /// What a unit keeps versions with while it is applied; `None` if nobody held a snapshot when it
    /// got its number.
    pub fn keeper(&self, seq: u64, holding: bool) -> Option<Keeper<'_>> {
        holding.then_some(Keeper { core: self, seq })
    }
}

impl List {
    /// Takes a snapshot out of the list. Answers whether it needed anything.
    fn end(&mut self, seq: u64) -> bool {
        let Some(snapshot) = self.held.remove(&seq) else { return false };
        if snapshot.needs.is_empty() {
            return false;
        }
        self.ended.push((seq, snapshot.needs.into_iter().collect()));
        true
    }

    /// The newest snapshot that does not see a unit.
    fn before(&self, seq: u64) -> Option<u64> {
        self.held.range(..seq).next_back().map(|(seq, _)| *seq)
    }
}

/// Keeps what a unit replaces, as far as somebody needs it.
pub struct Keeper<'c> {
    core: &'c Core,
    seq: u64,
}

impl Keeper<'_> {
    fn note(
        &self,
        list: &mut List,
        snapshot: u64,
        store: &Arc<Collection>,
        what: What,
        bytes: u64,
    ) {
        let Core { snapshots, segments, options, .. } = self.core;
        snapshots.count(bytes);
        let need = Need { collection: store.id, what, until: self.seq };
        match list.held.get_mut(&snapshot) {
            Some(snapshot) => drop(snapshot.needs.insert(need, store.clone())),
            None => store.versions.free(&need, snapshots, segments),
        }
        let too_much = snapshots.kept_bytes.load(Ordering::Relaxed) > options.versions_bytes_max;
        if too_much
            && list.ended.is_empty()
            && let Some((oldest, snapshot)) = list.held.first_key_value()
        {
            let (oldest, holders) = (*oldest, snapshot.holders);
            snapshots.given_up.fetch_max(oldest, Ordering::AcqRel);
            snapshots.given_up_count.fetch_add(holders, Ordering::Relaxed);
            list.end(oldest);
        }
        snapshots.hand_down(list, PIECE_KEPT, segments);
    }

    /// A record that was written by commit `from` gets another word, by `swap`, which answers the one
    /// before.
    pub fn record(
        &self,
        store: &Arc<Collection>,
        record: u64,
        from: u64,
        swap: impl FnOnce() -> Slot,
    ) {
        let list = &mut *lock(&self.core.snapshots.list);
        match list.before(self.seq).filter(|snapshot| *snapshot >= from) {
            None => self.core.segments.remove_live(swap()),
            Some(snapshot) => {
                let bytes = store.versions.keep_record(record, from, self.seq, swap);
                self.note(list, snapshot, store, What::Record(record), bytes);
            }
        }
    }

    /// A record is set for the first time, by `set`.
    pub fn insert(&self, store: &Arc<Collection>, record: u64, set: impl FnOnce()) {
        let list = &mut *lock(&self.core.snapshots.list);
        match list.before(self.seq) {
            None => set(),
            Some(snapshot) => {
                let kept = store.versions.keep_limit(record, snapshot, self.seq, set);
                if let Some(bytes) = kept {
                    self.note(list, snapshot, store, What::Limit, bytes);
                }
            }
        }
    }

    /// An index gets an entry (with these type bits) or loses it.
    pub fn entry(
        &self,
        store: &Arc<Collection>,
        (index, keys): (IndexId, &BTree),
        (key, record): (&[u8], RecordId),
        bits: Option<&[u8]>,
    ) {
        let list = &mut *lock(&self.core.snapshots.list);
        let Some(snapshot) = list.before(self.seq) else { return keys.change(key, record, bits) };
        let entry = (index, keys, key, record);
        let kept = store.versions.keep_entry(entry, bits, snapshot, self.seq);
        match kept {
            KeptEntry::Nothing => {}
            KeptEntry::Noted(key, bytes) => {
                self.note(list, snapshot, store, What::Entry(index, key, record), bytes);
            }
            KeptEntry::Superfluous(key, until) => {
                let what = What::Entry(index, key, record);
                let need = Need { collection: store.id, what, until };
                // It is listed with the newest snapshot before it.
                if let Some((_, snapshot)) = list.held.range_mut(..until).next_back() {
                    snapshot.needs.remove(&need);
                }
                store.versions.free(&need, &self.core.snapshots, &self.core.segments);
            }
        }
    }
}

/// The commit of a hold as the interface has it.
impl From<Hold> for CommitSeq {
    fn from(hold: Hold) -> CommitSeq {
        CommitSeq(hold.seq)
    }
}
