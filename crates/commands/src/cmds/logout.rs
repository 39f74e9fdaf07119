//! `logout`: without users, there is nothing to do.

use crate::args::Args;
use crate::registry::Command;

/// See the module's head.
pub const COMMAND: Command = Command {
    needs_no_login: true,
    ..Command::new("logout", "logs out of a database", |invocation| {
        Box::pin(async {
            let args = Args::new("logout");
            invocation.body.iter().skip(1).try_for_each(|elem| args.other(elem))
        })
    })
};
