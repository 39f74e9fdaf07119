//! A client that keeps its connection full does not monopolise the worker.

use crate::common::{PATIENCE, answer, request};
use kauri_transport::fake::FakeTransport;
use kauri_transport::{
    ClientState, ExecutorOptions, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint,
    ServiceExecutor, SessionInfo, SessionManager, TransportLayer, Tried,
};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records the session of each request.
#[derive(Default)]
struct Recorder {
    order: Mutex<Vec<u64>>,
}

struct NoState;
impl ClientState for NoState {}

impl ServiceEntryPoint for Recorder {
    fn start_session(&self, _session: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(NoState)
    }

    fn try_handle(
        &self,
        cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        self.order.lock().unwrap().push(cx.session.id);
        if request[16] == b'x' {
            answer(request, b"", reply);
            return Tried::Done(Outcome::Exhaust);
        }
        answer(request, b"", reply);
        Tried::Done(Outcome::Reply)
    }

    fn handle_request<'a>(
        &'a self,
        _cx: RequestContext<'a>,
        _request: &'a [u8],
        _reply: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        Box::pin(async { Outcome::Close })
    }

    fn end_session(&self, _session: &Arc<SessionInfo>, _state: Box<dyn ClientState>) {}
}

/// The number of requests of a greedy client served before the simultaneous request of a modest one.
fn greedy_before_modest(greedy_sends: &[u8]) -> usize {
    let recorder = Arc::new(Recorder::default());
    let executor =
        ServiceExecutor::start(&ExecutorOptions { workers: 1, ..Default::default() }).unwrap();
    let service: Arc<dyn ServiceEntryPoint> = recorder.clone();
    let manager = SessionManager::new(Arc::clone(&executor), service, 10);
    let mut transport = FakeTransport::default();
    transport.start(&manager).unwrap();
    let greedy = transport.connect().unwrap();
    let modest = transport.connect().unwrap();
    // The worker is blocked until both have sent, the greedy one first.
    let (release, released) = channel::<()>();
    let (report, holding) = channel();
    executor.workers()[0].spawn(async move {
        report.send(()).unwrap();
        released.recv().unwrap();
    });
    holding.recv_timeout(PATIENCE).unwrap();
    greedy.send(greedy_sends);
    modest.send(&request(b"m"));
    release.send(()).unwrap();
    assert!(modest.receive(PATIENCE).is_some());
    drop(greedy);
    manager.shutdown(Duration::ZERO);
    executor.shutdown();
    let order = recorder.order.lock().unwrap();
    let before = order.iter().position(|id| *id == 2).unwrap();
    assert!(before > 0, "the greedy one came first");
    before
}

#[test]
fn pipelined_requests_let_others_in_between() {
    let before = greedy_before_modest(&request(b"g").repeat(10_000));
    assert!(before <= 32, "{before} requests before the other client's");
}

#[test]
fn an_endless_exhaust_lets_others_in_between() {
    let before = greedy_before_modest(&request(b"x"));
    assert!(before <= 32, "{before} replies before the other client's");
}
