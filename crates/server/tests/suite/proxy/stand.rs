//! Fixture: a server, a proxy before it, and drivers of the proxy.

pub use crate::rig::process::{Process, eventually};
use kauri_bson::{Doc, DocBuf, DocWriter, Value, doc};
use kauri_client::{Connection, Transport, Uri};
use kauri_wire::{Message, MsgWriter};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sends SIGTERM.
pub fn terminate(process: &Process) {
    let sent = Command::new("kill").arg(process.child.id().to_string()).status().unwrap();
    assert!(sent.success());
}

pub struct Stand {
    pub server: Process,
    pub proxy: Process,
    place: PathBuf,
    server_port: u16,
    pub port: u16,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn serve(place: &Path, port: u16) -> Process {
    Process::start(
        Command::new(env!("CARGO_BIN_EXE_kauri"))
            .args(["serve", "--segmentSizeMB", "32", "--workers", "2", "--port", &port.to_string()])
            .args(["--setParameter", "enableTestCommands=1", "--unixSocketPrefix"])
            .arg(place)
            .arg("--dbpath")
            .arg(place.join("db")),
    )
}

fn escaped(path: &Path) -> String {
    path.display().to_string().replace('/', "%2F")
}

impl Stand {
    /// A proxy that requires shared memory.
    pub fn start(name: &str, args: &[&str]) -> Stand {
        Stand::with(name, "sharedMemory=require", args)
    }

    pub fn with(name: &str, options: &str, args: &[&str]) -> Stand {
        Stand::before(name, args, |place, port| {
            let socket = escaped(&place.join(format!("mongodb-{port}.sock")));
            format!("mongodb://{socket}/?{options}")
        })
    }

    /// The proxy connects to the server's port.
    pub fn over_tcp(name: &str) -> Stand {
        Stand::before(name, &[], |_, port| format!("mongodb://127.0.0.1:{port}/?rdma=off"))
    }

    fn before(name: &str, args: &[&str], uri: impl Fn(&Path, u16) -> String) -> Stand {
        let place = std::env::temp_dir().join(format!("kauri-proxy-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(place.join("db")).unwrap();
        let (server_port, port) = (free_port(), free_port());
        let server = serve(&place, server_port);
        let uri = uri(&place, server_port);
        let proxy = Process::start(
            Command::new(env!("CARGO_BIN_EXE_kauri"))
                .args(["proxy", &uri, "--port"])
                .args([&port.to_string(), "--unixSocketPrefix"])
                .arg(&place)
                .args(args),
        );
        Stand { server, proxy, place, server_port, port }
    }

    pub fn restart_server(&mut self) {
        self.server = serve(&self.place, self.server_port);
    }

    pub fn socket(&self) -> PathBuf {
        self.place.join(format!("mongodb-{}.sock", self.port))
    }

    pub fn tcp(&self, app: &str) -> Uri {
        let options = format!("sharedMemory=off&rdma=off&socketTimeoutMS=60000&appName={app}");
        format!("mongodb://127.0.0.1:{}/?{options}", self.port).parse().unwrap()
    }

    pub fn unix(&self, options: &str) -> Uri {
        format!("mongodb://{}/?{options}", escaped(&self.socket())).parse().unwrap()
    }

    /// A driver over TCP.
    pub fn driver(&self) -> Connection {
        Connection::open(&self.tcp("test")).unwrap()
    }

    /// A connection to the server without the proxy, not over shared memory.
    pub fn direct(&self) -> Connection {
        let uri = format!("mongodb://127.0.0.1:{}/?sharedMemory=off&rdma=off", self.server_port);
        let connection = Connection::open(&uri.parse().unwrap()).unwrap();
        assert_eq!(connection.transport(), Transport::Tcp);
        connection
    }

    /// A number of `serverStatus`, by its dotted path.
    pub fn status(&self, path: &str) -> i64 {
        let status = self.direct().command("admin", &doc! { "serverStatus" => 1 }).unwrap();
        number(&status, path)
    }

    pub fn until(&self, path: &str, expected: i64) {
        eventually(path, || self.status(path) == expected);
    }

    /// Makes the next command of this name take this long.
    pub fn block(&self, name: &str, millis: i32) {
        let data = doc! {
            "failCommands" => kauri_bson::array![name],
            "blockConnection" => true,
            "blockTimeMS" => millis,
        };
        let mode = doc! { "times" => 1 };
        let command =
            doc! { "configureFailPoint" => "failCommand", "mode" => mode, "data" => data };
        self.direct().command("admin", &command).unwrap();
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

pub fn number(doc: &DocBuf, path: &str) -> i64 {
    let mut doc = doc.clone();
    let mut parts: Vec<_> = path.split('.').collect();
    let last = parts.pop().unwrap();
    for part in parts {
        doc = doc.as_doc().get(part).unwrap().as_doc().unwrap().to_buf();
    }
    doc.as_doc().value(last).to_i64_saturating().unwrap()
}

/// The server's number for a driver's session.
pub fn session_of(driver: &mut Connection) -> i64 {
    number(&driver.command("admin", &doc! { "hello" => 1 }).unwrap(), "connectionId")
}

pub fn ping(driver: &mut Connection) {
    driver.command("admin", &doc! { "ping" => 1 }).unwrap();
}

fn payload(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(seed * 2 + 77) >> 5) as u8).collect()
}

pub fn insert(id: i32, bytes: usize) -> DocBuf {
    let value = Value::Binary { subtype: 0, bytes: payload(bytes, id as usize).into() };
    let document = doc! { "_id" => id, "x" => value };
    doc! { "insert" => "c", "documents" => kauri_bson::array![document] }
}

pub fn find(id: i32) -> DocBuf {
    doc! { "find" => "c", "filter" => doc! { "_id" => id }, "singleBatch" => true }
}

/// Whether a reply to `find` has the document of `insert`.
pub fn is_found(reply: &DocBuf, id: i32, bytes: usize) -> bool {
    let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
    let batch = cursor.get("firstBatch").unwrap().as_doc().unwrap();
    let document = batch.first().unwrap().as_doc().unwrap();
    match document.value("x") {
        Value::Binary { bytes: found, .. } => *found == payload(bytes, id as usize),
        other => panic!("{other:?}"),
    }
}

/// A command to `test` as a complete message.
pub fn message(id: i32, flags: u32, command: &DocBuf) -> Vec<u8> {
    let mut message = Vec::new();
    let writer = MsgWriter::begin(&mut message, id, 0, flags);
    {
        let mut body = DocWriter::new(&mut message);
        body.put_all(command.as_doc());
        body.put("$db", "test");
    }
    writer.finish(&mut message).unwrap();
    message
}

/// A reply: its flags, its `responseTo`, its body.
pub fn reply(driver: &mut Connection) -> (u32, i32, DocBuf) {
    let message = driver.receive_message().unwrap();
    let (header, message) = Message::parse(message).unwrap();
    let Message::Msg(msg) = message else { panic!("no OP_MSG") };
    (msg.flags, header.response_to, Doc::from_bytes(msg.body).unwrap().to_buf())
}
