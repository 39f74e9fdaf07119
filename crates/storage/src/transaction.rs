//! Transactions: several statements that read one state and commit as one unit.
//!
//! A transaction holds a snapshot. Statements read through its recovery unit, which adds the write set to the
//! snapshot. The first statement that changes a record (or a unique key) claims it. A later claim by another
//! transaction gets `WriteConflict` at once. A change of a record that was committed after the snapshot gets
//! `WriteConflict`, too. A refused statement leaves the transaction unchanged. The commit is one [`WriteUnit`], so
//! it is atomic.
//!
//! A write outside of transactions that meets a claim also gets `WriteConflict`. Its caller may wait for the end of
//! the claim ([`crate::Claims::ticket`]) before it computes the write again.
//!
//! Transactions do not change definitions: such a unit is refused with `Unsupported`. If a definition changes
//! during the transaction, the commit fails with `StaleCatalog`.

use crate::claims::Claims;
use crate::commit_ticket::CommitTicket;
use crate::engine::{Committer, LocalCommitter, RecoveryUnit, StorageEngine, find_by_scan};
use crate::error::StorageError;
use crate::unit::{KeyChange, OpKind, WriteUnit};
use crate::write_set::{WriteSet, is_provisional};
use kauri_base::limits::TRANSACTION_BYTES_MAX;
use kauri_base::sync::Arc;
use kauri_base::{Access, CommitSeq, RecordId, Ticket};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// See the module's head. Dropping it aborts it.
pub struct Transaction {
    engine: Arc<dyn StorageEngine>,
    claims: Arc<Claims>,
    owner: u64,
    unit: Box<dyn RecoveryUnit>,
    snapshot: CommitSeq,
}

/// Why a unit was not taken into the write set.
enum Refusal {
    Wait(Ticket),
    Error(StorageError),
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Self {
        Refusal::Error(error)
    }
}

impl Transaction {
    /// Begins a transaction. It sees the commits up to now.
    pub fn begin(engine: &Arc<dyn StorageEngine>) -> Result<Transaction, StorageError> {
        let claims = engine.claims().ok_or(StorageError::Unsupported("transactions"))?.clone();
        let mut unit = engine.recovery_unit();
        let snapshot = unit.hold_snapshot()?;
        let owner = claims.begin();
        Ok(Transaction { engine: engine.clone(), claims, owner, unit, snapshot })
    }

    /// The commit sequence of its snapshot.
    pub fn snapshot(&self) -> CommitSeq {
        self.snapshot
    }

    /// The recovery unit, for statements to enter, read and leave.
    pub fn unit(&mut self) -> &mut dyn RecoveryUnit {
        &mut *self.unit
    }

    /// Its uncommitted changes.
    pub fn write_set(&self) -> Option<&WriteSet> {
        self.unit.write_set()
    }

    /// Adds to the write set what a statement has computed from reading through [`Transaction::unit`],
    /// which has been left. All of it or, with an error, nothing. Inserts get provisional ids.
    pub fn write(&mut self, unit: &mut WriteUnit<'_>) -> Result<Access<()>, StorageError> {
        unit.owner = self.owner;
        let mark = match self.admit(unit) {
            Ok(()) => self.claims.claim(unit)?,
            Err(Refusal::Error(error)) => return Err(error),
            Err(Refusal::Wait(ticket)) => return Ok(Access::WouldBlock(ticket)),
        };
        match self.check(unit) {
            Ok(()) => {
                if let Some(writes) = self.unit.write_set_mut() {
                    writes.add(unit);
                }
                Ok(Access::Ready(()))
            }
            Err(refusal) => {
                self.claims.give_up_since(self.owner, mark);
                match refusal {
                    Refusal::Error(error) => Err(error),
                    Refusal::Wait(ticket) => Ok(Access::WouldBlock(ticket)),
                }
            }
        }
    }

    /// The checks that need no claims.
    fn admit(&self, unit: &WriteUnit<'_>) -> Result<(), Refusal> {
        let Some(writes) = self.unit.write_set() else {
            return Err(StorageError::Unsupported("transactions").into());
        };
        let mut bytes = writes.bytes();
        for (position, op) in unit.ops.iter().enumerate() {
            bytes += match &op.kind {
                OpKind::Insert { doc } | OpKind::Update { doc, .. } => doc.len(),
                OpKind::Delete { .. } => 0,
                _ => {
                    let what = "changes of definitions in transactions";
                    return Err(StorageError::Unsupported(what).into());
                }
            };
            let keys = unit.keys_of(position);
            bytes += keys.iter().map(|change| unit.key_bytes(change).len()).sum::<usize>();
            if let OpKind::Update { seen, .. } | OpKind::Delete { seen } = &op.kind
                && !writes.is_current(op.collection, op.record, *seen)
            {
                return Err(StorageError::WriteConflict.into());
            }
        }
        if bytes > TRANSACTION_BYTES_MAX {
            return Err(StorageError::TransactionTooLarge.into());
        }
        Ok(())
    }

    /// Has the engine check the unit against the current commits, except changes of new records, which only this
    /// transaction knows, and with the keys that earlier statements removed.
    fn check(&mut self, unit: &WriteUnit<'_>) -> Result<(), Refusal> {
        let (asked, places) = self.against_committed(unit);
        let outcome = self.engine.check(&asked);
        self.unit.enter();
        let result = self.judge(unit, &places, outcome);
        self.unit.leave();
        result
    }

    /// The unit for the engine's check, and for each of its operations the index in `unit`.
    fn against_committed<'u>(&self, unit: &'u WriteUnit<'_>) -> (WriteUnit<'u>, Vec<usize>) {
        let mut asked = WriteUnit::new();
        asked.owner = self.owner;
        asked.definitions.clone_from(&unit.definitions);
        let mut places = Vec::new();
        let Some(writes) = self.unit.write_set() else { return (asked, places) };
        let mut freed = BTreeMap::<_, Vec<_>>::new();
        for (position, op) in unit.ops.iter().enumerate() {
            let base = writes.base(op.collection, op.record);
            let doc: &[u8] = &[];
            let kind = match &op.kind {
                OpKind::Update { seen, .. } if !is_provisional(op.record) => {
                    OpKind::Update { seen: base.unwrap_or(*seen), doc: Cow::Borrowed(doc) }
                }
                OpKind::Delete { seen } if !is_provisional(op.record) => {
                    OpKind::Delete { seen: base.unwrap_or(*seen) }
                }
                OpKind::Delete { .. } => continue,
                _ => OpKind::Insert { doc: Cow::Borrowed(doc) },
            };
            asked.push(op.collection, op.record, kind);
            places.push(position);
            for change in unit.keys_of(position) {
                let (key, bits) = (unit.key_bytes(change), unit.type_bits(change));
                asked.key(change.index, change.add, change.unique, key, bits);
                if change.add
                    && change.unique
                    && let Some((id, seen)) = writes.given_up(op.collection, change.index, key)
                {
                    let keys = freed.entry((op.collection, id, seen)).or_default();
                    keys.push((change.index, key));
                }
            }
        }
        // What an earlier statement has taken from a record is not in the way. (Never committed: it
        // only says so to the check.)
        for ((collection, id, seen), keys) in freed {
            let position =
                asked.ops.iter().position(|op| (op.collection, op.record) == (collection, id));
            if position.is_none() {
                asked.push(collection, id, OpKind::Backfill { seen });
                for (index, key) in keys {
                    asked.key(index, false, true, key, &[]);
                }
            }
        }
        (asked, places)
    }

    /// Translates the engine's result for a reader of the snapshot.
    fn judge(
        &self,
        unit: &WriteUnit<'_>,
        places: &[usize],
        outcome: Result<(), StorageError>,
    ) -> Result<(), Refusal> {
        match outcome {
            Ok(()) => self.check_unique(unit),
            Err(StorageError::DuplicateKey { index, op, key, type_bits, existing }) => {
                // Only of what this transaction sees it can be said that it is in the way.
                let seen = self.find(index, &key)?;
                if existing.is_some() && seen != existing {
                    return Err(StorageError::WriteConflict.into());
                }
                let op = places.get(op).copied().unwrap_or(op);
                Err(StorageError::DuplicateKey { index, op, key, type_bits, existing }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Checks unique keys against this transaction's view: its own new records, and records that others have
    /// deleted since.
    fn check_unique(&self, unit: &WriteUnit<'_>) -> Result<(), Refusal> {
        for (position, op) in unit.ops.iter().enumerate() {
            for change in unit.keys_of(position).iter().filter(|c| c.add && c.unique) {
                let key = unit.key_bytes(change);
                let Some(existing) = self.find(change.index, key)? else { continue };
                if existing == op.record || removes(unit, change, existing) {
                    continue;
                }
                if !is_provisional(existing) {
                    return Err(StorageError::WriteConflict.into());
                }
                return Err(StorageError::DuplicateKey {
                    index: change.index,
                    op: position,
                    key: key.to_vec(),
                    type_bits: unit.type_bits(change).to_vec(),
                    existing: None,
                }
                .into());
            }
        }
        Ok(())
    }

    /// The record that has a key, as the transaction sees it.
    fn find(&self, index: kauri_base::IndexId, key: &[u8]) -> Result<Option<RecordId>, Refusal> {
        let Some(index) = self.engine.index(index) else { return Ok(None) };
        match find_by_scan(&*index, &*self.unit, key)? {
            Access::WouldBlock(ticket) => Err(Refusal::Wait(ticket)),
            Access::Ready(record) => Ok(record),
        }
    }

    /// Commits the write set to the engine.
    pub fn commit(self) -> Result<CommitTicket, StorageError> {
        let committer = LocalCommitter(self.engine.clone());
        self.commit_with(&committer)
    }

    /// Commits the write set through a committer. Whatever the outcome, the transaction has ended.
    pub fn commit_with(self, committer: &dyn Committer) -> Result<CommitTicket, StorageError> {
        match self.unit.write_set() {
            Some(writes) => {
                let mut unit = writes.unit();
                unit.owner = self.owner;
                committer.commit(&mut unit)
            }
            None => Err(StorageError::Unsupported("transactions")),
        }
    }

    /// Ends it without a trace.
    pub fn abort(self) {}
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.unit.is_entered() {
            self.unit.leave();
        }
        self.unit.release_snapshot();
        self.claims.end(self.owner);
    }
}

/// Whether the unit itself takes the key from this record.
fn removes(unit: &WriteUnit<'_>, added: &KeyChange, record: RecordId) -> bool {
    unit.ops.iter().enumerate().filter(|(_, op)| op.record == record).any(|(position, _)| {
        unit.keys_of(position).iter().any(|change| {
            !change.add
                && change.index == added.index
                && unit.key_bytes(change) == unit.key_bytes(added)
        })
    })
}
