//! Upstream sessions, and the pool of idle ones, which wait for a driver with the same handshake.
//!
//! Invariants:
//! - An idle session has no bytes in flight in either direction.
//! - The number and the idle time of idle sessions are limited; the session that is idle longest is closed first.
//! - A driver gets a session of its own worker, unless only another worker has one that fits.

use crate::ProxyOptions;
use crate::hello::Key;
use crate::members::Members;
use kauri_base::log::{self, Attr};
use kauri_bson::doc;
use kauri_client::ClientError;
use kauri_client::outgoing::{Opened, lost};
use kauri_client::uri::{Host, Uri};
use kauri_transport::outgoing::{Outgoing, OutgoingOptions};
use kauri_transport::{SessionManager, WorkerHandle, monotonic_ns};
use kauri_wire::MsgWriter;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Maximum time for the first session before drivers are accepted, if the connection string sets none.
const LOOK_TIME: Duration = Duration::from_secs(10);
/// Interval of checks of idle sessions.
const SWEEP_EACH: Duration = Duration::from_secs(5);
/// Maximum time for writes without replies after their driver has disconnected.
const SETTLE_TIME: Duration = Duration::from_secs(60);
/// Bytes of requests without replies that a session takes ahead, and of replies that a driver is behind.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// The driver of a session: it is disconnected when the session ends.
type Attached = Option<(Weak<SessionManager>, u64)>;

/// A session with the server, and what a driver has made of it. Dropping it closes it, after what waits to be sent.
#[derive(Debug)]
pub struct Session {
    pub outgoing: Outgoing,
    /// The server, if it is a member of the set that the proxy stands before.
    pub host: Option<Host>,
    driver: Arc<Mutex<Attached>>,
    is_attached: bool,
    /// The remembered state of its driver. `None`: nothing yet.
    pub key: Option<Key>,
    /// It may have state that no other driver may use.
    pub is_personal: bool,
    /// Requests that want no answer are perhaps still being worked on.
    pub is_unsettled: bool,
    /// It was idle, and has not replied to its new driver yet.
    pub is_resumed: bool,
}

impl Session {
    /// From now on the end of the session disconnects this driver; at once if it has ended.
    pub fn attach(&mut self, manager: &Weak<SessionManager>, driver: u64) {
        if !std::mem::replace(&mut self.is_attached, true) {
            *lock(&self.driver) = Some((Weak::clone(manager), driver));
            if self.outgoing.ended().is_some() {
                disconnect(&self.driver);
            }
        }
    }

    fn detach(&mut self) {
        self.is_attached = false;
        *lock(&self.driver) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn disconnect(driver: &Mutex<Attached>) {
    let attached = lock(driver).take();
    if let Some((manager, driver)) = attached
        && let Some(manager) = manager.upgrade()
    {
        manager.end_session(driver);
    }
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
    /// Sessions that have not ended, whoever has them.
    open: usize,
    closed: bool,
    /// The last logged transport of sessions.
    told: String,
}

/// See the module's head.
pub struct Pool {
    uri: Uri,
    /// The servers of the set; `None` before one server.
    pub members: Option<Arc<Members>>,
    options: OutgoingOptions,
    resting_max: usize,
    resting_time: Duration,
    state: Mutex<State>,
    one_ended: Condvar,
}

impl Pool {
    /// A pool without sessions.
    pub fn new(options: &ProxyOptions) -> Arc<Pool> {
        let mut uri = Uri { introduces: false, ..options.upstream.clone() };
        if uri.connect_timeout.is_zero() {
            uri.connect_timeout = uri.socket_timeout.unwrap_or_default();
        }
        Arc::new(Pool {
            members: Members::new(&uri),
            uri,
            options: OutgoingOptions {
                unsent_bytes_max: AHEAD_BYTES_MAX,
                untaken_bytes_max: AHEAD_BYTES_MAX,
                in_order: true,
                ..OutgoingOptions::default()
            },
            resting_max: options.resting_max,
            resting_time: options.resting_time,
            state: Mutex::default(),
            one_ended: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Opens the first session, to log the transport.
    pub async fn look(self: Arc<Self>, worker: WorkerHandle) {
        let limit = Some(self.uri.connect_timeout).filter(|limit| !limit.is_zero());
        let mut limit = worker.sleep(limit.unwrap_or(LOOK_TIME));
        let mut opening = std::pin::pin!(self.open(&worker));
        let opened = poll_fn(|cx| match opening.as_mut().poll(cx) {
            Poll::Pending => Pin::new(&mut limit).poll(cx).map(|()| {
                let why = "no answer in time".to_owned();
                Err(ClientError::Selection(why))
            }),
            opened => opened,
        });
        match opened.await {
            Ok(session) => self.rest(session),
            Err(error) => {
                let attr = Attr::new().str("error", error.to_string());
                let message = "Cannot reach the server; each new driver connection tries again";
                log::warning("NETWORK", 6_300_101, "proxy", message, attr);
            }
        }
    }

    /// A new session on this worker.
    pub async fn open(self: &Arc<Self>, worker: &WorkerHandle) -> Result<Session, ClientError> {
        let Some(members) = &self.members else {
            return self.open_to(&self.uri, None, worker).await;
        };
        loop {
            let host = members.followed(worker).await?;
            let uri = self.uri.to(host.clone());
            match self.open_to(&uri, Some(&host), worker).await {
                Ok(session) if members.follows(Some(&host)) => return Ok(session),
                // Another one is followed by now.
                Ok(_) => {}
                Err(error @ ClientError::Required(_)) => return Err(error),
                Err(error) => members.note_failure(&host, &error),
            }
        }
    }

    /// Whether the session's server is not the one that new sessions go to, or has ended it.
    pub fn is_past(&self, session: &Session) -> bool {
        self.members.as_ref().is_some_and(|members| {
            !members.follows(session.host.as_ref()) || session.outgoing.ended().is_some()
        })
    }

    async fn open_to(
        self: &Arc<Self>,
        uri: &Uri,
        host: Option<&Host>,
        worker: &WorkerHandle,
    ) -> Result<Session, ClientError> {
        let opened = kauri_client::outgoing::open(worker, uri, self.options.clone()).await?;
        if let (Some(members), Some(host)) = (&self.members, host) {
            members.note_hello(host, opened.greeting.as_doc());
        }
        self.tell(&opened);
        let (driver, outgoing) = (Arc::<Mutex<Attached>>::default(), opened.session);
        self.state().open += 1;
        let (pool, attached) = (Arc::clone(self), Arc::clone(&driver));
        outgoing.when_ended(Some(Box::new(move || {
            disconnect(&attached);
            pool.note_ended();
        })));
        Ok(Session {
            outgoing,
            host: host.cloned(),
            driver,
            is_attached: false,
            key: None,
            is_personal: false,
            is_unsettled: false,
            is_resumed: false,
        })
    }

    fn note_ended(&self) {
        self.state().open -= 1;
        self.one_ended.notify_all();
    }

    /// Logs which way sessions take, if that is news.
    fn tell(&self, opened: &Opened) {
        let way = opened.session.transport().unwrap_or("none");
        let why = opened.fallback.as_deref().unwrap_or_default();
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

    /// Maximum time of the server for a reply on this session.
    pub fn reply_limit(&self, session: &Session) -> Option<Duration> {
        let first = Some(self.uri.connect_timeout).filter(|_| session.is_resumed);
        self.uri.socket_timeout.or(first).filter(|limit| !limit.is_zero())
    }

    /// An idle session with this key for a driver on this worker. Dead sessions are dropped.
    pub fn take(&self, key: Option<&Key>, worker: &WorkerHandle) -> Option<Session> {
        loop {
            let mut session = {
                let mut state = self.state();
                let fits = |resting: &Resting| resting.session.key.as_ref() == key;
                let is_here = |resting: &Resting| {
                    resting.session.outgoing.worker().id() == worker.id() && fits(resting)
                };
                let here = state.resting.iter().rposition(is_here);
                let at = here.or_else(|| state.resting.iter().rposition(fits))?;
                state.resting.remove(at)?.session
            };
            if session.outgoing.is_quiet() && !self.is_past(&session) {
                session.is_resumed = true;
                return Some(session);
            }
        }
    }

    /// Returns the session of a disconnected driver, without an outstanding reply.
    pub fn give_back(self: &Arc<Self>, mut session: Session) {
        session.detach();
        if !session.is_unsettled {
            return self.rest(session);
        }
        let (pool, worker) = (Arc::clone(self), session.outgoing.worker().clone());
        worker.spawn(async move {
            if let Err(error) = settled(&session).await {
                let attr = Attr::new().str("error", error.to_string());
                let message = "Session failed after a request without a reply; the outcome of the request is unknown";
                return log::warning("NETWORK", 6_300_109, "proxy", message, attr);
            }
            pool.rest(Session { is_unsettled: false, ..session });
        });
    }

    fn rest(&self, session: Session) {
        if session.is_personal || !session.outgoing.is_quiet() || self.is_past(&session) {
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
        drop(state);
        drop(surplus);
    }

    /// Drops sessions that have rested too long or have died, as long as the pool is in use.
    pub async fn sweep(pool: Weak<Pool>, worker: WorkerHandle) {
        while let Some(pool) = pool.upgrade() {
            let each = pool.resting_time.min(SWEEP_EACH);
            pool.drop_old();
            drop(pool);
            worker.sleep(each).await;
        }
    }

    fn drop_old(&self) {
        let mut state = self.state();
        let (kept, ended) = std::mem::take(&mut state.resting).into_iter().partition(|resting| {
            resting.since.elapsed() < self.resting_time
                && resting.session.outgoing.ended().is_none()
        });
        state.resting = kept;
        drop(state);
        drop::<VecDeque<Resting>>(ended);
    }

    /// Ends all that rest, takes none back from now on, and waits until all have ended, at most for this time.
    pub fn close(&self, patience: Duration) {
        let mut state = self.state();
        state.closed = true;
        let resting = std::mem::take(&mut state.resting);
        drop(state);
        drop(resting);
        let state = self.state();
        let waited = self.one_ended.wait_timeout_while(state, patience, |state| state.open > 0);
        drop(waited);
    }
}

/// Waits until the server has completed requests without replies: it replies in order.
async fn settled(session: &Session) -> Result<(), ClientError> {
    let ping = doc! { "ping" => 1, "$db" => "admin" };
    let mut message = Vec::new();
    let writer = MsgWriter::begin(&mut message, 0, 0, 0);
    message.extend_from_slice(ping.as_bytes());
    writer.finish(&mut message)?;
    let end_ns = monotonic_ns() + SETTLE_TIME.as_nanos() as u64;
    session.outgoing.request(message, Some(end_ns)).await.map_err(lost)?;
    Ok(())
}
