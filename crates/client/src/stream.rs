//! The socket that every session begins on.

use crate::deadline::Deadline;
use crate::uri::{Host, Uri};
use crate::{ClientError, Result};
use kauri_transport::shared_memory::sys;
use kauri_transport::sys as socket;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A connected socket.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    /// Maximum silence of the server.
    timeout: Option<Duration>,
    /// When all must be over, however often the server says something.
    end: Deadline,
    /// Bytes received while sending.
    early: Vec<u8>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

const PIECE_BYTES: usize = 64 << 10;
/// Most that is kept of what comes while something is sent: three of the largest messages.
const EARLY_BYTES_MAX: usize = 3 * 48_000_000;
/// The system's number for having no memory, everywhere on Linux.
const ENOMEM: i32 = 12;
/// Maximum wait for another path to the same server whose listener does not accept.
const BESIDE_TIMEOUT: Duration = Duration::from_millis(1);

impl Stream {
    fn new(socket: Socket, uri: &Uri, end: Deadline) -> Result<Stream> {
        let mut stream = Stream { socket, timeout: None, end, early: Vec::new() };
        stream.set_timeout(uri.socket_timeout)?;
        Ok(stream)
    }

    /// Maximum silence of the server from now on.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeout = timeout;
        match &self.socket {
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// When all must be over from now on.
    pub fn set_end(&mut self, end: Deadline) {
        self.end = end;
    }

    /// When all must be over.
    pub fn end(&self) -> Deadline {
        self.end
    }

    /// Until when something that is waited for from now on may come.
    pub fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout).or_earlier(self.end)
    }

    /// Connects to the server.
    pub fn connect(uri: &Uri, end: Deadline) -> Result<Stream> {
        let socket = match &uri.host {
            Host::Unix(path) => Socket::Unix(connect_unix(path, end)?),
            Host::Tcp(name, port) => {
                let addresses: Vec<_> = (name.as_str(), *port).to_socket_addrs()?.collect();
                Socket::Tcp(connect_tcp(&addresses, end)?)
            }
        };
        Stream::new(socket, uri, end)
    }

    /// The Unix domain socket where a server of our own user on this host would have it that listens on the
    /// port which this goes to. Whether it is the same server has to be found out.
    pub fn beside(&self, uri: &Uri, end: Deadline) -> Option<Stream> {
        let Socket::Tcp(stream) = &self.socket else { return None };
        let peer = stream.peer_addr().ok().filter(|peer| peer.ip().is_loopback())?;
        let path = PathBuf::from(format!("/tmp/mongodb-{}.sock", peer.port()));
        let stream = sys::connect_unix(&path, Some(BESIDE_TIMEOUT)).ok()?;
        let user = sys::peer_user(stream.as_fd()).ok()?;
        let ours = user == sys::own_user();
        ours.then(|| Stream::new(Socket::Unix(stream), uri, end).ok()).flatten()
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

    /// Appends received bytes to `buffer`, or waits for some, and for descriptors that come with them.
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
        reserve(buffer, PIECE_BYTES)?;
        let deadline = self.deadline();
        // The socket itself waits as long as the server may be silent, at the cost of one call. It knows nothing
        // of an end, and after a signal it would begin anew.
        let mut knows = self.end == Deadline::NEVER;
        loop {
            if !knows {
                self.wait_readable(deadline)?;
            }
            // Straight into memory that nobody has cleared: that would cost more than the rest of a reply.
            let received = match &self.socket {
                Socket::Tcp(stream) => socket::recv_append_waiting(stream.as_fd(), buffer),
                Socket::Unix(stream) => {
                    sys::receive_with_descriptors(stream.as_fd(), buffer, beside)
                }
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => knows = false,
                received => return received.map_err(timed_out),
            }
        }
    }

    fn wait_readable(&self, deadline: Deadline) -> io::Result<()> {
        while !sys::wait_readable(self.fd(), self.fd(), deadline.left()?)?.0 {}
        Ok(())
    }

    /// Sends all bytes. Bytes that arrive meanwhile are kept, so that a server that waits for this client
    /// continues.
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

    /// Waits until the socket is writable or has bytes, and receives the bytes.
    fn make_way(&mut self) -> io::Result<()> {
        let deadline = self.deadline();
        let readable = loop {
            match sys::wait_either(self.fd(), deadline.left()?)? {
                // The time is over, or a signal has come.
                (false, false) => {}
                (readable, _) => break readable,
            }
        };
        if readable {
            let mut piece = vec![0; PIECE_BYTES];
            match socket::receive_now(self.fd(), &mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    reserve_early(&mut self.early, count)?;
                    self.early.extend_from_slice(piece.get(..count).unwrap_or_default());
                }
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

    /// Frees the memory of bytes received while sending, if all of them were consumed.
    pub fn trim(&mut self) {
        if self.early.is_empty() {
            self.early = Vec::new();
        }
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

/// Makes room for so much more, of what a server may make as much as it likes.
pub fn reserve(buffer: &mut Vec<u8>, more: usize) -> io::Result<()> {
    buffer.try_reserve(more).map_err(|_| io::Error::from_raw_os_error(ENOMEM))
}

/// The same for bytes that arrive during a send. A server that sends without reading ends the connection.
pub fn reserve_early(early: &mut Vec<u8>, more: usize) -> io::Result<()> {
    if early.len() + more > EARLY_BYTES_MAX {
        let why = "the server sends data but does not read the request";
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
    }
    reserve(early, more)
}

/// Converts the error of a socket timeout, which is reported as "would block".
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

fn connect_unix(path: &Path, end: Deadline) -> io::Result<UnixStream> {
    loop {
        match sys::connect_unix(path, end.left()?) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) => {}
            connected => return connected,
        }
    }
}

/// The addresses are tried one after the other, none for so long that no time would be left for the others.
fn connect_tcp(addresses: &[SocketAddr], end: Deadline) -> Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (at, address) in addresses.iter().enumerate() {
        let connected = end.part(addresses.len() - at).left().and_then(|left| match left {
            None => TcpStream::connect(address),
            Some(left) => TcpStream::connect_timeout(address, left),
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn listening() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// A listener whose queue is full, so that no connection is accepted any more.
    fn deaf() -> (TcpListener, SocketAddr) {
        let (listener, address) = listening();
        while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {}
        (listener, address)
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let (_deaf, first) = deaf();
        let (_listener, second) = listening();
        let end = Deadline::after(Some(Duration::from_secs(4)));
        let connected = connect_tcp(&[first, second], end).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), second);
        let soon = Deadline::after(Some(Duration::from_millis(100)));
        let Err(ClientError::Io(error)) = connect_tcp(&[first, first], soon) else { panic!() };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        let mut buffer = vec![1];
        let error = reserve(&mut buffer, isize::MAX as usize - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        reserve(&mut buffer, 1000).unwrap();
        assert!(buffer.capacity() > 1000 && buffer == [1]);
    }

    #[test]
    fn a_server_that_only_ever_sends_is_given_up() {
        let (listener, address) = listening();
        let uri = Uri::new(Host::Tcp(address.ip().to_string(), address.port()));
        let mut stream = Stream::connect(&uri, Deadline::NEVER).unwrap();
        let sends = std::thread::spawn(move || {
            let (mut peer, piece) = (listener.accept().unwrap().0, vec![0; 1 << 20]);
            let mut pieces = 0;
            while pieces < 1_000 && peer.write_all(&piece).is_ok() {
                pieces += 1;
            }
            pieces
        });
        // More than lies in all the buffers on the way.
        let error = stream.send(&vec![0; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
        let kept = stream.early.len();
        assert!(kept <= EARLY_BYTES_MAX && kept + PIECE_BYTES > EARLY_BYTES_MAX, "{kept}");
        drop(stream);
        assert!(sends.join().unwrap() < 1_000);
    }

    #[test]
    fn what_was_kept_while_sending_is_given_back() {
        let (_listener, address) = listening();
        let uri = Uri::new(Host::Tcp(address.ip().to_string(), address.port()));
        let mut stream = Stream::connect(&uri, Deadline::NEVER).unwrap();
        stream.early = vec![1; 1000];
        stream.trim();
        let mut received = Vec::new();
        assert_eq!(stream.receive(&mut received, &mut Vec::new()).unwrap(), 1000);
        stream.trim();
        assert_eq!((received.len(), stream.early.capacity()), (1000, 0));
    }
}
