//! The staging file: commits are with the kernel by a copy, and stored to the log later and many at once.
//!
//! It is used round and round. At the end of a worker's tick the bytes that have been appended since the
//! last time go into it as one entry for each segment ([`Core::stage`]). The flusher stores to the log before it is
//! full, and whatever is stored makes room ([`Core::store_all`]). If the process dies, opening the directory puts into the log what
//! entries hold and it lacks ([`replay`]).
//!
//! Invariants:
//! - What is acknowledged as written is in the log's file, or in entries that are not overwritten before it is:
//!   entries are given up when all that had been appended when they were put is stored.
//! - Staging goes on where it ended, or where storing did: nothing is left out between two entries.
//! - An entry is put into the log only where the segment still has the epoch that it had. In one life of a
//!   segment a place gets its bytes once, so an old entry changes nothing, however often it is put there; and
//!   after a loss of power the file may hold any of them, or parts, which their CRCs tell.
//! - Durability never rests on it: it is not synced.
//!
//! A log in persistent memory has none.

mod replay;
#[cfg(test)]
mod tests;

use crate::core::Core;
use crate::format::STAGING_FILE;
use crate::format::meta::Meta;
use crate::format::segment::Position;
use crate::format::staging::{STAGED_ALIGN, StagedAt, StagedSeed};
use crate::head::Appended;
use crate::lock;
use kauri_base::log::{self, Attr};
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
/// Fewer are not worth it.
const BYTES_MIN: u64 = 16 << 10;
/// More at once are stored: to copy them first would gain nothing.
const AT_ONCE_MAX: usize = 64 << 10;

/// The file while the engine is open.
pub struct StagingArea {
    ring: Ring,
    seed: StagedSeed,
    guard: Guard,
    /// Everything before this is staged or stored.
    staged: Position,
    /// What is to be staged, kept for its memory.
    appended: Vec<Appended>,
    /// Whether the flusher has been told that it fills.
    told: bool,
}

/// The file's bytes, used round and round. Places count on for ever.
struct Ring {
    memory: Box<dyn Staging>,
    /// Where the next entry goes.
    tail: u64,
    /// Before this nothing is needed.
    freed: u64,
}

impl Ring {
    fn put(&mut self, header: &[u8], bytes: &[u8]) -> bool {
        let len = self.memory.len() as u64;
        let taken = (header.len() + bytes.len()).next_multiple_of(STAGED_ALIGN) as u64;
        let to_end = len - self.tail % len;
        // Entries lie in one piece.
        let start = if taken <= to_end { self.tail } else { self.tail + to_end };
        let end = start + taken;
        let put =
            end - self.freed <= len && self.memory.put((start % len) as usize, &[header, bytes]);
        if put {
            self.tail = end;
        }
        put
    }

    fn fills(&self) -> bool {
        self.tail - self.freed > STORE_BYTES.min(self.memory.len() as u64 / 4)
    }
}

impl StagingArea {
    /// A new file, if there can be one: a log in memory needs none, and where there is none commits are
    /// stored to the log before they are acknowledged. What an older file holds is in the log by now.
    pub fn create(
        directory: &dyn Directory,
        (meta, cache_bytes): (&Meta, u64),
        (guard, staged): (Guard, Position),
    ) -> Result<Option<Self>, StorageError> {
        let bytes = BYTES.min(cache_bytes / CACHE_PART) / BYTES_MIN * BYTES_MIN;
        let memory = match directory.create_staging(STAGING_FILE, bytes as usize) {
            Ok(memory) => memory,
            Err(Error::Unsupported) => return Ok(None),
            // It is there, empty, and can't be had in memory.
            Err(error @ Error::Io { kind: IoKind::Open, .. }) => {
                let message = "Every tick's commits are written to the log by themselves: its \
                               staging file can't be kept in memory. That needs a file system that \
                               maps files, and 4 MB of locked memory (ulimit -l)";
                let attr = Attr::new().str("error", error.to_string());
                log::info("STORAGE", 6_200_022, "initandlisten", message, attr);
                return Ok(None);
            }
            Err(error) => return Err(crate::io_error(error)),
        };
        Ok(Some(StagingArea {
            ring: Ring { memory, tail: 0, freed: 0 },
            seed: StagedSeed::new(&meta.directory),
            guard,
            staged,
            appended: Vec::new(),
            told: false,
        }))
    }

    /// Puts what `appended` tells of, all of it or nothing that counts.
    fn put_all(&mut self) -> bool {
        let mut bytes_left = AT_ONCE_MAX;
        let mut from = self.staged;
        for appended in &self.appended {
            // The next segment's header was stored when it was opened.
            let offset = if appended.epoch == from.epoch { from.offset } else { 0 };
            let Ok((offset, bytes)) = appended.storer.unstored(&self.guard, offset) else {
                return false;
            };
            if bytes.len() > bytes_left {
                return false;
            }
            bytes_left -= bytes.len();
            from = Position { epoch: appended.epoch, offset: offset + bytes.len() as u32 };
            let at = StagedAt { segment: appended.storer.segment(), epoch: appended.epoch, offset };
            if !bytes.is_empty() && !self.ring.put(&at.encode(self.seed, bytes), bytes) {
                return false;
            }
        }
        self.staged = from;
        true
    }
}

impl Core {
    /// Puts everything that has been appended so far into the staging file, and counts it as written. Answers
    /// false if it has to be stored instead: there is no file, it is full, or that is too much.
    pub fn stage(&self) -> bool {
        let Some(area) = &self.staging else { return false };
        if self.scarcity() > 0.0 || self.check_alive().is_err() {
            return false;
        }
        let mut area = lock(area);
        // Before the segments are asked for: so they stay.
        area.guard.enter();
        let seq = self.stage_into(&mut area);
        area.guard.leave();
        area.appended.clear();
        let tell = area.ring.fills() && !area.told;
        area.told |= tell;
        drop(area);
        if tell {
            self.acks.kick();
        }
        let Some(seq) = seq else { return false };
        self.counters.staged.add(1);
        self.acks.set_stored(seq);
        self.acks.set_written(seq);
        true
    }

    fn stage_into(&self, area: &mut StagingArea) -> Option<u64> {
        let seq = {
            let head = lock(&self.head);
            head.appended_since(area.staged, &mut area.appended).then(|| head.seq())
        };
        seq.filter(|_| area.put_all())
    }

    /// Whether storing should make room.
    pub fn staging_fills(&self) -> bool {
        self.staging.as_ref().is_some_and(|area| lock(area).told)
    }

    /// Before the head is asked how far it goes: what is needed no longer when that has been stored.
    pub fn staging_mark(&self) -> u64 {
        self.staging.as_ref().map_or(0, |area| lock(area).ring.tail)
    }

    /// Everything before `position` is stored, and so is what entries before `mark` hold.
    pub fn unstage(&self, mark: u64, position: Position) {
        let Some(area) = &self.staging else { return };
        let mut area = lock(area);
        area.ring.freed = area.ring.freed.max(mark);
        area.staged = area.staged.max(position);
        area.told = false;
    }
}
