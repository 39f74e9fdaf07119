//! A local proxy: accepts drivers over TCP or a Unix domain socket, and forwards them to one server, or to the primary
//! of a replica set, over the fastest transport that both sides support (docs/design/proxy.md).
//!
//! Whole messages are forwarded unchanged. Only the handshake is parsed: so that a driver gets the session that it
//! expects, and so that a driver of a replica set stays on the proxy.
//!
//! Invariants:
//! - A driver's connection has at most one upstream session, with at most one unanswered request. So the order is
//!   the server's own, and memory is one request and one reply, each with a copy that is on its way. An idle driver
//!   owns no buffer.
//! - A session is reused for another driver only if no effect of the first driver is visible in it.
//! - No action of a driver affects other drivers: nothing here waits but as a future.
//!
//! | module | holds |
//! |---|---|
//! | `service` | drivers' connections as sessions of the transport |
//! | `relay` | a driver's connection, request by request, and its move to another server of a set |
//! | `request` | the parsed part of a request |
//! | `hello` | handshakes: fitting sessions, rewritten replies |
//! | `members` | the servers of a set, one of which is followed; what drivers see of it |
//! | `pool` | idle sessions |
//!
//! Position: above `client` and `transport`. Must not know: the meaning of commands, except those of the handshake.

mod hello;
mod members;
mod pool;
mod relay;
mod request;
mod service;

use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result};
use kauri_client::Uri;
use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::unix::{UnixOptions, UnixTransport};
use kauri_transport::{
    ExecutorOptions, ServiceEntryPoint, ServiceExecutor, SessionManager, TransportLayer,
};
use members::Members;
use pool::Pool;
use relay::Common;
use service::Service;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Time for sessions to send what waits when the proxy stops, if nothing is left of its grace.
const CLOSE_TIME_MIN: Duration = Duration::from_secs(2);

/// Options of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Addresses to listen on.
    pub bind_ips: Vec<String>,
    /// The port; 0 for any that is free.
    pub port: u16,
    /// Whether IPv6 addresses count.
    pub ipv6: bool,
    /// The directory of the Unix domain socket `mongodb-<port>.sock`, and its permissions; `None`: no socket.
    pub unix: Option<(PathBuf, u32)>,
    /// Worker threads; 0 for one per core.
    pub workers: usize,
    /// Most drivers' connections at a time.
    pub connections_max: usize,
    /// The server, or the set whose primary is followed.
    pub upstream: Uri,
    /// Most sessions that rest.
    pub resting_max: usize,
    /// Maximum idle time of a session.
    pub resting_time: Duration,
}

/// A running proxy.
pub struct Proxy {
    executor: Arc<ServiceExecutor>,
    manager: Arc<SessionManager>,
    service: Arc<Service>,
    transports: Vec<Box<dyn TransportLayer>>,
    addresses: Vec<String>,
}

impl Proxy {
    /// Listens, determines the server's transport, and serves drivers from now on. An unreachable server is not an
    /// error: it may start later.
    pub fn start(options: &ProxyOptions) -> Result<Proxy> {
        let mut transports = listen(options)?;
        let addresses: Vec<_> =
            transports.iter().flat_map(|transport| transport.local_addresses()).collect();
        let executor = ServiceExecutor::start(&ExecutorOptions {
            workers: options.workers,
            spin_us: options.upstream.spin.as_micros().try_into().unwrap_or(u64::MAX),
            ..ExecutorOptions::default()
        })?;
        let pool = Pool::new(options);
        look(&executor, &pool)?;
        let service = Arc::new(Service(Common {
            pool,
            manager: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
        }));
        let entry_point = Arc::clone(&service) as Arc<dyn ServiceEntryPoint>;
        let manager =
            SessionManager::new(Arc::clone(&executor), entry_point, options.connections_max);
        service.0.manager.get_or_init(|| Arc::downgrade(&manager));
        for transport in &mut transports {
            transport.start(&manager)?;
        }
        let attr = Attr::new().str("addresses", addresses.join(","));
        log::info("NETWORK", 23016, "listener", "Waiting for connections", attr);
        Ok(Proxy { executor, manager, service, transports, addresses })
    }

    /// The addresses that it listens on.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Accepts no more, has requests that are on their way answered for so long, and ends all.
    pub fn stop(mut self, grace: Duration) {
        let until = Instant::now() + grace;
        self.transports.iter_mut().for_each(|transport| transport.shutdown());
        // Before the drivers' sessions look.
        self.service.0.is_stopping.store(true, Ordering::Relaxed);
        self.manager.shutdown(grace);
        let left = until.saturating_duration_since(Instant::now());
        self.service.0.pool.close(left.max(CLOSE_TIME_MIN));
        self.executor.shutdown();
    }
}

/// The listening sockets: one port.
fn listen(options: &ProxyOptions) -> Result<Vec<Box<dyn TransportLayer>>> {
    let mut tcp = TcpTransport::new(TcpOptions {
        bind_ips: options.bind_ips.clone(),
        port: options.port,
        ipv6: options.ipv6,
    });
    tcp.setup()?;
    let port = tcp.socket_addresses().first().map_or(options.port, |address| address.port());
    let mut transports: Vec<Box<dyn TransportLayer>> = vec![Box::new(tcp)];
    if let Some((path_prefix, permissions)) = options.unix.clone() {
        let mut unix = UnixTransport::new(UnixOptions { path_prefix, port, permissions });
        unix.setup()?;
        transports.push(Box::new(unix));
    }
    Ok(transports)
}

/// Opens the first session, and has idle ones looked after.
fn look(executor: &Arc<ServiceExecutor>, pool: &Arc<Pool>) -> Result<()> {
    let Some(worker) = executor.workers().first() else {
        return Err(Error::new(ErrorCode::InternalError, "the proxy has no worker"));
    };
    if let Some(members) = &pool.members {
        worker.spawn(Members::follow(Arc::downgrade(members), worker.clone()));
    }
    let (pool, home) = (Arc::clone(pool), worker.clone());
    let (looked, has_looked) = mpsc::channel();
    worker.spawn(async move {
        Arc::clone(&pool).look(home.clone()).await;
        let _ = looked.send(());
        Pool::sweep(Arc::downgrade(&pool), home).await;
    });
    // It fails if the task has panicked, which is logged.
    let _ = has_looked.recv();
    Ok(())
}
