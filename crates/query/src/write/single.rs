//! Writes of one document, found by its `_id` if it is to be changed: without a plan, an operation
//! context or a second look.
//!
//! Each function answers `None` where there is more to it (a reader that would have to wait, a
//! conflict, an error, a capped collection, a validator): then nothing has happened, and the statement
//! is to be run the ordinary way, which also finds the words for an error.

use super::insert::prepare_document;
use kauri_base::{Access, RecordId};
use kauri_bson::Doc;
use kauri_catalog::{Catalog, Collection, KeyScratch};
use kauri_mutate::{Update, UpdateCx};
use kauri_storage::{CommitTicket, Record, RecoveryUnit, WriteUnit};
use std::borrow::Cow;
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
    collection.options.capped.is_none() && collection.options.validator_expr.is_none()
}

/// Inserts a document.
pub fn insert(
    catalog: &Catalog,
    collection: &Collection,
    doc: Doc<'_>,
    scratch: &mut KeyScratch,
) -> Option<CommitTicket> {
    if !is_simple(collection) {
        return None;
    }
    let mut unit = WriteUnit::new();
    collection.insert(&mut unit, prepare_document(catalog, doc).ok()?, scratch).ok()?;
    catalog.committer().commit(&mut unit).ok()
}

/// Updates the document whose `_id` has this key.
pub fn update(
    catalog: &Catalog,
    collection: &Collection,
    ru: &mut dyn RecoveryUnit,
    key: &[u8],
    update: &Update,
    scratch: &mut KeyScratch,
) -> Option<Single> {
    if !is_simple(collection) || update.needs_matched_position() {
        return None;
    }
    let tick = || catalog.tick();
    let cx = UpdateCx::new(catalog.clock().unix_ms(), &tick);
    change(catalog, collection, ru, key, |record, found, unit| {
        let mut new = Vec::with_capacity(found.doc.as_bytes().len() + 64);
        if !update.apply(found.doc, &cx, &mut new).ok()?.modified {
            return Some(false);
        }
        let new = Cow::Owned(new);
        collection.update(unit, record, found.version, found.doc, new, scratch).ok()?;
        Some(true)
    })
}

/// Deletes the document whose `_id` has this key.
pub fn delete(
    catalog: &Catalog,
    collection: &Collection,
    ru: &mut dyn RecoveryUnit,
    key: &[u8],
    scratch: &mut KeyScratch,
) -> Option<Single> {
    if !is_simple(collection) {
        return None;
    }
    change(catalog, collection, ru, key, |record, found, unit| {
        collection.delete(unit, record, found.version, found.doc, scratch).ok()?;
        Some(true)
    })
}

/// Has `compute` add the change of a document to a unit, and commits it. `compute` answers whether
/// there is one.
fn change(
    catalog: &Catalog,
    collection: &Collection,
    ru: &mut dyn RecoveryUnit,
    key: &[u8],
    compute: impl FnOnce(RecordId, Record<'_>, &mut WriteUnit<'static>) -> Option<bool>,
) -> Option<Single> {
    let mut unit = WriteUnit::new();
    ru.enter();
    let changed = match find(collection, ru, key) {
        Some(Some((record, found))) => compute(record, found, &mut unit).map(Some),
        Some(None) => Some(None),
        None => None,
    };
    // Before the commit, which may have to wait for room that readers hold back.
    ru.leave();
    match changed? {
        None => Some(Single::default()),
        Some(false) => Some(Single { matched: true, ..Single::default() }),
        Some(true) => {
            let ticket = catalog.committer().commit(&mut unit).ok()?;
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
