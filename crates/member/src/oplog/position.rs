//! Up to where the log can be read, and who waits for more of it.

use kauri_base::ticket::TicketSource;
use kauri_base::waiters::ByNumber;
use kauri_base::{Result, Ticket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

#[derive(Default)]
struct State {
    readable: u64,
    waiting: ByNumber,
}

/// See the module's head.
#[derive(Default)]
pub struct LogPlace(Mutex<State>);

impl LogPlace {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last frame that can be read: it is committed in the set, and applied here. 0: none.
    pub fn readable(&self) -> u64 {
        self.lock().readable
    }

    /// Ready once a frame behind this one can be read. A waiter costs nothing until then.
    pub fn after(self: &Arc<Self>, index: u64) -> Ticket {
        let source: Arc<dyn TicketSource> = self.clone();
        Ticket::new(source, index.saturating_add(1))
    }

    /// Frames up to this one can be read from now on.
    pub fn note(&self, index: u64) {
        let mut state = self.lock();
        if index <= state.readable {
            return;
        }
        state.readable = index;
        let wakers = state.waiting.take_reached(index);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl TicketSource for LogPlace {
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut state = self.lock();
        if state.readable >= number {
            return Poll::Ready(Ok(()));
        }
        state.waiting.add(number, waker);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_for_more_is_woken_once_and_by_nothing_else() {
        let place = Arc::new(LogPlace::default());
        place.note(4);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        assert_eq!(place.poll_ticket(4, &waker), Poll::Ready(Ok(())));
        for _ in 0..1000 {
            assert_eq!(place.poll_ticket(5, &waker), Poll::Pending);
        }
        place.note(3);
        place.note(4);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        place.note(7);
        assert_eq!((woken.0.load(Ordering::Relaxed), place.readable()), (1, 7));
        assert_eq!(place.poll_ticket(5, &waker), Poll::Ready(Ok(())));
    }
}
