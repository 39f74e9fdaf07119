//! `dropDatabase`.

use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Definitions, Run};
use kauri_base::bail;
use kauri_base::log::{self, Attr};

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    definitions: Definitions::OfDatabase,
    settles_profile: true,
    ..Command::define("dropDatabase", "drops a database", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("dropDatabase");
        let target = invocation.target()?;
        let Some(one) = args.given(target, Args::long)? else {
            return Err(args.missing("dropDatabase"));
        };
        if one != 1 {
            bail!(5255100, "Have to pass 1 as 'dropDatabase' parameter");
        }
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        let db = invocation.db;
        if db == "admin" || db == "config" {
            bail!(IllegalOperation, "Cannot drop '{db}' database");
        }
        // Before, so that the profiler makes no collection of the database anew.
        invocation.server.profiling.forget(db);
        let Some(ticket) = invocation.server.catalog.drop_database(invocation.op.scope(), db)?
        else {
            return Ok(());
        };
        let attr = Attr::new().str("db", db);
        log::info("COMMAND", 51601, "-", "Dropped a database", attr);
        invocation.wait_for_commit(Some(ticket)).await
    })
}
