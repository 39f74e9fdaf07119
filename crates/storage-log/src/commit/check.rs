//! Checks whether a unit may be committed, with all latches held.
//!
//! The interface defines the order of errors: definitions first, then for each operation missing records or other
//! versions, then unique keys.

use super::Again;
use crate::core::Core;
use crate::plan::{Plan, PlannedIndex};
use crate::slots::RECORDS_MAX;
use kauri_base::sync::atomic::Ordering;
use kauri_base::{CollectionId, RecordId};
use kauri_medium::Guard;
use kauri_storage::{KeyChange, OpKind, StorageError, WriteUnit};
use std::collections::HashSet;

impl Plan {
    pub(super) fn check(
        &mut self,
        core: &Core,
        unit: &WriteUnit<'_>,
        guard: &Guard,
    ) -> Result<(), Again> {
        if !self.copied {
            core.claims.check(unit)?;
        }
        for planned in &mut self.stores {
            let store = planned.store.as_ref().filter(|store| !store.is_dropped());
            planned.exists = store.is_some() && !planned.created;
            planned.next_record = store.map_or(1, |store| store.slots.limit());
        }
        for planned in &mut self.indexes {
            planned.exists =
                !planned.created && planned.index.as_ref().is_some_and(|i| !i.is_dropped());
        }
        for (collection, number) in &unit.definitions {
            let planned = self.stores.iter().find(|planned| planned.id == *collection);
            let store = planned.filter(|p| p.exists).and_then(|p| p.store.as_ref());
            if store.map(|store| store.definition.load(Ordering::Acquire)) != Some(*number) {
                return Err(StorageError::StaleCatalog(*collection).into());
            }
        }
        for position in 0..unit.ops.len() {
            self.check_op(core, unit, guard, position)?;
        }
        // The leader has.
        if !self.copied {
            self.check_unique(unit)?;
        }
        Ok(())
    }

    fn check_op(
        &mut self,
        core: &Core,
        unit: &WriteUnit<'_>,
        guard: &Guard,
        position: usize,
    ) -> Result<(), Again> {
        let (Some(op), Some(step)) = (unit.ops.get(position), self.steps.get_mut(position)) else {
            return Ok(());
        };
        let stale = || Again::Refused(StorageError::StaleCatalog(op.collection));
        let planned = self.stores.get_mut(step.store).ok_or_else(stale)?;
        if planned.exists == matches!(op.kind, OpKind::CreateStore) {
            return Err(stale());
        }
        match &op.kind {
            OpKind::Insert { .. } => {
                if planned.next_record >= RECORDS_MAX {
                    return Err(StorageError::OutOfDiskSpace.into());
                }
                match self.copied {
                    false => step.record = planned.next_record,
                    true if step.record < planned.next_record => return Err(stale()),
                    true => {}
                }
                planned.next_record = step.record + 1;
            }
            OpKind::Update { .. } | OpKind::Delete { .. } | OpKind::Backfill { .. } => {
                let now = planned
                    .store
                    .as_ref()
                    .map(|store| store.slots.load(guard, step.record))
                    .filter(|slot| slot.is_live());
                let Some(now) = now.filter(|_| !step.seen.is_none()) else {
                    return Err(StorageError::WriteConflict.into());
                };
                let epoch = core.segments.get(now.address().segment).epoch();
                if !now.same_place(step.seen) || epoch != step.seen_epoch {
                    return Err(Again::Plan);
                }
            }
            OpKind::CreateStore if !planned.created => return Err(stale()),
            OpKind::CreateStore => planned.exists = true,
            OpKind::DropStore => {
                planned.exists = false;
                let id = planned.id;
                for index in self.indexes.iter_mut() {
                    index.exists &= index.index.as_ref().is_none_or(|i| i.collection != id);
                }
            }
            // The keys that they take are not known for it, nor claimed.
            OpKind::CreateIndex { .. } if core.pending.changes(op.collection) => {
                return Err(StorageError::WriteConflict.into());
            }
            OpKind::CreateIndex { spec, .. } => {
                let index = self.indexes.iter_mut().find(|index| index.id == spec.id);
                match index.filter(|index| index.created && !index.exists) {
                    Some(index) => index.exists = true,
                    None => return Err(stale()),
                }
            }
            OpKind::DropIndex { index } => {
                let index = self.indexes.iter_mut().find(|planned| planned.id == *index);
                match index.filter(|planned| planned.is_of(op.collection)) {
                    Some(planned) => planned.exists = false,
                    None => return Err(stale()),
                }
            }
            OpKind::ChangeDefinition => {}
        }
        for change in unit.keys_of(position) {
            if !self.index(change.index).is_some_and(|index| index.is_of(op.collection)) {
                return Err(stale());
            }
        }
        Ok(())
    }

    /// Unique keys: against the indexes first, then within the unit.
    fn check_unique(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        let mut adds: Vec<(u32, &KeyChange)> = Vec::new();
        let mut removed = None;
        let mut found = None;
        for (position, step) in self.steps.iter().enumerate() {
            for change in unit.keys_of(position).iter().filter(|c| c.add && c.unique) {
                adds.push((position as u32, change));
                let Some(index) = self.index(change.index).and_then(|i| i.index.as_ref()) else {
                    continue;
                };
                let key = unit.key_bytes(change);
                let own = RecordId(step.record);
                let existing = index.keys.find_other(key, |id| {
                    id != own && {
                        let removed = removed.get_or_insert_with(|| self.removed_keys(unit));
                        !removed.contains(&(change.index.0, key, id.0))
                    }
                });
                if existing.is_some() {
                    found = Some((position as u32, change, existing));
                    break;
                }
            }
            if found.is_some() {
                break;
            }
        }
        let within = self.duplicate_within(unit, &mut adds);
        let first = match (found, within) {
            (Some(found), Some((position, change))) if position < found.0 => {
                (position, change, None)
            }
            (Some(found), _) => found,
            (None, Some((position, change))) => (position, change, None),
            (None, None) => return Ok(()),
        };
        let (position, change, existing) = first;
        Err(StorageError::DuplicateKey {
            index: change.index,
            op: position as usize,
            key: unit.key_bytes(change).to_vec(),
            type_bits: unit.type_bits(change).to_vec(),
            existing,
        })
    }

    fn removed_keys<'u>(&self, unit: &'u WriteUnit<'_>) -> HashSet<(u32, &'u [u8], u64)> {
        let mut removed = HashSet::new();
        for (position, step) in self.steps.iter().enumerate() {
            for change in unit.keys_of(position).iter().filter(|change| !change.add) {
                removed.insert((change.index.0, unit.key_bytes(change), step.record));
            }
        }
        removed
    }

    /// The first operation that adds a unique key which an earlier one adds for another record.
    fn duplicate_within<'u>(
        &self,
        unit: &'u WriteUnit<'_>,
        adds: &mut [(u32, &'u KeyChange)],
    ) -> Option<(u32, &'u KeyChange)> {
        if adds.len() < 2 {
            return None;
        }
        let key = |(position, change): &(u32, &'u KeyChange)| {
            (change.index.0, unit.key_bytes(change), *position)
        };
        adds.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        let record = |position: u32| self.steps.get(position as usize).map(|step| step.record);
        adds.windows(2)
            .filter_map(|pair| {
                let [a, b] = pair else { return None };
                let same = a.1.index == b.1.index && unit.key_bytes(a.1) == unit.key_bytes(b.1);
                (same && record(a.0) != record(b.0)).then_some(*b)
            })
            .min_by_key(|(position, _)| *position)
    }
}

impl PlannedIndex {
    fn is_of(&self, collection: CollectionId) -> bool {
        self.exists && self.index.as_ref().is_some_and(|index| index.collection == collection)
    }
}
