//! What an operator tells a member to do: `replSetStepDown`, `replSetStepUp`, `replSetFreeze`,
//! `replSetMaintenance`, `replSetSyncFrom`.

use super::{ask, config_of, member_of};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_member::config::default_port;
use kauri_member::{MemberState, Request};
use std::time::Duration;

/// `replSetStepDown`.
pub const STEP_DOWN: Command =
    Command::admin("replSetStepDown", "makes the primary a secondary", step_down);
/// `replSetStepUp`.
pub const STEP_UP: Command =
    Command::admin("replSetStepUp", "has this member stand for election", step_up);
/// `replSetFreeze`.
pub const FREEZE: Command =
    Command::admin("replSetFreeze", "keeps this member from standing for election", freeze);
/// `replSetMaintenance`.
pub const MAINTENANCE: Command =
    Command::admin("replSetMaintenance", "enters or leaves maintenance", maintenance);
/// `replSetSyncFrom`.
pub const SYNC_FROM: Command =
    Command::admin("replSetSyncFrom", "chooses the member to sync from", sync_from);

/// Seconds that a member does not stand for election after it has stepped down.
const STEP_DOWN_SECS: i64 = 60;
/// Seconds that another member has to catch up meanwhile.
const CATCH_UP_SECS: i64 = 10;

fn seconds(secs: i64) -> Duration {
    Duration::from_secs(secs.clamp(0, i64::from(i32::MAX)) as u64)
}

fn no_more_fields(invocation: &Invocation<'_>) -> Result<()> {
    let args = Args::new(invocation.name);
    invocation.body.iter().skip(1).try_for_each(|elem| args.other(elem))
}

fn step_down<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let member = member_of(invocation.server)?;
        let args = Args::new("replSetStepDown");
        let (mut force, mut catch_up) = (false, None);
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                "force" => force = elem.value().truthy(),
                "secondaryCatchUpPeriodSecs" => catch_up = Some(args.long(elem)?),
                _ => args.other(elem)?,
            }
        }
        let time = match invocation.target()?.value().to_i64_saturating().unwrap_or(0) {
            0 => STEP_DOWN_SECS,
            secs => secs,
        };
        if time < 0 {
            bail!(BadValue, "stepdown period must be a positive integer");
        }
        let catch_up = catch_up.unwrap_or(if force { 0 } else { CATCH_UP_SECS });
        if catch_up < 0 {
            bail!(BadValue, "secondaryCatchUpPeriodSecs period must be a positive or absent");
        }
        if time < catch_up {
            bail!(BadValue, "stepdown period must be longer than secondaryCatchUpPeriodSecs");
        }
        if !member.is_primary() {
            bail!(NotWritablePrimary, "not primary so can't step down");
        }
        let (time, catch_up) = (seconds(time), seconds(catch_up));
        ask(invocation, member, Request::StepDown { time, catch_up, force }).await
    })
}

fn step_up<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let args = Args::new("replSetStepUp");
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                // An election always begins with a look at its chances.
                "skipDryRun" if !elem.value().truthy() => {}
                _ => args.other(elem)?,
            }
        }
        let member = member_of(invocation.server)?;
        config_of(&member.view())?;
        ask(invocation, member, Request::StepUp).await
    })
}

fn freeze<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let member = member_of(invocation.server)?;
        no_more_fields(invocation)?;
        let secs = invocation.target()?.value().to_i64_saturating().unwrap_or(0);
        if secs < 0 {
            bail!(BadValue, "replSetFreeze takes a number of seconds that is not negative");
        }
        config_of(&member.view())?;
        if member.is_primary() {
            bail!(
                NotSecondary,
                "cannot freeze node when primary or running for election. state: Primary"
            );
        }
        match secs {
            0 => invocation.reply.put("info", "unfreezing"),
            1 => invocation.reply.put("warning", "you really want to freeze for only 1 second?"),
            _ => {}
        }
        ask(invocation, member, Request::Freeze(seconds(secs))).await
    })
}

fn maintenance<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let member = member_of(invocation.server)?;
        no_more_fields(invocation)?;
        let wanted = invocation.target()?.value().truthy();
        config_of(&member.view())?;
        match member.standing().0 {
            MemberState::Primary => bail!(NotSecondary, "primaries can't modify maintenance mode"),
            MemberState::Recovering => {}
            _ if !wanted => bail!(OperationFailed, "already out of maintenance mode"),
            _ => {}
        }
        ask(invocation, member, Request::Maintenance(wanted)).await
    })
}

/// Secondaries follow the primary, so no other member can be chosen.
fn sync_from<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let member = member_of(invocation.server)?;
        no_more_fields(invocation)?;
        let target = Args::new("replSetSyncFrom").string(invocation.target()?)?;
        let target = default_port(&target)?;
        let view = member.view();
        let config = config_of(&view)?;
        match view.state {
            MemberState::Primary => bail!(NotSecondary, "primaries don't sync"),
            MemberState::Arbiter => bail!(NotSecondary, "arbiters don't sync"),
            _ => {}
        }
        let Some(at) = config.members.iter().position(|member| member.host == target) else {
            let message = format!("Could not find member \"{target}\" in replica set");
            return Err(Error::new(ErrorCode::NodeNotFound, message));
        };
        if view.me == Some(at) {
            bail!(InvalidOptions, "I cannot sync from myself");
        }
        if config.members.get(at).is_some_and(|member| member.is_arbiter) {
            bail!(InvalidOptions, "Cannot sync from \"{target}\" because it is an arbiter");
        }
        if view.primary != Some(at) {
            bail!(
                InvalidOptions,
                "Cannot sync from \"{target}\" because it is not the primary, which all secondaries sync from"
            );
        }
        invocation.reply.put("syncFromRequested", &target);
        invocation.reply.put("prevSyncTarget", &target);
        Ok(())
    })
}
