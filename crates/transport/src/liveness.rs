//! Whether a client still expects a reply: false after the peer has disconnected or the server ends the session.
//!
//! The session, the running command and any code that may end the session share it. A check costs one relaxed load.
//! A change of a flag wakes the session's task, and with it the command, which may be suspended anywhere in its own
//! futures: so these futures check the flags themselves.

use kauri_base::{Error, ErrorCode, Result};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

const PEER_CLOSED: u32 = 1;
const DRAINING: u32 = 2;
const CANCELLED: u32 = 4;
const DROPPED: u32 = 8;

/// The flags of one session.
#[derive(Default)]
pub struct Liveness {
    flags: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl std::fmt::Debug for Liveness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Liveness").field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl Liveness {
    fn has(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flags != 0
    }

    /// Whether the command should continue: `ClientDisconnect` (279) if the client has disconnected,
    /// `InterruptedAtShutdown` (11600) if the server ends the session. Reads check it when their reply is useless;
    /// a write that expects no reply does not.
    pub fn check(&self) -> Result<()> {
        if !self.has(PEER_CLOSED | CANCELLED) {
            return Ok(());
        }
        if self.has(CANCELLED) {
            return Err(Error::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown"));
        }
        Err(Error::new(
            ErrorCode::ClientDisconnect,
            "operation was interrupted because a client disconnected",
        ))
    }

    /// The client has closed its connection or its sending half, or the connection broke.
    pub fn is_peer_closed(&self) -> bool {
        self.has(PEER_CLOSED)
    }

    /// The server ends the session, and waits for its command no longer.
    pub fn is_cancelled(&self) -> bool {
        self.has(CANCELLED | DROPPED)
    }

    /// Ready with the error of [`Liveness::check`] as soon as there is one. Only to be awaited by
    /// the command of this session, since its task is the one that is woken.
    pub async fn ended(&self) -> Error {
        poll_fn(|_| match self.check() {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        })
        .await
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.has(DRAINING | CANCELLED | DROPPED)
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.has(DROPPED)
    }

    /// For sessions: records that the peer has closed, and wakes the session's task.
    pub fn note_peer_closed(&self) {
        if !self.is_peer_closed() {
            self.raise(PEER_CLOSED);
        }
    }

    pub(crate) fn set_waker(&self, waker: &Waker) {
        *self.lock_waker() = Some(waker.clone());
    }

    /// The session ends as soon as it has no request in progress.
    pub(crate) fn drain(&self) {
        self.raise(DRAINING);
    }

    /// Tells the running command to stop at its next check.
    pub(crate) fn cancel(&self) {
        self.raise(DRAINING | CANCELLED);
    }

    /// The command in progress is dropped where it waits.
    pub(crate) fn drop_command(&self) {
        self.raise(DRAINING | CANCELLED | DROPPED);
    }

    fn raise(&self, flags: u32) {
        self.flags.fetch_or(flags, Ordering::Relaxed);
        let waker = self.lock_waker().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock_waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
