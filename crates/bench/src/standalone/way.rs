//! The measured transports.
//!
//! A transport is a name and a connection string: a line in [`WAYS`]. Connecting shows whether a server supports
//! it.

use kauri_client::{ClientError, Uri};
use std::path::{Path, PathBuf};

/// The socket that a session begins on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Socket {
    Tcp,
    Unix,
}

/// A transport.
#[derive(PartialEq, Eq, Debug)]
pub struct Way {
    /// As on the command line and in JSON.
    pub name: &'static str,
    /// As in tables and plots.
    pub label: &'static str,
    socket: Socket,
    /// What the connection string says.
    options: &'static str,
    /// Measured without being asked for only where the machine has a device for it.
    pub needs_device: bool,
}

const fn way(
    name: &'static str,
    label: &'static str,
    socket: Socket,
    options: &'static str,
    needs_device: bool,
) -> Way {
    Way { name, label, socket, options, needs_device }
}

/// All of them. The first is what the others are compared with.
pub const WAYS: &[Way] = &[
    way("tcp", "TCP", Socket::Tcp, "sharedMemory=off&rdma=off", false),
    way("unix", "Unix socket", Socket::Unix, "sharedMemory=off&rdma=off", false),
    way("sharedMemory", "shared memory", Socket::Unix, "sharedMemory=require&rdma=off", false),
    way("rdma", "RDMA", Socket::Tcp, "sharedMemory=off&rdma=require", true),
];

/// Where a server listens, and how clients are to wait.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its address, without the port.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its Unix domain socket.
    pub socket: PathBuf,
    /// How long clients look for a reply before they sleep.
    pub spin_micros: u32,
    /// The ring that clients ask for; 0: as the server likes.
    pub ring_bytes: u32,
}

impl Way {
    /// The way of this name.
    pub fn parse(name: &str) -> Option<&'static Way> {
        WAYS.iter().find(|way| way.name == name)
    }

    /// Its connection string; spinning and the rings' size are the client's own.
    pub fn address(&self, host: &str, port: u16, socket: &Path) -> String {
        let host = match self.socket {
            Socket::Tcp if host.contains(':') => format!("[{host}]:{port}"),
            Socket::Tcp => format!("{host}:{port}"),
            Socket::Unix => socket.display().to_string().replace('/', "%2F"),
        };
        format!("mongodb://{host}/?{}", self.options)
    }

    /// Its connection string, as the listener's.
    pub fn connection_string(&self, to: &Listener) -> String {
        let (spin, ring) = (to.spin_micros, to.ring_bytes);
        let address = self.address(&to.host, to.port, &to.socket);
        format!("{address}&spinMicros={spin}&ringBytes={ring}")
    }

    /// The same, parsed.
    pub fn uri(&self, to: &Listener) -> Result<Uri, ClientError> {
        self.connection_string(to).parse()
    }
}
