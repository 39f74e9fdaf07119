//! Logical sessions that are alive, so that the end of a session ends its cursors and operations.
//!
//! A session begins when a command first names it. It ends by a command, or after
//! `localLogicalSessionTimeoutMinutes` without use. The code that ends a session kills its cursors and running
//! operations.

use kauri_base::{Error, ErrorCode, Result, limits};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A session's id, `lsid.id`.
pub type SessionId = [u8; 16];

const SHARDS: usize = 16;

/// The sessions that are alive, with the time of their last use.
#[derive(Default)]
pub struct Sessions {
    shards: [Mutex<HashMap<SessionId, Duration>>; SHARDS],
    count: AtomicUsize,
}

impl Sessions {
    fn shard(&self, id: &SessionId) -> MutexGuard<'_, HashMap<SessionId, Duration>> {
        let shard = usize::from(id[0]) % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a use at this (monotonic) time; begins the session if it's new.
    pub fn touch(&self, id: SessionId, now: Duration) -> Result<()> {
        let mut shard = self.shard(&id);
        if let Some(used) = shard.get_mut(&id) {
            *used = now;
            return Ok(());
        }
        if self.count.fetch_add(1, Ordering::Relaxed) >= limits::LOGICAL_SESSIONS_MAX {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::new(
                ErrorCode::TooManyLogicalSessions,
                "Unable to add session into the cache because the number of active sessions is too \
                 high",
            ));
        }
        shard.insert(id, now);
        Ok(())
    }

    /// Ends a session; false if the id is unknown.
    pub fn end(&self, id: &SessionId) -> bool {
        let ended = self.shard(id).remove(id).is_some();
        if ended {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        ended
    }

    /// Ends the sessions without use since `before`; returns their ids.
    pub fn expire(&self, before: Duration) -> Vec<SessionId> {
        let mut expired = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|id, used| {
                let keep = *used >= before;
                if !keep {
                    expired.push(*id);
                }
                keep
            });
        }
        self.count.fetch_sub(expired.len(), Ordering::Relaxed);
        expired
    }

    /// All of them, with the time of their last use.
    pub fn all(&self) -> Vec<(SessionId, Duration)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.iter().map(|(id, used)| (*id, *used)));
        }
        all
    }

    /// Number of live sessions.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
