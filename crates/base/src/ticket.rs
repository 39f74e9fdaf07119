//! Tickets: unfinished work, and a way to wait for it.
//!
//! A layer that must not block returns `Access::WouldBlock(ticket)` instead of a value. The caller releases
//! everything it holds, waits for the ticket (as a future, or on its own thread with [`Ticket::wait`]), and calls
//! again. A resolved ticket only promises that calling again is worthwhile.

use crate::sync::Arc;
use crate::sync::thread::{self, Thread};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

/// A value, or the ticket to wait for before asking again.
#[must_use]
pub enum Access<T> {
    /// Here it is.
    Ready(T),
    /// Not without waiting: release everything, wait, ask again.
    WouldBlock(Ticket),
}

impl<T> Access<T> {
    /// The same with the value mapped.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Access<U> {
        match self {
            Access::Ready(value) => Access::Ready(f(value)),
            Access::WouldBlock(ticket) => Access::WouldBlock(ticket),
        }
    }
}

/// A source that resolves tickets: a commit sequence, a reader of cold blocks.
pub trait TicketSource: Send + Sync {
    /// Whether the work that `number` stands for is done; if not, `waker` is woken when it is.
    /// An error is one that asking again would not mend.
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<crate::Result<()>>;

    /// Called once before a thread waits for the ticket instead of an executor: the place to start
    /// work that an executor's tick would have started.
    fn before_blocking(&self, _number: u64) {}
}

/// The right to wait for something. Cheap to clone; dropping it forgets the wait, not the work.
#[derive(Clone)]
pub struct Ticket {
    source: Arc<dyn TicketSource>,
    number: u64,
}

impl Ticket {
    /// A ticket for `number` of this source.
    pub fn new(source: Arc<dyn TicketSource>, number: u64) -> Self {
        Ticket { source, number }
    }

    /// Starts the work for a caller that will ask again later and does not wait now.
    pub fn begin(&self) {
        // Whether it is done, or will never be, whoever asks again learns.
        let _ = self.source.poll_ticket(self.number, Waker::noop());
    }

    /// Blocks this thread until the work is done. For tests, tools and engines that have threads of
    /// their own; a worker awaits the ticket instead.
    pub fn wait(&self) -> crate::Result<()> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        self.source.before_blocking(self.number);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            match self.source.poll_ticket(self.number, &waker) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl Future for Ticket {
    type Output = crate::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.source.poll_ticket(self.number, cx.waker())
    }
}
