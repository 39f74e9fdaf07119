//! `readConcern`: which data a read may see. A standalone server supports `local` only, and the levels that are
//! equal to it there. A member of a set supports all but `snapshot`.

use crate::concerns::wrong_type;
use crate::registry::{Command, ReadLevels};
use kauri_base::{Result, Timestamp, bail};
use kauri_bson::{Doc, Elem, Value};

const PROVENANCES: &[&str] =
    &["clientSupplied", "implicitDefault", "customDefault", "getLastErrorDefaults"];

/// What a read on a member of a set promises of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    /// Whatever the member has (`local`, `available`).
    #[default]
    Local,
    /// It is kept by the set.
    Majority,
    /// The same, and there is nothing newer.
    Linearizable,
}

/// A parsed read concern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadConcern {
    /// The level.
    pub level: Level,
    /// Whether the client has given a level.
    pub has_level: bool,
    /// The read sees everything up to this time (`afterClusterTime`).
    pub after: Option<Timestamp>,
}

/// Reads a read concern; fails if the command, or this server, does not support it.
pub fn read(command: &Command, elem: Elem<'_>, is_member: bool) -> Result<ReadConcern> {
    let value = elem.value();
    if value.is_nullish() {
        return Ok(ReadConcern::default());
    }
    let mut parsed = ReadConcern::default();
    let Value::Document(concern) = value else {
        return Err(wrong_type("readConcern", elem, "object"));
    };
    let concern = concern.as_doc();
    let level = level(concern)?;
    for field in concern {
        match field.key() {
            "level" => {}
            "afterClusterTime" => {
                let time = timestamp(field)?;
                if time == Timestamp::default() {
                    bail!(InvalidOptions, "afterClusterTime cannot be a null timestamp");
                }
                if is_member && !matches!(level.as_deref(), None | Some("local" | "majority")) {
                    bail!(
                        InvalidOptions,
                        "afterClusterTime field can be set only if level is equal to majority, local, or snapshot"
                    );
                }
                if is_member {
                    parsed.after = Some(time);
                    continue;
                }
                bail!(
                    IllegalOperation,
                    "Cannot specify readConcern afterClusterTime on a server that is not a replica \
                     set member"
                );
            }
            "atClusterTime" => {
                let time = timestamp(field)?;
                if time.seconds == 0 {
                    bail!(InvalidOptions, "atClusterTime cannot be a null timestamp");
                }
                if level.as_deref() != Some("snapshot") {
                    bail!(
                        InvalidOptions,
                        "atClusterTime field can be set only if level is equal to snapshot"
                    );
                }
            }
            "afterOpTime" if is_member => bail!(
                CommandNotSupported,
                "readConcern afterOpTime is for servers of a cluster; use afterClusterTime"
            ),
            "afterOpTime" => bail!(
                IllegalOperation,
                "Cannot specify readConcern afterOpTime on a server that is not a replica set member"
            ),
            "provenance" => check_provenance("readConcern", field)?,
            "allowTransactionTableSnapshot" | "$mayBypass" => {}
            other => bail!(40415, "BSON field 'readConcern.{other}' is an unknown field."),
        }
    }
    if let Some(level) = level.as_deref() {
        check_level(command, level, is_member)?;
        parsed.level = level_of(level).unwrap_or_default();
        parsed.has_level = true;
    }
    Ok(parsed)
}

/// The level of this name.
pub fn level_of(name: &str) -> Option<Level> {
    match name {
        "local" | "available" => Some(Level::Local),
        "majority" => Some(Level::Majority),
        "linearizable" => Some(Level::Linearizable),
        _ => None,
    }
}

fn level(concern: Doc<'_>) -> Result<Option<String>> {
    let Some(field) = concern.get("level") else { return Ok(None) };
    match field.value().lossy() {
        Value::String(level) => Ok(Some(level.into_owned())),
        value if value.is_nullish() => Ok(None),
        _ => Err(wrong_type("readConcern.level", field, "string")),
    }
}

fn check_level(command: &Command, level: &str, is_member: bool) -> Result<()> {
    let refuse = |what: &str| {
        bail!(
            InvalidOptions,
            "Command {} does not support {{ readConcern: {{ level: \"{level}\", provenance: \
             \"clientSupplied\" }} }} :: caused by :: {what} not supported",
            command.name
        )
    };
    match level {
        "local" => Ok(()),
        "available" | "majority" | "linearizable" | "snapshot" => match command.read_levels {
            ReadLevels::Local => refuse("read concern"),
            ReadLevels::AllButSnapshot if level == "snapshot" => refuse("read concern snapshot"),
            _ if matches!(level, "available" | "majority") => Ok(()),
            ReadLevels::AllByRequest => Ok(()),
            _ => check_available(level, is_member),
        },
        other => bail!(
            BadValue,
            "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
        ),
    }
}

/// Fails if this server does not have a level that only members of replica sets may have.
pub fn check_available(level: &str, is_member: bool) -> Result<()> {
    match (is_member, level) {
        (true, "linearizable") => Ok(()),
        (true, _) => bail!(CommandNotSupported, "read concern {level} is not supported"),
        _ => bail!(NotAReplicaSet, "node needs to be a replica set member to use read concern"),
    }
}

fn timestamp(field: Elem<'_>) -> Result<Timestamp> {
    match field.value() {
        Value::Timestamp(time) => Ok(time),
        _ => Err(wrong_type(&format!("readConcern.{}", field.key()), field, "timestamp")),
    }
}

/// Checks the origin of a concern.
pub fn check_provenance(concern: &str, field: Elem<'_>) -> Result<()> {
    match field.value().lossy() {
        Value::String(name) if PROVENANCES.contains(&&*name) => Ok(()),
        Value::String(name) => bail!(
            BadValue,
            "Enumeration value '{name}' for field '{concern}.provenance' is not a valid value."
        ),
        value if value.is_nullish() => Ok(()),
        _ => Err(wrong_type(&format!("{concern}.provenance"), field, "string")),
    }
}
