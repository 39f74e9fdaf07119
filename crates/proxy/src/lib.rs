//! A local proxy: accepts drivers over TCP or a Unix domain socket, and forwards them to one server over the
//! fastest transport that both sides support (docs/design/proxy.md).
//!
//! Whole messages are forwarded unchanged. Only the handshake is parsed: so that a driver gets the session that it
//! expects, and so that a driver of a replica set stays on the proxy.
//!
//! Invariants:
//! - A driver's connection has one thread and at most one upstream session, with at most one unanswered request. So
//!   the order is the server's own, and memory is one request and one reply.
//! - A session is reused for another driver only if no effect of the first driver is visible in it.
//! - No action of a driver affects other drivers.
//!
//! | module | holds |
//! |---|---|
//! | `front` | the thread that accepts drivers and detects disconnects |
//! | `lifeline` | ending a driver's connection from outside |
//! | `driver` | a driver's socket: messages in, bytes out |
//! | `relay` | a driver's connection, request by request |
//! | `request` | the parsed part of a request |
//! | `hello` | handshakes: fitting sessions, rewritten replies |
//! | `pool` | idle sessions |
//!
//! Position: above `client`. Must not know: the meaning of commands, except those of the handshake.

mod driver;
mod front;
mod hello;
mod lifeline;
mod pool;
mod relay;
mod request;

use front::Front;
use kauri_base::log::{self, Attr};
use kauri_base::{Error, ErrorCode, Result};
use kauri_client::Uri;
use kauri_transport::TransportLayer;
use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::unix::{UnixOptions, UnixTransport};
use pool::Pool;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    /// Most drivers' connections at a time.
    pub connections_max: usize,
    /// The server.
    pub upstream: Uri,
    /// Most sessions that rest.
    pub resting_max: usize,
    /// Maximum idle time of a session.
    pub resting_time: Duration,
}

/// A running proxy.
pub struct Proxy {
    front: Front,
    pool: Arc<Pool>,
    addresses: Vec<String>,
    _tcp: TcpTransport,
    _unix: Option<UnixTransport>,
}

impl Proxy {
    /// Listens, determines the server's transport, and serves drivers from now on. An unreachable server is not an
    /// error: it may start later.
    pub fn start(options: &ProxyOptions) -> Result<Proxy> {
        let mut tcp = TcpTransport::new(TcpOptions {
            bind_ips: options.bind_ips.clone(),
            port: options.port,
            ipv6: options.ipv6,
        });
        tcp.setup()?;
        let port = tcp.socket_addresses().first().map_or(options.port, |address| address.port());
        let mut addresses = tcp.local_addresses();
        let mut unix = None;
        if let Some((prefix, permissions)) = options.unix.clone() {
            let mut socket =
                UnixTransport::new(UnixOptions { path_prefix: prefix, port, permissions });
            socket.setup()?;
            addresses.extend(socket.local_addresses());
            unix = Some(socket);
        }
        let failed = |error: std::io::Error| {
            Error::new(ErrorCode::InternalError, format!("cannot start the proxy: {error}"))
        };
        let pool = Pool::start(options).map_err(failed)?;
        let unix_listener = unix.as_mut().and_then(UnixTransport::take_listener);
        let unix_path = unix.as_ref().and_then(|unix| unix.local_addresses().pop());
        let acceptors =
            front::acceptors(tcp.take_listeners(), unix_listener.zip(unix_path)).map_err(failed)?;
        pool.look();
        let front =
            Front::start(acceptors, Arc::clone(&pool), options.connections_max).map_err(failed)?;
        let attr = Attr::new().str("addresses", addresses.join(","));
        log::info("NETWORK", 23016, "listener", "Waiting for connections", attr);
        Ok(Proxy { front, pool, addresses, _tcp: tcp, _unix: unix })
    }

    /// The addresses that it listens on.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Accepts no more, has requests that are on their way answered for so long, and ends all.
    pub fn stop(self, grace: Duration) {
        self.front.stop(grace);
        self.pool.close();
    }
}
