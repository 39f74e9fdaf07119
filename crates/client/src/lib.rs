//! A client that changes over to the fastest transport that it and the server have in common: on one
//! host shared memory, otherwise RDMA, otherwise TCP or a Unix domain socket.
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
//! | [`connection`] | commands and replies, one by one or pipelined |
//! | `request` | requests in parts that lie where the caller has them |
//! | `stream` | the socket that every session begins on |
//! | `shared` | the way through rings, of shared memory or RDMA |
//! | `rdma` | the process's RDMA devices |
//! | `deadline` | until when to wait |
//!
//! Where it sits: above `transport`'s rings and `wire`. It blocks its caller; a connection is one thread's.
//! Must not know: what commands mean, beyond the handshake's.

pub mod connection;
mod deadline;
mod rdma;
mod request;
mod shared;
mod stream;
pub mod uri;

pub use connection::{Connection, Reply, Transport};
pub use request::Sequence;
pub use stream::HangUp;
pub use uri::{Uri, Wanted};

use std::fmt;
use std::io;

/// What can go wrong.
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
    /// What the connection string requires can't be had.
    Required(String),
    /// No message can hold the request; nothing of it was sent.
    Request(String),
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
            ClientError::Required(why) => f.write_str(why),
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
