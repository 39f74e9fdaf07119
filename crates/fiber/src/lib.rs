//! Futures whose polls can be suspended.
//!
//! [`Fibered`] polls its future on a separate stack. Synchronous code within the poll that has used up its time
//! slice ([`kauri_base::work::tick`]) leaves that stack: the poll returns `Pending`, the worker runs other tasks,
//! and the next poll resumes in the middle. A future needs no stack between polls that end normally, so a worker
//! has one stack, plus one per suspended task.
//!
//! Invariants:
//! - A future is polled, suspended and resumed on one thread.
//! - A stack returns to its thread's pool when its poll has ended, with or without a panic. A stack that is dropped
//!   in the middle is unwound first, so that everything on it is dropped.
//! - State that exists across a tick belongs to the operation: no lock, no borrow of the worker's state.
//!
//! The crate `corosensei` switches stacks. The unsafe code here argues why the future outlives the coroutine that
//! polls it. This crate must not know sessions or commands.
#![allow(unsafe_code)]

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kauri_base::work::{self, OuterStack};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::ptr::{NonNull, null};
use std::task::{Context, Poll, Waker};

/// Default size of a stack.
pub const STACK_BYTES: usize = 1024 * 1024;
/// Stacks that a thread keeps for later.
const POOLED_MAX: usize = 8;

thread_local! {
    static POOL: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    static STACK_SIZE: Cell<usize> = const { Cell::new(STACK_BYTES) };
    /// Leads out of the stack that this thread is on; null on its own.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(null()) };
}

/// Later stacks of this thread have this size.
pub fn set_stack_bytes(bytes: usize) {
    POOL.with_borrow_mut(Vec::clear);
    STACK_SIZE.set(bytes);
}

fn take_stack() -> Option<DefaultStack> {
    POOL.with_borrow_mut(Vec::pop).or_else(|| DefaultStack::new(STACK_SIZE.get()).ok())
}

fn give_back(stack: DefaultStack) {
    // While the thread ends there is no pool any more.
    let _ = POOL.try_with(|pool| {
        if let Ok(mut pool) = pool.try_borrow_mut()
            && pool.len() < POOLED_MAX
        {
            pool.push(stack);
        }
    });
}

/// Leaves the present stack until its future is polled again.
fn suspend() {
    let yielder = YIELDER.replace(null());
    // SAFETY: it is null, or was set by the coroutine that runs on this stack, whose frame, and with it the
    // yielder, lives as long as anything above it does.
    if let Some(yielder) = unsafe { yielder.as_ref() } {
        yielder.suspend(());
        YIELDER.set(yielder);
    }
}

/// A poll on a stack of its own.
struct Poller<T> {
    coroutine: Coroutine<(), (), Poll<T>, DefaultStack>,
    /// The lowest address of its stack, the guard page included.
    lowest: usize,
}

/// See the module's head.
pub struct Fibered<'a, T> {
    /// A poll that was left in the middle. Before the future, so that it is dropped first.
    left: Option<Poller<T>>,
    future: OwnedFuture<'a, T>,
    /// The waker of the future's polls; a suspended poll keeps it.
    waker: Box<Waker>,
}

/// A boxed future by its address: while a coroutine uses that, no `Box` may claim it for itself alone.
struct OwnedFuture<'a, T>(NonNull<dyn Future<Output = T> + Send + 'a>);

impl<T> Drop for OwnedFuture<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the address came from `Box::into_raw`, once, and no coroutine uses it any more: `Fibered` has
        // dropped its own before.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<'a, T: 'a> Fibered<'a, T> {
    /// Runs this future.
    pub fn new(future: Pin<Box<dyn Future<Output = T> + Send + 'a>>) -> Self {
        // SAFETY: the future stays where it is until it is dropped.
        let future = Box::into_raw(unsafe { Pin::into_inner_unchecked(future) });
        // SAFETY: a box's address is not null.
        let future = OwnedFuture(unsafe { NonNull::new_unchecked(future) });
        Fibered { left: None, future, waker: Box::new(Waker::noop().clone()) }
    }

    /// Whether a poll was left in the middle.
    pub fn is_left(&self) -> bool {
        self.left.is_some()
    }

    fn begin(&self, stack: DefaultStack) -> Poller<T> {
        let (future, waker) = (self.future.0, NonNull::from(&*self.waker));
        let poll = move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            let _off = Off;
            // SAFETY: `Fibered` drops the coroutine before the waker, and changes the waker only between
            // coroutines.
            let mut cx = Context::from_waker(unsafe { waker.as_ref() });
            // SAFETY: the future is pinned, as it came; `Fibered` drops the coroutine before it, and touches
            // it in no other way.
            let future = unsafe { Pin::new_unchecked(&mut *future.as_ptr()) };
            future.poll(&mut cx)
        };
        let lowest = stack.limit().get();
        // SAFETY: what the closure uses outlives the coroutine (see there). `Fibered` doesn't forget one: its
        // fields are dropped with it, and who forgets a `Fibered` forgets the future and the waker, which are on
        // the heap, too. What the future itself borrows is borrowed for 'a, which `Fibered` has among its
        // parameters: forgetting it leaves the coroutine suspended for good, and nothing runs on it any more.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, poll) };
        Poller { coroutine, lowest }
    }
}

/// No stack to leave, once the poll on it is over.
struct Off;

impl Drop for Off {
    fn drop(&mut self) {
        YIELDER.set(null());
    }
}

/// Back to the thread's stack, also by a panic.
struct Outside(OuterStack);

impl Drop for Outside {
    fn drop(&mut self) {
        work::restore_stack(self.0);
    }
}

impl<'a, T: 'a> Future for Fibered<'a, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut poller = match self.left.take() {
            Some(left) => left,
            None => {
                if !self.waker.will_wake(cx.waker()) {
                    *self.waker = cx.waker().clone();
                }
                let Some(stack) = take_stack() else {
                    // SAFETY: as in `begin`; no coroutine uses the future.
                    let future = unsafe { Pin::new_unchecked(&mut *self.future.0.as_ptr()) };
                    return future.poll(cx);
                };
                self.begin(stack)
            }
        };
        let outside = Outside(work::enter_stack(poller.lowest, suspend));
        let result = poller.coroutine.resume(());
        drop(outside);
        match result {
            CoroutineResult::Return(polled) => {
                give_back(poller.coroutine.into_stack());
                polled
            }
            CoroutineResult::Yield(()) => {
                self.left = Some(poller);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests;
