//! Sessions that a worker opens by connection string: the handshake, and the change to shared memory or RDMA.
//!
//! It negotiates as [`crate::Connection`] does, and blocks nothing but for the calls that make a queue pair.

use crate::connection::{
    Reply, Transport, check_set_name, hello_command, process_of, reply_of, upgrade_command,
};
use crate::request::refused;
use crate::uri::{Host, Uri, Wanted};
use crate::{ClientError, Result, rdma};
use kauri_bson::{DocBuf, DocWriter, Value};
use kauri_transport::outgoing::{
    Address, Connect, Outgoing, OutgoingError, OutgoingOptions, SocketConnect,
};
use kauri_transport::{WorkerHandle, monotonic_ns, shared_memory};
use kauri_wire::{MsgWriter, query_flags, write_query};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long another way to the same server is waited for.
const BESIDE_TIMEOUT: Duration = Duration::from_millis(5);

/// A session after its handshake.
#[derive(Debug)]
pub struct Opened {
    /// The session.
    pub session: Outgoing,
    /// What the server has answered to the handshake.
    pub greeting: DocBuf,
    /// Why it does not go through shared memory or RDMA, though it might have.
    pub fallback: Option<String>,
}

/// Opens a session on this worker: connects, says hello, and changes over as the connection string wants it, within
/// its `connectTimeoutMS`. Of `options` the time for connecting is not used. A session goes to one server: of a set the
/// caller selects it ([`Uri::to`]).
pub async fn open(worker: &WorkerHandle, uri: &Uri, options: OutgoingOptions) -> Result<Opened> {
    uri.check()?;
    if uri.set.is_some() {
        return Err(ClientError::Uri("a session goes to one server, not to a set".to_owned()));
    }
    let limit = Some(uri.connect_timeout).filter(|limit| !limit.is_zero());
    let limit_ns = limit.map_or(u64::MAX, |limit| limit.as_nanos() as u64);
    let end_ns = monotonic_ns().saturating_add(limit_ns);
    let address = match &uri.host {
        Host::Tcp(name, port) => Address::Tcp(name.clone(), *port),
        Host::Unix(path) => Address::Unix(path.clone()),
    };
    let opening = Opening { worker, uri, options, end_ns };
    let connect = Arc::new(SocketConnect::new(address));
    let mut opened = opening.greet(connect, Duration::from_nanos(limit_ns), end_ns).await?;
    check_set_name(uri, opened.greeting.as_doc())?;
    let mut why = Vec::new();
    if uri.shared_memory != Wanted::Off && uri.rdma != Wanted::Require {
        if let Some(beside) = opening.beside(&opened).await {
            opened = beside;
        }
        match opening.share(&opened.session).await? {
            Ok(()) => return Ok(opened),
            Err(reason) => why.push(format!("no shared memory: {reason}")),
        }
    }
    if uri.rdma != Wanted::Off && uri.shared_memory != Wanted::Require {
        match opening.dial(&opened.session).await? {
            Ok(()) => return Ok(opened),
            Err(reason) => why.push(format!("no RDMA: {reason}")),
        }
    }
    if uri.rdma == Wanted::Require || uri.shared_memory == Wanted::Require {
        return Err(ClientError::Required(why.join("; ")));
    }
    opened.fallback = (!why.is_empty()).then(|| why.join("; "));
    Ok(opened)
}

struct Opening<'a> {
    worker: &'a WorkerHandle,
    uri: &'a Uri,
    options: OutgoingOptions,
    end_ns: u64,
}

impl Opening<'_> {
    /// A session that has said hello.
    async fn greet(
        &self,
        connect: Arc<dyn Connect>,
        connect_timeout: Duration,
        end_ns: u64,
    ) -> Result<Opened> {
        let options = OutgoingOptions { connect_timeout, ..self.options.clone() };
        let session = Outgoing::open(self.worker, connect, options);
        let hello = hello_command(self.uri);
        let mut message = Vec::new();
        if self.uri.introduces {
            // As drivers do, for servers of every age.
            let (flags, body) = (query_flags::SECONDARY_OK, hello.as_bytes());
            write_query(&mut message, 0, flags, "admin.$cmd", -1, body).map_err(refused)?;
        } else {
            write_command(&mut message, &hello)?;
        }
        let greeting = ask(&session, message, end_ns).await?;
        Ok(Opened { session, greeting, fallback: None })
    }

    /// A session with the same process through its Unix domain socket, if it is on this host. Another process that
    /// may listen there has half of the time, so that enough is left to go on without.
    async fn beside(&self, opened: &Opened) -> Option<Opened> {
        let remote: SocketAddr = opened.session.remote()?.parse().ok()?;
        if !remote.ip().to_canonical().is_loopback() {
            return None;
        }
        let path = format!("/tmp/mongodb-{}.sock", remote.port());
        let connect = Arc::new(SocketConnect::of_own_user(path.into()));
        let now_ns = monotonic_ns();
        let half_ns = now_ns + self.end_ns.saturating_sub(now_ns) / 2;
        let beside = self.greet(connect, BESIDE_TIMEOUT, half_ns).await.ok()?;
        let process = process_of(opened.greeting.as_doc())?;
        (process_of(beside.greeting.as_doc()) == Some(process)).then_some(beside)
    }

    /// Changes over to shared memory. The inner error: why the session stays as it is.
    async fn share(&self, session: &Outgoing) -> Result<std::result::Result<(), String>> {
        if session.transport() != Some(Transport::Unix.name()) {
            return Ok(Err("the connection is no Unix domain socket's".to_owned()));
        }
        let parameters = shared_memory::request(self.uri.ring_bytes);
        self.change(session, Transport::SharedMemory, parameters).await
    }

    /// The same, to RDMA.
    async fn dial(&self, session: &Outgoing) -> Result<std::result::Result<(), String>> {
        let device = self.uri.rdma_device.as_deref();
        match rdma::prepare_on_worker(device, session).await.map_err(lost)? {
            Ok(parameters) => self.change(session, Transport::Rdma, parameters).await,
            Err(why) => Ok(Err(why)),
        }
    }

    /// Requests a transport from the server, and changes over by its answer.
    async fn change(
        &self,
        session: &Outgoing,
        transport: Transport,
        parameters: Vec<u8>,
    ) -> Result<std::result::Result<(), String>> {
        let mut message = Vec::new();
        write_command(&mut message, &upgrade_command(transport, parameters))?;
        let reply = match ask(session, message, self.end_ns).await {
            Err(ClientError::Command(error)) => return Ok(Err(error.to_string())),
            reply => reply?,
        };
        let Value::Binary { bytes, .. } = reply.as_doc().value("parameters") else {
            return Ok(Err("an upgrade without parameters".to_owned()));
        };
        session.upgrade(bytes.into_owned()).await.map_err(lost)
    }
}

/// Writes a command to the database `admin`.
fn write_command(message: &mut Vec<u8>, command: &DocBuf) -> Result<()> {
    let writer = MsgWriter::begin(message, 0, 0, 0);
    {
        let mut body = DocWriter::new(message);
        body.put_all(command.as_doc());
        body.put("$db", "admin");
    }
    writer.finish(message).map_err(refused)
}

/// Sends a request and checks its reply.
async fn ask(session: &Outgoing, message: Vec<u8>, end_ns: u64) -> Result<DocBuf> {
    let reply = session.request(message, Some(end_ns)).await.map_err(lost)?;
    let (header, body) = reply_of(&reply)?;
    Reply { response_to: header.response_to, body: body.to_buf() }.checked()
}

/// An error of the session as one of a connection.
pub fn lost(error: OutgoingError) -> ClientError {
    let kind = match &error {
        OutgoingError::TimedOut { .. } => io::ErrorKind::TimedOut,
        OutgoingError::Unreachable(_) => io::ErrorKind::NotConnected,
        _ => io::ErrorKind::ConnectionAborted,
    };
    ClientError::Io(io::Error::new(kind, error.to_string()))
}
