//! `logRotate`: goes on in a new log file.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::bail;
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command = Command {
    admin_only: true,
    ..Command::new("logRotate", "goes on in a new log file, as SIGUSR1 has it", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("logRotate");
        let target = invocation.target()?;
        match target.value() {
            // Any number, and the only log that there is. (The other one of MongoDB is the audit log.)
            value if value.is_number() => {}
            Value::String(name) if name == "server" => {}
            Value::String(name) => bail!(BadValue, "No log of type '{name}'"),
            _ => {
                return Err(
                    args.wrong_type(target, &["string", "int", "double", "long", "decimal"])
                );
            }
        }
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "comment" => {}
                _ => args.other(elem)?,
            }
        }
        (invocation.server.rotate_log)()
    })
}
