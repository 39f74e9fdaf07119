//! The known servers, and how a server's description changes them.
//!
//! Invariants:
//! - Of a set at most one server is a primary: the one of the latest election.
//! - Servers that a primary does not name are forgotten. Without a primary, servers that secondaries name are added.
//! - A server of another set, or of none, is not asked again, and the reason is kept for the error.

use super::description::{Description, Role, Version};
use crate::host::{HOSTS_MAX, Host};
use crate::options::SetOptions;
use crate::uri::Uri;
use std::collections::BTreeMap;

/// The first wire protocol version whose election ids are compared before the versions of configurations: MongoDB 6.0.
const ELECTION_FIRST_WIRE_VERSION: i64 = 17;

/// What the servers are together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// None has answered.
    Unknown,
    /// One server that belongs to no set.
    Single,
    /// A set whose primary is not known.
    NoPrimary,
    /// A set and its primary.
    WithPrimary,
    /// Routers of a sharded cluster.
    Sharded,
}

/// What orders elections.
type Election = (Option<[u8; 12]>, Option<i64>);

/// See the module's head.
#[derive(Clone, Debug)]
pub struct Topology {
    kind: Kind,
    set_name: Option<String>,
    seed_count: usize,
    latest: Election,
    servers: BTreeMap<Host, Description>,
    /// Why a server was forgotten that a connection string names.
    refusal: Option<String>,
}

impl Topology {
    /// Only the hosts of the connection string are known.
    pub fn new(uri: &Uri, options: &SetOptions) -> Topology {
        let seeds = options.seeds.iter().cloned();
        let servers: BTreeMap<_, _> =
            seeds.map(|seed| (seed, Description::unknown(None))).collect();
        Topology {
            kind: if uri.set_name.is_some() { Kind::NoPrimary } else { Kind::Unknown },
            set_name: uri.set_name.clone(),
            seed_count: servers.len(),
            latest: (None, None),
            servers,
            refusal: None,
        }
    }

    /// What the servers are together.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The known servers.
    pub fn servers(&self) -> impl Iterator<Item = (&Host, &Description)> {
        self.servers.iter()
    }

    /// The primary, if there is one.
    pub fn primary(&self) -> Option<&Host> {
        self.servers().find(|(_, server)| server.role == Role::Primary).map(|(host, _)| host)
    }

    /// What a server is.
    pub fn role(&self, host: &Host) -> Role {
        self.servers.get(host).map_or(Role::Unknown, |server| server.role)
    }

    /// Whether no server is left that could be asked.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Why no server fits: of each what is known.
    pub fn account(&self) -> String {
        let one = |(host, server): (&Host, &Description)| match &server.error {
            Some(error) => format!("{host}: {error}"),
            None => format!("{host}: {:?}", server.role),
        };
        let servers = self.servers().map(one);
        self.refusal.clone().into_iter().chain(servers).collect::<Vec<_>>().join("; ")
    }

    /// A server has answered to `hello`, or not (`Role::Unknown`).
    pub fn note(&mut self, host: &Host, come: Description) {
        let Some(known) = self.servers.get_mut(host) else { return };
        if Version::is_old(known.version, come.version) {
            return;
        }
        let (role, name) = (come.role, come.set_name.clone());
        *known = come;
        match (self.kind, role) {
            (_, Role::Unknown | Role::Ghost) | (Kind::Single, _) => {}
            (Kind::Unknown, Role::Standalone) if self.seed_count == 1 => self.kind = Kind::Single,
            (Kind::Unknown, Role::Router) => self.kind = Kind::Sharded,
            (Kind::Sharded, Role::Router) => {}
            (Kind::Unknown | Kind::NoPrimary | Kind::WithPrimary, _) if is_member(role) => {
                self.kind =
                    if self.primary().is_some() { Kind::WithPrimary } else { Kind::NoPrimary };
                match (&self.set_name, name) {
                    (Some(own), name) if name.as_ref() != Some(own) => {
                        let other = name.unwrap_or_default();
                        let why = format!("{host} is a member of set '{other}', not of '{own}'");
                        self.forget(host, why);
                    }
                    (own, name) => {
                        self.set_name = own.clone().or(name);
                        self.note_member(host, role);
                    }
                }
            }
            (Kind::Sharded, _) => {
                self.forget(host, format!("{host} is not a router as others are"))
            }
            _ => {
                let set = self.set_name.as_ref().map_or(String::new(), |own| format!(" '{own}'"));
                self.forget(host, format!("{host} is not a member of a set; set{set} is wanted"));
            }
        }
        if matches!(self.kind, Kind::NoPrimary | Kind::WithPrimary) {
            self.kind = if self.primary().is_some() { Kind::WithPrimary } else { Kind::NoPrimary };
        }
    }

    /// A server could not be asked, or a session with it failed.
    pub fn note_failure(&mut self, host: &Host, error: impl Into<String>) {
        self.note(host, Description::unknown(Some(error.into())));
    }

    /// A server has answered a command with an error that says that it is no longer what it was.
    pub fn note_state_change(&mut self, host: &Host, version: Option<Version>, error: &str) {
        let known = self.servers.get(host).and_then(|server| server.version);
        let is_known = known.is_some() && known == version;
        if !is_known && !Version::is_old(known, version) {
            let why = Description { version, ..Description::unknown(Some(error.to_owned())) };
            self.note(host, why);
        }
    }

    fn note_member(&mut self, host: &Host, role: Role) {
        let Some(server) = self.servers.get(host) else { return };
        let (me, hosts) = (server.me.clone(), server.hosts.clone());
        if role == Role::Primary {
            let election = (server.election, server.set_version);
            if !self.is_latest(election, server.wire_version) {
                let why = "a primary of an older election".to_owned();
                self.servers.insert(host.clone(), Description::unknown(Some(why)));
                return;
            }
            if election.0.is_some() {
                self.latest = election;
            }
            for (_, other) in self.servers.iter_mut().filter(|(known, _)| *known != host) {
                if other.role == Role::Primary {
                    *other = Description::unknown(Some("another primary was elected".to_owned()));
                }
            }
            self.servers.retain(|known, _| hosts.contains(known));
            self.add(hosts);
            return;
        }
        let has_other_name = me.is_some_and(|me| me != *host);
        if self.primary().is_none() {
            self.add(hosts);
        }
        if has_other_name {
            self.servers.remove(host);
        }
    }

    fn add(&mut self, hosts: Vec<Host>) {
        for host in hosts {
            if self.servers.len() < HOSTS_MAX {
                self.servers.entry(host).or_insert_with(|| Description::unknown(None));
            }
        }
    }

    fn is_latest(&self, election: Election, wire_version: i64) -> bool {
        let (id, version) = election;
        if wire_version >= ELECTION_FIRST_WIRE_VERSION {
            return election >= self.latest;
        }
        match (id, version, self.latest) {
            (Some(id), Some(version), (Some(latest), Some(latest_version))) => {
                (version, id) >= (latest_version, latest)
            }
            _ => true,
        }
    }

    fn forget(&mut self, host: &Host, why: String) {
        self.servers.remove(host);
        self.refusal = Some(why);
    }
}

fn is_member(role: Role) -> bool {
    matches!(role, Role::Primary | Role::Secondary | Role::Arbiter | Role::Other)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn host(name: &str) -> Host {
        Host::Tcp(name.to_owned(), 1)
    }

    /// A set `r` of these hosts, none of which has answered.
    pub fn set(names: &[&str]) -> Topology {
        topology(names, "?replicaSet=r")
    }

    fn topology(names: &[&str], options: &str) -> Topology {
        let hosts: Vec<_> = names.iter().map(|name| format!("{name}:1")).collect();
        let uri: Uri = format!("mongodb://{}/{options}", hosts.join(",")).parse().unwrap();
        Topology::new(&uri, uri.set.as_ref().unwrap())
    }

    /// A server of set `r` that names these hosts.
    pub fn described(role: Role, hosts: &[&str], me: &str) -> Description {
        Description {
            role,
            set_name: is_member(role).then(|| "r".to_owned()),
            hosts: hosts.iter().map(|name| host(name)).collect(),
            me: Some(host(me)),
            wire_version: 21,
            ..Description::unknown(None)
        }
    }

    fn primary(hosts: &[&str], me: &str, election: u8, set_version: i64) -> Description {
        Description {
            election: Some([election; 12]),
            set_version: Some(set_version),
            ..described(Role::Primary, hosts, me)
        }
    }

    /// The kind, and the servers with the first letter of their role.
    fn shown(topology: &Topology) -> String {
        let one = |(host, server): (&Host, &Description)| {
            let role = format!("{:?}", server.role);
            format!(" {}={}", host.to_string().replace(":1", ""), role.get(..1).unwrap_or("?"))
        };
        format!("{:?}{}", topology.kind(), topology.servers().map(one).collect::<String>())
    }

    #[test]
    fn descriptions_change_what_is_known() {
        use Role::*;
        let all = ["a", "b", "c"];
        let other =
            |role| Description { set_name: Some("x".to_owned()), ..described(role, &all, "a") };
        for (seeds, options, come, expected) in [
            // Discovery from one host.
            (
                &["a"][..],
                "?replicaSet=r",
                vec![("a", primary(&all, "a", 1, 1))],
                "WithPrimary a=P b=U c=U",
            ),
            (
                &["b"],
                "?replicaSet=r",
                vec![("b", described(Secondary, &all, "b"))],
                "NoPrimary a=U b=S c=U",
            ),
            (
                &["a"],
                "?directConnection=false",
                vec![("a", described(Secondary, &all, "a"))],
                "NoPrimary a=S b=U c=U",
            ),
            (
                &["a"],
                "?directConnection=false",
                vec![("a", described(Standalone, &[], "a"))],
                "Single a=S",
            ),
            (&["a", "b"], "", vec![("a", described(Standalone, &[], "a"))], "Unknown b=U"),
            (&["a", "b"], "", vec![("a", described(Router, &[], "a"))], "Sharded a=R b=U"),
            (&["a"], "?replicaSet=r", vec![("a", described(Router, &[], "a"))], "NoPrimary"),
            (&["a"], "?replicaSet=r", vec![("a", described(Ghost, &[], "a"))], "NoPrimary a=G"),
            // Another set's.
            (&["a"], "?replicaSet=r", vec![("a", other(Primary))], "NoPrimary"),
            (&["a", "b"], "?replicaSet=r", vec![("a", other(Secondary))], "NoPrimary b=U"),
            // A host that the set knows under another name.
            (
                &["l"],
                "?replicaSet=r",
                vec![("l", described(Secondary, &all, "a"))],
                "NoPrimary a=U b=U c=U",
            ),
            (
                &["l"],
                "?replicaSet=r",
                vec![("l", primary(&all, "a", 1, 1))],
                "NoPrimary a=U b=U c=U",
            ),
            // A new primary, and one that does not know that it is none any more.
            (
                &all,
                "?replicaSet=r",
                vec![("a", primary(&all, "a", 1, 1)), ("b", primary(&all, "b", 2, 1))],
                "WithPrimary a=U b=P c=U",
            ),
            (
                &all,
                "?replicaSet=r",
                vec![("b", primary(&all, "b", 2, 1)), ("a", primary(&all, "a", 1, 1))],
                "WithPrimary a=U b=P c=U",
            ),
            // The later election counts, though its configuration is older.
            (
                &all,
                "?replicaSet=r",
                vec![("a", primary(&all, "a", 1, 2)), ("b", primary(&all, "b", 2, 1))],
                "WithPrimary a=U b=P c=U",
            ),
            // The primary steps down, is lost, or drops a member.
            (
                &all,
                "?replicaSet=r",
                vec![("a", primary(&all, "a", 1, 1)), ("a", described(Secondary, &all, "a"))],
                "NoPrimary a=S b=U c=U",
            ),
            (
                &all,
                "?replicaSet=r",
                vec![("a", primary(&all, "a", 1, 1)), ("a", Description::unknown(None))],
                "NoPrimary a=U b=U c=U",
            ),
            (
                &all,
                "?replicaSet=r",
                vec![("a", primary(&["a", "d"], "a", 1, 1))],
                "WithPrimary a=P d=U",
            ),
            // With a primary, a secondary's list says nothing.
            (
                &all,
                "?replicaSet=r",
                vec![
                    ("a", primary(&all, "a", 1, 1)),
                    ("b", described(Secondary, &["b", "d"], "b")),
                ],
                "WithPrimary a=P b=S c=U",
            ),
        ] {
            let mut topology = topology(seeds, options);
            let told = format!("{seeds:?} {options} {come:?}");
            for (name, description) in come {
                topology.note(&host(name), description);
            }
            assert_eq!(shown(&topology), expected, "{told}");
        }
    }

    #[test]
    fn a_wrong_set_is_named() {
        let mut topology = set(&["a"]);
        let other =
            Description { set_name: Some("x".to_owned()), ..described(Role::Primary, &["a"], "a") };
        topology.note(&host("a"), other);
        assert!(topology.is_empty());
        assert_eq!(topology.account(), "a:1 is a member of set 'x', not of 'r'");
        let mut topology = set(&["a"]);
        topology.note(&host("a"), described(Role::Standalone, &[], "a"));
        assert_eq!(topology.account(), "a:1 is not a member of a set; set 'r' is wanted");
    }

    #[test]
    fn what_is_older_than_what_is_known_changes_nothing() {
        let version = |process, counter| Some(Version { process: [process; 12], counter });
        let with = |version| Description { version, ..primary(&["a"], "a", 1, 1) };
        let secondary =
            |version| Description { version, ..described(Role::Secondary, &["a"], "a") };
        for (come, role) in [
            (secondary(version(1, 4)), Role::Primary),
            (secondary(version(1, 5)), Role::Secondary),
            (secondary(version(2, 1)), Role::Secondary),
            (secondary(None), Role::Secondary),
        ] {
            let mut topology = set(&["a"]);
            topology.note(&host("a"), with(version(1, 5)));
            topology.note(&host("a"), come.clone());
            assert_eq!(topology.role(&host("a")), role, "{come:?}");
        }
        // An error of a state that is known by now.
        for (come, role) in [
            (version(1, 5), Role::Primary),
            (version(1, 4), Role::Primary),
            (version(1, 6), Role::Unknown),
            (version(2, 1), Role::Unknown),
            (None, Role::Unknown),
        ] {
            let mut topology = set(&["a"]);
            topology.note(&host("a"), with(version(1, 5)));
            topology.note_state_change(&host("a"), come, "not primary");
            assert_eq!(topology.role(&host("a")), role, "{come:?}");
        }
    }

    #[test]
    fn a_set_has_a_bound() {
        let many: Vec<_> = (0..2 * HOSTS_MAX).map(|n| format!("h{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut topology = set(&["a"]);
        topology.note(&host("a"), described(Role::Secondary, &many, "a"));
        assert_eq!(topology.servers().count(), HOSTS_MAX);
    }
}
