//! `connectionStatus`: who this connection has authenticated as.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command = Command {
    before_auth: true,
    api_v1: true,
    ..Command::new("connectionStatus", "tells who is authenticated on this connection", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("connectionStatus");
        let mut show_privileges = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "showPrivileges" => {
                    show_privileges = args.given(elem, Args::bool)?.unwrap_or(false);
                }
                _ => args.other(elem)?,
            }
        }
        let mut info = invocation.reply.document("authInfo");
        info.put_value("authenticatedUsers", &Value::array([]));
        info.put_value("authenticatedUserRoles", &Value::array([]));
        if show_privileges {
            info.put_value("authenticatedUserPrivileges", &Value::array([]));
        }
        Ok(())
    })
}
