//! A service for tests, and the client side of its protocol.
//!
//! A request's body begins with one byte that selects the service's action; see [`Echo`].
#![allow(dead_code, reason = "each test file uses its own part of this")]

use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::{
    ClientState, ExecutorOptions, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint,
    ServiceExecutor, SessionInfo, SessionManager, TransportLayer, Tried, yield_now,
};
use kauri_wire::Header;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Longer than any operation takes, so that a hang becomes a failure.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The service's actions, by the first body byte.
pub mod op {
    /// Answer the body, without a future.
    pub const ECHO: u8 = b'e';
    /// Answer the body, from a future that yields first.
    pub const ECHO_LATER: u8 = b'l';
    /// Count, don't answer.
    pub const NO_REPLY: u8 = b'n';
    /// Answer three times.
    pub const EXHAUST: u8 = b'x';
    /// Answer with as many bytes as the next four say, by `splice`.
    pub const BIG: u8 = b'b';
    /// Answer, then close.
    pub const REPLY_THEN_CLOSE: u8 = b'c';
    /// Close.
    pub const CLOSE: u8 = b'C';
    /// Panic without a future.
    pub const PANIC: u8 = b'p';
    /// Panic in a future after yielding.
    pub const PANIC_LATER: u8 = b'P';
    /// Wait until the client has gone or the server shuts down.
    pub const WAIT_FOR_END: u8 = b'w';
    /// Never return.
    pub const HANG: u8 = b'h';
    /// Sleep as many milliseconds as the next four bytes say, then answer.
    pub const SLEEP: u8 = b's';
    /// Answer as if the request were 100 bytes longer uncompressed, and the reply 10 shorter.
    pub const COMPRESS: u8 = b'z';
    /// Answer with the worker's number, and the session's count of such requests.
    pub const WHERE: u8 = b'W';
    /// Answer with an upgrade to shared memory; the rest of the body is the request for it.
    pub const UPGRADE: u8 = b'U';
    /// Answer with a wrong length in the header.
    pub const BAD_LENGTH: u8 = b'B';
}

/// State of the service that a test may inspect.
#[derive(Default)]
pub struct Seen {
    pub started: AtomicUsize,
    pub ended: AtomicUsize,
    pub no_replies: AtomicUsize,
    events: Mutex<BTreeMap<String, usize>>,
    changed: Condvar,
}

impl Seen {
    pub fn note(&self, event: &str) {
        *self.events.lock().unwrap().entry(event.to_owned()).or_default() += 1;
        self.changed.notify_all();
    }

    /// Waits until `event` was recorded `count` times.
    pub fn wait_for(&self, event: &str, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut events = self.events.lock().unwrap();
        while events.get(event).copied().unwrap_or(0) < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {count} of {event}: {events:?}");
            events = self.changed.wait_timeout(events, left).unwrap().0;
        }
    }
}

/// The service.
#[derive(Default)]
pub struct Echo {
    pub seen: Arc<Seen>,
}

pub struct EchoClient {
    exhausted: u32,
    wheres: u32,
}

impl ClientState for EchoClient {}

fn body(request: &[u8]) -> &[u8] {
    &request[16..]
}

fn number(request: &[u8]) -> u32 {
    u32::from_le_bytes(body(request)[1..5].try_into().unwrap())
}

/// Appends a reply with this body.
pub fn answer(request: &[u8], body: &[u8], reply: &mut ReplyBuf) {
    let request = Header::parse(request).unwrap();
    let header = Header {
        length: 16 + body.len() as i32,
        request_id: 1,
        response_to: request.request_id,
        op_code: 2013,
    };
    reply.buffer().extend_from_slice(&header.to_bytes());
    reply.buffer().extend_from_slice(body);
}

/// The bytes of a `BIG` answer.
pub fn big_body(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

impl ServiceEntryPoint for Echo {
    fn start_session(&self, _session: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        self.seen.started.fetch_add(1, Ordering::SeqCst);
        self.seen.note("start");
        Box::new(EchoClient { exhausted: 0, wheres: 0 })
    }

    fn try_handle(
        &self,
        cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        match body(request).first().copied() {
            Some(op::ECHO) => {
                answer(request, body(request), reply);
                Tried::Done(Outcome::Reply)
            }
            Some(op::NO_REPLY) => {
                self.seen.no_replies.fetch_add(1, Ordering::SeqCst);
                self.seen.note("no reply");
                Tried::Done(Outcome::NoReply)
            }
            Some(op::EXHAUST) => {
                let client = cx.state.downcast_mut::<EchoClient>().unwrap();
                client.exhausted += 1;
                answer(request, &client.exhausted.to_le_bytes(), reply);
                if client.exhausted % 3 == 0 {
                    return Tried::Done(Outcome::Reply);
                }
                Tried::Done(Outcome::Exhaust)
            }
            Some(op::BIG) => {
                let big = big_body(number(request) as usize);
                let length = 16 + 1 + big.len() as i32 + 1;
                let header = Header { length, request_id: 1, response_to: 0, op_code: 2013 };
                reply.buffer().extend_from_slice(&header.to_bytes());
                reply.buffer().push(b'<');
                reply.splice(&big);
                reply.buffer().push(b'>');
                Tried::Done(Outcome::Reply)
            }
            Some(op::REPLY_THEN_CLOSE) => {
                answer(request, b"bye", reply);
                Tried::Done(Outcome::ReplyThenClose)
            }
            Some(op::COMPRESS) => {
                cx.worker.adjust_logical_bytes(100, -10);
                answer(request, body(request), reply);
                Tried::Done(Outcome::Reply)
            }
            Some(op::WHERE) => {
                let client = cx.state.downcast_mut::<EchoClient>().unwrap();
                client.wheres += 1;
                let body = [cx.worker.id() as u32, client.wheres].map(u32::to_le_bytes).concat();
                answer(request, &body, reply);
                Tried::Done(Outcome::Reply)
            }
            Some(op::UPGRADE) => {
                let random = kauri_base::clock::SeededRandom::new(1);
                let parameters = &body(request)[1..];
                let made = cx.session.upgrade.prepare("sharedMemory", parameters, &random);
                answer(request, &made.unwrap_or_default(), reply);
                Tried::Done(Outcome::Reply)
            }
            Some(op::CLOSE) => Tried::Done(Outcome::Close),
            Some(op::PANIC) => panic!("asked to"),
            Some(op::BAD_LENGTH) => {
                answer(request, b"lie", reply);
                reply.buffer().push(0);
                Tried::Done(Outcome::Reply)
            }
            _ => Tried::No,
        }
    }

    fn handle_request<'a>(
        &'a self,
        cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        Box::pin(async move {
            match body(request).first().copied() {
                Some(op::PANIC_LATER) => {
                    yield_now().await;
                    panic!("asked to, later");
                }
                Some(op::WAIT_FOR_END) => {
                    self.seen.note("waiting");
                    let why = cx.liveness.ended().await;
                    self.seen.note(&format!("ended {}", why.code().number()));
                    answer(request, b"ended", reply);
                    return Outcome::Reply;
                }
                Some(op::HANG) => {
                    self.seen.note("hanging");
                    std::future::pending::<()>().await;
                }
                Some(op::SLEEP) => {
                    self.seen.note("sleeping");
                    cx.worker.sleep(Duration::from_millis(number(request).into())).await;
                }
                _ => yield_now().await,
            }
            answer(request, body(request), reply);
            Outcome::Reply
        })
    }

    fn end_session(&self, _session: &Arc<SessionInfo>, state: Box<dyn ClientState>) {
        drop(state);
        self.seen.ended.fetch_add(1, Ordering::SeqCst);
        self.seen.note("end");
    }
}

/// A running service over TCP on its own port.
pub struct Server {
    pub tcp: TcpTransport,
    pub manager: Arc<SessionManager>,
    pub executor: Arc<ServiceExecutor>,
    pub seen: Arc<Seen>,
}

impl Server {
    pub fn start() -> Self {
        Self::with(2, 10_000)
    }

    pub fn with(workers: usize, connections_max: usize) -> Self {
        let echo = Echo::default();
        let seen = Arc::clone(&echo.seen);
        Self::with_service(Arc::new(echo), seen, workers, connections_max)
    }

    pub fn with_service(
        service: Arc<dyn ServiceEntryPoint>,
        seen: Arc<Seen>,
        workers: usize,
        connections_max: usize,
    ) -> Self {
        let options = ExecutorOptions { workers, ..Default::default() };
        Server::with_executor(&options, service, seen, connections_max)
    }

    pub fn with_executor(
        options: &ExecutorOptions,
        service: Arc<dyn ServiceEntryPoint>,
        seen: Arc<Seen>,
        connections_max: usize,
    ) -> Self {
        let executor = ServiceExecutor::start(options).unwrap();
        let manager = SessionManager::new(Arc::clone(&executor), service, connections_max);
        let mut tcp = TcpTransport::new(TcpOptions { port: 0, ..TcpOptions::default() });
        tcp.setup().unwrap();
        tcp.start(&manager).unwrap();
        Server { tcp, manager, executor, seen }
    }

    pub fn address(&self) -> SocketAddr {
        self.tcp.socket_addresses()[0]
    }

    pub fn connect(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tcp.shutdown();
        self.manager.shutdown(Duration::ZERO);
        self.executor.shutdown();
    }
}

/// Polls a future on this thread, which sleeps in between. `None`: not within [`PATIENCE`].
pub fn wait_for<T>(future: impl Future<Output = T>) -> Option<T> {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

/// A request with this body.
pub fn request(body: &[u8]) -> Vec<u8> {
    let length = 16 + body.len() as i32;
    let header = Header { length, request_id: 42, response_to: 0, op_code: 2013 };
    [&header.to_bytes()[..], body].concat()
}

pub fn op_with_number(op: u8, number: u32) -> Vec<u8> {
    let mut body = vec![op];
    body.extend_from_slice(&number.to_le_bytes());
    body
}

/// One client connection.
pub struct Client<S> {
    pub stream: S,
}

impl<S: Read + Write> Client<S> {
    pub fn send(&mut self, body: &[u8]) {
        self.stream.write_all(&request(body)).unwrap();
    }

    /// The body of the next reply.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header).unwrap();
        let length = Header::parse(&header).unwrap().length as usize;
        let mut body = vec![0; length - 16];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    pub fn ask(&mut self, body: &[u8]) -> Vec<u8> {
        self.send(body);
        self.receive()
    }

    /// Everything up to the end of the stream; a reset counts as the end.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return all,
                Ok(count) => all.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
