//! A closed-loop load generator: a number of connections, each with one request in flight.
//!
//! Replies are delimited by the length at their beginning, as in MongoDB's messages. So any server of such messages
//! can be measured, including the [`crate::echo`] server. A thread with one connection blocks in receive; with
//! several it waits in epoll.

use crate::cpu::cpu_time;
use crate::histogram::Histogram;
use kauri_transport::monotonic_ns;
use kauri_transport::sys::{self, Epoll, EventList};
use kauri_wire::{checked_length, claimed_length};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

/// How long a reply may take before the run fails.
const PATIENCE: Duration = Duration::from_secs(30);
const RECEIVE_BYTES: usize = 64 * 1024;

/// What makes requests and looks at replies. One for each thread.
pub trait Client: Send {
    /// Called once for each connection before anything is measured: handshakes, preambles.
    fn begin(&mut self, _stream: &mut TcpStream) -> io::Result<()> {
        Ok(())
    }

    /// Appends the next request, a whole message, to `out`.
    fn request(&mut self, out: &mut Vec<u8>);

    /// Whether a reply is as it should be; counted as an error if not.
    fn accept(&mut self, _reply: &[u8]) -> bool {
        true
    }
}

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The server.
    pub address: SocketAddr,
    /// Connections in all.
    pub connections: usize,
    /// Threads that they are spread over.
    pub threads: usize,
    /// How long requests are sent and not counted.
    pub warmup: Duration,
    /// How long they are counted.
    pub measure: Duration,
    /// The process whose CPU time is counted along.
    pub server_pid: Option<u32>,
}

/// What came of it.
#[derive(Clone, Default)]
pub struct Report {
    /// Latencies from before the send to after the last byte.
    pub latency: Histogram,
    /// How long replies were counted.
    pub wall: Duration,
    /// Replies that were not accepted.
    pub errors: u64,
    /// CPU time that the server has used meanwhile, if its process is known.
    pub server_cpu: Option<Duration>,
    /// CPU time that this process has used meanwhile.
    pub client_cpu: Duration,
}

impl Report {
    /// Requests a second.
    pub fn throughput(&self) -> f64 {
        self.latency.count() as f64 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Server CPU a request, in microseconds.
    pub fn server_cpu_us(&self) -> Option<f64> {
        Some(self.a_request_us(self.server_cpu?))
    }

    /// The client's CPU a request, in microseconds.
    pub fn client_cpu_us(&self) -> f64 {
        self.a_request_us(self.client_cpu)
    }

    fn a_request_us(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.latency.count().max(1) as f64
    }
}

impl Load {
    /// Runs the load; `client` makes the client of each thread.
    pub fn run<C: Client>(&self, client: impl Fn(usize) -> C) -> io::Result<Report> {
        let threads = self.threads.clamp(1, self.connections.max(1));
        // All threads and this one meet when the measurement begins and when it has ended.
        let border = Barrier::new(threads + 1);
        // The threads connect one after the other, so that a server that deals connections out in turn
        // spreads each thread's over all its workers, in every round alike.
        let connecting = Mutex::new(());
        let mut report = Report::default();
        std::thread::scope(|scope| {
            let mut running = Vec::new();
            for thread in 0..threads {
                let share = (self.connections + threads - 1 - thread) / threads;
                let (client, border, connecting) = (client(thread), &border, &connecting);
                running.push(scope.spawn(move || {
                    let prepared = caught(|| {
                        let _turn = connecting.lock().unwrap_or_else(PoisonError::into_inner);
                        Worker::prepare(self.address, share, client)
                    });
                    border.wait();
                    let outcome = prepared.and_then(|mut worker| {
                        caught(|| worker.run(self.warmup, self.measure))?;
                        Ok((worker.latency, worker.errors))
                    });
                    border.wait();
                    outcome
                }));
            }
            border.wait();
            // The span that is not counted. Each thread sees its end by the clock, and so does this one,
            // for the CPU times.
            std::thread::sleep(self.warmup);
            let (own, server) = (cpu_time(std::process::id()), self.server_pid.and_then(cpu_time));
            border.wait();
            report.wall = self.measure;
            let since = |pid: u32, then: Option<Duration>| Some(cpu_time(pid)? - then?);
            report.client_cpu = since(std::process::id(), own).unwrap_or_default();
            report.server_cpu = self.server_pid.and_then(|pid| since(pid, server));
            for thread in running {
                let (latency, errors) = thread.join().unwrap_or_else(|_| Err(panicked()))?;
                report.latency.merge(&latency);
                report.errors += errors;
            }
            Ok(report)
        })
    }
}

fn panicked() -> io::Error {
    io::Error::other("a load thread panicked")
}

/// A client that panics fails the run, and leaves nobody waiting for its thread.
fn caught<T>(f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(panicked()))
}

/// One thread's connections.
struct Worker<C> {
    client: C,
    connections: Vec<Connection>,
    latency: Histogram,
    errors: u64,
    /// Replies to requests sent before this are not counted.
    count_from_ns: u64,
    stop_ns: u64,
}

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    sent: usize,
    reply: Vec<u8>,
    started_ns: u64,
}

impl<C: Client> Worker<C> {
    fn prepare(address: SocketAddr, connections: usize, mut client: C) -> io::Result<Self> {
        let connections = (0..connections)
            .map(|_| {
                let mut stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                client.begin(&mut stream)?;
                let reply = Vec::with_capacity(RECEIVE_BYTES);
                Ok(Connection { stream, request: Vec::new(), sent: 0, reply, started_ns: 0 })
            })
            .collect::<io::Result<_>>()?;
        let latency = Histogram::default();
        Ok(Worker { client, connections, latency, errors: 0, count_from_ns: 0, stop_ns: 0 })
    }

    fn run(&mut self, warmup: Duration, measure: Duration) -> io::Result<()> {
        self.count_from_ns = monotonic_ns() + warmup.as_nanos() as u64;
        self.stop_ns = self.count_from_ns + measure.as_nanos() as u64;
        let mut connections = std::mem::take(&mut self.connections);
        match connections.as_mut_slice() {
            [connection] => self.run_blocking(connection),
            connections => self.run_epoll(connections),
        }
    }

    fn run_blocking(&mut self, connection: &mut Connection) -> io::Result<()> {
        let mut chunk = vec![0; RECEIVE_BYTES];
        while monotonic_ns() < self.stop_ns {
            connection.next(&mut self.client);
            connection.stream.write_all(&connection.request)?;
            while connection.whole_reply()?.is_none() {
                let received = connection.stream.read(&mut chunk)?;
                if received == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                connection.reply.extend_from_slice(chunk.get(..received).unwrap_or_default());
            }
            self.finish(connection)?;
        }
        Ok(())
    }

    fn run_epoll(&mut self, connections: &mut [Connection]) -> io::Result<()> {
        let epoll = Epoll::new()?;
        let mut events = EventList::new(connections.len().max(1));
        for (key, connection) in connections.iter_mut().enumerate() {
            connection.next(&mut self.client);
            epoll.add_stream(connection.stream.as_fd(), key as u64)?;
        }
        let mut under_way = connections.len();
        while under_way > 0 {
            epoll.wait(&mut events, Some(PATIENCE))?;
            if events.is_empty() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for event in events.iter() {
                let Some(connection) = connections.get_mut(event.key as usize) else { continue };
                connection.send()?;
                if !event.readable || !connection.receive()? {
                    continue;
                }
                self.finish(connection)?;
                if monotonic_ns() < self.stop_ns {
                    connection.next(&mut self.client);
                    connection.send()?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, connection: &mut Connection) -> io::Result<()> {
        let now_ns = monotonic_ns();
        let reply = connection.whole_reply()?.unwrap_or_default();
        if !self.client.accept(reply) {
            self.errors += 1;
        }
        if connection.started_ns >= self.count_from_ns && now_ns <= self.stop_ns {
            self.latency.record(now_ns - connection.started_ns);
        }
        connection.reply.clear();
        Ok(())
    }
}

impl Connection {
    fn next(&mut self, client: &mut impl Client) {
        self.request.clear();
        self.sent = 0;
        client.request(&mut self.request);
        self.started_ns = monotonic_ns();
    }

    fn send(&mut self) -> io::Result<()> {
        while let Some(rest) = self.request.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match sys::send(self.stream.as_fd(), rest) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives what has come. Whether the reply is whole.
    fn receive(&mut self) -> io::Result<bool> {
        loop {
            self.reply.reserve(RECEIVE_BYTES);
            let room = self.reply.capacity() - self.reply.len();
            match sys::recv_append(self.stream.as_fd(), &mut self.reply) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) if received == room => {}
                Ok(_) => return Ok(self.whole_reply()?.is_some()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(self.whole_reply()?.is_some());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn whole_reply(&self) -> io::Result<Option<&[u8]>> {
        let Some(claimed) = claimed_length(&self.reply) else { return Ok(None) };
        match checked_length(claimed) {
            Some(length) if length < self.reply.len() => {
                Err(io::Error::other("more than one reply to one request"))
            }
            Some(length) => Ok(self.reply.get(..length)),
            None => Err(io::Error::other(format!("a reply of {claimed} bytes"))),
        }
    }
}
