//! The TCP transport.

use crate::contract::TransportLayer;
use crate::manager::SessionManager;
use crate::stream::listener::{Acceptor, Listener};
use crate::sys;
use kauri_base::{Error, ErrorCode, Result};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

/// The addresses of a TCP transport.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// `net.bindIp`: addresses or host names; `*` for all addresses.
    pub bind_ips: Vec<String>,
    /// `net.port`; 0 for any that is free, the same for all addresses.
    pub port: u16,
    /// `net.ipv6`.
    pub ipv6: bool,
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions { bind_ips: vec!["localhost".to_owned()], port: 27017, ipv6: false }
    }
}

/// Clients over TCP.
pub struct TcpTransport {
    options: TcpOptions,
    bound: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    listener: Option<Listener>,
}

impl TcpTransport {
    /// A transport that does not listen yet.
    pub fn new(options: TcpOptions) -> Self {
        TcpTransport { options, bound: Vec::new(), addresses: Vec::new(), listener: None }
    }

    /// The addresses that it listens on, after `setup`.
    pub fn socket_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The addresses of the option list. Addresses of a name may be missing on this machine; literal addresses may
    /// not.
    fn wanted(&self) -> Result<Vec<(IpAddr, bool)>> {
        let mut wanted = Vec::new();
        let mut want = |ip: IpAddr, required: bool| {
            if !wanted.iter().any(|(known, _)| *known == ip) {
                wanted.push((ip, required));
            }
        };
        for name in &self.options.bind_ips {
            match (name.as_str(), name.parse::<IpAddr>()) {
                ("*", _) => {
                    want(Ipv4Addr::UNSPECIFIED.into(), true);
                    if self.options.ipv6 {
                        want(Ipv6Addr::UNSPECIFIED.into(), false);
                    }
                }
                ("localhost", _) => {
                    want(Ipv4Addr::LOCALHOST.into(), true);
                    if self.options.ipv6 {
                        want(Ipv6Addr::LOCALHOST.into(), false);
                    }
                }
                (_, Ok(ip)) if ip.is_ipv6() && !self.options.ipv6 => {
                    return Err(Error::new(
                        ErrorCode::BadValue,
                        format!("cannot listen on {ip}: IPv6 is not enabled (net.ipv6)"),
                    ));
                }
                (_, Ok(ip)) => want(ip, true),
                (_, Err(_)) => self.resolve(name)?.into_iter().for_each(|ip| want(ip, false)),
            }
        }
        Ok(wanted)
    }

    fn resolve(&self, name: &str) -> Result<Vec<IpAddr>> {
        let not_found = |why: String| {
            Error::new(
                ErrorCode::HostNotFound,
                format!("cannot resolve {name} to listen on: {why}"),
            )
        };
        let found = (name, 0).to_socket_addrs().map_err(|e| not_found(e.to_string()))?;
        let usable: Vec<_> =
            found.map(|a| a.ip()).filter(|ip| ip.is_ipv4() || self.options.ipv6).collect();
        if usable.is_empty() {
            return Err(not_found("no address of an enabled family".to_owned()));
        }
        Ok(usable)
    }

    fn bind(&mut self) -> Result<()> {
        let mut port = self.options.port;
        for (ip, required) in self.wanted()? {
            let address = SocketAddr::new(ip, port);
            let bound = sys::listen_tcp(address).and_then(|fd| {
                let listener = TcpListener::from(fd);
                let address = listener.local_addr()?;
                Ok((listener, address))
            });
            match bound {
                Ok((listener, address)) => {
                    port = address.port();
                    self.bound.push(listener);
                    self.addresses.push(address);
                }
                Err(error) if !required && is_absent(&error) => {}
                Err(error) => return Err(listen_error(&address.to_string(), &error)),
            }
        }
        if self.bound.is_empty() {
            return Err(Error::new(ErrorCode::BadValue, "no address to listen on"));
        }
        Ok(())
    }
}

/// The machine has no such address, or not even the family.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT))
}

pub(crate) fn listen_error(address: &str, error: &io::Error) -> Error {
    Error::new(
        ErrorCode::SocketException,
        format!("Failed to set up listener: cannot listen on {address}: {error}"),
    )
}

impl TransportLayer for TcpTransport {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn setup(&mut self) -> Result<()> {
        self.shutdown();
        let bound = self.bind();
        if bound.is_err() {
            self.shutdown();
        }
        bound
    }

    fn start(&mut self, manager: &Arc<SessionManager>) -> Result<()> {
        let acceptors = std::mem::take(&mut self.bound).into_iter().map(Acceptor::Tcp).collect();
        let listener = Listener::start(acceptors, Arc::clone(manager));
        self.listener = Some(listener.map_err(|e| listen_error("tcp", &e))?);
        Ok(())
    }

    fn local_addresses(&self) -> Vec<String> {
        self.addresses.iter().map(SocketAddr::to_string).collect()
    }

    fn shutdown(&mut self) {
        self.listener = None;
        self.bound.clear();
        self.addresses.clear();
    }
}
