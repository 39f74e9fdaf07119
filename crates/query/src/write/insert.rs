//! Inserts documents.

use super::retry::{Attempt, Retry, sort_out};
use super::{Bypass, WriteOutcome, collection_for_write, ends_command};
use crate::namespaces::{Named, Namespaces};
use crate::write::capped;
use kauri_base::{CollectionId, Error, ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, DocWriter, Elem, Type, Value};
use kauri_catalog::dropped::is_dropped;
use kauri_catalog::{Collection, KeyScratch, Namespace};
use kauri_storage::{Backend, Operation, StorageError, WriteUnit};
use std::borrow::Cow;
use std::sync::Arc;

/// Documents and bytes that go into one unit at most.
const UNIT_DOCS_MAX: usize = 1000;
const UNIT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The options of inserts.
pub struct InsertOptions {
    /// Stop at the first error.
    pub ordered: bool,
    /// The checks to skip.
    pub bypass: Bypass,
    /// The collection has to be this one, which the caller has made: if it is gone, or the name means
    /// another one, that is an error, and none is created.
    pub into: Option<CollectionId>,
}

impl InsertOptions {
    /// Ordered inserts into whatever the name means.
    pub fn ordered(bypass: Bypass) -> InsertOptions {
        InsertOptions { ordered: true, bypass, into: None }
    }
}

/// Inserts `docs`; `outcome` counts the inserted ones (the others have errors or were not tried).
pub async fn insert(
    op: &mut Operation,
    namespaces: &dyn Namespaces,
    ns: &Namespace,
    docs: &[Doc<'_>],
    options: &InsertOptions,
    outcome: &mut WriteOutcome,
) -> Result<u64> {
    let mut inserted = 0;
    let mut next = 0;
    let mut most = UNIT_DOCS_MAX;
    let mut scratch = KeyScratch::default();
    while next < docs.len() {
        let collection = match destination(op, namespaces, ns, options).await {
            Ok(collection) => collection,
            Err(error) if ends_command(op, &error) => return Err(error),
            Err(error) => {
                outcome.errors.push((next, error));
                return Ok(inserted);
            }
        };
        if collection.options.capped.is_some() {
            most = 1;
        }
        let group =
            prepare_group(op.backend(), &collection, &docs[next..], most, options, &mut scratch);
        let (mut unit, count, mut failed) = group;
        if count > 0 {
            let numbered = outcome.numbered.as_ref();
            unit.numbered = numbered.map(|numbered| numbered.inserts(next, count));
            match attempt_insert(op, &collection, &mut unit, &mut scratch).await {
                Ok(Inserted::All(ticket)) => {
                    let bytes = docs[next..next + count].iter().map(|d| d.as_bytes().len()).sum();
                    outcome.committed(ticket, bytes);
                    inserted += count as u64;
                    next += count;
                    most = (most * 2).min(UNIT_DOCS_MAX);
                }
                Ok(Inserted::Before) if count == 1 => {
                    let written = unit.numbered.iter().flat_map(|write| &write.statements);
                    outcome.retried.extend(written.map(|(statement, _)| *statement));
                    inserted += 1;
                    next += 1;
                }
                // Which one it is shows when each goes in by itself.
                Ok(Inserted::Before) => {
                    most = 1;
                    continue;
                }
                Ok(Inserted::Again(retry)) => {
                    retry.wait(op).await?;
                    continue;
                }
                Err(error) if ends_command(op, &error) => return Err(error),
                // Which one it is shows when each goes in by itself.
                Err(_) if count > 1 => {
                    most = 1;
                    continue;
                }
                // The documents before it go in by themselves first.
                Ok(Inserted::Failed(position @ 1.., _)) => {
                    most = position;
                    continue;
                }
                Err(error) | Ok(Inserted::Failed(_, error)) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            outcome.errors.push((next, error));
            next += 1;
            if options.ordered {
                return Ok(inserted);
            }
        }
        if next < docs.len() {
            outcome.pause(op).await?;
        }
    }
    Ok(inserted)
}

/// The collection to insert into.
async fn destination(
    op: &mut Operation,
    namespaces: &dyn Namespaces,
    ns: &Namespace,
    options: &InsertOptions,
) -> Result<Arc<Collection>> {
    let Some(id) = options.into else { return collection_for_write(op, namespaces, ns).await };
    // The server's own copy, which may be of what only the server writes.
    match namespaces.resolve(ns.as_str()) {
        Named::Collection(collection) if collection.id == id => Ok(collection),
        _ => bail!(QueryPlanKilled, "collection dropped: '{ns}'"),
    }
}

enum Inserted {
    All(kauri_storage::CommitTicket),
    Again(Retry),
    /// A statement of the unit was executed before.
    Before,
    /// The operation at this position of the unit cannot be.
    Failed(usize, Error),
}

async fn attempt_insert(
    op: &mut Operation,
    collection: &Collection,
    unit: &mut WriteUnit<'_>,
    scratch: &mut KeyScratch,
) -> Result<Inserted> {
    if collection.options.capped.is_some() {
        match capped::make_room(op, collection, unit, scratch).await {
            Err(error) if is_dropped(&error) => return Ok(Inserted::Again(Retry::default())),
            made => made?,
        }
    }
    match op.scope().commit(unit) {
        Err(StorageError::Executed) => Ok(Inserted::Before),
        Err(error @ StorageError::DuplicateKey { .. }) => {
            let position = match &error {
                StorageError::DuplicateKey { op, .. } => *op,
                _ => 0,
            };
            Ok(Inserted::Failed(position, collection.explain_commit_error(error)))
        }
        other => Ok(match sort_out(op, unit, collection, other)? {
            Attempt::Committed(ticket) => Inserted::All(ticket),
            Attempt::Again(retry) => Inserted::Again(retry),
        }),
    }
}

/// A unit of the first documents, how many they are, and the error of the one behind them if it
/// cannot be inserted at all.
fn prepare_group<'d>(
    backend: &Backend,
    collection: &Arc<Collection>,
    docs: &[Doc<'d>],
    most: usize,
    options: &InsertOptions,
    scratch: &mut KeyScratch,
) -> (WriteUnit<'d>, usize, Option<Error>) {
    let mut unit = WriteUnit::new();
    let mut bytes = 0;
    for (position, doc) in docs.iter().take(most.max(1)).enumerate() {
        let size = doc.as_bytes().len();
        if position > 0 && bytes + unit.all_key_bytes() + size > UNIT_BYTES_MAX {
            return (unit, position, None);
        }
        bytes += size;
        let stamped = !options.bypass.empty_timestamps;
        let added = prepare_document(backend, *doc, stamped).and_then(|prepared| {
            if !options.bypass.validation {
                collection.check_valid(Doc::from_bytes(&prepared)?, None, backend.now_ms())?;
            }
            collection.insert(&mut unit, prepared, scratch)
        });
        if let Err(error) = added {
            unit.truncate(position);
            return (unit, position, Some(error));
        }
    }
    let count = unit.ops.len();
    (unit, count, None)
}

/// The document in its stored form: validated, with `_id` first (generated if missing). `stamped` fills empty
/// timestamps at the top level.
pub fn prepare_document<'d>(
    backend: &Backend,
    doc: Doc<'d>,
    stamped: bool,
) -> Result<Cow<'d, [u8]>> {
    let size = doc.as_bytes().len();
    if size > limits::DOCUMENT_BYTES_MAX {
        bail!(
            BSONObjectTooLarge,
            "object to insert too large. size in bytes: {size}, max size: {}",
            limits::DOCUMENT_BYTES_MAX
        );
    }
    let mut id: Option<Elem<'_>> = None;
    let mut in_front = false;
    let mut fill_timestamps = false;
    for (position, elem) in doc.iter().enumerate() {
        if elem.key_bytes() == b"_id" && id.is_none() {
            check_id(elem)?;
            id = Some(elem);
            in_front = position == 0;
        } else if elem.ty() == Type::Timestamp && elem.value_bytes() == [0; 8] {
            fill_timestamps = stamped;
        }
    }
    if in_front && !fill_timestamps {
        return Ok(Cow::Borrowed(doc.as_bytes()));
    }
    let mut out = Vec::with_capacity(size + 24);
    {
        let mut writer = DocWriter::new(&mut out);
        match id {
            Some(id) => writer.put_elem(id),
            None => writer.put("_id", Value::ObjectId(backend.new_object_id())),
        }
        for elem in doc {
            if elem.key_bytes() == b"_id" {
                continue;
            }
            if stamped && elem.ty() == Type::Timestamp && elem.value_bytes() == [0; 8] {
                writer.put(elem.key(), backend.tick());
            } else {
                writer.put_elem(elem);
            }
        }
    }
    if out.len() > limits::DOCUMENT_BYTES_MAX {
        bail!(
            BSONObjectTooLarge,
            "object to insert too large. size in bytes: {}, max size: {}",
            out.len(),
            limits::DOCUMENT_BYTES_MAX
        );
    }
    Ok(Cow::Owned(out))
}

/// Fails if the value cannot be an `_id`.
pub fn check_id(elem: Elem<'_>) -> Result<()> {
    match elem.ty() {
        Type::Array | Type::Regex | Type::Undefined => {
            bail!(InvalidIdField, "The '_id' value cannot be of type {}", elem.ty().alias());
        }
        Type::Document => {
            let first = elem.as_doc().and_then(Doc::first);
            if let Some(first) = first
                .filter(|f| f.key().starts_with('$') && !matches!(f.key(), "$ref" | "$id" | "$db"))
            {
                return Err(Error::new(
                    ErrorCode::DollarPrefixedFieldName,
                    format!(
                        "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                        first.key()
                    ),
                ));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
