//! The commands of replica sets: a standalone server refuses them.

use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::bail;

/// `replSetGetStatus`.
pub const GET_STATUS: Command = replica_set("replSetGetStatus");
/// `replSetGetConfig`.
pub const GET_CONFIG: Command = replica_set("replSetGetConfig");
/// `replSetReconfig`.
pub const RECONFIG: Command = replica_set("replSetReconfig");
/// `replSetStepDown`.
pub const STEP_DOWN: Command = replica_set("replSetStepDown");
/// `replSetFreeze`.
pub const FREEZE: Command = replica_set("replSetFreeze");
/// `replSetMaintenance`.
pub const MAINTENANCE: Command = replica_set("replSetMaintenance");
/// `replSetSyncFrom`.
pub const SYNC_FROM: Command = replica_set("replSetSyncFrom");
/// `replSetInitiate`.
pub const INITIATE: Command = Command { run: refuse_to_initiate, ..replica_set("replSetInitiate") };

const fn replica_set(name: &'static str) -> Command {
    Command::admin(name, "needs a replica set", refuse)
}

fn refuse<'a>(_invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async { bail!(NoReplicationEnabled, "not running with --replSet") })
}

fn refuse_to_initiate<'a>(_invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async {
        bail!(NoReplicationEnabled, "This node was not started with replication enabled.")
    })
}
