//! Replies deferred to the end of the tick, as replies to writes are. One hook serves all requests of a tick,
//! and the replies are sent before the worker waits again.

use crate::common::{self, Seen, Server, answer};
use kauri_base::ticket::TicketSource;
use kauri_base::{Result, Ticket};
use kauri_transport::{
    ClientState, ExecutorOptions, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint,
    SessionInfo, Tried,
};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// A model of a log: writes get numbers, a flush makes all numbers so far durable.
#[derive(Default)]
struct Log {
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    /// The log can no longer be written.
    broken: bool,
    written: u64,
    durable: u64,
    flushes: u64,
    waiting: Vec<Waker>,
    /// Number of waits longer than a tick.
    long_waits: u64,
}

impl Log {
    fn write(self: &Arc<Self>) -> Ticket {
        let mut state = self.state.lock().unwrap();
        state.written += 1;
        Ticket::new(Arc::clone(self) as Arc<dyn TicketSource>, state.written)
    }

    fn flush(&self) {
        let waiting = {
            let mut state = self.state.lock().unwrap();
            state.durable = state.written;
            state.flushes += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl TicketSource for Log {
    fn poll_ticket(&self, number: u64, waker: &Waker) -> Poll<Result<()>> {
        let mut state = self.state.lock().unwrap();
        if state.broken {
            return Poll::Ready(Err(kauri_base::Error::failed_to_parse("broken")));
        }
        if number <= state.durable {
            return Poll::Ready(Ok(()));
        }
        state.waiting.push(waker.clone());
        Poll::Pending
    }
}

struct Writes {
    log: Arc<Log>,
}

struct NoState;
impl ClientState for NoState {}

impl ServiceEntryPoint for Writes {
    fn start_session(&self, _session: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(NoState)
    }

    /// `t…`: without a future; `n…`: without a write.
    fn try_handle(
        &self,
        cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        if request[16] == b'n' {
            answer(request, b"durable", reply);
            return Tried::Done(Outcome::Reply);
        }
        if request[16] != b't' {
            return Tried::No;
        }
        answer(request, b"durable", reply);
        cx.worker.want_tick_end();
        Tried::After(self.log.write())
    }

    fn settle(
        &self,
        _cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
        result: Result<()>,
    ) -> Outcome {
        if result.is_err() {
            assert!(reply.clear());
            answer(request, b"failed", reply);
        }
        Outcome::Reply
    }

    fn wait_longer<'a>(
        &'a self,
        mut cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
        ticket: Ticket,
    ) -> Handling<'a> {
        self.log.state.lock().unwrap().long_waits += 1;
        Box::pin(async move {
            let result = ticket.await;
            self.settle(&mut cx, request, reply, result)
        })
    }

    fn handle_request<'a>(
        &'a self,
        cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        Box::pin(async move {
            let ticket = self.log.write();
            cx.worker.want_tick_end();
            match ticket.await {
                Ok(()) => answer(request, b"durable", reply),
                Err(_) => return Outcome::Close,
            }
            Outcome::Reply
        })
    }

    fn end_session(&self, _session: &Arc<SessionInfo>, _state: Box<dyn ClientState>) {}
}

#[test]
fn a_deferred_reply_costs_no_further_wait() {
    no_further_wait(b"w");
    no_further_wait(b"t");
}

fn no_further_wait(request: &[u8]) {
    const REQUESTS: u64 = 500;
    let log = Arc::new(Log::default());
    let service = Arc::new(Writes { log: Arc::clone(&log) });
    let server = Server::with_service(service, Arc::new(Seen::default()), 1, 100);
    let flushed = Arc::clone(&log);
    server.executor.on_tick_end(Arc::new(move || flushed.flush()));
    let mut client = server.connect();
    assert_eq!(client.ask(request), b"durable");
    let before = server.manager.stats().workers().remove(0);
    for _ in 0..REQUESTS {
        assert_eq!(client.ask(request), b"durable");
    }
    let after = server.manager.stats().workers().remove(0);
    assert_eq!(after.receives - before.receives, REQUESTS);
    assert_eq!(after.sends - before.sends, REQUESTS);
    assert!(after.waits - before.waits <= REQUESTS + 2, "{} waits", after.waits - before.waits);
    assert_eq!(log.state.lock().unwrap().flushes, REQUESTS + 1);
    assert_eq!(log.state.lock().unwrap().long_waits, 0);
}

#[test]
fn requests_of_one_tick_share_their_flush() {
    assert_eq!(one_tick(0, [b"w", b"t"], 20), (1, 0));
}

#[test]
fn replies_of_one_tick_leave_in_one_system_call_if_configured() {
    assert_eq!(one_tick(u64::MAX, [b"w", b"t"], 20), (1, 20));
    // More replies than one call takes.
    assert_eq!(one_tick(u64::MAX, [b"w", b"t"], 99), (1, 99));
    assert_eq!(one_tick(u64::MAX, [b"w", b"t"], 2), (1, 0), "two are too few");
    assert_eq!(one_tick(u64::MAX, [b"n", b"n"], 20), (0, 20), "no reply waits");
    assert_eq!(one_tick(u64::MAX, [b"n", b"n"], 2), (0, 0));
}

/// Lets this many clients send in one tick, alternating between both requests. Returns the number of flushes
/// and of replies sent together.
fn one_tick(replies_held_us: u64, requests: [&[u8]; 2], clients: usize) -> (u64, u64) {
    let log = Arc::new(Log::default());
    let service = Arc::new(Writes { log: Arc::clone(&log) });
    let options = ExecutorOptions { workers: 1, replies_held_us, ..Default::default() };
    let server = Server::with_executor(&options, service, Arc::new(Seen::default()), 100);
    let flushed = Arc::clone(&log);
    server.executor.on_tick_end(Arc::new(move || flushed.flush()));
    let mut clients: Vec<_> = (0..clients).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.ask(b"w"), b"durable"));
    let before = log.state.lock().unwrap().flushes;
    // The worker is blocked until all clients have sent.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (report, holding) = std::sync::mpsc::channel();
    server.executor.workers()[0].spawn(async move {
        report.send(()).unwrap();
        released.recv().unwrap();
    });
    holding.recv_timeout(common::PATIENCE).unwrap();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(requests[n % 2]);
    }
    release.send(()).unwrap();
    clients.iter_mut().for_each(|client| assert_eq!(client.receive(), b"durable"));
    let flushes = log.state.lock().unwrap().flushes - before;
    (flushes, server.manager.stats().workers().remove(0).sends_together)
}

#[test]
fn a_failed_wait_is_reported_and_a_lost_client_delays_nothing() {
    let log = Arc::new(Log::default());
    let service = Arc::new(Writes { log: Arc::clone(&log) });
    let server = Server::with_service(service, Arc::new(Seen::default()), 1, 100);
    // Without a flush this request waits until its client disconnects.
    let mut leaving = server.connect();
    leaving.send(b"t");
    let deadline = std::time::Instant::now() + common::PATIENCE;
    while log.state.lock().unwrap().waiting.is_empty() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    drop(leaving);
    log.state.lock().unwrap().broken = true;
    let mut client = server.connect();
    assert_eq!(client.ask(b"t"), b"failed");
    log.state.lock().unwrap().broken = false;
    let flushed = Arc::clone(&log);
    server.executor.on_tick_end(Arc::new(move || flushed.flush()));
    assert_eq!(client.ask(b"t"), b"durable");
}

#[test]
fn a_wait_beyond_the_tick_is_left_to_the_service() {
    let log = Arc::new(Log::default());
    let service = Arc::new(Writes { log: Arc::clone(&log) });
    let server = Server::with_service(service, Arc::new(Seen::default()), 1, 100);
    let mut client = server.connect();
    client.send(b"t");
    let deadline = std::time::Instant::now() + common::PATIENCE;
    while log.state.lock().unwrap().long_waits == 0 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    log.flush();
    assert_eq!(client.receive(), b"durable");
    assert_eq!(log.state.lock().unwrap().long_waits, 1);
}
