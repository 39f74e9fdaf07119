//! `listCommands`.

use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command =
    Command { api_v1: false, ..Command::new("listCommands", "lists the commands", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let mut commands: Vec<&Command> = super::ALL.to_vec();
        commands.retain(|command| !command.is_internal);
        commands.sort_by_key(|command| command.name);
        let mut list = invocation.reply.document("commands");
        for command in commands {
            let mut entry = list.document(command.name);
            entry.put("help", command.help);
            entry.put("requiresAuth", !command.needs_no_login);
            entry.put("secondaryOk", command.access != Access::Write);
            entry.put("adminOnly", command.admin_only);
            let versions: &[&str] = if command.api_v1 { &["1"] } else { &[] };
            entry.put_value("apiVersions", &Value::array(versions.iter().map(|v| Value::from(*v))));
            entry.put_value("deprecatedApiVersions", &Value::array([]));
        }
        Ok(())
    })
}
