//! `listDatabases`.

use super::list_rows;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::oplog;
use crate::registry::{Access, Command, Run};
use kauri_base::Result;
use kauri_bson::{Doc, DocBuf};
use kauri_catalog::Catalog;
use std::collections::BTreeSet;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    api_v1: true,
    access: Access::Read,
    ..Command::admin("listDatabases", "lists the databases with their sizes", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("listDatabases");
        let (mut filter, mut name_only) = (Doc::EMPTY, false);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "filter" => filter = args.given(elem, Args::object)?.unwrap_or(Doc::EMPTY),
                "nameOnly" => name_only = args.given(elem, Args::safe_bool)?.unwrap_or(false),
                _ => args.other(elem)?,
            }
        }
        let env = invocation.query_env();
        let filter = list_rows::filter(filter, &env)?;
        let cx = kauri_matcher::MatchCx::with_eval(env.eval_cx());
        let catalog = &invocation.server.catalog;
        let mut total = 0;
        let mut list = invocation.reply.array("databases");
        let mut names: BTreeSet<String> = catalog.databases().into_keys().collect();
        let own = invocation.server.own_collections().database(name_only);
        names.extend(own.iter().map(|_| oplog::DATABASE.to_owned()));
        for name in names {
            let row = match &own {
                Some(own) if name == oplog::DATABASE => own.clone(),
                _ => describe(catalog, &name, name_only)?,
            };
            if let Some(filter) = &filter
                && !filter.matches(row.as_doc(), &cx)?
            {
                continue;
            }
            total += row.as_doc().value("sizeOnDisk").to_i64_saturating().unwrap_or(0);
            list.push_doc(row.as_doc());
        }
        drop(list);
        if !name_only {
            invocation.reply.put("totalSize", total);
            invocation.reply.put("totalSizeMb", total / (1024 * 1024));
        }
        Ok(())
    })
}

fn describe(catalog: &Catalog, name: &str, name_only: bool) -> Result<DocBuf> {
    let collections = catalog.collections_of(name);
    let (mut size, mut records) = (0, 0);
    for collection in collections.iter().filter(|_| !name_only) {
        let stats = collection.stats()?;
        size += stats.storage_bytes + collection.index_bytes()?;
        records += stats.records;
    }
    Ok(DocBuf::build(|out| {
        out.put("name", name);
        if !name_only {
            out.put("sizeOnDisk", size as i64);
            out.put("empty", records == 0);
        }
    }))
}
