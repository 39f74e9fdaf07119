//! The meter of the operation on this thread: work, time, memory and stack.
//!
//! Code whose work depends on a client's input or a stored document calls [`tick`] in loops, [`check_stack`] in
//! recursions, and [`reserve`] before a large allocation. A layer needs to know no more. The meter belongs to the
//! thread; the code that polls the operation sets it for the duration of the poll ([`metered`]).
//!
//! Every few microseconds of work, a tick checks the operation. A killed operation, an expired deadline, a
//! disconnected client or an exceeded memory limit returns an error. After [`limits::TIME_SLICE_MS`] the tick
//! suspends the operation within its poll, if the executor supports that ([`set_suspender`]), so that other tasks
//! of the worker can run.
//!
//! Invariants:
//! - No lock and no borrow that other tasks of the worker use is held across a tick.
//! - On a thread without a meter, a tick costs a decrement and never fails.
//! - The allocator counts memory ([`note_allocated`]). A binary without a counting allocator counts [`reserve`]
//!   only.
//!
//! This module must not know BSON, queries or executors.

use crate::clock::Clock;
use crate::codes::ErrorCode;
use crate::error::{Error, Result};
use crate::limits;
use crate::operation_state::{ClientPresence, OperationState};
use crate::virtual_time;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Steps of work between two checks of the clock. A step is some tens of nanoseconds.
const STEPS_PER_LOOK: u32 = 512;

/// The meter of one operation. All futures that work for the operation share it.
pub struct Meter {
    state: Arc<OperationState>,
    clock: Arc<dyn Clock>,
    presence: Option<Arc<dyn ClientPresence>>,
    account: Arc<MemoryAccount>,
}

impl Meter {
    /// The meter of this operation.
    pub fn new(
        state: Arc<OperationState>,
        clock: Arc<dyn Clock>,
        presence: Option<Arc<dyn ClientPresence>>,
        account: Arc<MemoryAccount>,
    ) -> Arc<Self> {
        Arc::new(Meter { state, clock, presence, account })
    }

    /// Fails if the operation is to end.
    fn check(&self) -> Result<()> {
        self.state.check(&*self.clock)?;
        if self.presence.as_ref().is_some_and(|presence| !presence.is_connected()) {
            return Err(client_disconnected());
        }
        Ok(())
    }
}

pub(crate) fn client_disconnected() -> Error {
    Error::new(
        ErrorCode::ClientDisconnect,
        "operation was interrupted because a client disconnected",
    )
}

/// Bytes that all operations use together, and their limits. A limit of 0 means none.
#[derive(Default)]
pub struct MemoryBudget {
    /// Most bytes of one operation.
    operation_max: AtomicU64,
    /// Most bytes of all operations.
    all_max: AtomicU64,
    used: AtomicI64,
    /// Maximum use since the last query of it, except steps smaller than [`NOTED_BYTES`].
    most: AtomicI64,
    refused: AtomicU64,
    /// The process is short of memory, for any reason.
    is_scarce: AtomicBool,
}

/// Allocations below this size do not update the shared maximum.
const NOTED_BYTES: i64 = 64 * 1024;
/// An operation may use this fraction of the budget of all operations even when the budget is used up.
const SHARE_DIVISOR: u64 = 64;

impl MemoryBudget {
    /// A budget with these limits, in bytes.
    pub fn new(operation_max: u64, all_max: u64) -> Arc<Self> {
        let budget = MemoryBudget::default();
        budget.set_limits(operation_max, all_max);
        Arc::new(budget)
    }

    /// Changes the limits, in bytes.
    pub fn set_limits(&self, operation_max: u64, all_max: u64) {
        self.operation_max.store(operation_max, Ordering::Relaxed);
        self.all_max.store(all_max, Ordering::Relaxed);
    }

    /// Bytes that operations hold now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed).max(0) as u64
    }

    /// Most bytes that operations have held since this was last asked.
    pub fn take_most_used(&self) -> u64 {
        let used = self.used.load(Ordering::Relaxed);
        self.most.swap(used, Ordering::Relaxed).max(used).max(0) as u64
    }

    /// The limits: of one operation, of all operations.
    pub fn limits(&self) -> (u64, u64) {
        (self.operation_max.load(Ordering::Relaxed), self.all_max.load(Ordering::Relaxed))
    }

    /// Whether less than a quarter of it is left.
    fn is_short(&self) -> bool {
        let all_max = self.all_max.load(Ordering::Relaxed);
        all_max > 0 && (self.used() > all_max / 4 * 3 || self.is_scarce.load(Ordering::Relaxed))
    }

    /// Says whether the process has little memory left: then it is as if the budget of all were used up.
    pub fn set_scarce(&self, is_scarce: bool) {
        self.is_scarce.store(is_scarce, Ordering::Relaxed);
    }

    /// Number of operations that ended because they exceeded a memory limit.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Fails if an operation that holds `held` bytes may not take `more`.
    fn admit(&self, held: i64, more: usize) -> Result<()> {
        let wanted = u64::try_from(held).unwrap_or(0).saturating_add(more as u64);
        let (operation_max, all_max) = self.limits();
        if operation_max > 0 && wanted > operation_max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Error::new(
                ErrorCode::ExceededMemoryLimit,
                format!(
                    "operation needs {wanted} bytes of memory, more than the limit of \
                     {operation_max} bytes of one operation"
                ),
            ));
        }
        let all = self.used().saturating_add(more as u64);
        // The further the operations are beyond their limit, the smaller is the part of one that is let be.
        let share = all_max / SHARE_DIVISOR / (1 + all / (all_max + 1)).pow(2);
        let is_over = all > all_max || self.is_scarce.load(Ordering::Relaxed);
        if all_max > 0 && is_over && wanted > share {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Error::new(
                ErrorCode::ExceededMemoryLimit,
                format!(
                    "operation needs {wanted} bytes of memory, and all operations together {all} \
                     bytes: their limit is {all_max} bytes, or the server is short of memory; try again"
                ),
            ));
        }
        Ok(())
    }
}

/// The bytes of one operation, across its polls; a cursor keeps the account between batches. Dropping it returns
/// the remaining bytes to the budget.
pub struct MemoryAccount {
    budget: Arc<MemoryBudget>,
    bytes: AtomicI64,
}

impl MemoryAccount {
    /// An empty account under this budget.
    pub fn new(budget: Arc<MemoryBudget>) -> Arc<Self> {
        Arc::new(MemoryAccount { budget, bytes: AtomicI64::new(0) })
    }

    /// An account without limits.
    pub fn unlimited() -> Arc<Self> {
        Self::new(Arc::default())
    }

    /// Bytes held; negative if more was freed than allocated under it.
    pub fn bytes(&self) -> i64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes over what another account holds: the operation goes on with what another began.
    pub fn take_over(&self, other: &MemoryAccount) {
        let bytes = other.bytes();
        other.add(-bytes);
        self.add(bytes);
    }

    /// Moves `bytes` to a new account, for memory that outlives the operation.
    pub fn split_off(&self, bytes: usize) -> Arc<MemoryAccount> {
        let other = MemoryAccount::new(Arc::clone(&self.budget));
        self.add(-(bytes as i64));
        other.add(bytes as i64);
        other
    }

    fn add(&self, bytes: i64) {
        if bytes != 0 {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            let before = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
            if bytes >= NOTED_BYTES {
                self.budget.most.fetch_max(before + bytes, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

thread_local! {
    /// Steps until the next look.
    static STEPS_LEFT: Cell<u32> = const { Cell::new(STEPS_PER_LOOK) };
    /// The lowest address that the stack may reach; 0 if that is not known.
    static STACK_END: Cell<usize> = const { Cell::new(0) };
    /// Bytes that this thread has allocated, less those that it has freed.
    static ALLOCATED: Cell<i64> = const { Cell::new(0) };
    /// `ALLOCATED` when the account was last brought up to date.
    static SETTLED: Cell<i64> = const { Cell::new(0) };
    /// When the present slice began, in nanoseconds of the meter's clock.
    static SLICE_START_NS: Cell<u64> = const { Cell::new(0) };
    static SUSPENDER: Cell<Option<fn()>> = const { Cell::new(None) };
    static GAVE_WAY: Cell<bool> = const { Cell::new(false) };
    /// Set when an infallible tick found that the operation must end: the next fallible tick checks at once.
    static ENDING: Cell<bool> = const { Cell::new(false) };
    /// Guards that keep the operation from being suspended.
    static STAYING: Cell<u32> = const { Cell::new(0) };
    static METER: RefCell<Option<Arc<Meter>>> = const { RefCell::new(None) };
}

/// Counts `steps` of work. Fails if the operation is to end; suspends it if its slice is over.
#[inline]
pub fn tick(steps: u32) -> Result<()> {
    STEPS_LEFT.with(|left| match left.get().checked_sub(steps) {
        Some(rest) => {
            left.set(rest);
            Ok(())
        }
        None => look(),
    })
}

/// As [`tick`], in steps of 64 bytes that are copied, compared or scanned.
#[inline]
pub fn tick_bytes(bytes: usize) -> Result<()> {
    tick(u32::try_from(bytes / 64).unwrap_or(u32::MAX))
}

/// Like [`tick`], for work that cannot fail, such as a comparison within a sort: it suspends, and leaves an error
/// to the next fallible tick.
#[inline]
pub fn tick_infallible(steps: u32) {
    STEPS_LEFT.with(|left| match left.get().checked_sub(steps) {
        Some(rest) => left.set(rest),
        None => look_infallibly(),
    });
}

#[cold]
#[inline(never)]
fn look_infallibly() {
    if !ENDING.get() && look().is_err() {
        ENDING.set(true);
        STEPS_LEFT.set(0);
    }
}

#[cold]
#[inline(never)]
fn look() -> Result<()> {
    STEPS_LEFT.set(STEPS_PER_LOOK);
    ENDING.set(false);
    let Some(meter) = METER.with_borrow(Clone::clone) else { return Ok(()) };
    STEPS_LEFT.set(virtual_time::steps_to_look(STEPS_PER_LOOK));
    settle(&meter.account);
    meter.account.budget.admit(meter.account.bytes(), 0)?;
    let slice_is_over = elapsed_in_slice(&*meter.clock)
        >= Duration::from_millis(limits::TIME_SLICE_MS)
        || virtual_time::gives_way();
    if slice_is_over
        && STAYING.get() == 0
        && let Some(suspend) = SUSPENDER.get()
    {
        meter.state.note_yield();
        suspend_here(suspend);
        SLICE_START_NS.set(now_ns(&*meter.clock));
        return meter.check();
    }
    meter.state.check(&*meter.clock)
}

fn now_ns(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX)
}

fn elapsed_in_slice(clock: &dyn Clock) -> Duration {
    Duration::from_nanos(now_ns(clock).saturating_sub(SLICE_START_NS.get()))
}

/// Leaves the thread to others, with all that is this operation's put away and brought back.
fn suspend_here(suspend: fn()) {
    let installed = Installed::take();
    GAVE_WAY.set(true);
    suspend();
    installed.put_back();
}

/// The parts of a meter's installation that a suspended operation takes along.
struct Installed {
    meter: Option<Arc<Meter>>,
}

impl Installed {
    fn take() -> Self {
        let meter = METER.take();
        if let Some(meter) = &meter {
            settle(&meter.account);
        }
        Installed { meter }
    }

    fn put_back(self) {
        SETTLED.set(ALLOCATED.get());
        METER.set(self.meter);
    }
}

/// Brings the account up to date.
fn settle(account: &MemoryAccount) {
    let allocated = ALLOCATED.get();
    account.add(allocated - SETTLED.replace(allocated));
}

/// Fails if the operation may not allocate `bytes` more at once. Allocates nothing.
pub fn reserve(bytes: usize) -> Result<()> {
    let Some(meter) = METER.with_borrow(Clone::clone) else { return Ok(()) };
    settle(&meter.account);
    meter.account.budget.admit(meter.account.bytes(), bytes)
}

/// Whether the memory of all operations is nearly used up: operations that can spill should spill now. False
/// without a meter.
pub fn memory_is_short() -> bool {
    METER.with_borrow(|meter| meter.as_ref().is_some_and(|meter| meter.account.budget.is_short()))
}

/// Runs code outside of the operation's meter: it is not suspended, not ended, and its memory is not the
/// operation's. For code that holds locks, and for memory of the engine, a cache or a registry. The work must be
/// bounded.
#[inline]
pub fn unmetered<T>(work: impl FnOnce() -> T) -> T {
    let _outside = leave_meter();
    work()
}

/// Like [`unmetered`], until the returned value is dropped: kept beside the guard of a lock.
#[inline]
pub fn leave_meter() -> Unmetered {
    let is_metered = METER.with_borrow(Option::is_some);
    Unmetered(is_metered.then(Installed::take))
}

/// See [`leave_meter`]. Empty where there was no meter.
#[must_use]
pub struct Unmetered(Option<Installed>);

impl Drop for Unmetered {
    #[inline]
    fn drop(&mut self) {
        if let Some(installed) = self.0.take() {
            installed.put_back();
        }
    }
}

/// Prevents the suspension of the operation until the returned value is dropped: kept beside the guard of a lock
/// that other tasks of the worker take. The work must be bounded; it may be ended, and its memory is the
/// operation's.
pub fn stay() -> Staying {
    STAYING.set(STAYING.get() + 1);
    Staying(PhantomData)
}

/// See [`stay`]. Bound to its thread.
#[must_use]
pub struct Staying(PhantomData<*const ()>);

impl Drop for Staying {
    fn drop(&mut self) {
        STAYING.set(STAYING.get() - 1);
    }
}

/// Allocations from this size on are work, too.
const LARGE_ALLOCATION_BYTES: i64 = 4096;

/// For the allocator: this thread allocated this many bytes, or freed them if negative. A large allocation counts
/// as work, so that the next tick checks the account before much more is allocated.
#[inline]
pub fn note_allocated(bytes: i64) {
    if bytes >= LARGE_ALLOCATION_BYTES {
        let steps = u32::try_from(bytes / 64).unwrap_or(u32::MAX);
        let _ = STEPS_LEFT.try_with(|left| left.set(left.get().saturating_sub(steps)));
    }
    // No value is lost but while the thread ends.
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes));
}

/// Stack that is kept for what does not look: leaf functions, system calls, signal handlers.
const STACK_RESERVE_BYTES: usize = 128 * 1024;

/// Fails if little of the thread's stack is left. For each level of a recursion over what a client or a
/// stored document sizes.
#[inline]
pub fn check_stack() -> Result<()> {
    check_stack_for(0)
}

/// Like [`check_stack`], for code that does not check itself and may use `bytes` of stack beyond the reserve for
/// leaf functions.
#[inline]
pub fn check_stack_for(bytes: usize) -> Result<()> {
    let here = 0u8;
    if std::ptr::from_ref(&here).addr().saturating_sub(bytes) < STACK_END.get() {
        return Err(stack_exhausted());
    }
    Ok(())
}

#[cold]
fn stack_exhausted() -> Error {
    Error::new(
        ErrorCode::Overflow,
        "the request nests too deeply: an expression, filter, pipeline or view exceeds the stack",
    )
}

/// Says how many bytes of stack are left below this call, for [`check_stack`] on this thread. To be called
/// where a thread begins.
pub fn note_stack(bytes: usize) {
    let here = 0u8;
    let low = std::ptr::from_ref(&here).addr().saturating_sub(bytes);
    STACK_END.set(low + STACK_RESERVE_BYTES.min(bytes / 2));
}

/// As [`note_stack`], where nothing is known of the thread's stack yet.
pub fn note_stack_if_unknown(bytes: usize) {
    if STACK_END.get() == 0 {
        note_stack(bytes);
    }
}

/// Stack of the threads that [`thread`] starts, in bytes.
pub const THREAD_STACK_BYTES: usize = 2 * 1024 * 1024;

/// Starts a thread whose stack [`check_stack`] knows: every thread that evaluates or parses what a client or a
/// stored document sizes.
pub fn thread<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    thread_with_stack(name, THREAD_STACK_BYTES, work)
}

/// Like [`thread`], with this stack size.
pub fn thread_with_stack<T: Send + 'static>(
    name: impl Into<String>,
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).stack_size(stack_bytes).spawn(move || {
        note_stack(stack_bytes);
        work()
    })
}

/// For an executor that polls on separate stacks: the stack's lowest address, and how to suspend. Returns the
/// previous setting for [`restore_stack`].
pub fn enter_stack(lowest: usize, suspend: fn()) -> OuterStack {
    let outer = OuterStack { end: STACK_END.get(), suspender: SUSPENDER.get() };
    STACK_END.set(lowest + STACK_RESERVE_BYTES);
    SUSPENDER.set(Some(suspend));
    outer
}

/// The setting before [`enter_stack`].
#[derive(Clone, Copy)]
pub struct OuterStack {
    end: usize,
    suspender: Option<fn()>,
}

/// The thread is back on its own stack.
pub fn restore_stack(outer: OuterStack) {
    STACK_END.set(outer.end);
    SUSPENDER.set(outer.suspender);
}

/// For the executor: whether a task used up its time slice in the poll that has just ended. It has more to do, and
/// runs after the tasks that have waited.
pub fn take_gave_way() -> bool {
    GAVE_WAY.replace(false)
}

pub(crate) fn note_gave_way() {
    GAVE_WAY.set(true);
}

/// Runs `future` under this meter.
pub fn metered<F: Future + Unpin>(meter: Arc<Meter>, future: F) -> Metered<F> {
    Metered { meter, future }
}

/// See [`metered`].
pub struct Metered<F> {
    meter: Arc<Meter>,
    future: F,
}

impl<F: Future + Unpin> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _scope = MeterScope::enter(Arc::clone(&self.meter));
        Pin::new(&mut self.future).poll(cx)
    }
}

/// Runs synchronous work under this meter; without an executor nothing is suspended.
pub fn with_meter<T>(meter: &Arc<Meter>, work: impl FnOnce() -> T) -> T {
    let _scope = MeterScope::enter(Arc::clone(meter));
    work()
}

/// Installs a meter until it is dropped.
struct MeterScope {
    outer: Option<Arc<Meter>>,
}

impl MeterScope {
    fn enter(meter: Arc<Meter>) -> Self {
        let outer = Installed::take().meter;
        SLICE_START_NS.set(now_ns(&*meter.clock));
        STEPS_LEFT.set(virtual_time::steps_to_look(STEPS_PER_LOOK));
        ENDING.set(false);
        Installed { meter: Some(meter) }.put_back();
        MeterScope { outer }
    }
}

impl Drop for MeterScope {
    fn drop(&mut self) {
        let _ended = Installed::take();
        Installed { meter: self.outer.take() }.put_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn meter(budget: &Arc<MemoryBudget>) -> (Arc<OperationState>, Arc<Meter>) {
        let state = Arc::new(OperationState::new(1));
        let account = MemoryAccount::new(Arc::clone(budget));
        let meter = Meter::new(Arc::clone(&state), Arc::new(SystemClock::new()), None, account);
        (state, meter)
    }

    fn ticks(times: u32) -> Result<()> {
        (0..times).try_for_each(|_| tick(1))
    }

    #[test]
    fn the_peak_of_memory_is_reported_once() {
        let budget = MemoryBudget::new(0, 0);
        let account = MemoryAccount::new(Arc::clone(&budget));
        account.add(5 * NOTED_BYTES);
        account.add(-4 * NOTED_BYTES);
        assert_eq!(budget.take_most_used(), 5 * NOTED_BYTES as u64);
        assert_eq!(budget.take_most_used(), NOTED_BYTES as u64);
    }

    #[test]
    fn only_a_killed_operation_fails_at_a_tick() {
        let (state, meter) = meter(&Arc::default());
        assert_eq!(with_meter(&meter, || ticks(10 * STEPS_PER_LOOK)), Ok(()));
        state.kill(ErrorCode::Interrupted);
        let ended = with_meter(&meter, || ticks(STEPS_PER_LOOK + 1));
        assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted));
        assert_eq!(ticks(10 * STEPS_PER_LOOK), Ok(()));
    }

    #[test]
    fn an_infallible_tick_leaves_the_error_to_the_next_tick() {
        let (state, meter) = meter(&Arc::default());
        state.kill(ErrorCode::Interrupted);
        let ended = with_meter(&meter, || {
            (0..10 * STEPS_PER_LOOK + 5).for_each(|_| tick_infallible(1));
            tick(1)
        });
        assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted));
        tick_infallible(STEPS_PER_LOOK + 1);
        assert_eq!(tick(1), Ok(()));
    }

    #[test]
    fn large_steps_check_the_operation_at_once() {
        let (state, meter) = meter(&Arc::default());
        state.kill(ErrorCode::Interrupted);
        assert!(with_meter(&meter, || tick(STEPS_PER_LOOK + 1)).is_err());
        assert!(with_meter(&meter, || tick_bytes(1 << 20)).is_err());
    }

    #[test]
    fn allocations_are_charged_to_the_running_operation() {
        let budget = MemoryBudget::new(1000, 0);
        let (_, one) = meter(&budget);
        let (_, other) = meter(&budget);
        with_meter(&one, || {
            note_allocated(600);
            with_meter(&other, || {
                note_allocated(500);
                unmetered(|| note_allocated(5000));
                assert_eq!(reserve(500), Ok(()));
                assert_eq!(reserve(501).map_err(|e| e.code()), Err(ErrorCode::ExceededMemoryLimit));
            });
            assert!(reserve(400).is_ok() && reserve(401).is_err());
            note_allocated(500);
            assert!(ticks(STEPS_PER_LOOK + 1).is_err());
            // A large allocation is looked at by the next tick.
            assert!(ticks(1).is_ok());
            note_allocated(1 << 20);
            assert!(ticks(1).is_err());
            note_allocated(-(1 << 20));
            note_allocated(-1000);
            assert!(ticks(STEPS_PER_LOOK + 1).is_ok());
        });
        note_allocated(9999);
        assert_eq!((one.account.bytes(), other.account.bytes(), budget.used()), (100, 500, 600));
        let part = other.account.split_off(200);
        assert_eq!((part.bytes(), other.account.bytes(), budget.used()), (200, 300, 600));
        other.account.take_over(&part);
        one.account.take_over(&other.account);
        assert_eq!((one.account.bytes(), other.account.bytes(), budget.used()), (600, 0, 600));
        drop(other);
        assert_eq!((budget.used(), budget.refused()), (600, 4));
        drop(one);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn beyond_the_shared_budget_only_small_operations_continue() {
        let budget = MemoryBudget::new(0, 6400);
        let (_, large) = meter(&budget);
        let (_, small) = meter(&budget);
        with_meter(&large, || {
            note_allocated(6300);
            assert!(reserve(101).is_err());
        });
        with_meter(&small, || {
            assert!(reserve(25).is_ok() && reserve(101).is_err());
            note_allocated(90);
            assert!(reserve(10).is_ok() && reserve(11).is_err());
            assert!(memory_is_short());
        });
        budget.set_scarce(true);
        with_meter(&small, || assert!(reserve(0).is_ok() && reserve(100).is_err()));
        budget.set_scarce(false);
        drop(large);
        with_meter(&small, || assert!(!memory_is_short()));
    }

    thread_local! {
        static SUSPENDED: Cell<u32> = const { Cell::new(0) };
    }

    /// Each read of this clock takes three milliseconds.
    struct SlowClock(AtomicU64);

    impl Clock for SlowClock {
        fn unix_ms(&self) -> i64 {
            0
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(3 * self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    #[test]
    fn an_operation_that_stays_can_end_but_is_not_suspended() {
        let state = Arc::new(OperationState::new(1));
        let clock = Arc::new(SlowClock(AtomicU64::new(0)));
        let meter = Meter::new(state.clone(), clock, None, MemoryAccount::unlimited());
        let outer = enter_stack(0, || SUSPENDED.set(SUSPENDED.get() + 1));
        with_meter(&meter, || {
            assert_eq!(ticks(STEPS_PER_LOOK + 1), Ok(()));
            assert_eq!(SUSPENDED.get(), 1);
            let outside = stay();
            let inside = stay();
            assert_eq!(ticks(STEPS_PER_LOOK + 1), Ok(()));
            drop(inside);
            state.kill(ErrorCode::Interrupted);
            assert!(ticks(STEPS_PER_LOOK + 1).is_err());
            assert_eq!(SUSPENDED.get(), 1);
            drop(outside);
            assert!(ticks(STEPS_PER_LOOK + 1).is_err());
            assert_eq!(SUSPENDED.get(), 2);
        });
        restore_stack(outer);
    }

    fn descend(levels: usize) -> Result<usize> {
        check_stack()?;
        let below = if levels == 0 { 0 } else { descend(levels - 1)? };
        Ok(std::hint::black_box(below) + 1)
    }

    #[test]
    fn recursion_fails_before_the_stack_is_exhausted() {
        let work = || {
            note_stack(256 * 1024);
            (descend(100), descend(1_000_000).map_err(|e| e.code()))
        };
        let thread = std::thread::Builder::new().stack_size(512 * 1024).spawn(work).unwrap();
        assert_eq!(thread.join().unwrap(), (Ok(101), Err(ErrorCode::Overflow)));
    }
}
