//! `startSession`.

use super::session_ids;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command = Command::new("startSession", "starts a logical session", run);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let server = invocation.server;
        let id = session_ids::new_id(server);
        session_ids::refresh(server, &[id])?;
        let uuid = Value::Binary { subtype: 4, bytes: id.as_slice().into() };
        invocation.reply.document("id").put_value("id", &uuid);
        invocation.reply.put("timeoutMinutes", session_ids::timeout_minutes(server));
        Ok(())
    })
}
