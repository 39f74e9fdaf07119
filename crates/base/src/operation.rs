//! The context of one running operation: who asked, until when it may run, whether it was killed,
//! and how it lets others run.
//!
//! Shared between the worker that runs it and whoever lists or kills it (`currentOp`, `killOp`).
//! Room is kept for what later comes with a command: principal, session, transaction, read concern,
//! shard version.

use crate::clock::Clock;
use crate::codes::ErrorCode;
use crate::error::{Error, Result};
use crate::limits;
use crate::rw_lock::OperationLock;
use crate::ticket::Ticket;
use crate::work::{self, MemoryAccount, Meter};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// What can be known and changed from outside while the operation runs.
#[derive(Debug)]
pub struct OperationState {
    /// `opid`.
    pub id: u64,
    /// The code that it was killed with; 0 while it may run.
    killed: AtomicI32,
    /// When it has to have ended, in nanoseconds of the monotonic clock; `u64::MAX` for never.
    deadline_ns: AtomicU64,
    /// How often it let others run.
    yields: AtomicU64,
    /// Whether it waits for a lock (`lockGranularity`).
    waiting_for_lock: AtomicBool,
    /// Whether it has put something into temporary files.
    used_disk: AtomicBool,
}

impl Default for OperationState {
    fn default() -> Self {
        Self::new(0)
    }
}

impl OperationState {
    /// A running operation without a deadline.
    pub fn new(id: u64) -> Self {
        OperationState {
            id,
            killed: AtomicI32::new(0),
            deadline_ns: AtomicU64::new(u64::MAX),
            yields: AtomicU64::new(0),
            waiting_for_lock: AtomicBool::new(false),
            used_disk: AtomicBool::new(false),
        }
    }

    /// Asks it to end with this code at its next look.
    pub fn kill(&self, code: ErrorCode) {
        let _ = self.killed.compare_exchange(0, code.number(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether it was asked to end.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire) != 0
    }

    /// How often it let others run.
    pub fn yields(&self) -> u64 {
        self.yields.load(Ordering::Relaxed)
    }

    /// Whether it waits for a lock.
    pub fn waits_for_lock(&self) -> bool {
        self.waiting_for_lock.load(Ordering::Relaxed)
    }

    /// Notes that something went into temporary files (`usedDisk`).
    pub fn note_disk_use(&self) {
        self.used_disk.store(true, Ordering::Relaxed);
    }

    /// Whether something did.
    pub fn used_disk(&self) -> bool {
        self.used_disk.load(Ordering::Relaxed)
    }

    /// Counts that it let others run.
    pub(crate) fn note_yield(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
    }

    fn time_left(&self, clock: &dyn Clock) -> Option<Duration> {
        match self.deadline_ns.load(Ordering::Acquire) {
            u64::MAX => None,
            ns => Some(Duration::from_nanos(ns).saturating_sub(clock.monotonic())),
        }
    }

    /// Fails if the operation was killed or is out of time.
    pub(crate) fn check(&self, clock: &dyn Clock) -> Result<()> {
        match self.killed.load(Ordering::Acquire) {
            0 => {}
            code => {
                let code = ErrorCode::from_number(code);
                return Err(Error::new(code, interrupt_message(code)));
            }
        }
        if self.time_left(clock) == Some(Duration::ZERO) {
            return Err(Error::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
        }
        Ok(())
    }
}

/// Says whether the client that waits for the answer is still there.
pub trait ClientPresence: Send + Sync {
    /// False once the connection has broken.
    fn is_connected(&self) -> bool;
}

/// See the module's head. Owned by the operation's future.
pub struct OperationContext {
    state: Arc<OperationState>,
    clock: Arc<dyn Clock>,
    presence: Option<Arc<dyn ClientPresence>>,
    slice_start: Duration,
    steps: u32,
    lock: Option<OperationLock>,
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
            lock: None,
            account: MemoryAccount::unlimited(),
            lsid: None,
            txn_number: None,
        }
    }

    /// An operation that nobody can see or kill, for tests and background work.
    pub fn detached(clock: Arc<dyn Clock>) -> Self {
        Self::new(Arc::new(OperationState::new(0)), clock)
    }

    /// Lets the operation notice that its client has gone, and end then. For reads: what a write was
    /// asked to do is done, whether or not somebody still waits for the answer.
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

    /// What the operation's work is measured by.
    pub fn meter(&self) -> Arc<Meter> {
        let presence = self.presence.clone();
        Meter::new(self.state.clone(), self.clock.clone(), presence, self.account.clone())
    }

    /// What others may see and change.
    pub fn state(&self) -> &Arc<OperationState> {
        &self.state
    }

    /// The clock it goes by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Lets it run for this long from now (`maxTimeMS`).
    pub fn set_deadline(&self, time: Duration) {
        let end = self.clock.monotonic().saturating_add(time);
        self.state
            .deadline_ns
            .store(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
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

    /// Cheap; to be asked after each step of long work. True every few milliseconds: then give up
    /// what is held and `yield_now`.
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
        let gave_way = self.give_way();
        YieldOnce { yielded: false }.await;
        if gave_way {
            self.retake_lock().await;
        }
        self.slice_start = self.clock.monotonic();
        self.steps = 0;
        self.check_for_interrupt()
    }

    /// Waits for data that is not at hand, holding nothing (unless locks that don't give way were asked
    /// for), then fails if the operation is to end. What was read before has to be checked again.
    pub async fn wait(&mut self, ticket: Ticket) -> Result<()> {
        let gave_way = self.give_way();
        let waited = ticket.await;
        if gave_way {
            self.retake_lock().await;
        }
        waited?;
        self.check_for_interrupt()
    }

    /// Takes the lock under which the operation runs from now on.
    pub async fn take_lock(&mut self, lock: OperationLock) {
        self.lock = Some(lock);
        self.retake_lock().await;
    }

    /// Gives the lock up: the operation is done with data, or waits for others to change it. Nothing if
    /// there is none.
    pub fn release_lock(&mut self) {
        if let Some(lock) = &mut self.lock {
            lock.release();
        }
    }

    /// Takes the lock again after `release_lock`.
    pub async fn retake_lock(&mut self) {
        let Some(lock) = self.lock.as_mut().filter(|lock| !lock.is_held()) else { return };
        if !lock.try_take() {
            self.state.waiting_for_lock.store(true, Ordering::Relaxed);
            lock.take(|| self.clock.monotonic()).await;
            self.state.waiting_for_lock.store(false, Ordering::Relaxed);
        }
    }

    /// Gives up a lock that is held and of the kind that gives way.
    fn give_way(&mut self) -> bool {
        let lock = self.lock.as_mut().filter(|lock| lock.yields() && lock.is_held());
        lock.is_some_and(|lock| {
            lock.release();
            true
        })
    }
}

fn interrupt_message(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::InterruptedAtShutdown => "interrupted at shutdown",
        ErrorCode::CursorKilled => "cursor was killed",
        _ => "operation was interrupted",
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
