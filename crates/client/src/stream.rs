//! The socket that every session begins on.

use crate::uri::{Host, Uri};
use crate::{ClientError, Result};
use kauri_transport::shared_memory::sys;
use kauri_transport::sys as socket;
use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A connected socket.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    timeout: Option<Duration>,
    /// What was received while sending.
    early: Vec<u8>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

const PIECE_BYTES: usize = 64 << 10;

/// Ends a connection from another thread, whatever it goes through and whatever its own thread waits for: the
/// stream is each transport's sign of life.
#[derive(Debug)]
pub struct HangUp(Socket);

impl HangUp {
    /// Both sides find that the connection has ended.
    pub fn now(&self) {
        // It fails only if it has ended already.
        let _ = match &self.0 {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Stream {
    fn new(socket: Socket, uri: &Uri) -> Result<Stream> {
        let mut stream = Stream { socket, timeout: None, early: Vec::new() };
        stream.set_timeout(uri.socket_timeout)?;
        Ok(stream)
    }

    /// How long to wait from now on.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeout = timeout;
        match &self.socket {
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// How long it waits.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Connects to the server.
    pub fn connect(uri: &Uri) -> Result<Stream> {
        let socket = match &uri.host {
            Host::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            Host::Tcp(name, port) => {
                let addresses: Vec<_> = (name.as_str(), *port).to_socket_addrs()?.collect();
                Socket::Tcp(connect_tcp(&addresses, uri.connect_timeout)?)
            }
        };
        Stream::new(socket, uri)
    }

    /// The Unix domain socket where a server of our own user on this host would have it that listens on the
    /// port which this goes to. Whether it is the same server has to be found out.
    pub fn beside(&self, uri: &Uri) -> Option<Stream> {
        let Socket::Tcp(stream) = &self.socket else { return None };
        let peer = stream.peer_addr().ok().filter(|peer| peer.ip().is_loopback())?;
        let path = PathBuf::from(format!("/tmp/mongodb-{}.sock", peer.port()));
        let stream = UnixStream::connect(path).ok()?;
        let user = sys::peer_user(stream.as_fd()).ok()?;
        let ours = user == sys::own_user();
        ours.then(|| Stream::new(Socket::Unix(stream), uri).ok()).flatten()
    }

    /// The client's own address, over TCP.
    pub fn local_address(&self) -> Option<IpAddr> {
        match &self.socket {
            Socket::Tcp(stream) => stream.local_addr().ok().map(|address| address.ip()),
            Socket::Unix(_) => None,
        }
    }

    /// Whether it is a Unix domain socket.
    pub fn is_unix(&self) -> bool {
        matches!(self.socket, Socket::Unix(_))
    }

    /// Appends what has come to `buffer`, or waits for it, and descriptors that come beside it.
    pub fn receive(
        &mut self,
        buffer: &mut Vec<u8>,
        beside: &mut Vec<OwnedFd>,
    ) -> io::Result<usize> {
        if !self.early.is_empty() {
            let received = self.early.len();
            buffer.append(&mut self.early);
            return Ok(received);
        }
        let start = buffer.len();
        buffer.resize(start + PIECE_BYTES, 0);
        let piece = buffer.get_mut(start..).unwrap_or_default();
        let received = loop {
            let received = match &mut self.socket {
                Socket::Tcp(stream) => stream.read(piece),
                Socket::Unix(stream) => {
                    sys::receive_with_descriptors(stream.as_fd(), piece, beside)
                }
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received,
            }
        };
        buffer.truncate(start + received.as_ref().map_or(0, |received| *received));
        received.map_err(timed_out)
    }

    /// Sends all. What comes meanwhile is kept, so that a server that waits for us goes on.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match socket::send(self.fd(), rest) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.make_way()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until something can be sent or has come, and takes what has come.
    fn make_way(&mut self) -> io::Result<()> {
        let (readable, writable) = sys::wait_either(self.fd(), self.timeout)?;
        if !readable && !writable {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if readable {
            let mut piece = vec![0; PIECE_BYTES];
            match socket::receive_now(self.fd(), &mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.early.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The server hears that nothing more comes.
    pub fn end_sending(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// See [`HangUp`].
    pub fn hang_up(&self) -> io::Result<HangUp> {
        Ok(HangUp(match &self.socket {
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
        }))
    }

    /// Whether nothing has come that was not received, not even the end.
    pub fn is_quiet(&self) -> bool {
        let peeked = socket::peek(self.fd());
        self.early.is_empty() && peeked.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }

    /// Whether the other side has ended it, and all that came before was received.
    pub fn has_ended(&self) -> bool {
        match socket::peek(self.fd()) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A socket that gives up waiting says that it would block.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

fn connect_tcp(addresses: &[std::net::SocketAddr], timeout: Duration) -> Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let began = Instant::now();
    for address in addresses {
        let connected = match timeout.is_zero() {
            true => TcpStream::connect(address),
            false => match timeout.saturating_sub(began.elapsed()) {
                Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
                left => TcpStream::connect_timeout(address, left),
            },
        };
        match connected {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(ClientError::Io(last))
}
