//! `connectionStatus`: the users authenticated on this connection.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command = Command {
    needs_no_login: true,
    api_v1: true,
    ..Command::new(
        "connectionStatus",
        "returns the users that are authenticated on this connection",
        run,
    )
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("connectionStatus");
        let mut show_privileges = false;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "showPrivileges" => {
                    show_privileges = args.given(elem, Args::safe_bool)?.unwrap_or(false);
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
        drop(info);
        let uuid = connection_uuid(&invocation.server.process_id, invocation.session.id);
        let uuid = Value::Binary { subtype: 4, bytes: uuid.as_slice().into() };
        invocation.reply.put_value("uuid", &uuid);
        Ok(())
    })
}

/// A UUID for this connection of this process.
fn connection_uuid(process: &[u8; 12], connection: u64) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..12].copy_from_slice(process);
    uuid[12..].copy_from_slice(&(connection as u32).to_be_bytes());
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}
