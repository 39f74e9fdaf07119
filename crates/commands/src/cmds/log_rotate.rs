//! `logRotate`: rotates the log file. A `comment` is in the first line of the rotation.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::bail;
use kauri_bson::Value;
use kauri_bson::extjson::{Format, write_value};

/// See the module's head.
pub const COMMAND: Command =
    Command { ..Command::admin("logRotate", "rotates the log file, like SIGUSR1", run) };

fn json(value: &Value<'_>) -> String {
    let mut text = String::new();
    write_value(&mut text, value, Format::Relaxed);
    text
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("logRotate");
        let target = invocation.target()?;
        match target.value().lossy() {
            // Any number or boolean, and the only log that there is. (The other one of MongoDB is the audit log.)
            value if value.is_number() || matches!(value, Value::Bool(_)) => {}
            Value::String(name) if name == "server" => {}
            Value::String(name) => bail!(NoSuchKey, "Unknown log type '{name}'"),
            _ => {
                return Err(args
                    .wrong_type(target, &["string", "bool", "int", "double", "long", "decimal"]));
            }
        }
        let mut comment = None;
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "comment" if !elem.value().is_nullish() => comment = Some(json(&elem.value())),
                _ => args.other(elem)?,
            }
        }
        (invocation.server.rotate_log)(comment.as_deref())
    })
}
