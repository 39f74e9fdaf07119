//! Timers of one worker: deadlines in order, each with the waker of the future that sleeps.
//!
//! A dropped sleep takes its timer with it, so there are never more timers than sleeping futures.

use super::shared::WorkerShared;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Deadline in nanoseconds, and a number that distinguishes equal deadlines.
type TimerKey = (u64, u64);

#[derive(Default)]
pub(crate) struct Timers {
    queue: BTreeMap<TimerKey, Waker>,
    numbered: u64,
}

impl Timers {
    pub fn next_deadline_ns(&self) -> u64 {
        self.queue.first_key_value().map_or(u64::MAX, |((deadline_ns, _), _)| *deadline_ns)
    }

    fn insert(&mut self, deadline_ns: u64, waker: Waker) -> TimerKey {
        self.numbered += 1;
        let key = (deadline_ns, self.numbered);
        self.queue.insert(key, waker);
        key
    }

    /// Takes out all that are due.
    pub fn due(&mut self, now_ns: u64) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > now_ns {
                break;
            }
            wakers.push(entry.remove());
        }
        wakers
    }
}

/// Ready when its time has come. Made by `WorkerHandle::sleep`.
pub struct Sleep {
    worker: Arc<WorkerShared>,
    deadline_ns: u64,
    key: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(worker: Arc<WorkerShared>, deadline_ns: u64) -> Self {
        Sleep { worker, deadline_ns, key: None }
    }

    fn forget_timer(&mut self) {
        if let Some(key) = self.key.take() {
            self.worker.with_timers(|timers| {
                timers.queue.remove(&key);
            });
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if crate::sys::monotonic_ns() >= self.deadline_ns {
            self.forget_timer();
            return Poll::Ready(());
        }
        let waker = cx.waker();
        match self.key {
            Some(key) => self.worker.with_timers(|timers| {
                // Gone if it was due a moment ago and this poll came first: then a wake is coming.
                if let Some(known) = timers.queue.get_mut(&key) {
                    known.clone_from(waker);
                }
            }),
            None => {
                let deadline_ns = self.deadline_ns;
                let insert = |timers: &mut Timers| timers.insert(deadline_ns, waker.clone());
                self.key = Some(self.worker.with_timers(insert));
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget_timer();
    }
}
