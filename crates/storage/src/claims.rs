//! Who is about to change what: records and unique keys that transactions and pending units have
//! claimed. The first one to claim wins; who comes later gets `WriteConflict` at once.
//!
//! An engine looks at the claims within the step in which it checks a unit's versions, and a
//! transaction claims before it has its versions checked. So of two writers one always sees the
//! other. As long as nobody claims anything, looking costs one load.

use crate::error::StorageError;
use crate::staged::is_provisional;
use crate::unit::{OpKind, WriteOp, WriteUnit};
use kauri_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use kauri_base::sync::{Arc, Mutex, MutexGuard, PoisonError};
use kauri_base::ticket::TicketSource;
use kauri_base::{CollectionId, IndexId, RecordId, Ticket};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::task::{Poll, Waker};

/// See the module's head. One per engine.
#[derive(Default)]
pub struct Claims {
    /// Claims that there are.
    count: AtomicUsize,
    next_owner: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    records: HashMap<(CollectionId, RecordId), u64>,
    keys: HashMap<(IndexId, Box<[u8]>), u64>,
    owners: HashMap<u64, Owner>,
}

#[derive(Default)]
struct Owner {
    records: Vec<(CollectionId, RecordId)>,
    keys: Vec<(IndexId, Box<[u8]>)>,
    waiters: Vec<Waker>,
}

/// How much an owner has claimed, to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    records: usize,
    keys: usize,
}

impl Claims {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new owner of claims, which has none yet.
    pub fn begin(&self) -> u64 {
        let owner = self.next_owner.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().owners.insert(owner, Owner::default());
        owner
    }

    /// Ends an owner and all its claims; who waits for it is woken.
    pub fn end(&self, owner: u64) {
        let mut inner = self.lock();
        let Some(ended) = inner.owners.remove(&owner) else { return };
        inner.give_up(&ended.records, &ended.keys);
        self.note_count(&inner);
        drop(inner);
        ended.waiters.into_iter().for_each(Waker::wake);
    }

    /// Claims the records and unique keys that the unit changes for its owner: all, or none if
    /// another owner has one of them. Answers what the owner had before.
    pub fn claim(&self, unit: &WriteUnit<'_>) -> Result<Mark, StorageError> {
        let mut inner = self.lock();
        if inner.blocker(unit).is_some() {
            return Err(StorageError::WriteConflict);
        }
        let Inner { records, keys, owners } = &mut *inner;
        let owner = owners.entry(unit.owner).or_default();
        let mark = Mark { records: owner.records.len(), keys: owner.keys.len() };
        for (position, op) in unit.ops.iter().enumerate() {
            let record = (op.collection, op.record);
            if changes_record(op)
                && let Entry::Vacant(vacant) = records.entry(record)
            {
                vacant.insert(unit.owner);
                owner.records.push(record);
            }
            // Removed ones too: whoever adds such a key must know first whether it is free.
            for change in unit.keys_of(position).iter().filter(|change| change.unique) {
                let key: (IndexId, Box<[u8]>) = (change.index, unit.key_bytes(change).into());
                if let Entry::Vacant(vacant) = keys.entry(key.clone()) {
                    vacant.insert(unit.owner);
                    owner.keys.push(key);
                }
            }
        }
        self.note_count(&inner);
        Ok(mark)
    }

    /// Claims records, as far as nobody else has them: for units that were claimed before a restart.
    pub fn claim_records(
        &self,
        owner: u64,
        records: impl Iterator<Item = (CollectionId, RecordId)>,
    ) {
        let mut inner = self.lock();
        let Inner { records: claimed, owners, .. } = &mut *inner;
        let owned = owners.entry(owner).or_default();
        for record in records {
            if let Entry::Vacant(vacant) = claimed.entry(record) {
                vacant.insert(owner);
                owned.records.push(record);
            }
        }
        self.note_count(&inner);
    }

    /// Claims unique keys, likewise.
    pub fn claim_keys<'k>(&self, owner: u64, index: IndexId, keys: impl Iterator<Item = &'k [u8]>) {
        let mut inner = self.lock();
        let Inner { keys: claimed, owners, .. } = &mut *inner;
        let owned = owners.entry(owner).or_default();
        for key in keys {
            let key: (IndexId, Box<[u8]>) = (index, key.into());
            if let Entry::Vacant(vacant) = claimed.entry(key.clone()) {
                vacant.insert(owner);
                owned.keys.push(key);
            }
        }
        self.note_count(&inner);
    }

    /// Gives up what the owner has claimed since the mark.
    pub fn give_up_since(&self, owner: u64, mark: Mark) {
        let mut inner = self.lock();
        let Some(known) = inner.owners.get_mut(&owner) else { return };
        let records = known.records.split_off(mark.records.min(known.records.len()));
        let keys = known.keys.split_off(mark.keys.min(known.keys.len()));
        inner.give_up(&records, &keys);
        self.note_count(&inner);
    }

    /// For engines: `WriteConflict` if the unit changes what somebody else has claimed.
    #[inline]
    pub fn check(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        match self.lock().blocker(unit) {
            None => Ok(()),
            Some(_) => Err(StorageError::WriteConflict),
        }
    }

    /// After a `WriteConflict`: resolves when the claim that the unit has met has ended. `None` if
    /// it meets none (any more): then it is simply computed anew.
    pub fn ticket(self: &Arc<Self>, unit: &WriteUnit<'_>) -> Option<Ticket> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let owner = self.lock().blocker(unit)?;
        Some(Ticket::new(self.clone(), owner))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn note_count(&self, inner: &Inner) {
        self.count.store(inner.records.len() + inner.keys.len(), Ordering::Release);
    }
}

/// Whether the operation changes a record that others may know of.
fn changes_record(op: &WriteOp<'_>) -> bool {
    matches!(op.kind, OpKind::Update { .. } | OpKind::Delete { .. }) && !is_provisional(op.record)
}

impl Inner {
    /// Another owner of something that the unit changes.
    fn blocker(&self, unit: &WriteUnit<'_>) -> Option<u64> {
        let other = |owner: Option<&u64>| owner.copied().filter(|owner| *owner != unit.owner);
        unit.ops.iter().enumerate().find_map(|(position, op)| {
            let record = (op.collection, op.record);
            let of_record = changes_record(op).then(|| other(self.records.get(&record))).flatten();
            of_record.or_else(|| {
                let mut unique = unit.keys_of(position).iter().filter(|c| c.add && c.unique);
                unique.find_map(|c| {
                    other(self.keys.get(&(c.index, Box::<[u8]>::from(unit.key_bytes(c)))))
                })
            })
        })
    }

    fn give_up(&mut self, records: &[(CollectionId, RecordId)], keys: &[(IndexId, Box<[u8]>)]) {
        for record in records {
            self.records.remove(record);
        }
        for key in keys {
            self.keys.remove(key);
        }
    }
}

impl TicketSource for Claims {
    fn poll_ticket(&self, owner: u64, waker: &Waker) -> Poll<kauri_base::Result<()>> {
        match self.lock().owners.get_mut(&owner) {
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
