//! `drop`: drops a collection or view.

use super::ddl;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Result, bail};
use kauri_catalog::{Collection, Namespace, Resolved};

/// See the module's head.
pub const COMMAND: Command =
    Command { api_v1: true, ..Command::define("drop", "drops a collection or view", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("drop");
        let ns = invocation.namespace()?;
        let mut uuid = None;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "collectionUUID" => uuid = args.given(elem, ddl::uuid)?,
                _ => args.other(elem)?,
            }
        }
        check(&ns)?;
        let catalog = &invocation.server.catalog;
        if ns.collection() == "system.views" {
            if let Some(ticket) = catalog.drop_views(invocation.op.scope(), ns.database())? {
                invocation.reply.put("nIndexesWas", 1);
                invocation.reply.put("ns", ns.as_str());
                invocation.wait_for_commit(Some(ticket)).await?;
            }
            return Ok(());
        }
        crate::profiler::check_drop(invocation.server, &ns)?;
        let (indexes, ticket) = loop {
            let resolved = catalog.resolve(ns.as_str());
            ddl::check_uuid(catalog, &ns, &resolved, uuid.as_ref())?;
            let (indexes, dropped) = match resolved {
                Resolved::Nothing => return Ok(()),
                Resolved::Collection(collection) => (
                    Some(index_count(&collection)),
                    catalog.drop_collection_of(invocation.op.scope(), &ns, collection.id),
                ),
                Resolved::View(_) => (None, catalog.drop_collection(invocation.op.scope(), &ns)),
            };
            match dropped {
                Ok(ticket) => break (indexes, ticket),
                // The name has changed hands since: what was checked is not what it means now.
                Err(error) if error.code() == kauri_base::ErrorCode::NamespaceNotFound => {
                    invocation.op.yield_now().await?;
                }
                Err(error) => return Err(error),
            }
        };
        ddl::log("Dropped a collection", &ns);
        if let Some(indexes) = indexes {
            invocation.reply.put("nIndexesWas", indexes);
        }
        invocation.reply.put("ns", ns.as_str());
        invocation.wait_for_commit(Some(ticket)).await
    })
}

fn index_count(collection: &Collection) -> i32 {
    collection.indexes.iter().filter(|i| i.ready).count() as i32
}

fn check(ns: &Namespace) -> Result<()> {
    if matches!(ns.as_str(), "admin.system.version" | "admin.system.users" | "admin.system.roles") {
        bail!(IllegalOperation, "can't drop system collection {ns}");
    }
    Ok(())
}
