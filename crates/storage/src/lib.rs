//! The storage engine interface.
//!
//! A [`StorageEngine`] has record stores (documents under dense ids), ordered indexes (byte strings that point to
//! records) and one commit sequence. Readers use a [`RecoveryUnit`]. Writers collect a [`WriteUnit`] and commit it
//! as a whole. No call blocks: a read returns [`Access::WouldBlock`] with a ticket, a commit returns a
//! [`CommitTicket`].
//!
//! Concurrency control is optimistic. A unit names the version of each record and the definition of each collection
//! that it was computed from. A commit that finds another version or definition changes nothing and returns
//! `WriteConflict` or `StaleCatalog`. Then the statement is computed again.
//!
//! An engine may support more; otherwise it returns `Unsupported`. *Held snapshots*:
//! [`RecoveryUnit::hold_snapshot`]. *Transactions*: held snapshots, [`StorageEngine::check`] and
//! [`StorageEngine::claims`]. [`Transaction`] is the same for all engines: it adds to the recovery unit's
//! [`WriteSet`], which engines apply to its reads. *Pending units* of a replicated log: [`PendingLog`]. *Frames*,
//! the entries of a replicated log that is the engine's own: [`ReplicatedLog`]. The crate `conformance` has cases for
//! each.
//!
//! An engine must not know what a key means, what a query is, or who the client is. Every engine passes the suite
//! in the crate `conformance`. [`ephemeral`] is a simple in-memory engine that tests use as an oracle.

pub mod backend;
pub mod claims;
pub mod commit_ticket;
pub mod engine;
pub mod ephemeral;
pub mod error;
pub mod index_spec;
pub mod log_copy;
pub mod pending_log;
pub mod record;
pub mod replicated_log;
pub mod scan;
pub mod scope;
pub mod transaction;
pub mod unit;
pub mod watches;
pub mod write_set;

pub use backend::Backend;
pub use claims::Claims;
pub use commit_ticket::{CommitTicket, Durability};
pub use engine::{
    Committer, HeldFiles, LocalCommitter, Maintenance, MemoryRoom, RecordStore, RecordStoreStats,
    RecoveryUnit, SortedDataInterface, Space, StorageEngine, find_by_scan,
};
pub use ephemeral::EphemeralEngine;
pub use error::StorageError;
pub use index_spec::{IndexSpec, KeyGenerator};
pub use kauri_base::{Access, CollectionId, CommitSeq, IndexId, RecordId, Ticket};
pub use log_copy::{CopyPart, LogCopy};
pub use pending_log::{LogPosition, PendingLog, PendingUnit};
pub use record::Record;
pub use replicated_log::{
    AppliedChange, AppliedKind, AppliedUnits, Frame, FrameRange, FrameRecord, ReplicatedLog,
    RoomWanted, Truncated,
};
pub use scan::{Direction, IndexBatch, IndexEntry, IndexScan, RecordScan};
pub use scope::{Entered, Operation, Scope};
pub use transaction::Transaction;
pub use unit::{KeyChange, Label, NumberedWrite, OpKind, WriteOp, WriteUnit};
pub use watches::Watch;
pub use write_set::WriteSet;
