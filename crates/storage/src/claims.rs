//! Claims: records and unique keys that transactions and pending units have reserved for a change. The first claim
//! wins; a later one gets `WriteConflict` at once.
//!
//! An engine checks claims in the same step in which it checks a unit's versions. A transaction claims before its
//! versions are checked. So of two writers, at least one sees the other. Without any claim, a check costs one load.
//! Otherwise it costs one load per record, and a lock if the record's shard has claims.
//!
//! Lock order: owners, then shards in ascending order.

use crate::error::StorageError;
use crate::unit::{OpKind, WriteOp, WriteUnit};
use crate::write_set::is_provisional;
use kauri_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use kauri_base::sync::{Arc, Mutex, MutexGuard, PoisonError};
use kauri_base::ticket::TicketSource;
use kauri_base::{CollectionId, IndexId, RecordId, Ticket};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::task::{Poll, Waker};

/// Shards, a power of two.
const SHARDS: usize = 64;

/// See the module's head. One per engine.
pub struct Claims {
    /// Claims that there are.
    count: AtomicUsize,
    next_owner: AtomicU64,
    owners: Mutex<HashMap<u64, Owner>>,
    shards: [Shard; SHARDS],
}

#[derive(Default)]
struct Shard {
    /// Claims in it. Changed under the lock.
    count: AtomicUsize,
    claimed: Mutex<Claimed>,
}

/// The claims, by owner.
#[derive(Default)]
struct Claimed {
    records: HashMap<Record, u64>,
    keys: HashMap<Key, u64>,
}

type Record = (CollectionId, RecordId);
type Key = (IndexId, Box<[u8]>);

#[derive(Default)]
struct Owner {
    records: Vec<Record>,
    keys: Vec<Key>,
    waiters: Vec<Waker>,
}

/// A position in an owner's claims, to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    records: usize,
    keys: usize,
}

impl Default for Claims {
    fn default() -> Self {
        Claims {
            count: AtomicUsize::new(0),
            next_owner: AtomicU64::new(0),
            owners: Mutex::default(),
            shards: std::array::from_fn(|_| Shard::default()),
        }
    }
}

impl Claims {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<u64, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new owner of claims, which has none yet.
    pub fn begin(&self) -> u64 {
        let owner = self.next_owner.fetch_add(1, Ordering::Relaxed) + 1;
        self.owners().insert(owner, Owner::default());
        owner
    }

    /// Ends an owner and all its claims, and wakes the waiters.
    pub fn end(&self, owner: u64) {
        let mut owners = self.owners();
        let Some(ended) = owners.remove(&owner) else { return };
        self.give_up(&ended.records, &ended.keys);
        drop(owners);
        ended.waiters.into_iter().for_each(Waker::wake);
    }

    /// Claims the records and unique keys that the unit changes for its owner: all, or none if
    /// another owner has one of them. Answers what the owner had before.
    pub fn claim(&self, unit: &WriteUnit<'_>) -> Result<Mark, StorageError> {
        let wanted = Wanted::of(unit);
        let mut owners = self.owners();
        let mut locked: BTreeMap<usize, MutexGuard<'_, Claimed>> = BTreeMap::new();
        for shard in wanted.shards() {
            locked.insert(shard, self.shards[shard].lock());
        }
        let other = |owner: Option<&u64>| owner.is_some_and(|owner| *owner != unit.owner);
        let is_taken = |shard: usize, holds: &dyn Fn(&Claimed) -> bool| {
            locked.get(&shard).is_some_and(|claimed| holds(claimed))
        };
        if wanted.records.iter().any(|r| is_taken(shard_of_record(r), &|c| other(c.records.get(r))))
            || wanted
                .added
                .iter()
                .any(|k| is_taken(shard_of_key(k.0, &k.1), &|c| other(c.keys.get(k))))
        {
            return Err(StorageError::WriteConflict);
        }
        let owner = owners.entry(unit.owner).or_default();
        let mark = Mark { records: owner.records.len(), keys: owner.keys.len() };
        for record in wanted.records {
            let shard = shard_of_record(&record);
            let Some(claimed) = locked.get_mut(&shard) else { continue };
            if self.note(shard, claimed.records.entry(record), unit.owner) {
                owner.records.push(record);
            }
        }
        // Removed ones too: whoever adds such a key must know first whether it is free.
        for key in wanted.added.into_iter().chain(wanted.removed) {
            let shard = shard_of_key(key.0, &key.1);
            let Some(claimed) = locked.get_mut(&shard) else { continue };
            if self.note(shard, claimed.keys.entry(key.clone()), unit.owner) {
                owner.keys.push(key);
            }
        }
        Ok(mark)
    }

    /// Notes a claim, unless there is one. The shard is locked.
    fn note<K>(&self, shard: usize, entry: Entry<'_, K, u64>, owner: u64) -> bool {
        let Entry::Vacant(vacant) = entry else { return false };
        vacant.insert(owner);
        self.shards[shard].count.fetch_add(1, Ordering::Release);
        self.count.fetch_add(1, Ordering::Release);
        true
    }

    /// Claims records that no other owner has claimed: for units that were claimed before a restart.
    pub fn claim_records(
        &self,
        owner: u64,
        records: impl Iterator<Item = (CollectionId, RecordId)>,
    ) {
        let mut owners = self.owners();
        let owned = owners.entry(owner).or_default();
        for record in records {
            let shard = shard_of_record(&record);
            let mut claimed = self.shards[shard].lock();
            if self.note(shard, claimed.records.entry(record), owner) {
                owned.records.push(record);
            }
        }
    }

    /// Claims unique keys, likewise.
    pub fn claim_keys<'k>(&self, owner: u64, index: IndexId, keys: impl Iterator<Item = &'k [u8]>) {
        let mut owners = self.owners();
        let owned = owners.entry(owner).or_default();
        for key in keys {
            let shard = shard_of_key(index, key);
            let key: Key = (index, key.into());
            let mut claimed = self.shards[shard].lock();
            if self.note(shard, claimed.keys.entry(key.clone()), owner) {
                owned.keys.push(key);
            }
        }
    }

    /// Releases the owner's claims since the mark.
    pub fn give_up_since(&self, owner: u64, mark: Mark) {
        let mut owners = self.owners();
        let Some(known) = owners.get_mut(&owner) else { return };
        let records = known.records.split_off(mark.records.min(known.records.len()));
        let keys = known.keys.split_off(mark.keys.min(known.keys.len()));
        self.give_up(&records, &keys);
    }

    fn give_up(&self, records: &[Record], keys: &[Key]) {
        for record in records {
            let shard = &self.shards[shard_of_record(record)];
            let mut claimed = shard.lock();
            if claimed.records.remove(record).is_some() {
                shard.count.fetch_sub(1, Ordering::Release);
                self.count.fetch_sub(1, Ordering::Release);
            }
        }
        for key in keys {
            let shard = &self.shards[shard_of_key(key.0, &key.1)];
            let mut claimed = shard.lock();
            if claimed.keys.remove(key).is_some() {
                shard.count.fetch_sub(1, Ordering::Release);
                self.count.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// For engines: `WriteConflict` if the unit changes a record or key that another owner has claimed.
    #[inline]
    pub fn check(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        match self.blocker(unit) {
            None => Ok(()),
            Some(_) => Err(StorageError::WriteConflict),
        }
    }

    /// After a `WriteConflict`: resolves when the conflicting claim has ended. `None` if there is no conflict any
    /// more: then the unit is computed again.
    pub fn ticket(self: &Arc<Self>, unit: &WriteUnit<'_>) -> Option<Ticket> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let owner = self.blocker(unit)?;
        Some(Ticket::new(self.clone(), owner))
    }

    /// Another owner of something that the unit changes.
    fn blocker(&self, unit: &WriteUnit<'_>) -> Option<u64> {
        let other = |owner: Option<&u64>| owner.copied().filter(|owner| *owner != unit.owner);
        unit.ops.iter().enumerate().find_map(|(position, op)| {
            let record = (op.collection, op.record);
            let of_record = changes_record(op)
                .then(|| {
                    self.shards[shard_of_record(&record)].look(|c| other(c.records.get(&record)))
                })
                .flatten();
            of_record.or_else(|| {
                let mut unique = unit.keys_of(position).iter().filter(|c| c.add && c.unique);
                unique.find_map(|change| {
                    let bytes = unit.key_bytes(change);
                    let shard = &self.shards[shard_of_key(change.index, bytes)];
                    shard.look(|c| other(c.keys.get(&(change.index, Box::from(bytes)))))
                })
            })
        })
    }

    /// Number of claims.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Claimed> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks, if there is anything to be seen.
    fn look(&self, find: impl FnOnce(&Claimed) -> Option<u64>) -> Option<u64> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        find(&self.lock())
    }
}

/// The claims that a unit needs.
#[derive(Default)]
struct Wanted {
    records: Vec<Record>,
    /// Unique keys that it adds.
    added: Vec<Key>,
    /// Unique keys that it removes.
    removed: Vec<Key>,
}

impl Wanted {
    fn of(unit: &WriteUnit<'_>) -> Wanted {
        let mut wanted = Wanted::default();
        for (position, op) in unit.ops.iter().enumerate() {
            if changes_record(op) {
                wanted.records.push((op.collection, op.record));
            }
            for change in unit.keys_of(position).iter().filter(|change| change.unique) {
                let key: Key = (change.index, unit.key_bytes(change).into());
                if change.add { wanted.added.push(key) } else { wanted.removed.push(key) }
            }
        }
        wanted
    }

    /// The shards of all of it, each once, in order.
    fn shards(&self) -> Vec<usize> {
        let keys = self.added.iter().chain(&self.removed);
        let of_keys = keys.map(|(index, key)| shard_of_key(*index, key));
        let mut shards: Vec<usize> =
            self.records.iter().map(shard_of_record).chain(of_keys).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}

fn shard_of_record((collection, record): &Record) -> usize {
    shard_of(record.0 ^ u64::from(collection.0).rotate_left(32))
}

fn shard_of_key(index: IndexId, key: &[u8]) -> usize {
    // FNV-1a.
    let hash = key.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    shard_of(hash ^ u64::from(index.0))
}

fn shard_of(number: u64) -> usize {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (SHARDS - 1)
}

/// Whether the operation changes a record that others may know of.
fn changes_record(op: &WriteOp<'_>) -> bool {
    matches!(op.kind, OpKind::Update { .. } | OpKind::Delete { .. }) && !is_provisional(op.record)
}

impl TicketSource for Claims {
    fn poll_ticket(&self, owner: u64, waker: &Waker) -> Poll<kauri_base::Result<()>> {
        match self.owners().get_mut(&owner) {
            None => Poll::Ready(Ok(())),
            Some(owner) => {
                if !owner.waiters.iter().any(|w| w.will_wake(waker)) {
                    owner.waiters.push(waker.clone());
                }
                Poll::Pending
            }
        }
    }
}
