//! `shutdown`: ends the process. There is no reply; the connection ends. While there is no access control, it
//! is for clients on this host alone, as in MongoDB.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::bail;
use kauri_base::log::{self, Attr};

/// See the module's head.
pub const COMMAND: Command =
    Command { admin_only: true, ..Command::new("shutdown", "ends the server", run) };

/// How long operations may go on unless the client says something else.
const GRACE_SECS: i64 = 15;

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        if !invocation.session.is_local() {
            bail!(Unauthorized, "shutdown must run from localhost when running db without auth");
        }
        let args = Args::new("shutdown");
        let mut grace = GRACE_SECS;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "force" => {
                    let _ = args.given(elem, Args::safe_bool)?;
                }
                "timeoutSecs" => grace = args.given(elem, Args::long)?.unwrap_or(GRACE_SECS),
                _ => args.other(elem)?,
            }
        }
        let attr = Attr::new().num("timeoutSecs", grace);
        log::info("COMMAND", 51603, "-", "Shutting down by command", attr);
        (invocation.server.shutdown)(grace.max(0) as u64);
        invocation.hang_up = true;
        Ok(())
    })
}
