//! Emptying segments: what still counts is copied to the cleaner's own streams, then the segment is
//! free.
//!
//! Invariants:
//! - A victim is durable in all its records, and every unit in it has been applied: so each live
//!   record is reachable from its slot, and moving members of a unit can't tear it.
//! - A copy keeps its commit sequence and says that it was moved. It becomes the record by
//!   compare-and-set of the slot's word; a writer that comes between wins.
//! - A victim is given back only when all copies, in all streams, are durable, and its memory only when
//!   no reader can look at it any more.
//!
//! | module | holds |
//! |---|---|
//! | [`policy`] | whether to clean, and which segments |
//! | [`mover`] | moving one segment's records |
//! | [`streams`] | where copies go |

mod mover;
mod policy;
mod streams;
#[cfg(test)]
mod tests;

use crate::core::Core;
use crate::head::room_max;
use crate::lock;
use crate::segments::{Purpose, State};
use kauri_base::sync::atomic::Ordering;
use kauri_base::sync::{Arc, Weak};
use kauri_medium::Guard;
use kauri_storage::StorageError;
use std::time::Duration;
use streams::{Ages, Outputs};

pub use policy::Urgency;

/// How often the cleaner looks for work of its own accord.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// How a writer that needs room waits for readers to leave cleaned segments: readers may be many and
/// the processors few, but none stays for seconds.
const READERS_WAIT: Duration = Duration::from_millis(1);
const READERS_WAITS_MAX: usize = 10_000;

/// Victims after which it is judged whether cleaning gains anything: they should have given the room of
/// one segment.
const JUDGED_VICTIMS: u64 = 16;
/// The same where victims are dense: of cold segments that are 98 % live it takes fifty to fill one
/// less.
const JUDGED_DENSE_VICTIMS: u64 = 128;
/// Victims are dense if more than this percentage of their room is moved.
const DENSE_PERCENT: u64 = 90;

/// The cleaner's own state.
#[derive(Default)]
pub struct Cleaner {
    /// Where copies go.
    outputs: Outputs,
    ages: Ages,
    guard: Option<Guard>,
    /// Whether nobody waits for this round, so that it need not hurry.
    paced: bool,
    work: Work,
    /// The work done when it was last judged.
    judged: Work,
    /// Until segments of this epoch have been opened the cleaner moves nothing: large records can lie
    /// so that moving them gains nothing. Writers that need room still try.
    pause_until: u64,
}

/// What cleaning took and gave, in bytes of [`OpenSegment::room`].
///
/// [`OpenSegment::room`]: crate::head::OpenSegment::room
#[derive(Clone, Copy, Default)]
struct Work {
    /// Segments emptied.
    emptied: u64,
    /// Room that copies took.
    moved: u64,
    /// Room that was left at the ends of segments when the next copy didn't fit.
    gaps: u64,
}

impl Work {
    fn since(self, before: Work) -> Work {
        Work {
            emptied: self.emptied - before.emptied,
            moved: self.moved - before.moved,
            gaps: self.gaps - before.gaps,
        }
    }

    /// Whether it was enough to be judged, and gained next to nothing: dense segments give little each,
    /// but many of them give something; large records that leave gaps wherever they are never do.
    /// `segment_room` is that of an empty segment.
    fn is_hopeless(self, segment_room: u64) -> bool {
        let emptied = self.emptied * segment_room;
        let dense = self.moved > emptied / 100 * DENSE_PERCENT;
        let judged = if dense { JUDGED_DENSE_VICTIMS } else { JUDGED_VICTIMS };
        let gained = emptied.saturating_sub(self.moved + self.gaps);
        self.emptied >= judged && gained < emptied / judged
    }
}

impl Core {
    /// The cleaner's work, until `stop`.
    pub fn run_cleaner(&self, stop: &std::sync::atomic::AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.cleaner_kick.wait(IDLE_WAIT);
            while !stop.load(Ordering::Acquire) && self.acks.failure().is_none() {
                // Failures of the medium are kept by `fail`; lack of room is the writers' problem.
                match self.clean_as(true) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => break,
                }
            }
        }
    }

    /// One round of cleaning, if there is reason for one. Answers whether it changed anything.
    pub fn clean_once(&self) -> Result<bool, StorageError> {
        self.clean_as(false)
    }

    fn clean_as(&self, paced: bool) -> Result<bool, StorageError> {
        self.check_alive()?;
        let reaped = self.reap();
        self.domain.collect();
        let mut urgency = self.urgency();
        let mut cleaner = lock(&self.cleaner);
        let now = self.epoch_next.load(Ordering::Acquire);
        if now < cleaner.pause_until {
            urgency = Urgency::None;
        }
        cleaner.paced = paced;
        let cleaned = self.clean_round(&mut cleaner, urgency)?;
        let work = cleaner.work.since(cleaner.judged);
        let hopeless = work.is_hopeless(self.segment_room());
        if hopeless {
            let now = self.epoch_next.load(Ordering::Acquire);
            cleaner.pause_until = now + JUDGED_VICTIMS;
        }
        if hopeless || work.emptied >= JUDGED_DENSE_VICTIMS {
            cleaner.judged = cleaner.work;
        }
        Ok(cleaned || reaped)
    }

    /// Cleans until there is a segment for this purpose. Called by writers, without latches and
    /// guards.
    pub fn clean_for(&self, purpose: Purpose, prepared_ever: u64) -> Result<(), StorageError> {
        let mut waits = 0;
        let before = lock(&self.cleaner).work;
        loop {
            self.reap();
            self.domain.collect();
            match self.prepare(purpose, prepared_ever) {
                Err(StorageError::OutOfDiskSpace) => {}
                result => return result,
            }
            if purpose == Purpose::Write && self.segments.is_full() {
                return Err(StorageError::OutOfDiskSpace);
            }
            // What is full but was not synced yet can be cleaned only after that.
            self.flush_now()?;
            self.seal_full()?;
            self.sync_all("clean.room.drain")?;
            let (changed, work) = {
                let mut cleaner = lock(&self.cleaner);
                cleaner.paced = false;
                let changed = match self.clean_round(&mut cleaner, Urgency::Writers) {
                    // The cleaner's own room is in what readers still look at.
                    Err(StorageError::OutOfDiskSpace) if self.segments.is_emptying() => false,
                    result => result?,
                };
                (changed, cleaner.work.since(before))
            };
            if work.is_hopeless(self.segment_room()) {
                return Err(StorageError::OutOfDiskSpace);
            }
            if !changed {
                waits += 1;
                if !self.segments.is_emptying() || waits > READERS_WAITS_MAX {
                    // Others may have freed one since we looked, and left no victim for this round.
                    return self.prepare(purpose, prepared_ever);
                }
                self.freed_kick.wait(READERS_WAIT);
            }
        }
    }

    fn segment_room(&self) -> u64 {
        u64::from(room_max(self.segments.segment_bytes()))
    }

    /// Empties some segments. Answers whether there were any.
    fn clean_round(&self, cleaner: &mut Cleaner, urgency: Urgency) -> Result<bool, StorageError> {
        let victims = self.victims(urgency);
        self.memory.set_cleaning(urgency != Urgency::None && !victims.is_empty());
        if victims.is_empty() {
            return Ok(false);
        }
        let result = self.empty(cleaner, victims);
        if result.is_err() {
            self.memory.set_cleaning(false);
        }
        result
    }

    fn empty(&self, cleaner: &mut Cleaner, victims: Vec<u32>) -> Result<bool, StorageError> {
        let mut emptied = Vec::new();
        let mut result = Ok(());
        for victim in victims {
            self.segments.get(victim).set_state(State::Emptying);
            match self.move_records(cleaner, victim) {
                Ok(true) => {
                    // Its memory goes first if some is wanted before it can be given back.
                    let end = self.segments.get(victim).end();
                    self.cache.fade(victim, 0, end as usize);
                    emptied.push(victim);
                }
                Ok(false) => self.segments.get(victim).set_state(State::Damaged),
                Err(error) => {
                    self.segments.get(victim).set_state(State::Sealed);
                    result = Err(error);
                    break;
                }
            }
        }
        if !emptied.is_empty() {
            cleaner.work.emptied += emptied.len() as u64;
            self.store_moved(cleaner)?;
            self.sync_all("clean.moved.drain")?;
            for victim in &emptied {
                self.give_back(*victim)?;
            }
            // In two steps: memory is unpublished first, then freed.
            self.domain.collect();
            self.domain.collect();
        }
        match result {
            // What was emptied may be all the room that the rest needs.
            Err(StorageError::OutOfDiskSpace) if !emptied.is_empty() => Ok(true),
            result => result.map(|()| true),
        }
    }

    /// Frees an emptied segment when no reader looks at it any more.
    fn give_back(&self, victim: u32) -> Result<(), StorageError> {
        let core: Weak<Core> = self.acks.core().clone();
        let then = move || {
            if let Some(core) = core.upgrade() {
                core.segments.free(victim);
                core.counters.segments_cleaned.add(1);
                core.freed_kick.kick();
            }
        };
        self.cache
            .recycle(victim, Box::new(then))
            .map_err(|error| self.fail("recycling a segment", error))
    }

    /// Stops counting the records of dropped stores. Answers whether there were any.
    fn reap(&self) -> bool {
        let dropped = std::mem::take(&mut *lock(&self.reap));
        let mut guard = self.domain.register();
        for store in &dropped {
            let mut next = 0;
            loop {
                // In pieces, so that memory is not held back for long.
                guard.enter();
                let mut left = 4096;
                let mut last = None;
                store.slots.walk(&guard, next, false, |record, slot| {
                    self.reap_record(&guard, store, record, slot);
                    last = Some(record);
                    left -= 1;
                    left > 0
                });
                guard.leave();
                match last {
                    Some(last) => next = last + 1,
                    None => break,
                }
            }
        }
        !dropped.is_empty()
    }

    fn reap_record(
        &self,
        guard: &Guard,
        store: &Arc<crate::collection::Collection>,
        record: u64,
        mut slot: crate::address::Slot,
    ) {
        // Copies are counted while we look.
        while !slot.is_none() && !store.slots.clear(guard, record, slot) {
            slot = store.slots.load(guard, record);
        }
        if !slot.is_none() {
            self.segments.remove_live(slot);
        }
    }
}
