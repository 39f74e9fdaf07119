//! Single documents of the server's own collections in `config`, each found by its `_id`.
//!
//! Nothing is cached: each reader looks the document up. So a client's own write to the collection, its drop, a restart
//! and a change by another member need no further care. While the collection does not exist, a look-up is one look at
//! the catalog.

use kauri_base::{Access, ErrorCode, Result};
use kauri_bson::{DocBuf, KeyStringBuilder, Value};
use kauri_catalog::dropped::is_dropped;
use kauri_catalog::{Catalog, Collection, KeyScratch, Namespace};
use kauri_query::write::retry::{Attempt, attempt};
use kauri_query::write::{capped, collection_for_write};
use kauri_storage::{CommitTicket, Operation, Scope, WriteUnit};
use std::borrow::Cow;

/// The stored document of this `_id`.
pub async fn stored(
    op: &mut Operation,
    catalog: &Catalog,
    collection: &str,
    id: &str,
) -> Result<Option<DocBuf>> {
    let mut key = KeyStringBuilder::new();
    while let Some(collection) = catalog.collection(collection) {
        key.clear();
        key.append(&Value::from(id), false);
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

/// The same without waiting.
pub fn peek(
    scope: &mut Scope,
    catalog: &Catalog,
    collection: &str,
    id: &str,
) -> Result<Access<Option<DocBuf>>> {
    let Some(collection) = catalog.collection(collection) else { return Ok(Access::Ready(None)) };
    let mut key = KeyStringBuilder::new();
    key.append(&Value::from(id), false);
    read(scope, &collection, key.bytes())
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

/// Stores a document with this `_id`, in place of an earlier one.
pub async fn store(
    op: &mut Operation,
    catalog: &Catalog,
    collection: &str,
    (id, document): (&str, &DocBuf),
) -> Result<CommitTicket> {
    let ns = Namespace::parse(collection)?;
    let mut key = KeyStringBuilder::new();
    key.append(&Value::from(id), false);
    let mut scratch = KeyScratch::default();
    loop {
        let collection = collection_for_write(op, catalog, &ns).await?;
        let mut unit = WriteUnit::new();
        let replaced =
            replace(op.scope(), &collection, key.bytes(), document, &mut unit, &mut scratch);
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
