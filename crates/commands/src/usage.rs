//! Counts operations and their times, by the collection that they are for and for the whole server.
//!
//! An operation's time ends when it has been performed: waiting for the log is not in it.

use crate::invocation::Invocation;
use crate::registry::{Access, Command};
use crate::server::Server;
use kauri_bson::Value;
use kauri_catalog::{Collection, OperationKind};
use kauri_transport::{RequestContext, monotonic_ns};

/// What a command counts as.
fn kind_of(command: &Command) -> OperationKind {
    match (command.name, command.access) {
        ("find", _) => OperationKind::Query,
        ("getMore", _) => OperationKind::GetMore,
        ("insert", _) => OperationKind::Insert,
        ("update", _) => OperationKind::Update,
        ("delete", _) => OperationKind::Remove,
        ("aggregate" | "count" | "distinct", _) => OperationKind::Read,
        ("findAndModify" | "bulkWrite", Access::Write) => OperationKind::Write,
        _ => OperationKind::Other,
    }
}

/// Counts a command that has run since `started_ns`.
pub fn record(invocation: &Invocation<'_>, command: &Command, started_ns: u64) {
    let (worker, time_ns) = (invocation.worker.id(), monotonic_ns().saturating_sub(started_ns));
    let kind = kind_of(command);
    invocation.server.usage.record(worker, kind, time_ns);
    let target = match command.name {
        "getMore" => invocation.body.get("collection"),
        _ => invocation.body.first(),
    };
    let Some(Value::String(name)) = target.map(|elem| elem.value()) else { return };
    let resolved = invocation.server.catalog.resolve(&format!("{}.{name}", invocation.db));
    if let Some(usage) = resolved.usage() {
        usage.record(worker, kind, time_ns);
    }
}

/// Counts an operation of the express path.
#[inline]
pub fn record_express(
    server: &Server,
    cx: &RequestContext<'_>,
    collection: &Collection,
    kind: OperationKind,
) {
    let (worker, time_ns) = (cx.worker.id(), monotonic_ns().saturating_sub(cx.received_ns));
    server.usage.record(worker, kind, time_ns);
    collection.usage.record(worker, kind, time_ns);
}
