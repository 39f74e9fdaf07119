//! Throttles writers as free space runs out (see [`Core::scarcity`]), so that they slow down gradually to the
//! cleaner's pace.
//!
//! Acknowledgements are delayed, not commits: stored bytes are published as written after a pause. The pause grows
//! with the number of bytes and with the scarcity. Waits for durability and blocked threads are not delayed
//! further. Writers below the cleaner's pace are not throttled: pauses accumulate until they are long enough to be
//! worth waking a thread.
//!
//! [`Core::scarcity`]: crate::core::Core::scarcity
//!
//! Invariant: positions in the queue ascend in time and in commit sequence.

use std::collections::VecDeque;
use std::time::Duration;

/// The pause for a byte when no room is left: 20 MB a second.
const PAUSE_NANOS_PER_BYTE: f64 = 50.0;
/// No pause is longer than this.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// A debt above this is waited for. A waiter is woken by another thread, which takes some 20 microseconds.
const OWED_MAX: Duration = Duration::from_micros(200);

/// See the module's head.
#[derive(Default)]
pub struct Throttle {
    /// When all pauses so far would have ended.
    due: Duration,
    held: VecDeque<(Duration, u64)>,
}

impl Throttle {
    /// Takes a commit that was stored with `bytes` before it at `now`. `scarcity` is from 0 (enough
    /// room) to 1 (none). Answers the commit up to which may be published now.
    pub fn stored(&mut self, seq: u64, bytes: u64, scarcity: f64, now: Duration) -> Option<u64> {
        if scarcity > 0.0 {
            let nanos = PAUSE_NANOS_PER_BYTE * scarcity * scarcity * bytes as f64;
            let due = self.due.max(now) + Duration::from_nanos(nanos as u64);
            self.due = due.min(now + PAUSE_MAX);
            if self.held.is_empty() && self.due - now <= OWED_MAX {
                return Some(seq);
            }
            self.held.push_back((self.due, seq));
            return self.release(now);
        }
        self.held.clear();
        self.due = now;
        Some(seq)
    }

    /// The commit up to which may be published by now.
    pub fn release(&mut self, now: Duration) -> Option<u64> {
        let mut seq = None;
        while let Some((_, held)) = self.held.pop_front_if(|(until, _)| *until <= now) {
            seq = Some(held);
        }
        seq
    }

    /// When the next one may be published.
    pub fn next(&self) -> Option<Duration> {
        self.held.front().map(|(until, _)| *until)
    }

    /// Whether something is held back.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn with_enough_segments_nothing_is_held() {
        let mut throttle = Throttle::default();
        assert_eq!(throttle.stored(7, 1 << 30, 0.0, NOW), Some(7));
        assert!(!throttle.is_holding());
    }

    #[test]
    fn pauses_grow_with_bytes_and_scarcity_and_end() {
        let pause = |bytes, scarcity| {
            let mut throttle = Throttle::default();
            assert_eq!(throttle.stored(7, bytes, scarcity, NOW), None);
            let until = throttle.next().expect("it is held");
            assert_eq!(throttle.release(until - Duration::from_nanos(1)), None);
            assert_eq!(throttle.release(until), Some(7));
            until - NOW
        };
        assert_eq!(pause(20_000, 1.0), Duration::from_millis(1));
        assert!(pause(20_000, 0.5) < pause(20_000, 1.0));
        assert!(pause(20_000, 1.0) < pause(90_000, 1.0));
        assert_eq!(pause(1 << 30, 1.0), PAUSE_MAX);
    }

    #[test]
    fn who_comes_later_waits_longer() {
        let mut throttle = Throttle::default();
        throttle.stored(1, 10_000, 1.0, NOW);
        throttle.stored(2, 10_000, 1.0, NOW);
        let first = throttle.next().expect("it is held");
        assert_eq!(throttle.release(first), Some(1));
        assert_eq!(throttle.release(NOW + 2 * (first - NOW)), Some(2));
        throttle.stored(3, 10_000, 1.0, NOW);
        assert_eq!(throttle.stored(4, 0, 0.0, NOW), Some(4), "there is room again");
        assert!(!throttle.is_holding());
        assert_eq!(throttle.stored(5, 1000, 1.0, NOW), Some(5), "nothing is owed for what was");
    }

    #[test]
    fn who_is_slower_is_not_held() {
        let mut throttle = Throttle::default();
        for commit in 0..1000 {
            // A microsecond more than the pause.
            let now = NOW + commit * Duration::from_micros(51);
            assert_eq!(throttle.stored(commit.into(), 1000, 1.0, now), Some(commit.into()));
        }
    }

    /// Whatever the pieces: writers are delayed that get ahead of the pace by more than the permitted debt.
    #[test]
    fn small_pauses_add_up() {
        for bytes in [10, 100, 1000] {
            let mut throttle = Throttle::default();
            let mut stored = 0;
            while stored < 100_000 && throttle.stored(7, bytes, 1.0, NOW).is_some() {
                stored += bytes;
            }
            assert_eq!(stored, 4000, "{bytes}");
            let until = throttle.next().expect("it is held");
            assert!(until > NOW + OWED_MAX);
            let before = until - Duration::from_micros(1);
            assert_eq!(throttle.stored(8, 0, 1.0, before), None, "not before who came earlier");
            assert_eq!(throttle.release(until), Some(8));
        }
    }
}
