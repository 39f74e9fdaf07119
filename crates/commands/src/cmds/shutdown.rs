//! `shutdown`: ends the process. There is no reply; the connection ends. Without access control, only clients on
//! this host may use it, as in MongoDB.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::bail;
use kauri_base::log::{self, Attr};

/// See the module's head.
pub const COMMAND: Command = Command::admin("shutdown", "shuts down the server", run);

/// Default time for operations to finish.
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
