//! `killCursors`.

use crate::args::{Args, fields};
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command =
    Command { api_v1: true, ..Command::read("killCursors", "kills cursors by id", run) };

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        invocation.namespace()?;
        let args = Args::new("killCursors");
        let mut ids = None;
        for elem in fields(invocation.body) {
            match elem.key() {
                "cursors" => {
                    let mut list = Vec::new();
                    for id in args.array(elem)? {
                        match id.value() {
                            Value::Int64(id) => list.push(id),
                            Value::Null => {}
                            _ => {
                                return Err(
                                    Args::new("killCursors.cursors").wrong_type(id, &["long"])
                                );
                            }
                        }
                    }
                    ids = Some(list);
                }
                _ => args.other(elem)?,
            }
        }
        let Some(ids) = ids else { return Err(args.missing("cursors")) };
        let (mut killed, mut unknown) = (Vec::new(), Vec::new());
        for id in ids {
            let list = if invocation.server.cursors.kill(id) { &mut killed } else { &mut unknown };
            list.push(Value::Int64(id));
        }
        let out = &mut invocation.reply;
        out.put_value("cursorsKilled", &Value::array(killed));
        out.put_value("cursorsNotFound", &Value::array(unknown));
        out.put_value("cursorsAlive", &Value::array([]));
        out.put_value("cursorsUnknown", &Value::array([]));
        Ok(())
    })
}
