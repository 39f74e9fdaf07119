//! Background tasks of the server: deletes expired documents, closes idle cursors, ends idle sessions.
//!
//! Each task is a future that runs on a worker like a command. It checks once per second whether it is due, so that
//! a changed parameter takes effect at once.

pub mod ttl;

use crate::cmds;
use crate::server::Server;
use kauri_base::log::{self, Attr};
use kauri_transport::WorkerHandle;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval at which a task checks whether it is due.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of checks of sessions.
const SESSIONS_EVERY: Duration = Duration::from_secs(60);

/// Starts all of it on this worker.
pub fn spawn(server: &Arc<Server>, worker: &WorkerHandle) {
    worker.spawn(ttl::run(server.clone(), worker.clone()));
    worker.spawn(expire(server.clone(), worker.clone()));
}

/// Closes idle cursors and ends idle sessions.
async fn expire(server: Arc<Server>, worker: WorkerHandle) {
    let mut cursors_at = server.clock.monotonic();
    let mut sessions_at = cursors_at;
    while !server.stopping.load(Ordering::Acquire) {
        worker.sleep(LOOK).await;
        let now = server.clock.monotonic();
        let every = server.parameters.number("clientCursorMonitorFrequencySecs").max(1) as u64;
        if now.saturating_sub(cursors_at) >= Duration::from_secs(every) {
            cursors_at = now;
            expire_cursors(&server);
        }
        if now.saturating_sub(sessions_at) >= SESSIONS_EVERY {
            sessions_at = now;
            expire_sessions(&server);
        }
    }
}

/// Closes cursors that are idle longer than `cursorTimeoutMillis`, and cursors without an owner.
pub fn expire_cursors(server: &Server) {
    let idle_ms = server.parameters.number("cursorTimeoutMillis").max(1) as u64;
    let closed = server.cursors.expire(Duration::from_millis(idle_ms));
    if closed > 0 {
        let attr = Attr::new().num("numTimedOut", closed);
        log::info("QUERY", 20529, "clientcursormon", "Cursors timed out", attr);
    }
}

/// Ends sessions that are idle for `localLogicalSessionTimeoutMinutes`, with their cursors.
pub fn expire_sessions(server: &Server) {
    let minutes = cmds::session_timeout_minutes(server).max(1) as u64;
    let idle = Duration::from_secs(minutes * 60);
    let Some(before) = server.clock.monotonic().checked_sub(idle) else { return };
    let expired: HashSet<_> = server.sessions.expire(before).into_iter().collect();
    if !expired.is_empty() {
        server.cursors.kill_where(|_, lsid| lsid.is_some_and(|id| expired.contains(&id)));
    }
}
