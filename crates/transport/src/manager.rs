//! The SessionManager: all sessions of all transports. It admits sessions up to the connection limit, assigns each
//! to a worker, counts them, and ends them at shutdown.

use crate::contract::{ServiceEntryPoint, Session, SessionInfo};
use crate::establishment::{EstablishmentLimiter, Full};
use crate::executor::ServiceExecutor;
use crate::executor::local::{Local, LocalFuture};
use crate::liveness::Liveness;
use crate::rdma::Addresses;
use crate::shared_memory::sys::own_user;
use crate::state_machine::ServiceStateMachine;
use crate::stats::ServiceStats;
use crate::upgrade::{RdmaService, UpgradePoint};
use kauri_base::log::{self, Attr};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for commands to notice their cancellation before they are dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// The origin of a connection.
pub(crate) struct Origin {
    pub remote: String,
    pub local: String,
    pub transport: &'static str,
    /// The addresses of a TCP connection.
    pub addresses: Option<Addresses>,
    /// The user at the other end of a Unix domain socket.
    pub peer_user: Option<u32>,
}

impl Origin {
    /// Why this session cannot have shared memory, if it can't.
    fn refusal(&self, allowed: bool) -> Option<&'static str> {
        if !allowed {
            return Some("shared memory is switched off (--sharedMemory)");
        }
        match self.peer_user {
            None => Some("shared memory needs a Unix domain socket"),
            Some(user) if user != own_user() => {
                Some("shared memory needs a client of the server's own user")
            }
            Some(_) => None,
        }
    }
}

/// Sessions by `connectionId`, each with the means to end it.
type Sessions = BTreeMap<u64, Arc<Liveness>>;

/// All sessions of a server.
pub struct SessionManager {
    executor: Arc<ServiceExecutor>,
    entry_point: Arc<dyn ServiceEntryPoint>,
    stats: Arc<ServiceStats>,
    next_id: AtomicU64,
    closed: AtomicBool,
    shared_memory: AtomicBool,
    rdma: Mutex<Arc<RdmaService>>,
    sessions: Mutex<Sessions>,
    session_ended: Condvar,
}

impl SessionManager {
    /// A manager that lets `connections_max` sessions of this service be (`maxIncomingConnections`).
    pub fn new(
        executor: Arc<ServiceExecutor>,
        entry_point: Arc<dyn ServiceEntryPoint>,
        connections_max: usize,
    ) -> Arc<Self> {
        SessionManager::with_limiter(executor, entry_point, connections_max, Arc::default())
    }

    /// The same, which establishes connections no faster than this limiter says.
    pub fn with_limiter(
        executor: Arc<ServiceExecutor>,
        entry_point: Arc<dyn ServiceEntryPoint>,
        connections_max: usize,
        limiter: Arc<EstablishmentLimiter>,
    ) -> Arc<Self> {
        let stats = Arc::new(ServiceStats::new(executor.workers(), connections_max, limiter));
        Arc::new(SessionManager {
            executor,
            entry_point,
            stats,
            next_id: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            shared_memory: AtomicBool::new(true),
            rdma: Mutex::default(),
            sessions: Mutex::default(),
            session_ended: Condvar::new(),
        })
    }

    /// The service behind the sessions.
    pub fn entry_point(&self) -> &Arc<dyn ServiceEntryPoint> {
        &self.entry_point
    }

    /// The workers that the sessions live on.
    pub fn executor(&self) -> &Arc<ServiceExecutor> {
        &self.executor
    }

    /// Counters and stage histograms.
    pub fn stats(&self) -> &Arc<ServiceStats> {
        &self.stats
    }

    /// Changes the connection limit; sessions that there are stay.
    pub fn set_connections_max(&self, connections_max: usize) {
        self.stats.connections_max.store(connections_max, Ordering::Relaxed);
    }

    /// Whether sessions that come from now on may change over to shared memory.
    pub fn allow_shared_memory(&self, allowed: bool) {
        self.shared_memory.store(allowed, Ordering::Relaxed);
    }

    /// Sets the RDMA service for later sessions.
    pub fn serve_rdma(&self, service: RdmaService) {
        *self.rdma.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(service);
    }

    /// That service.
    pub fn rdma(&self) -> Arc<RdmaService> {
        Arc::clone(&self.rdma.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn upgrade_point(&self, origin: &Origin) -> UpgradePoint {
        let rdma = self.rdma.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = origin.refusal(self.shared_memory.load(Ordering::Relaxed));
        let stats = Arc::clone(&self.stats.upgrades);
        UpgradePoint::new(refusal, Arc::clone(&rdma), origin.addresses, stats)
    }

    /// Ends one session: its command stops at its next check. False if the id is unknown.
    pub fn end_session(&self, connection_id: u64) -> bool {
        let liveness = self.lock().get(&connection_id).cloned();
        liveness.inspect(|liveness| liveness.cancel()).is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection and starts its session, made by `open` on the worker that it gets.
    /// False if it was refused; dropping `open` then closes the connection.
    pub(crate) fn accept(
        self: &Arc<Self>,
        origin: Origin,
        open: impl FnOnce(&Rc<Local>, Arc<SessionInfo>, Arc<Liveness>) -> io::Result<Box<dyn Session>>
        + Send
        + 'static,
    ) -> bool {
        let Some(worker) = self.executor.least_loaded().cloned() else { return false };
        let liveness = Arc::new(Liveness::default());
        let (info, queued) = {
            let mut sessions = self.lock();
            if self.closed.load(Ordering::Acquire) {
                return false;
            }
            if sessions.len() >= self.stats.connections_max.load(Ordering::Relaxed) {
                let count = sessions.len();
                drop(sessions);
                self.refuse(&origin, count);
                return false;
            }
            let queued = match self.stats.establishment.admit() {
                Ok(queued) => queued,
                Err(Full) => return false,
            };
            let upgrade = self.upgrade_point(&origin);
            let info = Arc::new(SessionInfo {
                id: self.next_id.fetch_add(1, Ordering::Relaxed),
                remote: origin.remote,
                local: origin.local,
                transport: origin.transport,
                worker: AtomicUsize::new(worker.id()),
                upgrade,
            });
            sessions.insert(info.id, Arc::clone(&liveness));
            self.stats.connections.store(sessions.len(), Ordering::Relaxed);
            (info, queued)
        };
        if queued.is_none() {
            self.stats.created.fetch_add(1, Ordering::Relaxed);
        }
        worker.shared.sessions.fetch_add(1, Ordering::Relaxed);
        self.log_change(22_943, "listener", "Connection accepted", &info);
        let manager = Arc::clone(self);
        let home = worker.clone();
        let registered = Registered { manager, info: Some(info) };
        worker.start_with(Box::new(move |local| {
            let mut registered = registered;
            let info = Arc::clone(registered.info.as_ref()?);
            match open(local, info, liveness) {
                Ok(session) => {
                    registered.info = None;
                    let manager = Arc::clone(&registered.manager);
                    let machine = ServiceStateMachine::new(session, manager, home);
                    let machine = machine.queued(queued);
                    Some(Box::pin(machine.run()) as LocalFuture)
                }
                Err(error) => {
                    let attr = Attr::new().str("error", error.to_string());
                    log::warning(
                        "NETWORK",
                        23_023,
                        "listener",
                        "Error accepting new connection",
                        attr,
                    );
                    None
                }
            }
        }));
        true
    }

    fn refuse(&self, origin: &Origin, count: usize) {
        self.stats.rejected.fetch_add(1, Ordering::Relaxed);
        let attr = Attr::new().str("remote", &origin.remote).num("connectionCount", count);
        let msg = "Connection refused because there are too many open connections";
        log::info("NETWORK", 22_942, "listener", msg, attr);
    }

    fn log_change(&self, id: u32, ctx: &str, msg: &str, info: &SessionInfo) {
        if log::is_quiet() {
            return;
        }
        let attr = Attr::new()
            .str("remote", &info.remote)
            .num("connectionId", info.id)
            .num("connectionCount", self.stats.connections.load(Ordering::Relaxed));
        log::info("NETWORK", id, ctx, msg, attr);
    }

    /// Forgets a session that has ended.
    pub(crate) fn session_ended(&self, info: &SessionInfo) {
        {
            let mut sessions = self.lock();
            sessions.remove(&info.id);
            self.stats.connections.store(sessions.len(), Ordering::Relaxed);
        }
        if let Some(worker) = self.executor.worker(info.worker.load(Ordering::Relaxed)) {
            worker.shared.sessions.fetch_sub(1, Ordering::Relaxed);
        }
        self.log_change(22_944, &format!("conn{}", info.id), "Connection ended", info);
        self.session_ended.notify_all();
    }

    /// Ends all sessions; blocks until they have ended. Idle ones end at once. Requests in progress may finish
    /// within `grace`; then the service must end them; a second later they are cancelled, and another second later
    /// dropped. Afterwards no session is accepted. Not to be called from a worker.
    pub fn shutdown(&self, grace: Duration) {
        self.closed.store(true, Ordering::Release);
        let steps: [(fn(&Liveness), Duration); 4] = [
            (Liveness::drain, grace),
            (|_| {}, CANCEL_GRACE),
            (Liveness::cancel, CANCEL_GRACE),
            (Liveness::drop_command, CANCEL_GRACE),
        ];
        for (number, (step, patience)) in steps.into_iter().enumerate() {
            if number > 0 {
                self.entry_point.end_operations();
            }
            let sessions: Vec<_> = self.lock().values().cloned().collect();
            sessions.iter().for_each(|liveness| step(liveness));
            if self.wait_until_ended(patience) {
                return;
            }
        }
    }

    fn wait_until_ended(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut sessions = self.lock();
        while !sessions.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            sessions = self
                .session_ended
                .wait_timeout(sessions, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }
}

/// A session that is registered but not yet running; unregistered again if it never runs.
struct Registered {
    manager: Arc<SessionManager>,
    info: Option<Arc<SessionInfo>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(info) = self.info.take() {
            self.manager.session_ended(&info);
        }
    }
}
