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
//! Beyond that an engine may offer, each answered with `Unsupported` where it doesn't: *held
//! snapshots* ([`RecoveryUnit::hold_snapshot`]); with them, [`StorageEngine::check`] and
//! [`StorageEngine::claims`], *transactions* ([`Transaction`], the same for all engines: they stage
//! into the recovery unit, whose reads engines correct through [`Staged`]); and *pending units* of a
//! replicated log ([`PendingLog`]). [`conformance`] has cases for each: `conformance_snapshot_tests`,
//! `conformance_transaction_tests`, `conformance_pending_tests`.
//!
//! Engines don't know what a key means, what a query is, or who asks. [`conformance`] is the suite
//! that every engine passes; [`ephemeral`] is the simple in-memory engine that serves tests as an
//! oracle.

pub mod claims;
pub mod conformance;
pub mod engine;
pub mod ephemeral;
pub mod error;
pub mod pending;
pub mod scan;
pub mod staged;
pub mod transaction;
pub mod unit;

pub use claims::Claims;
pub use engine::{
    CommitTicket, Committer, Durability, IndexSpec, KeyGenerator, LocalCommitter, Maintenance,
    MemoryRoom, Record, RecordStore, RecordStoreStats, RecoveryUnit, SortedDataInterface, Space,
    StorageEngine,
};
pub use ephemeral::EphemeralEngine;
pub use error::StorageError;
pub use kauri_base::{Access, CollectionId, CommitSeq, IndexId, RecordId, Ticket};
pub use pending::{LogPosition, PendingLog, PendingUnit};
pub use scan::{Direction, IndexBatch, IndexEntry, IndexScan, RecordScan};
pub use staged::Staged;
pub use transaction::Transaction;
pub use unit::{KeyChange, OpKind, WriteOp, WriteUnit};
