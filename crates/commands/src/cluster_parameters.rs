//! Values of cluster parameters. They are documents of `config.clusterParameters`: `_id` is the parameter's name,
//! `clusterParameterTime` the time of the change, and the other fields are the value as it was given.
//!
//! Nothing is cached: each reader looks the document up. So a client's own write to the collection, its drop and a
//! restart need no further care. While the collection does not exist, a look-up is one look at the catalog.

use kauri_base::{Access, ErrorCode, Result};
use kauri_bson::{Doc, DocBuf, KeyStringBuilder, Value};
use kauri_catalog::dropped::is_dropped;
use kauri_catalog::{Catalog, Collection, KeyScratch, Namespace};
use kauri_query::pipeline::truncated;
use kauri_query::write::retry::{Attempt, attempt};
use kauri_query::write::{capped, collection_for_write};
use kauri_storage::{CommitTicket, Operation, Scope, WriteUnit};
use std::borrow::Cow;
use std::time::Duration;

const COLLECTION: &str = "config.clusterParameters";
/// The parameter with the time limits of operations that have none of their own.
pub const DEFAULT_MAX_TIME: &str = "defaultMaxTimeMS";
/// Its field for operations that read, in milliseconds; 0 for no limit.
pub const READ_OPERATIONS: &str = "readOperations";
/// The field of a stored document for the time of the change.
pub const TIME: &str = "clusterParameterTime";

/// The time limit of a read that has none of its own; `None`: there is none.
pub async fn read_time_limit(op: &mut Operation, catalog: &Catalog) -> Result<Option<Duration>> {
    let Some(document) = stored(op, catalog, DEFAULT_MAX_TIME).await? else { return Ok(None) };
    // A client may have written anything there.
    let ms = truncated(&document.as_doc().value(READ_OPERATIONS)).filter(|ms| *ms > 0);
    Ok(ms.map(|ms| Duration::from_millis(ms as u64)))
}

/// The stored document of a parameter.
pub async fn stored(op: &mut Operation, catalog: &Catalog, name: &str) -> Result<Option<DocBuf>> {
    let mut key = KeyStringBuilder::new();
    while let Some(collection) = catalog.collection(COLLECTION) {
        key.clear();
        key.append(&Value::from(name), false);
        match read(op.scope(), &collection, key.bytes()) {
            Ok(Access::Ready(found)) => return Ok(found),
            Ok(Access::WouldBlock(ticket)) => op.wait(ticket).await?,
            Err(error) if is_dropped(&error) => {
                catalog.catch_up();
                op.yield_now().await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn read(scope: &mut Scope, collection: &Collection, key: &[u8]) -> Result<Access<Option<DocBuf>>> {
    let Some(index) = collection.id_index() else { return Ok(Access::Ready(None)) };
    let reader = scope.enter();
    let record = match index.find(&*reader, key)? {
        Access::Ready(Some(record)) => record,
        other => return Ok(other.map(|_| None)),
    };
    let found = collection.get(&*reader, record)?;
    Ok(found.map(|found| found.map(|record| record.doc.to_buf())))
}

/// Stores the value of a parameter, in place of an earlier one.
pub async fn store(
    op: &mut Operation,
    catalog: &Catalog,
    name: &str,
    value: Doc<'_>,
) -> Result<CommitTicket> {
    let ns = Namespace::parse(COLLECTION)?;
    let mut key = KeyStringBuilder::new();
    key.append(&Value::from(name), false);
    let time = op.backend().tick();
    let document = DocBuf::build(|out| {
        out.put("_id", name);
        out.put(TIME, time);
        out.put_all(value);
    });
    let mut scratch = KeyScratch::default();
    loop {
        let collection = collection_for_write(op, catalog, &ns).await?;
        let mut unit = WriteUnit::new();
        let replaced =
            replace(op.scope(), &collection, key.bytes(), &document, &mut unit, &mut scratch);
        match replaced {
            Ok(Access::Ready(true)) => {}
            Ok(Access::Ready(false)) => {
                let document = Cow::Owned(document.as_doc().as_bytes().to_vec());
                collection.insert(&mut unit, document, &mut scratch)?;
                capped::make_room(op, &collection, &mut unit, &mut scratch).await?;
            }
            Ok(Access::WouldBlock(ticket)) => {
                op.wait(ticket).await?;
                continue;
            }
            Err(error) if is_dropped(&error) => {
                catalog.catch_up();
                op.yield_now().await?;
                continue;
            }
            Err(error) => return Err(error),
        }
        match attempt(op, &mut unit, &collection) {
            Ok(Attempt::Committed(ticket)) => return Ok(ticket),
            Ok(Attempt::Again(retry)) => retry.wait(op).await?,
            // Another one has inserted it since.
            Err(error) if error.code() == ErrorCode::DuplicateKey => op.yield_now().await?,
            Err(error) => return Err(error),
        }
    }
}

/// Adds the replacement of the stored document to the unit; false if there is none.
fn replace(
    scope: &mut Scope,
    collection: &Collection,
    key: &[u8],
    document: &DocBuf,
    unit: &mut WriteUnit<'static>,
    scratch: &mut KeyScratch,
) -> Result<Access<bool>> {
    let Some(index) = collection.id_index() else { return Ok(Access::Ready(false)) };
    let reader = scope.enter();
    let record = match index.find(&*reader, key)? {
        Access::Ready(Some(record)) => record,
        other => return Ok(other.map(|_| false)),
    };
    let found = match collection.get(&*reader, record)? {
        Access::Ready(Some(found)) => found,
        other => return Ok(other.map(|_| false)),
    };
    let new = Cow::Owned(document.as_doc().as_bytes().to_vec());
    collection.update(unit, record, found.version, found.doc, new, scratch)?;
    Ok(Access::Ready(true))
}
