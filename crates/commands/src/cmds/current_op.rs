//! `currentOp`: running operations.

use super::aggregate_server::ServerFacts;
use super::find::matcher;
use crate::args::is_generic;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_bson::DocBuf;
use kauri_query::pipeline::server_info::{CurrentOpOptions, ServerInfo};

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    ..Command::admin("currentOp", "lists running operations", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        // All fields but those of the command itself are a filter. `$ownOps` leaves out what is of other users,
        // and without authentication there are none. `$truncateOps` counts with test commands only, as in MongoDB.
        let filter = DocBuf::build(|out| {
            let fields = invocation.body.iter().skip(1);
            for elem in fields.filter(|e| !is_generic(e.key())) {
                if !matches!(elem.key(), "$all" | "$ownOps" | "$truncateOps") {
                    out.put_elem(elem);
                }
            }
        });
        let env = invocation.query_env();
        let filter = matcher(filter.as_doc(), &env)?;
        let cx = kauri_matcher::MatchCx::with_eval(env.eval_cx());
        let body = invocation.body;
        let tests = invocation.server.parameters.flag("enableTestCommands");
        let options = CurrentOpOptions {
            idle_connections: body.value("$all").truthy(),
            truncate_ops: !tests || body.get("$truncateOps").is_none_or(|e| e.value().truthy()),
            ..CurrentOpOptions::default()
        };
        let server = invocation.server;
        let rows = ServerFacts(server.clone()).operations(options);
        {
            let mut list = invocation.reply.array("inprog");
            for row in rows {
                let shown = match &filter {
                    Some(filter) => filter.matches(row.as_doc(), &cx)?,
                    None => true,
                };
                if shown {
                    list.push_doc(row.as_doc());
                }
            }
        }
        if server.fsync_lock.is_locked() {
            invocation.reply.put("fsyncLock", true);
            invocation
                .reply
                .put("info", "use db.fsyncUnlock() to terminate the fsync write/snapshot lock");
        }
        Ok(())
    })
}
