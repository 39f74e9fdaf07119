//! `connPoolStats`: connections to other servers; there are none.

use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::Doc;

/// See the module's head.
pub const COMMAND: Command =
    Command::new("connPoolStats", "returns statistics of connections to other servers", run);

const COUNTS: &[&str] =
    &["totalInUse", "totalAvailable", "totalLeased", "totalCreated", "totalRefreshing"];

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let out = &mut invocation.reply;
        out.put("numClientConnections", 0);
        out.put("numAScopedConnections", 0);
        COUNTS.iter().for_each(|name| out.put(name, 0));
        for name in ["pools", "hosts", "replicaSets"] {
            out.put(name, Doc::EMPTY);
        }
        Ok(())
    })
}
