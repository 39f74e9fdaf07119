//! A client that switches to the fastest transport that it and the server support: shared memory on one host,
//! otherwise RDMA, otherwise TCP or a Unix domain socket.
//!
//! ```no_run
//! use kauri_client::{Connection, Uri};
//! let uri: Uri = "mongodb://localhost:27017/?sharedMemory=auto".parse()?;
//! let mut connection = Connection::open(&uri)?;
//! let reply = connection.command("admin", &kauri_bson::doc! { "ping" => 1 })?;
//! # Ok::<(), kauri_client::ClientError>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`uri`] | connection strings |
//! | `host`, `options` | a host of one; what it says about the selection of a server |
//! | [`connection`] | commands and replies, one by one or pipelined |
//! | [`set`] | replica sets: discovery, server selection, and a connection that follows the primary |
//! | [`outgoing`] | sessions that a worker opens: the handshake, and the switch to a faster transport |
//! | `request` | requests in parts, in the caller's memory |
//! | `stream` | the socket that every session begins on |
//! | `shared` | transfers through rings, of shared memory or RDMA |
//! | `rdma` | the process's RDMA devices |
//! | `deadline` | deadlines of waits |
//!
//! Position: above `transport`'s rings and `wire`. Calls of a [`Connection`] block, and a connection belongs to one
//! thread. Must not know: the meaning of commands, except the handshake's.

pub mod connection;
mod deadline;
mod host;
mod options;
pub mod outgoing;
mod rdma;
mod request;
pub mod set;
mod shared;
mod stream;
pub mod uri;

pub use connection::{Connection, Reply, Transport};
pub use request::Sequence;
pub use uri::{Uri, Wanted};

use std::fmt;
use std::io;

/// The errors of a client.
#[derive(Debug)]
pub enum ClientError {
    /// The connection string can't be used.
    Uri(String),
    /// The connection broke, or could not be made.
    Io(io::Error),
    /// The server sent what no server sends.
    Protocol(String),
    /// The server answered with an error.
    Command(kauri_base::Error),
    /// A transport that the connection string requires is unavailable.
    Required(String),
    /// The request exceeds a message; nothing of it was sent.
    Request(String),
    /// No server of the set could be selected in time.
    Selection(String),
}

/// A connection with the server, or with one of the set, that the connection string means. It stays with it:
/// [`set::Follower`] follows.
pub fn connect(uri: &Uri) -> Result<Connection> {
    match uri.set {
        Some(_) => Ok(set::Finder::new(uri)?.find()?.1),
        None => Connection::open(uri),
    }
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, ClientError>;

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Uri(why) => write!(f, "invalid connection string: {why}"),
            ClientError::Io(error) => write!(f, "connection failed: {error}"),
            ClientError::Protocol(what) => write!(f, "the server broke the protocol: {what}"),
            ClientError::Command(error) => write!(f, "{error}"),
            ClientError::Required(why) | ClientError::Selection(why) => f.write_str(why),
            ClientError::Request(why) => write!(f, "the request can't be sent: {why}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        ClientError::Io(error)
    }
}

impl From<kauri_base::Error> for ClientError {
    fn from(error: kauri_base::Error) -> Self {
        ClientError::Protocol(error.to_string())
    }
}
