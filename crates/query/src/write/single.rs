//! Writes of one document, found by its `_id` if it exists: without a plan or an operation context.
//!
//! Each function returns `None` if the case is not simple (a reader that would wait, a conflict, an error, a capped
//! collection, a validator, much work). Then nothing has happened, and the statement runs on the ordinary path,
//! which also produces the error message.
//!
//! The work is not metered: no other task of the worker runs until it is done. So documents and updates are small,
//! and an update takes at most one step per byte.

use super::insert::prepare_document;
use kauri_base::{Access, RecordId};
use kauri_bson::Doc;
use kauri_catalog::{Collection, Index, KeyScratch};
use kauri_mutate::{Update, UpdateCx};
use kauri_storage::{Backend, CommitTicket, NumberedWrite, Record, RecoveryUnit, Scope, WriteUnit};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a write found and did.
#[derive(Default)]
pub struct Single {
    /// Whether there is such a document.
    pub matched: bool,
    /// Whether it differs now.
    pub modified: bool,
    /// What to wait for before it is acknowledged.
    pub ticket: Option<CommitTicket>,
}

/// Whether writes of the collection are as simple as this module has them.
fn is_simple(collection: &Collection) -> bool {
    let has_long_filter = |index: &Arc<Index>| {
        let definition = index.definition();
        definition.partial.is_some() && definition.spec.as_bytes().len() > INDEX_SPEC_BYTES_MAX
    };
    collection.id_index().is_some()
        && collection.options.capped.is_none()
        && collection.options.validator_expr.is_none()
        && !collection.indexes.iter().any(has_long_filter)
}

/// Definitions of partial indexes above this size have filters that take long.
const INDEX_SPEC_BYTES_MAX: usize = 4 * 1024;
/// Documents above this size are written the ordinary way.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024;

/// The statement of a write, if its session numbers them.
pub type Statement = Option<Box<NumberedWrite>>;

/// Inserts a document.
pub fn insert(
    scope: &mut Scope,
    collection: &Collection,
    doc: Doc<'_>,
    scratch: &mut KeyScratch,
    statement: Statement,
) -> Option<CommitTicket> {
    if !is_simple(collection) || doc.as_bytes().len() > DOCUMENT_BYTES_MAX {
        return None;
    }
    let mut unit = WriteUnit::of_one();
    collection
        .insert(&mut unit, prepare_document(scope.backend(), doc, true).ok()?, scratch)
        .ok()?;
    unit.numbered = statement;
    scope.commit(&mut unit).ok()
}

/// Updates the document whose `_id` has this key. `backend` is the scope's.
pub fn update(
    scope: &mut Scope,
    backend: &Backend,
    collection: &Collection,
    key: &[u8],
    update: &Update,
    scratch: &mut KeyScratch,
    statement: Statement,
) -> Option<Single> {
    if !is_simple(collection) || update.needs_matched_position() || !update.is_linear() {
        return None;
    }
    let tick = || backend.tick();
    let now_ms = if update.tells_time() { backend.now_ms() } else { 0 };
    let cx = UpdateCx::new(now_ms, &tick);
    let mut kept = Kept::take();
    let new = &mut kept.0;
    change(scope, collection, key, statement, |record, found, unit| {
        new.reserve(found.doc.as_bytes().len() + 64);
        if !update.apply(found.doc, &cx, new).ok()?.modified {
            return Some(false);
        }
        let new = Cow::Borrowed(&new[..]);
        collection.update(unit, record, found.version, found.doc, new, scratch).ok()?;
        Some(true)
    })
}

thread_local! {
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Memory for a document that is kept from one update to the next of this thread: memory that was used a
/// moment ago is in the processor's cache.
struct Kept(Vec<u8>);

impl Kept {
    /// More is given back.
    const BYTES_MAX: usize = 64 << 10;

    fn take() -> Kept {
        Kept(KEPT.take())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.0.capacity() <= Kept::BYTES_MAX {
            self.0.clear();
            KEPT.set(std::mem::take(&mut self.0));
        }
    }
}

/// Deletes the document whose `_id` has this key.
pub fn delete(
    scope: &mut Scope,
    collection: &Collection,
    key: &[u8],
    scratch: &mut KeyScratch,
    statement: Statement,
) -> Option<Single> {
    if !is_simple(collection) {
        return None;
    }
    change(scope, collection, key, statement, |record, found, unit| {
        collection.delete(unit, record, found.version, found.doc, scratch).ok()?;
        Some(true)
    })
}

/// Has `compute` add the change of a document to a unit, and commits it. `compute` answers whether
/// there is one.
fn change<'a>(
    scope: &mut Scope,
    collection: &Collection,
    key: &[u8],
    statement: Statement,
    compute: impl FnOnce(RecordId, Record<'_>, &mut WriteUnit<'a>) -> Option<bool>,
) -> Option<Single> {
    let mut unit = WriteUnit::of_one();
    let reader = scope.enter();
    let changed = match find(collection, &*reader, key) {
        Some(Some((_, found))) if found.doc.as_bytes().len() > DOCUMENT_BYTES_MAX => None,
        Some(Some((record, found))) => compute(record, found, &mut unit).map(Some),
        Some(None) => Some(None),
        None => None,
    };
    // Before the commit, which may have to wait for room that readers hold back.
    drop(reader);
    match changed? {
        None => Some(Single::default()),
        Some(false) => Some(Single { matched: true, ..Single::default() }),
        Some(true) => {
            unit.numbered = statement;
            let ticket = scope.commit(&mut unit).ok()?;
            Some(Single { matched: true, modified: true, ticket: Some(ticket) })
        }
    }
}

/// The document of this key; `None` if that can't be told at once.
fn find<'g>(
    collection: &Collection,
    ru: &'g dyn RecoveryUnit,
    key: &[u8],
) -> Option<Option<(RecordId, Record<'g>)>> {
    let index = collection.id_index()?;
    let Ok(Access::Ready(record)) = index.data.find(ru, key) else { return None };
    index.usage.accesses.fetch_add(1, Ordering::Relaxed);
    let Some(record) = record else { return Some(None) };
    match collection.store.get(ru, record) {
        Ok(Access::Ready(Some(found))) => Some(Some((record, found))),
        _ => None,
    }
}
