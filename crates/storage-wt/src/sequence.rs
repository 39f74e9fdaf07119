//! Commit numbers. A commit takes its number when it begins and publishes it after WiredTiger has committed.
//! Readers use the numbers below the first unpublished one.
//!
//! Invariant: a transaction takes its number after its snapshot, so a transaction that overwrites a record that it
//! sees has a higher number than the record's version.

use kauri_base::CommitSeq;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module's head.
pub struct Sequence {
    visible: AtomicU64,
    open: Mutex<Open>,
    published: Condvar,
    /// Signalled when numbers are given again.
    resumed: Condvar,
}

struct Open {
    /// The number after the last that was given.
    next: u64,
    /// For the numbers from `visible + 1` on, whether each is done.
    done: VecDeque<bool>,
    waiting: usize,
    /// Those who wait for all numbers to be done, or are at it: no more are given meanwhile.
    quiet: usize,
}

/// A number that was taken. Dropped, it is given up.
pub struct Taken<'s> {
    sequence: &'s Sequence,
    seq: u64,
}

impl Sequence {
    /// Everything up to `seq` is visible.
    pub fn new(seq: u64) -> Sequence {
        let open = Open { next: seq + 1, done: VecDeque::new(), waiting: 0, quiet: 0 };
        Sequence {
            visible: AtomicU64::new(seq),
            open: Mutex::new(open),
            published: Condvar::new(),
            resumed: Condvar::new(),
        }
    }

    /// All commits up to this one can be seen.
    pub fn visible(&self) -> CommitSeq {
        CommitSeq(self.visible.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next number.
    pub fn take(&self) -> Taken<'_> {
        let mut open = self.lock();
        while open.quiet > 0 {
            open = self.resumed.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        let seq = open.next;
        open.next += 1;
        open.done.push_back(false);
        Taken { sequence: self, seq }
    }

    /// Calls `look` when every number that was given is done, before another one is. So what
    /// WiredTiger shows then is what the commits up to this number, the first argument, came to.
    pub fn quietly<T>(&self, look: impl FnOnce(CommitSeq) -> T) -> T {
        let mut open = self.lock();
        open.quiet += 1;
        open.waiting += 1;
        while !open.done.is_empty() {
            open = self.published.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        open.waiting -= 1;
        let looked = look(self.visible());
        open.quiet -= 1;
        if open.quiet == 0 {
            self.resumed.notify_all();
        }
        looked
    }

    fn finish<'s>(&'s self, mut open: MutexGuard<'s, Open>, seq: u64) -> MutexGuard<'s, Open> {
        let mut visible = self.visible.load(Ordering::Relaxed);
        if let Some(done) = open.done.get_mut((seq - visible - 1) as usize) {
            *done = true;
        }
        while open.done.front() == Some(&true) {
            open.done.pop_front();
            visible += 1;
        }
        self.visible.store(visible, Ordering::Release);
        if open.waiting > 0 {
            self.published.notify_all();
        }
        open
    }
}

impl Taken<'_> {
    /// The number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// WiredTiger has committed: returns when this commit and all before it are visible.
    pub fn publish(self) -> CommitSeq {
        let (sequence, seq) = (self.sequence, self.seq);
        std::mem::forget(self);
        let mut open = sequence.finish(sequence.lock(), seq);
        open.waiting += 1;
        while sequence.visible.load(Ordering::Relaxed) < seq {
            open = sequence.published.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        open.waiting -= 1;
        CommitSeq(seq)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        drop(self.sequence.finish(self.sequence.lock(), self.seq));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_visible_in_order() {
        let sequence = Sequence::new(10);
        let (one, two, three) = (sequence.take(), sequence.take(), sequence.take());
        assert_eq!((one.seq(), two.seq(), three.seq()), (11, 12, 13));
        drop(two);
        assert_eq!(sequence.visible(), CommitSeq(10), "one is still open");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| three.publish());
            assert_eq!(one.publish(), CommitSeq(11));
            assert_eq!(waits.join().expect("a thread"), CommitSeq(13));
        });
        assert_eq!(sequence.visible(), CommitSeq(13));
        assert_eq!(sequence.take().publish(), CommitSeq(14));
    }

    #[test]
    fn nothing_is_open_while_somebody_looks() {
        let sequence = Sequence::new(0);
        let changing = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let taken = sequence.take();
                        changing.fetch_add(1, Ordering::SeqCst);
                        changing.fetch_sub(1, Ordering::SeqCst);
                        match taken.seq() % 5 {
                            0 => drop(taken),
                            _ => assert!(taken.publish() <= sequence.visible()),
                        }
                    }
                });
            }
            for _ in 0..200 {
                sequence.quietly(|seq| {
                    assert_eq!(changing.load(Ordering::SeqCst), 0);
                    assert_eq!(seq, sequence.visible());
                });
            }
        });
        assert_eq!(sequence.visible(), CommitSeq(1500));
    }
}
