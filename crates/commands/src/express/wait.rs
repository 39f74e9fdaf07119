//! The wait of a write on the express path whose log takes longer than a tick. It has an entry among the running
//! operations, so that `killOp`, `maxTimeMS` and `$currentOp` apply to it.
//!
//! The entry is filled by reading the request again. So a write that waits only for the end of its tick pays
//! nothing.

use super::{Common, parse};
use crate::client::Client;
use crate::dispatch::settle;
use crate::ops::{Entered, Entering};
use crate::registry::{self, Asked};
use crate::server::Server;
use crate::set::reply::{RETRYABLE, is_retryable};
use crate::set::write_wait;
use crate::time_limit;
use crate::write_concern::WriteConcern;
use kauri_base::operation::OperationState;
use kauri_base::{Error, OperationContext, Ticket};
use kauri_bson::{Doc, DocWriter};
use kauri_transport::{Outcome, ReplyBuf, RequestContext};
use kauri_wire::{Header, MsgWriter, OpMsg};
use std::sync::Arc;

/// Waits for the log, and settles the request. A write that is to end before is done all the same; its reply
/// says that it was not waited for, as that of the ordinary path does.
pub(crate) async fn wait_longer(
    server: &Arc<Server>,
    mut cx: RequestContext<'_>,
    request: &[u8],
    reply: &mut ReplyBuf,
    ticket: Ticket,
) -> Outcome {
    let state = Arc::new(OperationState::new(server.operations.next_id()));
    let mut op = OperationContext::new(state.clone(), server.clock.clone());
    let (_running, concern) = enter(server, &mut cx, request, &op).unzip();
    // Off sets a time limit for other members limits nothing.
    let concern = concern.filter(|_| server.member.is_some()).unwrap_or_default();
    let work = op.wait_for(write_wait::within(cx.worker, &concern, ticket));
    let waited = time_limit::watch(cx.worker, &state, &*server.clock, work).await;
    if let Err(interrupted) = &waited {
        put_error(server, request, reply, interrupted);
    }
    settle(server, &mut cx, request, reply, waited.unwrap_or(Ok(())))
}

/// Enters the operation, with its time limit. The limit counts from here: what came before took about a tick.
fn enter(
    server: &Server,
    cx: &mut RequestContext<'_>,
    request: &[u8],
    op: &OperationContext,
) -> Option<(Entered, WriteConcern)> {
    let body = parse(request)?.body;
    let first = body.first()?;
    let entry = *registry::by_name().get(first.key())?;
    let mut common = Common::begin(server, entry, first)?;
    for elem in body.iter().skip(1) {
        // Fields of the command itself are not in common.
        let _ = common.take(elem);
    }
    if let Some(limit) = common.time_limit {
        op.set_deadline(limit);
    }
    let client = cx.state.downcast_mut::<Client>()?;
    let entered = client.seat.enter(Entering {
        state: op.state().clone(),
        command: entry.command,
        asked: Asked { db: common.db, body },
        started_ns: cx.received_ns,
        lsid: common.session,
    });
    Some((entered, common.write_concern))
}

/// Adds a write concern error to the reply to a request, which is written.
pub(crate) fn put_error(server: &Server, request: &[u8], reply: &mut ReplyBuf, error: &Error) {
    let is_numbered = parse(request).is_some_and(|request| request.body.get("txnNumber").is_some());
    let out = reply.buffer();
    let written = std::mem::take(out);
    let Some(header) = Header::parse(&written) else { return };
    let message = MsgWriter::begin(out, header.request_id, header.response_to, 0);
    {
        let mut body = DocWriter::new(out);
        let answer = OpMsg::parse(&written).ok().and_then(|msg| Doc::from_bytes(msg.body).ok());
        for elem in answer.unwrap_or(Doc::EMPTY).iter().filter(|elem| elem.key() != "ok") {
            body.put_elem(elem);
        }
        if is_numbered && is_retryable(error.code()) {
            body.array("errorLabels").push(RETRYABLE);
        }
        write_wait::put_error(&mut body, server, error);
        body.put("ok", 1.0);
    }
    // So short a message always fits.
    let _ = message.finish(out);
}
