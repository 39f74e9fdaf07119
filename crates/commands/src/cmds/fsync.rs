//! `fsync` and `fsyncUnlock`: makes all writes durable. With `lock`, writers wait and the data files do not change
//! until `fsyncUnlock` was called as often as `fsync` with `lock`.

use crate::args::Args;
use crate::fsync_lock::{Locking, Still};
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Error, Result, bail, virtual_time};
use kauri_member::Request;
use kauri_storage::StorageError;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// `fsync`.
pub const COMMAND: Command = Command::admin("fsync", "makes all writes durable", run);

/// `fsyncUnlock`.
pub const UNLOCK: Command =
    Command { ..Command::admin("fsyncUnlock", "unlocks writes after fsync with lock", unlock) };

/// Default wait of a lock for active writers and for the files, in milliseconds.
const ACQUISITION_MS: i32 = 90_000;
/// Interval of its checks.
const STEP: Duration = Duration::from_millis(1);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("fsync");
        let (mut lock, mut timeout_ms) = (false, ACQUISITION_MS);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "lock" => lock = args.given(elem, Args::safe_bool)?.unwrap_or(false),
                "fsyncLockAcquisitionTimeoutMillis" if elem.value().is_nullish() => {}
                "fsyncLockAcquisitionTimeoutMillis" => match elem.value() {
                    kauri_bson::Value::Int32(ms) => timeout_ms = ms,
                    _ => return Err(args.wrong_type(elem, &["int"])),
                },
                _ => args.other(elem)?,
            }
        }
        let server = invocation.server;
        let engine = server.backend.engine().clone();
        if !lock {
            on_own_thread(move || engine.sync()).await?;
            invocation.reply.put("numFiles", 1);
            return Ok(());
        }
        let locking = server.fsync_lock.announce();
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let until = server.clock.monotonic() + timeout;
        wait_for_writers(invocation, &locking, until).await?;
        if let Some(member) = &server.member {
            // Its log does not change then either.
            invocation.op.wait_for(member.request(Request::Hold)).await??;
        }
        // Given up, the lock ends when the thread has let the files go.
        let held = on_own_thread(move || locking.hold_files(&*engine));
        let count = wait_for_files(invocation, held, until).await?.complete();
        let out = &mut invocation.reply;
        out.put("info", "now locked against writes, use db.fsyncUnlock() to unlock");
        out.put("lockCount", count as i64);
        out.put("seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
        Ok(())
    })
}

/// Waits until writers that were admitted before the lock have ended.
async fn wait_for_writers(
    invocation: &mut Invocation<'_>,
    locking: &Locking,
    until: Duration,
) -> Result<()> {
    while locking.has_writers() {
        wait_a_step(invocation, until).await?;
    }
    Ok(())
}

/// Waits until the files are still.
async fn wait_for_files(
    invocation: &mut Invocation<'_>,
    held: impl Future<Output = Result<Still>>,
    until: Duration,
) -> Result<Still> {
    let mut held = pin!(held);
    loop {
        let step = poll_fn(|cx| Poll::Ready(held.as_mut().poll(cx))).await;
        match step {
            Poll::Ready(still) => return still,
            Poll::Pending => wait_a_step(invocation, until).await?,
        }
    }
}

async fn wait_a_step(invocation: &mut Invocation<'_>, until: Duration) -> Result<()> {
    if invocation.server.clock.monotonic() >= until {
        bail!(LockTimeout, "Fsync lock timed out");
    }
    invocation.worker.sleep(STEP).await;
    invocation.op.check_for_interrupt()
}

fn unlock<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        // Not strict, as in MongoDB: who wants to unlock is let.
        let Some(left) = invocation.server.fsync_lock.unlock() else {
            bail!(IllegalOperation, "fsyncUnlock called when not locked");
        };
        invocation.reply.put("info", "fsyncUnlock completed");
        invocation.reply.put("lockCount", left as i64);
        Ok(())
    })
}

struct Done<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
}

/// Runs what blocks on a thread of its own, and waits for it here. A simulated world has one thread: there it is
/// done at once.
async fn on_own_thread<T: Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, StorageError> + Send + 'static,
) -> Result<T> {
    if virtual_time::peek_ns() > 0 {
        return work().map_err(Error::from);
    }
    let shared = Arc::new(Mutex::new(Done { result: None, waker: None }));
    let done = shared.clone();
    std::thread::Builder::new()
        .name("fsync".to_owned())
        .spawn(move || {
            let result = work().map_err(Error::from);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.result = Some(result);
            if let Some(waker) = done.waker.take() {
                waker.wake();
            }
        })
        .map_err(|e| Error::bad_value(format!("cannot start a thread: {e}")))?;
    poll_fn(|cx| {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                shared.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
