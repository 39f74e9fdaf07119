//! The commands of replica sets. A standalone server refuses them.
//!
//! They check their arguments and the member's view, and ask the member's driver for the rest. None of them talks to
//! another member.

pub mod config;
pub mod describe;
pub mod member;
pub mod message;
pub mod quorum;
pub mod status;

use crate::invocation::Invocation;
use crate::server::Server;
use kauri_base::{Error, ErrorCode, OpTime, Result, bail};
use kauri_bson::DocWriter;
use kauri_member::{Member, Request, SetConfig, View};
use std::sync::Arc;

/// This server's member.
fn member_of(server: &Server) -> Result<&Arc<Member>> {
    match &server.member {
        Some(member) => Ok(member),
        None => bail!(NoReplicationEnabled, "not running with --replSet"),
    }
}

/// The configuration in force.
fn config_of(view: &View) -> Result<&Arc<SetConfig>> {
    view.config.as_ref().ok_or_else(|| {
        Error::new(ErrorCode::NotYetInitialized, "no replset config has been received")
    })
}

/// Asks the driver, and waits for its answer.
async fn ask(invocation: &mut Invocation<'_>, member: &Member, request: Request) -> Result<()> {
    invocation.op.wait_for(member.request(request)).await?
}

/// Writes a place of the log: `{ts, t}`.
fn put_optime(out: &mut DocWriter<'_>, field: &str, optime: OpTime) {
    let mut out = out.document(field);
    out.put("ts", optime.timestamp);
    out.put("t", optime.term);
}
