//! Units of a replicated log: appended first, visible once the log says that they are committed.
//!
//! A pending unit is in the engine's log, as durable as any, but changes nothing that readers see: a
//! version that it replaces stays until it commits. It claims its records and unique keys, so that
//! a unit which would change them too gets `WriteConflict` until then. Positions are given by the
//! replicated log; the engine only keeps them in order.
//!
//! Pending units change documents only: definitions in them are refused with `Unsupported`. A commit
//! that creates an index on a collection which pending units change gets `WriteConflict`, since nobody
//! knows yet which of its keys they will take. (MongoDB's `createIndexes` waits for prepared
//! transactions.)

use crate::engine::CommitTicket;
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
    /// Its place.
    pub position: LogPosition,
    /// What its versions will be called.
    pub seq: CommitSeq,
    /// How many records it has in the log.
    pub records: usize,
}

/// See the module's head.
pub trait PendingLog: Send + Sync {
    /// Appends a unit, checked as [`crate::StorageEngine::commit`] does, behind all before it: an
    /// index that is not above theirs is refused with `OutOfOrder`. Inserts get their ids. Readers
    /// see nothing of it. What it expects of definitions must hold now; a collection that is dropped
    /// before it commits takes its part of the unit along.
    fn append(
        &self,
        unit: &mut WriteUnit<'_>,
        position: LogPosition,
    ) -> Result<CommitTicket, StorageError>;

    /// Commits the pending units up to this index, in order and as a whole. When it returns, readers
    /// that enter see them all.
    fn commit_up_to(&self, index: u64) -> Result<CommitTicket, StorageError>;

    /// Drops the pending units above this index: they will never have been.
    fn truncate_after(&self, index: u64) -> Result<CommitTicket, StorageError>;

    /// Where the last unit stands that was committed.
    fn committed(&self) -> LogPosition;

    /// The units that are pending, in order; after a start those that the log holds behind the last
    /// commit that it tells of.
    fn pending(&self) -> Vec<PendingUnit>;
}
