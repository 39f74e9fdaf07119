//! The segments: free segments, live bytes of each, growth of the file, and reserved segments.
//!
//! Invariants:
//! - The live bytes of a segment are the sum of [`Slot::size`] over all words that point into it. The thread that
//!   changes a word updates both counts.
//! - A segment is on the free list only if no word points into it, everything moved out of it is durable, and no
//!   reader can access it.
//! - User writes never take the segments that are reserved for deletes and for the cleaner, so both can always
//!   work. Reserved segments exist in the file.

use crate::address::Slot;
use crate::chunked::Chunked;
use crate::format::Stream;
use crate::lock;
use kauri_base::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use kauri_base::sync::{Arc, Mutex, MutexGuard};
use kauri_medium::Medium;
use kauri_storage::StorageError;
use std::collections::VecDeque;

/// Segments that only the cleaner takes.
pub const CLEANER_RESERVE: u32 = 2;
/// Segments that beside it only units without new documents take.
pub const DELETE_RESERVE: u32 = 1;

/// With fewer segments there is never one for documents.
pub const SEGMENTS_MIN: u32 = CLEANER_RESERVE + DELETE_RESERVE + 1;

/// Segments that are being filled where they are few.
const OPEN_SEGMENTS: u32 = 2;
/// If the log cannot grow: number of free segments for user writes below which the cleaner works.
const FREE_LOW: u32 = 4;
/// Number of free segments below which they are scarce: while the cleaner keeps up, no writer is throttled.
const FREE_SCARCE: u32 = 3;
/// With more live bytes than this the log is full for new documents.
const LIVE_PERCENT_MAX: u64 = 95;

/// For whom a segment is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// New documents.
    Write,
    /// Deletes and drops.
    Delete,
    /// Moved copies.
    Clean,
    /// Index images, which never make segments scarce.
    Image,
}

impl Purpose {
    fn kept_back(self) -> u32 {
        match self {
            Purpose::Write | Purpose::Image => CLEANER_RESERVE + DELETE_RESERVE,
            Purpose::Delete => CLEANER_RESERVE,
            Purpose::Clean => 0,
        }
    }
}

/// The state of a segment.
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

/// See [`Segment::order`].
pub type Order = (u32, u64);

/// One segment.
#[derive(Default)]
pub struct Segment {
    live: AtomicU64,
    epoch: AtomicU64,
    seq_max: AtomicU64,
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

    /// The end of its records, after sealing.
    pub fn end(&self) -> u32 {
        self.end.load(Ordering::Acquire)
    }

    /// The highest commit sequence of its records, once it is sealed.
    pub fn seq_max(&self) -> u64 {
        self.seq_max.load(Ordering::Acquire)
    }

    /// Its state.
    pub fn state(&self) -> State {
        State::from_number(self.state.load(Ordering::Acquire))
    }

    /// Changes that.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Its stream.
    pub fn stream(&self) -> Stream {
        Stream::from_number(u32::from(self.stream.load(Ordering::Acquire))).unwrap_or(Stream::User)
    }

    /// Of equal copies of a record, the one in the segment with the highest order is the newest: the cleaner moves
    /// from a stream to a later one, or within one to a later epoch.
    pub fn order(&self) -> Order {
        (self.stream() as u32, self.epoch())
    }

    /// Notes that it has been opened.
    pub fn opened(&self, epoch: u64, stream: Stream) {
        self.epoch.store(epoch, Ordering::Release);
        self.stream.store(stream as u8, Ordering::Release);
        self.end.store(0, Ordering::Release);
        self.set_state(State::Open);
    }

    /// Notes that its records end here.
    pub fn sealed(&self, end: u32, seq_max: u64) {
        self.seq_max.store(seq_max, Ordering::Release);
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

/// Live bytes by segment.
pub struct LiveCounts(Vec<u64>);

impl LiveCounts {
    /// Counts a word.
    #[inline]
    pub fn add(&mut self, word: Slot) {
        if let Some(bytes) = self.0.get_mut(word.address().segment as usize) {
            *bytes += word.size();
        }
    }
}

struct Allocation {
    /// Segments in the file.
    count: u32,
    /// Most segments that it may have.
    limit: u32,
    free: VecDeque<u32>,
    /// For each segment in the file whether it has a durable header.
    headers: Vec<bool>,
    /// Whether the last attempt to grow found no space.
    no_space: bool,
}

/// See the module's head.
pub struct Segments {
    medium: Arc<dyn Medium>,
    segment_bytes: u32,
    infos: Chunked<Segment>,
    live: AtomicU64,
    /// As [`Usage::scarcity`] was when segments were last taken or freed: an `f64`.
    scarcity: AtomicU64,
    /// Held while the file grows, which may take long.
    allocation: Mutex<Allocation>,
    /// The first segment without a durable header. Stored with `allocation` held; read without a wait.
    initialised: AtomicU32,
    spare: Segment,
    /// Whether the lack of disk space was logged.
    told_full: AtomicBool,
    /// The epoch of the next segment that is opened.
    epoch_next: AtomicU64,
    /// Held while a segment is opened, by whichever stream.
    opening: Mutex<()>,
}

/// The right to open segments.
pub struct Opening<'s> {
    segments: &'s Segments,
    _one: MutexGuard<'s, ()>,
}

impl Opening<'_> {
    /// The epoch of the segment that is opened.
    pub fn take_epoch(&self) -> u64 {
        self.segments.epoch_next.fetch_add(1, Ordering::AcqRel)
    }
}

/// Figures for status and for the cleaner's decisions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Segments in the file.
    pub count: u32,
    /// Most segments that it may have.
    pub limit: u32,
    /// Free segments in the file.
    pub free: u32,
    /// Whether the file may become longer, as far as is known.
    pub can_grow: bool,
    /// Live bytes in all.
    pub live_bytes: u64,
}

impl Segments {
    /// The segments of a file that may have at most `segments_max` of them, the cleaner's last resort
    /// included.
    pub fn new(medium: Arc<dyn Medium>, segment_bytes: u32, segments_max: u32) -> Self {
        let limit = segments_max - CLEANER_RESERVE;
        Segments {
            medium,
            segment_bytes,
            infos: Chunked::new(),
            live: AtomicU64::new(0),
            scarcity: AtomicU64::new(0),
            allocation: Mutex::new(Allocation {
                count: 0,
                limit,
                free: VecDeque::new(),
                headers: Vec::new(),
                no_space: false,
            }),
            initialised: AtomicU32::new(0),
            spare: Segment::default(),
            told_full: AtomicBool::new(false),
            epoch_next: AtomicU64::new(0),
            opening: Mutex::new(()),
        }
    }

    /// For the start: the epoch of the next segment that is opened.
    pub fn set_epoch_next(&self, epoch: u64) {
        self.epoch_next.store(epoch, Ordering::Release);
    }

    /// The epoch of the next segment that is opened: a clock that ticks with each.
    pub fn epoch_next(&self) -> u64 {
        self.epoch_next.load(Ordering::Acquire)
    }

    /// Begins to open a segment. So they are opened one at a time, in the order of their epochs.
    pub fn begin_opening(&self) -> Opening<'_> {
        Opening { segments: self, _one: lock(&self.opening) }
    }

    /// Notes whether a write that needed room has got it. Answers whether that is news.
    pub fn note_room(&self, has_room: bool) -> bool {
        self.told_full.swap(!has_room, Ordering::Relaxed) == has_room
    }

    /// A segment by its number.
    #[inline]
    pub fn get(&self, segment: u32) -> &Segment {
        self.infos.get(u64::from(segment)).unwrap_or(&self.spare)
    }

    /// The offset of a segment in the file.
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

    /// Counts a word that does no longer, if it is one.
    #[inline]
    pub fn remove_live(&self, word: Slot) {
        if word.is_none() {
            return;
        }
        self.get(word.address().segment).live.fetch_sub(word.size(), Ordering::Relaxed);
        self.live.fetch_sub(word.size(), Ordering::Relaxed);
    }

    /// Counts of words that one thread gathers by itself, for [`Segments::add_live_counts`].
    pub fn live_counts(&self) -> LiveCounts {
        LiveCounts(vec![0; lock(&self.allocation).count as usize])
    }

    /// Counts all these words.
    pub fn add_live_counts(&self, counts: LiveCounts) {
        for (segment, bytes) in (0..).zip(counts.0).filter(|(_, bytes)| *bytes > 0) {
            self.get(segment).live.fetch_add(bytes, Ordering::Relaxed);
            self.live.fetch_add(bytes, Ordering::Relaxed);
        }
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
        self.count_initialised(&allocation);
        if free {
            allocation.free.push_back(segment);
        }
    }

    /// All segments below this number have had a durable header.
    pub fn initialised(&self) -> u32 {
        self.initialised.load(Ordering::Acquire)
    }

    fn count_initialised(&self, allocation: &Allocation) {
        let mut initialised = self.initialised.load(Ordering::Relaxed);
        while allocation.headers.get(initialised as usize) == Some(&true) {
            initialised += 1;
        }
        self.initialised.store(initialised, Ordering::Release);
    }

    /// Takes a free segment, and grows the file if necessary. `OutOfDiskSpace` if there is none for this purpose.
    pub fn take(&self, purpose: Purpose) -> Result<Taken, StorageError> {
        let mut allocation = lock(&self.allocation);
        let wanted = purpose.kept_back() + 1;
        // Crashes may have cost the cleaner its reserve; without any segment it could never get
        // one, so it may go beyond the configured limit.
        let beyond = if purpose == Purpose::Clean { CLEANER_RESERVE } else { 0 };
        let limit = allocation.limit + beyond;
        while (allocation.free.len() as u32) < wanted && allocation.count < limit {
            let segment = allocation.count;
            let length = self.file_offset(segment) + u64::from(self.segment_bytes);
            match self.medium.grow(length) {
                Ok(()) => {
                    allocation.no_space = false;
                    allocation.add(segment + 1, &self.infos);
                    allocation.free.push_back(segment);
                }
                Err(kauri_medium::Error::NoSpace) => {
                    allocation.no_space = true;
                    break;
                }
                Err(error) => return Err(crate::io_error(error)),
            }
        }
        let spare = if allocation.can_grow() { 0 } else { FREE_LOW };
        let wanted = if purpose == Purpose::Image { wanted + spare } else { wanted };
        let enough = allocation.free.len() as u32 >= wanted;
        let segment = if enough { allocation.free.pop_front() } else { None };
        self.note_scarcity(&allocation);
        let segment = segment.ok_or(StorageError::OutOfDiskSpace)?;
        let old_contents = self.get(segment).end() > 0;
        Ok(Taken { segment, old_contents })
    }

    /// Notes that a taken segment has a durable header.
    pub fn has_header(&self, segment: u32) {
        let mut allocation = lock(&self.allocation);
        if let Some(header) = allocation.headers.get_mut(segment as usize) {
            *header = true;
        }
        self.count_initialised(&allocation);
    }

    /// Puts a segment on the free list.
    pub fn free(&self, segment: u32) {
        self.get(segment).set_state(State::Free);
        let mut allocation = lock(&self.allocation);
        allocation.free.push_back(segment);
        self.note_scarcity(&allocation);
    }

    fn note_scarcity(&self, allocation: &Allocation) {
        let scarcity = self.usage_of(allocation).scarcity();
        self.scarcity.store(scarcity.to_bits(), Ordering::Relaxed);
    }

    /// Whether so much is live that cleaning for new documents would hardly gain anything.
    pub fn is_full(&self) -> bool {
        let allocation = lock(&self.allocation);
        let kept_back = Purpose::Write.kept_back() + OPEN_SEGMENTS;
        let usable = u64::from(allocation.count.saturating_sub(kept_back));
        let bytes = usable * u64::from(self.segment_bytes);
        !allocation.can_grow() && self.live_bytes() > bytes * LIVE_PERCENT_MAX / 100
    }

    /// Whether the cleaner may take a segment that it could do without.
    pub fn has_more_than_reserve(&self) -> bool {
        let allocation = lock(&self.allocation);
        allocation.can_grow() || allocation.free.len() as u32 > CLEANER_RESERVE
    }

    /// Segments that are being emptied, or were and readers may still hold.
    pub fn emptying(&self) -> u32 {
        let count = lock(&self.allocation).count;
        (0..count).filter(|segment| self.get(*segment).state() == State::Emptying).count() as u32
    }

    /// Whether there are such.
    pub fn is_emptying(&self) -> bool {
        self.emptying() > 0
    }

    /// See [`Usage::scarcity`].
    #[inline]
    pub fn scarcity(&self) -> f64 {
        f64::from_bits(self.scarcity.load(Ordering::Relaxed))
    }

    /// Figures.
    pub fn usage(&self) -> Usage {
        self.usage_of(&lock(&self.allocation))
    }

    fn usage_of(&self, allocation: &Allocation) -> Usage {
        Usage {
            count: allocation.count,
            limit: allocation.limit,
            free: allocation.free.len() as u32,
            can_grow: allocation.can_grow(),
            live_bytes: self.live_bytes(),
        }
    }
}

impl Usage {
    /// Free segments that user writes may take.
    pub fn free_for_writes(&self) -> u32 {
        self.free.saturating_sub(Purpose::Write.kept_back())
    }

    /// Scarcity of free segments, from 0 (enough, or the file can grow) to 1 (none).
    pub fn scarcity(&self) -> f64 {
        if self.can_grow {
            return 0.0;
        }
        1.0 - f64::from(self.free_for_writes().min(FREE_SCARCE)) / f64::from(FREE_SCARCE)
    }

    /// Whether the cleaner should see to it that there are more.
    pub fn wants_cleaning(&self) -> bool {
        !self.can_grow && self.free_for_writes() < FREE_LOW
    }
}

impl Allocation {
    fn can_grow(&self) -> bool {
        self.count < self.limit && !self.no_space
    }

    fn add(&mut self, count: u32, infos: &Chunked<Segment>) {
        for segment in self.count..count {
            infos.get_or_make(u64::from(segment), Segment::default);
        }
        self.count = self.count.max(count);
        self.headers.resize(self.count as usize, false);
    }
}

#[cfg(test)]
mod tests {
    use crate::hooked::Hooked;
    use crate::options::Options;
    use crate::recovery;
    use crate::segments::Purpose;
    use kauri_base::sync::Arc;
    use kauri_base::{CollectionId, RecordId};
    use kauri_emulator::{Emulator, EmulatorConfig};
    use kauri_storage::{OpKind, WriteUnit};
    use std::sync::mpsc;
    use std::time::Duration;

    /// Timeout of a wait for something that would never come.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A file system may take long to make a file longer.
    #[test]
    fn commits_syncs_and_marks_do_not_wait_for_the_file_to_grow() {
        for medium in [EmulatorConfig::default(), EmulatorConfig::persistent_memory()] {
            let hooked = Hooked::new(Emulator::new(medium));
            let growing = hooked.growing.clone();
            let options = Options {
                segment_bytes: 64 << 10,
                cache_bytes: 1 << 20,
                read_threads: 0,
                ..Options::default()
            };
            let core = recovery::open(Arc::new(hooked), options).expect("opening");
            let mut unit = WriteUnit::new();
            unit.push(CollectionId(10), RecordId(0), OpKind::CreateStore);
            core.commit(&mut unit).expect("creating");
            let (done, is_done) = mpsc::channel();
            let (told, is_told) = mpsc::channel();
            let beside = core.clone();
            *growing.lock().expect("the hook") = Some(Box::new(move || {
                std::thread::spawn(move || {
                    let mut unit = WriteUnit::new();
                    unit.insert(CollectionId(10), vec![7; 900]);
                    beside.commit(&mut unit).expect("a commit");
                    beside.sync_all("sync.drain").expect("a sync");
                    beside.keep_marks();
                    // Whoever waits may have given up.
                    let _ = done.send(());
                });
                let _ = told.send(is_done.recv_timeout(PATIENCE));
            }));
            let taken = core.segments.take(Purpose::Write).expect("a segment");
            assert!(taken.segment > 0);
            let went_on = is_told.try_recv().expect("the file has grown");
            assert!(went_on.is_ok(), "{medium:?}: they wait for the file to grow");
        }
    }
}
