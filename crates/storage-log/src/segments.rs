//! The segments: which are free, how much of each is live, growth of the file, and what is kept
//! back for whom.
//!
//! Invariants:
//! - Live bytes of a segment are the sum of [`Slot::size`] over all words that point into it: whoever
//!   changes a word accounts for both.
//! - A segment is on the free list only if nothing points into it, what was moved out of it is
//!   durable, and no reader can look at it any more.
//! - User writes never take the segments that are kept back for deletes and for the cleaner, so both
//!   can always work; these segments really exist in the file.

use crate::address::Slot;
use crate::chunked::Chunked;
use crate::format::{SEGMENTS_MAX, Stream};
use crate::lock;
use kauri_medium::Medium;
use kauri_storage::StorageError;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Segments that only the cleaner takes.
pub const CLEANER_RESERVE: u32 = 2;
/// Segments that beside it only units without new documents take.
pub const DELETE_RESERVE: u32 = 1;

/// For whom a segment is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// New documents.
    Write,
    /// Deletes and drops.
    Delete,
    /// Moved copies.
    Clean,
}

impl Purpose {
    fn kept_back(self) -> u32 {
        match self {
            Purpose::Write => CLEANER_RESERVE + DELETE_RESERVE,
            Purpose::Delete => CLEANER_RESERVE,
            Purpose::Clean => 0,
        }
    }
}

/// What is going on with a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// To be taken, or not in the file yet.
    Free = 0,
    /// Being filled, or prepared for it.
    Open = 1,
    /// Full; the cleaner may take it.
    Sealed = 2,
    /// Cleaned, and waiting until it is free.
    Emptying = 3,
    /// Something in it can't be read: left alone.
    Damaged = 4,
}

impl State {
    fn from_number(number: u8) -> State {
        match number {
            0 => State::Free,
            1 => State::Open,
            2 => State::Sealed,
            3 => State::Emptying,
            _ => State::Damaged,
        }
    }
}

/// One segment.
#[derive(Default)]
pub struct Segment {
    live: AtomicU64,
    epoch: AtomicU64,
    end: AtomicU32,
    state: AtomicU8,
    stream: AtomicU8,
}

impl Segment {
    /// Bytes of records that count.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// The epoch that it was opened with last.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Where its records end, once it is sealed.
    pub fn end(&self) -> u32 {
        self.end.load(Ordering::Acquire)
    }

    /// What is going on with it.
    pub fn state(&self) -> State {
        State::from_number(self.state.load(Ordering::Acquire))
    }

    /// Changes that.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Who wrote it.
    pub fn stream(&self) -> Stream {
        Stream::from_number(u32::from(self.stream.load(Ordering::Acquire))).unwrap_or(Stream::User)
    }

    /// Notes that it has been opened.
    pub fn opened(&self, epoch: u64, stream: Stream) {
        self.epoch.store(epoch, Ordering::Release);
        self.stream.store(stream as u8, Ordering::Release);
        self.set_state(State::Open);
    }

    /// Notes that its records end here.
    pub fn sealed(&self, end: u32) {
        self.end.store(end, Ordering::Release);
        self.set_state(State::Sealed);
    }
}

/// A segment that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Its number.
    pub segment: u32,
    /// Whether it still holds records of an earlier epoch.
    pub old_contents: bool,
}

struct Allocation {
    /// Segments in the file.
    count: u32,
    /// Most segments that it may have.
    limit: u32,
    free: VecDeque<u32>,
    /// For each segment in the file whether it has a durable header.
    headers: Vec<bool>,
    /// The first without one.
    initialised: u32,
}

/// See the module's head.
pub struct Segments {
    medium: Arc<dyn Medium>,
    segment_bytes: u32,
    infos: Chunked<Segment>,
    live: AtomicU64,
    allocation: Mutex<Allocation>,
    spare: Segment,
}

/// Figures for status and for the cleaner's decisions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Segments in the file.
    pub count: u32,
    /// Most segments that it may have.
    pub limit: u32,
    /// Of those in the file, free ones.
    pub free: u32,
    /// Live bytes in all.
    pub live_bytes: u64,
}

impl Segments {
    /// The segments of a file of at most `bytes_max` bytes (0: as large as it can be).
    pub fn new(medium: Arc<dyn Medium>, segment_bytes: u32, bytes_max: u64) -> Self {
        let limit = match bytes_max {
            0 => SEGMENTS_MAX,
            bytes => (bytes / u64::from(segment_bytes)).min(u64::from(SEGMENTS_MAX)) as u32,
        };
        Segments {
            medium,
            segment_bytes,
            infos: Chunked::new(),
            live: AtomicU64::new(0),
            allocation: Mutex::new(Allocation {
                count: 0,
                limit,
                free: VecDeque::new(),
                headers: Vec::new(),
                initialised: 0,
            }),
            spare: Segment::default(),
        }
    }

    /// A segment by its number.
    #[inline]
    pub fn get(&self, segment: u32) -> &Segment {
        self.infos.get(u64::from(segment)).unwrap_or(&self.spare)
    }

    /// Where a segment begins in the file.
    pub fn file_offset(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.segment_bytes)
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// Counts a word that points into the log from now on.
    #[inline]
    pub fn add_live(&self, word: Slot) {
        self.get(word.address().segment).live.fetch_add(word.size(), Ordering::Relaxed);
        self.live.fetch_add(word.size(), Ordering::Relaxed);
    }

    /// Counts a word that does no longer.
    #[inline]
    pub fn remove_live(&self, word: Slot) {
        self.get(word.address().segment).live.fetch_sub(word.size(), Ordering::Relaxed);
        self.live.fetch_sub(word.size(), Ordering::Relaxed);
    }

    /// Live bytes of all segments.
    pub fn live_bytes(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// For recovery: the file has this segment. `free`: with nothing in it that counts.
    pub fn found(&self, segment: u32, has_header: bool, free: bool) {
        let mut allocation = lock(&self.allocation);
        allocation.add(segment + 1, &self.infos);
        if let Some(header) = allocation.headers.get_mut(segment as usize) {
            *header = has_header;
        }
        allocation.count_initialised();
        if free {
            allocation.free.push_back(segment);
        }
    }

    /// All segments below this number have had a durable header.
    pub fn initialised(&self) -> u32 {
        lock(&self.allocation).initialised
    }

    /// Takes a free segment, growing the file if need be. `OutOfDiskSpace` if there is none for this
    /// purpose.
    pub fn take(&self, purpose: Purpose) -> Result<Taken, StorageError> {
        let mut allocation = lock(&self.allocation);
        let wanted = purpose.kept_back() + 1;
        while (allocation.free.len() as u32) < wanted && allocation.count < allocation.limit {
            let segment = allocation.count;
            let length = self.file_offset(segment) + u64::from(self.segment_bytes);
            match self.medium.grow(length) {
                Ok(()) => {
                    allocation.add(segment + 1, &self.infos);
                    allocation.free.push_back(segment);
                }
                Err(kauri_medium::Error::NoSpace) => break,
                Err(error) => return Err(crate::io_error(error)),
            }
        }
        if (allocation.free.len() as u32) < wanted {
            return Err(StorageError::OutOfDiskSpace);
        }
        let Some(segment) = allocation.free.pop_front() else {
            return Err(StorageError::OutOfDiskSpace);
        };
        let old_contents = self.get(segment).end() > 0;
        Ok(Taken { segment, old_contents })
    }

    /// Notes that a taken segment has a durable header.
    pub fn has_header(&self, segment: u32) {
        let mut allocation = lock(&self.allocation);
        if let Some(header) = allocation.headers.get_mut(segment as usize) {
            *header = true;
        }
        allocation.count_initialised();
    }

    /// Puts a segment on the free list.
    pub fn free(&self, segment: u32) {
        self.get(segment).set_state(State::Free);
        lock(&self.allocation).free.push_back(segment);
    }

    /// Figures.
    pub fn usage(&self) -> Usage {
        let allocation = lock(&self.allocation);
        Usage {
            count: allocation.count,
            limit: allocation.limit,
            free: allocation.free.len() as u32,
            live_bytes: self.live_bytes(),
        }
    }
}

impl Allocation {
    fn add(&mut self, count: u32, infos: &Chunked<Segment>) {
        for segment in self.count..count {
            infos.get_or_make(u64::from(segment), Segment::default);
        }
        self.count = self.count.max(count);
        self.headers.resize(self.count as usize, false);
    }

    fn count_initialised(&mut self) {
        while self.headers.get(self.initialised as usize) == Some(&true) {
            self.initialised += 1;
        }
    }
}
