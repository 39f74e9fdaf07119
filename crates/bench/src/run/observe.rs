//! The properties that a server reports, and whether they match the run file.
//!
//! Purpose: figures belong to the observed server, not to an assumed one. Invariant: a property that the server
//! does not report is unknown; if the run file requires it, that is a mismatch.

use super::failed;
use kauri_base::{Error, Result};
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_client::Uri;
use std::fmt;
use std::time::Duration;

/// How servers are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// One by itself.
    Standalone,
    /// A member of a replica set.
    ReplicaSet,
    /// A router before shards.
    Sharded,
}

impl Topology {
    /// All.
    const ALL: [Topology; 3] = [Topology::Standalone, Topology::ReplicaSet, Topology::Sharded];

    /// In run files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Topology::Standalone => "standalone",
            Topology::ReplicaSet => "replicaSet",
            Topology::Sharded => "sharded",
        }
    }

    /// By its name.
    pub fn of(name: &str) -> Option<Topology> {
        Topology::ALL.into_iter().find(|one| one.name() == name)
    }

    fn told_by(hello: Doc<'_>) -> Topology {
        match hello.value("msg") {
            Value::String(text) if text == "isdbgrid" => Topology::Sharded,
            _ if hello.get("setName").is_some() => Topology::ReplicaSet,
            _ => Topology::Standalone,
        }
    }
}

/// What has to be found; what is not said may be anything.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Expected {
    /// `tcp`, `unix`, `sharedMemory` or `rdma`.
    pub transport: Option<String>,
    /// See [`Topology`].
    pub topology: Option<Topology>,
    /// The storage engine's name in `serverStatus`.
    pub engine: Option<String>,
    /// The medium's kind there.
    pub medium: Option<String>,
    /// The memory that the server may use, in MB, as `hostInfo` tells it.
    pub memory_limit_mb: Option<u64>,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    /// What the connection goes through.
    pub transport: String,
    /// Why that is not what the connection string would rather have.
    pub fallback: Option<String>,
    /// How the server stands to others.
    pub topology: Topology,
    /// The server's version.
    pub version: String,
    /// Its storage engine, if it tells.
    pub engine: Option<String>,
    /// What that stores on, if it tells.
    pub medium: Option<String>,
    /// The memory that the server may use, in MB, if it tells: its control group's limit, or the machine's memory.
    pub memory_limit_mb: Option<u64>,
    /// Its host's name and its process there, if it tells: the same server by another address has the same.
    pub process: Option<(String, u32)>,
    /// Its process on this host, if it is one of these and its number the one that this host knows it by: in a
    /// container it has another.
    pub pid_here: Option<u32>,
}

fn text(doc: Doc<'_>, path: &[&str]) -> Option<String> {
    let (last, before) = path.split_last()?;
    let mut at = doc.to_buf();
    for name in before {
        at = match at.as_doc().value(name) {
            Value::Document(inner) => inner.as_doc().to_buf(),
            _ => return None,
        };
    }
    match at.as_doc().value(last) {
        Value::String(text) => Some(text.into_owned()),
        _ => None,
    }
}

fn memory_limit_mb(host: Doc<'_>) -> Option<u64> {
    let Value::Document(system) = host.value("system") else { return None };
    let limit = system.as_doc().value("memLimitMB").to_i64_saturating()?;
    u64::try_from(limit).ok()
}

/// Connects and asks the server what it is.
pub fn observe(label: &str, uri: &Uri) -> Result<Observed> {
    let mut connection = kauri_client::connect(uri).map_err(|why| failed(label, why))?;
    let mut ask = |command: DocBuf| connection.command("admin", &command);
    // Neither is needed to be measured: another server may not have it, or not let us ask.
    let build = ask(doc! { "buildInfo" => 1 }).ok();
    let status = ask(doc! { "serverStatus" => 1 }).ok();
    let host = ask(doc! { "hostInfo" => 1 }).ok();
    let status = status.as_ref().map(DocBuf::as_doc);
    let told = |path: &[&str]| text(status?, path);
    let engine = told(&["storageEngine", "name"]);
    let medium = engine.as_deref().and_then(|engine| told(&[engine, "medium", "kind"]));
    let pid = status.and_then(|status| status.value("pid").to_i64_saturating());
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    let process = told(&["host"]).zip(pid);
    let up = status.and_then(|status| status.value("uptimeMillis").to_i64_saturating());
    let up = up.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    let pid_here = process.as_ref().zip(up).and_then(|((host, pid), up)| {
        let same = is_here(host) && is_of_age(age(*pid)?, up);
        same.then_some(*pid)
    });
    Ok(Observed {
        transport: connection.transport().name().to_owned(),
        fallback: connection.fallback().map(str::to_owned),
        topology: Topology::told_by(connection.greeting()),
        version: build.and_then(|build| text(build.as_doc(), &["version"])).unwrap_or_default(),
        engine,
        medium,
        memory_limit_mb: host.and_then(|host| memory_limit_mb(host.as_doc())),
        process,
        pid_here,
    })
}

/// Whether a server's `host` is this one.
fn is_here(host: &str) -> bool {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // A port may follow.
    host.split(':').next() == Some(own.trim())
}

/// For how long this process of this host has been there.
fn age(pid: u32) -> Option<Duration> {
    /// Of `/proc/PID/stat`, on every Linux.
    const TICKS_PER_S: f64 = 100.0;
    /// After the name in brackets, which may have spaces: the 22nd of all.
    const START_TIME: usize = 19;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let began: f64 = after_name.split_whitespace().nth(START_TIME)?.parse().ok()?;
    let up = std::fs::read_to_string("/proc/uptime").ok()?;
    let up: f64 = up.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64((up - began / TICKS_PER_S).max(0.0)).ok()
}

/// Whether a process of this age can be a server that has been up for so long.
fn is_of_age(age: Duration, up: Duration) -> bool {
    const APART_MAX: Duration = Duration::from_secs(5);
    age.abs_diff(up) <= APART_MAX
}

/// What is not as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mismatch {
    what: &'static str,
    expected: String,
    observed: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} should be {}, but is {}", self.what, self.expected, self.observed)
    }
}

impl Expected {
    fn mismatches(&self, observed: &Observed) -> Vec<Mismatch> {
        let known = |told: &Option<String>| told.clone().unwrap_or_else(|| "not told".to_owned());
        let transport = match &observed.fallback {
            None => observed.transport.clone(),
            Some(why) => format!("{} ({why})", observed.transport),
        };
        let topology = |one: Topology| one.name().to_owned();
        let memory =
            observed.memory_limit_mb.map_or("not told".to_owned(), |mb| format!("{mb} MB"));
        let pairs = [
            ("the transport", self.transport.clone(), observed.transport.clone(), transport),
            (
                "the topology",
                self.topology.map(topology),
                topology(observed.topology),
                topology(observed.topology),
            ),
            ("the engine", self.engine.clone(), known(&observed.engine), known(&observed.engine)),
            ("the medium", self.medium.clone(), known(&observed.medium), known(&observed.medium)),
            (
                "the limit of memory",
                self.memory_limit_mb.map(|mb| format!("{mb} MB")),
                memory.clone(),
                memory,
            ),
        ];
        let differs = |(what, expected, is, shown): (_, Option<String>, String, String)| {
            let expected = expected.filter(|expected| *expected != is)?;
            Some(Mismatch { what, expected, observed: shown })
        };
        pairs.into_iter().filter_map(differs).collect()
    }

    /// An error that names all that is not as it should be.
    pub fn check(&self, label: &str, observed: &Observed) -> Result<()> {
        let mismatches = self.mismatches(observed);
        if mismatches.is_empty() {
            return Ok(());
        }
        let words: Vec<_> = mismatches.iter().map(Mismatch::to_string).collect();
        Err(Error::bad_value(format!("{label}: {}", words.join("; "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Observed {
        Observed {
            transport: "tcp".to_owned(),
            fallback: Some("no RDMA: there is no device".to_owned()),
            topology: Topology::Standalone,
            version: "7.0".to_owned(),
            engine: Some("pmlog".to_owned()),
            medium: None,
            memory_limit_mb: Some(16_000),
            process: None,
            pid_here: None,
        }
    }

    #[test]
    fn a_process_of_another_age_is_another_process() {
        let seconds = Duration::from_secs;
        assert!(is_of_age(seconds(100), seconds(99)));
        assert!(!is_of_age(seconds(100), seconds(10)));
        let (own, first) = (age(std::process::id()).unwrap(), age(1).unwrap());
        assert!(own <= first, "{own:?} {first:?}");
        assert!(own < seconds(3600), "{own:?}");
        assert_eq!(age(u32::MAX), None);
    }

    #[test]
    fn what_is_not_as_asked_for_is_named() {
        let text = |text: &str| Some(text.to_owned());
        assert!(Expected::default().check("a", &found()).is_ok());
        let right = Expected {
            transport: text("tcp"),
            topology: Some(Topology::Standalone),
            engine: text("pmlog"),
            medium: None,
            memory_limit_mb: Some(16_000),
        };
        assert!(right.check("a", &found()).is_ok());
        let wrong = Expected {
            transport: text("rdma"),
            topology: Some(Topology::Sharded),
            engine: text("wiredTiger"),
            medium: text("dax"),
            memory_limit_mb: Some(500),
        };
        let error = wrong.check("a", &found()).unwrap_err();
        assert_eq!(
            error.message(),
            "a: the transport should be rdma, but is tcp (no RDMA: there is no device); the topology \
             should be sharded, but is standalone; the engine should be wiredTiger, but is pmlog; the \
             medium should be dax, but is not told; the limit of memory should be 500 MB, but is 16000 MB"
        );
    }

    #[test]
    fn hello_tells_the_topology() {
        for (hello, topology) in [
            (doc! { "isWritablePrimary" => true }, Topology::Standalone),
            (doc! { "setName" => "rs0" }, Topology::ReplicaSet),
            (doc! { "msg" => "isdbgrid" }, Topology::Sharded),
        ] {
            assert_eq!(Topology::told_by(hello.as_doc()), topology);
            assert_eq!(Topology::of(topology.name()), Some(topology));
        }
    }
}
