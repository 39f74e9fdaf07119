//! What all parts of an open engine share.
//!
//! Locks, in the order in which they may be taken: `pending.order`, `registry.ddl`, collections'
//! latches by id, `cleaner`, `preparing`, `sealing`, `syncing`, `flushing`, `head`, then the short ones that take no other
//! (`durable`, what is staged, the marks' slots, the registry's maps, segments, waiters); the list of held snapshots, then a collection's
//! old versions, also come behind `head`. I/O happens under `cleaner`, `preparing`,
//! `sealing`, `syncing`, `flushing` and the mark file's own locks only, never under a latch or the head's mutex.

use crate::acks::Acks;
use crate::attach::Recovered;
use crate::cleaner::Cleaner;
use crate::collection::{Collection, Registry};
use crate::commit::Scratch;
use crate::flush::Flushing;
use crate::format::Stream;
use crate::format::meta::Meta;
use crate::format::segment::{CleanerPositions, Horizon};
use crate::head::Head;
use crate::images::Images;
use crate::kick::Kick;
use crate::lock;
use crate::marks::Marks;
use crate::memory::Memory;
use crate::options::Options;
use crate::pending::PendingUnits;
use crate::segments::Segments;
use crate::snapshots::Snapshots;
use crate::staging::StagingArea;
use crate::status::Counters;
use crate::verified::Verified;
use kauri_base::CommitSeq;
use kauri_base::log::{self, Attr, Severity};
use kauri_base::sync::atomic::{AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex};
use kauri_medium::{Directory, DirectoryLock, EpochDomain, Faults, Medium, SegmentCache};
use kauri_storage::{Claims, StorageError};

/// See the module's head.
pub struct Core {
    /// As opened, with the directory's own segment size.
    pub options: Options,
    /// The data directory.
    pub directory: Arc<dyn Directory>,
    /// Keeps other servers out; given back by a clean shutdown.
    pub directory_lock: Mutex<Option<DirectoryLock>>,
    /// Faults that tests set.
    pub faults: Arc<Faults>,
    /// The log file.
    pub medium: Arc<dyn Medium>,
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
    /// Where user writes go.
    pub head: Mutex<Head>,
    /// The last commit that readers see.
    pub visible: AtomicU64,
    /// Held snapshots.
    pub snapshots: Snapshots,
    /// Units of a replicated log that wait to be committed.
    pub pending: PendingUnits,
    /// What transactions are about to change.
    pub claims: Arc<Claims>,
    /// Who waits for what.
    pub acks: Arc<Acks>,
    /// Held while a segment is opened, by either stream.
    pub preparing: Mutex<()>,
    /// Held while bytes are given to the kernel.
    pub flushing: Mutex<Flushing>,
    /// Up to which commit that was asked for by who did not wait for it.
    pub flush_asked: AtomicU64,
    /// What commits are in before they are in the log's file; none where that can't be had.
    pub staging: Option<StagingArea>,
    /// What is durable, told on the medium; none where that can't be had.
    pub marks: Option<Marks>,
    /// Held while full segments are sealed.
    pub sealing: Mutex<()>,
    /// Held while a drain runs for those who wait.
    pub syncing: Mutex<()>,
    /// What is durable.
    pub durable: Mutex<Horizon>,
    /// How far the cleaner's streams are with the kernel.
    pub cleaner_written: Mutex<CleanerPositions>,
    /// The cleaner.
    pub cleaner: Mutex<Cleaner>,
    /// Wakes the cleaner's thread.
    pub cleaner_kick: Kick,
    /// Wakes the preparer's thread.
    pub ahead_kick: Kick,
    /// Wakes writers that wait for free segments.
    pub freed_kick: Kick,
    /// Dropped stores whose records still count as live.
    pub reap: Mutex<Vec<Arc<Collection>>>,
    /// The epoch of the next segment that is opened.
    pub epoch_next: AtomicU64,
    /// The metadata file's contents.
    pub meta: Mutex<Meta>,
    /// What commits work with, kept for the next ones.
    pub scratch: Mutex<Vec<Scratch>>,
    /// How short memory is.
    pub memory: Memory,
    /// Index images that were found.
    pub images: Mutex<Images>,
    /// What recovery has read of segments, until indexes have been attached.
    pub recovered: Mutex<Arc<Recovered>>,
    /// Figures.
    pub counters: Counters,
}

impl Core {
    /// The last commit that readers see.
    pub fn visible(&self) -> CommitSeq {
        CommitSeq(self.visible.load(Ordering::Acquire))
    }

    /// Fails if nothing more may be acknowledged.
    #[inline]
    pub fn check_alive(&self) -> Result<(), StorageError> {
        match self.acks.failure() {
            None => Ok(()),
            Some(message) => Err(StorageError::Io(message.to_owned())),
        }
    }

    /// The medium failed: nothing more is acknowledged. Answers the error to give.
    pub fn fail(&self, what: &str, error: impl std::fmt::Display) -> StorageError {
        let message = format!("{what}: {error}");
        if self.acks.fail(&message) {
            log::line(
                Severity::Fatal,
                "STORAGE",
                6_200_001,
                "pmlog",
                "The log can't be written; no further writes are accepted",
                Attr::new().str("error", &message),
            );
        }
        StorageError::Io(message)
    }

    /// What is durable.
    pub fn horizon(&self) -> Horizon {
        if self.cache.is_direct() {
            return self.horizon_at(&lock(&self.head));
        }
        self.horizon_noted()
    }

    /// As [`Core::horizon`], by who has the head, before appending to it.
    pub fn horizon_at(&self, head: &Head) -> Horizon {
        if self.cache.is_direct() {
            // All that was appended before is published, and so it is durable.
            let cleaner = *lock(&self.cleaner_written);
            let mut durable = lock(&self.durable);
            durable.seq = head.seq();
            durable.raise_stream(Stream::User, head.position());
            durable.raise_cleaner(&cleaner);
        }
        self.horizon_noted()
    }

    fn horizon_noted(&self) -> Horizon {
        let mut horizon = *lock(&self.durable);
        horizon.segments = horizon.segments.max(self.segments.initialised());
        horizon
    }
}
