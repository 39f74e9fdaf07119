//! The service entry point: the transport passes messages to it.

use crate::client::Client;
use crate::dispatch;
use crate::express;
use crate::server::Server;
use kauri_base::{ErrorCode, Result, Ticket};
use kauri_transport::{
    ClientState, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint, SessionInfo, Tried,
};
use std::sync::Arc;

/// The commands, behind the transports.
pub struct CommandService {
    server: Arc<Server>,
}

impl CommandService {
    /// Serves this server's data.
    pub fn new(server: Arc<Server>) -> Self {
        server.plans.set_host(&server.start.host);
        CommandService { server }
    }
}

impl ServiceEntryPoint for CommandService {
    fn start_session(&self, session: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(Client { seat: self.server.operations.seat(session), ..Client::default() })
    }

    fn try_handle(
        &self,
        cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        express::try_handle(&self.server, cx, request, reply)
    }

    fn settle(
        &self,
        cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
        result: Result<()>,
    ) -> Outcome {
        dispatch::settle(&self.server, cx, request, reply, result)
    }

    fn wait_longer<'a>(
        &'a self,
        cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
        ticket: Ticket,
    ) -> Handling<'a> {
        Box::pin(express::wait_longer(&self.server, cx, request, reply, ticket))
    }

    fn handle_request<'a>(
        &'a self,
        cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        Box::pin(dispatch::handle(&self.server, cx, request, reply))
    }

    fn end_operations(&self) {
        self.server.operations.kill_where(ErrorCode::InterruptedAtShutdown, |_| true);
    }

    fn end_session(&self, _session: &Arc<SessionInfo>, _state: Box<dyn ClientState>) {}
}
