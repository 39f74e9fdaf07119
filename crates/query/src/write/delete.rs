//! Deletes documents.

use super::WriteOutcome;
use super::targets::{Effect, Reached, Targets};
use kauri_base::Result;
use kauri_catalog::KeyScratch;
use kauri_storage::Operation;

/// Deletes the targets; returns how many there were.
pub async fn delete(
    op: &mut Operation,
    targets: &Targets<'_>,
    outcome: &mut WriteOutcome,
) -> Result<u64> {
    Ok(delete_and_show(op, targets, false, outcome).await?.matched)
}

/// Deletes the targets; `show`: gives the last one back.
pub(super) async fn delete_and_show(
    op: &mut Operation,
    targets: &Targets<'_>,
    show: bool,
    outcome: &mut WriteOutcome,
) -> Result<Reached> {
    let mut scratch = KeyScratch::default();
    let mut reached = Reached::default();
    targets
        .change(
            op,
            &mut |target, unit| {
                let (record, version) = (target.record, target.version);
                target.collection.delete(unit, record, version, target.doc, &mut scratch)?;
                let shown = show.then(|| target.doc.to_buf());
                Ok(Effect { changed: true, bytes: 0, shown })
            },
            &mut reached,
            outcome,
        )
        .await?;
    Ok(reached)
}
