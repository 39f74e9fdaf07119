//! What all parts of an open engine share: the parts, each with its own state that only its module changes.
//!
//! Locks, in the order in which they may be taken: a replicated log's order, definitions (`Registry::lock_ddl`),
//! collections' latches by id, the cleaner's round, opening a segment, sealing, syncing, storing (`Flushing`), the
//! head. Then the short locks under which no other lock is taken: the horizon, staged bytes, `files`, the marks'
//! slots, the registry's maps, segments, waiters. The list of held snapshots, then a collection's old versions,
//! also come after the head. I/O happens only under the cleaner's round, opening, sealing, syncing, storing and the
//! mark file's own locks, never under a latch or the head's mutex.

use crate::acks::Acks;
use crate::cleaning::Cleaning;
use crate::counters::Counters;
use crate::data_directory::DataDirectory;
use crate::durability::Durability;
use crate::files::Files;
use crate::flushing::Flushing;
use crate::frames::Frames;
use crate::head::{Head, Surroundings};
use crate::memory::Memory;
use crate::options::Options;
use crate::pending_units::PendingUnits;
use crate::plan::Scratches;
use crate::registry::Registry;
use crate::segments::Segments;
use crate::snapshots::Snapshots;
use crate::staging::CommitStaging;
use crate::start::Start;
use crate::verified::Verified;
use crate::wake::Wake;
use kauri_base::CommitSeq;
use kauri_base::sync::{Arc, Weak};
use kauri_medium::{EpochDomain, SegmentCache};
use kauri_storage::{Claims, StorageError};

/// See the module's head.
pub struct Core {
    /// Itself, for what outlives a call.
    pub weak: Weak<Core>,
    /// As opened, with the directory's own segment size.
    pub options: Options,
    /// The data directory with its files.
    pub directory: DataDirectory,
    /// Guards and what waits for them.
    pub domain: Arc<EpochDomain>,
    /// The log in memory.
    pub cache: SegmentCache,
    /// Which large documents need no check.
    pub verified: Verified,
    /// The segments.
    pub segments: Segments,
    /// Stores and indexes.
    pub registry: Registry,
    /// Where user writes go, in which order, and which of them are visible.
    pub head: Head,
    /// What is durable, and how far marks and the cleaner may go.
    pub durability: Durability,
    /// Which commits are written and durable, and who waits for that.
    pub acks: Arc<Acks>,
    /// How far user writes are with the kernel.
    pub flushing: Flushing,
    /// The staging file; none if it is unavailable.
    pub staging: Option<CommitStaging>,
    /// Held snapshots.
    pub snapshots: Snapshots,
    /// Units of a replicated log that wait to be committed.
    pub pending: PendingUnits,
    /// Frames of a replicated log.
    pub frames: Frames,
    /// Claims of transactions.
    pub claims: Arc<Claims>,
    /// The threads that change files, and whether files are locked.
    pub files: Files,
    /// The cleaner.
    pub cleaner: Cleaning,
    /// Wakes the preparer's thread.
    pub preparer: Wake,
    /// What commits work with.
    pub scratches: Scratches,
    /// Scarcity of memory.
    pub memory: Memory,
    /// What recovery found, until indexes have been attached.
    pub start: Start,
    /// Figures.
    pub counters: Counters,
}

impl Core {
    /// The last commit that readers see.
    #[inline]
    pub fn visible(&self) -> CommitSeq {
        CommitSeq(self.head.visible())
    }

    /// Fails if nothing more may be acknowledged.
    #[inline]
    pub fn check_alive(&self) -> Result<(), StorageError> {
        self.acks.check_alive()
    }

    /// The medium failed: nothing more is acknowledged. Answers the error to give.
    pub fn fail(&self, what: &str, error: impl std::fmt::Display) -> StorageError {
        self.acks.fail(what, error)
    }

    /// What an append looks at; `acknowledges`: whether a unit that is durable is acknowledged at once.
    #[inline]
    pub fn surroundings(&self, acknowledges: bool) -> Surroundings<'_> {
        Surroundings {
            files: &self.files,
            acks: &self.acks,
            durability: &self.durability,
            segments: &self.segments,
            preparer: &self.preparer,
            is_direct: self.cache.is_direct(),
            acknowledges,
            mark_interval_bytes: self.options.mark_interval_bytes,
        }
    }
}
