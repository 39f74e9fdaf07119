//! What can be found out about a unit before any latch is taken.

use crate::address::{Address, Slot};
use crate::btree::BTree;
use crate::collection::Collection;
use crate::core::Core;
use crate::format::record::{Kind, RecordHeader};
use crate::head::payload_bytes_max;
use crate::index::Index;
use crate::lock;
use crate::read::{self, Lookup};
use crate::segments::Purpose;
use kauri_base::sync::{Arc, MutexGuard};
use kauri_base::{Access, CollectionId, IndexId};
use kauri_medium::Guard;
use kauri_storage::{LogPosition, OpKind, StorageError, WriteOp, WriteUnit};

/// Operations of a unit that conflicts rather than waits.
const CONFLICT_OPS_MAX: usize = 128;

/// What is known of one operation.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// Which of the plan's stores.
    pub(super) store: usize,
    /// What is logged.
    pub(super) kind: Option<Kind>,
    pub(super) payload_len: u32,
    payload_crc: u32,
    /// The record; given to inserts by the check.
    pub(super) record: u64,
    /// Where the record was, and the epoch of the segment there, which tells whether it still is.
    pub(super) seen: Slot,
    pub(super) seen_epoch: u64,
    /// Bytes of the document that was there.
    pub(super) seen_len: u32,
    /// Where the new record is.
    pub(super) address: Address,
}

impl Step {
    pub(super) fn header(
        &self,
        op: &WriteOp<'_>,
        pending: bool,
        flags: u8,
        seq: u64,
    ) -> RecordHeader {
        let kind = self.kind.unwrap_or(Kind::Put);
        let kind = if pending { kind.pending() } else { kind };
        RecordHeader {
            kind,
            flags,
            payload_len: self.payload_len,
            payload_crc: self.payload_crc,
            collection: op.collection.0,
            record: self.record,
            seq,
        }
    }
}

/// A store that the unit names.
pub(super) struct PlannedStore {
    pub(super) id: CollectionId,
    /// `None` if there is none and none is created.
    pub(super) store: Option<Arc<Collection>>,
    /// Whether the unit creates it.
    pub(super) created: bool,
    /// What the check goes by: whether it exists at this point of the unit.
    pub(super) exists: bool,
    /// The next id for an insert.
    pub(super) next_record: u64,
}

/// An index that the unit names.
pub(super) struct PlannedIndex {
    pub(super) id: IndexId,
    pub(super) index: Option<Arc<Index>>,
    pub(super) created: bool,
    pub(super) exists: bool,
}

/// Stores in the order of their ids. Nearly always it is one.
pub(super) struct Latched {
    first: Option<Arc<Collection>>,
    others: Vec<Arc<Collection>>,
}

/// The latches of [`Latched`].
pub(super) struct Latches<'l> {
    _first: Option<MutexGuard<'l, ()>>,
    _others: Vec<MutexGuard<'l, ()>>,
}

impl Latched {
    /// Takes the latches in order.
    pub(super) fn latch(&self) -> Latches<'_> {
        Latches {
            _first: self.first.as_ref().map(|store| lock(&store.latch)),
            _others: self.others.iter().map(|store| lock(&store.latch)).collect(),
        }
    }
}

/// See the module's head.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Ordered by id.
    pub(super) stores: Vec<PlannedStore>,
    pub(super) indexes: Vec<PlannedIndex>,
    /// Whether snapshots were held when the unit got its number, and how many ever had been.
    pub(super) holding: bool,
    pub(super) holds: u64,
    /// The unit's place in a replicated log, if it is appended as pending.
    pub(super) pending: Option<LogPosition>,
    /// Its commit record, and that one's length.
    pub(super) commit_at: Address,
    pub(super) commit_len: u32,
    records: usize,
    purpose_write: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            steps: Vec::new(),
            stores: Vec::new(),
            indexes: Vec::new(),
            holding: false,
            holds: 0,
            pending: None,
            commit_at: Address { segment: 0, offset: 0 },
            commit_len: 0,
            records: 0,
            purpose_write: false,
        }
    }
}

impl Plan {
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.stores.clear();
        self.indexes.clear();
        (self.holding, self.holds, self.pending) = (false, 0, None);
        self.records = 0;
        self.purpose_write = false;
    }

    pub(super) fn capacity(&self) -> usize {
        self.steps.capacity()
    }

    /// Records that are logged.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    /// What room is wanted for.
    pub(super) fn purpose(&self) -> Purpose {
        if self.purpose_write { Purpose::Write } else { Purpose::Delete }
    }

    /// The stores whose latches are taken.
    pub(super) fn latched(&self) -> Latched {
        let mut stores = self.stores.iter().filter_map(|planned| planned.store.as_ref()).cloned();
        Latched { first: stores.next(), others: stores.collect() }
    }

    /// Payload lengths of the records that are logged.
    pub(super) fn payload_lens(&self) -> impl Iterator<Item = u32> + Clone {
        self.steps.iter().filter(|step| step.kind.is_some()).map(|step| step.payload_len)
    }

    /// The steps that are logged, with their operations.
    pub(super) fn logged_steps<'p, 'u, 'a>(
        &'p mut self,
        unit: &'u WriteUnit<'a>,
    ) -> impl Iterator<Item = (&'p mut Step, &'u WriteOp<'a>)> {
        self.steps.iter_mut().zip(&unit.ops).filter(|(step, _)| step.kind.is_some())
    }

    pub(super) fn index(&self, id: IndexId) -> Option<&PlannedIndex> {
        self.indexes.iter().find(|planned| planned.id == id)
    }

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

    /// Sees that every record that is changed is in the version that was seen, and notes where it
    /// is, or nothing if it isn't, which the check finds wanting.
    ///
    /// The caller had read the records a moment ago, so it is rare that one is not in memory. Then
    /// reading it has begun when this answers `WriteConflict`: whoever reads it again to compute anew
    /// waits for that, as a future and without anything in hand. Three have nobody who would read again
    /// and wait here: the catalog, large units (whose records may not fit memory together), and engines
    /// whose reads are done by whoever waits.
    pub(super) fn look_up(
        &mut self,
        core: &Core,
        unit: &WriteUnit<'_>,
        guard: &mut Guard,
    ) -> Result<(), StorageError> {
        let may_conflict = core.options.read_threads > 0 && unit.ops.len() <= CONFLICT_OPS_MAX;
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
