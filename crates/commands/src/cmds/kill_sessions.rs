//! `killSessions`: kills the operations and cursors of these sessions; an empty list means all sessions of the
//! user.

use super::session_ids;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use std::collections::HashSet;

/// See the module's head.
pub const COMMAND: Command = Command {
    ..Command::new("killSessions", "kills logical sessions with their operations and cursors", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ids: HashSet<_> =
            session_ids::parse_list(invocation, "killSessions")?.into_iter().collect();
        let own = invocation.op.state().id;
        session_ids::kill(invocation.server, own, |id| ids.is_empty() || ids.contains(id));
        Ok(())
    })
}
