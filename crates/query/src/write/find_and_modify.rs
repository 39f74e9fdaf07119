//! Find-and-modify: changes or removes one document, and returns it before or after the change.

use super::WriteOutcome;
use super::delete::delete_and_show;
use super::targets::Targets;
use super::update::{Shown, UpdateStatement, update};
use kauri_base::Result;
use kauri_bson::{DocBuf, Value};
use kauri_storage::Operation;

/// The result of a find-and-modify.
#[derive(Default, Debug)]
pub struct Modified {
    /// The document that the client requested: before or after the change.
    pub value: Option<DocBuf>,
    /// Whether a document was updated or removed.
    pub existing: bool,
    /// Documents that differ now.
    pub modified: u64,
    /// The `_id` of the document that was inserted.
    pub upserted: Option<Value<'static>>,
}

impl Modified {
    /// Whether there was anything to commit.
    pub fn has_changed(&self) -> bool {
        self.modified > 0 || self.upserted.is_some()
    }
}

/// Removes the first target.
pub async fn find_and_remove(
    op: &mut Operation,
    targets: &Targets<'_>,
    outcome: &mut WriteOutcome,
) -> Result<Modified> {
    let reached = delete_and_show(op, targets, true, outcome).await?;
    let existing = reached.matched > 0;
    Ok(Modified {
        existing,
        modified: reached.changed,
        value: reached.shown,
        ..Modified::default()
    })
}

/// Updates the first target, or inserts. `want_new`: the document as it is afterwards.
pub async fn find_and_update(
    op: &mut Operation,
    statement: &UpdateStatement<'_>,
    want_new: bool,
    outcome: &mut WriteOutcome,
) -> Result<Modified> {
    let shown = if want_new { Shown::New } else { Shown::Old };
    let done = update(op, statement, shown, outcome).await?;
    Ok(Modified {
        existing: done.matched > 0,
        modified: done.modified,
        value: done.shown,
        upserted: done.upserted,
    })
}
