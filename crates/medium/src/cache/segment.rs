//! One segment: its memory, and how far it is appended, stored and resident. All unsafe code of the cache.
//!
//! Who may access which bytes, and why there are no races (`end` is how far the segment is appended):
//!
//! 1. *Appending* writes `[end, …)` and then stores a larger `end` (release). There is one appender, the owner of
//!    the segment's [`AppendToken`]. All others stay below the `end` that they loaded (acquire), so they see
//!    complete bytes and never bytes that are being written.
//! 2. *Reading* `[a, b)`: inside a guard, with `b <= end`, after [`Block::look`] or [`Block::peek`] of every block
//!    of the range succeeded. The bytes do not change while the guard stays, because:
//!    - below `end` nothing is appended, and `end` falls only in [`Segment::close`];
//!    - loading writes only to blocks that it found EMPTY and changed to LOADING, and neither saw those resident
//!      since;
//!    - [`Segment::settle`] discards a block only after all guards have left that were inside when it was marked.
//!      Later readers see EVICTING and either revive the block, so that `settle` keeps it, or do not read it (a
//!      `peek` never does);
//!    - [`Segment::discard`] runs after all guards have left that were inside when `close` set `end` to 0, and
//!      later ones find nothing below it.
//!    - a segment's memory is unmapped (or, if it is small, cleared and reused for another one), together with its
//!      table, by a closure that is deferred when the last handle of the cache is dropped: no reader can start any
//!      more, and the closure waits for guards inside. A read for a ticket holds the table, too.
//! 3. *Loading* a block: also inside a guard, entered before `end` was loaded. So `discard` comes after it. It
//!    fills only bytes below `end`.
//! 4. *Storing* reads `[stored, end)` under the segment's lock. These bytes are in memory, because `settle` keeps
//!    bytes that are not stored, and `discard` needs the lock.
//! 5. A *direct* segment's memory is the file's own (`crate::direct`). There `end` is how far it is *published*.
//!    Appending stores to `[token's end, …)`, which is at or beyond `end`, and only the owner of the token does it.
//!    Publishing fences, on the same thread (the token records which), and then stores the larger `end`. The rest
//!    holds as above without blocks: nothing is loaded or settled, and `discard` keeps the memory. The trailer is
//!    stored once, by the token's owner, beyond everything that may be published afterwards: sealing ends with it.
//! 6. `settle`, `close` and `discard` run as deferred closures of one domain: one at a time. So `settle` can check
//!    that a block is stored without a concurrent reuse of the segment, and `stored` only grows meanwhile.
#![allow(unsafe_code)]

use super::block::{Block, Settled, Tick};
use crate::direct::Direct;
use crate::sync::lock;
use crate::sys::Region;
use crate::{Error, Guard, IoKind, Result, Site, sys};
use kauri_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use kauri_base::sync::{Mutex, MutexGuard};
use std::ops::Range;
use std::ptr::NonNull;

/// The phase of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Free,
    Open,
    Sealed,
    /// Sealed and being recycled.
    Closing,
}

/// The state under the segment's lock.
pub(super) struct State {
    pub(super) phase: Phase,
    /// Counts its lives, so that a storer of an earlier one is known.
    pub(super) life: u64,
}

/// The right to append; there is one for each life of a segment. Not `Clone`.
pub(super) struct AppendToken {
    end: u32,
    life: u64,
    /// The thread that has stored the unpublished bytes of a direct segment.
    unpublished_by: Option<ThreadMark>,
}

/// Distinguishes threads that exist at the same time.
type ThreadMark = usize;

fn this_thread() -> ThreadMark {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

impl AppendToken {
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }
}

/// The memory of a segment.
enum Memory {
    /// In memory of this process.
    Own(Region),
    /// In the file's, where the segment begins at this offset of it.
    File(u64),
}

#[repr(align(64))]
pub(super) struct Segment {
    end: AtomicU32,
    block_shift: u32,
    /// Whether the memory is the file's.
    direct: bool,
    base: NonNull<u8>,
    len: usize,
    memory: Memory,
    /// None if the memory is the file's.
    blocks: Box<[Block]>,
    stored: AtomicU32,
    sealed: AtomicBool,
    /// Times that blocks of this life were read from the medium.
    loads: AtomicU32,
    state: Mutex<State>,
}

// SAFETY: the memory behind `base` is used as the module's head argues; nothing else is bound to a
// thread.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// The constant value of [`Segment::loads`] for a direct segment: its bytes are the medium's, so readers check
/// them.
const LOADS_DIRECT: u32 = 1;

impl Segment {
    /// A segment in memory of this process.
    pub(super) fn reserve(segment_bytes: usize, block_shift: u32) -> Result<Self> {
        let region =
            Region::reserve(segment_bytes).map_err(|e| Error::from_io(IoKind::Open, &e))?;
        let base = NonNull::new(region.base()).ok_or(Error::OutOfBounds)?;
        let blocks = segment_bytes >> block_shift;
        Ok(Segment::at(base, segment_bytes, Memory::Own(region), block_shift, blocks))
    }

    /// A segment in the file's memory. The file has it, and the table that holds this segment holds
    /// the mapping too.
    pub(super) fn of_file(direct: &dyn Direct, offset: u64, segment_bytes: usize) -> Result<Self> {
        let base = direct.address(offset, segment_bytes).ok_or(Error::OutOfBounds)?;
        Ok(Segment::at(base, segment_bytes, Memory::File(offset), 0, 0))
    }

    fn at(base: NonNull<u8>, len: usize, memory: Memory, block_shift: u32, blocks: usize) -> Self {
        let direct = matches!(memory, Memory::File(_));
        Segment {
            end: AtomicU32::new(0),
            block_shift,
            direct,
            base,
            len,
            memory,
            blocks: (0..blocks).map(|_| Block::new()).collect(),
            stored: AtomicU32::new(0),
            sealed: AtomicBool::new(false),
            loads: AtomicU32::new(if direct { LOADS_DIRECT } else { 0 }),
            state: Mutex::new(State { phase: Phase::Free, life: 0 }),
        }
    }

    #[inline]
    pub(super) fn end(&self) -> u32 {
        self.end.load(Ordering::Acquire)
    }

    /// Number of reads of blocks from the medium: counted before the bytes are readable.
    #[inline]
    pub(super) fn loads(&self) -> u32 {
        self.loads.load(Ordering::Acquire)
    }

    pub(super) fn stored(&self) -> u32 {
        self.stored.load(Ordering::Acquire)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The blocks that a range of bytes touches.
    #[inline]
    pub(super) fn blocks_of(&self, offset: u32, len: usize) -> Range<usize> {
        let first = offset as usize >> self.block_shift;
        let last = (offset as usize + len - 1) >> self.block_shift;
        first..last + 1
    }

    /// Blocks that are wholly in this range may be evicted first.
    pub(super) fn fade(&self, offset: u32, len: usize) {
        let first = (offset as usize).div_ceil(1 << self.block_shift);
        let end = (offset as usize + len) >> self.block_shift;
        self.blocks.get(first..end).into_iter().flatten().for_each(Block::fade);
    }

    /// The bytes of a range if all of it is appended and in memory; `Err` if it isn't all appended.
    /// The caller has checked that the guard is inside and of the right domain.
    #[inline]
    pub(super) fn look<'g>(
        &self,
        _guard: &'g Guard,
        offset: u32,
        len: usize,
    ) -> Result<Option<&'g [u8]>> {
        match (offset as usize).checked_add(len) {
            Some(end) if end <= self.end() as usize => {}
            _ => return Err(Error::OutOfBounds),
        }
        if len == 0 {
            return Ok(Some(&[]));
        }
        if !self.direct {
            let range = self.blocks_of(offset, len);
            let Some(blocks) = self.blocks.get(range) else { return Err(Error::OutOfBounds) };
            if !blocks.iter().all(Block::look) {
                return Ok(None);
            }
        }
        // SAFETY: within the mapping, since `end` never exceeds it; immutable and mapped for as long
        // as the guard stays inside, and the slice borrows it (module head, 2 and 5).
        Ok(Some(unsafe { self.slice(offset as usize..offset as usize + len) }))
    }

    /// The bytes of a range from its beginning as far as they are appended and in memory. As for the
    /// guard see [`Segment::look`].
    pub(super) fn peek<'g>(&self, _guard: &'g Guard, offset: u32, len: usize) -> &'g [u8] {
        let start = offset as usize;
        let mut end = start.saturating_add(len).min(self.end() as usize);
        if start >= end {
            return &[];
        }
        if !self.direct {
            let range = self.blocks_of(offset, end - start);
            let first = range.start;
            let blocks = self.blocks.get(range).unwrap_or_default();
            let there = blocks.iter().take_while(|block| block.peek()).count();
            end = end.min((first + there) << self.block_shift).max(start);
        }
        // SAFETY: as in `look`.
        unsafe { self.slice(start..end) }
    }

    /// Has the processor fetch the lines of a range, the first of them if it is long. A hint, wherever
    /// the range is.
    #[inline]
    pub(super) fn prefetch_lines(&self, offset: u32, len: usize) {
        sys::prefetch_lines(self.base.as_ptr().wrapping_add(offset as usize), len);
    }

    /// # Safety
    /// The range is within the mapping, and its bytes don't change and stay mapped for `'a`.
    #[inline]
    unsafe fn slice<'a>(&self, range: Range<usize>) -> &'a [u8] {
        // SAFETY: the caller's promise; mapped memory is always initialised.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(range.start), range.len()) }
    }

    /// # Safety
    /// The range is within the mapping, and the caller has its bytes for itself for `'a`.
    unsafe fn slice_mut<'a>(&self, range: Range<usize>) -> &'a mut [u8] {
        // SAFETY: the caller's promise; mapped memory is always initialised.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(range.start), range.len()) }
    }

    /// Free → Open.
    pub(super) fn open(&self) -> Result<AppendToken> {
        let mut state = self.state();
        if state.phase != Phase::Free {
            return Err(Error::Misuse("a segment is opened that is not free"));
        }
        state.phase = Phase::Open;
        Ok(AppendToken { end: 0, life: state.life, unpublished_by: None })
    }

    /// Free → Sealed, with `end` bytes that the medium has.
    pub(super) fn adopt(&self, end: u32) -> Result<()> {
        let mut state = self.state();
        if state.phase != Phase::Free {
            return Err(Error::Misuse("a segment is adopted that is not free"));
        }
        if end as usize > self.len {
            return Err(Error::OutOfBounds);
        }
        state.phase = Phase::Sealed;
        self.stored.store(end, Ordering::Release);
        self.sealed.store(true, Ordering::Release);
        self.end.store(end, Ordering::Release);
        Ok(())
    }

    /// Open → Sealed: the token is spent.
    pub(super) fn seal(&self, token: &AppendToken) {
        let mut state = self.state();
        if state.life == token.life && state.phase == Phase::Open {
            state.phase = Phase::Sealed;
            self.sealed.store(true, Ordering::Release);
        }
    }

    /// Appends to a direct segment: `parts`, which have `len` bytes together, are stored and on their way to the
    /// medium. They are readable after they are published.
    pub(super) fn append_direct(
        &self,
        direct: &dyn Direct,
        token: &mut AppendToken,
        len: usize,
        parts: &[&[u8]],
        site: Site,
    ) -> Result<u32> {
        let Memory::File(offset) = self.memory else {
            return Err(Error::Misuse("a segment that is not the file's"));
        };
        let start = token.end;
        let end = match (start as usize).checked_add(len) {
            Some(end) if end <= self.len => end as u32,
            _ => return Err(Error::OutOfBounds),
        };
        self.note_storing(token)?;
        // SAFETY: within the segment, which is in the file; at or beyond `end`, where the token's owner
        // alone stores and nobody looks before this thread's fence (module head, 5).
        unsafe { direct.store(offset + u64::from(start), len, parts, site) };
        token.end = end;
        Ok(start)
    }

    fn note_storing(&self, token: &mut AppendToken) -> Result<()> {
        let me = this_thread();
        match token.unpublished_by.replace(me) {
            Some(other) if other != me => {
                token.unpublished_by = Some(other);
                Err(Error::Misuse("what one thread has appended another one goes on"))
            }
            _ => Ok(()),
        }
    }

    /// Whether this thread may publish what the token's owner has appended.
    pub(super) fn may_publish(&self, token: &AppendToken) -> bool {
        token.unpublished_by.is_none_or(|mark| mark == this_thread())
    }

    /// Makes readable what was appended to a direct segment. The caller has fenced since, on a permitted thread.
    pub(super) fn publish(&self, token: &mut AppendToken) {
        if self.direct {
            token.unpublished_by = None;
            self.stored.store(token.end, Ordering::Release);
            self.end.store(token.end, Ordering::Release);
        }
    }

    /// Stores the last bytes of a direct segment, and nothing is appended any more.
    pub(super) fn store_last_direct(
        &self,
        direct: &dyn Direct,
        token: &mut AppendToken,
        bytes: &[u8],
        site: Site,
    ) -> Result<()> {
        let Memory::File(offset) = self.memory else {
            return Err(Error::Misuse("a segment that is not the file's"));
        };
        let start = self.len.checked_sub(bytes.len()).ok_or(Error::OutOfBounds)?;
        if start < token.end as usize {
            return Err(Error::OutOfBounds);
        }
        self.note_storing(token)?;
        // SAFETY: within the segment; beyond all that is appended, by the one who could append more
        // and is giving that up (module head, 5).
        unsafe { direct.store(offset + start as u64, bytes.len(), &[bytes], site) };
        Ok(())
    }

    /// Appends `len` bytes that `fill` writes. Returns their offset and the number of blocks begun; `untracked`
    /// gets the blocks that the clock does not have.
    pub(super) fn append(
        &self,
        token: &mut AppendToken,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        mut untracked: impl FnMut(u32),
    ) -> Result<(u32, u32)> {
        let start = token.end as usize;
        let end = match start.checked_add(len) {
            Some(end) if end <= self.len && !self.direct => end,
            _ => return Err(Error::OutOfBounds),
        };
        let new_end = u32::try_from(end).map_err(|_| Error::OutOfBounds)?;
        // SAFETY: within the mapping, as just checked, and beyond `end`, where the token's owner
        // alone writes and nobody reads (module head, 1).
        fill(unsafe { self.slice_mut(start..end) });
        let block_bytes = 1usize << self.block_shift;
        let begun = start.div_ceil(block_bytes)..end.div_ceil(block_bytes);
        let count = begun.len() as u32;
        for index in begun {
            if self.blocks.get(index).is_some_and(Block::appended) {
                untracked(index as u32);
            }
        }
        self.end.store(new_end, Ordering::Release);
        token.end = new_end;
        Ok((start as u32, count))
    }

    /// Allocates memory for a range within the segment. It need not be appended yet.
    pub(super) fn populate(&self, direct: Option<&dyn Direct>, from: u32, to: u32) {
        const PAGE: usize = 4096;
        let from = (from as usize).next_multiple_of(PAGE);
        let to = (to as usize).min(self.len) / PAGE * PAGE;
        if from < to {
            match (&self.memory, direct) {
                (Memory::Own(region), _) => region.populate(from, to - from),
                (Memory::File(offset), Some(direct)) => {
                    direct.populate(offset + from as u64, to - from);
                }
                (Memory::File(_), None) => {}
            }
        }
    }

    /// Hands the bytes that are appended and not stored to `store`, with their offset, and counts
    /// them as stored if it succeeds. Answers where the segment is stored up to, and how many bytes
    /// were handed over.
    pub(super) fn store_pending(
        &self,
        life: u64,
        store: impl FnOnce(u32, &[u8]) -> Result<()>,
    ) -> Result<(u32, u32)> {
        let state = self.state();
        if state.life != life || !matches!(state.phase, Phase::Open | Phase::Sealed) {
            return Err(Error::Misuse("a segment is stored that has been recycled"));
        }
        let from = self.stored.load(Ordering::Relaxed);
        let to = self.end();
        if from < to && !self.direct {
            // SAFETY: below `end`, so immutable; in memory, since not stored; and the lock, held
            // until after the last use, keeps `discard` away (module head, 4).
            store(from, unsafe { self.slice(from as usize..to as usize) })?;
            self.stored.store(to, Ordering::Release);
        }
        Ok((to, to.saturating_sub(from)))
    }

    /// The bytes from `from` on that are appended and not stored yet, and the offset of the first.
    pub(super) fn unstored<'g>(&self, _guard: &'g Guard, from: u32) -> (u32, &'g [u8]) {
        debug_assert!(_guard.is_entered());
        let start = self.stored().max(from);
        let end = self.end();
        if start >= end || self.direct {
            return (start, &[]);
        }
        // SAFETY: below `end`, so immutable; in memory, since a block is marked for eviction only when it is
        // stored, which came after the guard entered, so that `settle` waits for it, as `discard` does
        // (module head, 2).
        (start, unsafe { self.slice(start as usize..end as usize) })
    }

    /// Whether every byte of a block is on the medium and none will be added.
    fn is_stored(&self, block: usize) -> bool {
        let stored = self.stored();
        let block_end = (block + 1) << self.block_shift;
        block_end <= stored as usize || self.sealed.load(Ordering::Acquire) && stored >= self.end()
    }

    /// The clock at one block.
    pub(super) fn tick(&self, block: u32, patience: bool) -> Tick {
        match self.blocks.get(block as usize) {
            Some(state) => state.tick(patience, || self.is_stored(block as usize)),
            None => Tick::Forget,
        }
    }

    /// For marked blocks, after the grace period, in a deferred closure: takes unused blocks out of service, for
    /// [`Dropping::discard_all`], and passes the others to `kept`.
    pub(super) fn settle<'a>(
        &'a self,
        blocks: Range<usize>,
        dropping: &mut Vec<Dropping<'a>>,
        mut kept: impl FnMut(u32),
    ) {
        for index in blocks {
            let Some(block) = self.blocks.get(index) else { break };
            match block.settle(self.is_stored(index)) {
                Settled::Dropping => match dropping.last_mut() {
                    Some(run) if std::ptr::eq(run.segment, self) && run.blocks.end == index => {
                        run.blocks.end += 1;
                    }
                    _ => dropping.push(Dropping { segment: self, blocks: index..index + 1 }),
                },
                Settled::Kept => kept(index as u32),
                Settled::Gone => {}
            }
        }
    }

    /// Loads the EMPTY blocks of a range, each run of neighbours with one call of `read` (offset, bytes to fill).
    /// The first `wanted` have a reader waiting. The guard has been inside since before this call. Returns the
    /// number of loaded blocks, and the first error; `untracked` gets the blocks that the clock does not have.
    pub(super) fn load(
        &self,
        guard: &Guard,
        blocks: Range<usize>,
        wanted: usize,
        mut read: impl FnMut(u32, &mut [u8]) -> Result<()>,
        mut untracked: impl FnMut(u32),
    ) -> (u32, Result<()>) {
        debug_assert!(guard.is_entered());
        // After entering: so `discard` waits for this guard, or this is 0 (module head, 3).
        let end = self.end() as usize;
        let wanted = blocks.start + wanted;
        let last = blocks.end.min(end.div_ceil(1 << self.block_shift)).min(self.blocks.len());
        let (mut loaded, mut result) = (0, Ok(()));
        let mut next = blocks.start;
        while next < last && result.is_ok() {
            let first = next;
            while next < last && self.blocks.get(next).is_some_and(begin_load) {
                next += 1;
            }
            let run = self.blocks.get(first..next).unwrap_or_default();
            if run.is_empty() {
                next += 1;
                continue;
            }
            let start = first << self.block_shift;
            // SAFETY: within the mapping; LOADING gives these blocks to this thread alone, and
            // below `end` nobody appends to them (module head, 2 and 3).
            let buffer = unsafe { self.slice_mut(start..(next << self.block_shift).min(end)) };
            result = read(start as u32, buffer);
            self.loads.fetch_add(1, Ordering::AcqRel);
            if result.is_err() {
                // SAFETY: as for the buffer, whose last use was the call of `read`.
                unsafe { self.give_back(start, run.len() << self.block_shift) };
            }
            for (index, block) in (first..next).zip(run) {
                match result {
                    Ok(()) if block.finish_load(index < wanted) => untracked(index as u32),
                    Ok(()) => {}
                    Err(_) => block.fail_load(),
                }
            }
            if result.is_ok() {
                loaded += run.len() as u32;
            }
        }
        (loaded, result)
    }

    /// The first block of a range that isn't in memory. A hint.
    pub(super) fn first_missing(&self, blocks: Range<usize>) -> Option<usize> {
        let start = blocks.start;
        let states = self.blocks.get(blocks)?;
        states.iter().position(|block| !block.is_resident()).map(|index| start + index)
    }

    /// Sealed → Closing.
    pub(super) fn begin_recycling(&self) -> Result<()> {
        let mut state = self.state();
        if state.phase != Phase::Sealed {
            return Err(Error::Misuse("a segment is recycled that is not sealed"));
        }
        state.phase = Phase::Closing;
        Ok(())
    }

    /// In a deferred closure: from now on there is nothing to read. `discard` is deferred next.
    pub(super) fn close(&self) {
        self.end.store(0, Ordering::Release);
    }

    /// Gives memory of this process back.
    ///
    /// # Safety
    /// As for [`Region::discard`].
    unsafe fn give_back(&self, start: usize, len: usize) {
        if let Memory::Own(region) = &self.memory {
            // SAFETY: the caller's promise.
            unsafe { region.discard(start, len) };
        }
    }

    /// Closing → Free, in a closure deferred after [`Segment::close`]. Answers how many blocks had
    /// memory.
    pub(super) fn discard(&self) -> u32 {
        let mut state = self.state();
        debug_assert_eq!(state.phase, Phase::Closing);
        let count = self.blocks.iter().filter(|block| block.empty()).count() as u32;
        if count > 0 {
            // SAFETY: `end` has been 0 for a grace period: no reader, loader or appender is left,
            // and storers wait for the lock (module head, 2 to 4).
            unsafe { self.give_back(0, self.len) };
        }
        self.stored.store(0, Ordering::Release);
        self.sealed.store(false, Ordering::Release);
        self.loads.store(if self.direct { LOADS_DIRECT } else { 0 }, Ordering::Release);
        state.phase = Phase::Free;
        state.life += 1;
        count
    }
}

/// Neighbouring blocks in the state DROPPING: only the owner of this value may access them.
pub(super) struct Dropping<'a> {
    segment: &'a Segment,
    blocks: Range<usize>,
}

impl Dropping<'_> {
    /// Gives the memory of all of them back, with as few system calls as there are ways. Answers how
    /// many blocks it was.
    pub(super) fn discard_all(runs: Vec<Dropping<'_>>) -> u64 {
        let range = |run: &Dropping<'_>| match &run.segment.memory {
            Memory::Own(region) => {
                let shift = run.segment.block_shift;
                Some(region.range(run.blocks.start << shift, run.blocks.len() << shift))
            }
            // Without blocks there is nothing that could be dropped.
            Memory::File(_) => None,
        };
        let ranges: Vec<sys::RegionRange> = runs.iter().filter_map(range).collect();
        // SAFETY: DROPPING gives these blocks to this thread alone (module head, 2): nobody has a
        // reference into them, nobody loads or stores them.
        unsafe { sys::discard_ranges(&ranges) };
        let mut count = 0;
        for run in runs {
            count += run.blocks.len() as u64;
            for block in run.segment.blocks.get(run.blocks).unwrap_or_default() {
                block.dropped();
            }
        }
        count
    }
}

/// As [`Block::begin_load`], waiting for a block that is on its way out: else its reader would ask
/// again and again.
fn begin_load(block: &Block) -> bool {
    loop {
        if block.begin_load() {
            return true;
        }
        if !block.is_dropping() {
            return false;
        }
        kauri_base::sync::thread::yield_now();
    }
}
