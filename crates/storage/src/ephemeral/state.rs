//! The maps; checking and applying units.
//!
//! Invariant: [`State::check`] checks the whole unit before [`State::apply`] changes anything, so a refused unit
//! has no effect.

use crate::error::StorageError;
use crate::index_spec::{IndexSpec, KeyGenerator};
use crate::scan::{Direction, IndexScan};
use crate::unit::{OpKind, WriteUnit};
use kauri_base::sync::Arc;
use kauri_base::{CollectionId, CommitSeq, IndexId, RecordId};
use kauri_bson::Doc;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

#[derive(Clone, Default)]
pub(super) struct State {
    pub(super) seq: CommitSeq,
    pub(super) stores: BTreeMap<CollectionId, StoreState>,
    pub(super) indexes: BTreeMap<IndexId, IndexState>,
}

#[derive(Clone, Default)]
pub(super) struct StoreState {
    pub(super) records: BTreeMap<RecordId, Version>,
    pub(super) bytes: u64,
    pub(super) definition: u64,
    /// The id that was given last.
    last_id: u64,
}

#[derive(Clone)]
pub(super) struct Version {
    pub(super) doc: Arc<[u8]>,
    pub(super) version: CommitSeq,
}

#[derive(Clone)]
pub(super) struct IndexState {
    pub(super) collection: CollectionId,
    /// For each key the records that have it, with the key's type bits.
    pub(super) keys: BTreeMap<Vec<u8>, BTreeMap<RecordId, Box<[u8]>>>,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

/// The stores and indexes after the operations of the unit that were checked so far.
#[derive(Default)]
struct Overlay {
    stores: BTreeMap<CollectionId, bool>,
    indexes: BTreeMap<IndexId, Option<CollectionId>>,
    last_ids: BTreeMap<CollectionId, u64>,
    changed: BTreeSet<(CollectionId, RecordId)>,
}

impl State {
    pub(super) fn bytes(&self) -> u64 {
        let stores: u64 = self.stores.values().map(|store| store.bytes).sum();
        let indexes: u64 = self.indexes.values().map(|index| index.bytes).sum();
        stores + indexes
    }

    /// See [`crate::StorageEngine::check`]. Answers the record of each operation.
    pub(super) fn check(&self, unit: &WriteUnit<'_>) -> Result<Vec<RecordId>, StorageError> {
        self.check_definitions(unit)?;
        let ids = self.check_operations(unit)?;
        self.check_unique(unit, &ids)?;
        Ok(ids)
    }

    /// Makes the changes of a unit that has been checked. See [`crate::StorageEngine::commit`].
    pub(super) fn apply(&mut self, unit: &mut WriteUnit<'_>, ids: &[RecordId]) -> CommitSeq {
        self.seq = CommitSeq(self.seq.0 + 1);
        let seq = self.seq;
        self.apply_as(unit, ids, seq);
        seq
    }

    /// Gives a unit that has been checked its number, and its inserts their ids.
    pub(super) fn reserve(&mut self, unit: &mut WriteUnit<'_>, ids: &[RecordId]) -> CommitSeq {
        self.seq = CommitSeq(self.seq.0 + 1);
        for (op, id) in unit.ops.iter_mut().zip(ids) {
            op.record = *id;
            if let Some(store) = self.stores.get_mut(&op.collection) {
                store.last_id = store.last_id.max(id.0);
            }
        }
        self.seq
    }

    /// Makes the changes of a unit that got its number and ids before.
    pub(super) fn apply_pending(
        &mut self,
        unit: &mut WriteUnit<'_>,
        ids: &[RecordId],
        version: CommitSeq,
    ) {
        self.seq = CommitSeq(self.seq.0 + 1);
        self.apply_as(unit, ids, version);
    }

    fn apply_as(&mut self, unit: &mut WriteUnit<'_>, ids: &[RecordId], version: CommitSeq) {
        for (op, id) in unit.ops.iter_mut().zip(ids) {
            op.record = *id;
        }
        self.apply_operations(unit, version);
        self.apply_keys(unit);
    }

    fn check_definitions(&self, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        for (collection, number) in &unit.definitions {
            if self.stores.get(collection).map(|store| store.definition) != Some(*number) {
                return Err(StorageError::StaleCatalog(*collection));
            }
        }
        Ok(())
    }

    /// Checks that what each operation changes is there, in the version that was seen. Returns the
    /// record of each.
    fn check_operations(&self, unit: &WriteUnit<'_>) -> Result<Vec<RecordId>, StorageError> {
        let mut overlay = Overlay::default();
        let mut ids = Vec::with_capacity(unit.ops.len());
        for (position, op) in unit.ops.iter().enumerate() {
            let stale = StorageError::StaleCatalog(op.collection);
            let exists = self.store_exists(&overlay, op.collection);
            if exists == matches!(op.kind, OpKind::CreateStore) {
                return Err(stale);
            }
            let mut record = op.record;
            match &op.kind {
                OpKind::Insert { .. } => {
                    let last = overlay.last_ids.entry(op.collection).or_insert_with(|| {
                        self.stores.get(&op.collection).map_or(0, |store| store.last_id)
                    });
                    *last += 1;
                    record = RecordId(*last);
                }
                OpKind::Update { seen, .. }
                | OpKind::Delete { seen }
                | OpKind::Backfill { seen } => {
                    let store = self.stores.get(&op.collection);
                    let version = store.and_then(|store| store.records.get(&record));
                    if version.map(|version| version.version) != Some(*seen) {
                        return Err(StorageError::WriteConflict);
                    }
                    let first = overlay.changed.insert((op.collection, record));
                    debug_assert!(first, "a unit changes {record} twice");
                }
                OpKind::CreateStore => drop(overlay.stores.insert(op.collection, true)),
                OpKind::DropStore => drop(overlay.stores.insert(op.collection, false)),
                OpKind::CreateIndex { spec, .. } => {
                    if self.index_collection(&overlay, spec.id).is_some() {
                        return Err(stale);
                    }
                    overlay.indexes.insert(spec.id, Some(op.collection));
                }
                OpKind::DropIndex { index } => {
                    if self.index_collection(&overlay, *index) != Some(op.collection) {
                        return Err(stale);
                    }
                    overlay.indexes.insert(*index, None);
                }
                OpKind::ChangeDefinition => {}
            }
            for change in unit.keys_of(position) {
                if self.index_collection(&overlay, change.index) != Some(op.collection) {
                    return Err(stale);
                }
            }
            ids.push(record);
        }
        Ok(ids)
    }

    fn store_exists(&self, overlay: &Overlay, id: CollectionId) -> bool {
        overlay.stores.get(&id).copied().unwrap_or_else(|| self.stores.contains_key(&id))
    }

    fn index_collection(&self, overlay: &Overlay, id: IndexId) -> Option<CollectionId> {
        let collection = match overlay.indexes.get(&id) {
            Some(collection) => *collection,
            None => self.indexes.get(&id).map(|index| index.collection),
        };
        collection.filter(|collection| self.store_exists(overlay, *collection))
    }

    /// Checks unique keys against what the indexes will hold when the unit has been applied.
    fn check_unique(&self, unit: &WriteUnit<'_>, ids: &[RecordId]) -> Result<(), StorageError> {
        let mut removed = BTreeSet::new();
        for (position, id) in ids.iter().enumerate() {
            for change in unit.keys_of(position).iter().filter(|change| !change.add) {
                removed.insert((change.index, unit.key_bytes(change), *id));
            }
        }
        let mut added = BTreeMap::new();
        for (position, id) in ids.iter().enumerate() {
            for change in unit.keys_of(position).iter().filter(|c| c.add && c.unique) {
                let key = unit.key_bytes(change);
                let duplicate = |existing| StorageError::DuplicateKey {
                    index: change.index,
                    op: position,
                    key: key.to_vec(),
                    type_bits: unit.type_bits(change).to_vec(),
                    existing,
                };
                let records = self.indexes.get(&change.index).and_then(|i| i.keys.get(key));
                for other in records.into_iter().flat_map(BTreeMap::keys) {
                    if other != id && !removed.contains(&(change.index, key, *other)) {
                        return Err(duplicate(Some(*other)));
                    }
                }
                if added.insert((change.index, key), *id).is_some_and(|other| other != *id) {
                    return Err(duplicate(None));
                }
            }
        }
        Ok(())
    }

    fn apply_operations(&mut self, unit: &WriteUnit<'_>, version: CommitSeq) {
        for op in &unit.ops {
            match &op.kind {
                OpKind::CreateStore => {
                    self.stores.insert(op.collection, StoreState::default());
                    continue;
                }
                OpKind::DropStore => {
                    self.stores.remove(&op.collection);
                    self.indexes.retain(|_, index| index.collection != op.collection);
                    continue;
                }
                OpKind::CreateIndex { spec, .. } => {
                    self.indexes.insert(spec.id, IndexState::new(op.collection));
                    continue;
                }
                OpKind::DropIndex { index } => {
                    self.indexes.remove(index);
                    continue;
                }
                _ => {}
            }
            let Some(store) = self.stores.get_mut(&op.collection) else { continue };
            match &op.kind {
                OpKind::Insert { doc } => {
                    store.last_id = store.last_id.max(op.record.0);
                    store.put(op.record, doc, version);
                }
                OpKind::Update { doc, .. } => store.put(op.record, doc, version),
                OpKind::Delete { .. } => store.remove(op.record),
                OpKind::ChangeDefinition => store.definition += 1,
                _ => {}
            }
        }
    }

    /// All of the unit's removals come before all of its additions.
    fn apply_keys(&mut self, unit: &WriteUnit<'_>) {
        for add in [false, true] {
            for (position, op) in unit.ops.iter().enumerate() {
                for change in unit.keys_of(position).iter().filter(|change| change.add == add) {
                    let Some(index) = self.indexes.get_mut(&change.index) else { continue };
                    let key = unit.key_bytes(change);
                    if add {
                        index.add(key, op.record, unit.type_bits(change));
                    } else {
                        index.remove(key, op.record);
                    }
                }
            }
        }
    }

    /// See [`crate::StorageEngine::attach_index`].
    pub(super) fn attach_index(
        &mut self,
        collection: CollectionId,
        spec: IndexSpec,
        generator: &dyn KeyGenerator,
    ) -> Result<(), StorageError> {
        let store = self.stores.get(&collection).ok_or(StorageError::StaleCatalog(collection))?;
        let mut index = IndexState::new(collection);
        for (id, version) in &store.records {
            let corrupt = |message: &str| StorageError::Corruption {
                collection: Some(collection),
                record: Some(*id),
                message: message.to_owned(),
            };
            let doc = Doc::from_bytes(&version.doc).map_err(|e| corrupt(e.message()))?;
            let mut duplicate = false;
            generator
                .generate(doc, &mut |key, type_bits| {
                    let records = index.keys.get(key);
                    duplicate |= records.is_some_and(|r| r.keys().any(|other| other != id));
                    index.add(key, *id, type_bits);
                })
                .map_err(|e| corrupt(e.message()))?;
            if spec.unique && duplicate {
                return Err(corrupt("a duplicate key in a unique index"));
            }
        }
        self.indexes.insert(spec.id, index);
        Ok(())
    }
}

impl StoreState {
    fn put(&mut self, id: RecordId, doc: &[u8], version: CommitSeq) {
        self.bytes += doc.len() as u64;
        if let Some(old) = self.records.insert(id, Version { doc: Arc::from(doc), version }) {
            self.bytes -= old.doc.len() as u64;
        }
    }

    fn remove(&mut self, id: RecordId) {
        if let Some(old) = self.records.remove(&id) {
            self.bytes -= old.doc.len() as u64;
        }
    }
}

impl IndexState {
    fn new(collection: CollectionId) -> Self {
        IndexState { collection, keys: BTreeMap::new(), entries: 0, bytes: 0 }
    }

    fn entry_bytes(key: &[u8], type_bits: &[u8]) -> u64 {
        (key.len() + type_bits.len() + size_of::<RecordId>()) as u64
    }

    fn add(&mut self, key: &[u8], record: RecordId, type_bits: &[u8]) {
        self.entries += 1;
        self.bytes += Self::entry_bytes(key, type_bits);
        let records = match self.keys.get_mut(key) {
            Some(records) => records,
            None => self.keys.entry(key.to_vec()).or_default(),
        };
        if let Some(old) = records.insert(record, type_bits.into()) {
            self.entries -= 1;
            self.bytes -= Self::entry_bytes(key, &old);
        }
    }

    fn remove(&mut self, key: &[u8], record: RecordId) {
        let Some(records) = self.keys.get_mut(key) else { return };
        if let Some(old) = records.remove(&record) {
            self.entries -= 1;
            self.bytes -= Self::entry_bytes(key, &old);
        }
        if records.is_empty() {
            self.keys.remove(key);
        }
    }

    pub(super) fn fill(&self, scan: &mut IndexScan) {
        let direction = scan.direction();
        let (low, high) = scan.range();
        let (low, high) = (low.to_vec(), high.to_vec());
        let position = scan.position().map(|(key, id)| (key.to_vec(), id));
        let high = if high.is_empty() { Bound::Unbounded } else { Bound::Excluded(&*high) };
        scan.refill(|batch, _| match direction {
            Direction::Forward => {
                let start = position.as_ref().map_or(&*low, |(key, _)| key);
                if matches!(high, Bound::Excluded(high) if start >= high) {
                    return;
                }
                for (key, records) in self.keys.range::<[u8], _>((Bound::Included(start), high)) {
                    for (record, bits) in records {
                        let at = (key, *record);
                        let passed = position.as_ref().is_some_and(|(k, id)| at <= (k, *id));
                        if !passed && !batch.push(key, bits, *record) {
                            return;
                        }
                    }
                }
            }
            Direction::Backward => {
                let end = match &position {
                    Some((key, _)) => Bound::Included(&**key),
                    None => high,
                };
                if matches!(end, Bound::Excluded(end) | Bound::Included(end) if *low > *end)
                    || matches!(end, Bound::Excluded(end) if *low == *end)
                {
                    return;
                }
                let keys = self.keys.range::<[u8], _>((Bound::Included(&*low), end));
                for (key, records) in keys.rev() {
                    for (record, bits) in records.iter().rev() {
                        let at = (key, *record);
                        let passed = position.as_ref().is_some_and(|(k, id)| at >= (k, *id));
                        if !passed && !batch.push(key, bits, *record) {
                            return;
                        }
                    }
                }
            }
        });
    }
}
