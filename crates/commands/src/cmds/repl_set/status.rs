//! `replSetGetStatus`: the set as this member sees it.

use super::{config_of, describe, member_of, put_optime};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use crate::server::Server;
use kauri_base::{Timestamp, bail};
use kauri_bson::{DocBuf, DocWriter, Value};
use kauri_member::initial_sync::receiver::Progress as SyncProgress;
use kauri_member::view::Place;
use kauri_member::{Member, MemberConfig, MemberState, PeerStatus, Progress, SetConfig, View};

/// See the module's head.
pub const COMMAND: Command =
    Command::admin("replSetGetStatus", "returns the status of the replica set", run);

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let server = invocation.server;
        let member = member_of(server)?;
        let args = Args::new("replSetGetStatus");
        for elem in invocation.body.iter().skip(1) {
            match elem.key() {
                // The statistics of an initial sync that has ended are not kept.
                "initialSync" => {}
                _ => args.other(elem)?,
            }
        }
        let view = member.view();
        let config = config_of(&view)?;
        if describe::place(&view).is_none() {
            bail!(
                InvalidReplicaSetConfig,
                "Our replica set config is invalid or we are not a member of it"
            );
        }
        write(&mut invocation.reply, server, member, (&view, config));
        Ok(())
    })
}

/// The reply, for samples of monitoring data. `None`: this server is not a member of a set.
pub fn sample(server: &Server) -> Option<DocBuf> {
    let member = server.member.as_ref()?;
    let view = member.view();
    describe::place(&view)?;
    let config = view.config.as_deref()?;
    Some(DocBuf::build(|out| write(out, server, member, (&view, config))))
}

/// The member that this one follows.
fn source(view: &View, config: &SetConfig) -> (String, i32) {
    let follows = view.state != MemberState::Primary && view.primary != view.me;
    let source = view.primary.filter(|_| follows).and_then(|at| config.members.get(at));
    source.map_or((String::new(), -1), |source| (source.host.clone(), i32::from(source.id)))
}

fn write(
    out: &mut DocWriter<'_>,
    server: &Server,
    member: &Member,
    (view, config): (&View, &SetConfig),
) {
    let (progress, now) = (member.progress(), server.clock.unix_ms());
    out.put("set", member.set_name());
    out.put("date", Value::DateTime(now));
    out.put("myState", view.state as i32);
    out.put("term", view.term);
    let (host, id) = source(view, config);
    out.put("syncSourceHost", host);
    out.put("syncSourceId", id);
    out.put("heartbeatIntervalMillis", config.settings.heartbeat_interval_ms);
    out.put("majorityVoteCount", config.majority() as i32);
    out.put("writeMajorityCount", config.majority().min(config.writable_voters()) as i32);
    out.put("votingMembersCount", config.voters() as i32);
    out.put("writableVotingMembersCount", config.writable_voters() as i32);
    write_optimes(&mut out.document("optimes"), &progress);
    write_election(out, view, config);
    if let Some(sync) = member.sync_progress() {
        write_initial_sync(&mut out.document("initialSyncStatus"), &sync, now);
    }
    if view.is_too_stale {
        out.put("tooStale", true);
    }
    let peers = member.peers();
    let mut list = out.array("members");
    for (at, of) in config.members.iter().enumerate() {
        let mut out = list.document();
        if view.me == Some(at) {
            let up = (now - server.start.started_ms).max(0) / 1000;
            write_self(&mut out, (view, config, of), member, up);
        } else {
            let peer = peers.iter().find(|peer| peer.member == at);
            write_peer(&mut out, (view, of), peer, now);
        }
    }
}

fn write_optimes(out: &mut DocWriter<'_>, progress: &Progress) {
    put_optime(out, "lastCommittedOpTime", progress.committed.optime);
    out.put("lastCommittedWallTime", Value::DateTime(progress.committed.wall_ms));
    put_optime(out, "readConcernMajorityOpTime", progress.committed.optime);
    out.put("readConcernMajorityWallTime", Value::DateTime(progress.committed.wall_ms));
    put_optime(out, "appliedOpTime", progress.applied.optime);
    put_optime(out, "durableOpTime", progress.durable.optime);
    put_optime(out, "writtenOpTime", progress.written.optime);
    out.put("lastAppliedWallTime", Value::DateTime(progress.applied.wall_ms));
    out.put("lastDurableWallTime", Value::DateTime(progress.durable.wall_ms));
    out.put("lastWrittenWallTime", Value::DateTime(progress.written.wall_ms));
}

/// An initial sync that is under way.
fn write_initial_sync(out: &mut DocWriter<'_>, sync: &SyncProgress, now: i64) {
    let elapsed = (now - sync.began_ms).max(0);
    out.put("syncSourceHost", &sync.source);
    out.put("initialSyncStart", Value::DateTime(sync.began_ms));
    out.put("totalInitialSyncElapsedMillis", elapsed);
    let left = sync.bytes.saturating_sub(sync.copied) as f64;
    if sync.copied > 0 {
        let left_ms = elapsed as f64 * left / sync.copied as f64;
        out.put("remainingInitialSyncEstimatedMillis", left_ms as i64);
    }
    out.put("approxTotalDataSize", sync.bytes as i64);
    out.put("approxTotalBytesCopied", sync.copied as i64);
}

/// The election that this member has won.
fn write_election(out: &mut DocWriter<'_>, view: &View, config: &SetConfig) {
    let Some((when, _)) = view.elected.filter(|_| view.state == MemberState::Primary) else {
        return;
    };
    let mut out = out.document("electionCandidateMetrics");
    out.put("lastElectionDate", Value::DateTime(when));
    out.put("electionTerm", view.term);
    out.put("numVotesNeeded", config.majority() as i32);
    let priority = view.me.and_then(|me| config.members.get(me)).map_or(0.0, |me| me.priority);
    out.put("priorityAtElection", priority);
    out.put("electionTimeoutMillis", config.settings.election_timeout_ms);
}

fn write_identity(out: &mut DocWriter<'_>, of: &MemberConfig, state: MemberState, up: i64) {
    let is_healthy = !matches!(state, MemberState::Down | MemberState::Unknown);
    out.put("_id", i32::from(of.id));
    out.put("name", &of.host);
    out.put("health", if is_healthy { 1.0 } else { 0.0 });
    out.put("state", state as i32);
    out.put("stateStr", state.name());
    out.put("uptime", up as i32);
}

fn write_place(out: &mut DocWriter<'_>, suffix: &str, place: Place) {
    put_optime(out, &format!("optime{suffix}"), place.optime);
    let ms = i64::from(place.optime.timestamp.seconds) * 1000;
    out.put(&format!("optime{suffix}Date"), Value::DateTime(ms));
}

fn write_self(
    out: &mut DocWriter<'_>,
    (view, config, of): (&View, &SetConfig, &MemberConfig),
    member: &Member,
    up: i64,
) {
    let progress = member.progress();
    write_identity(out, of, view.state, up);
    if !of.is_arbiter {
        write_place(out, "", progress.applied);
        out.put("lastAppliedWallTime", Value::DateTime(progress.applied.wall_ms));
        out.put("lastDurableWallTime", Value::DateTime(progress.durable.wall_ms));
    }
    let (host, id) = source(view, config);
    out.put("syncSourceHost", host);
    out.put("syncSourceId", id);
    let failure = member.failure().map(|why| format!("cannot write its log: {why}"));
    out.put("infoMessage", failure.unwrap_or_default());
    if let Some((when, time)) = view.elected.filter(|_| view.state == MemberState::Primary) {
        write_elected(out, when, time);
    }
    out.put("configVersion", config.version as i32);
    out.put("configTerm", config.term);
    out.put("self", true);
    out.put("lastHeartbeatMessage", "");
}

fn write_elected(out: &mut DocWriter<'_>, when: i64, time: Timestamp) {
    out.put("electionTime", time);
    out.put("electionDate", Value::DateTime(when));
}

fn write_peer(
    out: &mut DocWriter<'_>,
    (view, of): (&View, &MemberConfig),
    peer: Option<&PeerStatus>,
    now: i64,
) {
    let unknown = PeerStatus { state: MemberState::Unknown, ..PeerStatus::default() };
    let peer = peer.unwrap_or(&unknown);
    let up = if peer.up_since_ms > 0 { (now - peer.up_since_ms).max(0) / 1000 } else { 0 };
    write_identity(out, of, peer.state, up);
    if !of.is_arbiter {
        write_place(out, "", peer.applied);
        write_place(out, "Durable", peer.durable);
        out.put("lastAppliedWallTime", Value::DateTime(peer.applied.wall_ms));
        out.put("lastDurableWallTime", Value::DateTime(peer.durable.wall_ms));
    }
    out.put("lastHeartbeat", Value::DateTime(peer.answered_ms));
    out.put("lastHeartbeatRecv", Value::DateTime(peer.heard_ms));
    out.put("pingMs", (peer.ping_us / 1000) as i64);
    out.put("lastHeartbeatMessage", &peer.error);
    let primary = view.config.as_deref().zip(view.primary);
    let source = primary.and_then(|(config, at)| config.members.get(at));
    let source = source.filter(|source| source.id != of.id && !of.is_arbiter);
    out.put("syncSourceHost", source.map_or("", |source| source.host.as_str()));
    out.put("syncSourceId", source.map_or(-1, |source| i32::from(source.id)));
    out.put("infoMessage", "");
    if let Some((when, time)) = peer.elected.filter(|_| peer.state == MemberState::Primary) {
        write_elected(out, when, time);
    }
    out.put("configVersion", peer.config.0 as i32);
    out.put("configTerm", peer.config.1);
}
