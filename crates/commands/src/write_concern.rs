//! `writeConcern`: what a write waits for before it is acknowledged.

use crate::args::Args;
use crate::concerns::wrong_type;
use crate::read_concern::check_provenance;
use crate::registry::Command;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocWriter, Elem, Value};
use kauri_member::WriteMode;
use kauri_storage::Durability;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most members that `w` may name.
const MEMBERS_MAX: i64 = 50;

/// The members that a write waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteConcernW {
    /// No acknowledgement at all (`w: 0`).
    None,
    /// This many members; 1 is this one.
    Members(i64),
    /// `majority`.
    Majority,
    /// Members with these tags.
    Mode(Arc<WriteMode>),
}

/// A parsed write concern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteConcern {
    /// Number of members.
    pub w: WriteConcernW,
    /// Whether the journal (here: the log) must be durable.
    pub journal: bool,
    /// How long a write waits for other members; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Whether the client has given `w`.
    pub has_w: bool,
}

impl Default for WriteConcern {
    fn default() -> Self {
        WriteConcern { w: WriteConcernW::Members(1), journal: false, timeout: None, has_w: false }
    }
}

impl WriteConcern {
    /// That of a majority, whatever the client's default.
    pub fn majority() -> WriteConcern {
        WriteConcern { w: WriteConcernW::Majority, has_w: true, ..WriteConcern::default() }
    }

    /// The durability that this member's log must reach before the acknowledgement.
    pub fn durability(&self) -> Durability {
        if self.journal || self.w == WriteConcernW::Majority {
            Durability::Durable
        } else {
            Durability::Written
        }
    }

    /// Takes from the default what the client has not given.
    pub fn complete(&mut self, default: &WriteConcern) {
        if !self.has_w {
            self.w = default.w.clone();
            self.journal |= default.journal;
            self.timeout = self.timeout.or(default.timeout);
        }
    }

    /// Writes its document.
    pub fn write(&self, out: &mut DocWriter<'_>) {
        match &self.w {
            WriteConcernW::None => out.put("w", 0),
            WriteConcernW::Members(members) => out.put("w", *members as i32),
            WriteConcernW::Majority => out.put("w", "majority"),
            WriteConcernW::Mode(mode) => match &**mode {
                WriteMode::Named(name) => out.put("w", name),
                WriteMode::Tags(tags) => {
                    let mut out = out.document("w");
                    tags.iter().for_each(|(tag, count)| out.put(tag, *count));
                }
            },
        }
        if self.journal {
            out.put("j", true);
        }
        out.put("wtimeout", self.timeout.map_or(0, |time| time.as_millis() as i32));
    }
}

/// Reads a write concern; fails if the command accepts none, or no server of this kind can satisfy it. `is_member`:
/// this server is a member of a set.
pub fn read(command: &Command, elem: Elem<'_>, is_member: bool) -> Result<WriteConcern> {
    let value = elem.value();
    if value.is_nullish() {
        return Ok(WriteConcern::default());
    }
    let Value::Document(doc) = value else {
        return Err(wrong_type("writeConcern", elem, "object"));
    };
    let concern = parse(doc.as_doc(), is_member)?;
    if !command.write_concern {
        bail!(InvalidOptions, "Command does not support writeConcern");
    }
    Ok(concern)
}

/// Parses the document of a write concern.
pub fn parse(doc: Doc<'_>, is_member: bool) -> Result<WriteConcern> {
    let mut concern = WriteConcern::default();
    let mut fsync = false;
    for field in doc {
        match field.key() {
            "w" => {
                concern.w = members(field, is_member)?;
                concern.has_w = true;
            }
            "j" => concern.journal = flag(field)?,
            "fsync" => fsync = flag(field)?,
            "wtimeout" | "wtimeoutMS" => concern.timeout = timeout(field)?,
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
fn timeout(field: Elem<'_>) -> Result<Option<Duration>> {
    match field.value().to_i64_saturating() {
        Some(ms) if ms > i64::from(i32::MAX) => {
            bail!(FailedToParse, "wtimeout must be a 32-bit integer, but found {ms}")
        }
        Some(ms) if ms > 0 => Ok(Some(Duration::from_millis(ms as u64))),
        _ => Ok(None),
    }
}

fn members(field: Elem<'_>, is_member: bool) -> Result<WriteConcernW> {
    let named = |name: &str| WriteConcernW::Mode(Arc::new(WriteMode::Named(name.to_owned())));
    match (field.value().lossy(), field.as_doc()) {
        (Value::String(mode), _) if mode == "majority" => Ok(WriteConcernW::Majority),
        (Value::String(mode), _) if is_member => Ok(named(&mode)),
        (Value::String(mode), _) => Err(not_replicated(&mode)),
        (Value::Null | Value::Undefined, _) if is_member => Ok(named("")),
        (Value::Null | Value::Undefined, _) => Err(not_replicated("")),
        (Value::Document(_), Some(tags)) => tagged(tags, is_member),
        (value, _) if value.is_number() => number(field, &value, is_member),
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

fn number(field: Elem<'_>, value: &Value<'_>, is_member: bool) -> Result<WriteConcernW> {
    let members = if value.is_nan() { -1 } else { Args::new("writeConcern").long(field)? };
    match members {
        0 => Ok(WriteConcernW::None),
        1 => Ok(WriteConcernW::Members(1)),
        2..=MEMBERS_MAX if is_member => Ok(WriteConcernW::Members(members)),
        2..=MEMBERS_MAX => bail!(BadValue, "cannot use 'w' > 1 when a host is not replicated"),
        _ => bail!(
            FailedToParse,
            "w has to be a non-negative number and not greater than {MEMBERS_MAX}; found: {}",
            kauri_bson::shell_value(value)
        ),
    }
}

/// Tags and how many of their values: a server without tags has nothing to wait for.
fn tagged(tags: Doc<'_>, is_member: bool) -> Result<WriteConcernW> {
    if tags.is_empty() {
        bail!(FailedToParse, "tagged write concern requires tags");
    }
    let mut counts = BTreeMap::new();
    for tag in tags {
        let Some(count) = tag.value().to_i64_saturating().filter(|_| tag.ty().is_number()) else {
            bail!(
                FailedToParse,
                "tags must be a single level document with only number values; found: {}",
                tag.ty().alias()
            );
        };
        if counts.len() as i64 == MEMBERS_MAX {
            bail!(FailedToParse, "tagged write concern has more than {MEMBERS_MAX} tags");
        }
        counts.insert(tag.key().to_owned(), count.clamp(0, MEMBERS_MAX + 1) as i32);
    }
    match is_member {
        true => Ok(WriteConcernW::Mode(Arc::new(WriteMode::Tags(counts)))),
        false => Ok(WriteConcernW::Members(1)),
    }
}
