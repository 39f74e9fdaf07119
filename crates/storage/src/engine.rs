//! The traits of an engine.

use crate::claims::Claims;
use crate::commit_ticket::CommitTicket;
use crate::error::StorageError;
use crate::index_spec::{IndexSpec, KeyGenerator};
use crate::log_copy::LogCopy;
use crate::pending_log::PendingLog;
use crate::record::Record;
use crate::replicated_log::ReplicatedLog;
use crate::scan::{Direction, IndexScan, RecordScan};
use crate::unit::WriteUnit;
use crate::write_set::WriteSet;
use kauri_base::{Access, CollectionId, CommitSeq, IndexId, RecordId, work};
use kauri_bson::DocWriter;
use std::any::Any;
use std::sync::Arc;

/// A storage engine. One per data directory; shared by all workers.
pub trait StorageEngine: Send + Sync {
    /// The name in `--storageEngine` and `serverStatus`.
    fn name(&self) -> &'static str;

    /// Whether calls may block the thread. Such an engine is run on threads of its own.
    fn may_block(&self) -> bool {
        false
    }

    /// A new reader's context. Cheap; one per operation or cursor.
    fn recovery_unit(&self) -> Box<dyn RecoveryUnit>;

    /// The record store of this collection; `None` if it does not exist (any more).
    fn record_store(&self, id: CollectionId) -> Option<Arc<dyn RecordStore>>;

    /// The index; `None` if it does not exist (any more).
    fn index(&self, id: IndexId) -> Option<Arc<dyn SortedDataInterface>>;

    /// All record stores that exist, with the number of the definition each is at. For the start.
    fn stores(&self) -> Vec<CollectionId>;

    /// Attaches an index of the catalog to the engine that was just opened, before any write. An engine without
    /// index images rebuilds the index from the records. A duplicate in a unique index is `Corruption`. Several
    /// threads may attach different indexes at once.
    fn attach_index(
        &self,
        collection: CollectionId,
        spec: IndexSpec,
        generator: Arc<dyn KeyGenerator>,
    ) -> Result<(), StorageError>;

    /// Calls [`StorageEngine::attach_index`] for all indexes of a collection: an engine that reads the documents
    /// does so once for all of them.
    fn attach_indexes(
        &self,
        collection: CollectionId,
        indexes: &[(IndexSpec, Arc<dyn KeyGenerator>)],
    ) -> Vec<Result<(), StorageError>> {
        let attach = |(spec, generator): &(IndexSpec, Arc<dyn KeyGenerator>)| {
            self.attach_index(collection, *spec, generator.clone())
        };
        indexes.iter().map(attach).collect()
    }

    /// The number of a collection's definition, for `WriteUnit::expect_definition`. Goes up by
    /// one with each `ChangeDefinition`; `None` if the collection is gone.
    fn definition_number(&self, id: CollectionId) -> Option<u64>;

    /// Commits a unit as a whole, or changes nothing. When this returns, readers that enter see it;
    /// what it takes until it may be acknowledged is the ticket's business. Ids of inserts are
    /// written into the unit.
    ///
    /// - `StaleCatalog`: a definition is not the expected one; a store or an index that the unit
    ///   uses is gone, or one that it creates is there.
    /// - `FilesHeld`: see [`StorageEngine::hold_files`].
    /// - `WriteConflict`: a record is not in the version that was seen, or gone; or the engine can't
    ///   tell without waiting for the medium. Whoever reads the record again meets that wait there,
    ///   where it holds nothing.
    /// - `DuplicateKey`: once the unit is applied, another record would have the same unique key.
    ///   Reported only of a unit that has neither of the above, since keys made from an outdated
    ///   document are no ground for refusing it.
    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError>;

    /// Answers as [`StorageEngine::commit`] would, and changes nothing. For transactions, which ask
    /// while they write.
    fn check(&self, _unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        Err(StorageError::Unsupported("transactions"))
    }

    /// Claims of running transactions. `commit` and `check` refuse units that conflict with another owner's claim,
    /// checked in the same step as the versions. `None`: no transactions.
    fn claims(&self) -> Option<&Arc<Claims>> {
        None
    }

    /// The interface for a replicated log's units.
    fn pending_log(&self) -> Result<&dyn PendingLog, StorageError> {
        Err(StorageError::Unsupported("pending units of a replicated log"))
    }

    /// The engine's log as the log of a replica set.
    fn replicated_log(&self) -> Result<&dyn ReplicatedLog, StorageError> {
        Err(StorageError::Unsupported("frames of a replicated log"))
    }

    /// The newest commit that readers see, for callers that promise that what they read survives a power loss.
    /// `None`: every commit does, or none ever does.
    fn newest(&self) -> Option<CommitTicket> {
        None
    }

    /// The newest commit that readers see, without a ticket. For members of replica sets.
    fn visible(&self) -> CommitSeq {
        self.newest().map_or(CommitSeq(0), |newest| newest.seq)
    }

    /// Writes everything committed so far to the operating system, so that it survives the process, or leaves that
    /// to a thread that does it already: a commit's ticket reports completion. Called at the end of a worker's
    /// tick; one call serves all commits before it. Must be quick without work.
    fn flush(&self);

    /// Blocks until everything committed so far is durable (`fsync`, shutdown).
    fn sync(&self) -> Result<(), StorageError>;

    /// Holds the engine's files still, so that they can be copied one by one. Blocks until every commit so far
    /// is durable in them and no background work moves what a copy needs. From then on, and until the last
    /// [`HeldFiles`] is dropped, the copy of the files opens as the engine is now. Commits that would change
    /// something answer `FilesHeld` as soon as this is called; readers go on.
    fn hold_files(&self) -> Result<HeldFiles, StorageError>;

    /// Begins a copy of the engine's files while writes go on. Blocks until every commit so far is durable.
    fn copy_log(&self) -> Result<Box<dyn LogCopy>, StorageError> {
        Err(StorageError::Unsupported("copies of the log while writes go on"))
    }

    /// Memory has become short, or is no longer. May be called at any time, by any thread. An engine that
    /// can't use less ignores it.
    fn set_memory(&self, _room: MemoryRoom) {}

    /// Whether writes that need memory are refused at the moment. An operation that has not begun may wait instead.
    fn is_full(&self) -> bool {
        false
    }

    /// Work that needs threads: syncing, cleaning, evicting. The server runs each on a thread of
    /// its own; a simulation calls them itself.
    fn maintenance(&self) -> Vec<Maintenance>;

    /// Writes the engine's section of `serverStatus` (fields of a document named like the engine).
    fn write_status(&self, out: &mut DocWriter<'_>);

    /// Bytes that the engine occupies on its medium, and bytes that are left for it.
    fn space(&self) -> Space;
}

/// Holds an engine's files still until it is dropped.
pub struct HeldFiles(Option<Box<dyn FnOnce() + Send>>);

impl HeldFiles {
    /// Calls `let_go` when it is dropped.
    pub fn new(let_go: impl FnOnce() + Send + 'static) -> Self {
        HeldFiles(Some(Box::new(let_go)))
    }
}

impl Drop for HeldFiles {
    fn drop(&mut self) {
        if let Some(let_go) = self.0.take() {
            let_go();
        }
    }
}

/// The memory that a server leaves to its engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRoom {
    /// Most bytes for documents in memory. The engine has a limit of its own besides.
    pub cache_bytes: u64,
    /// Scarcity of memory, from 0 (enough) to 1: the higher, the more writes are throttled.
    pub scarcity: f64,
    /// Writes that need memory are refused.
    pub full: bool,
    /// Bytes by which indexes may grow until the next report; `u64::MAX` for no limit. A larger growth is refused,
    /// so that memory cannot fill up between two reports.
    pub free_bytes: u64,
}

/// Space on the medium, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Occupied by the engine's files.
    pub used: u64,
    /// Size of the file system.
    pub fs_total: u64,
    /// Used bytes of the file system, by all users.
    pub fs_used: u64,
}

/// Background work of an engine.
pub struct Maintenance {
    /// The thread's name.
    pub name: &'static str,
    /// Does the pending work, then waits for more; returns when `stop.load()`. The engine wakes it through
    /// [`Maintenance::wake`].
    pub run: Box<dyn FnMut(&std::sync::atomic::AtomicBool) + Send>,
    /// Wakes `run` (to notice `stop`).
    pub wake: Box<dyn Fn() + Send + Sync>,
}

/// A reader's context: what it sees, and what keeps the bytes that it was given in place.
///
/// Between `enter` and `leave` documents that stores return stay valid (the borrow checker sees to
/// it: they borrow the unit, and `leave` wants it exclusively). Whoever waits for anything leaves
/// first. A unit that is entered holds back only the reuse of memory and space, never a writer.
///
/// A reader sees at least all that was committed before it entered. An engine may show a record in
/// a newer version: `Record::version` then exceeds `snapshot`, and a caller that came by an index
/// must check again that the document satisfies its bounds and filter.
///
/// A unit may *hold* its snapshot, over many `enter`s and `leave`s. What it reads is then exactly the
/// state at that commit, in records, scans and indexes alike, except that a collection whose
/// definition has changed since (created, dropped, [`crate::OpKind::ChangeDefinition`]), or an index
/// that was created or dropped since, answers `SnapshotUnavailable`. Counts and sizes
/// ([`RecordStore::stats`], [`SortedDataInterface::entries`]) are always the current ones.
pub trait RecoveryUnit: Send {
    /// Takes a snapshot and a pin.
    fn enter(&mut self);

    /// Gives both up.
    fn leave(&mut self);

    /// Whether it is entered.
    fn is_entered(&self) -> bool;

    /// The commits that the reader is sure to see. Only while entered.
    fn snapshot(&self) -> CommitSeq;

    /// Holds the current state until [`RecoveryUnit::release_snapshot`] (or until the unit is
    /// dropped), and answers its commit. Holding keeps old versions: an engine that has to keep too
    /// many gives the oldest snapshots up, which then answer `SnapshotTooOld`. A snapshot that was held
    /// before is released. Not while entered.
    fn hold_snapshot(&mut self) -> Result<CommitSeq, StorageError> {
        Err(StorageError::Unsupported("held snapshots"))
    }

    /// Reads the newest state again, from the next `enter` on. Forgets the write set. Not while
    /// entered.
    fn release_snapshot(&mut self) {}

    /// Whether a snapshot is held.
    fn is_held(&self) -> bool {
        self.write_set().is_some()
    }

    /// The changes that only this unit sees, on top of its held snapshot. `None` without a held snapshot.
    fn write_set(&self) -> Option<&WriteSet> {
        None
    }

    /// For transactions: the same, to add to it. `None` unless a snapshot is held.
    fn write_set_mut(&mut self) -> Option<&mut WriteSet> {
        None
    }

    /// For the engine's own stores.
    fn as_any(&self) -> &dyn Any;
}

/// The documents of one collection.
///
/// A store that was dropped answers [`StorageError::Dropped`] to every call, from the commit of the drop
/// on, to readers that entered before it as well. An answer without that error is a whole one: the store
/// was there until the answer was complete. A reader that holds a snapshot gets `SnapshotUnavailable`.
pub trait RecordStore: Send + Sync {
    /// The collection.
    fn id(&self) -> CollectionId;

    /// The record's document as `ru` sees it; `None` if it has none. Fails with `Corruption` if the
    /// stored bytes don't have the checksum they were stored with.
    fn get<'g>(
        &self,
        ru: &'g dyn RecoveryUnit,
        id: RecordId,
    ) -> Result<Access<Option<Record<'g>>>, StorageError>;

    /// Fills the scan's batch with the next ids that may have a document.
    fn fill(
        &self,
        ru: &dyn RecoveryUnit,
        scan: &mut RecordScan,
    ) -> Result<Access<()>, StorageError>;

    /// Counts and sizes, kept up to date with each commit.
    fn stats(&self) -> Result<RecordStoreStats, StorageError>;

    /// The engine's own figures of the store: the name of its section in `collStats`, and the fields.
    fn engine_stats(&self) -> Option<(&'static str, Vec<(&'static str, u64)>)> {
        None
    }
}

/// Figures of a record store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordStoreStats {
    /// Documents.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes on the medium, headers included.
    pub storage_bytes: u64,
}

/// An ordered index: a set of (key, record id), ordered by key bytes, then id. After a drop of the index or its
/// collection it returns [`StorageError::Dropped`], as a [`RecordStore`] does.
pub trait SortedDataInterface: Send + Sync {
    /// The index.
    fn id(&self) -> IndexId;

    /// The first record that has exactly this key.
    fn find(
        &self,
        ru: &dyn RecoveryUnit,
        key: &[u8],
    ) -> Result<Access<Option<RecordId>>, StorageError>;

    /// Fills the scan's batch with the next entries of its range.
    fn fill(&self, ru: &dyn RecoveryUnit, scan: &mut IndexScan)
    -> Result<Access<()>, StorageError>;

    /// The number of entries.
    fn entries(&self) -> Result<u64, StorageError>;

    /// Bytes it occupies, in memory or on the medium.
    fn bytes(&self) -> Result<u64, StorageError>;
}

/// For engines: [`SortedDataInterface::find`] by way of [`SortedDataInterface::fill`].
pub fn find_by_scan(
    index: &dyn SortedDataInterface,
    ru: &dyn RecoveryUnit,
    key: &[u8],
) -> Result<Access<Option<RecordId>>, StorageError> {
    // Exactly this key: no other is between it and itself with a zero behind it.
    let mut behind = Vec::with_capacity(key.len() + 1);
    behind.extend_from_slice(key);
    behind.push(0);
    let mut scan = IndexScan::new(Direction::Forward, key.to_vec(), behind);
    let filled = index.fill(ru, &mut scan)?;
    Ok(filled.map(|()| scan.next_buffered().map(|entry| entry.record)))
}

/// The path of every change: documents, definitions, TTL, capped eviction, `$out`. Today the local log; with
/// replication, consensus.
pub trait Committer: Send + Sync {
    /// As [`StorageEngine::commit`].
    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError>;
}

/// Commits to the local engine.
pub struct LocalCommitter(pub Arc<dyn StorageEngine>);

impl Committer for LocalCommitter {
    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError> {
        // Under the engine's locks, and for memory that is the engine's.
        work::unmetered(|| self.0.commit(unit))
    }
}
