//! Completions of one session: the poller of the completion queue puts them here, the session's fabric takes them.
//!
//! Frequently read state can be read without the lock. It changes under the lock.

use super::pool::Chunk;
use kauri_verbs::{Completion, CompletionKind, Status};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// See the module's head.
#[derive(Debug, Default)]
pub struct Mailbox {
    state: Mutex<State>,
    /// Number of unread immediates.
    unheard: AtomicUsize,
    /// The number of the newest send that is known to have completed.
    sent: AtomicU64,
    /// Whether there is a failure.
    failed: AtomicBool,
    /// When the newest completion was taken.
    taken_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Unread immediates of the peer. Limited by the posted receives.
    immediates: VecDeque<u32>,
    bound: bool,
    /// The chunks of sends, by number.
    lent: VecDeque<(u64, Chunk)>,
    failure: Option<&'static str>,
    /// The waiter for the next completion.
    waker: Option<Waker>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a completion of the session's queue pair, and wakes the waiter.
    pub fn deliver(&self, completion: &Completion, now_ns: u64) {
        let mut state = self.lock();
        self.taken_ns.store(now_ns, Ordering::Relaxed);
        match (completion.status, completion.kind, completion.immediate) {
            (Status::Success, CompletionKind::ReceiveImmediate, Some(immediate)) => {
                state.immediates.push_back(immediate);
                self.unheard.store(state.immediates.len(), Ordering::Release);
            }
            // They complete in their order, whatever they are.
            (Status::Success, CompletionKind::Write | CompletionKind::Read, _) => {
                self.sent.store(completion.id, Ordering::Release);
            }
            (Status::Success, CompletionKind::BindWindow, _) => state.bound = true,
            (Status::Success, ..) => {
                state.failure =
                    state.failure.or(Some("the peer sent a message without a posted receive"));
            }
            (status, ..) => {
                // What was flushed failed because something else did.
                let unknown = state.failure.is_none_or(|why| why == reason(Status::Flushed));
                state.failure = if unknown { Some(reason(status)) } else { state.failure };
            }
        }
        self.failed.store(state.failure.is_some(), Ordering::Release);
        let back = match completion.kind {
            CompletionKind::Write | CompletionKind::Read if !state.lent.is_empty() => {
                let done = state.lent.partition_point(|(number, _)| *number <= completion.id);
                state.lent.drain(..done).collect()
            }
            _ => Vec::new(),
        };
        let waker = state.waker.take();
        drop(state);
        // Both may wake others.
        drop(back);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Keeps what the send of this number, which is the newest, is sent from until it has completed.
    pub fn lend(&self, number: u64, chunk: Chunk) {
        self.lock().lent.push_back((number, chunk));
    }

    /// Number of sends with a lent chunk.
    pub fn lent(&self) -> usize {
        self.lock().lent.len()
    }

    /// Returns all lent chunks: the queue pair was destroyed.
    pub fn give_back(&self) {
        let lent = std::mem::take(&mut self.lock().lent);
        drop(lent);
    }

    /// The peer's next immediate.
    pub fn next_immediate(&self) -> Option<u32> {
        if self.unheard.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut state = self.lock();
        let next = state.immediates.pop_front();
        self.unheard.store(state.immediates.len(), Ordering::Release);
        next
    }

    /// Whether there is one, or nothing comes any more.
    pub fn has_news(&self) -> bool {
        self.unheard.load(Ordering::Acquire) > 0 || self.failed.load(Ordering::Acquire)
    }

    /// The number of the newest send that is known to have completed.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Whether the window is bound.
    pub fn is_bound(&self) -> bool {
        self.lock().bound
    }

    /// Why the queue pair has failed, if it has.
    pub fn failure(&self) -> Option<&'static str> {
        if self.failed.load(Ordering::Acquire) { self.lock().failure } else { None }
    }

    /// Has the task woken by the next completion.
    pub fn wake_by_next(&self, cx: &Context<'_>) {
        let mut state = self.lock();
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
    }

    /// When the newest completion was taken.
    pub fn taken_ns(&self) -> u64 {
        self.taken_ns.load(Ordering::Relaxed)
    }
}

/// The reason that a failed completion gives for the end of a session.
fn reason(status: Status) -> &'static str {
    match status {
        Status::Success => "it succeeded",
        Status::Flushed => "the RDMA connection was shut down",
        Status::RemoteAccess => "the peer's memory does not allow the access",
        Status::RemoteInvalidRequest => "the peer cannot process the request",
        Status::RemoteOperation => "the peer's RDMA device failed",
        Status::RetryExceeded => "the peer no longer answers over RDMA",
        Status::ReceiverNotReady => "the peer accepts no more messages over RDMA",
        Status::LocalProtection => "this side's memory does not allow the access",
        Status::WindowBind => "a memory window could not be bound",
        Status::Other(_) => "the RDMA device reports a failure",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(kind: CompletionKind, status: Status, immediate: Option<u32>) -> Completion {
        Completion { kind, status, immediate, id: 9, ..Completion::EMPTY }
    }

    #[test]
    fn completions_are_sorted_and_the_first_reason_stays() {
        let mailbox = Mailbox::default();
        let told = |n| completion(CompletionKind::ReceiveImmediate, Status::Success, Some(n));
        for n in [5, 6] {
            mailbox.deliver(&told(n), u64::from(n));
        }
        assert_eq!((mailbox.sent(), mailbox.is_bound(), mailbox.taken_ns()), (0, false, 6));
        mailbox.deliver(&completion(CompletionKind::Write, Status::Success, None), 7);
        let read = Completion { id: 10, ..completion(CompletionKind::Read, Status::Success, None) };
        mailbox.deliver(&read, 7);
        mailbox.deliver(&completion(CompletionKind::BindWindow, Status::Success, None), 7);
        assert_eq!((mailbox.sent(), mailbox.is_bound(), mailbox.failure()), (10, true, None));
        assert_eq!(mailbox.next_immediate(), Some(5));
        assert_eq!(mailbox.next_immediate(), Some(6));
        assert!(!mailbox.has_news() && mailbox.next_immediate().is_none());
        for (status, words) in [
            (Status::Flushed, "shut down"),
            (Status::RetryExceeded, "no longer answers"),
            (Status::Flushed, "no longer answers"),
            (Status::RemoteAccess, "no longer answers"),
        ] {
            mailbox.deliver(&completion(CompletionKind::Receive, status, None), 8);
            assert!(mailbox.failure().unwrap().contains(words), "{status:?}");
        }
        assert!(mailbox.has_news());
    }

    #[test]
    fn what_the_peer_sends_without_an_immediate_is_a_failure() {
        let mailbox = Mailbox::default();
        mailbox.deliver(&completion(CompletionKind::Receive, Status::Success, None), 1);
        assert!(mailbox.failure().unwrap().contains("without a posted receive"));
    }

    #[test]
    fn who_waits_is_woken_once() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU32, Ordering};
        #[derive(Default)]
        struct Count(AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (mailbox, count) = (Mailbox::default(), Arc::new(Count::default()));
        mailbox.wake_by_next(&Context::from_waker(&count.clone().into()));
        for _ in 0..2 {
            mailbox.deliver(&completion(CompletionKind::Write, Status::Success, None), 1);
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
