//! Pending units: kept until the replicated log reports them as committed.

use super::Shared;
use crate::commit_ticket::CommitTicket;
use crate::error::StorageError;
use crate::pending_log::{LogPosition, PendingLog, PendingUnit};
use crate::unit::{OpKind, WriteOp, WriteUnit};
use kauri_base::sync::{Arc, MutexGuard, PoisonError};
use kauri_base::{CommitSeq, RecordId};
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Pending {
    units: VecDeque<Unit>,
    committed: LogPosition,
}

struct Unit {
    position: LogPosition,
    seq: CommitSeq,
    unit: WriteUnit<'static>,
    ids: Vec<RecordId>,
}

impl Shared {
    fn lock_pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A unit that creates an index must not meet pending units that change the collection; while the
    /// answer is held none is appended. Taken before the state's lock.
    pub(super) fn check_pending(
        &self,
        unit: &WriteUnit<'_>,
    ) -> Result<Option<MutexGuard<'_, Pending>>, StorageError> {
        let creates = |op: &&WriteOp<'_>| matches!(op.kind, OpKind::CreateIndex { .. });
        let mut pending = None;
        for op in unit.ops.iter().filter(creates) {
            let known = pending.get_or_insert_with(|| self.lock_pending());
            let mut changes = known.units.iter().flat_map(|unit| &unit.unit.ops);
            if changes.any(|change| change.collection == op.collection) {
                return Err(StorageError::WriteConflict);
            }
        }
        Ok(pending)
    }
}

impl PendingLog for Shared {
    fn append(
        &self,
        unit: &mut WriteUnit<'_>,
        position: LogPosition,
    ) -> Result<CommitTicket, StorageError> {
        if unit.ops.iter().any(|op| !op.kind.is_of_document()) {
            return Err(StorageError::Unsupported("changes of definitions in pending units"));
        }
        let mut pending = self.lock_pending();
        let last = pending.units.back().map_or(pending.committed, |unit| unit.position);
        if position.index <= last.index {
            return Err(StorageError::OutOfOrder);
        }
        let mut state = self.write_unless_held()?;
        self.claims.check(unit)?;
        let ids = state.check(unit)?;
        unit.owner = self.claims.begin();
        if let Err(error) = self.claims.claim(unit) {
            self.claims.end(unit.owner);
            unit.owner = 0;
            return Err(error);
        }
        let seq = Arc::make_mut(&mut *state).reserve(unit, &ids);
        let unit = unit.to_static();
        pending.units.push_back(Unit { position, seq, unit, ids });
        Ok(CommitTicket::new(seq, None, None))
    }

    fn commit_up_to(&self, index: u64) -> Result<CommitTicket, StorageError> {
        let mut pending = self.lock_pending();
        let mut guard = self.write_unless_held()?;
        if pending.units.front().is_none_or(|unit| unit.position.index > index) {
            return Ok(CommitTicket::new(guard.seq, None, None));
        }
        let state = Arc::make_mut(&mut *guard);
        while let Some(mut next) = pending.units.pop_front() {
            if next.position.index > index {
                pending.units.push_front(next);
                break;
            }
            state.apply_pending(&mut next.unit, &next.ids, next.seq);
            self.claims.end(next.unit.owner);
            pending.committed = next.position;
        }
        Ok(CommitTicket::new(state.seq, None, None))
    }

    fn truncate_after(&self, index: u64) -> Result<CommitTicket, StorageError> {
        let mut pending = self.lock_pending();
        drop(self.write_unless_held()?);
        while let Some(last) = pending.units.pop_back_if(|unit| unit.position.index > index) {
            self.claims.end(last.unit.owner);
        }
        Ok(CommitTicket::new(self.read().seq, None, None))
    }

    fn committed(&self) -> LogPosition {
        self.lock_pending().committed
    }

    fn pending(&self) -> Vec<PendingUnit> {
        let pending = self.lock_pending();
        let unit = |unit: &Unit| PendingUnit {
            position: unit.position,
            seq: unit.seq,
            records: unit.ids.len(),
        };
        pending.units.iter().map(unit).collect()
    }
}
