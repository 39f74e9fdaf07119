//! Consecutive numbers, shared by all threads: `CounterGenerator`, `SequentialGenerator`,
//! `AcknowledgedCounterGenerator`.
//!
//! Invariants: no number is returned twice (except by [`Sequential`], which wraps around); all numbers up to
//! [`AcknowledgedCounter::newest`] are acknowledged. This module must not know what a number means.

use kauri_base::{Error, ErrorCode, Result};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Each number once (`CounterGenerator`).
#[derive(Debug)]
pub struct Counter(AtomicI64);

impl Counter {
    /// From this one on.
    pub fn new(first: i64) -> Counter {
        Counter(AtomicI64::new(first))
    }

    /// The next one.
    pub fn next(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The one given last; the one before the first, if none was.
    pub fn last(&self) -> i64 {
        self.0.load(Ordering::Relaxed) - 1
    }
}

/// All numbers of a range in order, again and again (`SequentialGenerator`).
#[derive(Debug)]
pub struct Sequential {
    counter: Counter,
    low: i64,
    count: i64,
}

impl Sequential {
    /// From `low` to `high`, both included; `low` is not above `high`.
    pub fn new(low: i64, high: i64) -> Sequential {
        Sequential { counter: Counter::new(0), low, count: (high - low + 1).max(1) }
    }

    /// The next one.
    pub fn next(&self) -> i64 {
        self.low + self.counter.next().rem_euclid(self.count)
    }
}

/// How far numbers may be acknowledged ahead of one that is not.
pub const ACKNOWLEDGED_WINDOW: usize = 1 << 20;

/// A counter that knows which of its numbers are acknowledged (`AcknowledgedCounterGenerator`): who chooses
/// among the newest records asks it, so that none is chosen that is not there yet.
#[derive(Debug)]
pub struct AcknowledgedCounter {
    counter: Counter,
    newest: AtomicI64,
    /// Whether the number of this place (modulo the window) is acknowledged while one before it is not.
    /// Held for a few steps only, and while `newest` is moved.
    ahead: Mutex<Vec<bool>>,
}

impl AcknowledgedCounter {
    /// From this one on; all before it count as acknowledged.
    pub fn new(first: i64) -> AcknowledgedCounter {
        AcknowledgedCounter {
            counter: Counter::new(first),
            newest: AtomicI64::new(first - 1),
            ahead: Mutex::new(vec![false; ACKNOWLEDGED_WINDOW]),
        }
    }

    /// The next one, which has to be acknowledged.
    pub fn next(&self) -> i64 {
        self.counter.next()
    }

    /// The one that comes next.
    pub fn upcoming(&self) -> i64 {
        self.counter.last() + 1
    }

    /// Says that all below this number are there, and that it is the next one; somebody else has counted.
    /// Never while a number is drawn and not acknowledged.
    pub fn go_on_at(&self, next: i64) {
        let _ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        self.counter.0.store(next, Ordering::Relaxed);
        self.newest.store(next - 1, Ordering::Release);
    }

    /// The highest number up to which all are acknowledged.
    pub fn newest(&self) -> i64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Says that this number's record is there, or that it will never be. In YCSB a thread that finds the
    /// window locked leaves `newest` to the next one; here it waits, so that `newest` is never behind.
    pub fn acknowledge(&self, number: i64) -> Result<()> {
        let place = |number: i64| number.rem_euclid(ACKNOWLEDGED_WINDOW as i64) as usize;
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.newest.load(Ordering::Relaxed);
        if number <= newest || number - newest > ACKNOWLEDGED_WINDOW as i64 {
            let text = format!(
                "key number {number} is acknowledged while {newest} is the newest: twice, or more than \
                 {ACKNOWLEDGED_WINDOW} ahead"
            );
            return Err(Error::new(ErrorCode::InternalError, text));
        }
        if let Some(slot) = ahead.get_mut(place(number)) {
            *slot = true;
        }
        let mut reached = newest;
        while let Some(slot) = ahead.get_mut(place(reached + 1))
            && std::mem::take(slot)
        {
            reached += 1;
        }
        self.newest.store(reached, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count() {
        let counter = Counter::new(5);
        assert_eq!((counter.last(), counter.next(), counter.next(), counter.last()), (4, 5, 6, 6));
        let sequential = Sequential::new(3, 5);
        assert_eq!([0; 7].map(|_: i32| sequential.next()), [3, 4, 5, 3, 4, 5, 3]);
    }

    #[test]
    fn the_newest_is_behind_what_is_missing() {
        let counter = AcknowledgedCounter::new(10);
        let drawn: Vec<i64> = (0..4).map(|_| counter.next()).collect();
        assert_eq!((drawn, counter.newest()), (vec![10, 11, 12, 13], 9));
        counter.acknowledge(11).expect("acknowledging");
        counter.acknowledge(13).expect("acknowledging");
        assert_eq!(counter.newest(), 9);
        counter.acknowledge(10).expect("acknowledging");
        assert_eq!(counter.newest(), 11);
        counter.acknowledge(12).expect("acknowledging");
        assert_eq!(counter.newest(), 13);
        assert!(counter.acknowledge(12).is_err(), "twice");
    }

    #[test]
    fn the_window_is_reused_and_has_an_end() {
        let counter = AcknowledgedCounter::new(0);
        let window = ACKNOWLEDGED_WINDOW as i64;
        for number in 1..window {
            counter.acknowledge(number).expect("within the window");
        }
        assert_eq!(counter.newest(), -1);
        let error = counter.acknowledge(window).expect_err("too far ahead");
        assert!(error.message().contains("1048576"), "{error}");
        counter.acknowledge(0).expect("the one that was missing");
        assert_eq!(counter.newest(), window - 1);
        for number in window..3 * window {
            counter.acknowledge(number).expect("in order");
        }
        assert_eq!(counter.newest(), 3 * window - 1);
    }

    #[test]
    fn it_goes_on_where_somebody_else_has_come_to() {
        let counter = AcknowledgedCounter::new(0);
        for number in 0..3 {
            counter.acknowledge(counter.next()).expect("in order");
            assert_eq!(counter.newest(), number);
        }
        counter.go_on_at(10);
        assert_eq!((counter.newest(), counter.next(), counter.next()), (9, 10, 11));
        counter.acknowledge(11).expect("within the window");
        assert_eq!(counter.newest(), 9);
        counter.acknowledge(10).expect("the one that was missing");
        assert_eq!(counter.newest(), 11);
    }

    #[test]
    fn threads_leave_none_behind() {
        const EACH: i64 = 20_000;
        let counter = AcknowledgedCounter::new(0);
        let acknowledged = Mutex::new(vec![false; 4 * EACH as usize]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let number = counter.next();
                        acknowledged.lock().expect("a lock")[number as usize] = true;
                        counter.acknowledge(number).expect("acknowledging");
                        let newest = counter.newest();
                        let all = acknowledged.lock().expect("a lock");
                        assert!(newest < 0 || all[newest as usize]);
                    }
                });
            }
        });
        assert_eq!(counter.newest(), 4 * EACH - 1);
    }
}
