//! `refreshSessions`: extends the timeout of logical sessions.

use super::session_ids;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    ..Command::new("refreshSessions", "extends the timeout of logical sessions", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ids = session_ids::parse_list(invocation, "refreshSessions")?;
        session_ids::refresh(invocation.server, &ids)
    })
}
