//! Counters of this crate, for `serverStatus` and tests.
//!
//! The data path counts in its completion queue's own counters, which only one worker writes; other code counts in
//! the device's. [`crate::Device::counters`] sums all of them.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of a device's counters.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters themselves.
        #[derive(Default)]
        pub(crate) struct Counting {
            $(pub $name: AtomicU64,)*
        }

        impl Counting {
            /// Adds what is counted here to `sum`.
            pub fn add_to(&self, sum: &mut Counters) {
                $(sum.$name = sum.$name.wrapping_add(self.$name.load(Ordering::Relaxed));)*
            }

            /// Takes over what `other` has counted.
            pub fn absorb(&self, other: &Counting) {
                $(self.$name.fetch_add(other.$name.load(Ordering::Relaxed), Ordering::Relaxed);)*
            }
        }
    };
}

counters! {
    /// Calls that posted to a send queue.
    sends_posted,
    /// Work requests in them.
    send_requests,
    /// Of these, requests whose bytes went with the request.
    send_requests_inline,
    /// Of these, requests with a signalled completion, requested or for the queue's sake.
    send_requests_signalled,
    /// Bytes to be sent, written or read by them.
    send_bytes,
    /// Calls that posted to a receive queue.
    receives_posted,
    /// Receives in them.
    receive_requests,
    /// Completions taken off completion queues.
    completions,
    /// Of these, those that failed or were flushed.
    completion_errors,
    /// Of these, those of queue pairs that no longer exist.
    completions_stale,
    /// Polls of completion queues.
    polls,
    /// Of these, polls without a completion.
    polls_empty,
    /// Number of times that a completion queue was armed.
    arms,
    /// Reports taken off completion channels.
    channel_events,
    /// Memory regions registered.
    registrations,
    /// Deregistered memory regions.
    deregistrations,
    /// Bytes of memory regions that are pinned now.
    pinned_bytes,
    /// Memory windows allocated.
    windows_allocated,
    /// Deallocated memory windows.
    windows_deallocated,
    /// Queue pairs created.
    queue_pairs_created,
    /// Queue pairs destroyed.
    queue_pairs_destroyed,
    /// Objects that the device did not free; what they use is never reused.
    leaks,
}

/// Counts `n` more.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// The same, for the holder of the lock under which alone this is counted.
pub(crate) fn add_locked(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

/// Counts `n` less.
pub(crate) fn subtract(counter: &AtomicU64, n: u64) {
    counter.fetch_sub(n, Ordering::Relaxed);
}
