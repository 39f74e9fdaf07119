//! `endSessions`: ends logical sessions.

use super::session_ids;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use std::collections::HashSet;

/// See the module's head.
pub const COMMAND: Command =
    Command { api_v1: true, ..Command::new("endSessions", "ends logical sessions", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ids = session_ids::parse_list(invocation, "endSessions")?;
        let server = invocation.server;
        for id in &ids {
            server.sessions.end(id);
        }
        let ids: HashSet<_> = ids.into_iter().collect();
        session_ids::kill(server, invocation.op.state().id, |id| ids.contains(id));
        Ok(())
    })
}
