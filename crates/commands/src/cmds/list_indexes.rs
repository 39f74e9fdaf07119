//! `listIndexes`.

use super::{ddl, list_rows};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::{DocBuf, doc};

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    ..Command::read("listIndexes", "lists the indexes of a collection", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("listIndexes");
        let ns = invocation.namespace_or_uuid()?;
        let (mut batch_size, mut build_info, mut build_uuids) = (None, false, false);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "cursor" => batch_size = list_rows::batch_size("listIndexes", elem)?,
                "includeIndexBuildInfo" => {
                    build_info = args.given(elem, Args::bool)?.unwrap_or(false);
                }
                "includeBuildUUIDs" => {
                    build_uuids = args.given(elem, Args::bool)?.unwrap_or(false);
                }
                _ => args.other(elem)?,
            }
        }
        if build_info && build_uuids {
            kauri_base::bail!(
                InvalidOptions,
                "The includeBuildUUIDs flag and includeBuildIndexInfo flag cannot both be set to true"
            );
        }
        let catalog = &invocation.server.catalog;
        if ns.collection() == "system.views" && !catalog.views_of(ns.database()).is_empty() {
            let id = doc! { "v" => 2, "key" => doc! { "_id" => 1 }, "name" => "_id_" };
            let rows = vec![row(&id, true, build_info)];
            return list_rows::reply(invocation, ns, rows, batch_size).await;
        }
        if invocation.server.own_collections().count(&ns).is_some() {
            return list_rows::reply(invocation, ns, Vec::new(), batch_size).await;
        }
        let collection = ddl::existing(invocation, &ns)?;
        let usable = collection.indexes.iter();
        let usable = usable.map(|index| row(&index.definition().spec, index.ready, build_info));
        let unusable = collection.unusable.iter().map(|index| row(&index.spec, true, build_info));
        let rows = usable.chain(unusable).collect();
        list_rows::reply(invocation, ns, rows, batch_size).await
    })
}

fn row(spec: &DocBuf, ready: bool, build_info: bool) -> DocBuf {
    if !build_info {
        return spec.clone();
    }
    DocBuf::build(|out| {
        out.put("spec", spec);
        if !ready {
            out.document("indexBuildInfo").put("state", "building");
        }
    })
}
