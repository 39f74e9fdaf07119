//! `lockInfo`: held and requested locks. There are none, except in the experiment with lock granularities.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};

/// See the module's head.
pub const COMMAND: Command = Command::admin("lockInfo", "lists locks", run);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("lockInfo");
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        #[cfg(feature = "lock-experiment")]
        invocation.server.locks.write_info(&mut invocation.reply.array("lockInfo"));
        #[cfg(not(feature = "lock-experiment"))]
        drop(invocation.reply.array("lockInfo"));
        Ok(())
    })
}
