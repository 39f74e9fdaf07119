//! A server, by its reply to `hello`.

use crate::host::{HOSTS_MAX, Host};
use crate::options::Tags;
use kauri_bson::{Doc, Value};
use std::time::Duration;

/// Largest number of a server's tags that are kept.
const TAGS_MAX: usize = 100;

/// What a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It has not answered.
    Unknown,
    /// It belongs to no set.
    Standalone,
    /// A router of a sharded cluster.
    Router,
    /// The primary.
    Primary,
    /// A secondary that answers reads.
    Secondary,
    /// A member without data.
    Arbiter,
    /// A member that answers no reads now, or is hidden.
    Other,
    /// It is to be a member, and has no configuration.
    Ghost,
}

/// The number of a server's state: higher with each change, as long as the process is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// Of the process.
    pub process: [u8; 12],
    /// Counts its changes.
    pub counter: i64,
}

impl Version {
    /// The `topologyVersion` of a reply.
    pub fn of(reply: Doc<'_>) -> Option<Version> {
        let version = reply.get("topologyVersion")?.as_doc()?;
        let Value::ObjectId(process) = version.value("processId") else { return None };
        Some(Version { process, counter: version.value("counter").to_i64_saturating()? })
    }

    /// Whether what came with this version says nothing new after the other one.
    pub fn is_old(known: Option<Version>, come: Option<Version>) -> bool {
        match (known, come) {
            (Some(known), Some(come)) => {
                known.process == come.process && come.counter < known.counter
            }
            _ => false,
        }
    }
}

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// What it is.
    pub role: Role,
    /// The set that it is a member of.
    pub set_name: Option<String>,
    /// All members that it tells of: with data, passive, arbiters.
    pub hosts: Vec<Host>,
    /// How the set's configuration names it.
    pub me: Option<Host>,
    /// The election that made it primary.
    pub election: Option<[u8; 12]>,
    /// The version of the set's configuration.
    pub set_version: Option<i64>,
    /// The number of its state.
    pub version: Option<Version>,
    /// The highest wire protocol version that it knows.
    pub wire_version: i64,
    /// How long a reply takes.
    pub round_trip: Duration,
    /// When it has answered so, by a clock of the caller's that never goes back.
    pub seen: Duration,
    /// Its tags in the set's configuration.
    pub tags: Tags,
    /// The time of its newest write, in milliseconds since 1970.
    pub last_write_ms: Option<i64>,
    /// Why it is unknown.
    pub error: Option<String>,
}

/// Hosts in an array of strings. What is no host is left out.
fn hosts_in(reply: Doc<'_>, key: &str, hosts: &mut Vec<Host>) {
    let Some(list) = reply.get(key).and_then(|list| list.as_doc()) else { return };
    for one in list.iter().filter_map(|one| host_of(one.value())) {
        if hosts.len() < HOSTS_MAX && !hosts.contains(&one) {
            hosts.push(one);
        }
    }
}

/// Tags are strings by the rules of configurations. What is none is left out.
fn tags_in(reply: Doc<'_>) -> Tags {
    let Some(tags) = reply.get("tags").and_then(|tags| tags.as_doc()) else { return Tags::new() };
    let tag = |tag: kauri_bson::Elem<'_>| {
        let value = tag.value();
        Some((tag.key().to_owned(), value.as_str()?.to_owned()))
    };
    tags.iter().take(TAGS_MAX).filter_map(tag).collect()
}

fn last_write(reply: Doc<'_>) -> Option<i64> {
    match reply.get("lastWrite")?.as_doc()?.value("lastWriteDate") {
        Value::DateTime(ms) => Some(ms),
        _ => None,
    }
}

fn host_of(value: Value<'_>) -> Option<Host> {
    Host::parse(value.as_str()?).ok()
}

fn role_of(reply: Doc<'_>) -> Role {
    let is = |key: &str| reply.value(key).truthy();
    if !is("ok") {
        return Role::Unknown;
    }
    if reply.value("msg").as_str() == Some("isdbgrid") {
        return Role::Router;
    }
    if is("isreplicaset") {
        return Role::Ghost;
    }
    if reply.get("setName").is_none() {
        return Role::Standalone;
    }
    match () {
        () if is("hidden") => Role::Other,
        () if is("isWritablePrimary") || is("ismaster") => Role::Primary,
        () if is("secondary") => Role::Secondary,
        () if is("arbiterOnly") => Role::Arbiter,
        () => Role::Other,
    }
}

impl Description {
    /// A server that has not answered, for this reason.
    pub fn unknown(error: Option<String>) -> Description {
        Description {
            role: Role::Unknown,
            set_name: None,
            hosts: Vec::new(),
            me: None,
            election: None,
            set_version: None,
            version: None,
            wire_version: 0,
            round_trip: Duration::ZERO,
            seen: Duration::ZERO,
            tags: Tags::new(),
            last_write_ms: None,
            error,
        }
    }

    /// A server that has answered so, after this time; `seen`: now.
    pub fn of(reply: Doc<'_>, round_trip: Duration, seen: Duration) -> Description {
        let mut hosts = Vec::new();
        for key in ["hosts", "passives", "arbiters"] {
            hosts_in(reply, key, &mut hosts);
        }
        let election = match reply.value("electionId") {
            Value::ObjectId(id) => Some(id),
            _ => None,
        };
        Description {
            role: role_of(reply),
            set_name: reply.value("setName").as_str().map(str::to_owned),
            hosts,
            me: host_of(reply.value("me")),
            election,
            set_version: reply.value("setVersion").to_i64_saturating(),
            version: Version::of(reply),
            wire_version: reply.value("maxWireVersion").to_i64_saturating().unwrap_or(0),
            round_trip,
            seen,
            tags: tags_in(reply),
            last_write_ms: last_write(reply),
            error: None,
        }
    }

    /// Whether it is a member of a set with a configuration.
    pub fn is_member(&self) -> bool {
        matches!(self.role, Role::Primary | Role::Secondary | Role::Arbiter | Role::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{array, doc};

    #[test]
    fn a_reply_to_hello_says_what_a_server_is() {
        for (reply, role) in [
            (doc! { "ok" => 0.0, "setName" => "r" }, Role::Unknown),
            (doc! { "ok" => 1.0, "isWritablePrimary" => true }, Role::Standalone),
            (doc! { "ok" => 1.0, "msg" => "isdbgrid" }, Role::Router),
            (doc! { "ok" => 1.0, "isreplicaset" => true }, Role::Ghost),
            (doc! { "ok" => 1.0, "setName" => "r", "isWritablePrimary" => true }, Role::Primary),
            (doc! { "ok" => 1.0, "setName" => "r", "ismaster" => true }, Role::Primary),
            (doc! { "ok" => 1.0, "setName" => "r", "secondary" => true }, Role::Secondary),
            (
                doc! { "ok" => 1.0, "setName" => "r", "secondary" => true, "hidden" => true },
                Role::Other,
            ),
            (doc! { "ok" => 1.0, "setName" => "r", "arbiterOnly" => true }, Role::Arbiter),
            (doc! { "ok" => 1.0, "setName" => "r" }, Role::Other),
        ] {
            let described = Description::of(reply.as_doc(), Duration::ZERO, Duration::ZERO);
            assert_eq!(described.role, role, "{reply:?}");
        }
        let reply = doc! {
            "ok" => 1.0, "setName" => "r", "secondary" => true, "me" => "B:2", "setVersion" => 3,
            "hosts" => array!["a:1", "B:2", 5], "passives" => array!["c:3", "a:1"],
            "tags" => doc! { "dc" => "ny", "no string" => 1, "rack" => "1" },
            "lastWrite" => doc! { "lastWriteDate" => Value::DateTime(5) },
            "arbiters" => array!["[::1]:4"], "maxWireVersion" => 21,
            "topologyVersion" => doc! { "processId" => Value::ObjectId([7; 12]), "counter" => 9i64 }
        };
        let (round_trip, seen) = (Duration::from_millis(2), Duration::from_secs(3));
        let described = Description::of(reply.as_doc(), round_trip, seen);
        assert_eq!((described.round_trip, described.seen), (round_trip, seen));
        assert_eq!(described.last_write_ms, Some(5));
        let tag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(described.tags, [tag("dc", "ny"), tag("rack", "1")]);
        let hosts: Vec<_> = described.hosts.iter().map(Host::to_string).collect();
        assert_eq!(hosts, ["a:1", "b:2", "c:3", "[::1]:4"]);
        assert_eq!(described.me, Some(Host::Tcp("b".to_owned(), 2)));
        assert_eq!((described.set_version, described.wire_version), (Some(3), 21));
        assert_eq!(described.version, Some(Version { process: [7; 12], counter: 9 }));
    }
}
