//! `create` entries with a UUID: afterwards the collection of that UUID has the name. A collection of that UUID
//! with another name is renamed; another collection with the name is moved aside.

use super::Whole;
use super::commands::part;
use super::entry::Entry;
use crate::cmds::{copy, create};
use crate::invocation::{Invocation, Part};
use kauri_base::{ErrorCode, Result, bail};
use kauri_bson::Value;
use kauri_catalog::dropped::uuid_text;
use kauri_catalog::{Collection, Namespace, Rename, Resolved};

/// Applies an entry.
pub async fn apply(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    entry: &Entry<'_>,
    whole: &mut Whole,
) -> Result<()> {
    let target = entry.command_target()?;
    kauri_bson::not_utf8::refuse_as_namespace(&target.value())?;
    let Value::String(name) = target.value() else {
        bail!(40073, "collection name has invalid type {}", target.ty().alias());
    };
    if name.is_empty() {
        bail!(28635, "no collection name specified");
    }
    let ns = Namespace::new(ns.database(), &name)?;
    let is_view = entry.object.get("viewOn").is_some();
    let Some(uuid) = entry.uuid.filter(|_| !is_view) else {
        return run(invocation, &ns, entry, None, whole).await;
    };
    if uuid[6] & 0xF0 != 0x40 || uuid[8] & 0xC0 != 0x80 {
        bail!(InvalidUUID, "Invalid UUID in applyOps create command: {}", uuid_text(&uuid));
    }
    loop {
        let named = is_named(invocation, &ns, &uuid, whole).await;
        let made = match named {
            Ok(true) => return Ok(()),
            Ok(false) => run(invocation, &ns, entry, Some(uuid), whole).await,
            Err(error) => Err(error),
        };
        match made {
            // Another client was faster; what it has made is looked at anew.
            Err(error) if error.code() == ErrorCode::NamespaceExists => {
                if matches!(invocation.server.catalog.resolve(ns.as_str()), Resolved::View(_)) {
                    return Err(error);
                }
                invocation.op.check_for_interrupt()?;
                invocation.op.yield_now().await?;
            }
            result => return result,
        }
    }
}

async fn run(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    entry: &Entry<'_>,
    uuid: Option<[u8; 16]>,
    whole: &mut Whole,
) -> Result<()> {
    let made = Part { uuid, ..Part::default() };
    part(invocation, &create::COMMAND, ns.database(), entry.object, made, whole).await
}

/// Frees the name for the collection of this UUID, and gives it to the collection if it is there. Answers
/// whether the collection has it.
async fn is_named(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    uuid: &[u8; 16],
    whole: &mut Whole,
) -> Result<bool> {
    let catalog = invocation.server.catalog.clone();
    let current = catalog.collection_of_uuid(uuid);
    match &current {
        Some(current) if current.ns == *ns => return Ok(true),
        Some(current) if current.ns.database() != ns.database() => {
            bail!(40655, "Invalid name {ns} for UUID {}", uuid_text(uuid))
        }
        _ => {}
    }
    ns.check_creatable()?;
    current.as_deref().map_or(Ok(()), check_movable)?;
    if let Some(other) = catalog.collection(ns.as_str()) {
        move_aside(invocation, &other, whole).await?;
    }
    let Some(current) = current else { return Ok(false) };
    rename(invocation, &current, ns, whole).await?;
    Ok(true)
}

/// Gives a collection another name, since its own is needed.
pub async fn move_aside(
    invocation: &mut Invocation<'_>,
    collection: &Collection,
    whole: &mut Whole,
) -> Result<()> {
    check_movable(collection)?;
    let aside = copy::temporary_name(invocation, collection.ns.database(), "create")?;
    rename(invocation, collection, &aside, whole).await
}

/// Fails for a collection of the server's own, which `renameCollection` refuses, too.
fn check_movable(collection: &Collection) -> Result<()> {
    let ns = &collection.ns;
    if ns.is_system() || ns.database() == "local" && ns.collection().starts_with("oplog.") {
        bail!(IllegalOperation, "Cannot rename from system collection {ns}");
    }
    Ok(())
}

async fn rename(
    invocation: &mut Invocation<'_>,
    collection: &Collection,
    to: &Namespace,
    whole: &mut Whole,
) -> Result<()> {
    let catalog = invocation.server.catalog.clone();
    let names = [collection.ns.as_str().to_owned(), to.as_str().to_owned()];
    catalog.fetch_definitions(&mut invocation.op, &names).await?;
    let rename = Rename { source: Some(collection.id), ..Rename::new(&collection.ns, to) };
    let commit = loop {
        match catalog.rename_collection(invocation.op.scope(), &rename) {
            Err(error) if error.code() == ErrorCode::WriteConflict => {
                invocation.op.yield_now().await?;
            }
            result => break result?,
        }
    };
    whole.outcome.committed(commit, 0);
    Ok(())
}
