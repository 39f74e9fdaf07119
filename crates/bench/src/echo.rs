//! A TCP server that only receives and sends: the lower bound for a real server.
//!
//! A client begins with the size of its requests and the size of the requested reply, both as little-endian `u32`,
//! and that reply. From then on, each sequence of bytes of the request size gets the reply. With a reply of a real
//! server, the generator does the same work for both. One thread accepts and distributes connections; each other
//! thread is an epoll loop. A request costs a receive, a send and its share of a wait.

use kauri_transport::sys::{self, Epoll, EventFd, EventList};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Length of the sizes that a client begins with.
pub const SIZES_BYTES: usize = 8;
/// Largest request or reply.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;
const RECEIVE_BYTES: usize = 64 * 1024;
const EVENTS_MAX: usize = 256;
const WAKE_KEY: u64 = u64::MAX;

/// What a client sends first.
pub fn preamble(request_bytes: u32, reply: &[u8]) -> Vec<u8> {
    let mut bytes = request_bytes.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(reply.len() as u32).to_le_bytes());
    bytes.extend_from_slice(reply);
    bytes
}

/// A running echo server; dropping it ends it.
pub struct EchoServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    loops: Vec<Arc<Inbox>>,
    threads: Vec<JoinHandle<()>>,
}

/// New connections of one loop.
struct Inbox {
    streams: Mutex<Vec<TcpStream>>,
    wake: EventFd,
}

impl EchoServer {
    /// Listens on `address`, with so many epoll loops.
    pub fn start(address: SocketAddr, threads: usize) -> io::Result<Self> {
        let listener = TcpListener::from(sys::listen_tcp(address)?);
        let mut server = EchoServer {
            address: listener.local_addr()?,
            stop: Arc::default(),
            loops: Vec::new(),
            threads: Vec::new(),
        };
        for _ in 0..threads.max(1) {
            let inbox = Arc::new(Inbox { streams: Mutex::default(), wake: EventFd::new()? });
            let (stop, theirs) = (Arc::clone(&server.stop), Arc::clone(&inbox));
            let mut echo_loop = Loop::new(theirs, stop)?;
            server.loops.push(inbox);
            server.threads.push(std::thread::spawn(move || echo_loop.run()));
        }
        let (stop, loops) = (Arc::clone(&server.stop), server.loops.clone());
        server.threads.push(std::thread::spawn(move || accept(&listener, &loops, &stop)));
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.loops.iter().for_each(|inbox| inbox.wake.signal());
        // The accepting thread waits for a connection.
        drop(TcpStream::connect(self.address));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, loops: &[Arc<Inbox>], stop: &AtomicBool) {
    for inbox in loops.iter().cycle() {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        if let Ok((stream, _)) = accepted {
            // Without it the figures show Nagle's algorithm instead of the server.
            if stream.set_nodelay(true).is_ok() {
                inbox.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
                inbox.wake.signal();
            }
        }
    }
}

/// One connection.
struct Peer {
    stream: TcpStream,
    /// The sizes, until they are there.
    sizes: Vec<u8>,
    request_bytes: usize,
    reply_bytes: usize,
    /// As much of it as has come.
    reply: Vec<u8>,
    /// Bytes of requests received and not yet answered.
    received: usize,
    /// Bytes of replies owed, and how far the first of them is sent.
    owed: usize,
    sent: usize,
}

struct Loop {
    epoll: Epoll,
    inbox: Arc<Inbox>,
    stop: Arc<AtomicBool>,
    peers: HashMap<u64, Peer>,
    next_key: u64,
    buffer: Vec<u8>,
}

impl Loop {
    fn new(inbox: Arc<Inbox>, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add_readable(inbox.wake.as_fd(), WAKE_KEY)?;
        Ok(Loop {
            epoll,
            inbox,
            stop,
            peers: HashMap::new(),
            next_key: 0,
            buffer: Vec::with_capacity(RECEIVE_BYTES),
        })
    }

    fn run(&mut self) {
        let mut events = EventList::new(EVENTS_MAX);
        while !self.stop.load(Ordering::Acquire) {
            if self.epoll.wait(&mut events, None).is_err() {
                return;
            }
            for event in events.iter() {
                if event.key == WAKE_KEY {
                    self.adopt();
                } else if self.serve(event.key).is_err() {
                    self.peers.remove(&event.key);
                }
            }
        }
    }

    fn adopt(&mut self) {
        self.inbox.wake.reset();
        let streams =
            std::mem::take(&mut *self.inbox.streams.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in streams {
            let key = self.next_key;
            self.next_key += 1;
            if self.epoll.add_stream(stream.as_fd(), key).is_ok() {
                let peer = Peer {
                    stream,
                    sizes: Vec::new(),
                    request_bytes: 0,
                    reply_bytes: 0,
                    reply: Vec::new(),
                    received: 0,
                    owed: 0,
                    sent: 0,
                };
                self.peers.insert(key, peer);
            }
        }
    }

    /// Receives and sends what goes. An error ends the connection.
    fn serve(&mut self, key: u64) -> io::Result<()> {
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(()) };
        loop {
            self.buffer.clear();
            let received = match sys::recv_append(peer.stream.as_fd(), &mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            peer.take(&self.buffer)?;
            peer.send()?;
            // A receive that did not fill the buffer has emptied the socket.
            if received < self.buffer.capacity() {
                return Ok(());
            }
        }
    }
}

impl Peer {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let bytes = fill(&mut self.sizes, SIZES_BYTES, bytes);
        let Ok(sizes) = <[u8; SIZES_BYTES]>::try_from(self.sizes.as_slice()) else {
            return Ok(());
        };
        if self.reply_bytes == 0 {
            let sizes = u64::from_le_bytes(sizes);
            (self.request_bytes, self.reply_bytes) =
                (sizes as u32 as usize, (sizes >> 32) as usize);
            let valid = |size: usize| (1..=MESSAGE_BYTES_MAX).contains(&size);
            if !valid(self.request_bytes) || !valid(self.reply_bytes) {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let bytes = fill(&mut self.reply, self.reply_bytes, bytes);
        self.received += bytes.len();
        self.owed += self.received / self.request_bytes;
        self.received %= self.request_bytes;
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        while self.owed > 0 {
            let rest = self.reply.get(self.sent..).unwrap_or_default();
            match sys::send(self.stream.as_fd(), rest) {
                Ok(sent) => {
                    self.sent += sent;
                    if self.sent < self.reply.len() {
                        // The socket is full; an event comes when it has room again.
                        return Ok(());
                    }
                    self.sent = 0;
                    self.owed -= 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Fills `target` up to `size` with the first of the bytes; the others.
fn fill<'b>(target: &mut Vec<u8>, size: usize, bytes: &'b [u8]) -> &'b [u8] {
    let (first, rest) = bytes.split_at((size - target.len()).min(bytes.len()));
    target.extend_from_slice(first);
    rest
}
