//! The storage engine interface.
//!
//! A [`StorageEngine`] keeps record stores (documents under dense ids), ordered indexes (byte
//! strings that point to records) and one commit sequence. Readers go through a [`RecoveryUnit`];
//! writers collect a [`WriteUnit`] and commit it as a whole. Nothing here blocks: reads answer
//! [`Access::WouldBlock`] with a ticket, commits answer a [`CommitTicket`].
//!
//! Control of concurrency is optimistic. A unit says which version of each record and which
//! definition of each collection it was computed from; a commit that finds another one changes
//! nothing and answers `WriteConflict` or `StaleCatalog`, and the statement is computed anew.
//!
//! Engines don't know what a key means, what a query is, or who asks. [`conformance`] is the suite
//! that every engine passes; [`ephemeral`] is the simple in-memory engine that serves tests as an
//! oracle.

pub mod conformance;
pub mod engine;
pub mod ephemeral;
pub mod error;
pub mod scan;
pub mod unit;

pub use engine::{
    CommitTicket, Committer, Durability, IndexSpec, KeyGenerator, LocalCommitter, Maintenance,
    Record, RecordStore, RecordStoreStats, RecoveryUnit, SortedDataInterface, Space, StorageEngine,
};
pub use ephemeral::EphemeralEngine;
pub use error::StorageError;
pub use kauri_base::{Access, CollectionId, CommitSeq, IndexId, RecordId, Ticket};
pub use scan::{Direction, IndexBatch, IndexEntry, IndexScan, RecordScan};
pub use unit::{KeyChange, OpKind, WriteOp, WriteUnit};
