//! `reIndex`: rebuilds a collection's indexes. The `_id` index stays, because records are addressed by it during
//! the rebuild.

use super::{ddl, index_build};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::IndexId;
use kauri_bson::DocBuf;

/// See the module's head.
pub const COMMAND: Command =
    Command { ..Command::define("reIndex", "rebuilds the indexes of a collection", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("reIndex");
        let ns = invocation.namespace()?;
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        let collection = ddl::existing(invocation, &ns)?;
        let old: Vec<_> =
            collection.indexes.iter().filter(|i| i.ready && !i.definition().is_id()).collect();
        let old_ids: Vec<IndexId> = old.iter().map(|i| i.id).collect();
        let specs: Vec<DocBuf> = old.iter().map(|i| i.definition().spec.clone()).collect();
        let had = old.len() + 1;
        let mut ticket = None;
        if !specs.is_empty() {
            let catalog = invocation.server.catalog.clone();
            let (ids, added) = catalog.add_indexes(invocation.op.scope(), &collection, &specs)?;
            ticket = Some(index_build::replace(invocation, &ns, &ids, added.seq, &old_ids).await?);
        }
        let now = ddl::existing(invocation, &ns)?;
        let out = &mut invocation.reply;
        out.put("nIndexesWas", had as i32);
        out.put("nIndexes", now.indexes.iter().filter(|i| i.ready).count() as i32);
        {
            let mut list = out.array("indexes");
            now.indexes.iter().for_each(|i| list.push_doc(i.definition().spec.as_doc()));
        }
        invocation.wait_for_commit(ticket).await
    })
}
