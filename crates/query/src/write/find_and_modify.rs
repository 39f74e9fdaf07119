//! Find-and-modify: one document, changed or removed, and what it was or is.

use super::WriteOutcome;
use super::delete::delete_and_show;
use super::targets::Targets;
use super::update::{Shown, UpdateStatement, update};
use kauri_base::{OperationContext, Result};
use kauri_bson::{DocBuf, Value};

/// What a find-and-modify did.
#[derive(Default, Debug)]
pub struct Modified {
    /// The document that the client asked for: as it was, or as it is.
    pub value: Option<DocBuf>,
    /// Whether a document was updated or removed.
    pub existing: bool,
    /// The `_id` of the document that was inserted.
    pub upserted: Option<Value<'static>>,
}

/// Removes the first target.
pub async fn find_and_remove(
    op: &mut OperationContext,
    targets: &Targets<'_>,
    outcome: &mut WriteOutcome,
) -> Result<Modified> {
    let reached = delete_and_show(op, targets, true, outcome).await?;
    Ok(Modified { existing: reached.matched > 0, value: reached.shown, upserted: None })
}

/// Updates the first target, or inserts. `want_new`: the document as it is afterwards.
pub async fn find_and_update(
    op: &mut OperationContext,
    statement: &UpdateStatement<'_>,
    want_new: bool,
    outcome: &mut WriteOutcome,
) -> Result<Modified> {
    let shown = if want_new { Shown::New } else { Shown::Old };
    let done = update(op, statement, shown, outcome).await?;
    Ok(Modified { existing: done.matched > 0, value: done.shown, upserted: done.upserted })
}
