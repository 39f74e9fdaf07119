//! The traits of an engine.

use crate::claims::Claims;
use crate::error::StorageError;
use crate::pending::PendingLog;
use crate::scan::{IndexScan, RecordScan};
use crate::staged::Staged;
use crate::unit::WriteUnit;
use kauri_base::{Access, CollectionId, CommitSeq, IndexId, RecordId, Ticket, work};
use kauri_bson::{Doc, DocWriter};
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

    /// The record store of this collection; `None` if there is none (any more).
    fn record_store(&self, id: CollectionId) -> Option<Arc<dyn RecordStore>>;

    /// The index, `None` if there is none (any more).
    fn index(&self, id: IndexId) -> Option<Arc<dyn SortedDataInterface>>;

    /// All record stores that exist, with the number of the definition each is at. For the start.
    fn stores(&self) -> Vec<CollectionId>;

    /// Attaches an index that the catalog knows of to the engine that was just opened, before any
    /// write. An engine that keeps no index images rebuilds it here from the records. A duplicate
    /// in a unique index is `Corruption`. Several may be attached at once by different threads.
    fn attach_index(
        &self,
        collection: CollectionId,
        spec: IndexSpec,
        generator: Arc<dyn KeyGenerator>,
    ) -> Result<(), StorageError>;

    /// As [`StorageEngine::attach_index`] for each of a collection's indexes, in one go: an engine that
    /// has to look at the documents does that once for all of them.
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
    /// - `WriteConflict`: a record is not in the version that was seen, or gone; or the engine can't
    ///   tell without waiting for the medium. Whoever reads the record again meets that wait there,
    ///   where it holds nothing.
    /// - `DuplicateKey`: once the unit is applied, another record would have the same unique key.
    ///   Reported only of a unit that has neither of the above, since keys made from an outdated
    ///   document are no ground for refusing it.
    fn commit(&self, unit: &mut WriteUnit<'_>) -> Result<CommitTicket, StorageError>;

    /// Answers as [`StorageEngine::commit`] would, and changes nothing. For transactions, which ask
    /// while they stage.
    fn check(&self, _unit: &WriteUnit<'_>) -> Result<(), StorageError> {
        Err(StorageError::Unsupported("transactions"))
    }

    /// What running transactions have claimed. `commit` and `check` refuse units that meet another's
    /// claim, seen in the same step as the versions. `None`: no transactions.
    fn claims(&self) -> Option<&Arc<Claims>> {
        None
    }

    /// The interface for a replicated log's units.
    fn pending_log(&self) -> Result<&dyn PendingLog, StorageError> {
        Err(StorageError::Unsupported("pending units of a replicated log"))
    }

    /// Hands everything committed so far to the operating system, so that it outlives the process, or
    /// leaves that to another thread that is at it: a commit's ticket tells when it is there. Called at
    /// the end of a worker's tick; one call serves all commits before it. Must be quick when there is
    /// nothing to do.
    fn flush(&self);

    /// Blocks until everything committed so far is durable (`fsync`, shutdown).
    fn sync(&self) -> Result<(), StorageError>;

    /// Memory has become short, or is no longer. May be called at any time, by any thread. An engine that
    /// can't use less ignores it.
    fn set_memory(&self, _room: MemoryRoom) {}

    /// Whether what adds to memory is refused at the moment. Who has not begun yet may wait instead.
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

/// What the memory that a server may have leaves for its engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRoom {
    /// Most bytes for documents in memory. The engine has a limit of its own besides.
    pub cache_bytes: u64,
    /// How short memory is, from 0 (enough) to 1: the more, the longer writes are held up.
    pub scarcity: f64,
    /// Nothing that adds to what is in memory is admitted.
    pub full: bool,
    /// Bytes that indexes may grow by until the engine is told of memory again; `u64::MAX` for no limit. What would
    /// take more at once is refused, so that it can't fill memory between two looks at it.
    pub free_bytes: u64,
}

/// Space on the medium, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Occupied by the engine's files.
    pub used: u64,
    /// Size of the file system.
    pub fs_total: u64,
    /// Used of the file system by anybody.
    pub fs_used: u64,
}

/// Background work of an engine.
pub struct Maintenance {
    /// The thread's name.
    pub name: &'static str,
    /// Does what there is to do, then waits for more until told to stop; returns when
    /// `stop.load()`. The engine wakes it through [`Maintenance::wake`].
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

    /// Reads the newest state again, from the next `enter` on. Forgets what was staged. Not while
    /// entered.
    fn release_snapshot(&mut self) {}

    /// Whether a snapshot is held.
    fn is_held(&self) -> bool {
        self.staged().is_some()
    }

    /// What only this unit sees, on top of its held snapshot. `None` unless one is held.
    fn staged(&self) -> Option<&Staged> {
        None
    }

    /// For transactions: the same, to add to it. `None` unless a snapshot is held.
    fn staged_mut(&mut self) -> Option<&mut Staged> {
        None
    }

    /// For the engine's own stores.
    fn as_any(&self) -> &dyn Any;
}

/// A version of a record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'g> {
    /// The document's bytes.
    pub doc: Doc<'g>,
    /// The commit that wrote it.
    pub version: CommitSeq,
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

/// An ordered index: a set of (key, record id), ordered by key bytes, then id. One that was dropped, by
/// itself or with its collection, answers [`StorageError::Dropped`], as a [`RecordStore`] does.
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

/// An index's definition, as far as an engine needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Its id.
    pub id: IndexId,
    /// Whether its keys are unique (unless a [`crate::KeyChange`] says otherwise).
    pub unique: bool,
}

/// Makes the keys of an index from a document.
pub trait KeyGenerator: Send + Sync {
    /// Calls `emit(key, type_bits)` for each key of the document.
    fn generate(&self, doc: Doc<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> kauri_base::Result<()>;

    /// A number for the definition that keys are made by: equal ones make equal keys of a document,
    /// in every version of this program. `None`: an engine must not keep an image of the index, since
    /// it is still being built.
    fn image_tag(&self) -> Option<u64> {
        None
    }

    /// Whether the keys of a document are made of its `_id` alone: those of a document that has nothing
    /// else are the same.
    fn is_of_id(&self) -> bool {
        false
    }

    /// What has been learned by generating keys of the index's documents. An image keeps it.
    fn learned(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over what another generator of this definition has learned.
    fn learn(&self, _learned: &[u8]) {}
}

/// When a commit may be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// It outlives the process.
    Written,
    /// It outlives a power cut.
    Durable,
}

/// A commit that is visible, and the tickets to wait for before acknowledging it.
#[derive(Clone)]
pub struct CommitTicket {
    /// Its place in the commit sequence.
    pub seq: CommitSeq,
    written: Option<Ticket>,
    durable: Option<Ticket>,
}

impl CommitTicket {
    /// `None`: nothing to wait for.
    pub fn new(seq: CommitSeq, written: Option<Ticket>, durable: Option<Ticket>) -> Self {
        CommitTicket { seq, written, durable }
    }

    /// The ticket for this durability; `None` if it is reached already.
    pub fn ticket(&self, durability: Durability) -> Option<&Ticket> {
        match durability {
            Durability::Written => self.written.as_ref(),
            Durability::Durable => self.durable.as_ref(),
        }
    }

    /// Blocks the thread until then. For tests and tools.
    pub fn wait(&self, durability: Durability) -> kauri_base::Result<()> {
        self.ticket(durability).map_or(Ok(()), Ticket::wait)
    }
}

/// Where every mutation goes: documents, definitions, TTL, capped eviction, `$out`. Today the local
/// log; with replication, consensus.
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
