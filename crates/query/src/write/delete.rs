//! Deleting documents.

use super::WriteOutcome;
use super::retry::{Attempt, attempt};
use super::targets::{Target, Targets, Verdict};
use kauri_base::{OperationContext, Result};
use kauri_catalog::KeyScratch;
use kauri_storage::WriteUnit;

/// Deletes the targets; returns how many there were.
pub async fn delete(
    op: &mut OperationContext,
    targets: &Targets<'_>,
    outcome: &mut WriteOutcome,
) -> Result<u64> {
    let mut deleted = 0;
    let mut scratch = KeyScratch::default();
    targets
        .for_each(op, &mut |target| {
            let verdict = delete_one(targets, &target, &mut scratch, outcome)?;
            deleted += u64::from(verdict == Verdict::Done);
            Ok(verdict)
        })
        .await?;
    Ok(deleted)
}

pub(super) fn delete_one(
    targets: &Targets<'_>,
    target: &Target<'_>,
    scratch: &mut KeyScratch,
    outcome: &mut WriteOutcome,
) -> Result<Verdict> {
    let mut unit = WriteUnit::new();
    target.collection.delete(&mut unit, target.record, target.version, target.doc, scratch)?;
    let result = targets.catalog.committer().commit(&mut unit);
    match attempt(result, target.collection)? {
        Attempt::Committed(ticket) => {
            outcome.committed(ticket);
            Ok(Verdict::Done)
        }
        Attempt::Again => Ok(Verdict::Conflict),
    }
}
