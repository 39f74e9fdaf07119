//! The proxy as a service of the transport: each driver's connection is a session, whose requests are passed on.

use crate::relay::{Common, Driver, Relay};
use kauri_transport::{
    ClientState, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint, SessionInfo,
};
use std::any::Any;
use std::sync::Arc;

/// See the module's head.
pub struct Service(pub Common);

impl ServiceEntryPoint for Service {
    fn start_session(&self, _: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(Driver::default())
    }

    fn handle_request<'a>(
        &'a self,
        cx: RequestContext<'a>,
        request: &'a [u8],
        reply: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        let RequestContext { session, state, liveness, worker, .. } = cx;
        let Some(driver) = (state as &mut dyn Any).downcast_mut::<Driver>() else {
            return Box::pin(std::future::ready(Outcome::Close));
        };
        let relay = Relay { common: &self.0, driver, info: session, liveness, worker, reply };
        Box::pin(relay.run(request))
    }

    fn end_session(&self, session: &Arc<SessionInfo>, state: Box<dyn ClientState>) {
        if let Ok(driver) = (state as Box<dyn Any>).downcast::<Driver>() {
            driver.leave(&self.0, session);
        }
    }
}
