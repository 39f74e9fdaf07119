//! Document entries: insert, change or delete a document, found by its `_id`.

use super::entry::{self, Entry, Operation};
use super::{Applied, Failure, Whole};
use crate::cmds::find::update_matcher;
use crate::invocation::Invocation;
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, DocBuf, Elem};
use kauri_catalog::Collection;
use kauri_catalog::dropped::uuid_text;
use kauri_mutate::{Update, UpdateKind};
use kauri_query::plan::Query;
use kauri_query::write::delete::delete;
use kauri_query::write::insert::{InsertOptions, insert};
use kauri_query::write::targets::Targets;
use kauri_query::write::update::{Shown, UpdateStatement, Updated, update};
use kauri_query::write::{Bypass, existing_for_write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Applies an entry.
pub async fn apply(
    invocation: &mut Invocation<'_>,
    entry: &Entry<'_>,
    whole: &mut Whole,
) -> Applied {
    let ns = entry::namespace(invocation.server, entry.whole)?;
    let collection = existing_for_write(&invocation.server.catalog, &ns);
    if let Some(uuid) = &entry.uuid
        && !matches!(&collection, Ok(Some(collection)) if collection.uuid == *uuid)
    {
        let message = format!(
            "Namespace '{ns}' and UUID '{}' point to different collections",
            uuid_text(uuid)
        );
        return Err(Failure::Goes(Error::location(3318200, message)));
    }
    let Some(collection) = collection? else {
        if entry.operation == Operation::Delete {
            return Ok(());
        }
        let message = format!(
            "cannot apply insert or update operation on a non-existent namespace {ns}: {}",
            entry.text()
        );
        return Err(Error::new(ErrorCode::NamespaceNotFound, message).into());
    };
    let counters = &invocation.server.counters;
    match entry.operation {
        Operation::Update => {
            counters.update.fetch_add(1, Ordering::Relaxed);
            apply_update(invocation, entry, &collection, whole).await
        }
        Operation::Delete => {
            counters.delete.fetch_add(1, Ordering::Relaxed);
            apply_delete(invocation, entry, &collection, whole).await
        }
        _ => {
            counters.insert.fetch_add(1, Ordering::Relaxed);
            apply_insert(invocation, entry, &collection, whole).await
        }
    }
}

fn bypass(whole: &Whole) -> Bypass {
    Bypass { validation: whole.bypasses_validation, empty_timestamps: true }
}

/// Inserts the document, or replaces the one that has its `_id`.
async fn apply_insert(
    invocation: &mut Invocation<'_>,
    entry: &Entry<'_>,
    collection: &Arc<Collection>,
    whole: &mut Whole,
) -> Applied {
    let id = id_of(entry.object, "insert", entry)?;
    let into = Some(collection.id);
    let options = InsertOptions { into, ..InsertOptions::ordered(bypass(whole)) };
    let catalog = invocation.server.catalog.clone();
    let docs = [entry.object];
    let (op, outcome) = (&mut invocation.op, &mut whole.outcome);
    insert(op, &catalog, &collection.ns, &docs, &options, outcome).await?;
    match outcome.errors.pop() {
        None => Ok(()),
        Some((_, error)) if error.code() == ErrorCode::DuplicateKey => {
            let stored = Update::stored(entry.object);
            run_update(invocation, collection, id, &stored, true, whole).await?;
            Ok(())
        }
        Some((_, error)) => match invocation.op.check_for_interrupt() {
            Ok(()) => Err(Failure::Goes(error)),
            Err(_) => Err(error.into()),
        },
    }
}

async fn apply_update(
    invocation: &mut Invocation<'_>,
    entry: &Entry<'_>,
    collection: &Collection,
    whole: &mut Whole,
) -> Applied {
    let id = id_of(entry.target, "update", entry)?;
    let change = Update::parse_oplog(entry.object)?;
    let updated = run_update(invocation, collection, id, &change, entry.upsert, whole).await?;
    if updated.matched > 0 || updated.upserted.is_some() {
        return Ok(());
    }
    let what = match change.kind() {
        UpdateKind::Delta => "Failed to apply update",
        _ => "Update of non-mod failed",
    };
    let message = format!("{what}: {}", entry.text());
    Err(Failure::Goes(Error::new(ErrorCode::UpdateOperationFailed, message)))
}

async fn apply_delete(
    invocation: &mut Invocation<'_>,
    entry: &Entry<'_>,
    collection: &Collection,
    whole: &mut Whole,
) -> Applied {
    let id = id_of(entry.object, "delete", entry)?;
    let env = invocation.query_env();
    let filter = update_matcher(by_id(id).as_doc(), false, &env)?;
    let query = Query { filter, ..Query::default() };
    let catalog = invocation.server.catalog.clone();
    let (ns, env, only) = (&collection.ns, &env, Some(collection.id));
    let targets = Targets { catalog: &catalog, ns, query: &query, env, multi: false, only };
    delete(&mut invocation.op, &targets, &mut whole.outcome).await?;
    Ok(())
}

async fn run_update(
    invocation: &mut Invocation<'_>,
    collection: &Collection,
    id: Elem<'_>,
    change: &Update,
    upsert: bool,
    whole: &mut Whole,
) -> Result<Updated> {
    let env = invocation.query_env();
    let filter = update_matcher(by_id(id).as_doc(), upsert, &env)?;
    let query = Query { filter, ..Query::default() };
    let catalog = invocation.server.catalog.clone();
    let (ns, only) = (&collection.ns, Some(collection.id));
    let targets = Targets { catalog: &catalog, ns, query: &query, env: &env, multi: false, only };
    let statement = UpdateStatement { targets, update: change, upsert, bypass: bypass(whole) };
    update(&mut invocation.op, &statement, Shown::None, &mut whole.outcome).await
}

/// The filter that finds the document of this `_id`, whatever it looks like.
fn by_id(id: Elem<'_>) -> DocBuf {
    DocBuf::build(|out| out.document("_id").put_elem_as("$eq", id))
}

fn id_of<'d>(doc: Doc<'d>, what: &str, entry: &Entry<'_>) -> Result<Elem<'d>> {
    doc.get("_id").ok_or_else(|| {
        let text = entry.text();
        let message = format!("Failed to apply {what} due to missing _id: {text}");
        Error::new(ErrorCode::NoSuchKey, message)
    })
}
