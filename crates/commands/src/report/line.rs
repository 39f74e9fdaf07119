//! The slow-query line, with mongod's attributes in mongod's order.
//!
//! Figures that the engines do not count are left out: lock waits, CPU time, bytes read.

use super::{Fact, Operation};
use crate::server::Server;
use kauri_base::log::{self, Attr};
use kauri_bson::log_doc;
use kauri_catalog::Resolved;

pub(super) fn write(server: &Server, op: &Operation<'_>) {
    let kind = if op.whole.is_some() { "command" } else { op.kind.op() };
    let mut attr = Attr::new()
        .str("type", kind)
        .num("isFromUserConnection", true)
        .str("ns", op.ns)
        .str("collectionType", collection_type(server, op.ns));
    if !op.app_name.is_empty() {
        attr = attr.str("appName", op.app_name);
    }
    attr = log_doc(attr, "command", op.command);
    if let Some(originating) = &op.figures.originating {
        attr = log_doc(attr, "originatingCommand", originating.as_doc());
    }
    if let Some(plan) = op.figures.known_plan() {
        attr = attr.str("planSummary", plan.summary());
    }
    for (name, fact) in op.figures.facts(op.used_disk) {
        attr = match fact {
            Fact::Count(n) => attr.num(name, n),
            Fact::Id(id) => attr.num(name, id),
            Fact::Flag => attr.num(name, true),
        };
    }
    attr = attr.num("numYields", op.yields);
    if let Some(returned) = op.figures.returned {
        attr = attr.num("nreturned", returned);
    }
    if let Some(framework) = op.framework() {
        attr = attr.str("queryFramework", framework);
    }
    if let Some(error) = op.error {
        attr = attr
            .num("ok", 0)
            .str("errMsg", error.message())
            .str("errName", error.code().name())
            .num("errCode", error.code().number());
    }
    if let Some(bytes) = op.reply_bytes {
        attr = attr.num("reslen", bytes);
    }
    if super::locks_are_known(server) {
        attr = attr.json("locks", "{}");
    }
    attr = attr.json("storage", "{}").str("remote", &op.session.remote);
    if op.whole.is_some() {
        attr = attr.str("protocol", op.protocol);
    }
    let attr = attr.num("durationMillis", op.elapsed_ms);
    let component = if op.whole.is_some() { "COMMAND" } else { "WRITE" };
    log::info(component, 51803, &format!("conn{}", op.session.id), "Slow query", attr);
}

/// The kind of the namespace, by mongod's names.
fn collection_type(server: &Server, ns: &str) -> &'static str {
    let (db, collection) = ns.split_once('.').unwrap_or((ns, ""));
    match db {
        _ if collection.is_empty() => "none",
        _ if matches!(server.catalog.resolve(ns), Resolved::View(_)) => "view",
        _ if collection.starts_with("system.") => "system",
        "config" => "config",
        "admin" => "admin",
        "local" => "local",
        _ if collection.contains('$') => "unknown",
        _ => "normal",
    }
}
