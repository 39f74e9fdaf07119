//! `getCmdLineOpts`: how the server was started.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command = Command {
    admin_only: true,
    ..Command::new("getCmdLineOpts", "tells how the server was started", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("getCmdLineOpts");
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        let start = &invocation.server.start;
        let argv = Value::array(start.argv.iter().map(Value::from));
        invocation.reply.put_value("argv", &argv);
        invocation.reply.put("parsed", &start.parsed);
        Ok(())
    })
}
