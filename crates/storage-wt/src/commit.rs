//! Commits a write unit.
//!
//! 1. The registry is locked: shared, or exclusively for a unit with DDL. So definitions, stores and indexes do not
//!    change after their check.
//! 2. New tables are created; a refused unit leaves them to be dropped.
//! 3. In a transaction with snapshot isolation: claims of others are checked, versions are compared, records are
//!    written, then the keys, removals first. A conflict with a concurrent transaction rolls this one back. It is
//!    tried again from the beginning, and then finds the version changed or not.
//! 4. Counts, the registry, and the commit's number are published.

use crate::core::{Core, failed};
use crate::index_write::{self, Added, Scratch};
use crate::registry::{IndexState, Registry, StoreState};
use crate::rows::IndexRow;
use crate::store::{join, split};
use crate::sys::{Code, Session, Use};
use kauri_base::{CollectionId, CommitSeq, IndexId, RecordId};
use kauri_storage::write_set::PROVISIONAL;
use kauri_storage::{CommitTicket, KeyChange, OpKind, StorageError, WriteOp, WriteUnit};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a unit that is rolled back is tried again, and from which time on it sleeps between. There is
/// nothing to wait for: WiredTiger tells neither who was in the way nor when that one has ended, and it
/// rolls back for want of cache, too.
const ATTEMPTS_MAX: u32 = 2_000;
const ATTEMPTS_AWAKE: u32 = 20;
const ATTEMPT_PAUSE: Duration = Duration::from_micros(200);

/// Why an attempt ended.
enum Refused {
    /// Another transaction is in the way.
    Again,
    Error(StorageError),
}

impl From<Code> for Refused {
    fn from(code: Code) -> Refused {
        match code {
            Code::ROLLBACK => Refused::Again,
            code => Refused::Error(failed(code)),
        }
    }
}

/// What the operations of a unit make of the stores and indexes: `None` for what is dropped.
#[derive(Default)]
struct Overlay {
    stores: HashMap<CollectionId, Option<Arc<StoreState>>>,
    indexes: HashMap<IndexId, Option<Arc<IndexState>>>,
}

/// The stores and indexes as a unit sees them.
struct View<'r> {
    registry: &'r Registry,
    overlay: Overlay,
}

impl View<'_> {
    fn store(&self, id: CollectionId) -> Option<&Arc<StoreState>> {
        match self.overlay.stores.get(&id) {
            Some(store) => store.as_ref(),
            None => self.registry.stores.get(&id),
        }
    }

    /// The index, if it belongs to this collection and that is there.
    fn index(&self, id: IndexId, collection: CollectionId) -> Option<&Arc<IndexState>> {
        let index = match self.overlay.indexes.get(&id) {
            Some(index) => index.as_ref(),
            None => self.registry.indexes.get(&id),
        }?;
        (index.collection == collection && self.store(collection).is_some()).then_some(index)
    }

    /// Whether an index of this id is there, whosever it is.
    fn has_index(&self, id: IndexId) -> bool {
        let index = match self.overlay.indexes.get(&id) {
            Some(index) => index.as_ref(),
            None => self.registry.indexes.get(&id),
        };
        index.is_some_and(|index| self.store(index.collection).is_some())
    }
}

/// By how much a commit changes counts.
#[derive(Default)]
struct Deltas {
    stores: Vec<(Arc<StoreState>, i64, i64)>,
    indexes: Vec<(Arc<IndexState>, i64, i64)>,
    /// Indexes that the transaction has noted as mixed.
    mixed: Vec<Arc<IndexState>>,
}

impl Deltas {
    fn store(&mut self, store: &Arc<StoreState>, records: i64, bytes: i64) {
        match self.stores.iter_mut().find(|(known, ..)| Arc::ptr_eq(known, store)) {
            Some((_, sum, byte_sum)) => (*sum, *byte_sum) = (*sum + records, *byte_sum + bytes),
            None => self.stores.push((store.clone(), records, bytes)),
        }
    }

    fn index(&mut self, index: &Arc<IndexState>, entries: i64, bytes: i64) {
        match self.indexes.iter_mut().find(|(known, ..)| Arc::ptr_eq(known, index)) {
            Some((_, sum, byte_sum)) => (*sum, *byte_sum) = (*sum + entries, *byte_sum + bytes),
            None => self.indexes.push((index.clone(), entries, bytes)),
        }
    }

    fn apply(self) {
        for (store, records, bytes) in self.stores {
            store.records.change(records);
            store.bytes.change(bytes);
        }
        for (index, entries, bytes) in self.indexes {
            index.entries.change(entries);
            index.bytes.change(bytes);
        }
        for index in self.mixed {
            index.mixed_stored.store(true, Ordering::Release);
        }
    }
}

impl Core {
    /// See [`kauri_storage::StorageEngine::commit`].
    pub fn commit(
        self: &Arc<Self>,
        unit: &mut WriteUnit<'_>,
    ) -> Result<CommitTicket, StorageError> {
        let is_ddl = unit.ops.iter().any(|op| is_ddl(&op.kind));
        let seq = if is_ddl { self.commit_ddl(unit)? } else { self.commit_documents(unit)? };
        Ok(self.acks.tickets(seq))
    }

    fn commit_documents(
        self: &Arc<Self>,
        unit: &mut WriteUnit<'_>,
    ) -> Result<CommitSeq, StorageError> {
        let registry = self.read();
        self.check_not_held()?;
        let mut view = View { registry: &registry, overlay: Overlay::default() };
        let mut session = self.session().map_err(failed)?;
        check_definitions(&view, unit)?;
        self.check_operations(&mut view, unit, &mut session)?;
        if unit.is_empty() {
            return Ok(self.sequence.visible());
        }
        self.transact(&view, unit, &mut session)
    }

    fn commit_ddl(self: &Arc<Self>, unit: &mut WriteUnit<'_>) -> Result<CommitSeq, StorageError> {
        let mut registry = self.write();
        self.check_not_held()?;
        let mut view = View { registry: &registry, overlay: Overlay::default() };
        let mut session = self.session().map_err(failed)?;
        let outcome = check_definitions(&view, unit)
            .and_then(|()| self.check_operations(&mut view, unit, &mut session))
            .and_then(|()| self.transact(&view, unit, &mut session));
        let Overlay { stores, indexes } = view.overlay;
        drop(session);
        if outcome.is_err() {
            // What was made for the unit goes; what it would have dropped stays.
            stores.into_values().flatten().for_each(|store| self.discard_store(store));
            indexes.into_values().flatten().for_each(|index| self.discard_index(index));
            return outcome;
        }
        let change = |unit: &WriteUnit<'_>, registry: &Registry| {
            for op in unit.ops.iter().filter(|op| matches!(op.kind, OpKind::ChangeDefinition)) {
                if let Some(store) = registry.stores.get(&op.collection) {
                    store.definition.change(1);
                }
            }
        };
        for (id, store) in stores {
            let old = match store {
                Some(store) => registry.stores.insert(id, store),
                None => registry.stores.remove(&id),
            };
            old.into_iter().for_each(|store| self.discard_store(store));
        }
        for (id, index) in indexes {
            let old = match index {
                Some(index) => registry.indexes.insert(id, index),
                None => registry.indexes.remove(&id),
            };
            old.into_iter().for_each(|index| self.discard_index(index));
        }
        change(unit, &registry);
        let gone =
            registry.indexes.values().filter(|i| !registry.stores.contains_key(&i.collection));
        let gone: Vec<_> = gone.map(|index| index.id).collect();
        for id in gone {
            registry.indexes.remove(&id).into_iter().for_each(|index| self.discard_index(index));
        }
        outcome
    }

    /// Checks that what the operations use is there, makes what they create, and gives inserts their
    /// ids.
    fn check_operations(
        &self,
        view: &mut View<'_>,
        unit: &mut WriteUnit<'_>,
        session: &mut Session,
    ) -> Result<(), StorageError> {
        for position in 0..unit.ops.len() {
            let op = &unit.ops[position];
            let collection = op.collection;
            let stale = StorageError::StaleCatalog(collection);
            if view.store(collection).is_some() == matches!(op.kind, OpKind::CreateStore) {
                return Err(stale);
            }
            match &op.kind {
                OpKind::CreateStore => {
                    let store = self.create_store(session, collection).map_err(failed)?;
                    view.overlay.stores.insert(collection, Some(Arc::new(store)));
                }
                OpKind::DropStore => drop(view.overlay.stores.insert(collection, None)),
                OpKind::CreateIndex { spec, .. } => {
                    if view.has_index(spec.id) {
                        return Err(stale);
                    }
                    let is_empty = view.store(collection).is_some_and(|s| s.records.get() == 0);
                    let row = IndexRow {
                        id: spec.id,
                        collection,
                        unique: spec.unique,
                        mixed: false,
                        complete: is_empty,
                        ident: String::new(),
                    };
                    let index = self.create_index(session, row).map_err(failed)?;
                    view.overlay.indexes.insert(spec.id, Some(Arc::new(index)));
                }
                OpKind::DropIndex { index } => {
                    if view.index(*index, collection).is_none() {
                        return Err(stale);
                    }
                    view.overlay.indexes.insert(*index, None);
                }
                _ => {}
            }
            check_keys_presence(view, unit, position)?;
        }
        Ok(())
    }

    fn transact(
        &self,
        view: &View<'_>,
        unit: &mut WriteUnit<'_>,
        session: &mut Session,
    ) -> Result<CommitSeq, StorageError> {
        let mut ids = Vec::with_capacity(unit.ops.len());
        let seq = self
            .again_while_refused(session, |session| self.attempt(view, unit, session, &mut ids))?;
        for (op, id) in unit.ops.iter_mut().zip(&ids) {
            op.record = *id;
        }
        Ok(seq)
    }

    /// Tries again what is rolled back because others are in the way.
    fn again_while_refused<T>(
        &self,
        session: &mut Session,
        mut attempt_once: impl FnMut(&mut Session) -> Result<T, Refused>,
    ) -> Result<T, StorageError> {
        for attempt in 0..ATTEMPTS_MAX {
            match attempt_once(session) {
                Ok(done) => return Ok(done),
                Err(refused) => {
                    session.rollback();
                    if let Refused::Error(error) = refused {
                        return Err(error);
                    }
                }
            }
            if attempt < ATTEMPTS_AWAKE {
                std::thread::yield_now();
            } else {
                std::thread::sleep(ATTEMPT_PAUSE);
            }
        }
        Err(StorageError::WriteConflict)
    }

    fn attempt(
        &self,
        view: &View<'_>,
        unit: &WriteUnit<'_>,
        session: &mut Session,
        ids: &mut Vec<RecordId>,
    ) -> Result<CommitSeq, Refused> {
        session.begin()?;
        let taken = self.sequence.take();
        // With a number: who claims something has it checked when no number is out.
        self.claims.check(unit).map_err(Refused::Error)?;
        let mut deltas = Deltas::default();
        compare_versions(view, unit, session)?;
        if ids.is_empty() {
            give_ids(view, unit, ids);
        }
        self.write_operations(view, unit, session, (taken.seq(), ids), &mut deltas)?;
        self.write_keys(view, unit, session, ids, &mut deltas)?;
        session.commit()?;
        deltas.apply();
        self.note_definitions(view, unit);
        Ok(taken.publish())
    }

    /// Snapshots that are held can't show what the unit has changed; nobody takes one at this moment.
    fn note_definitions(&self, view: &View<'_>, unit: &WriteUnit<'_>) {
        let held = self.snapshots.ever();
        for op in &unit.ops {
            match &op.kind {
                OpKind::CreateStore | OpKind::ChangeDefinition => {
                    if let Some(store) = view.store(op.collection) {
                        store.changed.store(held, Ordering::Release);
                    }
                }
                OpKind::CreateIndex { spec, .. } => {
                    if let Some(index) = view.index(spec.id, op.collection) {
                        index.created.store(held, Ordering::Release);
                    }
                }
                _ => {}
            }
        }
    }

    /// See [`kauri_storage::StorageEngine::check`]: performs a commit, up to the end, on a snapshot that is taken
    /// while no commit is in progress; then rolls it back.
    pub fn check(self: &Arc<Self>, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        if unit.ops.iter().any(|op| is_ddl(&op.kind)) {
            return Err(StorageError::Unsupported("checking changes of definitions"));
        }
        let registry = self.read();
        let view = View { registry: &registry, overlay: Overlay::default() };
        let mut session = self.session().map_err(failed)?;
        check_definitions(&view, unit)?;
        check_presence(&view, unit)?;
        // New records have ids that no record has.
        let id = |(position, op): (usize, &WriteOp<'_>)| match op.kind {
            OpKind::Insert { .. } => RecordId(PROVISIONAL + position as u64),
            _ => op.record,
        };
        let ids: Vec<_> = unit.ops.iter().enumerate().map(id).collect();
        self.again_while_refused(&mut session, |session| {
            self.sequence.quietly(|_| session.begin())?;
            self.claims.check(unit).map_err(Refused::Error)?;
            compare_versions(&view, unit, session)?;
            self.write_keys(&view, unit, session, &ids, &mut Deltas::default())?;
            session.rollback();
            Ok(())
        })
    }

    fn write_operations(
        &self,
        view: &View<'_>,
        unit: &WriteUnit<'_>,
        session: &mut Session,
        (seq, ids): (u64, &[RecordId]),
        deltas: &mut Deltas,
    ) -> Result<(), Refused> {
        let mut value = Vec::new();
        for (op, id) in unit.ops.iter().zip(ids) {
            if is_ddl(&op.kind) {
                self.write_rows(view, op, session)?;
                continue;
            }
            let Some(store) = view.store(op.collection) else { continue };
            let cursor = session.cursor(&store.table, Use::Lookup)?;
            let record = key_of(*id)?;
            let old = match op.kind {
                OpKind::Insert { .. } => 0,
                _ => match cursor.search_record(record)? {
                    true => split(cursor.value()?).1.len() as i64,
                    false => return Err(Refused::Error(StorageError::WriteConflict)),
                },
            };
            match &op.kind {
                OpKind::Insert { doc } => {
                    join(&mut value, seq, doc);
                    cursor.put_record(record, &value)?;
                    deltas.store(store, 1, doc.len() as i64);
                }
                OpKind::Update { doc, .. } => {
                    join(&mut value, seq, doc);
                    cursor.put_record(record, &value)?;
                    deltas.store(store, 0, doc.len() as i64 - old);
                }
                OpKind::Delete { .. } => {
                    cursor.remove_record(record)?;
                    deltas.store(store, -1, -old);
                }
                _ => {
                    // Keys made from a version: written again as it is, so that whoever changes it
                    // meanwhile and this unit can't both commit.
                    value.clear();
                    value.extend_from_slice(cursor.value()?);
                    cursor.put_record(record, &value)?;
                }
            }
        }
        Ok(())
    }

    /// What an operation of DDL changes in the tables of stores and indexes.
    fn write_rows(
        &self,
        view: &View<'_>,
        op: &WriteOp<'_>,
        session: &mut Session,
    ) -> Result<(), Refused> {
        match &op.kind {
            OpKind::CreateStore => {
                if let Some(store) = view.store(op.collection) {
                    self.rows.put_store(session, store)?;
                }
            }
            OpKind::DropStore => {
                self.rows.remove_store(session, op.collection)?;
                let of_it = |index: &&Arc<IndexState>| index.collection == op.collection;
                for index in view.registry.indexes.values().filter(of_it) {
                    self.rows.remove_index(session, index.id)?;
                }
            }
            OpKind::CreateIndex { spec, .. } => {
                if let Some(index) = view.index(spec.id, op.collection) {
                    self.rows.put_index(session, index)?;
                }
            }
            OpKind::DropIndex { index } => self.rows.remove_index(session, *index)?,
            _ => {}
        }
        Ok(())
    }

    /// All of the unit's removals come before all of its additions.
    fn write_keys(
        &self,
        view: &View<'_>,
        unit: &WriteUnit<'_>,
        session: &mut Session,
        ids: &[RecordId],
        deltas: &mut Deltas,
    ) -> Result<(), Refused> {
        let mut scratch = Scratch::default();
        for add in [false, true] {
            for (position, (op, id)) in unit.ops.iter().zip(ids).enumerate() {
                for change in unit.keys_of(position).iter().filter(|change| change.add == add) {
                    let Some(index) = view.index(change.index, op.collection) else { continue };
                    let (key, bits) = (unit.key_bytes(change), unit.type_bits(change));
                    let added = if !add {
                        let (entries, bytes) =
                            index_write::remove(session, index, key, *id, &mut scratch)?;
                        Added::Grown(entries, bytes)
                    } else if change.unique {
                        index_write::add_unique(session, index, (key, bits), *id, &mut scratch)?
                    } else {
                        if index.unique && !index.mixed_stored.load(Ordering::Acquire) {
                            index.mixed.store(true, Ordering::Release);
                            self.rows.put_index(session, index)?;
                            deltas.mixed.push(index.clone());
                        }
                        index_write::add(session, index, (key, bits), *id, &mut scratch)?
                    };
                    match added {
                        Added::Grown(entries, bytes) => deltas.index(index, entries, bytes),
                        Added::Duplicate(other) => {
                            let error = duplicate(unit, ids, (position, change), other);
                            return Err(Refused::Error(error));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn is_ddl(kind: &OpKind<'_>) -> bool {
    use OpKind::{ChangeDefinition, CreateIndex, CreateStore, DropIndex, DropStore};
    matches!(
        kind,
        CreateStore | DropStore | CreateIndex { .. } | DropIndex { .. } | ChangeDefinition
    )
}

/// Checks that the stores and indexes that a unit without DDL uses are there.
fn check_presence(view: &View<'_>, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
    for (position, op) in unit.ops.iter().enumerate() {
        if view.store(op.collection).is_none() {
            return Err(StorageError::StaleCatalog(op.collection));
        }
        check_keys_presence(view, unit, position)?;
    }
    Ok(())
}

fn check_keys_presence(
    view: &View<'_>,
    unit: &WriteUnit<'_>,
    position: usize,
) -> Result<(), StorageError> {
    let Some(op) = unit.ops.get(position) else { return Ok(()) };
    let all_there = |change: &KeyChange| view.index(change.index, op.collection).is_some();
    match unit.keys_of(position).iter().all(all_there) {
        true => Ok(()),
        false => Err(StorageError::StaleCatalog(op.collection)),
    }
}

fn check_definitions(view: &View<'_>, unit: &WriteUnit<'_>) -> Result<(), StorageError> {
    for (collection, number) in &unit.definitions {
        if view.store(*collection).map(|store| store.definition.get()) != Some(*number) {
            return Err(StorageError::StaleCatalog(*collection));
        }
    }
    Ok(())
}

fn key_of(id: RecordId) -> Result<i64, Refused> {
    i64::try_from(id.0).map_err(|_| Refused::Error(StorageError::WriteConflict))
}

/// Each record that the unit changes must be there in the version that was seen.
fn compare_versions(
    view: &View<'_>,
    unit: &WriteUnit<'_>,
    session: &mut Session,
) -> Result<(), Refused> {
    for op in &unit.ops {
        let (OpKind::Update { seen, .. } | OpKind::Delete { seen } | OpKind::Backfill { seen }) =
            &op.kind
        else {
            continue;
        };
        // A store that the unit itself drops later is the registry's still.
        let store = view.store(op.collection).or_else(|| view.registry.stores.get(&op.collection));
        let conflict = || Refused::Error(StorageError::WriteConflict);
        let cursor = session.cursor(&store.ok_or_else(conflict)?.table, Use::Lookup)?;
        if !cursor.search_record(key_of(op.record)?)? || split(cursor.value()?).0 != *seen {
            return Err(conflict());
        }
    }
    Ok(())
}

fn give_ids(view: &View<'_>, unit: &WriteUnit<'_>, ids: &mut Vec<RecordId>) {
    ids.extend(unit.ops.iter().map(|op| match (&op.kind, view.store(op.collection)) {
        (OpKind::Insert { .. }, Some(store)) => RecordId(store.last_id.next()),
        _ => op.record,
    }));
}

/// The error for a key that `other` has: named, unless it got it in this unit.
fn duplicate(
    unit: &WriteUnit<'_>,
    ids: &[RecordId],
    (position, change): (usize, &KeyChange),
    other: RecordId,
) -> StorageError {
    let key = unit.key_bytes(change);
    let of_unit = ids.iter().enumerate().any(|(op, id)| {
        *id == other
            && unit.keys_of(op).iter().any(|theirs| {
                theirs.add && theirs.index == change.index && unit.key_bytes(theirs) == key
            })
    });
    StorageError::DuplicateKey {
        index: change.index,
        op: position,
        key: key.to_vec(),
        type_bits: unit.type_bits(change).to_vec(),
        existing: (!of_unit).then_some(other),
    }
}
