//! A pipeline's rows in batches, for the stages that write them.

use crate::exec::{Ended, Flow, PlanExecutor};
use kauri_base::Result;
use kauri_bson::DocBuf;
use kauri_storage::Operation;

const BATCH_DOCS: usize = 1000;
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// The next rows, and whether they are the last ones. No reader is at work when this returns.
pub async fn next_batch(
    op: &mut Operation,
    rows: &mut PlanExecutor,
) -> Result<(Vec<DocBuf>, bool)> {
    let mut docs = Vec::new();
    let mut bytes = 0;
    let ended = rows
        .for_each(op, &mut |row| {
            bytes += row.doc().as_bytes().len();
            docs.push(row.doc().to_buf());
            let full = docs.len() >= BATCH_DOCS || bytes >= BATCH_BYTES;
            Ok(if full { Flow::Stop } else { Flow::Continue })
        })
        .await?;
    Ok((docs, ended == Ended::Exhausted))
}
