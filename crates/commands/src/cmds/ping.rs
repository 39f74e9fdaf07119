//! `ping`: answers.

use crate::registry::Command;

/// See the module's head.
pub const COMMAND: Command = Command {
    before_auth: true,
    api_v1: true,
    ..Command::new("ping", "a way to check that the server is alive", |_| {
        Box::pin(async { Ok(()) })
    })
};
