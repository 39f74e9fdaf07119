//! For tests: measures how much work a function counts, and checks that it stops when its operation is killed.
//!
//! The unit is the *look*: a check of the operation's state ([`crate::work::tick`]), once in some hundred steps.
//! The number of looks depends on the work alone, not on the machine.

use crate::clock::Clock;
use crate::codes::ErrorCode;
use crate::error::Result;
use crate::operation_state::OperationState;
use crate::work::{self, MemoryAccount, Meter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that stands still and counts its reads. It kills the operation at one of them.
struct CountingClock {
    looks: AtomicU64,
    kill_at: u64,
    state: Arc<OperationState>,
}

impl Clock for CountingClock {
    fn unix_ms(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        if self.looks.fetch_add(1, Ordering::Relaxed) == self.kill_at {
            self.state.kill(ErrorCode::Interrupted);
        }
        Duration::ZERO
    }
}

/// Does work whose operation is killed at its look number `kill_at`. Returns the result and the number of looks.
pub fn killed_at<T>(kill_at: u64, work: impl FnOnce() -> Result<T>) -> (Result<T>, u64) {
    let state = Arc::new(OperationState::new(1));
    // The first look is the meter's own.
    let kill_at = kill_at.saturating_add(1);
    let clock = Arc::new(CountingClock { looks: AtomicU64::new(0), kill_at, state: state.clone() });
    let meter = Meter::new(state, clock.clone(), None, MemoryAccount::unlimited());
    let result = work::with_meter(&meter, work);
    (result, clock.looks.load(Ordering::Relaxed) - 1)
}

/// Looks that work makes which nothing ends.
pub fn looks_of<T>(work: impl FnOnce() -> Result<T>) -> (Result<T>, u64) {
    killed_at(u64::MAX, work)
}

/// Fails unless work of four times the size makes no more than six times the looks.
#[track_caller]
pub fn assert_linear<T>(name: &str, size: u32, mut work: impl FnMut(u32) -> Result<T>) {
    let mut looks = |size: u32| {
        let (result, looks) = looks_of(|| work(size));
        assert!(result.is_ok(), "{name}: {:?}", result.err());
        looks
    };
    let (small, large) = (looks(size), looks(4 * size));
    assert!(large <= 6 * small.max(8), "{name}: {small} looks, then {large}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(count: u64) -> Result<()> {
        (0..count).try_for_each(|_| work::tick(1))
    }

    #[test]
    fn the_probe_counts_looks_and_kills_at_one() {
        let (ended, looks) = looks_of(|| steps(10_000));
        assert!(ended.is_ok() && (15..25).contains(&looks), "{looks}");
        let (ended, looks) = killed_at(5, || steps(10_000));
        assert_eq!((ended.map_err(|e| e.code()), looks), (Err(ErrorCode::Interrupted), 6));
        assert_linear("steps", 10_000, |size| steps(u64::from(size)));
    }

    #[test]
    #[should_panic(expected = "looks, then")]
    fn quadratic_work_is_not_judged_linear() {
        assert_linear("a square", 100, |size| steps(u64::from(size) * u64::from(size)));
    }
}
