//! `createIndexes`.

use super::{ddl, index_build};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, DocBuf, Type, Value};
use kauri_catalog::{Collection, CollectionOptions, Namespace, Resolved, spec};
use std::sync::Arc;
use std::time::Duration;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    adds_memory: true,
    ..Command::define("createIndexes", "creates indexes on a collection", run)
};

/// Interval at which a command checks whether another build of the same index has ended.
const WAIT_STEP: Duration = Duration::from_millis(5);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        if !ns.has_id_index() {
            bail!(InvalidNamespace, "cannot write to {ns}");
        }
        let specs = parse(invocation)?;
        let (collection, created) = collection_for(invocation, &ns)?;
        let before = ready_indexes(&collection);
        let mut last = None;
        let after = loop {
            // Looked up anew each time: others change the definition too.
            let collection = ddl::existing(invocation, &ns)?;
            let missing = missing(&collection, &specs)?;
            if missing.is_empty() {
                if specs.iter().all(|spec| is_ready(&collection, spec.as_doc())) {
                    break ready_indexes(&collection);
                }
                invocation.worker.sleep(WAIT_STEP).await;
                invocation.op.check_for_interrupt()?;
                continue;
            }
            match invocation.server.catalog.add_indexes(
                invocation.op.scope(),
                &collection,
                &missing,
            ) {
                Ok((ids, added)) => {
                    last = Some(index_build::run(invocation, &ns, &ids, added.seq).await?);
                }
                Err(error) if error.code() == ErrorCode::WriteConflict => {
                    invocation.op.yield_now().await?;
                }
                Err(error) => return Err(error),
            }
        };
        let out = &mut invocation.reply;
        out.put("numIndexesBefore", before);
        out.put("numIndexesAfter", after);
        out.put("createdCollectionAutomatically", created);
        if last.is_none() {
            out.put("note", "all indexes already exist");
        }
        invocation.wait_for_commit(last).await
    })
}

fn ready_indexes(collection: &Collection) -> i32 {
    collection.indexes.iter().filter(|index| index.ready).count() as i32
}

fn is_ready(collection: &Collection, requested: Doc<'_>) -> bool {
    let key = requested.value("key");
    let name = requested.value("name");
    collection.indexes.iter().filter(|index| index.ready).any(|index| {
        Some(index.name()) == name.as_str()
            || key.as_document().is_some_and(|k| spec::same_key(k, index.definition().key.as_doc()))
    })
}

/// The definitions that the collection does not have yet.
fn missing(collection: &Collection, specs: &[DocBuf]) -> Result<Vec<DocBuf>> {
    let mut missing: Vec<DocBuf> = Vec::new();
    'next: for spec in specs {
        let existing = collection.indexes.iter().map(|i| &i.definition().spec);
        // The same name with another definition is told before the same definition with another
        // name, as MongoDB does: it looks indexes up by name first.
        let (same_name, others): (Vec<_>, Vec<_>) = existing
            .chain(&missing)
            .partition(|e| e.as_doc().value("name") == spec.as_doc().value("name"));
        for existing in same_name.into_iter().chain(others) {
            if spec::conflicts(spec.as_doc(), existing.as_doc())? {
                continue 'next;
            }
        }
        missing.push(spec.clone());
    }
    if collection.indexes.len() + missing.len() > limits::INDEXES_PER_COLLECTION_MAX {
        bail!(
            CannotCreateIndex,
            "add index fails, too many indexes for {} key:{}",
            collection.ns,
            missing
                .first()
                .map(|s| kauri_bson::shell_value(&s.as_doc().value("key")))
                .unwrap_or_default()
        );
    }
    Ok(missing)
}

fn collection_for(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
) -> Result<(Arc<Collection>, bool)> {
    loop {
        if let Some(collection) = ddl::collection(invocation, ns)? {
            return Ok((collection, false));
        }
        ns.check_creatable()?;
        let catalog = &invocation.server.catalog;
        match catalog.create_collection(
            invocation.op.scope(),
            ns,
            CollectionOptions::default(),
            None,
        ) {
            Ok((collection, _)) => return Ok((collection, true)),
            Err(error) if error.code() == ErrorCode::NamespaceExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn parse(invocation: &Invocation<'_>) -> Result<Vec<DocBuf>> {
    let args = Args::new("createIndexes");
    let (mut indexes, mut ignore_unknown) = (None, false);
    for elem in invocation.body.iter().skip(1) {
        match elem.key() {
            "indexes" => indexes = args.given(elem, Args::array)?,
            "ignoreUnknownIndexOptions" => {
                ignore_unknown = args.given(elem, Args::bool)?.unwrap_or(false);
            }
            "commitQuorum" => commit_quorum(elem)?,
            _ => args.other(elem)?,
        }
    }
    let Some(indexes) = indexes else { return Err(args.missing("indexes")) };
    let ns = invocation.namespace()?;
    if matches!(invocation.server.catalog.resolve(ns.as_str()), Resolved::View(_)) {
        bail!(CommandNotSupportedOnView, "Namespace {ns} is a view, not a collection");
    }
    let mut specs = Vec::new();
    for elem in indexes {
        let Some(spec) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
            return Err(Args::new("createIndexes.indexes").wrong_type(elem, &["object"]));
        };
        let normal = spec::normalise(spec, ignore_unknown).map_err(|error| {
            error.context(format_args!("Error in specification {}", kauri_bson::shell_text(spec)))
        })?;
        specs.push(normal);
    }
    if specs.is_empty() {
        bail!(BadValue, "Must specify at least one index to create");
    }
    Ok(specs)
}

/// Has no meaning on a standalone server, which refuses it as MongoDB's does.
fn commit_quorum(elem: kauri_bson::Elem<'_>) -> Result<()> {
    match elem.value().lossy() {
        Value::Null | Value::Undefined => Ok(()),
        Value::String(_) => bail!(BadValue, "Standalones can't specify commitQuorum"),
        value if value.is_number() => bail!(BadValue, "Standalones can't specify commitQuorum"),
        _ => bail!(
            TypeMismatch,
            "BSON field 'createIndexes.commitQuorum' is the wrong type '{}', expected types \
             '[string, int]'",
            elem.ty().alias()
        ),
    }
}
