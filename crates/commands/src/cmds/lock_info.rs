//! `lockInfo`: locks that are held. This server holds none across a wait, so there are none to show.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command =
    Command { admin_only: true, ..Command::new("lockInfo", "lists locks", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("lockInfo");
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "includeStorageEngineDump" => {
                    let _ = args.given(elem, Args::safe_bool)?;
                }
                _ => args.other(elem)?,
            }
        }
        invocation.reply.put_value("lockInfo", &Value::array([]));
        Ok(())
    })
}
