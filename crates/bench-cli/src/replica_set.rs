//! A replica set on this machine for `kauri bench standalone --replica-set`: a primary, two secondaries and an arbiter,
//! as in section 4.4 of `RDMA Optimization on MongoDB`.
//!
//! Invariant: the first server is the primary for the whole run; the others never stand for election.

use crate::server::{self, Server};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::standalone::requests;
use kauri_bench::standalone::way::{Listener, WAYS};
use kauri_bson::{DocBuf, DocWriter, doc};
use kauri_client::{ClientError, Connection, Uri};
use std::path::Path;
use std::time::{Duration, Instant};

/// The set's name.
const NAME: &str = "bench";
/// A primary, two secondaries, an arbiter.
const MEMBERS: usize = 4;
const ARBITER: usize = 3;
const ELECTION_TIMEOUT_MS: i32 = 10_000;
/// How long the first election and the secondaries may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::OperationFailed, error.to_string())
}

/// The set.
pub struct ReplicaSet {
    /// The primary's process.
    pub primary: Server,
    /// Where the primary listens.
    pub listener: Listener,
    /// The other processes.
    pub others: Vec<Server>,
    /// Where the secondaries listen.
    pub secondaries: Vec<Listener>,
}

/// The connection string by which a server is asked what is not measured.
pub fn plain_uri(listener: &Listener) -> std::result::Result<Uri, ClientError> {
    let first = WAYS.first().ok_or_else(|| ClientError::Uri("no transport is known".to_owned()))?;
    first.uri(listener)
}

fn member(out: &mut DocWriter<'_>, at: usize, listener: &Listener) {
    let host = match listener.host.contains(':') {
        true => format!("[{}]:{}", listener.host, listener.port),
        false => format!("{}:{}", listener.host, listener.port),
    };
    out.put("_id", at as i32);
    out.put("host", host.as_str());
    out.put("priority", if at == 0 { 1 } else { 0 });
    if at == ARBITER {
        out.put("arbiterOnly", true);
    }
}

fn config(listeners: &[Listener]) -> DocBuf {
    DocBuf::build(|out| {
        out.put("_id", NAME);
        // A machine that the measurement saturates is no reason for an election.
        out.put("settings", doc! { "electionTimeoutMillis" => ELECTION_TIMEOUT_MS });
        let mut members = out.array("members");
        for (at, listener) in listeners.iter().enumerate() {
            member(&mut members.document(), at, listener);
        }
    })
}

/// Asks a server until it is so.
fn until(uri: &Uri, what: &str, is_so: impl Fn(&Connection) -> bool) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let connected = Connection::open(uri).map_err(failed)?;
        if is_so(&connected) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(failed(format!("the set has no {what} within {PATIENCE:?}")));
        }
        std::thread::sleep(PAUSE);
    }
}

impl ReplicaSet {
    /// Starts the servers, with these arguments and a directory each within `db`, and initiates the set.
    /// `listener` says where the server of a port listens.
    pub fn start(
        db: &Path,
        arguments: &[String],
        listener: impl Fn(u16) -> Listener,
    ) -> Result<ReplicaSet> {
        let (mut servers, mut listeners) = (Vec::new(), Vec::new());
        let arguments = [arguments, &["--replSet".to_owned(), NAME.to_owned()]].concat();
        for at in 0..MEMBERS {
            let directory = db.join(at.to_string());
            std::fs::create_dir_all(&directory).map_err(failed)?;
            let port = server::free_port()?;
            servers.push(Server::start(port, &directory, &arguments, &[])?);
            listeners.push(listener(port));
        }
        let uris: std::result::Result<Vec<Uri>, ClientError> =
            listeners.iter().map(plain_uri).collect();
        let uris = uris.map_err(failed)?;
        let [first, secondaries @ .., _] = &uris[..] else { return Err(failed("no members")) };
        let mut connection = Connection::open(first).map_err(failed)?;
        let initiate = doc! { "replSetInitiate" => config(&listeners) };
        connection.command("admin", &initiate).map_err(failed)?;
        until(first, "primary", |it| it.greeting().value("ismaster").truthy())?;
        for uri in secondaries {
            until(uri, "secondary", |it| it.greeting().value("secondary").truthy())?;
        }
        let others = servers.split_off(1);
        let primary = servers.pop().ok_or_else(|| failed("no primary"))?;
        let mut data = listeners.into_iter().take(ARBITER);
        let listener = data.next().ok_or_else(|| failed("no primary"))?;
        Ok(ReplicaSet { primary, listener, others, secondaries: data.collect() })
    }
}

/// Waits until the secondaries have what the primary has now.
pub fn catch_up(
    primary: &Listener,
    secondaries: &[Listener],
) -> std::result::Result<(), ClientError> {
    let primary = plain_uri(primary)?;
    for secondary in secondaries {
        requests::catch_up(&primary, &plain_uri(secondary)?)?;
    }
    Ok(())
}
