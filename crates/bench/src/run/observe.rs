//! What a server says of itself, and whether that is what the run file asks for.
//!
//! What it is for: figures are of what was there, not of what somebody believed to be there. Invariant: what
//! a server does not tell is not known; asked for, it is a mismatch.

use super::failed;
use kauri_base::{Error, Result};
use kauri_bson::{Doc, DocBuf, Value, doc};
use kauri_client::{Connection, Uri};
use std::fmt;

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
    /// Its host's name and its process there, if it tells: the same server by another address has the same.
    pub process: Option<(String, u32)>,
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

/// Connects and asks the server what it is.
pub fn observe(label: &str, uri: &Uri) -> Result<Observed> {
    let mut connection = Connection::open(uri).map_err(|why| failed(label, why))?;
    let mut ask = |command: DocBuf| connection.command("admin", &command);
    let hello = ask(doc! { "hello" => 1 }).map_err(|why| failed(label, why))?;
    // Neither is needed to be measured: another server may not have it, or not let us ask.
    let build = ask(doc! { "buildInfo" => 1 }).ok();
    let status = ask(doc! { "serverStatus" => 1 }).ok();
    let status = status.as_ref().map(DocBuf::as_doc);
    let told = |path: &[&str]| text(status?, path);
    let engine = told(&["storageEngine", "name"]);
    let medium = engine.as_deref().and_then(|engine| told(&[engine, "medium", "kind"]));
    let pid = status.and_then(|status| status.value("pid").to_i64_saturating());
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    Ok(Observed {
        transport: connection.transport().name().to_owned(),
        fallback: connection.fallback().map(str::to_owned),
        topology: Topology::told_by(hello.as_doc()),
        version: build.and_then(|build| text(build.as_doc(), &["version"])).unwrap_or_default(),
        engine,
        medium,
        process: told(&["host"]).zip(pid),
    })
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
            process: None,
        }
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
        };
        assert!(right.check("a", &found()).is_ok());
        let wrong = Expected {
            transport: text("rdma"),
            topology: Some(Topology::Sharded),
            engine: text("wiredTiger"),
            medium: text("dax"),
        };
        let error = wrong.check("a", &found()).unwrap_err();
        assert_eq!(
            error.message(),
            "a: the transport should be rdma, but is tcp (no RDMA: there is no device); the topology \
             should be sharded, but is standalone; the engine should be wiredTiger, but is pmlog; the \
             medium should be dax, but is not told"
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
