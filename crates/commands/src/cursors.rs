//! Open cursors between their batches.
//!
//! A `getMore` takes its cursor out of the table, so two cannot use the same cursor. A cursor in the table holds
//! nothing of the engine.
//!
//! Invariants: neither a connection nor a logical session has more open cursors than its limit. A cursor ends with
//! its session, or, without a session, soon after its connection.

use kauri_base::work::{self, MemoryAccount, unmetered};
use kauri_base::{Clock, Error, ErrorCode, RandomSource, Result, limits};
use kauri_bson::DocBuf;
use kauri_catalog::{Collection, Namespace};
use kauri_member::oplog::LogPlace;
use kauri_query::exec::{PlanExecutor, Totals};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The behaviour of a cursor at the end of its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tailing {
    /// It closes.
    No,
    /// It stays open.
    Tailable,
    /// It stays open, and `getMore` waits for data.
    AwaitData,
}

/// The open cursors of a connection; dropping this means that the connection has ended.
#[derive(Default)]
pub struct ConnectionCursors(Arc<Holder>);

impl Drop for ConnectionCursors {
    fn drop(&mut self) {
        self.0.has_gone.store(true, Ordering::Relaxed);
    }
}

/// A connection or a logical session that has open cursors.
#[derive(Default)]
struct Holder {
    open: AtomicUsize,
    has_gone: AtomicBool,
}

/// Counts a cursor as its holder's until it is dropped.
struct Held(Arc<Holder>);

impl Held {
    fn new(holder: &Arc<Holder>) -> Held {
        holder.open.fetch_add(1, Ordering::Relaxed);
        Held(holder.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The owners that a cursor counts for.
pub struct Holders {
    connection: Held,
    _session: Option<Held>,
}

/// A cursor.
pub struct Cursor {
    /// Its id; not 0.
    pub id: i64,
    /// The namespace that clients have to name.
    pub ns: Namespace,
    /// The collection that it reads, to notice a drop.
    pub collection: Option<Arc<Collection>>,
    /// The plan.
    pub executor: PlanExecutor,
    /// See [`Tailing`].
    pub tailing: Tailing,
    /// The replicated log, if it follows that.
    pub log: Option<Arc<LogPlace>>,
    /// The logical session that it belongs to.
    pub lsid: Option<[u8; 16]>,
    /// Whether it never times out (`noCursorTimeout`).
    pub no_timeout: bool,
    /// Time that `maxTimeMS` of its command left for its `getMore`s, if there was a limit.
    pub time_left: Option<Duration>,
    /// The command that opened it.
    pub command: Arc<DocBuf>,
    /// Keys and documents that its plan had examined at the end of its last batch.
    pub examined: (u64, u64),
    /// Documents given so far.
    pub returned: u64,
    /// Batches given so far.
    pub batches: u64,
    /// When it was opened (Unix milliseconds).
    pub created_ms: i64,
    /// Whether a limit on the number of results ends it here.
    pub single_batch: bool,
    /// Whether its reads wait until the set keeps what they have seen.
    pub is_majority: bool,
    /// Its memory account.
    pub account: Arc<MemoryAccount>,
    /// Its owners, once it is stored.
    pub holders: Option<Holders>,
}

enum Slot {
    Idle {
        cursor: Box<Cursor>,
        since: Duration,
    },
    /// A `getMore` has it; `killed` if it's to be closed when it comes back.
    Pinned {
        ns: Namespace,
        lsid: Option<[u8; 16]>,
        killed: bool,
    },
}

/// The logical sessions that have open cursors.
#[derive(Default)]
struct SessionHolders {
    all: HashMap<[u8; 16], Weak<Holder>>,
    /// Number of owners at which those without cursors are removed.
    clear_at: usize,
}

impl SessionHolders {
    fn of(&mut self, id: [u8; 16]) -> Arc<Holder> {
        const KEPT_MIN: usize = 64;
        if let Some(holder) = self.all.get(&id).and_then(Weak::upgrade) {
            return holder;
        }
        if self.all.len() >= self.clear_at.max(KEPT_MIN) {
            self.all.retain(|_, holder| holder.strong_count() > 0);
            self.clear_at = 2 * self.all.len();
        }
        let holder = Arc::default();
        self.all.insert(id, Arc::downgrade(&holder));
        holder
    }
}

/// All open cursors of the server.
pub struct CursorManager {
    slots: Mutex<HashMap<i64, Slot>>,
    /// Locked after `slots`.
    sessions: Mutex<SessionHolders>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    timed_out: AtomicU64,
    opened: AtomicU64,
}

impl CursorManager {
    /// An empty table.
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn RandomSource>) -> Self {
        CursorManager {
            slots: Mutex::default(),
            sessions: Mutex::default(),
            clock,
            random,
            timed_out: Default::default(),
            opened: Default::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cursor id that is not in use.
    pub fn new_id(&self) -> i64 {
        loop {
            let id = (self.random.next_u64() >> 1) as i64;
            if id != 0 && !self.lock().contains_key(&id) {
                return id;
            }
        }
    }

    /// Keeps a new cursor, which a command on this connection opened.
    pub fn insert(&self, mut cursor: Cursor, connection: &ConnectionCursors) -> Result<()> {
        let mut slots = self.lock();
        if slots.len() >= limits::CURSORS_MAX {
            return Err(too_many("on the server", limits::CURSORS_MAX));
        }
        if connection.0.open.load(Ordering::Relaxed) >= limits::CURSORS_PER_CONNECTION_MAX {
            return Err(too_many("of this connection", limits::CURSORS_PER_CONNECTION_MAX));
        }
        let session = match cursor.lsid {
            None => None,
            Some(id) => {
                let holder = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).of(id);
                if holder.open.load(Ordering::Relaxed) >= limits::CURSORS_PER_SESSION_MAX {
                    return Err(too_many("of this session", limits::CURSORS_PER_SESSION_MAX));
                }
                Some(Held::new(&holder))
            }
        };
        let connection = Held::new(&connection.0);
        cursor.holders = Some(Holders { connection, _session: session });
        self.opened.fetch_add(1, Ordering::Relaxed);
        let since = self.clock.monotonic();
        slots.insert(cursor.id, Slot::Idle { cursor: Box::new(cursor), since });
        Ok(())
    }

    /// Takes a cursor out for a `getMore` on this namespace.
    pub fn check_out(
        &self,
        id: i64,
        ns: &Namespace,
        lsid: Option<[u8; 16]>,
    ) -> Result<Box<Cursor>> {
        let mut slots = self.lock();
        match slots.remove(&id) {
            None => Err(not_found(id)),
            Some(pinned @ Slot::Pinned { .. }) => {
                slots.insert(id, pinned);
                Err(Error::new(ErrorCode::CursorInUse, format!("cursor id {id} is already in use")))
            }
            Some(Slot::Idle { cursor, since }) => {
                let refusal = if cursor.ns != *ns {
                    Some(Error::new(
                        ErrorCode::Unauthorized,
                        format!(
                            "Requested getMore on namespace '{ns}', but cursor belongs to a \
                             different namespace {}",
                            cursor.ns
                        ),
                    ))
                } else if cursor.lsid != lsid {
                    Some(session_mismatch(id, &cursor, lsid))
                } else {
                    None
                };
                if let Some(error) = refusal {
                    slots.insert(id, Slot::Idle { cursor, since });
                    return Err(error);
                }
                let pinned = Slot::Pinned { ns: ns.clone(), lsid, killed: false };
                slots.insert(id, pinned);
                Ok(cursor)
            }
        }
    }

    /// Returns a cursor after its batch. False if it was killed meanwhile; then it is closed.
    pub fn check_in(&self, cursor: Box<Cursor>) -> bool {
        let mut slots = self.lock();
        match slots.get(&cursor.id) {
            Some(Slot::Pinned { killed: false, .. }) => {
                let since = self.clock.monotonic();
                slots.insert(cursor.id, Slot::Idle { cursor, since });
                true
            }
            _ => {
                slots.remove(&cursor.id);
                false
            }
        }
    }

    /// Closes a cursor that was checked out.
    pub fn close(&self, id: i64) {
        self.lock().remove(&id);
    }

    /// Closes a cursor for a client. False if the id is unknown.
    pub fn kill(&self, id: i64) -> bool {
        let mut slots = self.lock();
        match slots.get_mut(&id) {
            None => false,
            Some(Slot::Idle { .. }) => {
                // Its memory is in its own account, not in that of whoever kills it.
                unmetered(|| slots.remove(&id));
                true
            }
            Some(Slot::Pinned { killed, .. }) => {
                *killed = true;
                true
            }
        }
    }

    /// Closes all cursors for which `doomed` holds, given namespace and session.
    pub fn kill_where(&self, doomed: impl Fn(&Namespace, Option<[u8; 16]>) -> bool) {
        let mut slots = self.lock();
        let stays = |_: &i64, slot: &mut Slot| match slot {
            Slot::Idle { cursor, .. } => !doomed(&cursor.ns, cursor.lsid),
            Slot::Pinned { ns, lsid, killed } => {
                *killed |= doomed(ns, *lsid);
                true
            }
        };
        unmetered(|| slots.retain(stays));
    }

    /// Closes idle cursors and cursors without an owner. Returns their number.
    pub fn expire(&self, idle: Duration) -> usize {
        let now = self.clock.monotonic();
        let orphaned = Duration::from_millis(limits::CURSOR_ORPHAN_MS);
        let mut slots = self.lock();
        let before = slots.len();
        slots.retain(|_, slot| match slot {
            Slot::Idle { cursor, since } => {
                let age = now.saturating_sub(*since);
                let keeps = cursor.no_timeout || age < idle;
                keeps && (age < orphaned || !cursor.is_orphan())
            }
            Slot::Pinned { .. } => true,
        });
        let closed = before - slots.len();
        self.timed_out.fetch_add(closed as u64, Ordering::Relaxed);
        closed
    }

    /// Open, pinned, `noTimeout`, timed out ever, opened ever.
    pub fn counts(&self) -> CursorCounts {
        let slots = self.lock();
        let mut counts = CursorCounts { open: slots.len() as u64, ..CursorCounts::default() };
        for slot in slots.values() {
            match slot {
                Slot::Idle { cursor, .. } => {
                    counts.no_timeout += u64::from(cursor.no_timeout);
                    counts.orphaned += u64::from(cursor.is_orphan());
                }
                Slot::Pinned { .. } => counts.pinned += 1,
            }
        }
        counts.timed_out = self.timed_out.load(Ordering::Relaxed);
        counts.opened = self.opened.load(Ordering::Relaxed);
        counts
    }

    /// Visits each idle cursor (`currentOp` with idle cursors).
    pub fn for_each_idle(&self, mut look: impl FnMut(&Cursor)) {
        let _staying = work::stay();
        for slot in self.lock().values() {
            if let Slot::Idle { cursor, .. } = slot {
                look(cursor);
            }
        }
    }
}

/// Figures for `serverStatus.metrics.cursor`.
#[derive(Default, Clone, Copy)]
#[allow(missing_docs)]
pub struct CursorCounts {
    pub open: u64,
    pub pinned: u64,
    pub no_timeout: u64,
    pub orphaned: u64,
    pub timed_out: u64,
    pub opened: u64,
}

impl Cursor {
    /// Keys and documents that a plan has examined.
    pub fn examined_by(totals: &Totals) -> (u64, u64) {
        (totals.keys_examined, totals.docs_examined)
    }

    /// What its plan has examined since the last batch.
    pub fn take_examined(&mut self) -> Totals {
        let mut totals = self.executor.totals();
        let (keys, docs) = std::mem::replace(&mut self.examined, Cursor::examined_by(&totals));
        totals.keys_examined = totals.keys_examined.saturating_sub(keys);
        totals.docs_examined = totals.docs_examined.saturating_sub(docs);
        totals
    }

    /// Whether it has no session, and the connection that opened it has ended.
    fn is_orphan(&self) -> bool {
        let connection = self.holders.as_ref().map(|holders| &holders.connection.0);
        self.lsid.is_none() && connection.is_some_and(|c| c.has_gone.load(Ordering::Relaxed))
    }
}

fn too_many(whose: &str, limit: usize) -> Error {
    let message =
        format!("Too many open cursors {whose}: the limit is {limit}; exhaust or kill some first");
    Error::new(ErrorCode::ExceededMemoryLimit, message)
}

fn not_found(id: i64) -> Error {
    Error::new(ErrorCode::CursorNotFound, format!("cursor id {id} not found"))
}

fn session_mismatch(id: i64, cursor: &Cursor, lsid: Option<[u8; 16]>) -> Error {
    let (code, message) = match (cursor.lsid, lsid) {
        (Some(_), None) => (
            50736,
            format!(
                "Cannot run getMore on cursor {id}, which was created in a session, without an lsid"
            ),
        ),
        (None, _) => (
            50737,
            format!(
                "Cannot run getMore on cursor {id}, which was not created in a session, in a session"
            ),
        ),
        _ => (
            50738,
            format!("Cannot run getMore on cursor {id}, which was created in another session"),
        ),
    };
    Error::location(code, message)
}
