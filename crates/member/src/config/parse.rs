//! The configuration as a document.

use super::{MEMBERS_MAX, MemberConfig, SetConfig, Settings, VERSION_MAX, default_port};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Value};
use std::collections::BTreeMap;

/// Names of modes, tags of a member or of a mode, at most.
const TAGS_MAX: usize = 100;
/// The greatest priority.
const PRIORITY_MAX: f64 = 1000.0;
/// The longest delay: a leap year.
const DELAY_SECS_MAX: i64 = 3600 * 24 * 366;

/// The structure that fields belong to, for messages.
#[derive(Clone, Copy)]
struct Of(&'static str);

impl Of {
    fn wrong_type(self, elem: Elem<'_>, expected: &str) -> Error {
        Error::type_mismatch(format!(
            "BSON field '{}.{}' is the wrong type '{}', expected {expected}",
            self.0,
            elem.key(),
            elem.ty().alias()
        ))
    }

    fn unknown(self, elem: Elem<'_>) -> Error {
        let message = format!("BSON field '{}.{}' is an unknown field.", self.0, elem.key());
        Error::location(40415, message)
    }

    fn missing(self, field: &str) -> Error {
        let message = format!("BSON field '{}.{field}' is missing but a required field", self.0);
        Error::location(40414, message)
    }

    fn text(self, elem: Elem<'_>) -> Result<String> {
        match elem.value() {
            Value::String(text) => Ok(text.into_owned()),
            _ => Err(self.wrong_type(elem, "type 'string'")),
        }
    }

    fn object<'d>(self, elem: Elem<'d>) -> Result<Doc<'d>> {
        match (elem.value(), elem.as_doc()) {
            (Value::Document(_), Some(doc)) => Ok(doc),
            _ => Err(self.wrong_type(elem, "type 'object'")),
        }
    }

    fn flag(self, elem: Elem<'_>) -> Result<bool> {
        match elem.value() {
            Value::Bool(flag) => Ok(flag),
            value if value.is_number() => Ok(value.truthy()),
            _ => Err(self.wrong_type(elem, "types '[bool, long, int, decimal, double]'")),
        }
    }

    fn number(self, elem: Elem<'_>) -> Result<f64> {
        match elem.value().as_f64_lossy() {
            Some(number) if elem.value().is_number() => Ok(number),
            _ => Err(self.wrong_type(elem, "types '[long, int, decimal, double]'")),
        }
    }

    /// A whole number of this range.
    fn whole(self, elem: Elem<'_>, least: i64, most: i64) -> Result<i64> {
        let number = self.number(elem)?;
        let whole = elem.value().to_i64_saturating().unwrap_or(0);
        let outside = |sign: &str, limit: i64| {
            Err(Error::bad_value(format!(
                "BSON field '{}' value must be {sign} {limit}, actual value '{whole}'",
                elem.key()
            )))
        };
        match () {
            () if number.is_nan() || whole < least => outside(">=", least),
            () if whole > most => outside("<=", most),
            () => Ok(whole),
        }
    }
}

impl SetConfig {
    /// Reads the document. Members that can be no set are [`SetConfig::validate`]'s to find.
    pub fn parse(config: Doc<'_>) -> Result<SetConfig> {
        let of = Of("ReplSetConfig");
        let (mut name, mut version, mut members) = (None, None, None);
        let mut parsed = SetConfig::alone("", "", [0; 12]);
        for elem in config.iter().filter(|elem| !elem.value().is_nullish()) {
            match elem.key() {
                "_id" => name = Some(of.text(elem)?),
                "version" => version = Some(of.whole(elem, 1, VERSION_MAX)?),
                "term" => parsed.term = of.whole(elem, -1, i64::MAX)?,
                "members" => members = Some(parse_members(of, elem)?),
                "settings" => parsed.settings = parse_settings(of.object(elem)?)?,
                "writeConcernMajorityJournalDefault" => {
                    parsed.majority_is_durable = of.flag(elem)?;
                }
                "protocolVersion" => drop(of.whole(elem, 1, 1)?),
                "configsvr" if !of.flag(elem)? => {}
                "configsvr" => bail!(
                    BadValue,
                    "Nodes being used for config servers must be started with the --configsvr flag"
                ),
                _ => return Err(of.unknown(elem)),
            }
        }
        parsed.name = name.ok_or_else(|| of.missing("_id"))?;
        if parsed.name.is_empty() {
            bail!(BadValue, "Replica set configuration must have non-empty _id field");
        }
        parsed.version = version.unwrap_or(1);
        parsed.members = members.ok_or_else(|| of.missing("members"))?;
        parsed.check_modes()?;
        Ok(parsed)
    }

    /// The document with all fields.
    pub fn to_doc(&self) -> DocBuf {
        DocBuf::build(|out| {
            out.put("_id", &self.name);
            out.put("version", self.version as i32);
            out.put("term", self.term);
            {
                let mut members = out.array("members");
                self.members.iter().for_each(|member| member.write(&mut members.document()));
            }
            out.put("protocolVersion", 1i64);
            out.put("writeConcernMajorityJournalDefault", self.majority_is_durable);
            self.settings.write(&mut out.document("settings"));
        })
    }

    /// Modes name tags that members have.
    fn check_modes(&self) -> Result<()> {
        for (mode, tags) in &self.settings.modes {
            for tag in tags.keys() {
                if !self.members.iter().any(|member| member.tags.contains_key(tag)) {
                    bail!(
                        NoSuchKey,
                        "Tag {tag} of write concern mode {mode} is not a tag of any member"
                    );
                }
            }
        }
        Ok(())
    }
}

fn parse_members(of: Of, elem: Elem<'_>) -> Result<Vec<MemberConfig>> {
    let Value::Array(list) = elem.value() else {
        return Err(of.wrong_type(elem, "type 'array'"));
    };
    let mut members = Vec::new();
    for elem in list.as_doc() {
        if members.len() > MEMBERS_MAX {
            break;
        }
        members.push(parse_member(of.object(elem)?)?);
    }
    Ok(members)
}

fn parse_member(config: Doc<'_>) -> Result<MemberConfig> {
    let of = Of("MemberConfig");
    let (mut id, mut host, mut priority) = (None, None, None);
    let mut member = MemberConfig::new(0, "");
    for elem in config.iter().filter(|elem| !elem.value().is_nullish()) {
        match elem.key() {
            "_id" => id = Some(of.whole(elem, 0, 255)? as u8),
            "host" => host = Some(default_port(&of.text(elem)?)?),
            "arbiterOnly" => member.is_arbiter = of.flag(elem)?,
            "hidden" => member.is_hidden = of.flag(elem)?,
            "priority" => priority = Some(of.number(elem)?),
            "tags" => member.tags = parse_tags(of.object(elem)?)?,
            "secondaryDelaySecs" => member.delay_secs = of.whole(elem, 0, DELAY_SECS_MAX)?,
            "votes" => member.votes = of.whole(elem, 0, 1)? as u8,
            "buildIndexes" if of.flag(elem)? => {}
            "buildIndexes" => bail!(
                InvalidReplicaSetConfig,
                "buildIndexes: false is not supported: every member with data builds all indexes"
            ),
            "horizons" => bail!(InvalidReplicaSetConfig, "split horizons are not supported"),
            _ => return Err(of.unknown(elem)),
        }
    }
    member.id = id.ok_or_else(|| of.missing("_id"))?;
    member.host = host.ok_or_else(|| of.missing("host"))?;
    // An arbiter with the usual priority has none.
    let usual = if member.is_arbiter { 0.0 } else { 1.0 };
    member.priority = priority.filter(|p| !(member.is_arbiter && *p == 1.0)).unwrap_or(usual);
    check_member(&member)?;
    Ok(member)
}

fn check_member(member: &MemberConfig) -> Result<()> {
    if !(0.0..=PRIORITY_MAX).contains(&member.priority) {
        bail!(
            BadValue,
            "BSON field 'priority' value must be between 0 and {PRIORITY_MAX}, actual value '{}'",
            member.priority
        );
    }
    if member.is_arbiter && !member.is_voter() {
        bail!(BadValue, "Arbiter must vote (cannot have 0 votes)");
    }
    if member.is_arbiter && !member.tags.is_empty() {
        bail!(BadValue, "Cannot set tags on arbiters.");
    }
    if member.priority == 0.0 {
        return Ok(());
    }
    let why = match () {
        () if !member.is_voter() => "non-voting (votes:0)",
        () if member.delay_secs > 0 => "secondaryDelaySecs is used",
        () if member.is_hidden => "hidden=true",
        () => return Ok(()),
    };
    bail!(BadValue, "priority must be 0 when {why}")
}

fn parse_tags(tags: Doc<'_>) -> Result<BTreeMap<String, String>> {
    let mut parsed = BTreeMap::new();
    for elem in tags {
        let Value::String(value) = elem.value() else {
            bail!(
                TypeMismatch,
                "tags.{} field has non-string value of type {}",
                elem.key(),
                elem.ty().alias()
            );
        };
        parsed.insert(elem.key().to_owned(), value.into_owned());
        check_room(parsed.len())?;
    }
    Ok(parsed)
}

fn check_room(tags: usize) -> Result<()> {
    if tags > TAGS_MAX {
        bail!(BadValue, "A replica set configuration has at most {TAGS_MAX} tags in one place");
    }
    Ok(())
}

fn parse_settings(config: Doc<'_>) -> Result<Settings> {
    let of = Of("ReplSetConfigSettings");
    let most = i64::from(i32::MAX);
    let mut settings = Settings::default();
    for elem in config.iter().filter(|elem| !elem.value().is_nullish()) {
        match elem.key() {
            "chainingAllowed" => settings.is_chaining_allowed = of.flag(elem)?,
            "heartbeatIntervalMillis" => {
                settings.heartbeat_interval_ms = of.whole(elem, 1, most)?;
            }
            "heartbeatTimeoutSecs" => settings.heartbeat_timeout_secs = of.whole(elem, 1, most)?,
            "electionTimeoutMillis" => settings.election_timeout_ms = of.whole(elem, 1, most)?,
            "catchUpTimeoutMillis" => settings.catch_up_timeout_ms = of.whole(elem, -1, most)?,
            "catchUpTakeoverDelayMillis" => {
                settings.catch_up_takeover_delay_ms = of.whole(elem, -1, most)?;
            }
            "getLastErrorModes" => settings.modes = parse_modes(of, of.object(elem)?)?,
            "getLastErrorDefaults" => check_defaults(of.object(elem)?)?,
            "replicaSetId" => match elem.value() {
                Value::ObjectId(id) => settings.set_id = id,
                _ => return Err(of.wrong_type(elem, "type 'objectId'")),
            },
            _ => return Err(of.unknown(elem)),
        }
    }
    Ok(settings)
}

fn parse_modes(of: Of, config: Doc<'_>) -> Result<BTreeMap<String, BTreeMap<String, i32>>> {
    let mut modes = BTreeMap::new();
    for mode in config {
        let mut tags = BTreeMap::new();
        for tag in of.object(mode)? {
            let count = of.whole(tag, 1, MEMBERS_MAX as i64)? as i32;
            tags.insert(tag.key().to_owned(), count);
            check_room(tags.len())?;
        }
        if mode.key() == "majority" || mode.key().starts_with('$') || tags.is_empty() {
            bail!(BadValue, "getLastErrorModes.{} is not a mode that can be defined", mode.key());
        }
        modes.insert(mode.key().to_owned(), tags);
        check_room(modes.len())?;
    }
    Ok(modes)
}

/// `getLastErrorDefaults` may only be there with the values that it always has.
fn check_defaults(defaults: Doc<'_>) -> Result<()> {
    let is_usual = |elem: Elem<'_>| {
        let wanted = if elem.key() == "w" { 1 } else { 0 };
        matches!(elem.key(), "w" | "wtimeout") && elem.value().as_i64_exact() == Some(wanted)
    };
    match defaults.iter().all(is_usual) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorCode::InvalidReplicaSetConfig,
            "getLastErrorDefaults can only be { w: 1, wtimeout: 0 }; use setDefaultRWConcern",
        )),
    }
}

impl MemberConfig {
    fn write(&self, out: &mut DocWriter<'_>) {
        out.put("_id", i32::from(self.id));
        out.put("host", &self.host);
        out.put("arbiterOnly", self.is_arbiter);
        out.put("buildIndexes", true);
        out.put("hidden", self.is_hidden);
        out.put("priority", self.priority);
        {
            let mut tags = out.document("tags");
            self.tags.iter().for_each(|(tag, value)| tags.put(tag, value));
        }
        out.put("secondaryDelaySecs", self.delay_secs);
        out.put("votes", i32::from(self.votes));
    }
}

impl Settings {
    fn write(&self, out: &mut DocWriter<'_>) {
        out.put("chainingAllowed", self.is_chaining_allowed);
        out.put("heartbeatIntervalMillis", self.heartbeat_interval_ms as i32);
        out.put("heartbeatTimeoutSecs", self.heartbeat_timeout_secs as i32);
        out.put("electionTimeoutMillis", self.election_timeout_ms as i32);
        out.put("catchUpTimeoutMillis", self.catch_up_timeout_ms as i32);
        out.put("catchUpTakeoverDelayMillis", self.catch_up_takeover_delay_ms as i32);
        {
            let mut modes = out.document("getLastErrorModes");
            for (name, tags) in &self.modes {
                let mut mode = modes.document(name);
                tags.iter().for_each(|(tag, count)| mode.put(tag, *count));
            }
        }
        out.put("getLastErrorDefaults", &self.write_concern_defaults);
        out.put("replicaSetId", self.set_id);
    }
}
