//! `currentOp`: the operations that run.

use super::find::matcher;
use crate::args::is_generic;
use crate::invocation::Invocation;
use crate::ops;
use crate::registry::{Access, Command, Run};
use kauri_bson::DocBuf;
use std::sync::atomic::Ordering;

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Read,
    admin_only: true,
    ..Command::new("currentOp", "lists the operations that run", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        // All fields but those of the command itself are a filter.
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
        let own = invocation.body.value("$ownOps").truthy();
        let server = invocation.server;
        let now_ms = server.clock.unix_ms();
        let mut rows = Vec::new();
        server.operations.for_each(|running| {
            if !own || running.connection == invocation.session.id {
                rows.push(ops::describe(running, &server.start.host, now_ms));
            }
        });
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
        if server.fsync_locks.load(Ordering::Acquire) > 0 {
            invocation.reply.put("fsyncLock", true);
            invocation
                .reply
                .put("info", "use db.fsyncUnlock() to terminate the fsync write/snapshot lock");
        }
        Ok(())
    })
}
