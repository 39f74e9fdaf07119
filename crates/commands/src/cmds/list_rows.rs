//! Replies of commands that list things through a cursor: `listCollections`, `listIndexes`.

use crate::args::Args;
use crate::cursors::Tailing;
use crate::invocation::Invocation;
use crate::reply::{NewCursor, open_cursor};
use kauri_base::Result;
use kauri_bson::{DocBuf, Elem};
use kauri_catalog::Namespace;
use kauri_query::exec::PlanExecutor;
use kauri_query::exec::rows::Rows;

/// `cursor: {batchSize}`; `None` if it says nothing.
pub fn batch_size(command: &str, elem: Elem<'_>) -> Result<Option<u64>> {
    let Some(cursor) = Args::new(command).given(elem, Args::object)? else { return Ok(None) };
    let path = format!("{command}.cursor");
    let args = Args::new(&path);
    let mut size = None;
    for option in cursor {
        match option.key() {
            "batchSize" => size = args.given(option, Args::count)?,
            other => return Err(args.unknown(other)),
        }
    }
    Ok(size)
}

/// Opens a cursor over these rows. Without a batch size all go into the first batch.
pub async fn reply(
    invocation: &mut Invocation<'_>,
    ns: Namespace,
    rows: Vec<DocBuf>,
    batch_size: Option<u64>,
) -> Result<()> {
    let ru = invocation.server.catalog.engine().recovery_unit();
    let executor = PlanExecutor::new(Box::new(Rows::new(rows)), ru, invocation.query_env());
    let new = NewCursor {
        ns,
        collection: None,
        tailing: Tailing::No,
        no_timeout: false,
        first_batch: batch_size.unwrap_or(u64::MAX),
        single_batch: false,
    };
    open_cursor(invocation, executor, new).await
}
