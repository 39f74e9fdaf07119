//! Pending units of a replicated log, in memory.
//!
//! Invariants:
//! - The records of a pending unit are in the log. Address tables and indexes have nothing of them, except a
//!   placeholder under the id of each insert: a tombstone at the record's own place, so that the id is taken.
//! - A segment with a record of a pending unit is pinned: the cleaner does not move it until the unit is resolved
//!   and the resolution is durable. Each of these records counts as live.
//! - The newest resolution record stays in the log forever, because any later recovery may read resolved pending
//!   records.
//!
//! Locks: `order` comes before all others; the state's lock is one of the short ones.

use crate::address::Slot;
use crate::format::resolution::Resolution;
use crate::lock;
use kauri_base::CollectionId;
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use kauri_base::sync::{Mutex, MutexGuard};
use kauri_storage::LogPosition;
use std::collections::{HashMap, VecDeque};

/// Ranges of dropped units that one resolution may name; each start forgets those of which no record is
/// left.
pub const DROPPED_MAX: usize = 2048;

/// See the module's head.
#[derive(Default)]
pub struct PendingUnits {
    order: Mutex<()>,
    state: Mutex<State>,
    /// The place of the newest resolution record: a [`Slot`].
    resolution_at: AtomicU64,
}

#[derive(Default)]
struct State {
    units: VecDeque<Unit>,
    resolution: Resolution,
    pinned: HashMap<u32, Pinned>,
}

#[derive(Default)]
struct Pinned {
    /// Pending units with records in the segment.
    units: u32,
    /// The commit that resolved the last one that has been.
    resolved: u64,
}

/// A pending unit.
#[derive(Clone)]
pub struct Unit {
    /// Its position in the replicated log.
    pub position: LogPosition,
    /// Its commit sequence.
    pub seq: u64,
    /// Whose its claims are.
    pub owner: u64,
    /// Its records.
    pub entries: Vec<PendingEntry>,
    /// Its commit record.
    pub commit: Slot,
}

/// A record of a pending unit.
#[derive(Clone, Copy)]
pub struct PendingEntry {
    /// The collection.
    pub collection: CollectionId,
    /// The record.
    pub record: u64,
    /// Its place; a tombstone for a deletion.
    pub slot: Slot,
    /// Bytes of the document.
    pub payload_len: u32,
    /// Whether the record is new, and has a placeholder.
    pub insert: bool,
}

impl Unit {
    /// The segments that it is in, each once.
    fn segments(&self) -> Vec<u32> {
        let slots = self.entries.iter().map(|entry| entry.slot).chain([self.commit]);
        let mut segments: Vec<_> = slots.map(|slot| slot.address().segment).collect();
        segments.sort_unstable();
        segments.dedup();
        segments
    }
}

impl PendingUnits {
    /// Held while a unit is appended, or units are resolved: a follower's appends are one after the other.
    pub fn lock_order(&self) -> MutexGuard<'_, ()> {
        lock(&self.order)
    }

    /// Adds a unit that has been appended, or found at the start.
    pub fn push(&self, unit: Unit) {
        let mut state = lock(&self.state);
        for segment in unit.segments() {
            state.pinned.entry(segment).or_default().units += 1;
        }
        state.units.push_back(unit);
    }

    /// The position that the next one must be above.
    pub fn last(&self) -> LogPosition {
        let state = lock(&self.state);
        state.units.back().map_or(state.resolution.committed, |unit| unit.position)
    }

    /// The resolutions so far.
    pub fn resolution(&self) -> Resolution {
        lock(&self.state).resolution.clone()
    }

    /// The units up to this index, or with `above` those above it.
    pub fn units(&self, index: u64, above: bool) -> Vec<Unit> {
        let state = lock(&self.state);
        let wanted = |unit: &&Unit| (unit.position.index > index) == above;
        state.units.iter().filter(wanted).cloned().collect()
    }

    /// Notes what commit `seq` has resolved.
    pub fn resolved(&self, units: &[Unit], resolution: Resolution, seq: u64) {
        let mut state = lock(&self.state);
        state.resolution = resolution;
        for unit in units {
            for segment in unit.segments() {
                if let Some(pinned) = state.pinned.get_mut(&segment) {
                    pinned.units = pinned.units.saturating_sub(1);
                    pinned.resolved = pinned.resolved.max(seq);
                }
            }
        }
        state.units.retain(|unit| units.iter().all(|resolved| resolved.seq != unit.seq));
    }

    /// At startup: the pending units of the log.
    pub fn recovered(&self, resolution: Resolution, at: Slot) {
        lock(&self.state).resolution = resolution;
        self.resolution_at.store(at.0, Ordering::Release);
    }

    /// Whether the cleaner has to leave a segment alone; everything up to commit `durable` is durable.
    pub fn pins(&self, segment: u32, durable: u64) -> bool {
        let mut state = lock(&self.state);
        let Some(pinned) = state.pinned.get(&segment) else { return false };
        if pinned.units > 0 || pinned.resolved > durable {
            return true;
        }
        state.pinned.remove(&segment);
        false
    }

    /// The place of the newest resolution record.
    pub fn resolution_at(&self) -> Slot {
        Slot(self.resolution_at.load(Ordering::Acquire))
    }

    /// Sets a newer resolution record, or its new place. `false`: it was not at `old` any more.
    pub fn move_resolution(&self, old: Slot, new: Slot) -> bool {
        let cell = &self.resolution_at;
        cell.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether one of the units changes documents of a collection. That does not change under the collection's
    /// latch, except by resolution.
    pub fn changes(&self, collection: CollectionId) -> bool {
        let state = lock(&self.state);
        let mut entries = state.units.iter().flat_map(|unit| &unit.entries);
        entries.any(|entry| entry.collection == collection)
    }

    /// Number of pending units.
    pub fn count(&self) -> usize {
        lock(&self.state).units.len()
    }
}
