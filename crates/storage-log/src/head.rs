//! The head, to which user writes are appended. Its mutex decides the order of all commits: only here a unit gets
//! its commit sequence and its place in the log.
//!
//! Invariants:
//! - A unit gets its commit sequence and its place in the log under the head's mutex, so both have the same order.
//! - A unit is appended as a whole, or its engine ends: only publishing consumes an [`Appended`].
//! - Commits become visible in the order of their commit sequences.
//! - Nothing is appended while files are locked.
//! - A member that follows a replicated log appends other members' frames, which become visible when they are
//!   applied, and no units of its own. All pass the same [`Head::begin`], which decides.

use crate::acks::Acks;
use crate::address::Address;
use crate::durability::Durability;
use crate::files::Files;
use crate::format::record::{Kind, RecordHeader, record_bytes};
use crate::format::segment::{HORIZON_BYTES, Horizon, Position, Purged};
use crate::format::summary::ENTRY_BYTES_MAX;
use crate::lock;
use crate::open_segment::OpenSegment;
use crate::segments::Segments;
use crate::wake::Wake;
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_base::sync::{Mutex, MutexGuard};
use kauri_medium::{SegmentStorer, Site};
use kauri_storage::{LogPosition, StorageError};
use std::collections::VecDeque;

/// The appended bytes of user writes.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub puts: u64,
    pub tombstones: u64,
    pub ddl_records: u64,
    pub commit_records: u64,
    pub marks: u64,
    /// Bytes of the documents.
    pub document_bytes: u64,
    /// Bytes of all these records, headers included.
    pub record_bytes: u64,
}

impl Counts {
    #[inline]
    fn add(&mut self, header: &RecordHeader) {
        match header.kind {
            Kind::Put | Kind::PendingPut => {
                self.puts += 1;
                self.document_bytes += u64::from(header.payload_len);
            }
            Kind::Tombstone | Kind::PendingTombstone => self.tombstones += 1,
            Kind::Commit | Kind::PendingCommit | Kind::Resolution | Kind::Frame => {
                self.commit_records += 1;
            }
            Kind::CreateStore | Kind::DropStore => self.ddl_records += 1,
            Kind::Mark => self.marks += 1,
            Kind::End | Kind::Image | Kind::ImageEnd => {}
        }
        self.record_bytes += u64::from(header.record_bytes());
    }
}

/// The records of units that no frame of the replicated log has closed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Unframed {
    /// The commit of the first unit.
    pub first: u64,
    /// Where they begin.
    pub start: Position,
    /// Their number.
    pub records: u32,
    /// Their bytes in the log.
    pub bytes: u64,
}

impl Unframed {
    /// None: the first will be of this commit, at this place or behind it.
    pub fn from(first: u64, start: Position) -> Self {
        Unframed { first, start, records: 0, bytes: 0 }
    }

    /// Counts a record.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.records = self.records.saturating_add(1);
        self.bytes += bytes;
    }
}

/// A segment that has been appended to.
pub struct AppendedSegment {
    /// For its bytes.
    pub storer: SegmentStorer,
    /// Its epoch.
    pub epoch: u64,
}

/// See the module's head.
pub struct Head {
    state: Mutex<State>,
    /// The last commit that readers see.
    visible: AtomicU64,
    /// The last one that was appended without being applied; 0 where that never happened since the member led.
    followed: AtomicU64,
    /// As the state says: a hint.
    follows: AtomicBool,
}

/// What is appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Append {
    /// A unit of this server, or what resolves units.
    Unit,
    /// A frame of what was committed here.
    Frame,
    /// A unit or a frame as another member has it.
    Copy,
}

/// What an append looks at and tells of with the head's mutex held.
pub struct Surroundings<'c> {
    /// Whether files are held.
    pub files: &'c Files,
    /// Where the log is memory: told that the unit is durable.
    pub acks: &'c Acks,
    /// For marks.
    pub durability: &'c Durability,
    /// For marks.
    pub segments: &'c Segments,
    /// Woken if another segment will be wanted.
    pub preparer: &'c Wake,
    /// Whether the log is the medium's own memory.
    pub is_direct: bool,
    /// Whether a unit that is durable is acknowledged at once.
    pub acknowledges: bool,
    /// Bytes between two marks.
    pub mark_interval_bytes: u64,
}

/// Why nothing was appended.
pub enum NotAppended {
    /// There is no room in the prepared segments, of which there have been this many.
    Room(u64),
    /// Files are held.
    Held,
    /// The engine has ended.
    Failed(StorageError),
}

/// A unit on its way into the log, with the head's mutex held.
pub struct Appender<'c> {
    state: MutexGuard<'c, State>,
    around: Surroundings<'c>,
    appended: Appended<'c>,
}

impl<'c> Appender<'c> {
    /// The unit's commit sequence.
    #[inline]
    pub fn seq(&self) -> u64 {
        self.appended.seq
    }

    /// Appends a record. Answers its place and its header's CRC.
    #[inline]
    pub fn append(
        &mut self,
        header: &RecordHeader,
        payload: &[u8],
    ) -> Result<(Address, u32), NotAppended> {
        self.state.append(header, payload).map_err(|error| self.around.broken(error))
    }

    /// What was appended since the last frame.
    pub fn unframed(&self) -> Unframed {
        self.state.unframed
    }

    /// A frame has been appended: the next one begins behind it. Answers where it ends.
    pub fn end_frame(&mut self) -> Position {
        self.state.end_frame()
    }

    /// All of the unit has been appended.
    #[inline]
    pub fn finish(self) -> Result<Appended<'c>, NotAppended> {
        let Appender { mut state, around, appended } = self;
        state.publish("commit.fence").map_err(|error| around.broken(error))?;
        // Where segments or memory are scarce the acknowledgement is left to `flush` and its throttle.
        if around.is_direct && around.acknowledges {
            around.acks.reach(appended.seq);
        }
        if state.asks_for_preparation() {
            around.preparer.wake();
        }
        Ok(appended)
    }
}

impl Surroundings<'_> {
    /// A unit that was begun can't be given up: the log would have half of it, so it ends here.
    #[cold]
    fn broken(&self, error: StorageError) -> NotAppended {
        NotAppended::Failed(self.acks.fail("appending to the log", error))
    }
}

/// A unit that is in the log and not visible yet. To be published: dropped without that it ends the engine, since no
/// later commit could ever become visible.
#[must_use]
pub struct Appended<'c> {
    /// Its commit sequence.
    pub seq: u64,
    /// Whether snapshots were held when it got that.
    pub holding: bool,
    /// How many ever had been.
    pub holds: u64,
    /// Whether it is applied later.
    pub follows: bool,
    acks: &'c Acks,
}

impl Drop for Appended<'_> {
    fn drop(&mut self) {
        self.acks.fail("committing", "a commit failed after it received its sequence number");
    }
}

impl Head {
    /// A head that goes on after this commit and place. Of a replicated log everything up to commit `applied` is
    /// applied, and the member follows; without one `applied` is `seq`.
    pub fn new(
        (seq, position): (u64, Position),
        unframed: Unframed,
        (follows, applied): (bool, u64),
    ) -> Self {
        let state = State { seq, position, marked: seq, unframed, ..State::default() };
        Head {
            state: Mutex::new(State { follows, applied, ..state }),
            visible: AtomicU64::new(applied),
            followed: AtomicU64::new(if follows { seq } else { 0 }),
            follows: AtomicBool::new(follows),
        }
    }

    /// Begins to append a unit whose records have payloads of these lengths, and gives it its commit sequence.
    #[inline]
    pub fn begin<'c>(
        &'c self,
        around: Surroundings<'c>,
        what: Append,
        payload_lens: impl Iterator<Item = u32> + Clone,
    ) -> Result<Appender<'c>, NotAppended> {
        let mut state = lock(&self.state);
        state.check(what)?;
        if around.files.is_held() {
            return Err(NotAppended::Held);
        }
        let durable = if around.is_direct { state.seq } else { around.acks.durable() };
        let mark = state.wants_mark(durable, around.mark_interval_bytes);
        // In the order in which they are appended: it decides which segments they need.
        let mark_len = mark.then_some(HORIZON_BYTES as u32);
        if !state.fits(mark_len.into_iter().chain(payload_lens)) {
            return Err(NotAppended::Room(state.prepared_ever));
        }
        if mark {
            let horizon = state.horizon_in(&around);
            state.mark(&horizon).map_err(|error| around.broken(error))?;
        }
        state.seq += 1;
        let mut appended = state.appended(state.seq, around.acks);
        if matches!(what, Append::Frame) && state.unframed.records > 0 {
            // Of units that this member has committed while it led: they are applied, and so is all before them.
            (appended.follows, state.applied) = (false, state.seq);
        }
        Ok(Appender { state, around, appended })
    }

    /// Makes a commit visible, after all before it. Fails if one before it never will be.
    #[inline]
    pub fn publish(&self, appended: Appended<'_>) -> Result<u64, StorageError> {
        let (seq, acks) = (appended.seq, appended.acks);
        std::mem::forget(appended);
        let mut turns = 0u32;
        while self.visible.load(Ordering::Acquire) != seq - 1 {
            turns += 1;
            if turns < 64 {
                kauri_base::sync::hint::spin_loop();
            } else {
                acks.check_alive()?;
                kauri_base::sync::thread::yield_now();
            }
        }
        self.visible.store(seq, Ordering::Release);
        Ok(seq)
    }

    /// The last commit that readers see.
    #[inline]
    pub fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// The last commit that readers see or will see once it is applied.
    #[inline]
    pub fn last(&self) -> u64 {
        self.visible().max(self.followed.load(Ordering::Acquire))
    }

    /// Whether the member follows. Exact only for who keeps it from changing.
    #[inline]
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// A copy has been appended. It is applied later.
    pub fn keep_unapplied(&self, appended: Appended<'_>) -> u64 {
        let seq = appended.seq;
        std::mem::forget(appended);
        self.followed.store(seq, Ordering::Release);
        seq
    }

    /// Begins to apply the commit behind the last one that was; to be published.
    pub fn begin_applying<'c>(&self, acks: &'c Acks) -> Appended<'c> {
        let mut state = lock(&self.state);
        state.applied += 1;
        state.appended(state.applied, acks)
    }

    /// The last commit that was applied, or begun to be.
    pub fn begun(&self) -> u64 {
        lock(&self.state).begun()
    }

    /// Where the next frame's first unit goes: its commit. `None` while there are units without a frame, or while the
    /// member leads.
    pub fn next_copy(&self) -> Option<u64> {
        let state = lock(&self.state);
        (state.follows && state.unframed.records == 0).then_some(state.seq + 1)
    }

    /// Accepts units of this server, or no more. Answers `false`, and changes nothing, if it is to lead and something
    /// is not applied; else the last commit that had been given when it began to follow is visible.
    pub fn set_follows(&self, follows: bool, acks: &Acks) -> bool {
        let seq = {
            let state = &mut *lock(&self.state);
            if !follows && state.begun() < state.seq {
                return false;
            }
            if state.follows != follows {
                (state.follows, state.applied) = (follows, state.seq);
                self.followed.store(0, Ordering::Release);
                self.follows.store(follows, Ordering::Relaxed);
            }
            state.applied
        };
        let mut turns = 0u32;
        while follows && self.visible() < seq && acks.failure().is_none() {
            turns += 1;
            if turns < 64 {
                kauri_base::sync::hint::spin_loop();
            } else {
                kauri_base::sync::thread::yield_now();
            }
        }
        true
    }

    /// The replicated log begins: its first frame is behind `base`, and has nothing that was appended so far. A mark at
    /// the stream's end tells of that. The member follows from now on. Answers where the first frame begins.
    pub fn begin_frames(
        &self,
        around: &Surroundings<'_>,
        base: LogPosition,
    ) -> Result<Position, NotAppended> {
        let mut state = lock(&self.state);
        if around.files.is_held() {
            return Err(NotAppended::Held);
        }
        if !state.fits([HORIZON_BYTES as u32].into_iter()) {
            return Err(NotAppended::Room(state.prepared_ever));
        }
        around.durability.begin_frames(Purged { position: base, seq: state.seq });
        state.append_mark(around)?;
        let end = state.end_frame();
        drop(state);
        self.set_follows(true, around.acks);
        Ok(end)
    }

    /// The replicated log ends with its last frame, of this commit, which is durable. A mark tells of that. `false`, and
    /// nothing has happened, if the member follows or something was appended behind the frame.
    pub fn end_frames(&self, around: &Surroundings<'_>, seq: u64) -> Result<bool, NotAppended> {
        let mut state = lock(&self.state);
        if around.files.is_held() {
            return Err(NotAppended::Held);
        }
        if !state.fits([HORIZON_BYTES as u32].into_iter()) {
            return Err(NotAppended::Room(state.prepared_ever));
        }
        if state.follows || state.seq != seq {
            return Ok(false);
        }
        around.durability.end_frames(seq);
        state.append_mark(around)?;
        Ok(true)
    }

    /// Appends a mark, if there is room for one. Answers the horizon that it tells.
    pub fn tell(&self, around: &Surroundings<'_>) -> Result<Option<Horizon>, StorageError> {
        let state = &mut *lock(&self.state);
        if around.files.is_held() || !state.fits_mark() {
            return Ok(None);
        }
        let horizon = state.horizon_in(around);
        let told = state.mark(&horizon).and_then(|()| state.publish("commit.fence"));
        told.map_err(|error| around.acks.fail("appending to the log", error))?;
        Ok(Some(horizon))
    }

    /// The end of the stream.
    pub fn position(&self) -> Position {
        lock(&self.state).position()
    }

    /// What is durable where the log is memory: all that was appended before is published.
    pub fn horizon(&self, durability: &Durability, initialised: u32) -> Horizon {
        lock(&self.state).horizon(durability, initialised)
    }

    /// Counts another held snapshot: of the last commit that has a number and is not to be applied later. `note` is told
    /// of it with the mutex held. Answers that commit, and which of all held snapshots it is.
    pub fn hold(&self, note: impl FnOnce(u64)) -> (u64, u64) {
        let state = &mut *lock(&self.state);
        state.holding += 1;
        state.holds += 1;
        let seq = state.begun();
        note(seq);
        (seq, state.holds)
    }

    /// A snapshot is held no more.
    pub fn release(&self) {
        lock(&self.state).holding -= 1;
    }

    /// How many snapshots ever were held.
    pub fn holds(&self) -> u64 {
        lock(&self.state).holds
    }

    /// What has been appended.
    pub fn counts(&self) -> Counts {
        lock(&self.state).counts
    }

    /// Returns when no append is under way that began before.
    pub fn pass(&self) {
        drop(lock(&self.state));
    }

    /// Adds a prepared segment.
    pub fn add_prepared(&self, segment: OpenSegment) {
        let state = &mut *lock(&self.state);
        state.prepared.push_back(segment);
        state.prepared_ever += 1;
        state.asked = false;
    }

    /// Number of prepared segments.
    pub fn prepared_ever(&self) -> u64 {
        lock(&self.state).prepared_ever
    }

    /// What the preparer is to do: memory to be provided, and, if another segment should be opened by now, how many
    /// have been.
    pub fn take_preparation(&self) -> (Option<(SegmentStorer, u32, u32)>, Option<u64>) {
        let state = &mut *lock(&self.state);
        let memory = state.take_memory_range();
        (memory, state.wants_preparation().then_some(state.prepared_ever))
    }

    /// Whether another segment should be prepared by now.
    #[cfg(test)]
    pub fn wants_preparation(&self) -> bool {
        lock(&self.state).wants_preparation()
    }

    /// Adds the segments that are appended to from this place on, one after the other. Answers the last commit that
    /// is in them, or none if that place is in none of those that nobody has taken to store them.
    pub fn appended_since(
        &self,
        place: Position,
        segments: &mut Vec<AppendedSegment>,
    ) -> Option<u64> {
        let state = lock(&self.state);
        let all = state.full.iter().chain(&state.open);
        let since = all.skip_while(|segment| segment.epoch != place.epoch);
        segments
            .extend(since.map(|s| AppendedSegment { storer: s.storer().clone(), epoch: s.epoch }));
        (!segments.is_empty()).then_some(state.seq)
    }

    /// Takes the segments left behind since this was last called. Answers the last commit, the place behind it, and
    /// the open segment's storer.
    pub fn take_full(&self, full: &mut Vec<OpenSegment>) -> (u64, Position, Option<SegmentStorer>) {
        let state = &mut *lock(&self.state);
        full.append(&mut state.full);
        let storer = state.open.as_ref().map(|open| open.storer().clone());
        (state.seq, state.position(), storer)
    }

    /// For a clean shutdown: leaves the open segment behind.
    pub fn close(&self) -> Result<(), StorageError> {
        lock(&self.state).close()
    }

    /// Takes the segments that are prepared.
    pub fn take_prepared(&self) -> VecDeque<OpenSegment> {
        let state = &mut *lock(&self.state);
        state.asked = false;
        std::mem::take(&mut state.prepared)
    }

    /// The log ends with this commit, at this place: what was behind it is cut off, and all segments have been left.
    /// `note` is called with the mutex held.
    pub fn cut(&self, seq: u64, position: Position, note: impl FnOnce()) {
        let state = &mut *lock(&self.state);
        (state.seq, state.position, state.marked) = (seq, position, seq);
        state.unframed = Unframed::from(seq + 1, position);
        self.followed.store(seq, Ordering::Release);
        note();
    }
}

#[derive(Default)]
struct State {
    open: Option<OpenSegment>,
    /// Opened and still empty, in the order of their epochs.
    prepared: VecDeque<OpenSegment>,
    /// The number of prepared segments so far.
    prepared_ever: u64,
    /// Whether the preparer was asked for another one.
    asked: bool,
    /// Left behind, to be stored and sealed.
    full: Vec<OpenSegment>,
    /// Number of these that were left since the last publication.
    full_unpublished: usize,
    /// The last commit sequence that was given.
    seq: u64,
    /// Whether other members' frames are appended, and which commit of them was last begun to be applied.
    follows: bool,
    applied: u64,
    /// The head's position before the first segment.
    position: Position,
    /// The durable commit of the last mark.
    marked: u64,
    bytes_since_mark: u64,
    counts: Counts,
    unframed: Unframed,
    /// Snapshots that are held, and that ever were.
    holding: u64,
    holds: u64,
}

impl State {
    /// Whether this may be appended now.
    #[inline]
    fn check(&self, what: Append) -> Result<(), NotAppended> {
        match (what, self.follows) {
            (Append::Unit, true) => Err(NotAppended::Failed(StorageError::NotPrimary)),
            (Append::Copy, false) => Err(NotAppended::Failed(StorageError::OutOfOrder)),
            _ => Ok(()),
        }
    }

    fn appended<'c>(&self, seq: u64, acks: &'c Acks) -> Appended<'c> {
        let (holding, holds, follows) = (self.holding > 0, self.holds, self.follows);
        Appended { seq, holding, holds, follows, acks }
    }

    /// The last commit that was applied, or begun to be.
    fn begun(&self) -> u64 {
        if self.follows { self.applied } else { self.seq }
    }

    fn horizon(&self, durability: &Durability, initialised: u32) -> Horizon {
        durability.horizon_of_memory(self.seq, self.position(), initialised)
    }

    /// What is durable.
    fn horizon_in(&self, around: &Surroundings<'_>) -> Horizon {
        let initialised = around.segments.initialised();
        match around.is_direct {
            true => self.horizon(around.durability, initialised),
            false => around.durability.horizon(initialised),
        }
    }

    /// How far the stream goes.
    fn position(&self) -> Position {
        self.open.as_ref().map_or(self.position, OpenSegment::position)
    }

    /// Whether another segment, or memory for this one, should be prepared by now and the preparer was not asked.
    #[inline]
    fn asks_for_preparation(&mut self) -> bool {
        let memory = self.open.as_ref().is_some_and(OpenSegment::wants_memory);
        let asks = !self.asked && (memory || self.wants_preparation());
        self.asked |= asks;
        asks
    }

    /// The memory that the preparer should allocate.
    fn take_memory_range(&mut self) -> Option<(SegmentStorer, u32, u32)> {
        self.asked = false;
        let open = self.open.as_mut()?;
        let (from, to) = open.take_memory_range()?;
        Some((open.storer().clone(), from, to))
    }

    /// Whether another segment should be prepared by now.
    fn wants_preparation(&self) -> bool {
        let low = |open: &OpenSegment| open.room() < open.limit() / 2;
        self.prepared.is_empty() && self.open.as_ref().is_some_and(low)
    }

    /// Whether records of these payload lengths fit into the open and the prepared segments.
    fn fits(&self, payload_lens: impl Iterator<Item = u32> + Clone) -> bool {
        let (mut bytes, mut records) = (0, 0);
        for payload_len in payload_lens.clone() {
            bytes += u64::from(record_bytes(payload_len));
            records += 1;
        }
        if self.open.as_ref().is_some_and(|open| open.fits(bytes, records)) {
            return true;
        }
        let mut segments = self.open.iter().chain(&self.prepared).map(|s| u64::from(s.room()));
        let mut room = segments.next().unwrap_or(0);
        for payload_len in payload_lens {
            let needed = u64::from(record_bytes(payload_len) + ENTRY_BYTES_MAX);
            while room < needed {
                match segments.next() {
                    Some(next) => room = next,
                    None => return false,
                }
            }
            room -= needed;
        }
        true
    }

    /// Appends a record to the open segment, or to the next one if it doesn't fit.
    #[inline]
    fn append(
        &mut self,
        header: &RecordHeader,
        payload: &[u8],
    ) -> Result<(Address, u32), StorageError> {
        let bytes = u64::from(header.record_bytes());
        loop {
            match &mut self.open {
                Some(open) if open.fits(bytes, 1) => {
                    self.bytes_since_mark += bytes;
                    self.counts.add(header);
                    self.unframed.add(bytes);
                    return open.append(header, payload);
                }
                _ => self.next_segment(header.seq)?,
            }
        }
    }

    fn next_segment(&mut self, seq: u64) -> Result<(), StorageError> {
        let Some(next) = self.prepared.pop_front() else {
            return Err(StorageError::Io("no segment is prepared".to_owned()));
        };
        if let Some(mut full) = self.open.replace(next) {
            full.append_end(seq)?;
            self.full.push(full);
            self.full_unpublished += 1;
        }
        Ok(())
    }

    /// See [`OpenSegment::publish`], for all that this thread has appended since it took the head.
    #[inline]
    fn publish(&mut self, site: Site) -> Result<(), StorageError> {
        let published = self.full.len().saturating_sub(self.full_unpublished);
        self.full_unpublished = 0;
        match &mut self.open {
            Some(open) => open.publish(self.full.iter_mut().skip(published), site),
            None => Ok(()),
        }
    }

    /// Whether a mark is due, given what is durable.
    #[inline]
    fn wants_mark(&self, durable: u64, interval: u64) -> bool {
        self.bytes_since_mark >= interval && durable > self.marked
    }

    /// Nothing is unframed. Answers the stream's end.
    fn end_frame(&mut self) -> Position {
        let end = self.position();
        self.unframed = Unframed::from(self.seq + 1, end);
        end
    }

    /// A record with the horizon.
    fn mark_record(&self, horizon: &Horizon) -> (RecordHeader, [u8; HORIZON_BYTES]) {
        let payload = horizon.encode();
        let header = RecordHeader {
            kind: Kind::Mark,
            flags: 0,
            payload_len: payload.len() as u32,
            payload_crc: crc32c::crc32c(&payload),
            collection: 0,
            record: 0,
            seq: self.seq,
        };
        (header, payload)
    }

    /// Appends a mark of what the horizon is now; it fits.
    fn append_mark(&mut self, around: &Surroundings<'_>) -> Result<(), NotAppended> {
        let horizon = self.horizon_in(around);
        let (header, payload) = self.mark_record(&horizon);
        self.append(&header, &payload).map_err(|error| around.broken(error))?;
        self.publish("commit.fence").map_err(|error| around.broken(error))
    }

    /// Whether a mark fits.
    fn fits_mark(&self) -> bool {
        let bytes = record_bytes(HORIZON_BYTES as u32);
        self.open.as_ref().is_some_and(|open| open.fits(u64::from(bytes), 1))
    }

    /// Appends a mark if one fits.
    fn mark(&mut self, horizon: &Horizon) -> Result<(), StorageError> {
        let (header, payload) = self.mark_record(horizon);
        if !self.fits_mark() {
            return Ok(());
        }
        if let Some(open) = &mut self.open {
            open.append(&header, &payload)?;
            self.counts.add(&header);
            self.marked = horizon.seq;
            self.bytes_since_mark = 0;
        }
        Ok(())
    }

    /// For a clean shutdown: leaves the open segment behind.
    fn close(&mut self) -> Result<(), StorageError> {
        self.position = self.position();
        if let Some(mut open) = self.open.take() {
            open.append_end(self.seq)?;
            self.position = open.position();
            self.full.push(open);
        }
        Ok(())
    }
}
