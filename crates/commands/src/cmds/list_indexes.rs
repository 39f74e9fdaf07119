//! `listIndexes`.

use super::{ddl, list_rows};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_bson::DocBuf;
use kauri_catalog::Index;

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    api_v1: true,
    ..Command::new("listIndexes", "lists the indexes of a collection", run)
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
                "isTimeseriesNamespace" => drop(args.given(elem, Args::bool)?),
                _ => args.other(elem)?,
            }
        }
        if build_info && build_uuids {
            kauri_base::bail!(
                InvalidOptions,
                "The includeBuildUUIDs flag and includeBuildIndexInfo flag cannot both be set to true"
            );
        }
        let collection = ddl::existing(invocation, &ns)?;
        let rows = collection.indexes.iter().map(|index| row(index, build_info)).collect();
        list_rows::reply(invocation, ns, rows, batch_size).await
    })
}

fn row(index: &Index, build_info: bool) -> DocBuf {
    let spec = &index.definition().spec;
    if !build_info {
        return spec.clone();
    }
    DocBuf::build(|out| {
        out.put("spec", spec);
        if !index.ready {
            out.document("indexBuildInfo").put("state", "building");
        }
    })
}
