//! `getCmdLineOpts`: the command line and options of the server.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::server::Server;
use kauri_bson::{DocWriter, Value};

/// See the module's head.
pub const COMMAND: Command = Command {
    ..Command::admin("getCmdLineOpts", "returns the command line and options of the server", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("getCmdLineOpts");
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        write(invocation.server, &mut invocation.reply);
        Ok(())
    })
}

/// Writes what it tells.
pub fn write(server: &Server, out: &mut DocWriter<'_>) {
    let argv = Value::array(server.start.argv.iter().map(Value::from));
    out.put_value("argv", &argv);
    out.put("parsed", &server.start.parsed);
}
