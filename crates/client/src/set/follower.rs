//! A connection with the selected server of a set. After a failure, or an error by which the server says that it is no
//! longer what it was, the next request goes to a server that is selected anew.
//!
//! Invariants:
//! - A request is repeated once at most, and only if it is alone in flight and may be repeated ([`super::retry`]).
//!   Of such a request a copy is kept until its reply, if it has at most [`KEPT_BYTES_MAX`].
//! - After a failure no request is in flight: replies that were not received are lost.
//! - A received reply stays where it is until the next one is received, though the connection was replaced: callers
//!   in other languages may hold it.

use super::find::Finder;
use super::retry::{self, Repeat};
use super::topology::Kind;
use crate::connection::Connection;
use crate::options::{ReadMode, SetOptions};
use crate::request::Sequence;
use crate::uri::{Host, Uri};
use crate::{ClientError, Result};
use kauri_base::Error;
use kauri_bson::{Doc, DocBuf, Value, doc};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Largest request that is kept to be repeated.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// A connection that was idle for longer is looked at before it is used, at the cost of a system call.
const IDLE: Duration = Duration::from_millis(10);

/// A request that is repeated after a failure.
#[derive(Debug)]
struct Kept {
    repeat: Repeat,
    body: DocBuf,
    sequences: Vec<(String, Vec<DocBuf>)>,
}

impl Kept {
    fn new(repeat: Repeat, body: Doc<'_>, sequences: &[Sequence<'_>]) -> Option<Kept> {
        let bytes = |sequence: &Sequence<'_>| -> usize {
            sequence.documents.iter().map(|document| document.as_bytes().len()).sum()
        };
        let total = body.as_bytes().len() + sequences.iter().map(bytes).sum::<usize>();
        if repeat == Repeat::No || total > KEPT_BYTES_MAX {
            return None;
        }
        let copied = |sequence: &Sequence<'_>| {
            let documents = sequence.documents.iter().map(|document| document.to_buf());
            (sequence.name.to_owned(), documents.collect())
        };
        let sequences = sequences.iter().map(copied).collect();
        Some(Kept { repeat, body: body.to_buf(), sequences })
    }

    fn send(&self, connection: &mut Connection) -> Result<i32> {
        let documents: Vec<Vec<Doc<'_>>> = self
            .sequences
            .iter()
            .map(|(_, all)| all.iter().map(DocBuf::as_doc).collect())
            .collect();
        let sequences: Vec<_> = self
            .sequences
            .iter()
            .zip(&documents)
            .map(|((name, _), documents)| Sequence { name, documents })
            .collect();
        connection.send_request(self.body.as_doc(), &sequences)
    }
}

/// A request without its reply.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// The id that the caller knows.
    id: i32,
    /// The id on the connection.
    sent: i32,
}

/// See the module's head.
pub struct Follower {
    finder: Finder,
    host: Host,
    connection: Connection,
    /// The replaced connection that has received the last reply.
    previous: Option<Connection>,
    /// The connection is replaced before the next request.
    is_lost: bool,
    last_used: Instant,
    /// When the servers were asked last.
    looked: Instant,
    /// `$readPreference` of reads. `None`: the primary.
    preference: Option<DocBuf>,
    in_flight: VecDeque<InFlight>,
    kept: Option<Kept>,
    timeout: Option<Option<Duration>>,
    next_id: i32,
    /// The name of the session in which its writes have numbers, and the last number.
    session: [u8; 16],
    number: i64,
}

impl Follower {
    /// Selects a server and connects.
    pub fn open(uri: &Uri) -> Result<Follower> {
        let mut finder = Finder::new(uri)?;
        let (host, connection) = finder.find()?;
        let session = finder.random_id();
        let SetOptions { preference, .. } = finder.options();
        let is_primary = preference.mode == ReadMode::Primary;
        let preference = (!is_primary).then(|| preference.document());
        Ok(Follower {
            finder,
            preference,
            looked: Instant::now(),
            host,
            connection,
            previous: None,
            is_lost: false,
            last_used: Instant::now(),
            in_flight: VecDeque::new(),
            kept: None,
            timeout: None,
            next_id: 0,
            session,
            number: 0,
        })
    }

    /// The server.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The connection with it.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether the next request goes to a server that is selected anew.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Requests whose replies are to be received.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// As for a connection, also of those to come.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.timeout = Some(timeout);
        self.connection.set_timeout(timeout)
    }

    /// As for a connection.
    pub fn trim(&mut self) {
        self.previous = None;
        self.connection.trim();
    }

    /// Runs a command and waits for its reply.
    pub fn command(&mut self, database: &str, command: &DocBuf) -> Result<DocBuf> {
        let body = DocBuf::build(|out| {
            out.put_all(command.as_doc());
            out.put("$db", database);
        });
        if !self.in_flight.is_empty() {
            return Err(ClientError::Request("replies are to be received first".to_owned()));
        }
        self.send_request(body.as_doc(), &[])?;
        let (response_to, body) = self.receive_borrowed()?;
        crate::Reply { response_to, body: body.to_buf() }.checked()
    }

    /// Sends a command with its own `$db`, and document sequences. Returns the request's id.
    pub fn send_request(&mut self, body: Doc<'_>, sequences: &[Sequence<'_>]) -> Result<i32> {
        if self.in_flight.is_empty()
            && (self.is_lost || self.has_ended_unused() || self.is_behind())
        {
            self.replace()?;
        }
        let repeat = self.repeat_of(body, sequences);
        let added = self.with_fields(body, repeat);
        let body = added.as_ref().map_or(body, DocBuf::as_doc);
        self.kept = Kept::new(repeat, body, sequences).filter(|_| self.in_flight.is_empty());
        let sent = match self.connection.send_request(body, sequences) {
            Err(error) if is_failure(&error) => self.repeated(error)?,
            sent => sent?,
        };
        self.next_id = self.next_id.wrapping_add(1);
        self.in_flight.push_back(InFlight { id: self.next_id, sent });
        Ok(self.next_id)
    }

    /// Whether the server has ended a connection that was not used for some time.
    fn has_ended_unused(&mut self) -> bool {
        let is_idle = self.last_used.elapsed() > IDLE;
        self.last_used = Instant::now();
        is_idle && self.connection.has_ended()
    }

    /// Whether the server has fallen behind by more than `maxStalenessSeconds`. It is looked at after each
    /// `heartbeatFrequencyMS`, which takes as long as the slowest server's hello.
    fn is_behind(&mut self) -> bool {
        let SetOptions { preference, heartbeat, .. } = self.finder.options();
        if preference.max_staleness.is_none() || self.looked.elapsed() < *heartbeat {
            return false;
        }
        self.looked = Instant::now();
        !self.finder.fits_still(&self.host)
    }

    fn repeat_of(&self, body: Doc<'_>, sequences: &[Sequence<'_>]) -> Repeat {
        let greeting = self.connection.greeting();
        let is_one = greeting.get("setName").is_some() || greeting.get("msg").is_some();
        let has_sessions = is_one && greeting.get("logicalSessionTimeoutMinutes").is_some();
        retry::repeat_of(body, sequences, self.finder.options(), has_sessions)
    }

    /// The command with what the server needs to know: the session and the number of a write, and that a secondary is
    /// wanted for a read. `None`: nothing.
    fn with_fields(&mut self, body: Doc<'_>, repeat: Repeat) -> Option<DocBuf> {
        let is_number = repeat == Repeat::NumberedWrite && self.in_flight.is_empty();
        let has_mode = self.preference.is_some()
            && self.finder.topology().kind() != Kind::Single
            && retry::is_read(body)
            && body.get("$readPreference").is_none();
        if !is_number && !has_mode {
            return None;
        }
        let number = self.number + i64::from(is_number);
        self.number = number;
        Some(DocBuf::build(|out| {
            out.put_all(body);
            if is_number {
                let id = Value::Binary { subtype: 4, bytes: self.session.as_slice().into() };
                out.put("lsid", doc! { "id" => id });
                out.put("txnNumber", number);
            }
            if let Some(preference) = self.preference.as_ref().filter(|_| has_mode) {
                out.put("$readPreference", preference);
            }
        }))
    }

    /// Waits for the reply to the oldest request: its id, and the reply's document, which is there until the next
    /// request or reply.
    pub fn receive_borrowed(&mut self) -> Result<(i32, Doc<'_>)> {
        let Some(InFlight { id, sent }) = self.in_flight.front().copied() else {
            return Err(ClientError::Request("no request is in flight".to_owned()));
        };
        self.previous = None;
        let received = match receive(&mut self.connection, sent) {
            Ok(()) => self.again_after_reply(),
            Err(error) if self.kept.is_some() => {
                self.repeated(error).and_then(|sent| receive(&mut self.connection, sent))
            }
            error => error,
        };
        if let Err(error) = received {
            self.lose(&error);
            return Err(error);
        }
        self.in_flight.pop_front();
        self.kept = None;
        let reply = self.connection.last_reply()?;
        if let Some(why) = retry::state_change(reply) {
            let version = retry::version(reply);
            self.finder.topology().note_state_change(&self.host, version, &why);
            self.is_lost = true;
        }
        Ok((id, reply))
    }

    /// Repeats the request if the reply asks for it. If no server fits, the reply is the last.
    fn again_after_reply(&mut self) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let reply = self.connection.last_reply()?;
        let wire_version = self.connection.greeting().value("maxWireVersion").to_i64_saturating();
        if !retry::asks_for_repetition(reply, kept.repeat, wire_version.unwrap_or(0)) {
            return Ok(());
        }
        if let Some(why) = retry::state_change(reply) {
            let version = retry::version(reply);
            self.finder.topology().note_state_change(&self.host, version, &why);
        }
        match self.send_again() {
            Ok(sent) => receive(&mut self.connection, sent),
            Err(_) => Ok(()),
        }
    }

    /// Repeats the kept request after this failure, which is answered if that is not possible.
    fn repeated(&mut self, error: ClientError) -> Result<i32> {
        self.lose_connection(&error);
        if self.kept.is_none() {
            self.in_flight.clear();
            return Err(error);
        }
        self.send_again().map_err(|_| error)
    }

    /// Sends the kept request, which is kept no longer, to a server that is selected anew.
    fn send_again(&mut self) -> Result<i32> {
        let Some(kept) = self.kept.take() else {
            return Err(ClientError::Request("nothing to repeat".to_owned()));
        };
        self.replace()?;
        kept.send(&mut self.connection)
    }

    fn lose_connection(&mut self, error: &ClientError) {
        self.is_lost = true;
        self.finder.topology().note_failure(&self.host, error.to_string());
    }

    fn lose(&mut self, error: &ClientError) {
        self.lose_connection(error);
        self.in_flight.clear();
        self.kept = None;
    }

    /// Selects a server anew. On failure all stays as it is.
    fn replace(&mut self) -> Result<()> {
        let (host, mut connection) = self.finder.find()?;
        if let Some(timeout) = self.timeout {
            connection.set_timeout(timeout)?;
        }
        let replaced = std::mem::replace(&mut self.connection, connection);
        self.previous.get_or_insert(replaced);
        (self.host, self.is_lost, self.looked) = (host, false, Instant::now());
        Ok(())
    }
}

/// Whether a connection is of no use after it.
fn is_failure(error: &ClientError) -> bool {
    matches!(error, ClientError::Io(_) | ClientError::Protocol(_))
}

/// Receives the reply to this request.
fn receive(connection: &mut Connection, sent: i32) -> Result<()> {
    let (answered, _) = connection.receive_borrowed()?;
    if answered != sent {
        let what = format!("an answer to request {answered} instead of {sent}");
        return Err(Error::bad_value(what).into());
    }
    Ok(())
}
