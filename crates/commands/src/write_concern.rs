//! `writeConcern`: what a write waits for before it is acknowledged.

use crate::args::Args;
use crate::concerns::wrong_type;
use crate::invocation::{WriteConcern, WriteConcernW};
use crate::read_concern::check_provenance;
use crate::registry::Command;
use crate::server::Server;
use kauri_base::{Error, Result, Ticket, bail};
use kauri_bson::{Doc, DocWriter, Elem, Value};
use kauri_storage::{CommitTicket, Durability};

/// Most members that `w` may name.
const MEMBERS_MAX: i64 = 50;

/// Reads a write concern; fails if the command accepts none, or this server cannot satisfy it.
pub fn read(command: &Command, elem: Elem<'_>) -> Result<WriteConcern> {
    let value = elem.value();
    if value.is_nullish() {
        return Ok(WriteConcern::default());
    }
    let Value::Document(doc) = value else {
        return Err(wrong_type("writeConcern", elem, "object"));
    };
    let concern = parse(doc.as_doc())?;
    if !command.write_concern {
        bail!(InvalidOptions, "Command does not support writeConcern");
    }
    Ok(concern)
}

/// What a write waits for before it is acknowledged; `None` if that is so already. `commit`: what it has written.
///
/// Everything that the command may have read must survive a power loss, not only its writes: a duplicate, or a
/// document that needed no change, as in MongoDB.
pub fn awaited(
    server: &Server,
    concern: WriteConcern,
    commit: Option<CommitTicket>,
) -> Option<Ticket> {
    let durability = concern.durability();
    let seen = match durability {
        Durability::Durable => server.backend.engine().newest(),
        Durability::Written => None,
    };
    seen.or(commit)?.ticket(durability).cloned()
}

/// Writes the error of a write that was interrupted while it waited: it is done, and not acknowledged.
pub fn put_error(out: &mut DocWriter<'_>, error: &Error) {
    let mut out = out.document("writeConcernError");
    out.put("code", error.code().number());
    out.put("codeName", error.code().name());
    out.put("errmsg", error.message());
}

fn parse(doc: Doc<'_>) -> Result<WriteConcern> {
    let mut concern = WriteConcern::default();
    let mut fsync = false;
    for field in doc {
        match field.key() {
            "w" => concern.w = members(field)?,
            "j" => concern.journal = flag(field)?,
            "fsync" => fsync = flag(field)?,
            "wtimeout" | "wtimeoutMS" => check_timeout(field)?,
            "provenance" => check_provenance("writeConcern", field)?,
            "getLastError" | "wElectionId" | "wOpTime" => {}
            other => bail!(40415, "BSON field 'writeConcern.{other}' is an unknown field."),
        }
    }
    if concern.journal && fsync {
        bail!(FailedToParse, "fsync and j options cannot be used together");
    }
    concern.journal |= fsync;
    if concern.w == WriteConcernW::None && concern.journal {
        // Who wants the journal wants to hear of it.
        concern.w = WriteConcernW::Members(1);
    }
    Ok(concern)
}

fn flag(field: Elem<'_>) -> Result<bool> {
    let value = field.value();
    match &value {
        Value::Bool(flag) => Ok(*flag),
        Value::Null | Value::Undefined => Ok(false),
        number if number.is_number() => Ok(number.truthy()),
        _ => bail!(
            TypeMismatch,
            "BSON field 'writeConcern.{}' is the wrong type '{}', expected types '[bool, long, \
             int, decimal, double]'",
            field.key(),
            field.ty().alias()
        ),
    }
}

/// A value that is not a number counts as no timeout.
fn check_timeout(field: Elem<'_>) -> Result<()> {
    match field.value().to_i64_saturating() {
        Some(ms) if ms > i64::from(i32::MAX) => {
            bail!(FailedToParse, "wtimeout must be a 32-bit integer, but found {ms}")
        }
        _ => Ok(()),
    }
}

fn members(field: Elem<'_>) -> Result<WriteConcernW> {
    match (field.value().lossy(), field.as_doc()) {
        (Value::String(mode), _) if mode == "majority" => Ok(WriteConcernW::Majority),
        (Value::String(mode), _) => Err(not_replicated(&mode)),
        (Value::Null | Value::Undefined, _) => Err(not_replicated("")),
        (Value::Document(_), Some(tags)) => tagged(tags),
        (value, _) if value.is_number() => number(field, &value),
        _ => bail!(
            FailedToParse,
            "w has to be a number, string, or object; found: {}",
            field.ty().alias()
        ),
    }
}

fn not_replicated(mode: &str) -> kauri_base::Error {
    kauri_base::Error::bad_value(format!(
        "cannot use non-majority 'w' mode \"{mode}\" when a host is not a member of a replica set"
    ))
}

fn number(field: Elem<'_>, value: &Value<'_>) -> Result<WriteConcernW> {
    let members = if value.is_nan() { -1 } else { Args::new("writeConcern").long(field)? };
    match members {
        0 => Ok(WriteConcernW::None),
        1 => Ok(WriteConcernW::Members(1)),
        2..=MEMBERS_MAX => bail!(BadValue, "cannot use 'w' > 1 when a host is not replicated"),
        _ => bail!(
            FailedToParse,
            "w has to be a non-negative number and not greater than {MEMBERS_MAX}; found: {}",
            kauri_bson::shell_value(value)
        ),
    }
}

/// Tags and how many members of each: a server that has no tags has nothing to wait for.
fn tagged(tags: Doc<'_>) -> Result<WriteConcernW> {
    if tags.is_empty() {
        bail!(FailedToParse, "tagged write concern requires tags");
    }
    for tag in tags {
        if !tag.ty().is_number() {
            bail!(
                FailedToParse,
                "tags must be a single level document with only number values; found: {}",
                tag.ty().alias()
            );
        }
    }
    Ok(WriteConcernW::Members(1))
}
