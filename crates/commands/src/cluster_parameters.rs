//! Values of cluster parameters. They are documents of `config.clusterParameters`: `_id` is the parameter's name,
//! `clusterParameterTime` the time of the change, and the other fields are the value as it was given.

use crate::config_store;
use kauri_base::Result;
use kauri_bson::{Doc, DocBuf};
use kauri_catalog::Catalog;
use kauri_query::pipeline::truncated;
use kauri_storage::{CommitTicket, Operation};
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
    config_store::stored(op, catalog, COLLECTION, name).await
}

/// Stores the value of a parameter, in place of an earlier one.
pub async fn store(
    op: &mut Operation,
    catalog: &Catalog,
    name: &str,
    value: Doc<'_>,
) -> Result<CommitTicket> {
    let time = op.backend().tick();
    let document = DocBuf::build(|out| {
        out.put("_id", name);
        out.put(TIME, time);
        out.put_all(value);
    });
    config_store::store(op, catalog, COLLECTION, (name, &document)).await
}
