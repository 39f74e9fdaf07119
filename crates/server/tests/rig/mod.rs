//! Fixtures for session tests: a server, clients, and the commands that they send.
#![allow(dead_code, reason = "each program uses its part")]

pub mod diagnostic_data;
pub mod liar;
pub mod process;
pub mod suite;

pub use process::{Process, eventually};

use kauri_bson::{DocBuf, Value, doc};
use kauri_client::{ClientError, Connection, Transport, Uri};
use kauri_wire::MsgWriter;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program; the environment may name a checking program that runs it.
pub fn kauri() -> Command {
    let built = option_env!("CARGO_BIN_EXE_kauri").map(str::to_owned);
    let program = built.or_else(|| std::env::var("KAURI").ok()).expect("KAURI: the program's path");
    let under = std::env::var("KAURI_TEST_UNDER").unwrap_or_default();
    let mut words = under.split_whitespace();
    let Some(checker) = words.next() else { return Command::new(program) };
    let mut command = Command::new(checker);
    command.args(words).arg(program);
    command
}

/// The way in which a client reaches the server. The fast ways accept no fallback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Tcp,
    Unix,
    SharedMemory,
    Rdma,
    /// TCP to a proxy on this host, which uses only RDMA.
    ProxyRdma,
}

impl Way {
    /// The section of `serverStatus` that counts its frames.
    pub fn section(self) -> &'static str {
        match self {
            Way::Rdma | Way::ProxyRdma => "rdma",
            _ => "sharedMemory",
        }
    }

    /// Whether its messages go through rings.
    pub fn has_frames(self) -> bool {
        matches!(self, Way::SharedMemory | Way::Rdma | Way::ProxyRdma)
    }

    /// The transport that the client's connection reports.
    fn transport(self) -> Transport {
        match self {
            Way::Tcp | Way::ProxyRdma => Transport::Tcp,
            Way::Unix => Transport::Unix,
            Way::SharedMemory => Transport::SharedMemory,
            Way::Rdma => Transport::Rdma,
        }
    }
}

/// The address on which the server listens beside its Unix domain socket.
pub fn address() -> String {
    std::env::var("KAURI_TEST_RDMA_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned())
}

/// A user without privileges.
const NOBODY: u32 = 65534;

pub struct Server {
    pub process: Process,
    pub place: PathBuf,
    pub port: u16,
    /// The proxy before it and its port; started at first use.
    proxy: OnceLock<(Process, u16)>,
}

impl Server {
    pub fn start(name: &str, args: &[&str]) -> Server {
        Server::start_by(kauri(), name, args)
    }

    /// The same as a user without privileges, with this limit of locked memory.
    pub fn start_with_memlock(name: &str, bytes: u64, args: &[&str]) -> Server {
        let mut command = Command::new("prlimit");
        command.arg(format!("--memlock={bytes}:{bytes}")).arg(kauri().get_program());
        std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
        std::os::unix::process::CommandExt::gid(&mut command, NOBODY);
        Server::start_by(command, name, args)
    }

    /// Starts on a given port.
    pub fn start_at(name: &str, port: u16, args: &[&str]) -> Server {
        Server::start_by_at(kauri(), name, port, args)
    }

    fn start_by(program: Command, name: &str, args: &[&str]) -> Server {
        let port = TcpListener::bind((address(), 0)).unwrap().local_addr().unwrap().port();
        Server::start_by_at(program, name, port, args)
    }

    fn start_by_at(program: Command, name: &str, port: u16, args: &[&str]) -> Server {
        let place = std::env::temp_dir().join(format!("kauri-shm-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(place.join("db")).unwrap();
        for open in [&place, &place.join("db")] {
            let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(open, all).unwrap();
        }
        let process = Server::serve(program, &place, port, args);
        Server { process, place, port, proxy: OnceLock::new() }
    }

    fn serve(mut program: Command, place: &Path, port: u16, args: &[&str]) -> Process {
        let (listens, given) = (address(), !args.contains(&"--bind_ip"));
        program
            .args(["serve", "--segmentSizeMB", "32", "--workers", "2", "--port", &port.to_string()])
            .args(given.then_some(["--bind_ip", &listens]).into_iter().flatten())
            .args(["--setParameter", "enableTestCommands=1", "--unixSocketPrefix"])
            .arg(place)
            .arg("--dbpath")
            .arg(place.join("db"))
            .args(args);
        Process::start(&mut program)
    }

    /// Kills the server and restarts it on the same directory and port.
    pub fn restart(&mut self, args: &[&str]) {
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        self.process = Server::serve(kauri(), &self.place, self.port, args);
    }

    /// The port of the proxy before the server. The proxy keeps no idle sessions.
    fn proxy(&self) -> u16 {
        let (_, port) = self.proxy.get_or_init(|| {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let server = format!("mongodb://{}:{}/?rdma=require", address(), self.port);
            let mut program = kauri();
            program.args(["proxy", &server, "--port", &port.to_string(), "--maxIdleSessions", "0"]);
            (Process::start(program.arg("--nounixsocket")), port)
        });
        *port
    }

    pub fn socket(&self) -> PathBuf {
        self.place.join(format!("mongodb-{}.sock", self.port))
    }

    pub fn uri(&self, options: &str) -> Uri {
        let socket = self.socket().display().to_string().replace('/', "%2F");
        format!("mongodb://{socket}/?{options}").parse().unwrap()
    }

    pub fn connect(&self, options: &str) -> Connection {
        Connection::open(&self.uri(options)).unwrap()
    }

    /// Connects in this way only.
    pub fn connect_by(&self, way: Way, options: &str) -> Result<Connection, ClientError> {
        let socket = self.socket().display().to_string().replace('/', "%2F");
        let tcp = format!("{}:{}", address(), self.port);
        let (host, wanted) = match way {
            Way::Tcp => (tcp, "sharedMemory=off&rdma=off"),
            Way::Unix => (socket, "sharedMemory=off"),
            Way::SharedMemory => (socket, "sharedMemory=require"),
            Way::Rdma => (tcp, "rdma=require"),
            Way::ProxyRdma => (format!("127.0.0.1:{}", self.proxy()), "sharedMemory=off&rdma=off"),
        };
        let uri = format!("mongodb://{host}/?{wanted}&socketTimeoutMS=60000&{options}");
        let connection = Connection::open(&uri.parse()?)?;
        assert_eq!(connection.transport(), way.transport());
        Ok(connection)
    }

    pub fn open(&self, way: Way) -> Connection {
        self.connect_by(way, "").unwrap()
    }

    /// The same as [`status`], on a separate connection.
    pub fn status(&self, path: &str) -> i64 {
        status(&mut self.connect("sharedMemory=off"), path)
    }

    /// Frames and credit frames, in and out, through the rings of this transport.
    pub fn counts(&self, way: Way) -> [i64; 4] {
        ["framesIn", "framesOut", "creditsIn", "creditsOut"]
            .map(|count| self.status(&format!("{}.{count}", way.section())))
    }

    /// Waits until a number of `serverStatus` has this value.
    pub fn until(&self, path: &str, expected: i64) {
        eventually(path, || self.status(path) == expected);
    }

    /// Waits until the log has these words this many times.
    pub fn tells(&self, words: &str, times: usize) {
        self.process.tells(words, times);
    }

    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.child.id())).unwrap().count()
    }

    /// Number of descriptors that the workers watch.
    pub fn watched(&self) -> usize {
        let infos = std::fs::read_dir(format!("/proc/{}/fdinfo", self.process.child.id())).unwrap();
        // A descriptor that is closed in between watches nothing.
        let texts = infos.map(|info| std::fs::read_to_string(info.unwrap().path()));
        let lines = |text: String| text.lines().filter(|line| line.starts_with("tfd:")).count();
        texts.map(|text| text.map_or(0, lines)).sum()
    }

    pub fn mappings(&self) -> usize {
        let maps =
            std::fs::read_to_string(format!("/proc/{}/maps", self.process.child.id())).unwrap();
        maps.lines().filter(|line| line.contains("kauri-session")).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process ends before its directory is removed.
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        if std::thread::panicking() {
            self.process.show_log();
        }
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// A number of `serverStatus`, by its dotted path.
pub fn status(connection: &mut Connection, path: &str) -> i64 {
    let mut doc = connection.command("admin", &doc! { "serverStatus" => 1 }).unwrap();
    let (sections, last) = path.rsplit_once('.').unwrap();
    for part in sections.split('.') {
        doc = doc.as_doc().get(part).unwrap().as_doc().unwrap().to_buf();
    }
    doc.as_doc().value(last).to_i64_saturating().unwrap()
}

pub fn payload(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(seed * 2 + 77) >> 5) as u8).collect()
}

pub fn insert(id: i32, bytes: usize) -> DocBuf {
    let value = Value::Binary { subtype: 0, bytes: payload(bytes, id as usize).into() };
    let document = doc! { "_id" => id, "x" => value };
    doc! { "insert" => "c", "documents" => kauri_bson::array![document] }
}

pub fn find(id: i32) -> DocBuf {
    let filter = doc! { "_id" => id };
    doc! { "find" => "c", "filter" => filter, "singleBatch" => true }
}

/// The payload in a reply to `find`.
pub fn found(reply: &DocBuf) -> Vec<u8> {
    let cursor = reply.as_doc().get("cursor").unwrap().as_doc().unwrap();
    let batch = cursor.get("firstBatch").unwrap().as_doc().unwrap();
    let document = batch.first().unwrap().as_doc().unwrap();
    match document.value("x") {
        Value::Binary { bytes, .. } => bytes.into_owned(),
        other => panic!("{other:?}"),
    }
}

/// A command's message.
pub fn message(command: &DocBuf) -> Vec<u8> {
    message_to("admin", command)
}

pub fn message_to(database: &str, command: &DocBuf) -> Vec<u8> {
    let mut message = Vec::new();
    let writer = MsgWriter::begin(&mut message, 1, 0, 0);
    {
        let mut body = kauri_bson::DocWriter::new(&mut message);
        body.put_all(command.as_doc());
        body.put("$db", database);
    }
    writer.finish(&mut message).unwrap();
    message
}

/// Makes the next command of this name take this long.
pub fn block(connection: &mut Connection, name: &str, millis: i32) {
    let command = DocBuf::build(|out| {
        out.put("configureFailPoint", "failCommand");
        out.put("mode", doc! { "times" => 1 });
        let mut data = out.document("data");
        data.put("failCommands", kauri_bson::array![name]);
        data.put("blockConnection", true);
        data.put("blockTimeMS", millis);
    });
    connection.command("admin", &command).unwrap();
}
