//! The staging file: a copy puts commits into the kernel; they are stored to the log later, many at once.
//!
//! The staging file is a ring. At the end of a worker's tick, the bytes appended since the last tick are copied
//! into it, as one entry per segment ([`CommitStaging::put_since`]). The flusher stores bytes to the log before the
//! ring is full; stored bytes free space in the ring ([`CommitStaging::stored`]). If the process dies, opening the
//! directory replays entries that the log lacks ([`replay`]).
//!
//! Invariants:
//! - Bytes acknowledged as written are in the log's file, or in entries that are not overwritten before the bytes
//!   are in the log's file. An entry is released when everything appended before the entry is stored.
//! - Staging continues where it ended, or where storing ended: there is no gap between two entries.
//! - An entry is replayed only if the segment still has the entry's epoch. Within an epoch each place of a segment
//!   gets its bytes once, so replaying an old entry, even repeatedly, changes nothing. After a power loss the file
//!   may have any entries or parts of entries; CRCs identify the parts.
//! - Durability never depends on the staging file: it is not synced.
//! - A thread that copies into the ring may wait for the kernel, which faults in a page that it has written back.
//!   No other thread waits for it: a thread that finds the ring locked leaves a request, and all other state is
//!   read without the lock.
//!
//! A log in persistent memory has no staging file.

mod replay;
#[cfg(test)]
mod tests;

use crate::format::STAGING_FILE;
use crate::format::meta::Meta;
use crate::format::segment::Position;
use crate::format::staging::{
    STAGED_ALIGN, STAGED_BYTES_MAX, STAGING_HEADER_BYTES, StagedAt, StagedSeed,
};
use crate::head::AppendedSegment;
use crate::options::Options;
use crate::{lock, try_lock};
use kauri_base::log::{self, Attr};
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_base::sync::{Mutex, MutexGuard};
use kauri_medium::{Directory, Error, Guard, IoKind, Staging};
use kauri_storage::StorageError;

pub use replay::{Overlay, replay};

/// Bytes of the file: few, so that they stay in the processor's cache; some ten milliseconds' nevertheless,
/// which the flusher may take to get a processor where all have work.
const BYTES: u64 = 4 << 20;
/// So much is stored at once, if the flusher gets a processor in time: longer it would keep a worker from its own.
const STORE_BYTES: u64 = 128 << 10;
/// Maximum part of the memory for documents, which cannot evict unstored bytes.
const CACHE_PART: u64 = 16;
/// With a limited log, its maximum part of the log, or [`BYTES_OF_SMALL`] if that is more.
const LOG_PART: u64 = 2048;
const BYTES_OF_SMALL: u64 = 1 << 20;
/// Fewer are not worth it.
const BYTES_MIN: u64 = 16 << 10;

/// The file while the engine is open.
pub struct CommitStaging {
    putting: Mutex<Putting>,
    /// The position of the next entry. Positions grow forever.
    tail: AtomicU64,
    /// Before this nothing is needed.
    freed: AtomicU64,
    /// Everything before this is stored.
    stored: Mutex<Position>,
    /// Bytes for entries.
    len: u64,
    /// Whether the flusher was told that the file fills up.
    told: AtomicBool,
}

/// The state of the one thread that puts.
pub struct Putting {
    memory: Box<dyn Staging>,
    seed: StagedSeed,
    guard: Guard,
    /// Everything before this is staged or stored.
    staged: Position,
    /// The bytes to be staged, kept for their memory.
    appended: Vec<AppendedSegment>,
}

/// Size of the file for a log with these options; 0: none.
pub fn bytes_for(options: &Options) -> u64 {
    let of_log = match options.bytes_max {
        0 => BYTES,
        bytes => (bytes / LOG_PART).clamp(BYTES_OF_SMALL, BYTES),
    };
    of_log.min(options.cache_bytes / CACHE_PART) / BYTES_MIN * BYTES_MIN
}

impl CommitStaging {
    /// A new file of this size, if possible: a log in memory needs none, and without one commits are stored to the
    /// log before they are acknowledged. The contents of an older file are in the log by now.
    pub fn create(
        directory: &dyn Directory,
        (meta, number): (&Meta, u64),
        bytes: u64,
        (guard, staged): (Guard, Position),
    ) -> Result<Option<Self>, StorageError> {
        let mut contents = vec![0; bytes as usize];
        if let Some(header) = contents.first_chunk_mut() {
            *header = StagedSeed::header(&meta.directory, number);
        }
        let memory = match directory.create_staging(STAGING_FILE, &contents) {
            Ok(memory) => memory,
            Err(Error::Unsupported) => return Ok(None),
            Err(error @ (Error::NoSpace | Error::Io { kind: IoKind::Open, .. })) => {
                let message = "Staging file unavailable: commits go to the log directly. The staging file \
                               needs 4 MB of disk and of locked memory (ulimit -l), on a file system \
                               that maps files and writes them in place";
                let attr = Attr::new().str("error", error.to_string());
                log::info("STORAGE", 6_200_022, "initandlisten", message, attr);
                return Ok(None);
            }
            Err(error) => return Err(crate::io_error(error)),
        };
        let seed = StagedSeed::new(&meta.directory, number);
        let len = memory.len().saturating_sub(STAGING_HEADER_BYTES) as u64;
        Ok(Some(CommitStaging {
            putting: Mutex::new(Putting { memory, seed, guard, staged, appended: Vec::new() }),
            tail: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            stored: Mutex::new(staged),
            len,
            told: AtomicBool::new(false),
        }))
    }

    /// Puts an entry behind the others, if there is room for it.
    fn put(&self, memory: &mut dyn Staging, header: &[u8], bytes: &[u8]) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        let taken = (header.len() + bytes.len()).next_multiple_of(STAGED_ALIGN) as u64;
        let to_end = self.len - tail % self.len;
        // Entries lie in one piece.
        let start = if taken <= to_end { tail } else { tail + to_end };
        let end = start + taken;
        let at = STAGING_HEADER_BYTES + (start % self.len) as usize;
        let has_room = end - self.freed.load(Ordering::Acquire) <= self.len;
        let put = has_room && memory.put(at, &[header, bytes]);
        if put {
            self.tail.store(end, Ordering::Release);
        }
        put
    }

    /// Puts everything that `appended` describes, or nothing that counts.
    fn put_all(&self, putting: &mut Putting) -> bool {
        let Putting { memory, seed, guard, staged, appended } = putting;
        let mut bytes_left = STAGED_BYTES_MAX;
        let mut from = *staged;
        for appended in &*appended {
            // The next segment's header was stored when it was opened.
            let offset = if appended.epoch == from.epoch { from.offset } else { 0 };
            let Ok((offset, bytes)) = appended.storer.unstored(guard, offset) else {
                return false;
            };
            // More at once are stored: to copy them first would gain nothing.
            if bytes.len() > bytes_left {
                return false;
            }
            bytes_left -= bytes.len();
            from = Position { epoch: appended.epoch, offset: offset + bytes.len() as u32 };
            let at = StagedAt { segment: appended.storer.segment(), epoch: appended.epoch, offset };
            if !bytes.is_empty() && !self.put(&mut **memory, &at.encode(*seed, bytes), bytes) {
                return false;
            }
        }
        *staged = from;
        true
    }

    /// Begins to put; none while another thread does.
    pub fn begin(&self) -> Option<MutexGuard<'_, Putting>> {
        try_lock(&self.putting)
    }

    /// While this is held nobody puts.
    pub fn pause(&self) -> MutexGuard<'_, Putting> {
        lock(&self.putting)
    }

    /// Puts everything that has been appended so far, which `appended_since` a place the head tells, with the last
    /// commit in it. Answers that commit, or none if it can't be done now.
    pub fn put_since(
        &self,
        putting: &mut Putting,
        appended_since: impl FnOnce(Position, &mut Vec<AppendedSegment>) -> Option<u64>,
    ) -> Option<u64> {
        putting.staged = putting.staged.max(*lock(&self.stored));
        // Before the segments are asked for: so they stay.
        putting.guard.enter();
        let seq = appended_since(putting.staged, &mut putting.appended);
        let seq = seq.filter(|_| self.put_all(putting));
        putting.guard.leave();
        putting.appended.clear();
        seq
    }

    /// Whether storing should make room.
    pub fn fills(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    /// Read before the head's position is read: what is no longer needed after that was stored.
    pub fn mark(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Everything before `position` is stored, and so is what entries before `mark` hold.
    pub fn stored(&self, mark: u64, position: Position) {
        let mut stored = lock(&self.stored);
        *stored = (*stored).max(position);
        drop(stored);
        self.freed.fetch_max(mark, Ordering::AcqRel);
        self.told.store(false, Ordering::Relaxed);
    }

    /// Whether storing should free space, and the flusher was not told so.
    pub fn begins_to_fill(&self) -> bool {
        let used = self.tail.load(Ordering::Relaxed) - self.freed.load(Ordering::Relaxed);
        used > STORE_BYTES.min(self.len / 4) && !self.told.swap(true, Ordering::Relaxed)
    }
}
