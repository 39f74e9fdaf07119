//! Counts operations and their times, per collection and for the whole server.
//!
//! The time of an operation excludes the wait for the log.

use crate::invocation::Invocation;
use crate::registry::Command;
use crate::server::Server;
use kauri_catalog::{Collection, OperationKind};
use kauri_transport::{RequestContext, monotonic_ns};

/// Counts a command that has run since `started_ns`.
pub fn record(invocation: &Invocation<'_>, command: &Command, started_ns: u64) {
    let (worker, time_ns) = (invocation.worker.id(), monotonic_ns().saturating_sub(started_ns));
    let kind = command.kind;
    invocation.server.usage.record(worker, kind, time_ns);
    let Some(collection) = command.collection(invocation.asked()) else { return };
    let resolved = invocation.server.catalog.resolve(&collection);
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
