//! `ping`: answers.

use crate::args::Args;
use crate::registry::Command;

/// See the module's head.
pub const COMMAND: Command = Command {
    before_auth: true,
    api_v1: true,
    ..Command::new("ping", "a way to check that the server is alive", |invocation| {
        Box::pin(async {
            let args = Args::new("ping");
            invocation.body.iter().skip(1).try_for_each(|elem| args.other(elem))
        })
    })
};
