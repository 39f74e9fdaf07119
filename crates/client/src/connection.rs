//! Commands and their replies.

use crate::deadline::Deadline;
use crate::rdma;
use crate::request::{self, Sequence};
use crate::shared::RingWay;
use crate::stream::{Stream, reserve};
use crate::uri::{Uri, Wanted};
use crate::{ClientError, Result};
use kauri_base::Error;
use kauri_bson::{Doc, DocBuf, DocWriter, Value, doc};
use kauri_transport::rdma::DialedFabric;
use kauri_transport::shared_memory::{self, SharedFabric};
use kauri_transport::sys::{SIGN_OF_LIFE, set_tcp_options};
use kauri_wire::{
    HEADER_BYTES, Header, Message, MsgWriter, checked_length, claimed_length, opcode, query_flags,
    write_query,
};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Size of message memory that a connection keeps when it is trimmed.
const INBOX_BYTES_KEPT: usize = 1 << 20;

/// The first wire protocol version with OP_MSG: MongoDB 3.6.
const OP_MSG_WIRE_VERSION: i64 = 6;

/// The transport of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Transport {
    Tcp,
    Unix,
    SharedMemory,
    Rdma,
}

impl Transport {
    /// As in connection strings and counters.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Unix => "unix",
            Transport::SharedMemory => "sharedMemory",
            Transport::Rdma => "rdma",
        }
    }
}

/// A reply as it came, errors of the command included.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The request that it answers.
    pub response_to: i32,
    /// Its document.
    pub body: DocBuf,
}

impl Reply {
    /// The document, or the error in it.
    pub fn checked(self) -> Result<DocBuf> {
        let doc = self.body.as_doc();
        if doc.value("ok").truthy() {
            return Ok(self.body);
        }
        let code = doc.value("code").to_i64_saturating().unwrap_or(0) as i32;
        let message = match doc.value("errmsg") {
            Value::String(text) => text.into_owned(),
            _ => "the command failed".to_owned(),
        };
        Err(ClientError::Command(Error::location(code, message)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A server that has gone takes nothing more.
        if !self.broken && self.stream.is_quiet() {
            match &mut self.way {
                Way::Stream => {}
                Way::Shared(way) => way.flush(&self.stream),
                Way::Rdma(way) => way.flush(&self.stream),
            }
        }
    }
}

/// The reply, if it answers this request.
fn check_answer(id: i32, reply: Reply) -> Result<Reply> {
    if reply.response_to != id {
        let what = format!("an answer to request {} instead of {id}", reply.response_to);
        return Err(ClientError::Protocol(what));
    }
    Ok(reply)
}

/// The handshake of a client of this connection string.
pub(crate) fn hello_command(uri: &Uri) -> DocBuf {
    let name = if uri.introduces { "isMaster" } else { "hello" };
    DocBuf::build(|out| {
        out.put(name, 1);
        if !uri.introduces {
            return;
        }
        out.put("helloOk", true);
        let mut client = out.document("client");
        if let Some(name) = &uri.app_name {
            client.document("application").put("name", name.as_str());
        }
        let mut driver = client.document("driver");
        driver.put("name", "kauri-client");
        driver.put("version", env!("CARGO_PKG_VERSION"));
        drop(driver);
        client.document("os").put("type", std::env::consts::OS);
    })
}

/// The command that asks the server for a transport.
pub(crate) fn upgrade_command(transport: Transport, parameters: Vec<u8>) -> DocBuf {
    let parameters = Value::Binary { subtype: 0, bytes: parameters.into() };
    doc! { "kauriUpgrade" => 1, "transport" => transport.name(), "parameters" => parameters }
}

/// Which process has answered a handshake.
pub(crate) fn process_of(greeting: Doc<'_>) -> Option<[u8; 12]> {
    let version = greeting.get("topologyVersion").and_then(|version| version.as_doc());
    version.and_then(|version| match version.value("processId") {
        Value::ObjectId(id) => Some(id),
        _ => None,
    })
}

/// The document of a reply: an OP_MSG, or the OP_REPLY to an OP_QUERY.
pub(crate) fn reply_of(message: &[u8]) -> Result<(Header, Doc<'_>)> {
    let (header, message) = Message::parse(message)?;
    let body = match &message {
        Message::Msg(message) => Some(message.body),
        Message::Reply(reply) => reply.documents().next(),
        _ => None,
    };
    let Some(body) = body else {
        return Err(ClientError::Protocol("a message that is no reply".to_owned()));
    };
    Ok((header, Doc::from_bytes(body)?))
}

/// Why a connection has not changed over.
type Change = std::result::Result<(), String>;

/// The carrier of messages.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one a connection")]
enum Way {
    Stream,
    Shared(RingWay<SharedFabric>),
    Rdma(RingWay<DialedFabric>),
}

/// A session with a server.
#[derive(Debug)]
pub struct Connection {
    // Before the stream, whose end ends the session.
    way: Way,
    stream: Stream,
    /// Why it is not what `auto` would rather have.
    fallback: Option<String>,
    /// A transfer failed in the middle, so further bytes would be misinterpreted.
    broken: bool,
    inbox: Vec<u8>,
    start: usize,
    /// The length of the last received message, which ends at `start`.
    last_bytes: usize,
    beside: Vec<OwnedFd>,
    outbox: Vec<u8>,
    next_id: i32,
    /// The server's reply to the handshake.
    greeting: DocBuf,
    /// How long that reply took.
    round_trip: Duration,
    /// The server supports only OP_QUERY: it is older than MongoDB 3.6.
    is_legacy: bool,
}

/// Until when connecting may take, from now on.
pub(crate) fn connect_end(uri: &Uri) -> Deadline {
    Deadline::after(Some(uri.connect_timeout).filter(|time| !time.is_zero()))
}

/// Fails if the connection string names another set than the server's.
pub(crate) fn check_set_name(uri: &Uri, greeting: Doc<'_>) -> Result<()> {
    let Some(wanted) = uri.set_name.as_deref() else { return Ok(()) };
    match greeting.value("setName").as_str() {
        Some(name) if name == wanted => Ok(()),
        Some(name) => {
            let why = format!("{} is a member of set '{name}', not of '{wanted}'", uri.host);
            Err(ClientError::Required(why))
        }
        None => {
            let why = format!("{} is not a member of a set; set '{wanted}' is wanted", uri.host);
            Err(ClientError::Required(why))
        }
    }
}

impl Connection {
    /// Connects with one server, says hello, and changes over as the connection string wants it. For a set see
    /// [`crate::connect`].
    pub fn open(uri: &Uri) -> Result<Connection> {
        uri.check()?;
        if uri.set.is_some() {
            let why = "it means a replica set; one server is wanted (directConnection=true)";
            return Err(ClientError::Uri(why.to_owned()));
        }
        let end = connect_end(uri);
        let connection = Connection::greet(uri, end)?;
        check_set_name(uri, connection.greeting())?;
        connection.settle(uri, end)
    }

    /// Connects and says hello, until the deadline at most. The server is silent no longer than `socketTimeoutMS`.
    pub(crate) fn greet(uri: &Uri, end: Deadline) -> Result<Connection> {
        let mut connection = Connection::over(Stream::connect(uri, end)?);
        connection.hello(uri)?;
        Ok(connection)
    }

    /// Changes over, until the deadline at most.
    pub(crate) fn settle(mut self, uri: &Uri, end: Deadline) -> Result<Connection> {
        self.stream.set_end(end);
        let mut connection = self.negotiate(uri)?;
        connection.stream.set_end(Deadline::NEVER);
        Ok(connection)
    }

    fn negotiate(self, uri: &Uri) -> Result<Connection> {
        let mut connection = self;
        let server = process_of(connection.greeting());
        let mut why = Vec::new();
        if uri.shared_memory != Wanted::Off && uri.rdma != Wanted::Require {
            if let Some(beside) = server.and_then(|server| connection.beside(uri, server)) {
                connection = beside;
            }
            match connection.share(uri)? {
                Ok(()) => return Ok(connection),
                Err(reason) => why.push(format!("no shared memory: {reason}")),
            }
        }
        if uri.rdma != Wanted::Off && uri.shared_memory != Wanted::Require {
            match connection.dial(uri)? {
                Ok(()) => return Ok(connection),
                Err(reason) => why.push(format!("no RDMA: {reason}")),
            }
        }
        if uri.rdma == Wanted::Require || uri.shared_memory == Wanted::Require {
            return Err(ClientError::Required(why.join("; ")));
        }
        connection.fallback = (!why.is_empty()).then(|| why.join("; "));
        Ok(connection)
    }

    /// A connection to the same server through its Unix domain socket. Another listener there gets at most half of
    /// the time, so that enough is left to continue without.
    fn beside(&self, uri: &Uri, server: [u8; 12]) -> Option<Connection> {
        let end = self.stream.end();
        let mut beside = Connection::over(self.stream.beside(uri, end.part(2))?);
        beside.hello(uri).ok()?;
        let other = process_of(beside.greeting());
        beside.stream.set_end(end);
        (other == Some(server)).then_some(beside)
    }

    fn over(stream: Stream) -> Connection {
        Connection {
            way: Way::Stream,
            stream,
            fallback: None,
            broken: false,
            inbox: Vec::new(),
            start: 0,
            last_bytes: 0,
            beside: Vec::new(),
            outbox: Vec::new(),
            next_id: 0,
            greeting: DocBuf::new(),
            round_trip: Duration::ZERO,
            is_legacy: false,
        }
    }

    /// The server's description of itself: its reply to `hello` or `isMaster`.
    pub fn greeting(&self) -> Doc<'_> {
        self.greeting.as_doc()
    }

    /// How long the reply to the handshake took.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// The transport in use.
    pub fn transport(&self) -> Transport {
        match &self.way {
            Way::Shared(_) => Transport::SharedMemory,
            Way::Rdma(_) => Transport::Rdma,
            Way::Stream if self.stream.is_unix() => Transport::Unix,
            Way::Stream => Transport::Tcp,
        }
    }

    /// Why it does not go through shared memory or RDMA, though it might have.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Says hello.
    ///
    /// Like drivers, it sends `isMaster` in an OP_QUERY, which servers of every age answer: the oldest support
    /// nothing else, and do not reply to an OP_MSG or close the connection. A client that does not introduce itself
    /// relays for others, to servers of this kind.
    fn hello(&mut self, uri: &Uri) -> Result<()> {
        let hello = hello_command(uri);
        self.is_legacy = uri.introduces;
        let began = Instant::now();
        let id = self.send("admin", &hello)?;
        let (reply, by_query) = self.receive_of_kind()?;
        let reply = check_answer(id, reply)?.checked()?;
        let version = reply.as_doc().value("maxWireVersion").to_i64_saturating().unwrap_or(0);
        self.is_legacy = by_query && version < OP_MSG_WIRE_VERSION;
        self.greeting = reply;
        self.round_trip = began.elapsed();
        Ok(())
    }

    /// Changes over to shared memory. The inner error: why it stays as it is. After the outer one the
    /// connection can't be used.
    fn share(&mut self, uri: &Uri) -> Result<Change> {
        if !self.stream.is_unix() {
            return Ok(Err("the connection is no Unix domain socket's".to_owned()));
        }
        let request = shared_memory::request(uri.ring_bytes);
        let answer = match self.upgrade(Transport::SharedMemory, request)? {
            Ok(answer) => answer,
            Err(why) => return Ok(Err(why)),
        };
        let accepted = shared_memory::accept(&answer, std::mem::take(&mut self.beside));
        let switched = accepted
            .map_err(ClientError::from)
            .and_then(|(end, probe)| RingWay::switch(end, probe, &self.stream, uri.spin));
        match switched {
            Ok(way) => self.way = Way::Shared(way),
            Err(error) => return self.stays(error.to_string()),
        }
        Ok(Ok(()))
    }

    /// The same, to RDMA.
    fn dial(&mut self, uri: &Uri) -> Result<Change> {
        let Some(address) = self.stream.local_address() else {
            return Ok(Err("the connection is not TCP's".to_owned()));
        };
        let dialing = match rdma::prepare(uri.rdma_device.as_deref(), address) {
            Ok(dialing) => dialing,
            Err(why) => return Ok(Err(why)),
        };
        let answer = match self.upgrade(Transport::Rdma, dialing.request())? {
            Ok(answer) => answer,
            Err(why) => return Ok(Err(why)),
        };
        let switched = dialing.accept(&answer).and_then(|(end, probe)| {
            RingWay::switch(end, probe, &self.stream, uri.spin).map_err(|error| error.to_string())
        });
        match switched {
            Ok(way) => self.way = Way::Rdma(way),
            Err(why) => return self.stays(why),
        }
        // Nothing else tells of a server whose host has gone.
        set_tcp_options(self.stream.fd(), &SIGN_OF_LIFE)?;
        Ok(Ok(()))
    }

    /// Continues with the stream, if its state is unchanged.
    fn stays(&self, why: String) -> Result<Change> {
        match self.stream.is_quiet() {
            true => Ok(Err(why)),
            false => Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, why).into()),
        }
    }

    /// Requests a transport from the server. Returns its parameters.
    fn upgrade(
        &mut self,
        transport: Transport,
        parameters: Vec<u8>,
    ) -> Result<std::result::Result<Vec<u8>, String>> {
        let command = upgrade_command(transport, parameters);
        let reply = match self.command("admin", &command) {
            Err(ClientError::Command(error)) => return Ok(Err(error.to_string())),
            reply => reply?,
        };
        Ok(match reply.as_doc().value("parameters") {
            Value::Binary { bytes, .. } => Ok(bytes.into_owned()),
            _ => Err("an upgrade without parameters".to_owned()),
        })
    }

    /// Maximum silence of the server from now on, while the client waits for it.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        Ok(self.stream.set_timeout(timeout)?)
    }

    /// Whether it is in order, and nothing has come that was not received.
    pub fn is_quiet(&mut self) -> bool {
        let way = match &mut self.way {
            Way::Shared(way) => way.is_quiet(),
            Way::Rdma(way) => way.is_quiet(),
            Way::Stream => true,
        };
        way && !self.broken && self.start == self.inbox.len() && self.stream.is_quiet()
    }

    /// Whether it is broken, or the server is known to have ended it. Replies may be there still.
    pub fn has_ended(&self) -> bool {
        let has_failed = match &self.way {
            Way::Shared(way) => way.has_failed(),
            Way::Rdma(way) => way.has_failed(),
            Way::Stream => false,
        };
        self.broken || has_failed || self.stream.has_ended()
    }

    /// Frees the memory of a large message, if no unread bytes are in it.
    pub fn trim(&mut self) {
        if self.outbox.capacity() > INBOX_BYTES_KEPT {
            self.outbox = Vec::new();
        }
        if self.start == self.inbox.len() && self.inbox.capacity() > INBOX_BYTES_KEPT {
            (self.inbox, self.start, self.last_bytes) = (Vec::new(), 0, 0);
        }
        self.stream.trim();
        match &mut self.way {
            Way::Shared(way) => way.trim(),
            Way::Rdma(way) => way.trim(),
            Way::Stream => {}
        }
    }

    /// Runs a command and waits for its reply.
    pub fn command(&mut self, database: &str, command: &DocBuf) -> Result<DocBuf> {
        let id = self.send(database, command)?;
        let reply = self.receive()?;
        check_answer(id, reply)?.checked()
    }

    /// Writes the message of a command that `fill` writes, as the server knows it.
    pub fn write_command(
        &self,
        message: &mut Vec<u8>,
        id: i32,
        database: &str,
        fill: impl FnOnce(&mut DocWriter<'_>),
    ) -> Result<()> {
        if self.is_legacy {
            let command = DocBuf::build(fill);
            let (flags, ns) = (query_flags::SECONDARY_OK, format!("{database}.$cmd"));
            return write_query(message, id, flags, &ns, -1, command.as_doc().as_bytes())
                .map_err(request::refused);
        }
        let writer = MsgWriter::begin(message, id, 0, 0);
        {
            let mut body = DocWriter::new(message);
            fill(&mut body);
            body.put("$db", database);
        }
        writer.finish(message).map_err(request::refused)
    }

    /// Sends a command. Answers the request's id. Replies come in the order of the requests.
    pub fn send(&mut self, database: &str, command: &DocBuf) -> Result<i32> {
        self.next_id = self.next_id.wrapping_add(1);
        let mut message = std::mem::take(&mut self.outbox);
        message.clear();
        let fill = |body: &mut DocWriter<'_>| body.put_all(command.as_doc());
        let sent = self
            .write_command(&mut message, self.next_id, database, fill)
            .and_then(|()| self.send_message(&message));
        self.outbox = message;
        sent.map(|()| self.next_id)
    }

    /// Sends a command with its own `$db`, and document sequences. Large parts are sent from their place. Returns
    /// the request's id.
    pub fn send_request(&mut self, body: Doc<'_>, sequences: &[Sequence<'_>]) -> Result<i32> {
        if self.is_legacy {
            let why = "the server is older than MongoDB 3.6: it takes no document sequences";
            return Err(ClientError::Request(why.to_owned()));
        }
        let mut small = std::mem::take(&mut self.outbox);
        let id = self.next_id.wrapping_add(1);
        let sent = request::send(id, body, sequences, &mut small, |piece| self.send_message(piece));
        self.outbox = small;
        sent?;
        self.next_id = id;
        Ok(id)
    }

    /// Sends a whole message, or the next piece of one.
    pub fn send_message(&mut self, message: &[u8]) -> Result<()> {
        self.check()?;
        let sent = match &mut self.way {
            Way::Shared(way) => way.send(message, &self.stream),
            Way::Rdma(way) => way.send(message, &self.stream),
            Way::Stream => self.stream.send(message).map_err(ClientError::from),
        };
        self.broken = sent.is_err();
        sent
    }

    fn check(&self) -> Result<()> {
        if self.broken {
            let why = "the connection was broken before";
            return Err(std::io::Error::new(std::io::ErrorKind::NotConnected, why).into());
        }
        Ok(())
    }

    /// Waits for the next reply.
    pub fn receive(&mut self) -> Result<Reply> {
        let (response_to, body) = self.receive_borrowed()?;
        Ok(Reply { response_to, body: body.to_buf() })
    }

    /// The next reply, and whether it is an OP_REPLY.
    fn receive_of_kind(&mut self) -> Result<(Reply, bool)> {
        let (header, body) = reply_of(self.receive_message()?)?;
        let reply = Reply { response_to: header.response_to, body: body.to_buf() };
        Ok((reply, header.op_code == opcode::REPLY))
    }

    /// Waits for the next reply: the request that it answers and its document, which is there until
    /// something else is received.
    pub fn receive_borrowed(&mut self) -> Result<(i32, Doc<'_>)> {
        let (header, body) = reply_of(self.receive_message()?)?;
        Ok((header.response_to, body))
    }

    /// Waits for the next message; it is valid until the next call.
    pub fn receive_message(&mut self) -> Result<&[u8]> {
        self.check()?;
        let length = self.whole_message();
        self.broken = length.is_err();
        let length = length?;
        self.start += length;
        self.last_bytes = length;
        Ok(self.last_message())
    }

    /// The last received message, as long as nothing else is received and the connection is not trimmed.
    pub fn last_message(&self) -> &[u8] {
        let start = self.start.saturating_sub(self.last_bytes);
        self.inbox.get(start..self.start).unwrap_or_default()
    }

    /// Its document.
    pub fn last_reply(&self) -> Result<Doc<'_>> {
        Ok(reply_of(self.last_message())?.1)
    }

    /// Receives until a whole message has arrived. Returns its length.
    fn whole_message(&mut self) -> Result<usize> {
        loop {
            let unread = self.inbox.get(self.start..).unwrap_or_default();
            let claimed = claimed_length(unread);
            let length = match claimed {
                Some(claimed) => checked_length(claimed).ok_or_else(|| {
                    ClientError::Protocol(format!("a message of {claimed} bytes"))
                })?,
                None => HEADER_BYTES,
            };
            if claimed.is_some() && unread.len() >= length {
                return Ok(length);
            }
            self.fill(length)?;
        }
    }

    /// Receives more of a message of this length.
    fn fill(&mut self, length: usize) -> Result<()> {
        self.inbox.drain(..self.start);
        (self.start, self.last_bytes) = (0, 0);
        let more = length.saturating_sub(self.inbox.len()).max(4096);
        reserve(&mut self.inbox, more)?;
        match &mut self.way {
            Way::Shared(way) => way.receive(&mut self.inbox, &self.stream),
            Way::Rdma(way) => {
                way.expect(length);
                way.receive(&mut self.inbox, &self.stream)
            }
            Way::Stream => match self.stream.receive(&mut self.inbox, &mut self.beside)? {
                0 => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
                _ => Ok(()),
            },
        }
    }
}
