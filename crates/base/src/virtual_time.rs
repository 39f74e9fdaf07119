//! Virtual time of a simulation.
//!
//! A simulation runs one or several servers on one thread ([`begin`]). Virtual time belongs to that thread. Each
//! read of the time advances it a little: an amount drawn from the seed, sometimes as much as a time slice. When no
//! task can run, the simulation advances the time to the next deadline.
//!
//! Invariants: on a thread without a simulation [`now_ns`] returns `None` and costs one load. Time never goes back.

use crate::Clock;
use std::cell::Cell;
use std::time::Duration;

/// The calendar time at the beginning of a simulated world, in milliseconds since 1970.
pub const START_MS: i64 = 1_700_000_000_000;
/// The monotonic time at the beginning of a world. It exceeds every timeout, so that times in the past can be
/// represented.
const START_NS: u64 = 1_000_000_000_000_000;
/// A look takes less than this, but one of [`LONG_LOOKS`].
const LOOK_NS: u64 = 1_000;
/// One in this many clock reads takes up to [`LONG_LOOK_NS`]: the thread was not scheduled, or the work took long.
const LONG_LOOKS: u64 = 64;
const LONG_LOOK_NS: u64 = 6_000_000;
/// Steps of work between two looks, at most.
const STEPS_MAX: u64 = 32;
/// One in this many clock reads makes the work yield.
const LOOKS_A_TURN: u64 = 8;

thread_local! {
    /// 0: this thread has no simulation.
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
    static DRAWS: Cell<u64> = const { Cell::new(0) };
}

/// Begins a world on this thread; its time is drawn from `seed`.
pub fn begin(seed: u64) {
    NOW_NS.set(START_NS);
    DRAWS.set(seed);
}

/// The world of this thread has ended.
pub fn end() {
    NOW_NS.set(0);
}

/// The time of this thread's world in nanoseconds, if it has one. Takes a little of it.
#[inline]
pub fn now_ns() -> Option<u64> {
    match NOW_NS.get() {
        0 => None,
        now_ns => Some(look(now_ns)),
    }
}

#[cold]
fn look(now_ns: u64) -> u64 {
    let drawn = DRAWS.with(crate::clock::splitmix);
    let long = drawn.is_multiple_of(LONG_LOOKS);
    let took_ns = (drawn >> 16) % if long { LONG_LOOK_NS } else { LOOK_NS };
    NOW_NS.set(now_ns + took_ns);
    now_ns + took_ns
}

/// After how many steps of work the next look is due that would be after `steps`: in a simulation a few, so that
/// work is left at many places.
#[inline]
pub fn steps_to_look(steps: u32) -> u32 {
    match NOW_NS.get() {
        0 => steps,
        _ => 1 + draw_below(STEPS_MAX) as u32,
    }
}

/// Whether work gives way at a look before its slice is over.
#[inline]
pub fn gives_way() -> bool {
    NOW_NS.get() != 0 && draw_below(LOOKS_A_TURN) == 0
}

#[cold]
fn draw_below(below: u64) -> u64 {
    (DRAWS.with(crate::clock::splitmix) >> 16) % below
}

/// The time of this thread's world without a look; 0 if it has none.
pub fn peek_ns() -> u64 {
    NOW_NS.get()
}

/// Nothing happens before `deadline_ns`.
pub fn advance_to(deadline_ns: u64) {
    if NOW_NS.get() != 0 {
        NOW_NS.set(NOW_NS.get().max(deadline_ns));
    }
}

/// The clocks of this thread's world.
pub struct VirtualClock;

impl Clock for VirtualClock {
    fn unix_ms(&self) -> i64 {
        START_MS + (now_ns().unwrap_or(START_NS).saturating_sub(START_NS) / 1_000_000) as i64
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(now_ns().unwrap_or(START_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(seed: u64) -> Vec<u64> {
        begin(seed);
        let seen = (0..1000).filter_map(|_| now_ns()).collect();
        end();
        seen
    }

    #[test]
    fn virtual_time_depends_on_the_seed_and_never_goes_back() {
        assert_eq!(now_ns(), None);
        let one = looks(1);
        assert_eq!((one.len(), &one), (1000, &looks(1)));
        assert_ne!(one, looks(2));
        assert!(one.is_sorted());
        let long = one.windows(2).filter(|two| two[1] - two[0] >= LOOK_NS).count();
        assert!((1..100).contains(&long), "{long}");
        assert_eq!(now_ns(), None);
    }

    #[test]
    fn virtual_time_advances_to_a_deadline_but_not_back() {
        begin(1);
        advance_to(START_NS + 50);
        advance_to(START_NS + 20);
        assert_eq!(peek_ns(), START_NS + 50);
        end();
        advance_to(7);
        assert_eq!(peek_ns(), 0);
    }
}
