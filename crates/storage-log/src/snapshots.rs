//! Held snapshots, and the versions kept for each.
//!
//! Invariants:
//! - A snapshot's commit is the last one that had a commit sequence when the snapshot was taken, under the head's
//!   mutex. So every later unit knows that it must keep versions for the snapshot, and every earlier unit is
//!   applied before the holder reads.
//! - A superseded version is kept for a snapshot between the commit that wrote it and the commit that replaced it.
//!   It is listed with the newest such snapshot. When that snapshot is released, the version moves to the next
//!   older one that needs it, or is freed.
//! - Beyond the limit of kept versions, the oldest snapshot is marked invalid, then freed. A reader checks the mark
//!   after it has read.
//! - The list's lock is held briefly, because taking a snapshot waits for it under the head's mutex. The versions
//!   of a released snapshot are processed in pieces.
//!
//! Locks: `head`, then the list of snapshots, then a collection's versions.

use crate::address::Slot;
use crate::btree::BTree;
use crate::collection::Collection;
use crate::lock;
use crate::segments::Segments;
use crate::versions::{KeptEntry, Need, Retained, What};
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex};
use kauri_base::{CommitSeq, IndexId, RecordId};
use kauri_storage::StorageError;
use std::collections::BTreeMap;

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
    /// Held snapshots of this commit or an earlier one have been dropped.
    given_up: AtomicU64,
    /// Number of dropped ones.
    given_up_count: AtomicU64,
    /// What is kept for all of them.
    retained: Retained,
    /// The most that this may take.
    retained_bytes_max: u64,
}

#[derive(Default)]
struct List {
    held: BTreeMap<u64, Snapshot>,
    /// Needs of ended snapshots that are not processed yet.
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

/// The needs of a snapshot, each with the collection that keeps it. Released in this order, so the order must not
/// depend on hashes: a simulation repeats it.
type Needs = BTreeMap<Need, Arc<Collection>>;

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
    /// No snapshot is held. `retained_bytes_max`: with more kept than that the oldest is given up.
    pub fn new(retained_bytes_max: u64) -> Self {
        Snapshots { retained_bytes_max, ..Snapshots::default() }
    }

    /// What is kept for all of them.
    pub fn retained(&self) -> &Retained {
        &self.retained
    }

    /// Another holder of the snapshot of commit `seq`. With the head's mutex held.
    pub fn add(&self, seq: u64) {
        lock(&self.list).held.entry(seq).or_default().holders += 1;
    }

    /// A holder less. Frees what nobody needs any more.
    pub fn remove(&self, seq: u64, segments: &Segments) {
        let mut more = {
            let mut list = lock(&self.list);
            let Some(snapshot) = list.held.get_mut(&seq) else { return };
            snapshot.holders -= 1;
            snapshot.holders == 0 && list.end(seq)
        };
        while more {
            more = self.hand_down(&mut lock(&self.list), PIECE_RELEASED, segments);
        }
    }

    /// What unit `seq` keeps versions with while it is applied; `None` if nobody held a snapshot when it got its
    /// number.
    pub fn keeper<'c>(
        &'c self,
        segments: &'c Segments,
        seq: u64,
        holding: bool,
    ) -> Option<Keeper<'c>> {
        holding.then_some(Keeper { snapshots: self, segments, seq })
    }

    /// Figures.
    pub fn stats(&self) -> SnapshotStats {
        let held = &lock(&self.list).held;
        SnapshotStats {
            held: held.values().map(|snapshot| snapshot.holders).sum(),
            oldest: held.keys().next().copied(),
            kept: self.retained.count(),
            kept_bytes: self.retained.bytes(),
            given_up: self.given_up_count.load(Ordering::Relaxed),
        }
    }

    /// Fails if the snapshot has been dropped. Called after reading.
    pub fn check(&self, hold: Hold) -> Result<(), StorageError> {
        if self.given_up.load(Ordering::Acquire) >= hold.seq && hold.seq > 0 {
            return Err(StorageError::SnapshotTooOld);
        }
        Ok(())
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
                _ => store.versions.free(&need, &self.retained, segments),
            }
        }
        if needs.is_empty() {
            ended.pop();
        }
        !ended.is_empty()
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

/// Keeps the versions that a unit replaces, if a snapshot needs them.
pub struct Keeper<'c> {
    snapshots: &'c Snapshots,
    segments: &'c Segments,
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
        let Keeper { snapshots, segments, .. } = *self;
        snapshots.retained.add(bytes);
        let need = Need { collection: store.id, what, until: self.seq };
        match list.held.get_mut(&snapshot) {
            Some(snapshot) => drop(snapshot.needs.insert(need, store.clone())),
            None => store.versions.free(&need, &snapshots.retained, segments),
        }
        let too_much = snapshots.retained.bytes() > snapshots.retained_bytes_max;
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
        let list = &mut *lock(&self.snapshots.list);
        match list.before(self.seq).filter(|snapshot| *snapshot >= from) {
            None => self.segments.remove_live(swap()),
            Some(snapshot) => {
                let bytes = store.versions.keep_record(record, from, self.seq, swap);
                self.note(list, snapshot, store, What::Record(record), bytes);
            }
        }
    }

    /// A record is set for the first time, by `set`.
    pub fn insert(&self, store: &Arc<Collection>, record: u64, set: impl FnOnce()) {
        let list = &mut *lock(&self.snapshots.list);
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
        let list = &mut *lock(&self.snapshots.list);
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
                store.versions.free(&need, &self.snapshots.retained, self.segments);
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
