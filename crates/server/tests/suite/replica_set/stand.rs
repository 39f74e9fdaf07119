//! Fixture: a set of three servers.

pub use crate::rig::process::{Process, eventually};
use kauri_bson::{DocBuf, Value, doc};
use kauri_client::{Connection, Uri};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

pub const NAME: &str = "rs0";

pub struct Set {
    place: PathBuf,
    ports: Vec<u16>,
    members: Vec<Option<Process>>,
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Set {
    /// Starts the servers, initiates the set, and waits until each is primary or secondary, so that any may be killed.
    pub fn start(name: &str) -> Set {
        let place = std::env::temp_dir().join(format!("kauri-set-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let mut set = Set { place, ports, members: vec![None, None, None] };
        for at in 0..3 {
            set.restart(at);
        }
        let member = |(at, port): (usize, &u16)| {
            Value::from(doc! { "_id" => at as i32, "host" => format!("127.0.0.1:{port}").as_str() })
        };
        let members = Value::array(set.ports.iter().enumerate().map(member));
        let config = doc! { "_id" => NAME, "members" => members };
        let mut first = set.direct(0).unwrap();
        first.command("admin", &doc! { "replSetInitiate" => config }).unwrap();
        eventually("a primary", || set.primary().is_some());
        for at in 0..3 {
            let is_ready = |it: Connection| {
                ["ismaster", "secondary"].iter().any(|key| it.greeting().value(key).truthy())
            };
            eventually("a member that is ready", || set.direct(at).is_some_and(is_ready));
        }
        set
    }

    /// Starts the member that was killed.
    pub fn restart(&mut self, at: usize) {
        let directory = self.place.join(at.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let process = Process::start(
            Command::new(env!("CARGO_BIN_EXE_kauri"))
                .args(["serve", "--segmentSizeMB", "32", "--workers", "2", "--replSet", NAME])
                .args(["--bind_ip", "127.0.0.1", "--port", &self.ports[at].to_string()])
                .args(["--setParameter", "enableTestCommands=1", "--dbpath"])
                .arg(directory),
        );
        self.members[at] = Some(process);
    }

    /// Kills the member, as a loss of power to the process does.
    pub fn kill(&mut self, at: usize) {
        self.members[at] = None;
    }

    /// A connection string of the set.
    pub fn uri(&self, options: &str) -> Uri {
        self.connection_string(options).parse().unwrap()
    }

    pub fn connection_string(&self, options: &str) -> String {
        let hosts: Vec<_> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("mongodb://{}/?replicaSet={NAME}&{options}", hosts.join(","))
    }

    pub fn port(&self, at: usize) -> u16 {
        self.ports[at]
    }

    /// A connection with one member, whatever it is.
    pub fn direct(&self, at: usize) -> Option<Connection> {
        let uri = format!("mongodb://127.0.0.1:{}/?sharedMemory=off&rdma=off", self.ports[at]);
        Connection::open(&uri.parse().unwrap()).ok()
    }

    /// The primary.
    pub fn primary(&self) -> Option<usize> {
        (0..3).find(|at| {
            let is = |connection: Connection| connection.greeting().value("ismaster").truthy();
            self.direct(*at).is_some_and(is)
        })
    }

    /// The member with this port.
    pub fn member(&self, port: u16) -> usize {
        self.ports.iter().position(|own| *own == port).unwrap()
    }

    /// Has the primary step down, and answers it.
    pub fn step_down(&self) -> usize {
        let at = self.primary().unwrap();
        let step_down = doc! { "replSetStepDown" => 60, "secondaryCatchUpPeriodSecs" => 10 };
        self.direct(at).unwrap().command("admin", &step_down).unwrap();
        at
    }

    /// How many documents have this value of `n`, on the primary, to all that was acknowledged.
    pub fn count(&self, n: i32) -> i64 {
        let mut found = 0;
        eventually("a count on the primary", || {
            let Some(mut primary) = self.primary().and_then(|at| self.direct(at)) else {
                return false;
            };
            let count = doc! { "count" => "c", "query" => doc! { "n" => n } };
            let reply = primary.command("test", &count);
            reply.is_ok_and(|reply| {
                found = reply.as_doc().value("n").to_i64_saturating().unwrap();
                true
            })
        });
        found
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.members.iter().flatten().for_each(Process::show_log);
        }
        self.members.clear();
        let _ = std::fs::remove_dir_all(&self.place);
        // A server that is killed leaves its socket, where another test may want one.
        for port in &self.ports {
            let _ = std::fs::remove_file(format!("/tmp/mongodb-{port}.sock"));
        }
    }
}

/// Inserts `{n}`, acknowledged by a majority.
pub fn insert(n: i32) -> DocBuf {
    let concern = doc! { "w" => "majority" };
    doc! {
        "insert" => "c",
        "documents" => kauri_bson::array![doc! { "n" => n }],
        "writeConcern" => concern
    }
}
