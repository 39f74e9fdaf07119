//! Shared code of the commands that change definitions.

use crate::args::Args;
use crate::invocation::Invocation;
use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Elem, Value, doc};
use kauri_catalog::{Catalog, Collection, Namespace, Resolved};
use std::sync::Arc;

/// `collectionUUID`.
pub fn uuid(args: &Args<'_>, elem: Elem<'_>) -> Result<[u8; 16]> {
    if let Value::Binary { subtype: 4, bytes } = elem.value() {
        return <[u8; 16]>::try_from(&*bytes).map_err(|_| {
            Error::new(ErrorCode::InvalidUUID, "uuid must be a 16-byte binary field")
        });
    }
    Err(args.wrong_type(elem, &["binData"]))
}

/// Fails with `CollectionUUIDMismatch` unless the name stands for the collection of this UUID.
pub fn check_uuid(
    catalog: &Catalog,
    ns: &Namespace,
    resolved: &Resolved,
    uuid: Option<&[u8; 16]>,
) -> Result<()> {
    let Some(uuid) = uuid else { return Ok(()) };
    if let Resolved::Collection(collection) = resolved
        && collection.uuid == *uuid
    {
        return Ok(());
    }
    let actual = catalog.collection_by_uuid(ns.database(), uuid);
    let extra = doc! {
        "db" => ns.database(),
        "collectionUUID" => Value::Binary { subtype: 4, bytes: uuid.as_slice().into() },
        "expectedCollection" => ns.collection(),
        "actualCollection" =>
            actual.as_ref().map_or(Value::Null, |c| Value::from(c.ns.collection())),
    };
    Err(Error::new(
        ErrorCode::CollectionUUIDMismatch,
        "Collection UUID does not match that specified",
    )
    .with_extra(extra.into_vec()))
}

/// The collection of this name; a view is refused.
pub fn collection(invocation: &Invocation<'_>, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
    match invocation.server.catalog.resolve(ns.as_str()) {
        Resolved::Collection(collection) => Ok(Some(collection)),
        Resolved::Nothing => Ok(None),
        Resolved::View(_) => {
            bail!(CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection")
        }
    }
}

/// As [`collection`], which must be there.
pub fn existing(invocation: &Invocation<'_>, ns: &Namespace) -> Result<Arc<Collection>> {
    collection(invocation, ns)?
        .ok_or_else(|| Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {ns}")))
}

/// Runs a change of a definition until it was made from the current one.
pub async fn retry<T>(
    invocation: &mut Invocation<'_>,
    mut change: impl FnMut(&mut Invocation<'_>) -> Result<T>,
) -> Result<T> {
    loop {
        match change(invocation) {
            Err(error) if error.code() == ErrorCode::WriteConflict => {
                invocation.op.yield_now().await?;
            }
            other => return other,
        }
    }
}

/// A log line about a namespace.
pub fn log(message: &str, ns: &Namespace) {
    log::info("COMMAND", 51600, "-", message, Attr::new().str("namespace", ns.as_str()));
}
