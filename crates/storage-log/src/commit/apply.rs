//! Makes a unit's records current. Latches are held; nothing here can fail.

use crate::address::{Address, Slot};
use crate::collection::Collection;
use crate::core::Core;
use crate::format::RECORD_HEADER_BYTES;
use crate::format::record::record_bytes;
use crate::plan::{Plan, Step};
use crate::snapshots::Keeper;
use kauri_base::RecordId;
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_medium::Guard;
use kauri_storage::{OpKind, WriteUnit};

impl Plan {
    /// `seq` is the unit's number, if it has one.
    pub(super) fn apply(&self, core: &Core, unit: &mut WriteUnit<'_>, guard: &Guard, seq: u64) {
        let keeper = core.snapshots.keeper(&core.segments, seq, self.holding);
        for (step, op) in self.steps.iter().zip(&mut unit.ops) {
            op.record = RecordId(step.record);
            let Some(store) = self.stores.get(step.store).and_then(|s| s.store.as_ref()) else {
                continue;
            };
            match &op.kind {
                OpKind::Insert { .. } => insert(core, guard, store, step, keeper.as_ref()),
                OpKind::Update { seen, .. } => {
                    update(core, guard, store, step, seen.0, keeper.as_ref());
                }
                OpKind::Delete { seen } => {
                    delete(core, guard, store, step, seen.0, keeper.as_ref())
                }
                OpKind::ChangeDefinition => {
                    store.changed.store(self.holds, Ordering::Release);
                    store.definition.fetch_add(1, Ordering::AcqRel);
                }
                OpKind::CreateStore => {
                    store.changed.store(self.holds, Ordering::Release);
                    create_store(core, store, step);
                }
                OpKind::DropStore => drop_store(core, store, step),
                OpKind::CreateIndex { .. } | OpKind::DropIndex { .. } | OpKind::Backfill { .. } => {
                }
            }
        }
        self.apply_indexes(core);
        self.apply_keys(unit, keeper.as_ref());
    }

    fn apply_indexes(&self, core: &Core) {
        for planned in &self.indexes {
            let Some(index) = &planned.index else { continue };
            if planned.created && planned.exists {
                index.created.store(self.holds, Ordering::Release);
                core.registry.write().indexes.insert(planned.id, index.clone());
            } else if !planned.exists {
                index.mark_dropped();
                core.registry.write().indexes.remove(&planned.id);
                index.store().versions.clear_index(planned.id, core.snapshots.retained());
            }
        }
    }

    /// All removals come before all additions.
    fn apply_keys(&self, unit: &WriteUnit<'_>, keeper: Option<&Keeper<'_>>) {
        let mut last = None;
        for add in [false, true] {
            for (position, step) in self.steps.iter().enumerate() {
                for change in unit.keys_of(position).iter().filter(|change| change.add == add) {
                    if last.is_none_or(|(id, _)| id != change.index) {
                        last = self.index(change.index).map(|index| (change.index, index));
                    }
                    let Some(index) = last.and_then(|(_, planned)| planned.index.as_ref()) else {
                        continue;
                    };
                    let (key, id) = (unit.key_bytes(change), RecordId(step.record));
                    let bits = add.then(|| unit.type_bits(change));
                    match keeper {
                        // What an index build adds was there all the time.
                        Some(keeper) if step.kind.is_some() => {
                            let keys = (change.index, &index.keys);
                            keeper.entry(index.store(), keys, (key, id), bits);
                        }
                        _ => index.keys.change(key, id, bits),
                    }
                }
            }
        }
    }
}

fn insert(
    core: &Core,
    guard: &Guard,
    store: &Arc<Collection>,
    step: &Step,
    keeper: Option<&Keeper<'_>>,
) {
    let slot = Slot::new(step.address, record_bytes(step.payload_len), false, 1);
    core.segments.add_live(slot);
    let set = || {
        store.slots.set_first(guard, step.record, slot);
        store.slots.set_limit(step.record + 1);
    };
    match keeper {
        None => set(),
        Some(keeper) => keeper.insert(store, step.record, set),
    }
    store.physical.fetch_add(1, Ordering::AcqRel);
    store.records.fetch_add(1, Ordering::Relaxed);
    store.bytes.fetch_add(u64::from(step.payload_len), Ordering::Relaxed);
    store.storage_bytes.fetch_add(u64::from(record_bytes(step.payload_len)), Ordering::Relaxed);
}

fn update(
    core: &Core,
    guard: &Guard,
    store: &Arc<Collection>,
    step: &Step,
    seen: u64,
    keeper: Option<&Keeper<'_>>,
) {
    let slot = Slot::new(step.address, record_bytes(step.payload_len), false, 0);
    core.segments.add_live(slot);
    let swap =
        || store.slots.update(guard, step.record, |old| Some(slot.with_copies_of(old).add_copy()));
    match keeper {
        None => core.dead(swap(), step.seen_len),
        Some(keeper) => keeper.record(store, step.record, seen, swap),
    }
    store.physical.fetch_add(1, Ordering::AcqRel);
    let (new, old) = (step.payload_len, step.seen_len);
    if new != old {
        let more = |new: u32, old: u32| u64::from(new).wrapping_sub(u64::from(old));
        store.bytes.fetch_add(more(new, old), Ordering::Relaxed);
        let more = more(record_bytes(new), record_bytes(old));
        store.storage_bytes.fetch_add(more, Ordering::Relaxed);
    }
}

fn delete(
    core: &Core,
    guard: &Guard,
    store: &Arc<Collection>,
    step: &Step,
    seen: u64,
    keeper: Option<&Keeper<'_>>,
) {
    let slot = Slot::new(step.address, RECORD_HEADER_BYTES, true, 0);
    core.segments.add_live(slot);
    let swap = || store.slots.update(guard, step.record, |old| Some(slot.with_copies_of(old)));
    match keeper {
        None => core.dead(swap(), step.seen_len),
        Some(keeper) => keeper.record(store, step.record, seen, swap),
    }
    store.physical.fetch_add(1, Ordering::AcqRel);
    store.records.fetch_sub(1, Ordering::Relaxed);
    store.bytes.fetch_sub(u64::from(step.seen_len), Ordering::Relaxed);
    store.storage_bytes.fetch_sub(u64::from(record_bytes(step.seen_len)), Ordering::Relaxed);
}

impl Core {
    /// A record of this length is replaced, and there are no snapshots to which it could matter.
    fn dead(&self, old: Slot, len: u32) {
        self.segments.remove_live(old);
        if !old.is_none() {
            let Address { segment, offset } = old.address();
            self.cache.fade(segment, offset, record_bytes(len) as usize);
        }
    }
}

fn create_store(core: &Core, store: &Arc<Collection>, step: &Step) {
    let slot = Slot::new(step.address, RECORD_HEADER_BYTES, false, 0);
    core.segments.add_live(slot);
    store.own_record.store(slot.0, Ordering::Release);
    store.physical.fetch_add(1, Ordering::AcqRel);
    core.registry.write().stores.insert(store.id, store.clone());
}

fn drop_store(core: &Core, store: &Arc<Collection>, step: &Step) {
    let slot = Slot::new(step.address, RECORD_HEADER_BYTES, false, 0);
    core.segments.add_live(slot);
    let mut maps = core.registry.write();
    maps.stores.remove(&store.id);
    maps.graves.insert(store.id, store.clone());
    maps.indexes.retain(|_, index| {
        let keep = index.collection != store.id;
        if !keep {
            index.mark_dropped();
        }
        keep
    });
    drop(maps);
    store.dropped.store(true, Ordering::Release);
    store.versions.clear(core.snapshots.retained(), &core.segments);
    let old = Slot(store.own_record.swap(slot.0, Ordering::AcqRel));
    if !old.is_none() {
        core.segments.remove_live(old);
    }
    core.registry.note_dropped(store.clone());
    core.cleaner.wake();
}
