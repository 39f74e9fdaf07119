//! What the members of a configuration need of each other, and what a reconfiguration may change.

use super::{MEMBERS_MAX, SetConfig, VERSION_MAX, VOTERS_MAX};
use kauri_base::{Error, ErrorCode, Result, bail};
use std::collections::{BTreeMap, BTreeSet};

/// MongoDB's port, for hosts that name none.
const PORT: u16 = 27017;

/// The members that a write concern wants, other than a number or a majority.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WriteMode {
    /// The mode of this name.
    Named(String),
    /// Number of values by tag.
    Tags(BTreeMap<String, i32>),
}

/// `host:port` of a host whose port may be missing. Fails if it is none.
pub fn default_port(host: &str) -> Result<String> {
    let wrong = |what: &str| {
        Err(Error::new(ErrorCode::FailedToParse, format!("{what} in HostAndPort: \"{host}\"")))
    };
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, rest)) => match rest.strip_prefix(':') {
            Some(port) => (name, Some(port)),
            None => return wrong("Missing colon"),
        },
        None => match host.split_once(':') {
            Some((_, rest)) if rest.contains(':') => return wrong("More than one ':' detected"),
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '/') {
        return wrong("Empty or invalid host component");
    }
    let port = match port {
        None => PORT,
        Some(text) => match text.parse::<u16>() {
            Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => port,
            _ => return wrong("Port number out of range or not a number"),
        },
    };
    let name = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
    Ok(format!("{name}:{port}"))
}

/// Whether a host is this machine for whoever asks.
fn is_localhost(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    matches!(name, "localhost" | "[::1]" | "[::]" | "0.0.0.0") || name.starts_with("127.")
}

impl SetConfig {
    /// Fails unless these members can be a set.
    pub fn validate(&self) -> Result<()> {
        let members = self.members.len();
        if members == 0 || members > MEMBERS_MAX {
            bail!(
                BadValue,
                "Replica set configuration contains {members} members, but must have at least 1 and no more than \
                 {MEMBERS_MAX}"
            );
        }
        self.check_unique()?;
        let local = self.members.iter().filter(|member| is_localhost(&member.host)).count();
        if local != 0 && local != members {
            bail!(
                BadValue,
                "Either all host names in a replica set configuration must be localhost references, or none must be; \
                 found {local} out of {members}"
            );
        }
        let voters = self.voters();
        if voters == 0 || voters > VOTERS_MAX {
            bail!(
                BadValue,
                "Replica set configuration contains {voters} voting members, but must be at least 1 and no more than \
                 {VOTERS_MAX}"
            );
        }
        if !self.members.iter().any(|member| !member.is_arbiter && member.priority > 0.0) {
            bail!(
                BadValue,
                "Replica set configuration must contain at least one non-arbiter member with priority > 0"
            );
        }
        match self.members.iter().find(|member| member.is_arbiter && member.priority != 0.0) {
            Some(arbiter) => bail!(
                InvalidReplicaSetConfig,
                "Member {} is an arbiter but has priority {}. Arbiter priority must be 0.",
                arbiter.host,
                arbiter.priority
            ),
            None => Ok(()),
        }
    }

    fn check_unique(&self) -> Result<()> {
        for (i, one) in self.members.iter().enumerate() {
            for (j, other) in self.members.iter().enumerate().filter(|(j, _)| i != *j) {
                let (field, value) = match () {
                    () if one.id == other.id => ("_id", one.id.to_string()),
                    () if one.host == other.host => ("host", one.host.clone()),
                    () => continue,
                };
                bail!(
                    BadValue,
                    "Found two member configurations with same {field} field, members.{i}.{field} == \
                     members.{j}.{field} == {value}"
                );
            }
        }
        Ok(())
    }

    /// The place of the only member that is this server.
    pub fn find_self(&self, mut is_self: impl FnMut(&str) -> bool) -> Result<usize> {
        let mine: Vec<usize> =
            (0..self.members.len()).filter(|at| is_self(&self.members[*at].host)).collect();
        match mine[..] {
            [one] => Ok(one),
            [] => bail!(
                NodeNotFound,
                "No host described in new configuration with {} for replica set {} maps to this node",
                self.version_and_term(),
                self.name
            ),
            _ => {
                let hosts: Vec<&str> =
                    mine.iter().map(|at| self.members[*at].host.as_str()).collect();
                bail!(
                    InvalidReplicaSetConfig,
                    "The hosts {} all map to this node in new configuration with {} for replica set {}",
                    hosts.join(" and "),
                    self.version_and_term(),
                    self.name
                )
            }
        }
    }

    fn version_and_term(&self) -> String {
        format!("{{version: {}, term: {}}}", self.version, self.term)
    }

    /// Fails unless this configuration may follow that one. `force`: by `replSetReconfig` with `force`, which gives it
    /// a version itself.
    pub fn check_successor(&self, old: &SetConfig, force: bool) -> Result<()> {
        let is_newer = match force {
            true => self.version > old.version,
            false => (self.term, self.version) > (old.term, old.version),
        };
        if !is_newer || self.version > VERSION_MAX {
            bail!(
                NewReplicaSetConfigurationIncompatible,
                "New replica set configuration version and term must be greater than old, but {} is not greater than \
                 {} for replica set {}",
                self.version_and_term(),
                old.version_and_term(),
                self.name
            );
        }
        if self.settings.set_id != old.settings.set_id {
            bail!(
                NewReplicaSetConfigurationIncompatible,
                "New and old configurations differ in replica set ID; old was {}, and new is {}",
                hex(&old.settings.set_id),
                hex(&self.settings.set_id)
            );
        }
        self.check_members_of(old)?;
        if !force {
            self.check_voters_of(old)?;
        }
        Ok(())
    }

    /// Fails if the write concern of a write that names none would change. For a set that has stored none.
    pub fn check_default_of(&self, old: &SetConfig) -> Result<()> {
        if self.default_is_majority() != old.default_is_majority() {
            bail!(
                NewReplicaSetConfigurationIncompatible,
                "Reconfig attempted to install a config that would change the implicit default write concern. Use \
                 the setDefaultRWConcern command to set a cluster-wide write concern and try the reconfig again."
            );
        }
        Ok(())
    }

    /// A host keeps its id, and a member stays an arbiter or none.
    fn check_members_of(&self, old: &SetConfig) -> Result<()> {
        for new in &self.members {
            for was in &old.members {
                if new.host == was.host && new.id != was.id {
                    bail!(
                        NewReplicaSetConfigurationIncompatible,
                        "New and old configurations both have members with host of {} but in the new configuration \
                         the _id field is {} and in the old configuration it is {} for replica set {}",
                        was.host,
                        new.id,
                        was.id,
                        self.name
                    );
                }
                if new.id == was.id && new.is_arbiter != was.is_arbiter {
                    bail!(
                        NewReplicaSetConfigurationIncompatible,
                        "New and old configurations differ in the setting of the arbiterOnly field for member {}; to \
                         make this change, remove then re-add the member",
                        was.host
                    );
                }
            }
        }
        Ok(())
    }

    /// One voter comes or goes.
    fn check_voters_of(&self, old: &SetConfig) -> Result<()> {
        let voters = |config: &SetConfig| -> BTreeSet<u8> {
            config.members.iter().filter(|member| member.is_voter()).map(|m| m.id).collect()
        };
        if voters(self).symmetric_difference(&voters(old)).count() > 1 {
            bail!(
                NewReplicaSetConfigurationIncompatible,
                "Non force replica set reconfig can only add or remove at most 1 voting member."
            );
        }
        Ok(())
    }

    /// The number of values of each tag that a write mode wants; fails if there is no such mode.
    pub fn tags_of<'a>(&'a self, mode: &'a WriteMode) -> Result<&'a BTreeMap<String, i32>> {
        match mode {
            WriteMode::Tags(tags) => Ok(tags),
            WriteMode::Named(name) => self.settings.modes.get(name).ok_or_else(|| {
                let message = format!(
                    "No write concern mode named '{name}' found in replica set configuration"
                );
                Error::new(ErrorCode::UnknownReplWriteConcern, message)
            }),
        }
    }

    /// Fails if the set has too few values of a tag.
    pub fn check_tags(&self, mode: &WriteMode) -> Result<()> {
        for (tag, count) in self.tags_of(mode)? {
            let values: BTreeSet<&String> =
                self.members.iter().filter_map(|member| member.tags.get(tag)).collect();
            if values.len() < usize::try_from(*count).unwrap_or(0) {
                let name = match mode {
                    WriteMode::Named(name) => name.clone(),
                    WriteMode::Tags(_) => tag.clone(),
                };
                bail!(
                    UnsatisfiableWriteConcern,
                    "Not enough nodes match write concern mode \"{name}\""
                );
            }
        }
        Ok(())
    }

    /// Fails if the set has fewer members with data than this.
    pub fn check_count(&self, count: usize) -> Result<()> {
        if self.members.len() - self.arbiters() < count {
            bail!(UnsatisfiableWriteConcern, "Not enough data-bearing nodes");
        }
        Ok(())
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
