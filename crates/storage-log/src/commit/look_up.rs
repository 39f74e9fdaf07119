//! The part of a commit's checks that needs no latch.

use crate::address::{Address, Slot};
use crate::btree::BTree;
use crate::collection::Collection;
use crate::core::Core;
use crate::format::record::Kind;
use crate::index::Index;
use crate::open_segment::payload_bytes_max;
use crate::plan::{Plan, PlannedIndex, PlannedStore, Step};
use crate::read::{self, Lookup};
use kauri_base::sync::Arc;
use kauri_base::{Access, CollectionId, IndexId};
use kauri_medium::Guard;
use kauri_storage::{OpKind, StorageError, WriteOp, WriteUnit};

/// Operations of a unit that conflicts rather than waits.
const CONFLICT_OPS_MAX: usize = 128;

impl Plan {
    /// Finds what the unit names and computes what depends on the unit alone.
    pub(super) fn make(&mut self, core: &Core, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        self.clear();
        self.find_stores(core, unit);
        let payload_max = payload_bytes_max(core.segments.segment_bytes());
        for (position, op) in unit.ops.iter().enumerate() {
            let (kind, payload) = match &op.kind {
                OpKind::Insert { doc } | OpKind::Update { doc, .. } => (Some(Kind::Put), &doc[..]),
                OpKind::Delete { .. } => (Some(Kind::Tombstone), &[][..]),
                OpKind::CreateStore => (Some(Kind::CreateStore), &[][..]),
                OpKind::DropStore => (Some(Kind::DropStore), &[][..]),
                _ => (None, &[][..]),
            };
            if payload.len() > payload_max as usize {
                let (bytes, max) = (payload.len(), payload_max as usize);
                return Err(StorageError::DocumentTooLarge { bytes, max });
            }
            self.purpose_write |= matches!(kind, Some(Kind::Put | Kind::CreateStore));
            self.records += usize::from(kind.is_some());
            self.steps.push(Step {
                store: self.stores.iter().position(|s| s.id == op.collection).unwrap_or(0),
                kind,
                payload_len: payload.len() as u32,
                payload_crc: crc32c::crc32c(payload),
                record: op.record.0,
                seen: Slot::NONE,
                seen_epoch: 0,
                seen_len: 0,
                address: Address { segment: 0, offset: 0 },
            });
            self.find_indexes(core, unit, position, op);
        }
        Ok(())
    }

    fn find_stores(&mut self, core: &Core, unit: &WriteUnit<'_>) {
        let ops = unit.ops.iter().map(|op| (op.collection, matches!(op.kind, OpKind::CreateStore)));
        for (id, created) in unit.definitions.iter().map(|(id, _)| (*id, false)).chain(ops) {
            match self.stores.iter_mut().find(|planned| planned.id == id) {
                Some(planned) => planned.created |= created,
                None => self.stores.push(PlannedStore {
                    id,
                    store: core.registry.store(id),
                    created,
                    exists: false,
                    next_record: 0,
                }),
            }
        }
        self.stores.sort_unstable_by_key(|planned| planned.id);
        for planned in self.stores.iter_mut().filter(|planned| planned.created) {
            // Only one that was never there can be created.
            planned.created = core.registry.store_or_grave(planned.id).is_none();
            if planned.created {
                planned.store = Some(Arc::new(Collection::new(planned.id, core.domain.clone())));
            }
        }
    }

    fn find_indexes(
        &mut self,
        core: &Core,
        unit: &WriteUnit<'_>,
        position: usize,
        op: &WriteOp<'_>,
    ) {
        match &op.kind {
            OpKind::CreateIndex { spec, generator } if self.index(spec.id).is_none() => {
                let existing = core.registry.read().indexes.get(&spec.id).cloned();
                let created = existing.is_none();
                let store = self.stores.iter().find(|planned| planned.id == op.collection);
                let store = store.and_then(|planned| planned.store.as_ref());
                // Without a store the check refuses the unit.
                let new = |store: &Arc<Collection>| {
                    Arc::new(Index::new(*spec, store.clone(), BTree::new(), generator.clone()))
                };
                self.indexes.push(PlannedIndex {
                    id: spec.id,
                    index: existing.or_else(|| store.map(new)),
                    created,
                    exists: false,
                });
            }
            OpKind::DropIndex { index } => self.find_index(core, *index),
            _ => {}
        }
        for change in unit.keys_of(position) {
            self.find_index(core, change.index);
        }
    }

    fn find_index(&mut self, core: &Core, id: IndexId) {
        if self.index(id).is_none() {
            let index = core.registry.read().indexes.get(&id).cloned();
            self.indexes.push(PlannedIndex { id, index, created: false, exists: false });
        }
    }

    /// Checks that every changed record still has the version that the unit saw, and notes its place, or nothing if
    /// it has not; then the check fails.
    ///
    /// The caller has just read the records, so a record is rarely missing from memory. Then its read has begun
    /// when this returns `WriteConflict`: the caller that reads it again waits for that, as a future that holds
    /// nothing. Other callers do not read again and wait here: the catalog, large units (whose records may not fit
    /// into memory together), other members' units, and engines whose reads run on the waiting thread.
    pub(super) fn look_up(
        &mut self,
        core: &Core,
        unit: &WriteUnit<'_>,
        guard: &mut Guard,
    ) -> Result<(), StorageError> {
        let waits = self.copied || unit.ops.len() > CONFLICT_OPS_MAX;
        let may_conflict = core.options.read_threads > 0 && !waits;
        for (step, op) in self.steps.iter_mut().zip(&unit.ops) {
            let seen = match &op.kind {
                OpKind::Update { seen, .. }
                | OpKind::Delete { seen }
                | OpKind::Backfill { seen } => *seen,
                _ => continue,
            };
            let Some(store) = self.stores.get(step.store).and_then(|s| s.store.as_ref()) else {
                continue;
            };
            step.seen = Slot::NONE;
            loop {
                match read::header(core, guard, store, op.record)? {
                    Access::Ready(Lookup::Found(found)) if found.header.seq == seen.0 => {
                        step.seen_len = found.header.payload_len;
                        (step.seen, step.seen_epoch) = (found.slot, found.epoch);
                    }
                    Access::Ready(_) => {}
                    Access::WouldBlock(ticket)
                        if may_conflict && op.collection != CollectionId::CATALOG =>
                    {
                        ticket.begin();
                        return Err(StorageError::WriteConflict);
                    }
                    Access::WouldBlock(ticket) => {
                        guard.leave();
                        let waited = ticket.wait();
                        guard.enter();
                        waited.map_err(|error| StorageError::Io(error.to_string()))?;
                        continue;
                    }
                }
                break;
            }
        }
        Ok(())
    }
}
