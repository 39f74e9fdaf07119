//! Giving bytes to the kernel, making them durable, and the flusher's thread.
//!
//! Where the log is memory (`SegmentCache::is_direct`) commits are durable when they are published, so
//! nothing is stored or drained here; what is left is the throttle.
//!
//! What is given to the kernel goes into the staging file, if there is one and it has room
//! ([`crate::staging`]), else to the log's. What is stored is in the log's.
//!
//! Invariants:
//! - A position is published as written or durable only after the call that made it so returned, and only
//!   as far as was asked for before that call.
//! - Whoever has held `flushing` looks, once it is free again, for what others have asked for meanwhile
//!   ([`Core::flush`]): they don't wait for it, which may take as long as the kernel lets a write wait.

use crate::core::Core;
use crate::format::Stream;
use crate::format::segment::Position;
use crate::gather::Gather;
use crate::head::OpenSegment;
use crate::throttle::Throttle;
use crate::{lock, try_lock};
use kauri_base::sync::atomic::{Ordering, fence};
use kauri_medium::Site;
use kauri_storage::StorageError;
use std::time::Duration;

/// How far user writes are with the kernel, and what is to be sealed.
pub struct Flushing {
    /// The last commit.
    seq: u64,
    /// The place behind it.
    position: Position,
    /// Full segments that aren't sealed.
    full: Vec<OpenSegment>,
    throttle: Throttle,
}

impl Flushing {
    /// Full segments that were stored and are to be sealed; `head` may hold more where nobody stores.
    pub fn full(&mut self) -> &mut Vec<OpenSegment> {
        &mut self.full
    }

    /// Everything up to this commit and place is with the kernel.
    pub fn new(seq: u64, position: Position) -> Self {
        Flushing { seq, position, full: Vec::new(), throttle: Throttle::default() }
    }
}

/// So often a thread stores what others ask for: its own work waits meanwhile.
const ROUNDS_FOR_OTHERS: u32 = 4;

impl Core {
    /// Gives everything appended so far to the kernel, or leaves that to who is at it.
    pub fn flush(&self) {
        let wanted = self.visible.load(Ordering::Acquire);
        if self.acks.stored() < wanted {
            self.flush_asked.fetch_max(wanted, Ordering::Relaxed);
            if !self.stage_what_is_asked() {
                self.store_what_is_asked();
            }
        }
    }

    /// Gives what [`Core::flush`] was called for to the kernel, unless somebody else is at it, who looks here
    /// when that is done. Not for ever: the flusher goes on for those who keep asking.
    pub fn store_what_is_asked(&self) {
        for round in 0u32.. {
            // Between asking and trying the lock, and between freeing the lock and looking for who has
            // asked: either the one finds it free, or the other sees what is asked.
            fence(Ordering::SeqCst);
            if self.acks.stored() >= self.flush_asked.load(Ordering::Relaxed) {
                return;
            }
            if round >= ROUNDS_FOR_OTHERS && self.acks.flusher_runs() {
                return self.acks.kick();
            }
            let Some(mut flushing) = try_lock(&self.flushing) else { return };
            // A failure is kept by `fail`; whoever waits for a ticket learns of it.
            if self.store_all(&mut flushing).is_err() {
                return;
            }
        }
    }

    /// Works with `flushing` held.
    pub fn with_flushing<R>(&self, work: impl FnOnce(&mut Flushing) -> R) -> R {
        let result = work(&mut lock(&self.flushing));
        self.store_what_is_asked();
        result
    }

    /// Stores everything appended so far. When this returns, it is in the log's file, or staged.
    pub fn try_flush(&self) -> Result<(), StorageError> {
        let wanted = self.visible.load(Ordering::Acquire);
        if self.acks.stored() >= wanted || self.stage() {
            return self.check_alive();
        }
        self.with_flushing(|flushing| {
            // Whoever had the lock may have stored what we want.
            if flushing.seq >= wanted { self.check_alive() } else { self.store_all(flushing) }
        })
    }

    /// Stores everything appended so far in the log's file.
    pub fn flush_now(&self) -> Result<(), StorageError> {
        self.with_flushing(|flushing| self.store_all(flushing))
    }

    fn store_all(&self, flushing: &mut Flushing) -> Result<(), StorageError> {
        self.check_alive()?;
        let before = flushing.full.len();
        let mark = self.staging_mark();
        let (seq, position, storer) = {
            let mut head = lock(&self.head);
            let storer = head.take_full(&mut flushing.full);
            (head.seq(), head.position(), storer)
        };
        let store = |storer: &kauri_medium::SegmentStorer| {
            storer
                .store_pending("commit.persist")
                .map_err(|error| self.fail("storing commits", error))
        };
        for full in &flushing.full[before..] {
            store(full.storer())?;
        }
        if let Some(storer) = storer {
            store(&storer)?;
        }
        let bytes = bytes_between(flushing.position, position, self.segments.segment_bytes());
        flushing.seq = seq;
        flushing.position = position;
        self.unstage(mark, position);
        self.counters.flushes.add(1);
        self.acks.set_stored(seq);
        let scarcity = self.scarcity();
        if scarcity == 0.0 && !flushing.throttle.is_holding() {
            self.acks.set_written(seq);
            return Ok(());
        }
        let now = self.options.clock.monotonic();
        match flushing.throttle.stored(seq, bytes, scarcity, now) {
            Some(seq) => self.acks.set_written(seq),
            None => self.acks.kick(),
        }
        Ok(())
    }

    /// Publishes what the throttle holds back no longer. Answers how long until there is more.
    fn release_held(&self) -> Option<Duration> {
        self.with_flushing(|flushing| {
            if !flushing.throttle.is_holding() {
                return None;
            }
            let now = self.options.clock.monotonic();
            if let Some(seq) = flushing.throttle.release(now) {
                self.acks.set_written(seq);
            }
            flushing.throttle.next().map(|until| until.saturating_sub(now))
        })
    }

    /// Returns when everything up to this commit is durable. Those who wait while a drain runs share
    /// the next one.
    pub fn sync_to(&self, seq: u64, site: Site) -> Result<(), StorageError> {
        if self.acks.durable() >= seq {
            return self.check_alive();
        }
        let syncing = lock(&self.syncing);
        if self.acks.durable() >= seq {
            return self.check_alive();
        }
        self.drain(site)?;
        drop(syncing);
        Ok(())
    }

    /// Makes everything that has been appended or stored before this call durable, also commits that
    /// are not visible yet: the cleaner may have seen what they replaced as dead.
    pub fn sync_all(&self, site: Site) -> Result<(), StorageError> {
        let syncing = lock(&self.syncing);
        self.drain(site)?;
        drop(syncing);
        Ok(())
    }

    /// With `syncing` held.
    fn drain(&self, site: Site) -> Result<(), StorageError> {
        self.flush_now()?;
        let (seq, user) = self.with_flushing(|flushing| (flushing.seq, flushing.position));
        let cleaner = *lock(&self.cleaner_written);
        // What is published in the medium's own memory is durable already.
        if !self.cache.is_direct() {
            self.medium.drain(site).map_err(|error| self.fail("syncing the log", error))?;
        }
        {
            let mut durable = lock(&self.durable);
            durable.seq = durable.seq.max(seq);
            durable.raise_stream(Stream::User, user);
            durable.raise_cleaner(&cleaner);
        }
        // Before anybody is told: what is acknowledged as durable is told by a mark.
        if !self.cache.is_direct() {
            self.store_mark();
        }
        let before = self.acks.durable();
        self.counters.syncs.add(1);
        self.counters.synced_commits.add(seq.saturating_sub(before));
        self.acks.set_durable(seq);
        Ok(())
    }

    /// The flusher's work, until `stop`.
    pub fn run_flusher(&self, stop: &std::sync::atomic::AtomicBool) {
        let interval = Duration::from_millis(self.options.commit_interval_ms.max(1));
        let clock = &self.options.clock;
        let mut synced = clock.monotonic();
        let mut gather = Gather::default();
        self.acks.set_flusher_runs(true);
        while !stop.load(Ordering::Acquire) {
            // And stores what others have asked for.
            let pause = self.release_held();
            self.acks.wait_for_kick(pause.map_or(interval, |pause| interval.min(pause)));
            let wanted = self.acks.is_durability_wanted();
            if wanted && let Some((count, patience)) = gather.wanted() {
                gather.waited(self.acks.gather(count, patience));
            }
            let began = clock.monotonic();
            if !wanted && began.saturating_sub(synced) < interval {
                if self.staging_fills() {
                    // A failure is kept by `fail`.
                    let _ = self.flush_now();
                }
                continue;
            }
            synced = began;
            if self.acks.failure().is_none() {
                // Failures are kept by `fail`.
                let _ = self.sync_visible();
            }
            if wanted {
                gather.synced(clock.monotonic().saturating_sub(began), self.acks.under_way());
            }
        }
        self.acks.set_flusher_runs(false);
        let _ = self.sync_visible();
        // Nobody is left to publish what the throttle holds back.
        self.acks.set_written(self.acks.stored());
    }

    /// What the flusher and the preparer do every interval, and when somebody waits for them.
    pub fn flush_round(&self) -> Result<(), StorageError> {
        self.sync_visible()?;
        self.keep_ahead()?;
        self.keep_marks();
        Ok(())
    }

    /// Makes what is visible durable, and publishes what the throttle holds back no longer.
    fn sync_visible(&self) -> Result<(), StorageError> {
        self.release_held();
        let visible = self.visible.load(Ordering::Acquire);
        if self.acks.durable() < visible {
            self.sync_to(visible, "flusher.drain")?;
        }
        Ok(())
    }
}

/// Bytes of the log between two places of one stream, roughly.
fn bytes_between(from: Position, to: Position, segment_bytes: u32) -> u64 {
    if from.epoch == to.epoch {
        return u64::from(to.offset.saturating_sub(from.offset));
    }
    u64::from(segment_bytes.saturating_sub(from.offset)) + u64::from(to.offset)
}

#[cfg(test)]
mod tests {
    use crate::acks::Acks;
    use kauri_base::sync::Weak;
    use kauri_storage::Durability;
    use std::time::{Duration, Instant};

    #[test]
    fn who_waits_after_a_gathering_in_vain_wakes_the_flusher() {
        let acks = Acks::new(Weak::new(), 0);
        assert!(!acks.gather(2, Duration::ZERO));
        let tickets = acks.tickets(1);
        tickets.ticket(Durability::Durable).expect("a ticket").begin();
        let began = Instant::now();
        acks.wait_for_kick(Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(30), "not woken");
    }
}
