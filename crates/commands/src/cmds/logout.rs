//! `logout`: nobody is logged in, so there is nothing to do.

use crate::args::Args;
use crate::registry::Command;

/// See the module's head.
pub const COMMAND: Command = Command {
    before_auth: true,
    ..Command::new("logout", "logs out of a database", |invocation| {
        Box::pin(async {
            let args = Args::new("logout");
            invocation.body.iter().skip(1).try_for_each(|elem| args.other(elem))
        })
    })
};
