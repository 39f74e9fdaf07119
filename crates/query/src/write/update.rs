//! Updates documents, and inserts for upserts.

use super::insert::check_id;
use super::retry::{Attempt, Retry, attempt};
use super::targets::{Effect, Reached, Target, Targets};
use super::{Bypass, WriteOutcome, capped, create_for_write, existing_for_write};
use kauri_base::{CollectionId, Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_catalog::dropped::is_dropped;
use kauri_catalog::{Collection, KeyScratch};
use kauri_matcher::{MatchDetails, MatchExpr};
use kauri_mutate::{Update, UpdateCx};
use kauri_storage::{Backend, Operation, WriteUnit};
use std::borrow::Cow;
use std::sync::Arc;

/// A parsed update statement.
pub struct UpdateStatement<'r> {
    /// Which documents.
    pub targets: Targets<'r>,
    /// What becomes of them.
    pub update: &'r Update,
    /// Whether to insert a document if there is none.
    pub upsert: bool,
    /// What is left out.
    pub bypass: Bypass,
}

/// What an update statement did.
#[derive(Default, Debug)]
pub struct Updated {
    /// Documents that matched.
    pub matched: u64,
    /// Documents that differ now.
    pub modified: u64,
    /// The `_id` of the document that was inserted.
    pub upserted: Option<Value<'static>>,
    /// The document that a find-and-modify shows.
    pub shown: Option<DocBuf>,
}

/// Which document a find-and-modify shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// None.
    None,
    /// As it was before.
    Old,
    /// As it is afterwards.
    New,
}

/// Runs the statement.
pub async fn update(
    op: &mut Operation,
    statement: &UpdateStatement<'_>,
    shown: Shown,
    outcome: &mut WriteOutcome,
) -> Result<Updated> {
    let mut scratch = KeyScratch::default();
    let mut retried = false;
    let backend = op.backend().clone();
    loop {
        let mut reached = Reached::default();
        statement
            .targets
            .change(
                op,
                &mut |target, unit| change(&backend, statement, &target, unit, shown, &mut scratch),
                &mut reached,
                outcome,
            )
            .await?;
        if reached.matched > 0 || !statement.upsert {
            return Ok(Updated {
                matched: reached.matched,
                modified: reached.changed,
                upserted: None,
                shown: reached.shown,
            });
        }
        match upsert(op, statement, reached.searched, shown, &mut scratch, outcome).await {
            Ok(Err(retry)) => retry.wait(op).await?,
            Ok(Ok(doc)) => {
                return Ok(Updated {
                    upserted: Some(doc.as_doc().value("_id").into_owned()),
                    shown: (shown == Shown::New).then_some(doc),
                    ..Updated::default()
                });
            }
            // Somebody else inserted the document that this one is to be: now there is one to update.
            Err(error)
                if error.code() == ErrorCode::DuplicateKey
                    && !retried
                    && is_on_filtered_fields(&error, statement) =>
            {
                retried = true;
                op.yield_now().await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Adds what becomes of one document to the unit.
fn change(
    backend: &Backend,
    statement: &UpdateStatement<'_>,
    target: &Target<'_>,
    unit: &mut WriteUnit<'static>,
    shown: Shown,
    scratch: &mut KeyScratch,
) -> Result<Effect> {
    let env = statement.targets.env;
    let tick = || backend.tick();
    let mut cx = UpdateCx::new(env.now_ms, &tick);
    cx.eval = env.eval_cx();
    cx.keeps_empty_timestamps = statement.bypass.empty_timestamps;
    if statement.update.needs_matched_position()
        && let Some(filter) = &statement.targets.query.filter
    {
        let mut details = MatchDetails::new();
        filter.matches_with_details(target.doc, &crate::match_cx(env), &mut details)?;
        cx.matched_position = details.elem_match_key();
    }
    let mut new = Vec::with_capacity(target.doc.as_bytes().len() + 64);
    let applied = statement.update.apply(target.doc, &cx, &mut new)?;
    if !applied.modified {
        let shown = (shown != Shown::None).then(|| target.doc.to_buf());
        return Ok(Effect { changed: false, bytes: 0, shown });
    }
    let new_doc = Doc::from_bytes(&new)?;
    if !statement.bypass.validation {
        target.collection.check_valid(new_doc, Some(target.doc), env.now_ms)?;
    }
    let effect = Effect {
        changed: true,
        bytes: new.len(),
        shown: match shown {
            Shown::None => None,
            Shown::Old => Some(target.doc.to_buf()),
            Shown::New => Some(new_doc.to_buf()),
        },
    };
    let (record, version) = (target.record, target.version);
    target.collection.update(unit, record, version, target.doc, Cow::Owned(new), scratch)?;
    Ok(effect)
}

/// Inserts the document that the filter and the update describe; returns it. A retry if the collection is
/// no longer the one that was searched, in the same definition: the other one may have a document that
/// matches, and an index that was dropped no longer refuses a second one. Then the search begins anew.
async fn upsert(
    op: &mut Operation,
    statement: &UpdateStatement<'_>,
    searched: Option<(CollectionId, u64)>,
    shown: Shown,
    scratch: &mut KeyScratch,
    outcome: &mut WriteOutcome,
) -> Result<std::result::Result<DocBuf, Retry>> {
    outcome.is_running = true;
    let doc = new_document(op.backend(), statement)?;
    let targets = &statement.targets;
    outcome.is_running = false;
    let collection = match searched {
        Some(_) => existing_for_write(targets.catalog, targets.ns)?,
        None if targets.only.is_some() => {
            bail!(QueryPlanKilled, "collection dropped: '{}'", targets.ns)
        }
        None => create_for_write(op, targets.catalog, targets.ns).await?,
    };
    outcome.is_running = true;
    let is_searched = |c: &Arc<Collection>| searched.is_none_or(|s| s == (c.id, c.definition));
    let Some(collection) = collection.filter(is_searched) else {
        return Ok(Err(Retry::default()));
    };
    if !statement.bypass.validation {
        collection.check_valid(doc.as_doc(), None, targets.env.now_ms)?;
    }
    let mut unit = WriteUnit::new();
    collection.insert(&mut unit, Cow::Borrowed(doc.as_bytes()), scratch)?;
    if collection.options.capped.is_some() {
        let made = capped::make_room(op, &collection, &mut unit, scratch).await;
        match made {
            Err(error) if is_dropped(&error) => return Ok(Err(Retry::default())),
            made => made?,
        }
    }
    if let Some(numbered) = &outcome.numbered {
        let shown = (shown == Shown::New).then_some(doc.as_doc());
        unit.numbered = Some(numbered.one(Some(&doc.as_doc().value("_id")), shown));
    }
    let attempted = attempt(op, &mut unit, &collection)?;
    drop(unit);
    match attempted {
        Attempt::Committed(ticket) => {
            outcome.committed(ticket, doc.as_bytes().len());
            Ok(Ok(doc))
        }
        Attempt::Again(retry) => Ok(Err(retry)),
    }
}

/// The document that filter and update describe, with an `_id`.
fn new_document(backend: &Backend, statement: &UpdateStatement<'_>) -> Result<DocBuf> {
    let targets = &statement.targets;
    let env = targets.env;
    let tick = || backend.tick();
    let mut cx = UpdateCx::new(env.now_ms, &tick);
    cx.eval = env.eval_cx();
    cx.is_insert = true;
    cx.keeps_empty_timestamps = statement.bypass.empty_timestamps;
    let everything = MatchExpr::And(Vec::new());
    let filter = targets.query.filter.as_ref().map_or(&everything, |f| f.expr());
    let object_id = backend.new_object_id();
    let mut bytes = Vec::new();
    statement.update.new_document(filter, object_id, &cx, &mut bytes)?;
    let doc = DocBuf::from_vec(bytes)?;
    let Some(id) = doc.as_doc().get("_id") else {
        bail!(InternalError, "an upsert made a document without _id");
    };
    check_id(id)?;
    Ok(doc)
}

/// Whether the duplicate is in an index on fields that the filter names: then the document that is
/// in the way may match.
fn is_on_filtered_fields(error: &Error, statement: &UpdateStatement<'_>) -> bool {
    let Some(filter) = &statement.targets.query.filter else { return false };
    let Some(pattern) = error.extra().and_then(|e| Doc::from_bytes(e).ok()) else { return false };
    let Value::Document(pattern) = pattern.value("keyPattern") else { return false };
    let named = filter.expr().equalities();
    pattern.iter().all(|field| named.iter().any(|(path, _)| path.as_str() == field.key()))
}
