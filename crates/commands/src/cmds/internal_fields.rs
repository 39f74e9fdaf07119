//! Fields that MongoDB's servers send each other and that matter here: they have an effect, or are refused as by a
//! standalone server. Fields without an effect are in `accepted`.

use crate::args::Args;
use kauri_base::{Error, Result, bail};
use kauri_bson::{Elem, Value};

/// `localNow` of `runtimeConstants`, the value of `$$NOW` in milliseconds since 1970.
pub fn runtime_now(args: &Args<'_>, elem: Elem<'_>) -> Result<i64> {
    let constants = args.object(elem)?;
    let args = Args::new("runtimeConstants");
    let (mut now, mut has_cluster_time) = (None, false);
    for field in constants {
        match (field.key(), field.value()) {
            ("localNow", Value::DateTime(ms)) => now = Some(ms),
            ("localNow", _) => return Err(args.wrong_type(field, &["date"])),
            ("clusterTime", Value::Timestamp(_)) => has_cluster_time = true,
            ("clusterTime", _) => return Err(args.wrong_type(field, &["timestamp"])),
            _ => args.accepted(field)?,
        }
    }
    if !has_cluster_time {
        return Err(args.missing("clusterTime"));
    }
    now.ok_or_else(|| args.missing("localNow"))
}

/// `term`: elections need members.
pub fn refuse_term(_term: i64) -> Result<()> {
    bail!(BadValue, "cannot supply 'term' without active replication")
}

/// The error for `querySettings`, which a client may not send; the code depends on the command.
pub fn query_settings(code: i32) -> Error {
    Error::location(code, "BSON field 'querySettings' is an unknown field")
}

/// A field of `aggregate` by which a shard gives a part of the result.
pub fn refuse_of_shards(elem: Elem<'_>, is_set: bool) -> Result<()> {
    if is_set {
        bail!(InvalidOptions, "'{}' is for shards, and this server is none", elem.key());
    }
    Ok(())
}

/// `upsertSupplied`: the router made the document that is to be inserted.
pub fn refuse_supplied(is_set: bool) -> Result<()> {
    if is_set {
        bail!(InvalidOptions, "'upsertSupplied' is for shards, and this server is none");
    }
    Ok(())
}
