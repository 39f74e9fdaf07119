//! Identifiers and times that several layers use.

use std::fmt;

/// A collection's number in the engine. Never reused, not even after a drop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CollectionId(pub u32);

impl CollectionId {
    /// The collection that holds the catalog itself, one document for each collection.
    pub const CATALOG: CollectionId = CollectionId(0);
}

/// An ordered index's number in the engine. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IndexId(pub u32);

/// A record's number in its collection: dense, ascending in the order of insertion, never reused.
/// The first one is 1; 0 stands before all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RecordId(pub u64);

/// A place in the one commit sequence of an engine. A reader at `CommitSeq(n)` sees all commits up
/// to and with `n`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct CommitSeq(pub u64);

/// BSON's timestamp: seconds since 1970 and an ordinal within the second.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: u32,
    /// Ordinal within the second.
    pub increment: u32,
}

/// A place in the replicated log: a Raft term and a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct OpTime {
    /// The term, compared first.
    pub term: i64,
    /// The timestamp.
    pub timestamp: Timestamp,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({})", self.0)
    }
}
