//! Appends pending units, and resolves them.
//!
//! A pending unit is checked and appended like any unit, but with its own record kinds and always with a commit
//! record, which has its position in the replicated log. A resolution appends one resolution record. Then the
//! committed units are applied in order, under the latches of all their collections, and become visible with the
//! resolution's commit sequence. Claims exclude other writers from the changed records, so the checks of the append
//! still hold. Index keys are generated from the documents before and after, for the indexes that exist then.

use super::key_changes::KeyChange;
use crate::address::Slot;
use crate::collection::Collection;
use crate::core::Core;
use crate::format::record::{FLAG_ALONE, Kind, RecordHeader, record_bytes};
use crate::format::resolution::Resolution;
use crate::head::{Append, Appended, NotAppended};
use crate::index::Index;
use crate::lock;
use crate::pending_units::{DROPPED_MAX, PendingEntry, Unit};
use crate::plan::Plan;
use crate::segments::Purpose;
use crate::snapshots::Keeper;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_base::{CollectionId, CommitSeq, RecordId};
use kauri_medium::Guard;
use kauri_storage::{
    CommitTicket, LogPosition, OpKind, PendingLog, PendingUnit, StorageError, WriteUnit,
};
use std::collections::BTreeMap;

/// The change by a record of a pending unit.
struct Change {
    entry: PendingEntry,
    store: Arc<Collection>,
    /// The commit of the version before, and its bytes.
    before: Option<(u64, u32)>,
    keys: Vec<KeyChange>,
}

impl PendingLog for Core {
    fn append(
        &self,
        unit: &mut WriteUnit<'_>,
        position: LogPosition,
    ) -> Result<CommitTicket, StorageError> {
        self.check_alive()?;
        if unit.ops.iter().any(|op| !op.kind.is_of_document()) {
            return Err(StorageError::Unsupported("changes of definitions in pending units"));
        }
        let order = self.pending.lock_order();
        if position.index <= self.pending.last().index {
            return Err(StorageError::OutOfOrder);
        }
        let owner = self.claims.begin();
        unit.owner = owner;
        let result = self.commit_as(unit, Some(position));
        if result.is_err() {
            unit.owner = 0;
            self.claims.end(owner);
        }
        drop(order);
        result.map(|seq| self.acks.tickets(seq))
    }

    fn commit_up_to(&self, index: u64) -> Result<CommitTicket, StorageError> {
        self.check_alive()?;
        let _order = self.pending.lock_order();
        // What indexes there are stays so until all is applied.
        let _ddl = self.registry.lock_ddl();
        let units = self.pending.units(index, false);
        let Some(last) = units.last() else {
            return Ok(self.acks.tickets(self.visible().0));
        };
        let mut guard = self.domain.register();
        let mut changes = Vec::new();
        for unit in &units {
            changes.push(self.changes(unit, &mut guard)?);
        }
        let resolution =
            Resolution { committed: last.position, seq: last.seq, ..self.pending.resolution() };
        let apply = |guard: &Guard, appended: &Appended<'_>| {
            let keeper = self.snapshots.keeper(&self.segments, appended.seq, appended.holding);
            for (unit, changes) in units.iter().zip(&changes) {
                self.segments.remove_live(unit.commit);
                for change in changes {
                    self.apply_change(guard, unit.seq, change, keeper.as_ref());
                }
                let is_dropped =
                    |entry: &&PendingEntry| self.registry.store(entry.collection).is_none();
                let of_dropped = unit.entries.iter().filter(is_dropped);
                of_dropped.for_each(|entry| self.uncount_pending(guard, entry));
            }
        };
        let stores = changes.iter().flatten().map(|change| change.store.clone());
        let stores: BTreeMap<CollectionId, _> = stores.map(|store| (store.id, store)).collect();
        let seq = self.resolve(&units, resolution, &stores, &mut guard, apply)?;
        Ok(self.acks.tickets(seq))
    }

    fn truncate_after(&self, index: u64) -> Result<CommitTicket, StorageError> {
        self.check_alive()?;
        let _order = self.pending.lock_order();
        let units = self.pending.units(index, true);
        let (Some(first), Some(last)) = (units.first(), units.last()) else {
            return Ok(self.acks.tickets(self.visible().0));
        };
        let mut resolution = self.pending.resolution();
        if resolution.dropped.len() >= DROPPED_MAX {
            return Err(StorageError::Unsupported("so many truncations without a restart"));
        }
        resolution.dropped.push((first.seq, last.seq));
        let mut guard = self.domain.register();
        let apply = |guard: &Guard, _: &Appended<'_>| {
            for unit in &units {
                self.segments.remove_live(unit.commit);
                unit.entries.iter().for_each(|entry| self.forget_pending(guard, entry));
            }
        };
        let seq = self.resolve(&units, resolution, &BTreeMap::new(), &mut guard, apply)?;
        Ok(self.acks.tickets(seq))
    }

    fn committed(&self) -> LogPosition {
        self.pending.resolution().committed
    }

    fn pending(&self) -> Vec<PendingUnit> {
        let unit = |unit: Unit| PendingUnit {
            position: unit.position,
            seq: CommitSeq(unit.seq),
            records: unit.entries.len(),
        };
        self.pending.units(0, true).into_iter().map(unit).collect()
    }
}

impl Plan {
    /// Registers an appended unit as pending.
    pub(super) fn apply_pending(
        &self,
        core: &Core,
        unit: &mut WriteUnit<'_>,
        guard: &Guard,
        (seq, position): (u64, LogPosition),
    ) {
        let keeper = core.snapshots.keeper(&core.segments, seq, self.holding);
        let mut entries = Vec::with_capacity(self.steps.len());
        for (step, op) in self.steps.iter().zip(&mut unit.ops) {
            op.record = RecordId(step.record);
            let insert = matches!(op.kind, OpKind::Insert { .. });
            let ends = matches!(op.kind, OpKind::Delete { .. });
            let bytes = record_bytes(step.payload_len);
            let entry = PendingEntry {
                collection: op.collection,
                record: step.record,
                slot: Slot::new(step.address, bytes, ends, 0),
                payload_len: step.payload_len,
                insert,
            };
            entries.push(entry);
            let store = self.stores.get(step.store).and_then(|s| s.store.as_ref());
            // From now on: if the collection is dropped, its drop record outlives this one.
            if let Some(store) = store {
                store.physical.fetch_add(1, Ordering::AcqRel);
            }
            let Some(store) = store.filter(|_| insert) else {
                core.segments.add_live(entry.slot);
                continue;
            };
            core.segments.add_live(entry.placeholder());
            let set = || entry.set_placeholder(guard, store);
            match keeper.as_ref() {
                None => set(),
                Some(keeper) => keeper.insert(store, step.record, set),
            }
        }
        let commit = Slot::new(self.commit_at, record_bytes(self.commit_len), false, 0);
        core.segments.add_live(commit);
        core.pending.push(Unit { position, seq, owner: unit.owner, entries, commit });
    }
}

impl PendingEntry {
    /// The slot of a pending insert. It is kept like a tombstone whose record has copies.
    pub fn placeholder(&self) -> Slot {
        Slot::new(self.slot.address(), record_bytes(self.payload_len), true, 1)
    }

    /// Takes the id of an insert.
    pub fn set_placeholder(&self, guard: &Guard, store: &Collection) {
        store.slots.set_first(guard, self.record, self.placeholder());
        store.slots.set_limit(self.record + 1);
    }
}

impl Core {
    /// The changes of committing a unit. Waits for documents that are not in memory.
    fn changes(&self, unit: &Unit, guard: &mut Guard) -> Result<Vec<Change>, StorageError> {
        let mut changes = Vec::with_capacity(unit.entries.len());
        for entry in &unit.entries {
            let Some(store) = self.registry.store(entry.collection) else { continue };
            let old = match entry.insert {
                true => None,
                false => self.document(&store, entry.record, None, guard)?,
            };
            let new = match entry.slot.is_tombstone() {
                true => None,
                false => self.document(&store, entry.record, Some(entry.slot), guard)?,
            };
            let keys = self.key_changes(
                &store,
                entry.record,
                old.as_ref().map(|(_, bytes)| &bytes[..]),
                new.as_ref().map(|(_, bytes)| &bytes[..]),
            )?;
            let before = old.map(|(seq, bytes)| (seq, bytes.len() as u32));
            changes.push(Change { entry: *entry, store, before, keys });
        }
        Ok(changes)
    }

    /// Appends a resolution and applies it before any other thread changes these stores.
    fn resolve(
        &self,
        units: &[Unit],
        resolution: Resolution,
        stores: &BTreeMap<CollectionId, Arc<Collection>>,
        guard: &mut Guard,
        apply: impl Fn(&Guard, &Appended<'_>),
    ) -> Result<u64, StorageError> {
        let payload = resolution.encode();
        loop {
            guard.enter();
            let latches: Vec<_> = stores.values().map(|store| lock(&store.latch)).collect();
            let (appended, at) = match self.append_resolution(&payload) {
                Ok(appended) => appended,
                Err(NotAppended::Room(prepared_ever)) => {
                    drop(latches);
                    guard.leave();
                    self.make_room(Purpose::Delete, prepared_ever)?;
                    continue;
                }
                Err(NotAppended::Held) => return Err(StorageError::FilesHeld),
                Err(NotAppended::Failed(error)) => return Err(error),
            };
            apply(guard, &appended);
            self.segments.add_live(at);
            let mut old = self.pending.resolution_at();
            while !self.pending.move_resolution(old, at) {
                old = self.pending.resolution_at();
            }
            if !old.is_none() {
                self.segments.remove_live(old);
            }
            self.pending.resolved(units, resolution, appended.seq);
            let seq = self.head.publish(appended)?;
            drop(latches);
            guard.leave();
            units.iter().for_each(|unit| self.claims.end(unit.owner));
            return Ok(seq);
        }
    }

    /// Answers the resolution's place, too.
    fn append_resolution(&self, payload: &[u8]) -> Result<(Appended<'_>, Slot), NotAppended> {
        let payload_len = payload.len() as u32;
        let mut head = self.begin(Append::Unit, [payload_len].into_iter())?;
        let header = RecordHeader {
            kind: Kind::Resolution,
            flags: FLAG_ALONE,
            payload_len,
            payload_crc: crc32c::crc32c(payload),
            collection: 0,
            record: 0,
            seq: head.seq(),
        };
        let (address, _) = head.append(&header, payload)?;
        Ok((head.finish()?, Slot::new(address, record_bytes(payload_len), false, 0)))
    }

    fn apply_change(
        &self,
        guard: &Guard,
        version: u64,
        change: &Change,
        keeper: Option<&Keeper<'_>>,
    ) {
        let Change { entry, store, before, keys } = change;
        if store.is_dropped() {
            if !entry.insert {
                self.segments.remove_live(entry.slot);
            }
            return;
        }
        let is_put = !entry.slot.is_tombstone();
        let swap = || {
            let new = |old: Slot| match is_put {
                _ if entry.insert => old.as_document(),
                true => entry.slot.with_copies_of(old).add_copy(),
                false => entry.slot.with_copies_of(old),
            };
            let old = store.slots.update(guard, entry.record, |old| Some(new(old)));
            // An insert's placeholder is the record itself from now on: before there was nothing.
            if entry.insert { Slot::NONE } else { old }
        };
        let from = before.map_or(version, |(seq, _)| seq);
        match keeper {
            Some(keeper) => keeper.record(store, entry.record, from, swap),
            None => self.segments.remove_live(swap()),
        }
        let storage = |len: u32| u64::from(record_bytes(len));
        if is_put {
            store.records.fetch_add(1, Ordering::Relaxed);
            store.bytes.fetch_add(u64::from(entry.payload_len), Ordering::Relaxed);
            store.storage_bytes.fetch_add(storage(entry.payload_len), Ordering::Relaxed);
        }
        if let Some((_, len)) = before {
            store.records.fetch_sub(1, Ordering::Relaxed);
            store.bytes.fetch_sub(u64::from(*len), Ordering::Relaxed);
            store.storage_bytes.fetch_sub(storage(*len), Ordering::Relaxed);
        }
        for KeyChange { index, key, bits } in keys {
            let id = RecordId(entry.record);
            match keeper {
                Some(keeper) => {
                    let keys = (index.spec.id, &index.keys);
                    keeper.entry(store, keys, (key, id), bits.as_deref());
                }
                None => index.keys.change(key, id, bits.as_deref()),
            }
        }
    }

    /// A pending record was dropped: it does not keep its collection's drop record any more.
    fn forget_pending(&self, guard: &Guard, entry: &PendingEntry) {
        self.uncount_pending(guard, entry);
        if let Some(store) = self.registry.store_or_grave(entry.collection) {
            self.forget_physical(&store);
        }
    }

    /// A pending record is no longer live. Whose collection was dropped, and its placeholder with it, has
    /// been uncounted there.
    fn uncount_pending(&self, guard: &Guard, entry: &PendingEntry) {
        if !entry.insert {
            self.segments.remove_live(entry.slot);
        } else if let Some(store) = self.registry.store_or_grave(entry.collection) {
            let placeholder = entry.placeholder();
            if store.slots.clear(guard, entry.record, placeholder) {
                self.segments.remove_live(placeholder);
            }
        }
    }

    /// For the start: claims the records of pending units again, and takes the ids of their inserts.
    pub fn adopt_pending(&self, mut unit: Unit) {
        unit.owner = self.claims.begin();
        let records = unit.entries.iter().map(|entry| (entry.collection, RecordId(entry.record)));
        self.claims.claim_records(unit.owner, records);
        self.pending.push(unit);
    }

    /// At startup: claims the unique keys that pending units add to or remove from an index.
    pub fn claim_pending_keys(&self, index: &Arc<Index>) -> Result<(), StorageError> {
        if !index.spec.unique || self.pending.count() == 0 {
            return Ok(());
        }
        let mut guard = self.domain.register();
        for unit in self.pending.units(0, true) {
            for change in self.changes(&unit, &mut guard)? {
                let keys = change.keys.iter().filter(|k| k.index.spec.id == index.spec.id);
                self.claims.claim_keys(unit.owner, index.spec.id, keys.map(|k| &k.key[..]));
            }
        }
        Ok(())
    }
}
