//! `whatsmyuri`: the client's address as the server sees it.

use crate::registry::Command;

/// See the module's head.
pub const COMMAND: Command = Command {
    needs_no_login: true,
    ..Command::new("whatsmyuri", "returns the client's address", |invocation| {
        Box::pin(async {
            invocation.reply.put("you", &invocation.session.remote);
            Ok(())
        })
    })
};
