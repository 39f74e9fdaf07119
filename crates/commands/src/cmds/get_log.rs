//! `getLog`: the newest log lines.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{bail, log};
use kauri_bson::Value;

/// See the module's head.
pub const COMMAND: Command = Command::admin("getLog", "returns the newest log lines", run);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("getLog");
        let Some(name) = args.given(invocation.target()?, Args::string)? else {
            return Err(args.missing("getLog"));
        };
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        let out = &mut invocation.reply;
        let (lines, written) = match name.as_str() {
            "*" => {
                let names = ["global", "startupWarnings"].map(Value::from);
                out.put_value("names", &Value::array(names));
                return Ok(());
            }
            "global" => (log::recent_lines(), log::lines_written()),
            "startupWarnings" => {
                let lines = log::startup_warnings();
                let count = lines.len() as u64;
                (lines, count)
            }
            other => bail!(OperationFailed, "No log named '{other}'"),
        };
        out.put("totalLinesWritten", written as i32);
        let mut log = out.array("log");
        lines.iter().for_each(|line| log.push(line));
        Ok(())
    })
}
