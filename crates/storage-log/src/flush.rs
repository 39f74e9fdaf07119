//! Writes bytes to the kernel, makes them durable, and runs the flusher's thread.
//!
//! If the log is memory (`SegmentCache::is_direct`), commits are durable when they are published. Then nothing is
//! stored or drained here; only the throttle remains.
//!
//! *Written* bytes are in the staging file, if there is one with space ([`crate::staging`]), else in the log's
//! file. *Stored* bytes are in the log's file.
//!
//! Invariants:
//! - A position is published as written or durable only after the call that made it so has returned, and only up to
//!   the position that was requested before that call.
//! - A thread that releases `flushing` checks afterwards for requests of other threads ([`Core::flush`]). They do
//!   not wait for the lock, because the kernel may block a write for long.

use crate::acks;
use crate::core::Core;
use crate::flushing::Stored;
use crate::gather::Gather;
use crate::staging::{CommitStaging, Putting};
use kauri_base::sync::atomic::{Ordering, fence};
use kauri_medium::Site;
use kauri_storage::StorageError;
use std::time::Duration;

/// Maximum number of times that a thread stores for requests of others: its own work waits meanwhile.
const ROUNDS_FOR_OTHERS: u32 = 4;

impl Core {
    /// Writes everything appended so far to the kernel, or leaves that to the thread that does it.
    pub fn flush(&self) {
        let wanted = self.head.last();
        if self.acks.stored() < wanted {
            self.flushing.ask(wanted);
            // What is cut off meanwhile is never stored.
            let last = self.head.last();
            if last < wanted {
                self.flushing.forget_asked(last);
            }
            if !self.stage_what_is_asked() {
                self.store_what_is_asked();
            }
        }
    }

    /// Writes what [`Core::flush`] requested to the kernel, unless another thread does it, which checks for
    /// requests afterwards. The number of repetitions is limited: the flusher continues for further requests.
    pub fn store_what_is_asked(&self) {
        for round in 0u32.. {
            // Between asking and trying the lock, and between freeing the lock and looking for who has
            // asked: either the one finds it free, or the other sees what is asked.
            fence(Ordering::SeqCst);
            if self.acks.stored() >= self.flushing.asked() {
                return;
            }
            if round >= ROUNDS_FOR_OTHERS && self.acks.flusher_runs() {
                return self.acks.wake_flusher();
            }
            let Some(mut stored) = self.flushing.try_lock() else { return };
            // A failure is kept by `fail`; whoever waits for a ticket learns of it.
            if self.store_all(&mut stored).is_err() {
                return;
            }
        }
    }

    /// Works with `flushing` held.
    pub fn with_flushing<R>(&self, work: impl FnOnce(&mut Stored) -> R) -> R {
        let result = work(&mut self.flushing.lock());
        self.store_what_is_asked();
        result
    }

    /// Stages what [`Core::flush`] requested, unless another thread does it, which checks for requests afterwards.
    /// Returns false if it must be stored instead: there is no file, it is full, or that is too much.
    fn stage_what_is_asked(&self) -> bool {
        let Some(area) = &self.staging else { return false };
        loop {
            // As in `store_what_is_asked`.
            fence(Ordering::SeqCst);
            if self.acks.stored() >= self.flushing.asked() {
                return true;
            }
            let Some(mut putting) = area.begin() else { return true };
            if !self.stage_with(area, &mut putting) {
                return false;
            }
        }
    }

    /// Puts everything that has been appended so far into the staging file, and counts it as written. Answers
    /// false if that can't be done now.
    pub fn stage(&self) -> bool {
        let Some(area) = &self.staging else { return false };
        let putting = area.begin();
        let staged = putting.is_some_and(|mut putting| self.stage_with(area, &mut putting));
        // For those who have found it taken.
        if staged && !self.stage_what_is_asked() {
            self.store_what_is_asked();
        }
        staged
    }

    fn stage_with(&self, area: &CommitStaging, putting: &mut Putting) -> bool {
        if self.scarcity() > 0.0 || self.check_alive().is_err() {
            return false;
        }
        let since = |place, appended: &mut Vec<_>| self.head.appended_since(place, appended);
        let seq = area.put_since(putting, since);
        if area.begins_to_fill() {
            self.acks.wake_flusher();
        }
        let Some(seq) = seq else { return false };
        self.counters.staged.add(1);
        self.acks.set_stored(seq);
        self.acks.set_written(seq);
        true
    }

    /// Stores everything appended so far. When this returns, it is in the log's file, or staged.
    pub fn try_flush(&self) -> Result<(), StorageError> {
        let wanted = self.head.last();
        if self.acks.stored() >= wanted || self.stage() {
            return self.check_alive();
        }
        self.with_flushing(|stored| {
            // Whoever had the lock may have stored what we want.
            if stored.end().0 >= wanted { self.check_alive() } else { self.store_all(stored) }
        })
    }

    /// Stores everything appended so far in the log's file.
    pub fn flush_now(&self) -> Result<(), StorageError> {
        self.with_flushing(|stored| self.store_all(stored))
    }

    fn store_all(&self, stored: &mut Stored) -> Result<(), StorageError> {
        self.check_alive()?;
        let before = stored.full().len();
        let mark = self.staging.as_ref().map_or(0, CommitStaging::mark);
        let (seq, position, storer) = self.head.take_full(stored.full());
        let store = |storer: &kauri_medium::SegmentStorer| {
            storer
                .store_pending("commit.persist")
                .map_err(|error| self.fail("storing commits", error))
        };
        for full in &stored.full()[before..] {
            store(full.storer())?;
        }
        if let Some(storer) = storer {
            store(&storer)?;
        }
        let bytes = stored.advance(seq, position, self.segments.segment_bytes());
        if let Some(staging) = &self.staging {
            staging.stored(mark, position);
        }
        self.counters.flushes.add(1);
        self.acks.set_stored(seq);
        let scarcity = self.scarcity();
        if scarcity == 0.0 && !stored.throttle().is_holding() {
            self.acks.set_written(seq);
            return Ok(());
        }
        let now = self.options.clock.monotonic();
        match stored.throttle().stored(seq, bytes, scarcity, now) {
            Some(seq) => self.acks.set_written(seq),
            None => self.acks.wake_flusher(),
        }
        Ok(())
    }

    /// Publishes what the throttle holds back no longer. Answers how long until there is more.
    fn release_held(&self) -> Option<Duration> {
        self.with_flushing(|stored| {
            let throttle = stored.throttle();
            if !throttle.is_holding() {
                return None;
            }
            let now = self.options.clock.monotonic();
            if let Some(seq) = throttle.release(now) {
                self.acks.set_written(seq);
            }
            throttle.next().map(|until| until.saturating_sub(now))
        })
    }

    /// Returns when everything up to this commit is durable. Waiters that come while a drain runs share the next
    /// one.
    pub fn sync_to(&self, seq: u64, site: Site) -> Result<(), StorageError> {
        if self.acks.durable() >= seq {
            return self.check_alive();
        }
        let syncing = self.flushing.lock_syncing();
        if self.acks.durable() >= seq {
            return self.check_alive();
        }
        self.drain(site)?;
        drop(syncing);
        Ok(())
    }

    /// Makes everything durable that was appended or stored before this call, including commits that are not
    /// visible yet: the cleaner may have treated the versions that they replaced as dead.
    pub fn sync_all(&self, site: Site) -> Result<(), StorageError> {
        let syncing = self.flushing.lock_syncing();
        self.drain(site)?;
        drop(syncing);
        Ok(())
    }

    /// With `syncing` held.
    pub fn drain(&self, site: Site) -> Result<(), StorageError> {
        self.flush_now()?;
        let (seq, user) = self.with_flushing(|stored| stored.end());
        let cleaner = self.durability.cleaner_stored();
        // What is published in the medium's own memory is durable already.
        if !self.cache.is_direct() {
            self.directory
                .medium()
                .drain(site)
                .map_err(|error| self.fail("syncing the log", error))?;
        }
        self.durability.drained(seq, user, &cleaner);
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
            self.acks.wait_for_wake(pause.map_or(interval, |pause| interval.min(pause)));
            let wanted = self.acks.is_durability_wanted();
            if wanted && let Some((count, patience)) = gather.wanted() {
                gather.waited(self.acks.gather(count, patience));
            }
            let began = clock.monotonic();
            if !wanted && began.saturating_sub(synced) < interval {
                if self.staging.as_ref().is_some_and(CommitStaging::fills) {
                    // A failure is kept by `fail`.
                    let _ = self.flush_now();
                }
                continue;
            }
            synced = began;
            if self.acks.failure().is_none() {
                // Failures are kept by `fail`.
                let _ = self.sync_last();
            }
            if wanted {
                gather.synced(clock.monotonic().saturating_sub(began), self.acks.under_way());
            }
        }
        self.acks.set_flusher_runs(false);
        let _ = self.sync_last();
        // Nobody is left to publish what the throttle holds back.
        self.acks.set_written(self.acks.stored());
    }

    /// The work of the flusher and the preparer, every interval and when a thread waits for it.
    pub fn flush_round(&self) -> Result<(), StorageError> {
        self.sync_last()?;
        self.keep_ahead()?;
        self.keep_marks();
        Ok(())
    }

    /// Makes commits durable, and publishes acknowledgements that the throttle no longer holds.
    fn sync_last(&self) -> Result<(), StorageError> {
        self.release_held();
        let last = self.head.last();
        if self.acks.durable() < last {
            self.sync_to(last, "flusher.drain")?;
        }
        Ok(())
    }
}

impl acks::Flush for Core {
    fn make_written(&self) {
        let _ = self.try_flush();
    }

    fn make_durable(&self, seq: u64) {
        let _ = self.sync_to(seq, "commit.drain");
    }
}

#[cfg(test)]
mod tests {
    use crate::acks::Acks;
    use crate::core::Core;
    use kauri_base::sync::Weak;
    use kauri_storage::Durability;
    use std::time::{Duration, Instant};

    #[test]
    fn who_waits_after_a_gathering_in_vain_wakes_the_flusher() {
        let acks = Acks::new(Weak::<Core>::new(), 0);
        assert!(!acks.gather(2, Duration::ZERO));
        let tickets = acks.tickets(1);
        tickets.ticket(Durability::Durable).expect("a ticket").begin();
        let began = Instant::now();
        acks.wait_for_wake(Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(30), "not woken");
    }
}
