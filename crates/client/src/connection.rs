//! Commands and their replies.

use crate::shared::SharedWay;
use crate::stream::Stream;
use crate::uri::{Uri, Wanted};
use crate::{ClientError, Result};
use kauri_base::Error;
use kauri_bson::{Doc, DocBuf, DocWriter, Value, doc};
use kauri_transport::shared_memory;
use kauri_wire::{HEADER_BYTES, Message, MsgWriter, checked_length, claimed_length};
use std::os::fd::OwnedFd;

/// What a connection goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Transport {
    Tcp,
    Unix,
    SharedMemory,
}

impl Transport {
    /// As in connection strings and counters.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Unix => "unix",
            Transport::SharedMemory => "sharedMemory",
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
    /// The document, or the error that it tells of.
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

/// A session with a server.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    shared: Option<SharedWay>,
    /// Why it is not what `auto` would rather have.
    fallback: Option<String>,
    inbox: Vec<u8>,
    start: usize,
    beside: Vec<OwnedFd>,
    outbox: Vec<u8>,
    next_id: i32,
}

impl Connection {
    /// Connects, says hello, and changes over as the connection string wants it.
    pub fn open(uri: &Uri) -> Result<Connection> {
        if uri.rdma == Wanted::Require {
            return Err(ClientError::Required("rdma=require: there is no RDMA yet".to_owned()));
        }
        let mut connection = Connection {
            stream: Stream::connect(uri, uri.shared_memory != Wanted::Off)?,
            shared: None,
            fallback: None,
            inbox: Vec::new(),
            start: 0,
            beside: Vec::new(),
            outbox: Vec::new(),
            next_id: 0,
        };
        connection.hello(uri)?;
        if uri.shared_memory != Wanted::Off
            && let Err(error) = connection.change_over(uri)
        {
            let why = format!("no shared memory: {error}");
            if uri.shared_memory == Wanted::Require {
                return Err(ClientError::Required(why));
            }
            connection.fallback = Some(why);
        }
        Ok(connection)
    }

    /// What it goes through.
    pub fn transport(&self) -> Transport {
        match (&self.shared, &self.stream) {
            (Some(_), _) => Transport::SharedMemory,
            (None, Stream::Unix(_)) => Transport::Unix,
            (None, Stream::Tcp(_)) => Transport::Tcp,
        }
    }

    /// Why it does not go through shared memory, though it might have.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    fn hello(&mut self, uri: &Uri) -> Result<()> {
        let hello = DocBuf::build(|out| {
            out.put("hello", 1);
            let mut client = out.document("client");
            if let Some(name) = &uri.app_name {
                client.document("application").put("name", name.as_str());
            }
            let mut driver = client.document("driver");
            driver.put("name", "kauri-client");
            driver.put("version", env!("CARGO_PKG_VERSION"));
            drop(driver);
            client.document("os").put("type", std::env::consts::OS);
        });
        self.command("admin", &hello).map(|_| ())
    }

    fn change_over(&mut self, uri: &Uri) -> Result<()> {
        if matches!(self.stream, Stream::Tcp(_)) {
            let why = "the connection is no Unix domain socket's".to_owned();
            return Err(ClientError::Required(why));
        }
        let parameters =
            Value::Binary { subtype: 0, bytes: shared_memory::request(uri.ring_bytes).into() };
        let transport = Transport::SharedMemory.name();
        let command =
            doc! { "kauriUpgrade" => 1, "transport" => transport, "parameters" => parameters };
        let reply = self.command("admin", &command)?;
        let Value::Binary { bytes, .. } = reply.as_doc().value("parameters") else {
            return Err(ClientError::Protocol("an upgrade without parameters".to_owned()));
        };
        let (end, probe) = shared_memory::accept(&bytes, std::mem::take(&mut self.beside))?;
        let way = SharedWay::switch(end, probe, &self.stream, uri.spin, uri.socket_timeout)?;
        self.shared = Some(way);
        Ok(())
    }

    /// Runs a command and waits for its reply.
    pub fn command(&mut self, database: &str, command: &DocBuf) -> Result<DocBuf> {
        let id = self.send(database, command)?;
        let reply = self.receive()?;
        if reply.response_to != id {
            let what = format!("an answer to request {} instead of {id}", reply.response_to);
            return Err(ClientError::Protocol(what));
        }
        reply.checked()
    }

    /// Sends a command. Answers the request's id. Replies come in the order of the requests.
    pub fn send(&mut self, database: &str, command: &DocBuf) -> Result<i32> {
        self.next_id = self.next_id.wrapping_add(1);
        let mut message = std::mem::take(&mut self.outbox);
        message.clear();
        let writer = MsgWriter::begin(&mut message, self.next_id, 0, 0);
        {
            let mut body = DocWriter::new(&mut message);
            body.put_all(command.as_doc());
            body.put("$db", database);
        }
        writer.finish(&mut message)?;
        let sent = self.send_message(&message);
        self.outbox = message;
        sent.map(|()| self.next_id)
    }

    /// Sends a whole message.
    pub fn send_message(&mut self, message: &[u8]) -> Result<()> {
        match &mut self.shared {
            Some(way) => way.send(message, &self.stream),
            None => Ok(self.stream.send(message)?),
        }
    }

    /// Waits for the next reply.
    pub fn receive(&mut self) -> Result<Reply> {
        let message = self.receive_message()?;
        let (header, message) = Message::parse(message)?;
        let Message::Msg(message) = message else {
            return Err(ClientError::Protocol("a reply that is no OP_MSG".to_owned()));
        };
        let body = Doc::from_bytes(message.body)?.to_buf();
        Ok(Reply { response_to: header.response_to, body })
    }

    /// Waits for the next message; it is there until the next call.
    pub fn receive_message(&mut self) -> Result<&[u8]> {
        let length = loop {
            let unread = self.inbox.get(self.start..).unwrap_or_default();
            let length = match claimed_length(unread) {
                Some(claimed) => checked_length(claimed).ok_or_else(|| {
                    ClientError::Protocol(format!("a message of {claimed} bytes"))
                })?,
                None => HEADER_BYTES,
            };
            if claimed_length(unread).is_some() && unread.len() >= length {
                break length;
            }
            self.fill(length)?;
        };
        let message = self.start..self.start + length;
        self.start = message.end;
        Ok(self.inbox.get(message).unwrap_or_default())
    }

    /// Receives more of a message of this length.
    fn fill(&mut self, length: usize) -> Result<()> {
        self.inbox.drain(..self.start);
        self.start = 0;
        self.inbox.reserve(length.saturating_sub(self.inbox.len()).max(4096));
        match &mut self.shared {
            Some(way) => way.receive(&mut self.inbox, &self.stream),
            None => match self.stream.receive(&mut self.inbox, &mut self.beside)? {
                0 => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
                _ => Ok(()),
            },
        }
    }
}
