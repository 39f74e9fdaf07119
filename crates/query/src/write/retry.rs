//! Retries after a conflicting commit.

use kauri_base::{Result, Ticket};
use kauri_catalog::Collection;
use kauri_storage::{CommitTicket, Operation, StorageError, WriteUnit};

/// The outcome of an attempt to commit.
pub enum Attempt {
    /// It is committed.
    Committed(CommitTicket),
    /// Something was changed by others: read again, compute again.
    Again(Retry),
}

/// When to try again.
#[derive(Default)]
pub struct Retry {
    /// The end of the transaction that has claimed something of the unit.
    claim: Option<Ticket>,
}

impl Retry {
    /// Waits for who was in the way: the end of a transaction, or else a turn for the others. Fails if the operation
    /// is to end.
    pub async fn wait(self, op: &mut Operation) -> Result<()> {
        match self.claim {
            Some(claim) => op.wait(claim).await,
            None => op.yield_now().await,
        }
    }
}

/// Commits a unit of this collection's documents.
pub fn attempt(
    op: &mut Operation,
    unit: &mut WriteUnit<'_>,
    collection: &Collection,
) -> Result<Attempt> {
    let result = op.scope().commit(unit);
    sort_out(op, unit, collection, result)
}

/// What comes of a commit's answer.
pub fn sort_out(
    op: &mut Operation,
    unit: &WriteUnit<'_>,
    collection: &Collection,
    result: Result<CommitTicket, StorageError>,
) -> Result<Attempt> {
    match result {
        Ok(ticket) => Ok(Attempt::Committed(ticket)),
        Err(StorageError::WriteConflict) => {
            Ok(Attempt::Again(Retry { claim: op.scope().in_the_way(unit) }))
        }
        Err(StorageError::StaleCatalog(_)) => Ok(Attempt::Again(Retry::default())),
        Err(error) => Err(collection.explain_commit_error(error)),
    }
}
