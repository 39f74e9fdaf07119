//! The socket that every session begins on.

use crate::uri::{Host, Uri};
use crate::{ClientError, Result};
use kauri_transport::shared_memory::sys;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to the server. To one on this host over its Unix domain socket, if `local` wants that and
    /// it is where servers have it, of our own user.
    pub fn connect(uri: &Uri, local: bool) -> Result<Stream> {
        let stream = match &uri.host {
            Host::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Host::Tcp(name, port) => {
                let addresses: Vec<_> = (name.as_str(), *port).to_socket_addrs()?.collect();
                let here = addresses.iter().all(|address| is_loopback(address.ip()));
                let beside = (local && here).then(|| beside(*port)).flatten();
                match beside {
                    Some(stream) => Stream::Unix(stream),
                    None => Stream::Tcp(connect_tcp(&addresses, uri.connect_timeout)?),
                }
            }
        };
        stream.set_timeout(uri.socket_timeout)?;
        Ok(stream)
    }

    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Receives into the spare capacity of `buffer`, and descriptors that come beside it.
    pub fn receive(
        &mut self,
        buffer: &mut Vec<u8>,
        beside: &mut Vec<OwnedFd>,
    ) -> io::Result<usize> {
        let mut piece = [0; 16 * 1024];
        let received = match self {
            Stream::Tcp(stream) => stream.read(&mut piece)?,
            Stream::Unix(stream) => {
                sys::receive_with_descriptors(stream.as_fd(), &mut piece, beside)?
            }
        };
        buffer.extend_from_slice(piece.get(..received).unwrap_or_default());
        Ok(received)
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.is_loopback()
}

/// The Unix domain socket of the server with this port on this host, if our own user serves it.
fn beside(port: u16) -> Option<UnixStream> {
    let path = PathBuf::from(format!("/tmp/mongodb-{port}.sock"));
    let stream = UnixStream::connect(path).ok()?;
    let user = sys::peer_user(stream.as_fd()).ok()?;
    (user == sys::own_user()).then_some(stream)
}

fn connect_tcp(addresses: &[std::net::SocketAddr], timeout: Duration) -> Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(ClientError::Io(last))
}
