//! `top`: time and counts by collection. They are not kept by collection, so all are zero.

use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    admin_only: true,
    ..Command::new("top", "tells time and counts by collection", run)
};

const KINDS: &[&str] = &[
    "total",
    "readLock",
    "writeLock",
    "queries",
    "getmore",
    "insert",
    "update",
    "remove",
    "commands",
];

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let mut collections = invocation.server.catalog.all_collections();
        collections.sort_by(|a, b| a.ns.cmp(&b.ns));
        let mut totals = invocation.reply.document("totals");
        totals.put("note", "all times in microseconds");
        for collection in collections {
            let mut entry = totals.document(collection.ns.as_str());
            for kind in KINDS {
                let mut figures = entry.document(kind);
                figures.put("time", 0i64);
                figures.put("count", 0i64);
            }
        }
        Ok(())
    })
}
