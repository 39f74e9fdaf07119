//! What to do when a commit finds that something has changed.

use kauri_base::{OperationContext, Result};
use kauri_catalog::Collection;
use kauri_storage::{CommitTicket, StorageError};

/// The outcome of an attempt to commit.
pub enum Attempt {
    /// It is committed.
    Committed(CommitTicket),
    /// Something was changed by others: read again, compute again.
    Again,
}

/// Sorts out what a commit answered.
pub fn attempt(
    result: Result<CommitTicket, StorageError>,
    collection: &Collection,
) -> Result<Attempt> {
    match result {
        Ok(ticket) => Ok(Attempt::Committed(ticket)),
        Err(StorageError::WriteConflict | StorageError::StaleCatalog(_)) => Ok(Attempt::Again),
        Err(error) => Err(collection.explain_commit_error(error)),
    }
}

/// Before the next attempt: lets others run (the one that was in the way among them), and ends if
/// the operation is to end.
pub async fn before_next_attempt(op: &mut OperationContext) -> Result<()> {
    op.yield_now().await
}
