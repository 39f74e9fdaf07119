//! The wait of a write before it is acknowledged: for the local log on a server alone, for the set on a member.
//!
//! Invariant: a member acknowledges nothing that the set has not committed.

use crate::invocation::Invocation;
use crate::server::Server;
use crate::set::reply;
use crate::write_concern::{WriteConcern, WriteConcernW};
use kauri_base::{CommitSeq, Error, ErrorCode, Result, Ticket};
use kauri_bson::{Doc, DocBuf, DocWriter};
use kauri_member::{Concern, Member};
use kauri_storage::{CommitTicket, Durability};
use kauri_transport::WorkerHandle;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// What a write on a server alone waits for before it is acknowledged; `None` if that is so already. `commit`: what
/// it has written.
///
/// Everything that the command may have read must survive a power loss, not only its writes: a duplicate, or a
/// document that needed no change, as in MongoDB.
pub fn awaited(
    server: &Server,
    concern: &WriteConcern,
    commit: Option<CommitTicket>,
) -> Option<Ticket> {
    let durability = concern.durability();
    let seen = match durability {
        Durability::Durable => server.backend.engine().newest(),
        Durability::Written => None,
    };
    seen.or(commit)?.ticket(durability).cloned()
}

/// The same on a member of a set: the tickets in order. Fails if the set can never satisfy the concern. Only numbers
/// of members and modes have a second ticket.
pub fn awaited_of_set(
    server: &Server,
    member: &Member,
    concern: &WriteConcern,
    commit: Option<CommitSeq>,
) -> Result<[Option<Ticket>; 2]> {
    let durable = concern.journal;
    let more = match &concern.w {
        WriteConcernW::None => return Ok([None, None]),
        WriteConcernW::Members(1) => None,
        WriteConcernW::Members(count) => {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            if let Some(config) = &member.view().config {
                config.check_count(count)?;
            }
            Some(Concern::Members { count, durable })
        }
        WriteConcernW::Majority => None,
        WriteConcernW::Mode(mode) => {
            let config = member.view().config.clone().ok_or_else(not_yet_initiated)?;
            config.check_tags(mode)?;
            Some(Concern::Tagged { values: config.tags_of(mode)?.clone(), durable })
        }
    };
    let is_durable = durable || concern.w == WriteConcernW::Majority;
    // A write that has changed nothing waits for what it has seen, unless it is content with this member.
    let seen = (is_durable || more.is_some()).then(|| server.backend.engine().visible());
    let Some(seq) = seen.or(commit) else { return Ok([None, None]) };
    let first = if is_durable { Concern::Majority } else { Concern::Committed };
    let more = more.map(|more| member.acknowledged(seq, &more)).transpose()?;
    Ok([member.acknowledged(seq, &first)?, more.flatten()])
}

fn not_yet_initiated() -> Error {
    Error::new(ErrorCode::NotYetInitialized, "no replset config has been received")
}

/// Waits, on a member, until a write may be acknowledged, or its time is over.
pub async fn wait_for_set(
    invocation: &mut Invocation<'_>,
    member: &Member,
    commit: Option<CommitSeq>,
) -> Result<()> {
    let concern = invocation.write_concern.clone();
    let tickets = awaited_of_set(invocation.server, member, &concern, commit)
        .map_err(|error| of_concern(error, &concern, false))?;
    if tickets.iter().any(Option::is_some) {
        invocation.worker.want_tick_end();
        let work = within(invocation.worker, &concern, async {
            for ticket in tickets.into_iter().flatten() {
                ticket.await.map_err(|error| of_concern(error, &concern, false))?;
            }
            Ok(())
        });
        invocation.op.wait_for(work).await??;
    }
    Ok(())
}

/// Waits for the work, but no longer than the concern says.
pub async fn within(
    worker: &WorkerHandle,
    concern: &WriteConcern,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let mut work = pin!(work);
    let mut timer = concern.timeout.map(|time| worker.sleep(time));
    poll_fn(|cx| {
        if let Poll::Ready(result) = work.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        match &mut timer {
            Some(timer) => Pin::new(timer).poll(cx).map(|_| Err(timed_out(concern))),
            None => Poll::Pending,
        }
    })
    .await
}

fn timed_out(concern: &WriteConcern) -> Error {
    let error = Error::new(ErrorCode::WriteConcernTimeout, "waiting for replication timed out");
    of_concern(error, concern, true)
}

/// The error with the concern that was not satisfied.
fn of_concern(error: Error, concern: &WriteConcern, is_late: bool) -> Error {
    let extra = DocBuf::build(|out| {
        let mut info = out.document("errInfo");
        if is_late {
            info.put("wtimeout", true);
        }
        let mut written = info.document("writeConcern");
        concern.write(&mut written);
        written.put("provenance", if concern.has_w { "clientSupplied" } else { "implicitDefault" });
    });
    error.with_extra(extra.into_vec())
}

/// Writes the error of a write that was not waited for to the end: it is done, and not acknowledged.
pub fn put_error(out: &mut DocWriter<'_>, server: &Server, error: &Error) {
    {
        let mut out = out.document("writeConcernError");
        out.put("code", error.code().number());
        out.put("codeName", error.code().name());
        out.put("errmsg", error.message());
        if let Some(extra) = error.extra().and_then(|extra| Doc::from_bytes(extra).ok()) {
            out.put_all(extra);
        }
    }
    reply::put_topology_version(out, server, error.code());
}
