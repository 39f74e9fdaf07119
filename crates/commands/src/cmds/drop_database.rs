//! `dropDatabase`.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_base::bail;
use kauri_base::log::{self, Attr};

/// See the module's head.
pub const COMMAND: Command = Command {
    access: Access::Write,
    api_v1: true,
    ..Command::new("dropDatabase", "drops a database", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("dropDatabase");
        let target = invocation.target()?;
        if target.value().as_i64_exact() != Some(1) {
            if !target.value().is_number() {
                let expected = ["int", "decimal", "double", "long"];
                return Err(args.wrong_type(target, &expected));
            }
            bail!(5255100, "Have to pass 1 as 'dropDatabase' parameter");
        }
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        let db = invocation.db;
        if db == "admin" || db == "config" {
            bail!(IllegalOperation, "Cannot drop '{db}' database");
        }
        let Some(ticket) = invocation.server.catalog.drop_database(db)? else { return Ok(()) };
        invocation.server.cursors.kill_where(|ns, _| ns.database() == db);
        let attr = Attr::new().str("db", db);
        log::info("COMMAND", 51601, "-", "Dropped a database", attr);
        invocation.reply.put("dropped", db);
        invocation.wait_for_commit(Some(ticket)).await
    })
}
