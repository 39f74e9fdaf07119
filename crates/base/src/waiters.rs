//! Wakers that wait for a number to be reached.

use std::collections::BTreeMap;
use std::task::Waker;

/// Wakers in the order of the numbers that they wait for, so that a poll and a sync cost the logarithm of the number
/// of waiters. Waiters for the same number are told apart by a number.
#[derive(Default)]
pub struct ByNumber {
    wakers: BTreeMap<(u64, u64), Waker>,
    /// The number of the next waiter.
    next: u64,
}

impl ByNumber {
    /// Adds a waiter, once.
    pub fn add(&mut self, number: u64, waker: &Waker) {
        let mut of_number = self.wakers.range((number, 0)..=(number, u64::MAX));
        if !of_number.any(|(_, w)| w.will_wake(waker)) {
            self.wakers.insert((number, self.next), waker.clone());
            self.next += 1;
        }
    }

    /// Removes the waiters for numbers up to this one.
    pub fn take_reached(&mut self, number: u64) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(first) = self.wakers.first_entry().filter(|first| first.key().0 <= number) {
            wakers.push(first.remove());
        }
        wakers
    }

    /// Removes all.
    pub fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.wakers).into_values()
    }

    /// Number of waiters.
    pub fn len(&self) -> usize {
        self.wakers.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::ByNumber;
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn waiters_are_taken_up_to_a_number_and_counted_once() {
        let [first, second] = [0, 1].map(|_| Waker::from(Arc::new(Nothing)));
        let mut waiters = ByNumber::default();
        for seq in [9, 3, 5] {
            waiters.add(seq, &first);
            waiters.add(seq, &first);
            waiters.add(seq, &second);
        }
        assert_eq!(waiters.len(), 6);
        assert!(waiters.take_reached(2).is_empty());
        let taken = waiters.take_reached(5);
        assert_eq!(taken.iter().filter(|waker| waker.will_wake(&first)).count(), 2);
        assert_eq!((taken.len(), waiters.len()), (4, 2));
        assert_eq!(waiters.take_all().count(), 2);
        assert!(waiters.is_empty());
    }
}
