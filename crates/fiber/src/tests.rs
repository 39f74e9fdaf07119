//! Polls that are suspended, resumed, dropped and that panic.

use super::*;
use kauri_base::operation::OperationState;
use kauri_base::work::{MemoryAccount, Meter, check_stack, metered, tick};
use kauri_base::{Clock, Error, ErrorCode, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Each look at it takes three milliseconds.
#[derive(Default)]
struct SlowClock(AtomicU64);

impl Clock for SlowClock {
    fn unix_ms(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(3 * self.0.fetch_add(1, Ordering::Relaxed))
    }
}

fn meter() -> (Arc<OperationState>, Arc<Meter>) {
    let state = Arc::new(OperationState::new(1));
    let clock = Arc::new(SlowClock::default());
    (Arc::clone(&state), Meter::new(state, clock, None, MemoryAccount::unlimited()))
}

/// Works for so many looks at the clock.
fn work_for(looks: u32) -> Result<()> {
    (0..looks * 600).try_for_each(|_| tick(1))
}

fn poll<'a, T: 'a>(fiber: &mut Fibered<'a, T>) -> Poll<T> {
    Pin::new(fiber).poll(&mut Context::from_waker(Waker::noop()))
}

/// Drops are counted.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_long_poll_is_left_and_goes_on_where_it_was() {
    let (state, meter) = meter();
    let borrowed = String::from("borrowed");
    let text = &borrowed;
    let mut fiber = Fibered::new(Box::pin(metered(
        meter,
        Box::pin(async move {
            let mut written = Vec::new();
            for round in 0..3 {
                work_for(4)?;
                written.push(format!("{text} {round}"));
            }
            Ok::<_, Error>(written)
        }),
    )));
    let mut polls = 1;
    let result = loop {
        match poll(&mut fiber) {
            Poll::Ready(result) => break result,
            Poll::Pending => assert!(fiber.is_left()),
        }
        polls += 1;
    };
    assert_eq!(result.unwrap(), ["borrowed 0", "borrowed 1", "borrowed 2"]);
    assert!(polls > 5 && state.yields() == polls - 1, "{polls} polls");
    assert_eq!(POOL.with_borrow(Vec::len), 1);
}

#[test]
fn several_are_left_at_once_and_each_ends_by_its_own_state() {
    let made: Vec<_> = (0..5).map(|_| meter()).collect();
    let start = |meter: &Arc<Meter>| {
        Fibered::new(Box::pin(metered(Arc::clone(meter), Box::pin(async { work_for(20) }))))
    };
    let mut fibers: Vec<_> = made.iter().map(|(_, meter)| start(meter)).collect();
    assert!(fibers.iter_mut().all(|fiber| poll(fiber).is_pending() && fiber.is_left()));
    made[3].0.kill(ErrorCode::Interrupted);
    for (number, fiber) in fibers.iter_mut().enumerate() {
        let result = loop {
            if let Poll::Ready(result) = poll(fiber) {
                break result;
            }
        };
        assert_eq!(result.is_err(), number == 3, "{number}: {result:?}");
    }
}

#[test]
fn what_is_dropped_in_the_middle_is_unwound() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (_, meter) = meter();
    let count = Arc::clone(&drops);
    let mut fiber = Fibered::new(Box::pin(metered(
        meter,
        Box::pin(async move {
            let _of_the_future = Counted(Arc::clone(&count));
            let deep = || {
                let _on_the_stack = Counted(count.clone());
                work_for(100)
            };
            deep()
        }),
    )));
    assert!(poll(&mut fiber).is_pending());
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(fiber);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    // The thread goes on as before.
    assert_eq!(work_for(10), Ok(()));
}

#[test]
fn a_panic_comes_out_of_the_poll() {
    let (_, meter) = meter();
    let mut fiber = Fibered::<()>::new(Box::pin(metered(
        meter,
        Box::pin(async {
            work_for(4).unwrap();
            panic!("as planned");
        }),
    )));
    let panic = loop {
        match catch_unwind(AssertUnwindSafe(|| poll(&mut fiber))) {
            Ok(polled) => assert!(polled.is_pending()),
            Err(panic) => break panic,
        }
    };
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"as planned"));
    drop(fiber);
    assert_eq!(check_stack(), Ok(()));
}

fn descend(levels: usize) -> Result<usize> {
    check_stack()?;
    let below = if levels == 0 { 0 } else { descend(levels - 1)? };
    Ok(std::hint::black_box(below) + 1)
}

#[test]
fn recursion_ends_before_the_stack_of_the_fiber_does() {
    let mut fiber = Fibered::new(Box::pin(async { (descend(100), descend(10_000_000)) }));
    let Poll::Ready((shallow, deep)) = poll(&mut fiber) else { panic!("nothing to wait for") };
    assert_eq!(shallow, Ok(101));
    assert_eq!(deep.map_err(|e| e.code()), Err(ErrorCode::Overflow));
}

#[test]
fn a_future_that_waits_keeps_no_stack() {
    let mut polls = 0;
    let waits = std::future::poll_fn(move |_| {
        polls += 1;
        if polls < 3 { Poll::Pending } else { Poll::Ready(polls) }
    });
    let mut fiber = Fibered::new(Box::pin(waits));
    for _ in 0..2 {
        assert!(poll(&mut fiber).is_pending() && !fiber.is_left());
    }
    assert_eq!(poll(&mut fiber), Poll::Ready(3));
}
