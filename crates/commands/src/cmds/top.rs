//! `top`: time and counts of the operations on each collection and view.

use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_catalog::OperationKind;
use kauri_catalog::usage::LatencyClass;

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    ..Command::admin("top", "returns time and counts of operations by collection", run)
};

/// Whether operations of a kind count for an entry.
type Counts = fn(OperationKind) -> bool;

const ENTRIES: &[(&str, Counts)] = &[
    ("total", |_| true),
    ("readLock", |kind| kind.class() == LatencyClass::Reads),
    ("writeLock", |kind| kind.class() == LatencyClass::Writes),
    ("queries", |kind| kind == OperationKind::Query),
    ("getmore", |kind| kind == OperationKind::GetMore),
    ("insert", |kind| kind == OperationKind::Insert),
    ("update", |kind| kind == OperationKind::Update),
    ("remove", |kind| kind == OperationKind::Remove),
    ("commands", |kind| {
        matches!(kind, OperationKind::Read | OperationKind::Write | OperationKind::Other)
    }),
];

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let catalog = &invocation.server.catalog;
        let mut all = Vec::new();
        for database in catalog.databases().keys() {
            let collections = catalog.collections_of(database);
            all.extend(collections.iter().map(|c| (c.ns.clone(), c.usage.clone())));
            let views = catalog.views_of(database);
            all.extend(views.iter().map(|v| (v.ns.clone(), v.usage.clone())));
        }
        let mut totals = invocation.reply.document("totals");
        totals.put("note", "all times in microseconds");
        for (name, usage) in all {
            let mut out = totals.document(name.as_str());
            for (entry, counts) in ENTRIES {
                let total = usage.total(counts);
                let mut figures = out.document(entry);
                figures.put("time", total.micros as i64);
                figures.put("count", total.count as i64);
            }
        }
        Ok(())
    })
}
