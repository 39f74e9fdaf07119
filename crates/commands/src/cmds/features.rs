//! `features`: compiled-in features.

use crate::registry::Command;

/// See the module's head.
pub const COMMAND: Command =
    Command::new("features", "returns the features that are compiled in", |invocation| {
        Box::pin(async {
            invocation.reply.document("js").put("utf8", true);
            invocation.reply.put("oidMachine", 0);
            Ok(())
        })
    });
