//! Updating documents, and inserting them where there is nothing to update.

use super::insert::check_id;
use super::retry::{Attempt, attempt};
use super::targets::{Target, Targets, Verdict};
use super::{WriteOutcome, capped, collection_for_write};
use kauri_base::{Error, ErrorCode, OperationContext, Result, Timestamp, bail};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_catalog::KeyScratch;
use kauri_matcher::{MatchDetails, MatchExpr};
use kauri_mutate::{Update, UpdateCx};
use kauri_storage::WriteUnit;
use std::borrow::Cow;

/// A parsed update statement.
pub struct UpdateStatement<'r> {
    /// Which documents.
    pub targets: Targets<'r>,
    /// What becomes of them.
    pub update: &'r Update,
    /// Whether to insert a document if there is none.
    pub upsert: bool,
    /// Leave the validator out.
    pub bypass_validation: bool,
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
}

/// Runs the statement.
pub async fn update(
    op: &mut OperationContext,
    statement: &UpdateStatement<'_>,
    outcome: &mut WriteOutcome,
) -> Result<Updated> {
    let mut done = Updated::default();
    let mut scratch = KeyScratch::default();
    let mut retried = false;
    loop {
        statement
            .targets
            .for_each(op, &mut |target| {
                let (verdict, modified) =
                    update_one(statement, &target, &mut scratch, outcome, &mut |_| Ok(()))?;
                if verdict == Verdict::Done {
                    done.matched += 1;
                    done.modified += u64::from(modified);
                }
                Ok(verdict)
            })
            .await?;
        if done.matched > 0 || !statement.upsert {
            return Ok(done);
        }
        match upsert(op, statement, &mut scratch, outcome).await {
            Ok(doc) => {
                done.upserted = Some(doc.as_doc().value("_id").into_owned());
                return Ok(done);
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

/// Updates one document; `see` is given the new document (or the old one if nothing changed)
/// before the commit. Says whether the document differs.
pub(super) fn update_one(
    statement: &UpdateStatement<'_>,
    target: &Target<'_>,
    scratch: &mut KeyScratch,
    outcome: &mut WriteOutcome,
    see: &mut (dyn FnMut(Doc<'_>) -> Result<()> + Send),
) -> Result<(Verdict, bool)> {
    let env = statement.targets.env;
    let mut cx = UpdateCx::new(env.now_ms, timestamp(env.now_ms));
    cx.eval = env.eval_cx();
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
        see(target.doc)?;
        return Ok((Verdict::Done, false));
    }
    let new_doc = Doc::from_bytes(&new)?;
    if !statement.bypass_validation {
        target.collection.check_valid(new_doc, Some(target.doc))?;
    }
    let mut unit = WriteUnit::new();
    target.collection.update(
        &mut unit,
        target.record,
        target.version,
        target.doc,
        Cow::Borrowed(&new),
        scratch,
    )?;
    let result = statement.targets.catalog.committer().commit(&mut unit);
    match attempt(result, target.collection)? {
        Attempt::Committed(ticket) => {
            outcome.committed(ticket);
            see(new_doc)?;
            Ok((Verdict::Done, true))
        }
        Attempt::Again => Ok((Verdict::Conflict, false)),
    }
}

/// Inserts the document that the filter and the update describe; returns it.
pub(super) async fn upsert(
    op: &mut OperationContext,
    statement: &UpdateStatement<'_>,
    scratch: &mut KeyScratch,
    outcome: &mut WriteOutcome,
) -> Result<DocBuf> {
    let doc = new_document(statement)?;
    let targets = &statement.targets;
    loop {
        let collection = collection_for_write(targets.catalog, targets.ns)?;
        if !statement.bypass_validation {
            collection.check_valid(doc.as_doc(), None)?;
        }
        let mut unit = WriteUnit::new();
        collection.insert(&mut unit, Cow::Borrowed(doc.as_bytes()), scratch)?;
        if collection.options.capped.is_some() {
            capped::make_room(op, targets.catalog, &collection, &mut unit, scratch).await?;
        }
        let result = targets.catalog.committer().commit(&mut unit);
        drop(unit);
        match attempt(result, &collection)? {
            Attempt::Committed(ticket) => {
                outcome.committed(ticket);
                return Ok(doc);
            }
            Attempt::Again => op.yield_now().await?,
        }
    }
}

/// The document that filter and update describe, with an `_id`.
fn new_document(statement: &UpdateStatement<'_>) -> Result<DocBuf> {
    let targets = &statement.targets;
    let env = targets.env;
    let mut cx = UpdateCx::new(env.now_ms, timestamp(env.now_ms));
    cx.eval = env.eval_cx();
    cx.is_insert = true;
    let everything = MatchExpr::And(Vec::new());
    let filter = targets.query.filter.as_ref().map_or(&everything, |f| f.expr());
    let seconds = (env.now_ms / 1000) as u32;
    let object_id = kauri_bson::new_object_id(seconds, targets.catalog.random().as_ref());
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
pub(super) fn is_on_filtered_fields(error: &Error, statement: &UpdateStatement<'_>) -> bool {
    let Some(filter) = &statement.targets.query.filter else { return false };
    let Some(pattern) = error.extra().and_then(|e| Doc::from_bytes(e).ok()) else { return false };
    let Value::Document(pattern) = pattern.value("keyPattern") else { return false };
    let named = filter.expr().equalities();
    pattern.iter().all(|field| named.iter().any(|(path, _)| path.as_str() == field.key()))
}

fn timestamp(now_ms: i64) -> Timestamp {
    Timestamp { seconds: (now_ms / 1000) as u32, increment: 1 }
}
