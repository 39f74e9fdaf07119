//! Signals immediates to the other side, and lets a side without arrivals fall asleep.
//!
//! Invariants:
//! - Data written before an immediate was sent is visible to the side that has read the immediate.
//! - Either the side that falls asleep sees the immediate, or the sender sees that it sleeps and signals it: each
//!   side writes one word and reads the other, with a full fence in between.
//!
//! `tests/loom.rs` compiles this file against a model checker's atomics.

use super::sync::atomic::{AtomicU32, Ordering, fence};

/// Puts an immediate into a slot that is clear. Whether the peer sleeps and has to be signalled.
#[inline]
pub fn tell(slot: &AtomicU32, peer_sleeps: &AtomicU32, immediate: u32) -> bool {
    slot.store(immediate, Ordering::Release);
    fence(Ordering::SeqCst);
    let sleeps = peer_sleeps.load(Ordering::Relaxed) != 0;
    if sleeps {
        // It may have woken and fallen asleep anew meanwhile: then that is taken back, and it is
        // signalled all the same.
        peer_sleeps.store(0, Ordering::Relaxed);
    }
    sleeps
}

/// Takes the immediate out of a slot, if one is there.
#[inline]
pub fn hear(slot: &AtomicU32) -> Option<u32> {
    let immediate = slot.load(Ordering::Acquire);
    if immediate == 0 {
        return None;
    }
    slot.store(0, Ordering::Relaxed);
    Some(immediate)
}

/// Whether there is something to hear.
#[inline]
pub fn has_come(slot: &AtomicU32) -> bool {
    slot.load(Ordering::Relaxed) != 0
}

/// Says that a side is about to sleep until it is signalled. False: there is something to hear in the
/// slot that comes next, and it must not.
#[inline]
pub fn fall_asleep(sleeps: &AtomicU32, next: &AtomicU32) -> bool {
    sleeps.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let come = has_come(next);
    if come {
        wake_up(sleeps);
    }
    !come
}

/// Whether a side has said that it sleeps and was not signalled since.
#[inline]
pub fn is_asleep(sleeps: &AtomicU32) -> bool {
    sleeps.load(Ordering::Relaxed) != 0
}

/// Takes back what [`fall_asleep`] said.
#[inline]
pub fn wake_up(sleeps: &AtomicU32) {
    sleeps.store(0, Ordering::Relaxed);
}
