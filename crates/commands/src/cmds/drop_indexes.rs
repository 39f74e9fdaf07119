//! `dropIndexes`.

use super::ddl;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Error, ErrorCode, IndexId, Result, bail};
use kauri_bson::{Doc, DocBuf, Type, Value, shell_text};
use kauri_catalog::{Collection, Index, spec};

/// See the module's head.
pub const COMMAND: Command = Command {
    aliases: &["deleteIndexes"],
    api_v1: true,
    ..Command::define("dropIndexes", "drops indexes of a collection", run)
};

/// Which indexes to drop.
enum Which<'a> {
    All,
    Names(Vec<String>),
    Pattern(Doc<'a>),
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let which = parse(invocation)?;
        let mut had = 0;
        let ticket = ddl::retry(invocation, |invocation| {
            let collection = match ddl::collection(invocation, &ns)? {
                Some(collection) => collection,
                None => bail!(NamespaceNotFound, "ns not found {ns}"),
            };
            let ready = collection.indexes.iter().filter(|i| i.ready).count();
            had = ready + collection.unusable.len();
            let ids = find(&collection, &which)?;
            if ids.is_empty() {
                return Ok(None);
            }
            invocation
                .server
                .catalog
                .drop_indexes(invocation.op.scope(), &collection, &ids)
                .map(Some)
        })
        .await?;
        ddl::log("Dropped indexes", &ns);
        invocation.reply.put("nIndexesWas", had as i32);
        if matches!(which, Which::All) {
            invocation.reply.put("msg", "non-_id indexes dropped for collection");
        }
        invocation.wait_for_commit(ticket).await
    })
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<Which<'a>> {
    let args = Args::new("dropIndexes");
    let mut which = None;
    for elem in invocation.body.iter().skip(1) {
        match elem.key() {
            "index" => {
                which = Some(match (elem.value(), elem.as_doc()) {
                    (Value::String(name), _) if name == "*" => Which::All,
                    (name, _) if name.string_bytes().is_some() => {
                        Which::Names(vec![args.string(elem)?])
                    }
                    (Value::Document(_), Some(pattern)) => Which::Pattern(pattern),
                    (Value::Array(_), Some(names)) => Which::Names(parse_names(names)?),
                    _ => return Err(args.wrong_type(elem, &["string", "array", "object"])),
                });
            }
            _ => args.other(elem)?,
        }
    }
    which.ok_or_else(|| args.missing("index"))
}

fn parse_names(names: Doc<'_>) -> Result<Vec<String>> {
    let args = Args::new("dropIndexes.index");
    names
        .iter()
        .map(|name| match name.ty() {
            Type::String => args.string(name),
            _ => Err(args.wrong_type(name, &["string"])),
        })
        .collect()
}

fn find(collection: &Collection, which: &Which<'_>) -> Result<Vec<IndexId>> {
    match which {
        Which::All => {
            let secondary = collection.indexes.iter().filter(|i| !i.definition().is_id());
            let unusable = collection.unusable.iter().map(|i| i.id);
            Ok(secondary.map(|i| i.id).chain(unusable).collect())
        }
        Which::Names(names) if names.iter().map(String::as_str).eq(["*"]) => {
            find(collection, &Which::All)
        }
        Which::Names(names) => {
            let mut ids: Vec<IndexId> = Vec::new();
            for name in names {
                let unusable = collection.unusable.iter().find(|i| i.name == *name);
                if let Some(index) = unusable.filter(|i| !ids.contains(&i.id)) {
                    ids.push(index.id);
                    continue;
                }
                let found = collection.index_by_name(name).filter(|i| !ids.contains(&i.id));
                let Some(index) = found else {
                    bail!(IndexNotFound, "index not found with name [{name}]");
                };
                ids.push(droppable(index)?);
            }
            Ok(ids)
        }
        Which::Pattern(pattern) => {
            let is_meant = |key: Doc<'_>| spec::same_key(key, *pattern);
            let usable = collection.indexes.iter();
            let usable = usable.filter(|i| is_meant(i.definition().key.as_doc()));
            let unusable = collection.unusable.iter().filter(|i| is_meant(i.key().as_doc()));
            let mut found: Vec<(&DocBuf, Result<IndexId>)> =
                usable.map(|i| (&i.definition().spec, droppable(i))).collect();
            found.extend(unusable.map(|i| (&i.spec, Ok(i.id))));
            if found.len() > 1 {
                bail!(
                    AmbiguousIndexKeyPattern,
                    "{} indexes found for key: {}, identify by name instead. Conflicting indexes: {}, \
                     {}",
                    found.len(),
                    shell_text(*pattern),
                    shell_text(found[0].0.as_doc()),
                    shell_text(found[1].0.as_doc())
                );
            }
            match found.pop() {
                Some((_, id)) => Ok(vec![id?]),
                None => Err(Error::new(
                    ErrorCode::IndexNotFound,
                    format!("can't find index with key: {}", shell_text(*pattern)),
                )),
            }
        }
    }
}

fn droppable(index: &Index) -> Result<IndexId> {
    if index.definition().is_id() {
        bail!(InvalidOptions, "cannot drop _id index");
    }
    Ok(index.id)
}
