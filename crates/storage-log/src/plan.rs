//! What a commit works with: the plan of a unit, kept with its guard and its grown vectors for the next ones.

use crate::address::{Address, Slot};
use crate::collection::Collection;
use crate::format::record::{Kind, RecordHeader};
use crate::index::Index;
use crate::lock;
use crate::segments::Purpose;
use kauri_base::sync::{Arc, Mutex, MutexGuard};
use kauri_base::{CollectionId, IndexId};
use kauri_medium::{EpochDomain, Guard};
use kauri_storage::{LogPosition, WriteOp, WriteUnit};

/// Maximum number of reused ones.
const SCRATCH_MAX: usize = 64;
/// A plan with room for more steps than this is not kept.
const SCRATCH_STEPS_MAX: usize = 4096;

/// A guard and a plan.
pub struct Scratch {
    /// Keeps memory in place, where it is entered.
    pub guard: Guard,
    /// The plan.
    pub plan: Plan,
}

/// Those that nobody uses now.
#[derive(Default)]
pub struct Scratches(Mutex<Vec<Scratch>>);

impl Scratches {
    /// Takes one, or a new one.
    #[inline]
    pub fn take(&self, domain: &Arc<EpochDomain>) -> Scratch {
        lock(&self.0)
            .pop()
            .unwrap_or_else(|| Scratch { guard: domain.register(), plan: Plan::default() })
    }

    /// Gives one back.
    #[inline]
    pub fn keep(&self, mut scratch: Scratch) {
        scratch.plan.clear();
        if scratch.plan.capacity() > SCRATCH_STEPS_MAX {
            scratch.plan = Plan::default();
        }
        let mut kept = lock(&self.0);
        if kept.len() < SCRATCH_MAX {
            kept.push(scratch);
        }
    }
}

/// The state of one operation.
#[derive(Clone, Copy)]
pub struct Step {
    /// Which of the plan's stores.
    pub store: usize,
    /// The log entry.
    pub kind: Option<Kind>,
    pub payload_len: u32,
    pub payload_crc: u32,
    /// The record; given to inserts by the check.
    pub record: u64,
    /// The record's place, and the epoch of the segment there, which shows whether the place is still valid.
    pub seen: Slot,
    pub seen_epoch: u64,
    /// Bytes of the document that was there.
    pub seen_len: u32,
    /// The new record's place.
    pub address: Address,
}

impl Step {
    pub fn header(&self, op: &WriteOp<'_>, pending: bool, flags: u8, seq: u64) -> RecordHeader {
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
pub struct PlannedStore {
    pub id: CollectionId,
    /// `None` if it does not exist and is not created.
    pub store: Option<Arc<Collection>>,
    /// Whether the unit creates it.
    pub created: bool,
    /// The state for the check: whether the record exists at this point of the unit.
    pub exists: bool,
    /// The next id for an insert.
    pub next_record: u64,
}

/// An index that the unit names.
pub struct PlannedIndex {
    pub id: IndexId,
    pub index: Option<Arc<Index>>,
    pub created: bool,
    pub exists: bool,
}

/// Stores in the order of their ids. Nearly always it is one.
pub struct Latched {
    first: Option<Arc<Collection>>,
    others: Vec<Arc<Collection>>,
}

/// The latches of [`Latched`].
pub struct Latches<'l> {
    _first: Option<MutexGuard<'l, ()>>,
    _others: Vec<MutexGuard<'l, ()>>,
}

impl Latched {
    /// Takes the latches in order.
    pub fn latch(&self) -> Latches<'_> {
        Latches {
            _first: self.first.as_ref().map(|store| lock(&store.latch)),
            _others: self.others.iter().map(|store| lock(&store.latch)).collect(),
        }
    }
}

/// See the module's head.
pub struct Plan {
    pub steps: Vec<Step>,
    /// Ordered by id.
    pub stores: Vec<PlannedStore>,
    pub indexes: Vec<PlannedIndex>,
    /// Whether snapshots were held when the unit got its number, and how many ever had been.
    pub holding: bool,
    pub holds: u64,
    /// The unit's place in a replicated log, if it is appended as pending.
    pub pending: Option<LogPosition>,
    /// Whether it is another member's, which has checked it and is in the log already.
    pub copied: bool,
    /// Its commit record, and that one's length.
    pub commit_at: Address,
    pub commit_len: u32,
    pub records: usize,
    pub purpose_write: bool,
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
            copied: false,
            commit_at: Address { segment: 0, offset: 0 },
            commit_len: 0,
            records: 0,
            purpose_write: false,
        }
    }
}

impl Plan {
    pub fn clear(&mut self) {
        self.steps.clear();
        self.stores.clear();
        self.indexes.clear();
        (self.holding, self.holds) = (false, 0);
        (self.pending, self.copied) = (None, false);
        self.records = 0;
        self.purpose_write = false;
    }

    pub fn capacity(&self) -> usize {
        self.steps.capacity()
    }

    /// Records that are logged.
    pub fn records(&self) -> usize {
        self.records
    }

    /// The purpose of a space request.
    pub fn purpose(&self) -> Purpose {
        if self.purpose_write { Purpose::Write } else { Purpose::Delete }
    }

    /// The stores whose latches are taken.
    pub fn latched(&self) -> Latched {
        let mut stores = self.stores.iter().filter_map(|planned| planned.store.as_ref()).cloned();
        Latched { first: stores.next(), others: stores.collect() }
    }

    /// Payload lengths of the records that are logged.
    pub fn payload_lens(&self) -> impl Iterator<Item = u32> + Clone {
        self.steps.iter().filter(|step| step.kind.is_some()).map(|step| step.payload_len)
    }

    /// The steps that are logged, with their operations.
    pub fn logged_steps<'p, 'u, 'a>(
        &'p mut self,
        unit: &'u WriteUnit<'a>,
    ) -> impl Iterator<Item = (&'p mut Step, &'u WriteOp<'a>)> {
        self.steps.iter_mut().zip(&unit.ops).filter(|(step, _)| step.kind.is_some())
    }

    pub fn index(&self, id: IndexId) -> Option<&PlannedIndex> {
        self.indexes.iter().find(|planned| planned.id == id)
    }
}
