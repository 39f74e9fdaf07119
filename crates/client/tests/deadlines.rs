//! Connecting to servers that are slow, silent or too busy to accept. Connecting respects its time limit. An
//! unavailable alternative transport is skipped.

use kauri_bson::{DocWriter, doc};
use kauri_client::{ClientError, Connection, Transport};
use kauri_transport::shared_memory::sys::connect_unix;
use kauri_wire::MsgWriter;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time after which a hang is certain, even on a busy machine.
const HANGS: Duration = Duration::from_secs(120);
/// Interval of the bytes that the server sends, for longer than a connection may take.
const DRIP: Duration = Duration::from_millis(20);

type Opened = Result<Connection, ClientError>;

/// Connects in a thread, which may hang.
fn open(uri: String) -> Opened {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(Connection::open(&uri.parse().unwrap())).is_ok());
    told.recv_timeout(HANGS).expect("connecting hangs")
}

fn is_timed_out(opened: Opened) -> bool {
    matches!(opened, Err(ClientError::Io(error)) if error.kind() == ErrorKind::TimedOut)
}

/// A socket file, removed when the test ends.
struct SocketFile {
    path: PathBuf,
    _listener: UnixListener,
}

impl SocketFile {
    fn new(path: PathBuf) -> Self {
        let _listener = UnixListener::bind(&path).unwrap();
        SocketFile { path, _listener }
    }

    /// Fills the accept queue.
    fn fill(&self) {
        loop {
            match connect_unix(&self.path, Some(Duration::from_millis(1))) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The id of the next request.
fn read_request(stream: &mut TcpStream) -> i32 {
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let [length, id, ..] = header.as_chunks::<4>().0 else { panic!() };
    let mut rest = vec![0; i32::from_le_bytes(*length) as usize - header.len()];
    stream.read_exact(&mut rest).unwrap();
    i32::from_le_bytes(*id)
}

/// A server that answers one hello. Returns its port.
fn greets() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let id = read_request(&mut stream);
        let process = kauri_bson::Value::ObjectId([7; 12]);
        let hello = doc! { "ok" => 1.0, "topologyVersion" => doc! { "processId" => process } };
        let mut reply = Vec::new();
        let writer = MsgWriter::begin(&mut reply, 1, id, 0);
        DocWriter::new(&mut reply).put_all(hello.as_doc());
        writer.finish(&mut reply).unwrap();
        stream.write_all(&reply).unwrap();
        // Until the client disconnects.
        let _ = stream.read(&mut [0]);
    });
    port
}

fn escaped(path: &Path) -> String {
    path.to_str().unwrap().replace('/', "%2F")
}

#[test]
fn connecting_to_a_full_listener_respects_the_time_limit() {
    let name = format!("kauri-deadlines-{}.sock", std::process::id());
    let full = SocketFile::new(std::env::temp_dir().join(name));
    full.fill();
    let uri = format!("mongodb://{}/?connectTimeoutMS=300", escaped(&full.path));
    assert!(is_timed_out(open(uri)));
}

#[test]
fn a_full_alternative_listener_is_skipped() {
    let port = greets();
    let full = SocketFile::new(format!("/tmp/mongodb-{port}.sock").into());
    full.fill();
    let opened = open(format!("mongodb://127.0.0.1:{port}/?rdma=off&connectTimeoutMS=60000"));
    let connection = opened.unwrap();
    assert_eq!(connection.transport(), Transport::Tcp);
    assert!(connection.fallback().unwrap().contains("no shared memory"));
}

#[test]
fn a_silent_alternative_listener_leaves_time_for_the_server() {
    let port = greets();
    let _silent = SocketFile::new(format!("/tmp/mongodb-{port}.sock").into());
    let opened = open(format!("mongodb://127.0.0.1:{port}/?rdma=off&connectTimeoutMS=4000"));
    assert_eq!(opened.unwrap().transport(), Transport::Tcp);
}

#[test]
fn connecting_to_a_dripping_server_respects_the_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // A message that never ends.
        let _ = stream.write_all(&1_000_000i32.to_le_bytes());
        while stream.write_all(&[0]).is_ok() {
            thread::sleep(DRIP);
        }
    });
    let uri = format!("mongodb://127.0.0.1:{port}/?socketTimeoutMS=60000&connectTimeoutMS=300");
    assert!(is_timed_out(open(uri)));
}
