//! An open engine on an emulated directory, with its catalog and the history of its commits.

use crate::history::{History, Timeline};
use crate::model::{Change, Model};
use crate::schema::{CATALOG, TableDef};
use crate::target::{CrashTarget, OpenEngine, Work};
use kauri_base::{CollectionId, CommitSeq, Error, RecordId};
use kauri_conformance::inspect;
use kauri_conformance::table::{Table, number};
use kauri_emulator::Emulator;
use kauri_storage::{
    CommitTicket, Durability, LogPosition, OpKind, StorageEngine, StorageError, WriteUnit,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// See the module's head. Shared by all sessions.
pub struct World {
    /// The directory.
    pub emulator: Emulator,
    opened: Box<dyn OpenEngine>,
    /// The engine.
    pub engine: Arc<dyn StorageEngine>,
    /// The catalog's own store.
    pub catalog: Table,
    tables: Mutex<BTreeMap<CollectionId, TableDef>>,
    base: Model,
    history: History,
    /// The last commit whose acknowledgement has to be waited for.
    last: Mutex<Option<CommitTicket>>,
    /// Held while the replicated log grows or is resolved: somebody else does that in one order. Its term, which ends
    /// when pending units are dropped, so that no two have the same place.
    replicated: Mutex<u64>,
    next_store: AtomicU32,
    next_unique: AtomicI64,
    /// With more bytes of documents than this, new ones are short and deletes frequent.
    pub document_bytes_max: u64,
    /// Percentage of chances to create or drop a collection or an index that are taken.
    pub definitions_percent: u64,
    /// Counts of events.
    pub counts: Counts,
}

/// Counts of events, to check that a run serves its purpose.
#[derive(Default, Debug)]
pub struct Counts {
    /// Units that were committed.
    pub commits: Count,
    /// Units of more than one document.
    pub multi_document: Count,
    /// Collections created and dropped.
    pub collections: Count,
    /// Index builds that ended.
    pub builds: Count,
    /// Units that were refused as outdated.
    pub conflicts: Count,
    /// Units that were refused for a duplicate key.
    pub duplicates: Count,
    /// Units that were refused for lack of room.
    pub no_space: Count,
    /// Transactions of several statements that were committed.
    pub transactions: Count,
    /// Units that are longer than most segments.
    pub large: Count,
    /// Units of the replicated log that were appended.
    pub pending: Count,
    /// Commits and truncations of the replicated log.
    pub resolved: Count,
}

/// A number that only grows.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// What outlives an engine.
struct Past {
    base: Model,
    history: History,
    counts: Counts,
    next_store: u32,
    next_unique: i64,
    term: u64,
}

impl World {
    /// Opens the directory, which holds `base` (as far as that goes before a recovery).
    pub fn open(
        target: &dyn CrashTarget,
        emulator: &Emulator,
        base: impl FnOnce(&Model) -> Model,
    ) -> kauri_base::Result<World> {
        let opened = target.open(emulator)?;
        let base = base(&Model::read(&*opened.engine())?);
        let unique = base.stores().values().flat_map(|store| store.records.values());
        let next_unique = unique.map(|doc| number(doc, "u")).max().unwrap_or(0) + 1;
        let past = Past {
            next_store: base.last_store.max(9) + 1,
            next_unique,
            term: base.last_term() + 1,
            base,
            history: History::default(),
            counts: Counts::default(),
        };
        let world = World::new(opened, emulator, past);
        world.read_catalog()?;
        Ok(world)
    }

    fn new(opened: Box<dyn OpenEngine>, emulator: &Emulator, past: Past) -> World {
        let engine = opened.engine();
        World {
            emulator: emulator.clone(),
            opened,
            catalog: Table::new(&engine, CATALOG.0, &[]),
            engine,
            tables: Mutex::default(),
            next_store: AtomicU32::new(past.next_store),
            next_unique: AtomicI64::new(past.next_unique),
            document_bytes_max: 250 << 10,
            definitions_percent: 100,
            base: past.base,
            history: past.history,
            last: Mutex::default(),
            replicated: Mutex::new(past.term),
            counts: past.counts,
        }
    }

    /// Shuts the engine down and opens it again. If either fails: why, and what happened until then.
    pub fn restart(self, target: &dyn CrashTarget) -> Result<World, Box<(Error, Timeline)>> {
        let closed = self.close().map_err(Error::from);
        let World { emulator, opened, engine, catalog, base, history, counts, .. } = self;
        drop((opened, engine, catalog));
        let (next_store, next_unique) =
            (self.next_store.into_inner(), self.next_unique.into_inner());
        let term = self.replicated.into_inner().unwrap_or_else(PoisonError::into_inner);
        let past = Past { base, history, counts, next_store, next_unique, term };
        let opened = match closed.and_then(|()| target.open(&emulator)) {
            Ok(opened) => opened,
            Err(error) => return Err(Box::new((error, past.history.timeline(past.base)))),
        };
        let world = World::new(opened, &emulator, past);
        match world.read_catalog() {
            Ok(()) => Ok(world),
            Err(error) => Err(Box::new((error, world.end().0))),
        }
    }

    /// Takes the tables from the catalog and attaches their indexes.
    fn read_catalog(&self) -> kauri_base::Result<()> {
        for (record, stored) in inspect::records(&*self.engine, CATALOG)? {
            let def = TableDef::decode(record, &stored.doc);
            let mut def = def.unwrap_or_else(|| panic!("{record} of the catalog is malformed"));
            let found = self.engine.definition_number(def.id);
            def.number = found.unwrap_or_else(|| panic!("{:?} has no store", def.id));
            for index in def.indexes.iter().filter(|index| index.ready) {
                index.index.set_complete();
                let (spec, generator) = (index.index.spec, index.index.generator.clone());
                self.engine.attach_index(def.id, spec, generator)?;
            }
            self.lock_tables().insert(def.id, def);
        }
        let known = self.lock_tables().len() + usize::from(self.engine.stores().contains(&CATALOG));
        assert_eq!(self.engine.stores().len(), known, "a store that the catalog doesn't know");
        Ok(())
    }

    /// Makes the world fit for work: a catalog, and no index whose build was cut off.
    pub fn prepare(&self) -> Result<(), StorageError> {
        if self.engine.record_store(CATALOG).is_none() {
            let mut unit = WriteUnit::new();
            unit.push(CATALOG, RecordId(0), OpKind::CreateStore);
            self.commit(&mut unit, |_| vec![Change::Create(CATALOG)])?;
        }
        for mut def in self.tables() {
            if def.indexes.iter().all(|index| index.ready) {
                continue;
            }
            def.indexes.retain(|index| index.ready);
            let mut unit = WriteUnit::new();
            let old = self.catalog.record(def.record);
            let doc = def.encode();
            self.catalog.update_in(&mut unit, def.record, &old, &doc);
            unit.push(def.id, RecordId(0), OpKind::ChangeDefinition);
            self.commit(&mut unit, |_| vec![Change::Put(CATALOG, def.record, doc.into())])?;
            self.redefined(def);
        }
        Ok(())
    }

    fn lock_tables(&self) -> MutexGuard<'_, BTreeMap<CollectionId, TableDef>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The collections as they are now.
    pub fn tables(&self) -> Vec<TableDef> {
        self.lock_tables().values().cloned().collect()
    }

    /// The collection as it is now.
    pub fn table(&self, id: CollectionId) -> Option<TableDef> {
        self.lock_tables().get(&id).cloned()
    }

    /// A collection was created, by a unit that has just been committed.
    pub fn created(&self, mut def: TableDef) {
        def.note_complete();
        if let Some(number) = self.engine.definition_number(def.id) {
            def.number = number;
            self.lock_tables().insert(def.id, def);
        }
    }

    /// A collection's definition has changed, by a unit that has just been committed and that went by
    /// the definition before. Others may have changed or dropped it since.
    pub fn redefined(&self, mut def: TableDef) {
        def.note_complete();
        def.number += 1;
        if let Some(known) = self.lock_tables().get_mut(&def.id).filter(|k| k.number < def.number) {
            *known = def;
        }
    }

    /// A collection was dropped.
    pub fn dropped(&self, id: CollectionId) {
        self.lock_tables().remove(&id);
    }

    /// An id for a new collection.
    pub fn new_store(&self) -> CollectionId {
        CollectionId(self.next_store.fetch_add(1, Ordering::Relaxed))
    }

    /// A number that no document has.
    pub fn new_unique(&self) -> i64 {
        self.next_unique.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that some document may have.
    pub fn old_unique(&self, choice: u64) -> i64 {
        self.next_unique.load(Ordering::Relaxed) - 1 - (choice % 50) as i64
    }

    /// Commits a unit and records its changes.
    pub fn commit(
        &self,
        unit: &mut WriteUnit<'_>,
        changes: impl FnOnce(&WriteUnit<'_>) -> Vec<Change>,
    ) -> Result<CommitTicket, StorageError> {
        let began_at = self.emulator.events();
        let result = self.engine.commit(unit);
        self.note(began_at, &result, || changes(unit));
        result
    }

    /// Appends a unit to the replicated log after the pending ones, and records its future effect.
    pub fn append(
        &self,
        unit: &mut WriteUnit<'_>,
        changes: impl FnOnce(&WriteUnit<'_>) -> Vec<Change>,
    ) -> Result<CommitTicket, StorageError> {
        let term = self.replicated.lock().unwrap_or_else(PoisonError::into_inner);
        let log = self.engine.pending_log()?;
        let last = log.pending().last().map_or(log.committed(), |unit| unit.position);
        let index = last.index + 1;
        let position = LogPosition { term: *term, index };
        let began_at = self.emulator.events();
        let result = log.append(unit, position);
        self.note(began_at, &result, || vec![Change::Append(position, changes(unit).into())]);
        if result.is_ok() {
            self.counts.pending.one();
        }
        result
    }

    /// Commits pending units, or drops some; `None` if there is none.
    pub fn resolve(&self, commit: bool, choice: u64) -> Result<Option<CommitTicket>, StorageError> {
        let mut term = self.replicated.lock().unwrap_or_else(PoisonError::into_inner);
        let log = self.engine.pending_log()?;
        let pending = log.pending();
        let Some(unit) = pending.get(choice as usize % pending.len().max(1)) else {
            return Ok(None);
        };
        let index = unit.position.index;
        let began_at = self.emulator.events();
        let (result, change) = match commit {
            true => (log.commit_up_to(index), Change::CommitUpTo(index)),
            false => (log.truncate_after(index - 1), Change::TruncateAfter(index - 1)),
        };
        self.note(began_at, &result, || vec![change]);
        if result.is_ok() {
            self.counts.resolved.one();
            *term += u64::from(!commit);
        }
        result.map(Some)
    }

    /// Number of pending units.
    pub fn pending(&self) -> usize {
        self.engine.pending_log().map_or(0, |log| log.pending().len())
    }

    /// Notes how a commit came out that had begun after so many events.
    fn note(
        &self,
        began_at: usize,
        result: &Result<CommitTicket, StorageError>,
        changes: impl FnOnce() -> Vec<Change>,
    ) {
        match result {
            Ok(ticket) => {
                self.counts.commits.one();
                let changes = changes();
                // An engine need not number what changes nothing that lasts.
                if !changes.is_empty() {
                    self.history.committed(ticket.seq, began_at, changes);
                    self.note_reached(ticket);
                    self.note_last(ticket);
                }
            }
            Err(StorageError::WriteConflict | StorageError::StaleCatalog(_)) => {
                self.counts.conflicts.one();
            }
            Err(StorageError::DuplicateKey { .. }) => self.counts.duplicates.one(),
            Err(StorageError::OutOfDiskSpace) => self.counts.no_space.one(),
            Err(_) => {}
        }
    }

    fn note_last(&self, ticket: &CommitTicket) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|last| last.seq < ticket.seq) {
            *last = Some(ticket.clone());
        }
    }

    /// Whether the last commit may be acknowledged as written.
    fn last_is_written(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(ticket) = last.as_mut().and_then(|last| last.ticket(Durability::Written)) else {
            return true;
        };
        let mut ticket = ticket.clone();
        let polled = Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Ok(())))
    }

    /// Notes what a commit has been promised without anybody waiting: on memory that lasts, everything.
    fn note_reached(&self, ticket: &CommitTicket) {
        for durability in [Durability::Written, Durability::Durable] {
            if ticket.ticket(durability).is_none() {
                self.history.promised(self.emulator.events(), ticket.seq, durability);
            }
        }
    }

    /// Waits for a commit, and notes that it was promised.
    pub fn wait(&self, ticket: &CommitTicket, durability: Durability) -> Result<(), StorageError> {
        let waited = ticket.wait(durability);
        waited.map_err(|error| StorageError::Io(error.message().to_owned()))?;
        self.history.promised(self.emulator.events(), ticket.seq, durability);
        Ok(())
    }

    /// Makes everything durable that was committed by now, and notes that it was promised.
    pub fn sync(&self) -> Result<(), StorageError> {
        let seq = self.snapshot();
        self.engine.sync()?;
        self.history.promised(self.emulator.events(), seq, Durability::Durable);
        Ok(())
    }

    /// Hands everything to the operating system, and notes that it was promised if that was done.
    pub fn flush(&self) {
        let seq = self.snapshot();
        self.engine.flush();
        if self.last_is_written() {
            self.history.promised(self.emulator.events(), seq, Durability::Written);
        }
    }

    /// Shuts the engine down, and notes that all is promised.
    pub fn close(&self) -> Result<(), StorageError> {
        let seq = self.snapshot();
        self.opened.close()?;
        self.history.promised(self.emulator.events(), seq, Durability::Durable);
        Ok(())
    }

    /// Lets the engine do a piece of its background work, and records the promises if that was the round of the
    /// commit interval.
    pub fn maintain(&self, choice: u64) -> Result<(), StorageError> {
        let seq = self.snapshot();
        if self.opened.maintain(choice)? == Work::Round {
            self.history.promised(self.emulator.events(), seq, Durability::Durable);
        }
        Ok(())
    }

    fn snapshot(&self) -> CommitSeq {
        let mut unit = self.engine.recovery_unit();
        unit.enter();
        let seq = unit.snapshot();
        unit.leave();
        seq
    }

    /// Bytes of all documents.
    pub fn document_bytes(&self) -> u64 {
        let stores = self.engine.stores().into_iter();
        let stores = stores.filter_map(|id| self.engine.record_store(id));
        // One that was dropped meanwhile has none.
        stores.map(|store| store.stats().map_or(0, |stats| stats.bytes)).sum()
    }

    /// Checks that the engine is consistent in itself, and that it holds the catalog that is known.
    pub fn check(&self) {
        let tables = self.tables();
        if self.engine.record_store(CATALOG).is_none() {
            return assert!(tables.is_empty(), "collections without a catalog");
        }
        let catalog = self.catalog.records();
        assert_eq!(catalog.len(), tables.len(), "collections in the catalog");
        for def in tables {
            assert!(catalog.get(&def.record).is_some_and(|stored| stored.doc == def.encode()));
            def.ready_table(&self.engine).check();
        }
        self.catalog.check();
    }

    /// Ends the world, without closing the engine. Answers what happened in it.
    pub fn end(self) -> (Timeline, Counts) {
        (self.history.timeline(self.base), self.counts)
    }

    /// Like [`World::end`], and checks that the engine has exactly the committed contents.
    pub fn end_checked(self) -> (Timeline, Counts) {
        let found = Model::read(&*self.engine);
        let found = found.unwrap_or_else(|error| panic!("reading: {error}"));
        let (timeline, counts) = self.end();
        let expected = timeline.contents(timeline.end());
        if expected.hash() != found.hash() {
            let differences = expected.differences(&found);
            panic!("from what was committed to what the engine holds: {differences}");
        }
        (timeline, counts)
    }
}
