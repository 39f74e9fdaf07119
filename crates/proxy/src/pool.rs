//! Upstream sessions, and the pool of idle ones, which wait for a driver with the same handshake.
//!
//! Invariants:
//! - An idle session has no bytes in flight in either direction.
//! - The number and the idle time of idle sessions are limited; the session that is idle longest is closed first.

use crate::ProxyOptions;
use crate::hello::Key;
use kauri_base::log::{self, Attr};
use kauri_bson::doc;
use kauri_client::{ClientError, Connection, HangUp, Uri};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of checks of idle sessions.
const SWEEP_EACH: Duration = Duration::from_secs(5);
/// Maximum time for writes without replies after their driver has disconnected.
const SETTLE_TIME: Duration = Duration::from_secs(60);

/// A session with the server, and what a driver has made of it.
#[derive(Debug)]
pub struct Session {
    pub connection: Connection,
    pub hang_up: Arc<HangUp>,
    /// The remembered state of its driver. `None`: nothing yet.
    pub key: Option<Key>,
    /// It may have state that no other driver may use.
    pub is_personal: bool,
    /// Requests that want no answer are perhaps still being worked on.
    pub is_unsettled: bool,
}

#[derive(Debug)]
struct Resting {
    session: Session,
    since: Instant,
}

#[derive(Default, Debug)]
struct State {
    /// The one that has rested longest first.
    resting: VecDeque<Resting>,
    closed: bool,
    /// The last logged transport of sessions.
    told: String,
}

/// See the module's head.
pub struct Pool {
    uri: Uri,
    resting_max: usize,
    resting_time: Duration,
    state: Mutex<State>,
    closing: Condvar,
    sweeper: Mutex<Option<JoinHandle<()>>>,
}

impl Pool {
    /// A pool without sessions.
    pub fn start(options: &ProxyOptions) -> io::Result<Arc<Pool>> {
        let pool = Arc::new(Pool {
            uri: Uri { introduces: false, ..options.upstream.clone() },
            resting_max: options.resting_max,
            resting_time: options.resting_time,
            state: Mutex::default(),
            closing: Condvar::new(),
            sweeper: Mutex::default(),
        });
        let swept = Arc::clone(&pool);
        let sweeper =
            std::thread::Builder::new().name("pool".into()).spawn(move || swept.sweep())?;
        *pool.sweeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(sweeper);
        Ok(pool)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the first session, to log the transport.
    pub fn look(&self) {
        match self.open() {
            Ok(session) => self.rest(session),
            Err(error) => {
                let attr = Attr::new().str("error", error.to_string());
                let message = "Cannot reach the server; each new driver connection tries again";
                log::warning("NETWORK", 6_300_101, "proxy", message, attr);
            }
        }
    }

    /// A new session.
    pub fn open(&self) -> Result<Session, ClientError> {
        let opening = Uri { socket_timeout: self.handshake_limit(), ..self.uri.clone() };
        let mut connection = Connection::open(&opening)?;
        connection.set_timeout(self.uri.socket_timeout)?;
        self.tell(&connection);
        let hang_up = Arc::new(connection.hang_up()?);
        Ok(Session { connection, hang_up, key: None, is_personal: false, is_unsettled: false })
    }

    /// Logs which way sessions take, if that is news.
    fn tell(&self, connection: &Connection) {
        let way = connection.transport().name();
        let why = connection.fallback().unwrap_or_default();
        let news = format!("{way} {why}");
        let before = std::mem::replace(&mut self.state().told, news.clone());
        if before == news {
            return;
        }
        let mut attr = Attr::new().str("transport", way);
        if !why.is_empty() {
            attr = attr.str("fallback", why);
        }
        log::info("NETWORK", 6_300_102, "proxy", "Sessions with the server", attr);
    }

    /// Maximum time of a server for a session's first reply.
    fn handshake_limit(&self) -> Option<Duration> {
        let limit = self.uri.socket_timeout.unwrap_or(self.uri.connect_timeout);
        Some(limit).filter(|limit| !limit.is_zero())
    }

    /// The session has its first reply: from now on the URI's timeout applies.
    pub fn begun(&self, session: &mut Session) -> Result<(), ClientError> {
        session.connection.set_timeout(self.uri.socket_timeout)
    }

    /// An idle session with this key. Dead sessions are dropped.
    pub fn take(&self, key: Option<&Key>) -> Option<Session> {
        loop {
            // One at a time: the end of one that has died may take a while, and nobody else waits for it.
            let mut resting = {
                let mut state = self.state();
                let fits = |resting: &Resting| resting.session.key.as_ref() == key;
                let at = state.resting.iter().rposition(fits)?;
                state.resting.remove(at)?
            };
            let connection = &mut resting.session.connection;
            if connection.is_quiet() && connection.set_timeout(self.handshake_limit()).is_ok() {
                return Some(resting.session);
            }
        }
    }

    /// Returns the session of a disconnected driver, without an outstanding reply.
    pub fn give_back(&self, mut session: Session) {
        if session.is_unsettled
            && let Err(error) = settle(&mut session)
        {
            let attr = Attr::new().str("error", error.to_string());
            let message = "Session failed after a request without a reply; the outcome of the request is unknown";
            log::warning("NETWORK", 6_300_109, "proxy", message, attr);
            return;
        }
        if !session.is_personal && session.connection.set_timeout(self.uri.socket_timeout).is_ok() {
            self.rest(session);
        }
    }

    fn rest(&self, mut session: Session) {
        session.connection.trim();
        if !session.connection.is_quiet() {
            return;
        }
        let mut surplus = Vec::new();
        let mut state = self.state();
        if state.closed {
            drop(state);
            return;
        }
        state.resting.push_back(Resting { session, since: Instant::now() });
        while state.resting.len() > self.resting_max {
            surplus.extend(state.resting.pop_front());
        }
        // Their end may take a while.
        drop(state);
        drop(surplus);
    }

    /// Ends those that have rested too long, and those that have died.
    fn sweep(&self) {
        let each = self.resting_time.min(SWEEP_EACH);
        let mut state = self.state();
        while !state.closed {
            let waited = self.closing.wait_timeout(state, each);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            let (kept, ended) =
                std::mem::take(&mut state.resting).into_iter().partition(|resting| {
                    resting.since.elapsed() < self.resting_time
                        && resting.session.connection.is_alive()
                });
            state.resting = kept;
            // Their end may take a while.
            drop(state);
            drop::<VecDeque<Resting>>(ended);
            state = self.state();
        }
        let rest = std::mem::take(&mut state.resting);
        drop(state);
        drop(rest);
    }

    /// Ends all that rest, and takes none back from now on.
    pub fn close(&self) {
        self.state().closed = true;
        self.closing.notify_all();
        let sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sweeper) = sweeper {
            // A panic there has been reported by the thread itself.
            let _ = sweeper.join();
        }
    }
}

/// Waits until the server has completed requests without replies: it replies in order.
fn settle(session: &mut Session) -> Result<(), ClientError> {
    session.connection.set_timeout(Some(SETTLE_TIME))?;
    session.connection.command("admin", &doc! { "ping" => 1 })?;
    session.is_unsettled = false;
    Ok(())
}
