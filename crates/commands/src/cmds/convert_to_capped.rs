//! `convertToCapped`: replaces a collection by a capped one with the same documents. Indexes except the one on
//! `_id` are lost, as in MongoDB.

use super::{copy, ddl};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{ErrorCode, Result, bail};
use kauri_bson::Elem;
use kauri_catalog::{Capped, CollectionOptions, Namespace, Rename, Resolved};

/// `convertToCapped`.
pub const CONVERT: Command = Command {
    ..Command::define("convertToCapped", "converts a collection to a capped collection", convert)
};

/// `cloneCollectionAsCapped`.
pub const CLONE: Command = Command {
    ..Command::define("cloneCollectionAsCapped", "copies a collection into a capped one", clone)
};

/// Largest `size`: a petabyte.
const CAPPED_BYTES_MAX: i64 = 1 << 50;

fn convert<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let size = size(invocation.body.get("size"))?;
        check(&ns)?;
        let source = ddl::collection(invocation, &ns)?;
        let Some(source) = source else {
            bail!(NamespaceNotFound, "source collection {ns} does not exist");
        };
        let catalog = invocation.server.catalog.clone();
        let what = format!("convertToCapped.{}", ns.collection());
        let name = copy::temporary_name(invocation, ns.database(), &what)?;
        let frozen = copy::Frozen::new(invocation.op.scope(), &catalog, &source)?;
        let options = CollectionOptions { temp: true, ..capped(&source.options, size) };
        let (made, _) = catalog.create_collection(invocation.op.scope(), &name, options, None)?;
        let temporary = copy::Temporary::new(invocation.op.backend(), &catalog, &made);
        copy::documents(invocation, &frozen.collection, &temporary).await?;
        let rename = Rename {
            drop_target: true,
            source: Some(temporary.id),
            replaces: Some(source.id),
            ..Rename::new(&temporary.ns, &ns)
        };
        let ticket = catalog.rename_collection(invocation.op.scope(), &rename)?;
        temporary.keep();
        ddl::log("Converted a collection to a capped one", &ns);
        invocation.wait_for_commit(Some(ticket)).await
    })
}

fn clone<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("cloneCollectionAsCapped");
        args.namespace(invocation.target()?)?;
        let from = invocation.namespace()?;
        let to = match invocation.body.get("toCollection") {
            Some(elem) => args.namespace(elem)?,
            None => bail!(TypeMismatch, "expected a string for the field 'toCollection'"),
        };
        if from.collection().contains('$') {
            bail!(InvalidNamespace, "Invalid source namespace: {from}");
        }
        let to = Namespace::new(invocation.db, &to)?;
        let size = size(invocation.body.get("size"))?;
        let Some(source) = ddl::collection(invocation, &from)? else {
            bail!(NamespaceNotFound, "source collection {from} does not exist");
        };
        to.check_creatable()?;
        let catalog = invocation.server.catalog.clone();
        match catalog.resolve(to.as_str()) {
            Resolved::Nothing => {}
            Resolved::View(_) => {
                bail!(
                    CommandNotSupportedOnView,
                    "cloneCollectionAsCapped not supported for views: {to}"
                )
            }
            Resolved::Collection(_) => bail!(
                NamespaceExists,
                "cloneCollectionAsCapped failed - destination collection {to} already exists. \
                 source collection: {from}"
            ),
        }
        let options = capped(&source.options, size);
        let (made, created) =
            catalog.create_collection(invocation.op.scope(), &to, options, None)?;
        let temporary = copy::Temporary::new(invocation.op.backend(), &catalog, &made);
        let copied = copy::documents(invocation, &source, &temporary).await?;
        temporary.keep();
        invocation.wait_for_commit(copied.or(Some(created))).await
    })
}

fn check(ns: &Namespace) -> Result<()> {
    if ns.collection() == "system.views" {
        bail!(BadValue, "cannot convert {ns} to a capped collection");
    }
    if ns.is_system() {
        bail!(IllegalOperation, "cannot convert the system collection {ns}");
    }
    Ok(())
}

fn capped(source: &CollectionOptions, bytes_max: u64) -> CollectionOptions {
    CollectionOptions { capped: Some(Capped { bytes_max, records_max: 0 }), ..source.clone() }
}

/// `size`: no type but a number will do, and not a small one.
fn size(elem: Option<Elem<'_>>) -> Result<u64> {
    let size = match elem {
        Some(elem) if elem.ty().is_number() => Args::new("").long(elem)?,
        _ => 0,
    };
    if size < 1 {
        return Err(kauri_base::Error::new(
            ErrorCode::InvalidOptions,
            "Capped collection size must be greater than zero",
        ));
    }
    if size > CAPPED_BYTES_MAX {
        bail!(BadValue, "Capped collection size must be at most {CAPPED_BYTES_MAX}, was {size}");
    }
    Ok(size as u64)
}
