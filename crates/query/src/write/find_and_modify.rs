//! Find-and-modify: one document, changed or removed, and what it was or is.

use super::WriteOutcome;
use super::delete::delete_one;
use super::targets::{Targets, Verdict};
use super::update::{UpdateStatement, is_on_filtered_fields, update_one, upsert};
use kauri_base::{ErrorCode, OperationContext, Result};
use kauri_bson::{DocBuf, Value};
use kauri_catalog::KeyScratch;

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
    let mut done = Modified::default();
    let mut scratch = KeyScratch::default();
    targets
        .for_each(op, &mut |target| {
            let verdict = delete_one(targets, &target, &mut scratch, outcome)?;
            if verdict == Verdict::Done {
                done.value = Some(target.doc.to_buf());
                done.existing = true;
            }
            Ok(verdict)
        })
        .await?;
    Ok(done)
}

/// Updates the first target, or inserts. `want_new`: the document as it is afterwards.
pub async fn find_and_update(
    op: &mut OperationContext,
    statement: &UpdateStatement<'_>,
    want_new: bool,
    outcome: &mut WriteOutcome,
) -> Result<Modified> {
    let mut scratch = KeyScratch::default();
    let mut retried = false;
    loop {
        let mut done = Modified::default();
        statement
            .targets
            .for_each(op, &mut |target| {
                let mut new = None;
                let (verdict, _) =
                    update_one(statement, &target, &mut scratch, outcome, &mut |doc| {
                        new = want_new.then(|| doc.to_buf());
                        Ok(())
                    })?;
                if verdict == Verdict::Done {
                    done.existing = true;
                    done.value = if want_new { new } else { Some(target.doc.to_buf()) };
                }
                Ok(verdict)
            })
            .await?;
        if done.existing || !statement.upsert {
            return Ok(done);
        }
        match upsert(op, statement, &mut scratch, outcome).await {
            Ok(doc) => {
                done.upserted = Some(doc.as_doc().value("_id").into_owned());
                done.value = want_new.then_some(doc);
                return Ok(done);
            }
            Err(error)
                if error.code() == ErrorCode::DuplicateKey
                    && !retried
                    && is_on_filtered_fields(&error, statement) =>
            {
                retried = true;
                op.yield_now().await?;
            }
            Err(error) => return Err(error),
        }
    }
}
