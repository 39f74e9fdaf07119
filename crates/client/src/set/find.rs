//! Asks all servers of a set at once, until one fits.
//!
//! Invariant: no thread outlives a call.

use super::description::Description;
use super::selection::{choose, fitting};
use super::topology::Topology;
use crate::connection::{Connection, connect_end};
use crate::deadline::Deadline;
use crate::options::SetOptions;
use crate::uri::{Host, Uri};
use crate::{ClientError, Result};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum time for a server's hello while others may fit.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two rounds of questions while no server fits.
const PAUSE: Duration = Duration::from_millis(50);

/// See the module's head.
pub struct Finder {
    uri: Uri,
    options: SetOptions,
    topology: Topology,
    random: SeededRandom,
    began: Instant,
}

impl Finder {
    /// Of a connection string that means a set.
    pub fn new(uri: &Uri) -> Result<Finder> {
        let Some(options) = uri.set.clone() else {
            return Err(ClientError::Uri("it names one server, not a set".to_owned()));
        };
        uri.check()?;
        let (topology, random) = (Topology::new(uri, &options), SeededRandom::from_entropy());
        Ok(Finder { uri: uri.clone(), options, topology, random, began: Instant::now() })
    }

    /// What the connection string says about selection.
    pub fn options(&self) -> &SetOptions {
        &self.options
    }

    /// The known servers.
    pub fn topology(&mut self) -> &mut Topology {
        &mut self.topology
    }

    /// Random bytes, for a session's name.
    pub(super) fn random_id(&self) -> [u8; 16] {
        let [high, low] = [self.random.next_u64(), self.random.next_u64()];
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }

    /// A connection with a server that fits, within `serverSelectionTimeoutMS` and the time to connect.
    pub fn find(&mut self) -> Result<(Host, Connection)> {
        let end = Deadline::after(Some(self.options.selection_timeout));
        loop {
            let mut asked = self.unasked(&[]);
            let mut greeted = self.ask(&asked, end);
            // Servers that these have named are asked, too, before one is selected.
            let named = self.unasked(&asked);
            greeted.append(&mut self.ask(&named, end));
            asked.extend(named);
            let fit = fitting(&self.topology, &self.options, self.options.local_threshold);
            if let Some(host) = choose(&fit, self.random.next_u64())
                && let Some(connection) = greeted.remove(host)
            {
                let uri = self.uri.to(host.clone());
                match connection.settle(&uri, connect_end(&uri)) {
                    Ok(connection) => return Ok((host.clone(), connection)),
                    Err(error @ ClientError::Required(_)) => return Err(error),
                    Err(error) => self.topology.note_failure(host, error.to_string()),
                }
            }
            if self.topology.is_empty() {
                return Err(ClientError::Required(self.topology.account()));
            }
            let Ok(left) = end.left() else { return Err(self.in_vain()) };
            if self.topology.servers().all(|(host, _)| asked.contains(host)) {
                std::thread::sleep(left.unwrap_or(PAUSE).min(PAUSE));
            }
        }
    }

    /// Asks all servers. Answers whether this one fits still, by what they say.
    pub fn fits_still(&mut self, host: &Host) -> bool {
        let all = self.unasked(&[]);
        drop(self.ask(&all, Deadline::after(Some(self.options.selection_timeout))));
        fitting(&self.topology, &self.options, Duration::MAX).contains(host)
    }

    /// The known servers that are not among these.
    fn unasked(&self, asked: &[Host]) -> Vec<Host> {
        let known = self.topology.servers().map(|(host, _)| host);
        known.filter(|host| !asked.contains(host)).cloned().collect()
    }

    fn in_vain(&self) -> ClientError {
        let preference = &self.options.preference;
        let millis = self.options.selection_timeout.as_millis();
        let account = self.topology.account();
        ClientError::Selection(format!(
            "no server of the set fits {preference} within {millis} ms: {account}"
        ))
    }

    /// Says hello to these servers at once, and notes what they say. Answers the connections.
    fn ask(&mut self, hosts: &[Host], end: Deadline) -> BTreeMap<Host, Connection> {
        let uris: Vec<Uri> = hosts.iter().map(|host| self.uri.to(host.clone())).collect();
        let limit = Deadline::after(Some(HELLO_TIMEOUT)).or_earlier(end);
        let greet = |uri: &Uri| Connection::greet(uri, limit.or_earlier(connect_end(uri)));
        let answers: Vec<Result<Connection>> = std::thread::scope(|scope| {
            let thread = |uri| std::thread::Builder::new().spawn_scoped(scope, move || greet(uri));
            let threads: Vec<_> = uris.iter().map(|uri| (uri, thread(uri))).collect();
            let answer = |(uri, thread): (_, std::io::Result<_>)| match thread {
                Ok(thread) => std::thread::ScopedJoinHandle::join(thread)
                    .unwrap_or_else(|_| Err(ClientError::Protocol("a fault in hello".to_owned()))),
                // No thread can be had: one after the other.
                Err(_) => greet(uri),
            };
            threads.into_iter().map(answer).collect()
        });
        let mut greeted = BTreeMap::new();
        for (host, answer) in hosts.iter().zip(answers) {
            match answer {
                Ok(connection) => {
                    let (round_trip, seen) = (connection.round_trip(), self.began.elapsed());
                    self.topology
                        .note(host, Description::of(connection.greeting(), round_trip, seen));
                    greeted.insert(host.clone(), connection);
                }
                Err(error) => self.topology.note_failure(host, error.to_string()),
            }
        }
        greeted
    }
}
