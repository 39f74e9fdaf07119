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
        let catalog = &invocation.server.catalog;
        let mut names = Vec::new();
        for database in catalog.databases().keys() {
            names.extend(catalog.collections_of(database).iter().map(|c| c.ns.clone()));
            names.extend(catalog.views_of(database).iter().map(|v| v.ns.clone()));
        }
        let mut totals = invocation.reply.document("totals");
        totals.put("note", "all times in microseconds");
        for name in names {
            let mut entry = totals.document(name.as_str());
            for kind in KINDS {
                let mut figures = entry.document(kind);
                figures.put("time", 0i64);
                figures.put("count", 0i64);
            }
        }
        Ok(())
    })
}
