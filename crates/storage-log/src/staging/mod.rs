//! The staging file: commits are with the kernel by a copy, and stored to the log later and many at once.
//!
//! It is used round and round. At the end of a worker's tick the bytes that have been appended since the
//! last time go into it as one entry for each segment ([`Core::stage_what_is_asked`]). The flusher
//! stores to the log before it is full, and whatever is stored makes room ([`Core::unstage`]). If the process dies,
//! opening the directory puts into the log what entries hold and it lacks ([`replay`]).
//!
//! Invariants:
//! - What is acknowledged as written is in the log's file, or in entries that are not overwritten before it is:
//!   entries are given up when all that had been appended when they were put is stored.
//! - Staging goes on where it ended, or where storing did: nothing is left out between two entries.
//! - An entry is put into the log only where the segment still has the epoch that it had. In one life of a
//!   segment a place gets its bytes once, so an old entry changes nothing, however often it is put there; and
//!   after a loss of power the file may hold any of them, or parts, which their CRCs tell.
//! - Durability never rests on it: it is not synced.
//! - Who puts may have to wait for the kernel, which asks for a page again that it has written back. Nobody waits
//!   for him: whoever finds the ring taken leaves word ([`Core::flush`]), and all else is read without it.
//!
//! A log in persistent memory has none.

mod replay;
#[cfg(test)]
mod tests;

use crate::core::Core;
use crate::format::STAGING_FILE;
use crate::format::meta::Meta;
use crate::format::segment::Position;
use crate::format::staging::{
    STAGED_ALIGN, STAGED_BYTES_MAX, STAGING_HEADER_BYTES, StagedAt, StagedSeed,
};
use crate::head::Appended;
use crate::options::Options;
use crate::{lock, try_lock};
use kauri_base::log::{self, Attr};
use kauri_base::sync::Mutex;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use kauri_medium::{Directory, Error, Guard, IoKind, Staging};
use kauri_storage::StorageError;

pub use replay::{Overlay, replay};

/// Bytes of the file: few, so that they stay in the processor's cache; some ten milliseconds' nevertheless,
/// which the flusher may take to get a processor where all have work.
const BYTES: u64 = 4 << 20;
/// So much is stored at once, if the flusher gets a processor in time: longer it would keep a worker from its own.
const STORE_BYTES: u64 = 128 << 10;
/// It takes at most this part of the memory for documents, which can't give back what is not stored.
const CACHE_PART: u64 = 16;
/// Of a log with a limit it takes at most this part beside it, or [`BYTES_OF_SMALL`] if that is more.
const LOG_PART: u64 = 2048;
const BYTES_OF_SMALL: u64 = 1 << 20;
/// Fewer are not worth it.
const BYTES_MIN: u64 = 16 << 10;

/// The file while the engine is open.
pub struct StagingArea {
    putting: Mutex<Putting>,
    /// Where the next entry goes. Places count on for ever.
    tail: AtomicU64,
    /// Before this nothing is needed.
    freed: AtomicU64,
    /// Everything before this is stored.
    stored: Mutex<Position>,
    /// Bytes for entries.
    len: u64,
    /// Whether the flusher has been told that it fills.
    told: AtomicBool,
}

/// What one thread at a time puts with.
struct Putting {
    memory: Box<dyn Staging>,
    seed: StagedSeed,
    guard: Guard,
    /// Everything before this is staged or stored.
    staged: Position,
    /// What is to be staged, kept for its memory.
    appended: Vec<Appended>,
}

/// How large a file there should be beside a log with these options; 0: none.
pub fn bytes_for(options: &Options) -> u64 {
    let of_log = match options.bytes_max {
        0 => BYTES,
        bytes => (bytes / LOG_PART).clamp(BYTES_OF_SMALL, BYTES),
    };
    of_log.min(options.cache_bytes / CACHE_PART) / BYTES_MIN * BYTES_MIN
}

impl StagingArea {
    /// A new file of so many bytes, if there can be one: a log in memory needs none, and where there is none commits are
    /// stored to the log before they are acknowledged. What an older file holds is in the log by now.
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
                let message = "Every tick's commits are written to the log by themselves: its \
                               staging file can't be had. That takes 4 MB of the disk and of locked \
                               memory (ulimit -l), on a file system that maps files and writes \
                               them in place";
                let attr = Attr::new().str("error", error.to_string());
                log::info("STORAGE", 6_200_022, "initandlisten", message, attr);
                return Ok(None);
            }
            Err(error) => return Err(crate::io_error(error)),
        };
        let seed = StagedSeed::new(&meta.directory, number);
        let len = memory.len().saturating_sub(STAGING_HEADER_BYTES) as u64;
        Ok(Some(StagingArea {
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

    /// Puts what `appended` tells of, all of it or nothing that counts.
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

    /// Whether storing should make room, and nobody has been told so.
    fn begins_to_fill(&self) -> bool {
        let used = self.tail.load(Ordering::Relaxed) - self.freed.load(Ordering::Relaxed);
        used > STORE_BYTES.min(self.len / 4) && !self.told.swap(true, Ordering::Relaxed)
    }
}

impl Core {
    /// Stages what [`Core::flush`] was called for, unless somebody else is at it, who looks here when that is
    /// done. Answers false if it has to be stored instead: there is no file, it is full, or that is too much.
    pub fn stage_what_is_asked(&self) -> bool {
        let Some(area) = &self.staging else { return false };
        loop {
            // As in `store_what_is_asked`.
            fence(Ordering::SeqCst);
            if self.acks.stored() >= self.flush_asked.load(Ordering::Relaxed) {
                return true;
            }
            let Some(mut putting) = try_lock(&area.putting) else { return true };
            if !self.stage_with(area, &mut putting) {
                return false;
            }
        }
    }

    /// Puts everything that has been appended so far into the staging file, and counts it as written. Answers
    /// false if that can't be done now.
    pub fn stage(&self) -> bool {
        let Some(area) = &self.staging else { return false };
        let putting = try_lock(&area.putting);
        let staged = putting.is_some_and(|mut putting| self.stage_with(area, &mut putting));
        // For those who have found it taken.
        if staged && !self.stage_what_is_asked() {
            self.store_what_is_asked();
        }
        staged
    }

    fn stage_with(&self, area: &StagingArea, putting: &mut Putting) -> bool {
        if self.scarcity() > 0.0 || self.check_alive().is_err() {
            return false;
        }
        putting.staged = putting.staged.max(*lock(&area.stored));
        // Before the segments are asked for: so they stay.
        putting.guard.enter();
        let seq = {
            let head = lock(&self.head);
            head.appended_since(putting.staged, &mut putting.appended).then(|| head.seq())
        };
        let seq = seq.filter(|_| area.put_all(putting));
        putting.guard.leave();
        putting.appended.clear();
        if area.begins_to_fill() {
            self.acks.kick();
        }
        let Some(seq) = seq else { return false };
        self.counters.staged.add(1);
        self.acks.set_stored(seq);
        self.acks.set_written(seq);
        true
    }

    /// Whether storing should make room.
    pub fn staging_fills(&self) -> bool {
        self.staging.as_ref().is_some_and(|area| area.told.load(Ordering::Relaxed))
    }

    /// Before the head is asked how far it goes: what is needed no longer when that has been stored.
    pub fn staging_mark(&self) -> u64 {
        self.staging.as_ref().map_or(0, |area| area.tail.load(Ordering::Acquire))
    }

    /// Everything before `position` is stored, and so is what entries before `mark` hold.
    pub fn unstage(&self, mark: u64, position: Position) {
        let Some(area) = &self.staging else { return };
        let mut stored = lock(&area.stored);
        *stored = (*stored).max(position);
        drop(stored);
        area.freed.fetch_max(mark, Ordering::AcqRel);
        area.told.store(false, Ordering::Relaxed);
    }
}
