//! Outgoing sessions opened by workers from connection strings, with a service that knows the handshake.

use kauri_base::clock::SeededRandom;
use kauri_bson::{Doc, DocWriter, Value, doc};
use kauri_client::outgoing::{Opened, open};
use kauri_client::{ClientError, Result, Uri};
use kauri_transport::outgoing::OutgoingOptions;
use kauri_transport::tcp::{TcpOptions, TcpTransport};
use kauri_transport::unix::{UnixOptions, UnixTransport};
use kauri_transport::{
    ClientState, ExecutorOptions, Handling, Outcome, ReplyBuf, RequestContext, ServiceEntryPoint,
    ServiceExecutor, SessionInfo, SessionManager, TransportLayer, Tried,
};
use kauri_wire::{Message, MsgWriter, ReplyWriter};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

struct Service {
    /// The process id that the server reports.
    process: [u8; 12],
    random: SeededRandom,
}

struct Nothing;

impl ClientState for Nothing {}

impl Service {
    fn answer(&self, session: &SessionInfo, command: Doc<'_>, out: &mut DocWriter<'_>) {
        match command.first().unwrap().key() {
            "isMaster" | "hello" => {
                let mut version = out.document("topologyVersion");
                version.put("processId", Value::ObjectId(self.process));
                drop(version);
                out.put("maxWireVersion", 25);
                out.put("ok", if command.get("fails").is_some() { 0.0 } else { 1.0 });
            }
            "kauriUpgrade" => {
                let Value::Binary { bytes, .. } = command.value("parameters") else { panic!() };
                match session.upgrade.prepare("sharedMemory", &bytes, &self.random) {
                    Ok(answer) => {
                        let bytes = answer.into();
                        out.put("parameters", Value::Binary { subtype: 0, bytes });
                        out.put("ok", 1.0);
                    }
                    Err(error) => {
                        out.put("errmsg", error.to_string().as_str());
                        out.put("ok", 0.0);
                    }
                }
            }
            _ => out.put("ok", 1.0),
        }
    }
}

impl ServiceEntryPoint for Service {
    fn start_session(&self, _: &Arc<SessionInfo>) -> Box<dyn ClientState> {
        Box::new(Nothing)
    }

    fn try_handle(
        &self,
        cx: &mut RequestContext<'_>,
        request: &[u8],
        reply: &mut ReplyBuf,
    ) -> Tried {
        let (header, message) = Message::parse(request).unwrap();
        match message {
            Message::Msg(message) => {
                let writer = MsgWriter::begin(reply.buffer(), 1, header.request_id, 0);
                let command = Doc::from_bytes(message.body).unwrap();
                self.answer(cx.session, command, &mut DocWriter::new(reply.buffer()));
                writer.finish(reply.buffer()).unwrap();
            }
            Message::Query(query) => {
                let writer = ReplyWriter::begin(reply.buffer(), 1, header.request_id, 8, 0, 1);
                let command = Doc::from_bytes(query.command()).unwrap();
                self.answer(cx.session, command, &mut DocWriter::new(reply.buffer()));
                writer.finish(reply.buffer()).unwrap();
            }
            _ => return Tried::Done(Outcome::Close),
        }
        Tried::Done(Outcome::Reply)
    }

    fn handle_request<'a>(
        &'a self,
        _: RequestContext<'a>,
        _: &'a [u8],
        _: &'a mut ReplyBuf,
    ) -> Handling<'a> {
        unreachable!()
    }

    fn end_session(&self, _: &Arc<SessionInfo>, _: Box<dyn ClientState>) {}
}

struct Server {
    executor: Arc<ServiceExecutor>,
    manager: Arc<SessionManager>,
    tcp: TcpTransport,
    unix: UnixTransport,
    port: u16,
}

impl Server {
    /// Listens on a free port and on that port's Unix domain socket, where it may report another process.
    fn start(unix_process: u8) -> Server {
        let executor =
            ServiceExecutor::start(&ExecutorOptions { workers: 1, ..Default::default() }).unwrap();
        let manager = |process| {
            let random = SeededRandom::new(1);
            let service = Arc::new(Service { process: [process; 12], random });
            SessionManager::new(Arc::clone(&executor), service, 100)
        };
        let (manager, other) = (manager(1), manager(unix_process));
        let bind_ips = vec!["127.0.0.1".to_owned()];
        let mut tcp = TcpTransport::new(TcpOptions { bind_ips, port: 0, ipv6: false });
        tcp.setup().unwrap();
        tcp.start(&manager).unwrap();
        let port = tcp.socket_addresses()[0].port();
        let (path_prefix, permissions) = ("/tmp".into(), 0o700);
        let mut unix = UnixTransport::new(UnixOptions { path_prefix, port, permissions });
        unix.setup().unwrap();
        unix.start(if unix_process == 1 { &manager } else { &other }).unwrap();
        Server { executor, manager, tcp, unix, port }
    }

    fn open(&self, uri: &str) -> Result<Opened> {
        opened(&self.executor, uri)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tcp.shutdown();
        self.unix.shutdown();
        self.manager.shutdown(Duration::ZERO);
        self.executor.shutdown();
    }
}

fn opened(executor: &Arc<ServiceExecutor>, uri: &str) -> Result<Opened> {
    let uri: Uri = uri.parse().unwrap();
    let worker = executor.workers()[0].clone();
    let (report, reported) = channel();
    worker.clone().spawn(async move {
        report.send(open(&worker, &uri, OutgoingOptions::default()).await).unwrap();
    });
    reported.recv_timeout(PATIENCE).expect("it hangs")
}

#[test]
fn a_session_uses_the_fastest_available_transport() {
    let same = Server::start(1);
    let (port, path) = (same.port, format!("%2Ftmp%2Fmongodb-{}.sock", same.port));
    for (uri, transport, why) in [
        (format!("mongodb://127.0.0.1:{port}/?rdma=off"), "sharedMemory", None),
        (format!("mongodb://localhost:{port}/?sharedMemory=off&rdma=off"), "tcp", None),
        (format!("mongodb://{path}/?sharedMemory=require&ringBytes=65536"), "sharedMemory", None),
        (format!("mongodb://{path}/?sharedMemory=off&rdma=off"), "unix", None),
        (format!("mongodb://{path}/?rdma=off&ringBytes=5"), "unix", Some("power of two")),
        (format!("mongodb://127.0.0.1:{port}/?sharedMemory=off"), "tcp", Some("no RDMA")),
    ] {
        let opened = same.open(&uri).unwrap();
        assert_eq!(opened.session.transport(), Some(transport), "{uri}");
        let fallback = opened.fallback.unwrap_or_default();
        assert!(why.map_or(fallback.is_empty(), |why| fallback.contains(why)), "{uri}: {fallback}");
        assert_eq!(opened.greeting.as_doc().value("maxWireVersion"), Value::from(25));
    }
    // Another process listens on the socket.
    let other = Server::start(2);
    let uri = format!("mongodb://127.0.0.1:{}/?rdma=off", other.port);
    let opened = other.open(&uri).unwrap();
    assert_eq!(opened.session.transport(), Some("tcp"));
    let process = doc! { "processId" => Value::ObjectId([1; 12]) };
    let version = opened.greeting.as_doc().value("topologyVersion").to_string();
    assert_eq!(version, Value::from(process).to_string());
    for required in ["sharedMemory=require&rdma=off", "rdma=require"] {
        let uri = format!("mongodb://127.0.0.1:{}/?{required}", other.port);
        let error = other.open(&uri).unwrap_err();
        assert!(matches!(&error, ClientError::Required(_)), "{error}");
    }
}

#[test]
fn a_server_that_does_not_answer_the_handshake_is_an_error() {
    let executor =
        ServiceExecutor::start(&ExecutorOptions { workers: 1, ..Default::default() }).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let uri = format!("mongodb://127.0.0.1:{port}/?connectTimeoutMS=50");
    let error = opened(&executor, &uri).unwrap_err();
    let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut;
    assert!(matches!(&error, ClientError::Io(error) if timed_out(error)), "{error}");
    drop(silent);
    let error = opened(&executor, &uri).unwrap_err();
    assert!(matches!(&error, ClientError::Io(error) if !timed_out(error)), "{error}");
    executor.shutdown();
}
