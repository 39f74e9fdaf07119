//! Read concerns on a member of a set: what a read waits for before and after it reads.
//!
//! `majority` reads whatever is there, and then waits until the set keeps it. No old versions are held for it.
//! A secondary applies only what the set keeps, so it does not wait; one that was the primary may have more, and fails.

use crate::invocation::Invocation;
use crate::read_concern::Level;
use kauri_base::{Result, bail};
use kauri_member::{Concern, Request};

/// Waits until the read may begin. Returns the term, if the level asks for one.
pub async fn begin(invocation: &mut Invocation<'_>) -> Result<i64> {
    let server = invocation.server;
    let Some(member) = &server.member else { return Ok(0) };
    let mut term = 0;
    if invocation.read_concern.level == Level::Linearizable {
        let view = member.view();
        term = view.term;
        if !view.is_writable {
            bail!(
                NotWritablePrimary,
                "cannot satisfy linearizable read concern on non-primary node"
            );
        }
    }
    let Some(after) = invocation.read_concern.after else { return Ok(term) };
    let now = member.cluster_time();
    if after > now {
        bail!(
            InvalidOptions,
            "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested \
             clusterTime: {{ ts: Timestamp({}, {}) }}; current clusterTime: {{ ts: Timestamp({}, {}) }}",
            after.seconds,
            after.increment,
            now.seconds,
            now.increment
        );
    }
    if member.operation_time(server.backend.engine().visible()) < after {
        invocation.op.wait_for(member.request(Request::Reach(after))).await??;
    }
    Ok(term)
}

/// Waits until what was read may be told. `term`: what [`begin`] has answered.
pub async fn end(invocation: &mut Invocation<'_>, term: i64) -> Result<()> {
    let server = invocation.server;
    let Some(member) = &server.member else { return Ok(()) };
    let level = invocation.read_concern.level;
    if level == Level::Local {
        return Ok(());
    }
    let seen = server.backend.engine().visible();
    if let Some(ticket) = member.acknowledged(seen, &Concern::Majority)? {
        invocation.worker.want_tick_end();
        invocation.op.wait_for(ticket).await??;
    }
    if level == Level::Linearizable {
        invocation.op.wait_for(member.request(Request::ConfirmPrimary)).await??;
        if member.view().term != term {
            bail!(PrimarySteppedDown, "the member was not the primary all the time of the read");
        }
    }
    Ok(())
}
