//! The context of a running operation: its client, its deadline, its kill state, and its yields.
//!
//! The worker that runs the operation shares the context with the commands that list or kill operations
//! (`currentOp`, `killOp`). Later features add fields: principal, session, transaction, read concern, shard
//! version.

#[cfg(feature = "lock-experiment")]
mod lock;

use crate::clock::Clock;
use crate::error::Result;
use crate::limits;
use crate::ticket::Ticket;
use crate::work::{self, MemoryAccount, Meter};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use crate::operation_state::{ClientPresence, OperationState};

/// See the module's head. Owned by the operation's future.
pub struct OperationContext {
    state: Arc<OperationState>,
    clock: Arc<dyn Clock>,
    presence: Option<Arc<dyn ClientPresence>>,
    slice_start: Duration,
    steps: u32,
    #[cfg(feature = "lock-experiment")]
    lock: Option<crate::rw_lock::OperationLock>,
    account: Arc<MemoryAccount>,
    /// The logical session (`lsid.id`), if the command named one.
    pub lsid: Option<[u8; 16]>,
    /// `txnNumber`.
    pub txn_number: Option<i64>,
}

impl OperationContext {
    /// The context of an operation that begins now.
    pub fn new(state: Arc<OperationState>, clock: Arc<dyn Clock>) -> Self {
        let slice_start = clock.monotonic();
        OperationContext {
            state,
            clock,
            presence: None,
            slice_start,
            steps: 0,
            #[cfg(feature = "lock-experiment")]
            lock: None,
            account: MemoryAccount::unlimited(),
            lsid: None,
            txn_number: None,
        }
    }

    /// An operation that is neither listed nor killable, for tests and background work.
    pub fn detached(clock: Arc<dyn Clock>) -> Self {
        Self::new(Arc::new(OperationState::new(0)), clock)
    }

    /// Ends the operation when its client disconnects. For reads only: a write is completed even without a client.
    pub fn watch_client(&mut self, presence: Arc<dyn ClientPresence>) {
        self.presence = Some(presence);
    }

    /// Counts the operation's memory in this account from the next [`OperationContext::meter`] on.
    pub fn set_account(&mut self, account: Arc<MemoryAccount>) {
        self.account = account;
    }

    /// The account of the operation's memory.
    pub fn account(&self) -> &Arc<MemoryAccount> {
        &self.account
    }

    /// The meter of the operation's work.
    pub fn meter(&self) -> Arc<Meter> {
        let presence = self.presence.clone();
        Meter::new(self.state.clone(), self.clock.clone(), presence, self.account.clone())
    }

    /// The state that other threads may read and change.
    pub fn state(&self) -> &Arc<OperationState> {
        &self.state
    }

    /// The operation's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Lets it run for this long from now (`maxTimeMS`).
    pub fn set_deadline(&self, time: Duration) {
        self.state.set_deadline(Some(self.clock.monotonic().saturating_add(time)));
    }

    /// Lets it run for as long as it takes.
    pub fn clear_deadline(&self) {
        self.state.set_deadline(None);
    }

    /// The time left, if there is a deadline.
    pub fn time_left(&self) -> Option<Duration> {
        self.state.time_left(&*self.clock)
    }

    /// Fails if the operation was killed, is out of time, or has lost its client.
    pub fn check_for_interrupt(&self) -> Result<()> {
        self.state.check(&*self.clock)?;
        if self.presence.as_ref().is_some_and(|p| !p.is_connected()) {
            return Err(work::client_disconnected());
        }
        Ok(())
    }

    /// Cheap; called after each step of long work. Returns true every few milliseconds: then release everything and
    /// `yield_now`.
    #[inline]
    pub fn should_yield(&mut self) -> bool {
        self.steps += 1;
        if self.steps < limits::TIME_SLICE_STEPS {
            return false;
        }
        self.steps = 0;
        self.slice_is_over()
    }

    /// As `should_yield`, looking at the clock at once.
    pub fn slice_is_over(&self) -> bool {
        self.clock.monotonic().saturating_sub(self.slice_start)
            >= Duration::from_millis(limits::TIME_SLICE_MS)
    }

    /// Lets the other tasks of this worker run, then fails if the operation is to end.
    pub async fn yield_now(&mut self) -> Result<()> {
        self.state.note_yield();
        #[cfg(feature = "lock-experiment")]
        let gave_way = self.give_way();
        YieldOnce { yielded: false }.await;
        #[cfg(feature = "lock-experiment")]
        self.come_back(gave_way).await;
        self.slice_start = self.clock.monotonic();
        self.steps = 0;
        self.check_for_interrupt()
    }

    /// Waits for data that is not at hand, holding nothing, as long as the operation may run. Fails if it is to
    /// end. What was read before has to be checked again.
    pub async fn wait(&mut self, ticket: Ticket) -> Result<()> {
        self.wait_for(ticket).await??;
        self.check_for_interrupt()
    }

    /// Waits for `event` as long as the operation may run; an error if it is to end. It holds nothing, as in
    /// [`OperationContext::wait`]. A kill wakes it; for the time limit its executor has to.
    pub async fn wait_for<T>(&mut self, event: impl Future<Output = T>) -> Result<T> {
        #[cfg(feature = "lock-experiment")]
        let gave_way = self.give_way();
        let mut event = pin!(event);
        let waited = poll_fn(|cx| {
            self.state.set_waiting(Some(cx.waker().clone()));
            if let Poll::Ready(output) = event.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            match self.check_for_interrupt() {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await;
        self.state.set_waiting(None);
        #[cfg(feature = "lock-experiment")]
        self.come_back(gave_way).await;
        waited
    }
}

/// Ready at the second poll, having asked to be polled again.
struct YieldOnce {
    yielded: bool,
}

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        work::note_gave_way();
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Stack that a thread of a test has left at least, of the 2 MiB that Rust gives it.
const TEST_STACK_BYTES: usize = 1024 * 1024;

/// Runs a future to its end on this thread. For tests, tools and background threads.
pub fn block_on<F: Future>(future: F) -> F::Output {
    use std::task::{Wake, Waker};
    use std::thread::{self, Thread};
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    work::note_stack_if_unknown(TEST_STACK_BYTES);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::codes::ErrorCode;

    #[test]
    fn killed_and_late_operations_end() {
        let mut op = OperationContext::detached(Arc::new(SystemClock::new()));
        assert!(block_on(op.yield_now()).is_ok());
        op.set_deadline(Duration::ZERO);
        assert_eq!(
            op.check_for_interrupt().map_err(|e| e.code()),
            Err(ErrorCode::MaxTimeMSExpired)
        );
        op.state().kill(ErrorCode::Interrupted);
        op.state().kill(ErrorCode::CursorKilled);
        assert_eq!(block_on(op.yield_now()).map_err(|e| e.code()), Err(ErrorCode::Interrupted));
        assert_eq!(op.state().yields(), 2);
    }
}
