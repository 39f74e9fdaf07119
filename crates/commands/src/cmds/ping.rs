//! `ping`: replies.

use crate::args::Args;
use crate::registry::Command;

/// See the module's head.
pub const COMMAND: Command = Command {
    needs_no_login: true,
    api_v1: true,
    ..Command::new("ping", "checks that the server is alive", |invocation| {
        Box::pin(async {
            let args = Args::new("ping");
            invocation.body.iter().skip(1).try_for_each(|elem| args.other(elem))
        })
    })
};
