//! Fixture: a catalog on the in-memory engine, with the writes and reads that the tests need.

use kauri_base::clock::{SeededRandom, SystemClock};
use kauri_base::{Access, CommitSeq, Error, ErrorCode, IndexId, RecordId, Result};
use kauri_bson::keygen::Keys;
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_catalog::build::BuildStep;
use kauri_catalog::check::{CheckStep, CollectionCheck, Report};
use kauri_catalog::{Catalog, Collection, Index, IndexBuild, KeyScratch, Namespace};
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::{
    Backend, Direction, IndexScan, RecordScan, RecordStore, Scope, StorageEngine, StorageError,
    WriteUnit,
};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

pub fn engine() -> Arc<dyn StorageEngine> {
    Arc::new(EphemeralEngine::new())
}

/// A catalog and the engine that it uses.
pub struct Opened {
    pub backend: Arc<Backend>,
    catalog: Catalog,
}

impl Opened {
    pub fn new(backend: Arc<Backend>, catalog: Catalog) -> Self {
        Opened { backend, catalog }
    }

    pub fn scope(&self) -> Scope {
        self.backend.scope()
    }
}

impl Deref for Opened {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        &self.catalog
    }
}

pub fn open(engine: &Arc<dyn StorageEngine>) -> Opened {
    let random = Arc::new(SeededRandom::new(7));
    let backend = Backend::local(engine.clone(), Arc::new(SystemClock::new()), random);
    let catalog = Catalog::open(&backend).unwrap();
    Opened { backend, catalog }
}

pub fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

pub fn create(catalog: &Opened, name: &str) -> Arc<Collection> {
    catalog.create_collection(&mut catalog.scope(), &ns(name), Default::default(), None).unwrap().0
}

pub fn code<T>(result: Result<T>) -> ErrorCode {
    match result {
        Ok(_) => ErrorCode::OK,
        Err(error) => error.code(),
    }
}

/// The result of a write.
#[derive(Debug, PartialEq)]
pub enum Written {
    Done,
    /// The collection or record does not exist (any more).
    Gone,
    Refused(ErrorCode),
}

/// Commits the unit that `fill` makes from the current definition. Retries while the definition changes.
pub fn write(
    catalog: &Opened,
    name: &str,
    mut fill: impl FnMut(&Collection, &mut WriteUnit<'_>) -> Result<bool>,
) -> Written {
    loop {
        let Some(collection) = catalog.collection(name) else { return Written::Gone };
        let mut unit = WriteUnit::new();
        match fill(&collection, &mut unit) {
            Ok(true) => {}
            Ok(false) => return Written::Gone,
            Err(error) => return Written::Refused(error.code()),
        }
        match catalog.scope().commit(&mut unit) {
            Ok(_) => return Written::Done,
            Err(StorageError::WriteConflict | StorageError::StaleCatalog(_)) => {}
            Err(error) => return Written::Refused(collection.explain_commit_error(error).code()),
        }
    }
}

pub fn insert(catalog: &Opened, name: &str, doc: &DocBuf) -> Written {
    let mut scratch = KeyScratch::default();
    write(catalog, name, |collection, unit| {
        collection.insert(unit, doc.as_bytes().to_vec().into(), &mut scratch).map(|_| true)
    })
}

/// Replaces the document of a record by the result of `change`; `None` deletes it.
pub fn change(
    catalog: &Opened,
    name: &str,
    record: RecordId,
    change: impl Fn(Doc<'_>) -> Option<DocBuf>,
) -> Written {
    let mut scratch = KeyScratch::default();
    write(catalog, name, |collection, unit| {
        let found = read(&**catalog.backend.engine(), &*collection.store, record)?;
        let Some((version, old)) = found else { return Ok(false) };
        match change(old.as_doc()) {
            Some(new) => {
                let new = new.into_vec().into();
                collection.update(unit, record, version, old.as_doc(), new, &mut scratch)?;
            }
            None => {
                collection.delete(unit, record, version, old.as_doc(), &mut scratch)?;
            }
        }
        Ok(true)
    })
}

/// A record's document and version. Waits for it.
pub fn read(
    engine: &dyn StorageEngine,
    store: &dyn RecordStore,
    record: RecordId,
) -> Result<Option<(CommitSeq, DocBuf)>, StorageError> {
    let mut ru = engine.recovery_unit();
    loop {
        ru.enter();
        let ticket = match store.get(&*ru, record)? {
            Access::Ready(found) => return Ok(found.map(|f| (f.version, f.doc.to_buf()))),
            Access::WouldBlock(ticket) => ticket,
        };
        ru.leave();
        ticket.wait().unwrap();
    }
}

/// All records of a collection.
pub fn records(catalog: &Opened, collection: &Collection) -> Vec<(RecordId, DocBuf)> {
    let engine = &**catalog.backend.engine();
    let mut ru = engine.recovery_unit();
    let mut scan = RecordScan::new(Direction::Forward);
    let mut found = Vec::new();
    loop {
        while let Some(id) = scan.next_buffered() {
            if let Ok(Some((_, doc))) = read(engine, &*collection.store, id) {
                found.push((id, doc));
            }
        }
        if scan.ended() {
            return found;
        }
        ru.enter();
        let filled = collection.store.fill(&*ru, &mut scan).unwrap();
        ru.leave();
        if let Access::WouldBlock(ticket) = filled {
            ticket.wait().unwrap();
        }
    }
}

pub type Entries = BTreeSet<(Vec<u8>, RecordId)>;

/// The entries of an index.
pub fn entries(catalog: &Opened, index: &Index) -> Entries {
    let mut ru = catalog.backend.engine().recovery_unit();
    ru.enter();
    let mut scan = IndexScan::new(Direction::Forward, Vec::new(), Vec::new());
    let mut found = Entries::new();
    loop {
        while let Some(entry) = scan.next_buffered() {
            found.insert((entry.key.to_vec(), entry.record));
        }
        if scan.ended() {
            return found;
        }
        assert!(matches!(index.data.fill(&*ru, &mut scan), Ok(Access::Ready(()))));
    }
}

/// The entries that a rebuild of the index gives.
pub fn rebuilt(catalog: &Opened, collection: &Collection, index: &Index) -> Entries {
    let mut keys = Keys::default();
    let mut expected = Entries::new();
    for (id, doc) in records(catalog, collection) {
        index.keys.generate_into(doc.as_doc(), &mut keys).unwrap();
        expected.extend(keys.iter().map(|key| (key.bytes.to_vec(), id)));
    }
    expected
}

/// Backfills and publishes indexes; resolves the definition again if it changes.
pub fn build(catalog: &Opened, name: &str, ids: &[IndexId], since: CommitSeq) -> Result<()> {
    let mut build = IndexBuild::new(ids.to_vec(), since);
    let mut scope = catalog.scope();
    let gone = || Error::new(ErrorCode::NamespaceNotFound, "gone");
    let mut collection = catalog.collection(name).ok_or_else(gone)?;
    loop {
        match build.step(&collection, &mut scope)? {
            BuildStep::Done => break,
            BuildStep::Again => {}
            BuildStep::Stale => collection = catalog.collection(name).ok_or_else(gone)?,
            BuildStep::Blocked(ticket) => ticket.wait()?,
        }
    }
    loop {
        match catalog.indexes_ready(&mut catalog.scope(), &collection, ids, &[]) {
            Err(error) if error.code() == ErrorCode::WriteConflict => {
                collection = catalog.collection(name).ok_or_else(gone)?;
            }
            other => return other.map(drop),
        }
    }
}

/// Adds indexes and builds them.
pub fn create_indexes(catalog: &Opened, name: &str, specs: &[DocBuf]) -> Result<Vec<IndexId>> {
    loop {
        let collection = catalog.collection(name).unwrap();
        match catalog.add_indexes(&mut catalog.scope(), &collection, specs) {
            Ok((ids, ticket)) => {
                return build(catalog, name, &ids, ticket.seq).map(|()| ids);
            }
            Err(error) if error.code() == ErrorCode::WriteConflict => {}
            Err(error) => return Err(error),
        }
    }
}

pub fn spec(key: DocBuf, name: &str) -> DocBuf {
    let given = doc! { "key" => key, "name" => name };
    kauri_catalog::spec::normalise(given.as_doc(), false).unwrap()
}

pub fn unique(key: DocBuf, name: &str) -> DocBuf {
    let given = doc! { "key" => key, "name" => name, "unique" => true };
    kauri_catalog::spec::normalise(given.as_doc(), false).unwrap()
}

/// Checks a collection to the end.
pub fn check(catalog: &Opened, collection: &Arc<Collection>) -> Report {
    let mut check = CollectionCheck::new(collection.clone(), &SeededRandom::new(1));
    let mut ru = catalog.backend.engine().recovery_unit();
    loop {
        match check.step(&mut *ru).unwrap() {
            CheckStep::Done => return check.report().clone(),
            CheckStep::Again => {}
            CheckStep::Blocked(ticket) => ticket.wait().unwrap(),
        }
    }
}

pub fn number(doc: Doc<'_>, field: &str) -> i64 {
    match doc.value(field) {
        Value::Int32(n) => i64::from(n),
        Value::Int64(n) => n,
        other => panic!("{field} is {other:?}"),
    }
}
