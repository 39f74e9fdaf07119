//! Units of a replicated log: appended first, visible after the replicated log reports them as committed.
//!
//! A pending unit is in the engine's log and as durable as any other unit, but readers do not see its changes. A
//! version that it replaces stays until the unit commits. The unit claims its records and unique keys, so another
//! unit that changes them gets `WriteConflict`. The replicated log assigns positions; the engine only keeps their
//! order.
//!
//! Pending units change documents only: a unit that changes definitions is refused with `Unsupported`. A commit
//! that creates an index on a collection with pending changes gets `WriteConflict`, because the resulting keys are
//! not known yet. (MongoDB's `createIndexes` waits for prepared transactions.)

use crate::commit_ticket::CommitTicket;
use crate::error::StorageError;
use crate::unit::WriteUnit;
use kauri_base::CommitSeq;

/// A place in a replicated log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LogPosition {
    /// The term.
    pub term: u64,
    /// The index.
    pub index: u64,
}

/// A unit that has been appended and not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingUnit {
    /// Its position.
    pub position: LogPosition,
    /// The version of its records.
    pub seq: CommitSeq,
    /// Number of its records in the log.
    pub records: usize,
}

/// See the module's head.
pub trait PendingLog: Send + Sync {
    /// Appends a unit after all pending ones, with the checks of [`crate::StorageEngine::commit`]. An index that is
    /// not above theirs is refused with `OutOfOrder`. Inserts get their ids. Readers see nothing of the unit. Its
    /// expected definitions must hold now; if a collection is dropped before the unit commits, that part of the
    /// unit is dropped, too.
    fn append(
        &self,
        unit: &mut WriteUnit<'_>,
        position: LogPosition,
    ) -> Result<CommitTicket, StorageError>;

    /// Commits the pending units up to this index, in order and as a whole. When it returns, readers
    /// that enter see them all.
    fn commit_up_to(&self, index: u64) -> Result<CommitTicket, StorageError>;

    /// Drops the pending units above this index.
    fn truncate_after(&self, index: u64) -> Result<CommitTicket, StorageError>;

    /// The position of the last committed unit.
    fn committed(&self) -> LogPosition;

    /// The pending units, in order; after a start, those in the log after the last commit that the log reports.
    fn pending(&self) -> Vec<PendingUnit>;
}
