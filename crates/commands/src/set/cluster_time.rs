//! `$clusterTime` of a request: the newest time that its client has heard of.

use crate::concerns::wrong_type;
use crate::server::Server;
use kauri_base::{Error, ErrorCode, Result, Timestamp, bail};
use kauri_bson::{Elem, Value};

/// How far ahead of the clock a time may be: a year.
const AHEAD_SECS_MAX: i64 = 365 * 24 * 60 * 60;

/// The time that a request tells of.
pub fn parse(elem: Elem<'_>) -> Result<Timestamp> {
    let Value::Document(told) = elem.value() else {
        return Err(wrong_type("$clusterTime", elem, "object"));
    };
    let Some(time) = told.as_doc().get("clusterTime") else {
        return Err(Error::new(ErrorCode::NoSuchKey, "Missing expected field \"clusterTime\""));
    };
    match time.value() {
        Value::Timestamp(time) => Ok(time),
        _ => Err(wrong_type("$clusterTime.clusterTime", time, "timestamp")),
    }
}

/// Advances the time of this member; fails if the other time is too far ahead.
pub fn accept(server: &Server, time: Timestamp) -> Result<()> {
    let Some(member) = &server.member else { return Ok(()) };
    // Nothing to check where nothing is new.
    if time <= member.cluster_time() {
        return Ok(());
    }
    let (told, now) = (i64::from(time.seconds), server.clock.unix_ms() / 1000);
    if told - now > AHEAD_SECS_MAX {
        bail!(
            ClusterTimeFailsRateLimiter,
            "New clusterTime, {told}, is too far from this node's wall clock time, {now}."
        );
    }
    if time.seconds > i32::MAX as u32 {
        bail!(40484, "clusterTime cannot be advanced beyond its maximum value");
    }
    member.advance_cluster_time(time);
    Ok(())
}
