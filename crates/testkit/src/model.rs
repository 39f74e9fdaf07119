//! The expected contents of an engine, and reading its actual contents.

use kauri_base::{CollectionId, RecordId};
use kauri_conformance::inspect;
use kauri_storage::{LogPosition, StorageEngine, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A change to one record or store.
#[derive(Clone, Debug)]
pub enum Change {
    /// The record has this document now.
    Put(CollectionId, RecordId, Arc<[u8]>),
    /// The record is gone.
    Remove(CollectionId, RecordId),
    /// The store is there, empty.
    Create(CollectionId),
    /// The store is gone.
    Drop(CollectionId),
    /// A unit of the replicated log is there, and pending: what it will come to.
    Append(LogPosition, Arc<[Change]>),
    /// The pending units up to this index are committed.
    CommitUpTo(u64),
    /// The pending units above this index will never have been.
    TruncateAfter(u64),
}

/// Stores and their documents.
#[derive(Clone, Default)]
pub struct Model {
    stores: BTreeMap<CollectionId, StoreModel>,
    /// The highest id that a store ever had.
    pub last_store: u32,
    hash: u64,
    pending: Vec<Pending>,
    /// Where the last unit of the replicated log stands that was committed.
    committed: LogPosition,
}

/// A pending unit. What it will come to can't be read, only how many records that takes.
#[derive(Clone)]
struct Pending {
    position: LogPosition,
    records: usize,
    changes: Arc<[Change]>,
}

/// One store.
#[derive(Clone, Default)]
pub struct StoreModel {
    /// The documents.
    pub records: BTreeMap<RecordId, Arc<[u8]>>,
    /// The highest id that a record ever had.
    pub last: u64,
    hash: u64,
}

fn hash_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Model {
    /// Makes a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Create(id) => {
                self.last_store = self.last_store.max(id.0);
                let hash = hash_of(id);
                self.hash = self.hash.wrapping_add(hash);
                self.stores.insert(*id, StoreModel { hash, ..StoreModel::default() });
            }
            Change::Drop(id) => {
                if let Some(store) = self.stores.remove(id) {
                    self.hash = self.hash.wrapping_sub(store.hash);
                }
            }
            Change::Put(id, record, doc) => self.change(*id, *record, Some(doc)),
            Change::Remove(id, record) => self.change(*id, *record, None),
            Change::Append(position, changes) => self.pending.push(Pending {
                position: *position,
                records: changes.len(),
                changes: changes.clone(),
            }),
            Change::CommitUpTo(index) => {
                let count = self.pending.partition_point(|unit| unit.position.index <= *index);
                for unit in self.pending.drain(..count).collect::<Vec<_>>() {
                    unit.changes.iter().for_each(|change| self.apply(change));
                    self.committed = unit.position;
                }
            }
            Change::TruncateAfter(index) => {
                self.pending.retain(|unit| unit.position.index <= *index);
            }
        }
    }

    fn change(&mut self, id: CollectionId, record: RecordId, doc: Option<&Arc<[u8]>>) {
        let Some(store) = self.stores.get_mut(&id) else { return };
        let before = store.hash;
        let hash = |doc: &Arc<[u8]>| hash_of((id, record, doc));
        let old = match doc {
            Some(doc) => {
                store.hash = store.hash.wrapping_add(hash(doc));
                store.last = store.last.max(record.0);
                store.records.insert(record, doc.clone())
            }
            None => store.records.remove(&record),
        };
        if let Some(old) = old {
            store.hash = store.hash.wrapping_sub(hash(&old));
        }
        self.hash = self.hash.wrapping_sub(before).wrapping_add(store.hash);
    }

    /// Whether the change makes a record under an id that another one had before, or that a pending
    /// one has.
    pub fn is_reused(&self, change: &Change) -> bool {
        let (id, record) = match change {
            Change::Put(id, record, _) => (id, record),
            Change::Append(_, changes) => return changes.iter().any(|c| self.is_reused(c)),
            _ => return false,
        };
        let Some(store) = self.stores.get(id) else { return false };
        let is_it =
            |change: &Change| matches!(change, Change::Put(i, r, _) if (i, r) == (id, record));
        !store.records.contains_key(record)
            && (record.0 <= store.last
                || self.pending.iter().any(|unit| unit.changes.iter().any(is_it)))
    }

    /// The last term of the replicated log.
    pub fn last_term(&self) -> u64 {
        self.pending.iter().map(|unit| unit.position.term).fold(self.committed.term, u64::max)
    }

    /// Terms and indexes of the units that are pending.
    pub fn pending_positions(&self) -> BTreeSet<(u64, u64)> {
        self.pending.iter().map(|unit| (unit.position.term, unit.position.index)).collect()
    }

    /// Equal for equal contents, different for nearly all others.
    pub fn hash(&self) -> u64 {
        let position = |at: LogPosition| (at.term, at.index);
        let pending: Vec<_> =
            self.pending.iter().map(|unit| (position(unit.position), unit.records)).collect();
        self.hash.wrapping_add(hash_of((position(self.committed), pending)))
    }

    /// The stores.
    pub fn stores(&self) -> &BTreeMap<CollectionId, StoreModel> {
        &self.stores
    }

    /// The engine's contents. Unused ids are unknown.
    pub fn read(engine: &dyn StorageEngine) -> Result<Model, StorageError> {
        let mut model = Model::default();
        for id in engine.stores() {
            model.apply(&Change::Create(id));
            for (record, stored) in inspect::records(engine, id)? {
                model.apply(&Change::Put(id, record, stored.doc.into()));
            }
        }
        if let Ok(log) = engine.pending_log() {
            model.committed = log.committed();
            model.pending = log
                .pending()
                .into_iter()
                .map(|unit| Pending {
                    position: unit.position,
                    records: unit.records,
                    changes: Arc::default(),
                })
                .collect();
        }
        Ok(model)
    }

    /// Some of what the two don't have in common, as text.
    pub fn differences(&self, other: &Model) -> String {
        let mut lines = Vec::new();
        let flat = |model: &Model| -> BTreeMap<(CollectionId, RecordId), Arc<[u8]>> {
            let mut all = BTreeMap::new();
            for (id, store) in &model.stores {
                all.insert((*id, RecordId(0)), Arc::default());
                all.extend(store.records.iter().map(|(r, doc)| ((*id, *r), doc.clone())));
            }
            all
        };
        let (mine, theirs) = (flat(self), flat(other));
        for key in mine.keys().chain(theirs.keys().filter(|key| !mine.contains_key(key))) {
            let what = match (mine.get(key), theirs.get(key)) {
                (Some(a), Some(b)) if a == b => continue,
                (Some(_), Some(_)) => "differs",
                (Some(_), None) => "only in the first",
                _ => "only in the second",
            };
            lines.push(format!("{:?} {}: {what}", key.0, key.1));
        }
        let log = |model: &Model| {
            let pending = model.pending.iter().map(|unit| (unit.position, unit.records));
            (model.committed, pending.collect::<Vec<_>>())
        };
        if log(self) != log(other) {
            lines.push(format!("replicated log: {:?} and {:?}", log(self), log(other)));
        }
        let count = lines.len();
        lines.truncate(8);
        format!("{count} differences: {}", lines.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_the_contents() {
        let (one, two) = (CollectionId(1), CollectionId(2));
        let put =
            |id, record, text: &str| Change::Put(id, RecordId(record), text.as_bytes().into());
        let mut a = Model::default();
        for change in [
            Change::Create(one),
            Change::Create(two),
            put(one, 1, "x"),
            put(one, 2, "y"),
            put(one, 1, "z"),
            put(two, 1, "gone"),
            Change::Remove(one, RecordId(2)),
            Change::Drop(two),
        ] {
            a.apply(&change);
        }
        let mut b = Model::default();
        b.apply(&Change::Create(one));
        b.apply(&put(one, 1, "z"));
        assert_eq!(a.hash(), b.hash());
        assert_eq!(a.differences(&b), "0 differences: ");
        b.apply(&put(one, 2, "z"));
        assert_ne!(a.hash(), b.hash());
        assert!(a.differences(&b).contains("only in the second"));
        assert_eq!((a.last_store, a.stores()[&one].last), (2, 2));
    }

    #[test]
    fn pending_units_count_when_they_are_committed() {
        let id = CollectionId(1);
        let put = |record, text: &str| Change::Put(id, RecordId(record), text.as_bytes().into());
        let at = |index| LogPosition { term: 1, index };
        let mut model = Model::default();
        model.apply(&Change::Create(id));
        model.apply(&put(1, "a"));
        let before = model.hash();
        model.apply(&Change::Append(at(1), [put(2, "b"), Change::Remove(id, RecordId(1))].into()));
        model.apply(&Change::Append(at(2), [put(3, "c")].into()));
        assert_ne!(model.hash(), before);
        assert!(model.is_reused(&put(2, "another")) && !model.is_reused(&put(4, "another")));
        model.apply(&put(4, "d"));
        model.apply(&Change::TruncateAfter(1));
        model.apply(&Change::CommitUpTo(1));
        let records: Vec<_> = model.stores()[&id].records.keys().map(|id| id.0).collect();
        assert_eq!((records, model.stores()[&id].last), (vec![2, 4], 4));
        let mut other = model.clone();
        other.apply(&Change::Append(at(2), [put(5, "e")].into()));
        assert!(model.differences(&other).starts_with("1 differences: replicated log"));
        assert_ne!(model.hash(), other.hash());
    }
}
