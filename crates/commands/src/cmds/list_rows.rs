//! Replies of commands that list rows through a cursor: `listCollections`, `listIndexes`.

use crate::args::Args;
use crate::cursors::Tailing;
use crate::invocation::Invocation;
use crate::reply::{NewCursor, open_cursor};
use kauri_base::Result;
use kauri_bson::{Doc, DocBuf, Elem};
use kauri_catalog::Namespace;
use kauri_matcher::{Matcher, ParseCx, Place};
use kauri_query::exec::rows::Rows;
use kauri_query::exec::{PlanExecutor, QueryEnv};

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

/// The filter of a command that lists things, ready to match; `None` if it lets everything through. `$$NOW` has no
/// value there, as in MongoDB.
pub fn filter(filter: Doc<'_>, env: &QueryEnv) -> Result<Option<Matcher>> {
    if filter.is_empty() {
        return Ok(None);
    }
    let vars = env.scope.clone();
    let expressions = kauri_expr::ParseCx { vars, lacks_now: true, ..Default::default() };
    let cx = ParseCx::new(Place::Aggregation).with_expressions(&expressions);
    Matcher::parse(filter, &cx).map(Some)
}

/// Opens a cursor over these rows. Without a batch size all go into the first batch.
pub async fn reply(
    invocation: &mut Invocation<'_>,
    ns: Namespace,
    rows: Vec<DocBuf>,
    batch_size: Option<u64>,
) -> Result<()> {
    let count = rows.len() as u64;
    let executor = PlanExecutor::new(Box::new(Rows::new(rows)), invocation.query_env());
    let new = NewCursor {
        ns,
        collection: None,
        tailing: Tailing::No,
        log: None,
        no_timeout: false,
        // What fits into the first batch leaves no cursor behind.
        first_batch: batch_size.filter(|size| *size < count).unwrap_or(u64::MAX),
        single_batch: false,
    };
    open_cursor(invocation, executor, new).await
}
