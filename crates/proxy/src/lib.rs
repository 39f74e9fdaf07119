//! A local proxy: drivers come in over TCP or a Unix domain socket, and go on to one server over the fastest
//! transport that it and we have (docs/design/proxy.md).
//!
//! Whole messages pass as they are. Only the handshake is looked into: so that a driver finds the session that
//! it expects, and so that one of a replica set stays here.
//!
//! Invariants:
//! - A driver's connection has a thread, and at most one upstream session; that has at most one request on its way that
//!   wants an answer. So the order of things is the server's own, and memory is one request and one reply.
//! - A session is given to another driver only if nothing that the first one did can be told from it.
//! - Whatever a driver does costs no other driver anything.
//!
//! | module | holds |
//! |---|---|
//! | `front` | the thread that accepts, and that watches for drivers' ends |
//! | `lifeline` | how a driver's connection is ended from outside |
//! | `driver` | a driver's socket: messages in, bytes out |
//! | `relay` | a driver's connection, request by request |
//! | `request` | what has to be known of a request |
//! | `hello` | handshakes: which session fits, and what is changed |
//! | `pool` | sessions that rest until a driver like the last one comes |
//!
//! Where it sits: above `client`. Must not know: what commands mean, beyond those of the handshake.

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

/// What a proxy is to do.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Addresses to listen on.
    pub bind_ips: Vec<String>,
    /// The port; 0 for any that is free.
    pub port: u16,
    /// Whether IPv6 addresses count.
    pub ipv6: bool,
    /// The directory of the Unix domain socket `mongodb-<port>.sock`, and its permissions; without it there is none.
    pub unix: Option<(PathBuf, u32)>,
    /// Most drivers' connections at a time.
    pub connections_max: usize,
    /// The server.
    pub upstream: Uri,
    /// Most sessions that rest.
    pub resting_max: usize,
    /// How long a session may rest.
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
    /// Listens, looks which transport the server gives, and serves drivers from now on. That the server can't be reached
    /// is no error: it may come.
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

    /// Where it listens.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Accepts no more, has requests that are on their way answered for so long, and ends all.
    pub fn stop(self, grace: Duration) {
        self.front.stop(grace);
        self.pool.close();
    }
}
