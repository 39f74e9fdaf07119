//! The time limit of an operation that waits.
//!
//! An operation looks at its limit when it is polled. This module has it polled once the limit is over, whatever it
//! waits for. A timer exists only while an operation with a limit waits.

use kauri_base::Clock;
use kauri_base::operation::OperationState;
use kauri_transport::{Sleep, WorkerHandle};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// Polls `work` to its end, also when the operation's time is over.
pub(crate) async fn watch<F: Future>(
    worker: &WorkerHandle,
    state: &OperationState,
    clock: &dyn Clock,
    work: F,
) -> F::Output {
    let mut work = pin!(work);
    let mut timer: Option<Sleep> = None;
    let mut is_over = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            let left = if is_over { None } else { state.time_left(clock) };
            match left {
                None => return Poll::Pending,
                // The limit may have passed since the poll.
                Some(Duration::ZERO) => is_over = true,
                Some(left) => {
                    let sleep = timer.get_or_insert_with(|| worker.sleep(left));
                    if Pin::new(sleep).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    timer = None;
                }
            }
        }
    })
    .await
}
