//! What a member keeps beside the engine's log: its number, the configuration, term and vote. One small file, replaced
//! as a whole and durable when that returns.

use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use kauri_medium::Directory;
use kauri_replication::{HardState, Membership};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The file's name.
pub const FILE: &str = "replica-set.bson";

/// See the module's head.
#[derive(Clone, PartialEq, Debug)]
pub struct Stored {
    /// This member's number.
    pub number: u64,
    /// The number of the member that began the set.
    pub origin: u64,
    /// Until it has applied this entry the member elects nobody: its view of the membership is an old one.
    pub until: u64,
    /// The configuration document.
    pub config: DocBuf,
    /// Configurations and changes of the membership up to this entry are in this.
    pub seen: u64,
    /// The configuration was forced, and the others are to be told.
    pub is_forced: bool,
    /// Members from before a forced reconfiguration whom others may still count.
    pub forgotten: BTreeSet<u64>,
    /// The addresses of members that the configuration does not name any more, and that may have to agree to leave.
    pub leaving: BTreeMap<u64, String>,
    /// Consensus' state.
    pub state: HardState,
    /// The run of the machine in which it was written. Another one now: the power was lost, or the machine restarted.
    pub machine_run: String,
}

/// The file.
#[derive(Clone)]
pub struct StateFile {
    directory: Arc<dyn Directory>,
    name: String,
}

impl StateFile {
    /// That of a data directory.
    pub fn new(directory: Arc<dyn Directory>) -> StateFile {
        StateFile::with_prefix(directory, "")
    }

    /// One whose name begins with this.
    pub fn with_prefix(directory: Arc<dyn Directory>, prefix: &str) -> StateFile {
        StateFile { directory, name: format!("{prefix}{FILE}") }
    }

    /// What it has; `None` before the member is part of a set.
    pub fn read(&self) -> Result<Option<Stored>> {
        let bytes =
            self.directory.read_file(&self.name).map_err(|error| failed(&error.to_string()))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let doc = Doc::from_bytes(&bytes).map_err(|error| failed(error.message()))?;
        read(doc).map(Some).ok_or_else(|| failed("it has not the expected fields"))
    }

    /// Replaces it.
    pub fn write(&self, stored: &Stored) -> Result<()> {
        let doc = DocBuf::build(|out| write(stored, out));
        let bytes = doc.as_doc().as_bytes();
        let written = self.directory.replace_file(&self.name, bytes, "member.state");
        written.map_err(|error| failed(&error.to_string()))
    }

    /// Removes it.
    pub fn remove(&self) -> Result<()> {
        let removed = self.directory.remove_file(&self.name, "member.state");
        removed.map_err(|error| failed(&error.to_string()))
    }
}

fn failed(why: &str) -> Error {
    Error::new(ErrorCode::OperationFailed, format!("the file {FILE} in the data directory: {why}"))
}

/// Its fields.
pub fn write(stored: &Stored, out: &mut DocWriter<'_>) {
    let state = &stored.state;
    out.put("number", stored.number as i64);
    out.put("origin", stored.origin as i64);
    out.put("until", stored.until as i64);
    out.put("seen", stored.seen as i64);
    out.put("forced", stored.is_forced);
    let mut forgotten = out.array("forgotten");
    stored.forgotten.iter().for_each(|id| forgotten.push(*id as i64));
    drop(forgotten);
    let mut leaving = out.array("leaving");
    for (number, host) in &stored.leaving {
        let mut of = leaving.document();
        of.put("number", *number as i64);
        of.put("host", host);
    }
    drop(leaving);
    out.put("term", state.term as i64);
    out.put("vote", state.vote as i64);
    out.put("commit", state.commit as i64);
    out.put("boot", state.boot as i64);
    out.put("lostPower", state.lost_power);
    out.put("membershipIndex", state.membership_index as i64);
    let mut membership = out.document("membership");
    for (name, members) in names(&state.membership) {
        let mut array = membership.array(name);
        members.iter().for_each(|id| array.push(*id as i64));
    }
    drop(membership);
    out.put("machineRun", &stored.machine_run);
    out.put("config", &stored.config);
}

fn names(membership: &Membership) -> [(&'static str, &BTreeSet<u64>); 4] {
    [
        ("voters", &membership.voters),
        ("outgoing", &membership.outgoing),
        ("learners", &membership.learners),
        ("learnersNext", &membership.learners_next),
    ]
}

/// The state of these fields; `None` if they are not those of one.
pub fn read(doc: Doc<'_>) -> Option<Stored> {
    let number = |doc: Doc<'_>, name| match doc.value(name) {
        Value::Int64(number) => u64::try_from(number).ok(),
        _ => None,
    };
    let Value::Document(membership) = doc.value("membership") else { return None };
    let ids_of = |doc: Doc<'_>, name| {
        let array = doc.value(name);
        let ids = array.as_array()?.iter().map(|elem| match elem.value() {
            Value::Int64(id) => u64::try_from(id).ok(),
            _ => None,
        });
        ids.collect::<Option<BTreeSet<u64>>>()
    };
    let members = |name| ids_of(membership.as_doc(), name);
    let leaving = |elem: Value<'_>| {
        let Value::Document(of) = elem else { return None };
        let host = of.as_doc().value("host").as_str()?.to_owned();
        Some((number(of.as_doc(), "number")?, host))
    };
    // Older files have none.
    let leaving = match doc.value("leaving").as_array() {
        Some(of) => of.iter().map(|elem| leaving(elem.value())).collect::<Option<_>>()?,
        None => BTreeMap::new(),
    };
    let Value::Document(config) = doc.value("config") else { return None };
    Some(Stored {
        number: number(doc, "number")?,
        origin: number(doc, "origin")?,
        until: number(doc, "until")?,
        seen: number(doc, "seen")?,
        is_forced: matches!(doc.value("forced"), Value::Bool(true)),
        forgotten: ids_of(doc, "forgotten")?,
        leaving,
        config: config.as_doc().to_buf(),
        machine_run: doc.value("machineRun").as_str()?.to_owned(),
        state: HardState {
            term: number(doc, "term")?,
            vote: number(doc, "vote")?,
            commit: number(doc, "commit")?,
            boot: number(doc, "boot")?,
            membership_index: number(doc, "membershipIndex")?,
            membership: Membership {
                voters: members("voters")?,
                outgoing: members("outgoing")?,
                learners: members("learners")?,
                learners_next: members("learnersNext")?,
            },
            lost_power: matches!(doc.value("lostPower"), Value::Bool(true)),
        },
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Some state.
    pub(crate) fn stored() -> Stored {
        Stored {
            number: 3,
            origin: 1,
            until: 30,
            seen: 39,
            is_forced: true,
            forgotten: [6, 7].into(),
            leaving: [(8, "h:1".to_owned())].into(),
            config: kauri_bson::doc! { "_id" => "rs", "version" => 2 },
            machine_run: "run".to_owned(),
            state: HardState {
                term: 7,
                vote: 2,
                commit: 40,
                membership_index: 12,
                membership: Membership { learners: [4].into(), ..Membership::of([1, 2, 3]) },
                boot: 9,
                lost_power: true,
            },
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let stored = stored();
        let doc = DocBuf::build(|out| write(&stored, out));
        assert_eq!(read(doc.as_doc()), Some(stored));
        assert_eq!(read(kauri_bson::doc! { "number" => 3_i64 }.as_doc()), None);
    }
}
