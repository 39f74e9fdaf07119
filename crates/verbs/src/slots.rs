//! The posted work requests of one work queue whose completion was not seen yet, in order.
//!
//! Invariants: a queue completes in order, so the completion of a request covers all earlier ones. Requests without
//! a completion of their own leave with the next one that has one. At most the queue's capacity is in it, so the
//! device's queue cannot overrun.

use std::collections::VecDeque;

/// A queue of posted requests, with what each keeps alive.
pub struct Slots<T> {
    ring: VecDeque<T>,
    /// The sequence number of the oldest.
    first: u32,
    capacity: usize,
}

impl<T> Slots<T> {
    /// Room for `capacity` requests. Nothing is allocated later.
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Slots { ring: VecDeque::with_capacity(capacity), first: 0, capacity }
    }

    /// Number of further requests that may be posted.
    pub fn room(&self) -> usize {
        self.capacity - self.ring.len()
    }

    /// The sequence number that the next one gets.
    pub fn next_sequence(&self) -> u32 {
        self.first.wrapping_add(self.ring.len() as u32)
    }

    /// Adds one at the end. There must be room.
    pub fn push(&mut self, slot: T) {
        debug_assert!(self.room() > 0);
        self.ring.push_back(slot);
    }

    /// Takes back the newest `count`, which the device did not get.
    pub fn retract(&mut self, count: usize) -> impl Iterator<Item = T> + '_ {
        let from = self.ring.len().saturating_sub(count);
        self.ring.drain(from..)
    }

    /// Number of the newest requests for which `so` holds, without a gap.
    pub fn newest_while(&self, mut so: impl FnMut(&T) -> bool) -> usize {
        self.ring.iter().rev().take_while(|slot| so(slot)).count()
    }

    /// Gives all requests before `sequence` to `before` and then that one itself. `None`, and nothing
    /// happens, if it is not in the queue.
    pub fn complete(&mut self, sequence: u32, mut before: impl FnMut(T)) -> Option<T> {
        let place = sequence.wrapping_sub(self.first) as usize;
        if place >= self.ring.len() {
            return None;
        }
        for _ in 0..place {
            if let Some(slot) = self.ring.pop_front() {
                before(slot);
            }
        }
        self.first = sequence.wrapping_add(1);
        self.ring.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_takes_those_before_it_along() {
        let mut slots = Slots::new(4);
        for name in ["a", "b", "c"] {
            slots.push(name);
        }
        let mut before = Vec::new();
        assert_eq!(slots.complete(1, |slot| before.push(slot)), Some("b"));
        assert_eq!((before, slots.room()), (vec!["a"], 3));
        assert_eq!(slots.complete(2, |_| panic!("nothing is before it")), Some("c"));
        assert_eq!(slots.room(), 4);
    }

    #[test]
    fn what_is_not_posted_completes_nothing() {
        let mut slots = Slots::new(2);
        slots.push("a");
        for sequence in [1, 2, u32::MAX] {
            assert_eq!(slots.complete(sequence, |_| panic!("completed")), None);
        }
        assert_eq!(slots.complete(0, |_| {}), Some("a"));
        assert_eq!(slots.complete(0, |_| {}), None, "it completes once");
    }

    #[test]
    fn sequence_numbers_wrap_around() {
        let mut slots = Slots::new(3);
        slots.first = u32::MAX;
        for name in ["a", "b"] {
            slots.push(name);
        }
        assert_eq!(slots.next_sequence(), 1);
        assert_eq!(slots.complete(u32::MAX, |_| {}), Some("a"));
        assert_eq!(slots.complete(0, |_| {}), Some("b"));
    }

    #[test]
    fn what_the_device_did_not_get_is_taken_back() {
        let mut slots = Slots::new(3);
        for name in ["a", "b", "c"] {
            slots.push(name);
        }
        assert_eq!(slots.retract(2).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(slots.next_sequence(), 1);
        slots.push("d");
        assert_eq!(slots.complete(1, |_| {}), Some("d"));
    }
}
