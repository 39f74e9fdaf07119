//! The cleaner: copies live records of a segment to the cleaner's own streams, then frees the segment.
//!
//! Invariants:
//! - All records of a victim are durable, and all its units are applied. So each live record is reachable from its
//!   slot, and moving members of a unit cannot tear the unit.
//! - A copy keeps its commit sequence and is marked as moved. A compare-and-set of the slot's word makes it
//!   current; a concurrent writer wins.
//! - A victim is freed only after all copies, in all streams, are durable. Its memory is freed only after no reader
//!   can access it.
//! - A replicated log's end may be cut off up to what is *committed*, and a start applies no more than the medium says
//!   is committed. So what is moved is committed, and the medium says so before there is a copy. What is dead may have
//!   been replaced by a commit that is not committed yet: a victim is freed once all are that it has seen.
//!
//! | module | holds |
//! |---|---|
//! | [`policy`] | whether to clean, and which segments |
//! | [`mover`] | moving one segment's records |
//! | [`streams`] | where copies go |
//! | [`crate::cleaning`] | what it knows from round to round |

mod mover;
mod policy;
mod streams;
#[cfg(test)]
mod tests;

use crate::cleaning::Cleaner;
use crate::core::Core;
use crate::format::Stream;
use crate::open_segment::room_max;
use crate::segments::{Purpose, State};
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::Ordering;
use kauri_medium::Guard;
use kauri_storage::StorageError;
use std::time::Duration;

pub use policy::Urgency;

/// Interval at which the cleaner looks for work without being woken.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// Wait of a writer that needs space for readers to leave cleaned segments: readers may be many and cores few, but
/// no reader stays for seconds.
const READERS_WAIT: Duration = Duration::from_millis(1);
const READERS_WAITS_MAX: usize = 10_000;

impl Core {
    /// The cleaner's work, until `stop`.
    pub fn run_cleaner(&self, stop: &std::sync::atomic::AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.cleaner.wait_for_work(IDLE_WAIT);
            while !stop.load(Ordering::Acquire) && self.acks.failure().is_none() {
                // Failures of the medium are kept by `fail`; lack of room is the writers' problem.
                match self.clean_as(true) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => break,
                }
            }
        }
    }

    /// One round of cleaning, if needed. Returns whether it changed anything. Does nothing while files are locked.
    pub fn clean_once(&self) -> Result<bool, StorageError> {
        self.clean_as(false)
    }

    fn clean_as(&self, paced: bool) -> Result<bool, StorageError> {
        self.check_alive()?;
        let Some(_work) = self.files.enter() else { return Ok(false) };
        let reaped = self.reap();
        self.domain.collect();
        let mut urgency = self.urgency();
        let mut cleaner = self.cleaner.lock();
        if cleaner.is_paused(self.segments.epoch_next()) {
            urgency = Urgency::None;
        }
        cleaner.paced = paced;
        let cleaned = self.clean_round(&mut cleaner, urgency)?;
        cleaner.judge(self.segment_room(), self.segments.epoch_next());
        Ok(cleaned || reaped)
    }

    /// Cleans until there is a segment for this purpose. Called by writers, without latches and
    /// guards.
    pub fn clean_for(&self, purpose: Purpose, prepared_ever: u64) -> Result<(), StorageError> {
        let mut waits = 0;
        let before = self.cleaner.lock().work;
        loop {
            self.reap();
            self.domain.collect();
            if self.files.is_held() {
                return Err(StorageError::FilesHeld);
            }
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
                let mut cleaner = self.cleaner.lock();
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
                self.cleaner.wait_for_freed(READERS_WAIT);
            }
        }
    }

    fn segment_room(&self) -> u64 {
        u64::from(room_max(self.segments.segment_bytes()))
    }

    /// Empties some segments. Answers whether there were any.
    fn clean_round(&self, cleaner: &mut Cleaner, urgency: Urgency) -> Result<bool, StorageError> {
        let given_back = self.give_back_committed(cleaner)?;
        let mut victims = self.victims(urgency);
        self.tell_committed(cleaner, &mut victims)?;
        self.memory.set_cleaning(urgency != Urgency::None && !victims.is_empty());
        if victims.is_empty() {
            return Ok(given_back);
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
            // Whoever is about to hold the files waits for this round.
            if self.files.is_held() {
                break;
            }
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
            let seen = self.head.begun();
            cleaner.emptied.extend(emptied.iter().map(|victim| (seen, *victim)));
            self.give_back_committed(cleaner)?;
        }
        match result {
            // What was emptied may be all the room that the rest needs.
            Err(StorageError::OutOfDiskSpace) if !emptied.is_empty() => Ok(true),
            result => result.map(|()| true),
        }
    }

    /// Gives back the emptied segments that no commit may be cut off from. Answers whether there were any.
    fn give_back_committed(&self, cleaner: &mut Cleaner) -> Result<bool, StorageError> {
        // Before what is committed is looked at: what is committed later wakes the cleaner.
        self.cleaner.set_emptied(!cleaner.emptied.is_empty());
        if self.cleaner.is_copied() {
            return Ok(false);
        }
        let committed = self.durability.committed();
        let mut any = false;
        while let Some((_, victim)) = cleaner.emptied.pop_front_if(|(seen, _)| *seen <= committed) {
            self.give_back(victim)?;
            any = true;
        }
        if any {
            // In two steps: memory is unpublished first, then freed.
            self.domain.collect();
            self.domain.collect();
        }
        Ok(any)
    }

    /// Sees to it that the next start applies the records that are moved out of these segments, and leaves out those
    /// of which that can't be said.
    fn tell_committed(
        &self,
        cleaner: &mut Cleaner,
        victims: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        let purged = self.durability.horizon(0).purged.seq;
        // What the cleaner has moved before was told then.
        let is_told = |victim: u32| {
            let segment = self.segments.get(victim);
            segment.live() == 0
                || segment.stream() != Stream::User
                || purged <= self.durability.told()
        };
        if victims.iter().all(|victim| is_told(*victim)) {
            return Ok(());
        }
        match self.head.tell(&self.surroundings(false))? {
            Some(horizon) => {
                self.sync_all("clean.told.drain")?;
                self.durability.note_told(&horizon);
            }
            None => match self.open_output(cleaner, Stream::Cleaner) {
                Ok(()) | Err(StorageError::OutOfDiskSpace) => {}
                Err(error) => return Err(error),
            },
        }
        victims.retain(|victim| is_told(*victim));
        Ok(())
    }

    /// Frees an emptied segment after the last reader has left it.
    pub fn give_back(&self, victim: u32) -> Result<(), StorageError> {
        let core = self.weak.clone();
        let then = move || {
            if let Some(core) = core.upgrade() {
                core.segments.free(victim);
                core.counters.segments_cleaned.add(1);
                core.cleaner.note_freed();
            }
        };
        self.cache
            .recycle(victim, Box::new(then))
            .map_err(|error| self.fail("recycling a segment", error))
    }

    /// Stops counting the records of dropped stores. Answers whether there were any.
    fn reap(&self) -> bool {
        let dropped = self.registry.take_dropped();
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
