//! The document of an operation in `system.profile`, with MongoDB's fields in MongoDB's order.
//!
//! It has no execution statistics: when it is written, the plan is gone or already serves the next batch.

use super::{Fact, Operation};
use crate::ops::keep_command;
use crate::server::Server;
use kauri_base::limits;
use kauri_bson::{Doc, DocBuf, DocWriter, Value, shell_text};
use std::net::SocketAddr;

pub(super) fn of(server: &Server, op: &Operation<'_>) -> DocBuf {
    DocBuf::build(|out| {
        out.put("op", op.kind.op());
        out.put("ns", op.ns);
        put_command(out, "command", op.command);
        if let Some(originating) = &op.figures.originating {
            put_command(out, "originatingCommand", originating.as_doc());
        }
        for (name, fact) in op.figures.facts(op.used_disk) {
            match fact {
                Fact::Count(n) => put_count(out, name, n),
                Fact::Id(id) => out.put(name, id),
                Fact::Flag => out.put(name, true),
            }
        }
        put_count(out, "numYield", op.yields);
        if let Some(returned) = op.figures.returned {
            put_count(out, "nreturned", returned);
        }
        if let Some(framework) = op.framework() {
            out.put("queryFramework", framework);
        }
        if super::locks_are_known(server) {
            out.put("locks", Doc::EMPTY);
        }
        out.put("flowControl", Doc::EMPTY);
        if let Some(error) = op.error {
            out.put("ok", 0.0);
            out.put("errMsg", error.message());
            out.put("errName", error.code().name());
            out.put("errCode", error.code().number());
        }
        out.put("storage", Doc::EMPTY);
        if let Some(bytes) = op.reply_bytes {
            put_count(out, "responseLength", bytes as u64);
        }
        if op.whole.is_some() {
            out.put("protocol", op.protocol);
        }
        put_count(out, "millis", op.elapsed_ms);
        if let Some(plan) = op.figures.known_plan() {
            out.put("planSummary", plan.summary().as_str());
        }
        out.put("ts", Value::DateTime(server.clock.unix_ms()));
        out.put("client", client_address(&op.session.remote).as_str());
        if !op.app_name.is_empty() {
            out.put("appName", op.app_name);
        }
        out.array("allUsers");
        out.put("user", "");
    })
}

fn put_count(out: &mut DocWriter<'_>, name: &str, n: u64) {
    match i32::try_from(n) {
        Ok(n) => out.put(name, n),
        Err(_) => out.put(name, n as i64),
    }
}

/// The command; of a long one the short fields as text, as in MongoDB.
fn put_command(out: &mut DocWriter<'_>, name: &str, command: Doc<'_>) {
    let bytes_max = limits::PROFILE_COMMAND_BYTES_MAX;
    if command.as_bytes().len() <= bytes_max {
        return out.put(name, command);
    }
    let mut kept = Vec::new();
    keep_command(command, bytes_max, &mut kept);
    let mut text = shell_text(Doc::from_bytes(&kept).unwrap_or(Doc::EMPTY));
    text.truncate(text.floor_char_boundary(bytes_max));
    let mut cut = out.document(name);
    cut.put("$truncated", text.as_str());
    if let Some(comment) = command.get("comment")
        && comment.value_bytes().len() <= bytes_max
    {
        cut.put_elem(comment);
    }
}

/// The client's address without its port.
fn client_address(remote: &str) -> String {
    match remote.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_canonical().to_string(),
        Err(_) => remote.to_owned(),
    }
}
