//! Workers blocked in a task: new connections are still served, and the server can stop.

use crate::common::{PATIENCE, answer, request};
use kauri_transport::fake::FakeTransport;
use kauri_transport::{
    ClientState, ExecutorOptions, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint,
    ServiceExecutor, SessionInfo, SessionManager, TransportLayer, Tried,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A request `h` blocks its worker until the test releases it.
#[derive(Default)]
struct Holds {
    let_go: AtomicBool,
    held: AtomicUsize,
}

struct NoState;
impl ClientState for NoState {}

impl ServiceEntryPoint for Holds {
    fn start_session(&self, _session: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(NoState)
    }

    fn try_handle(
        &self,
        _cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        if request[16] == b'h' {
            self.held.fetch_add(1, Ordering::SeqCst);
            while !self.let_go.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
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

#[test]
fn new_connections_are_served_while_all_workers_are_held() {
    let service = Arc::new(Holds::default());
    let executor =
        ServiceExecutor::start(&ExecutorOptions { workers: 2, ..Default::default() }).unwrap();
    let entry: Arc<dyn ServiceEntryPoint> = service.clone();
    let manager = SessionManager::new(executor.clone(), entry, 100);
    let mut transport = FakeTransport::default();
    transport.setup().unwrap();
    transport.start(&manager).unwrap();
    // Connections are distributed evenly: one for each worker.
    let holding: Vec<_> = (0..2).map(|_| transport.connect().unwrap()).collect();
    for client in &holding {
        client.send(&request(b"h"));
    }
    while service.held.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    // A connection accepted before the detection may be assigned to a blocked worker.
    let served = std::iter::repeat_with(|| transport.connect().unwrap()).take(90).find(|client| {
        client.send(&request(b"p"));
        client.receive(Duration::from_millis(50)).is_some()
    });
    let served = served.unwrap();
    served.send(&request(b"p"));
    assert!(served.receive(PATIENCE).is_some());
    manager.shutdown(Duration::ZERO);
    executor.shutdown();
    service.let_go.store(true, Ordering::SeqCst);
}
