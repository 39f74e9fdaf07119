//! Command entries: each runs its command on the collection of its UUID.

use super::entry::{self, Entry};
use super::{Applied, Whole, create};
use crate::admission::check_part_writes;
use crate::cmds::{
    coll_mod, convert_to_capped, drop, drop_database, drop_indexes, rename_collection,
};
use crate::invocation::{Invocation, Part};
use crate::registry::Command;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocBuf, Type, Value, not_utf8};
use kauri_catalog::dropped::uuid_text;
use kauri_catalog::{Namespace, Resolved};
use std::sync::atomic::Ordering;

/// A command that is run as it is, and the errors that say that there is nothing to be done.
struct Known {
    command: &'static Command,
    accepted: &'static [ErrorCode],
}

fn known(name: &str) -> Option<Known> {
    let (command, accepted): (_, &[ErrorCode]) = match name {
        "drop" => (&drop::COMMAND, &[ErrorCode::NamespaceNotFound]),
        "collMod" => {
            (&coll_mod::COMMAND, &[ErrorCode::IndexNotFound, ErrorCode::NamespaceNotFound])
        }
        "dropIndexes" | "deleteIndexes" => {
            (&drop_indexes::COMMAND, &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound])
        }
        "convertToCapped" => (&convert_to_capped::CONVERT, &[ErrorCode::NamespaceNotFound]),
        "dropDatabase" => (&drop_database::COMMAND, &[ErrorCode::NamespaceNotFound]),
        _ => return None,
    };
    Some(Known { command, accepted })
}

/// Applies an entry.
pub async fn apply(
    invocation: &mut Invocation<'_>,
    entry: &Entry<'_>,
    whole: &mut Whole,
) -> Applied {
    invocation.server.counters.command.fetch_add(1, Ordering::Relaxed);
    let ns = entry::namespace(invocation.server, entry.whole)?;
    if matches!(invocation.server.catalog.resolve(ns.as_str()), Resolved::View(_)) {
        let message = format!("applyOps not supported on view:{ns}");
        return Err(Error::new(ErrorCode::CommandNotSupportedOnView, message).into());
    }
    let name = entry.command_target()?.key();
    let (result, accepted): (_, &[ErrorCode]) = match (name, known(name)) {
        ("create", _) => {
            (create::apply(invocation, &ns, entry, whole).await, &[ErrorCode::NamespaceExists])
        }
        ("renameCollection", _) => (
            rename(invocation, entry, whole).await,
            &[ErrorCode::NamespaceNotFound, ErrorCode::NamespaceExists],
        ),
        (_, Some(known)) => {
            (run(invocation, &ns, entry, known.command, whole).await, known.accepted)
        }
        (_, None) => (Err(refused(name)), &[]),
    };
    match result {
        Err(error) if accepted.contains(&error.code()) => Ok(()),
        result => Ok(result?),
    }
}

fn refused(name: &str) -> Error {
    match name {
        "commitTransaction" => {
            Error::location(50987, "commitTransaction is only used internally by secondaries.")
        }
        "abortTransaction" => {
            Error::location(50972, "abortTransaction is only used internally by secondaries.")
        }
        _ => Error::new(
            ErrorCode::CommandNotSupported,
            format!("The {name} operation is not supported in applyOps mode"),
        ),
    }
}

/// Runs the command of the entry; a UUID says which collection it is for, whatever it is called.
async fn run(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    entry: &Entry<'_>,
    command: &'static Command,
    whole: &mut Whole,
) -> Result<()> {
    let Some(uuid) = entry.uuid.filter(|_| command.name != "dropDatabase") else {
        let body = renamed(entry.object, command.name, None);
        return part(invocation, command, ns.database(), body.as_doc(), Part::default(), whole)
            .await;
    };
    loop {
        let found = named_by(invocation, &uuid)?;
        // Whoever takes the name meanwhile is not meant.
        let meant = (command.name == drop::COMMAND.name).then_some(uuid);
        let body = renamed(entry.object, command.name, Some((found.collection(), meant)));
        let (db, body) = (found.database(), body.as_doc());
        match part(invocation, command, db, body, Part::default(), whole).await {
            // It has got another name, or has gone.
            Err(error) if error.code() == ErrorCode::CollectionUUIDMismatch => {
                invocation.op.yield_now().await?;
            }
            result => return result,
        }
    }
}

/// Runs a command as a part of the whole.
pub async fn part(
    invocation: &mut Invocation<'_>,
    command: &'static Command,
    database: &str,
    body: Doc<'_>,
    part: Part,
    whole: &mut Whole,
) -> Result<()> {
    if let Some(commit) = invocation.run_part(command, database, body, part).await? {
        whole.outcome.committed(commit, 0);
    }
    Ok(())
}

/// The name of the collection of this UUID.
pub fn named_by(invocation: &Invocation<'_>, uuid: &[u8; 16]) -> Result<Namespace> {
    match invocation.server.catalog.collection_of_uuid(uuid) {
        Some(collection) => Ok(collection.ns.clone()),
        None => bail!(NamespaceNotFound, "No namespace with UUID {}", uuid_text(uuid)),
    }
}

/// The command by its own name, for this collection if there is one given, which has to have the UUID.
fn renamed(body: Doc<'_>, name: &str, of: Option<(&str, Option<[u8; 16]>)>) -> DocBuf {
    DocBuf::build(|out| {
        for (place, elem) in body.iter().enumerate() {
            match (place, of) {
                (0, Some((collection, _))) => out.put(name, collection),
                (0, None) => out.put_elem_as(name, elem),
                _ => out.put_elem(elem),
            }
        }
        if let Some((_, Some(uuid))) = of {
            out.put_value("collectionUUID", &uuid_value(&uuid));
        }
    })
}

/// Renames the collection of the entry. A name that changes its collection meanwhile is resolved again.
async fn rename(
    invocation: &mut Invocation<'_>,
    entry: &Entry<'_>,
    whole: &mut Whole,
) -> Result<()> {
    let catalog = invocation.server.catalog.clone();
    let by_uuid = entry.object.value("dropTarget").ty() == Some(Type::Binary);
    let is_in_the_way = || {
        let to = entry.object.value("to");
        by_uuid && to.as_str().is_some_and(|to| catalog.collection(to).is_some())
    };
    loop {
        let Err(error) = rename_as_named(invocation, entry, whole).await else { return Ok(()) };
        match error.code() {
            ErrorCode::CollectionUUIDMismatch | ErrorCode::ConflictingOperationInProgress => {}
            ErrorCode::NamespaceExists if is_in_the_way() => {}
            _ => return Err(error),
        }
        invocation.op.yield_now().await?;
    }
}

/// A collection of the new name that is not the one to be dropped is renamed first.
async fn rename_as_named(
    invocation: &mut Invocation<'_>,
    entry: &Entry<'_>,
    whole: &mut Whole,
) -> Result<()> {
    let body = entry.object;
    let to = body.value("to");
    not_utf8::refuse_as_namespace(&to)?;
    let Some(to) = to.as_str() else {
        bail!(TypeMismatch, "'to' must be of type String");
    };
    let from = match &entry.uuid {
        Some(uuid) => named_by(invocation, uuid)?.as_str().to_owned(),
        None => body.value("renameCollection").as_str().unwrap_or_default().to_owned(),
    };
    if from == to {
        return Ok(());
    }
    let catalog = invocation.server.catalog.clone();
    if catalog.collection(&from).is_none() {
        bail!(NamespaceNotFound, "Source collection {from} does not exist");
    }
    let renamed = Namespace::parse(to)?;
    check_part_writes(invocation.server, renamed.database())?;
    renamed.check_creatable()?;
    let drop_target = match body.value("dropTarget") {
        uuid @ Value::Binary { subtype: 4, .. } => match catalog.collection(to) {
            None => false.into(),
            Some(target) if uuid == uuid_value(&target.uuid) => uuid,
            Some(other) => {
                create::move_aside(invocation, &other, whole).await?;
                false.into()
            }
        },
        value => value.truthy().into(),
    };
    let by_uuid = drop_target.ty() == Some(Type::Binary);
    let is_within = Namespace::parse(&from)?.database() == Namespace::parse(to)?.database();
    let body = DocBuf::build(|out| {
        out.put("renameCollection", from.as_str());
        out.put("to", to);
        match by_uuid && !is_within {
            // Across databases the command takes no UUID.
            true => out.put("dropTarget", true),
            false => out.put_value("dropTarget", &drop_target),
        }
        if let Some(uuid) = &entry.uuid {
            out.put_value("collectionUUID", &uuid_value(uuid));
        }
    });
    let command = &rename_collection::COMMAND;
    part(invocation, command, "admin", body.as_doc(), Part::default(), whole).await
}

fn uuid_value(uuid: &[u8; 16]) -> Value<'_> {
    Value::Binary { subtype: 4, bytes: uuid.as_slice().into() }
}
