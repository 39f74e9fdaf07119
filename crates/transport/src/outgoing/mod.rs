//! Outgoing sessions: a worker connects to a server and has requests in flight at once.
//!
//! [`Connect`] opens sessions with one server. [`Outgoing`] runs such a session as a task of a worker; any thread
//! uses it through this handle. [`Reconnecting`] opens the next session when one is lost, and backs off.
//!
//! Invariants:
//! - Nothing blocks a worker: connecting, sending, receiving and name resolution all wait as futures.
//! - Every request ends: with its reply, at its deadline, or with an error when the session is lost.
//! - Memory is bounded: bytes that wait to be sent, requests in flight, and replies that nobody has taken. Beyond its
//!   bound the session reads no more, and requests wait.
//! - A reply belongs to the request whose id it names. A message that answers nothing ends the session, unless the
//!   user takes messages in order ([`Outgoing::receive`]).
//!
//! | module | holds |
//! |---|---|
//! | `connect` | the contract, and connecting over TCP and Unix domain sockets |
//! | `state` | what a handle and its task share |
//! | `task` | the session's task |
//! | `handle` | requests and messages |
//! | `reconnect` | back-off |
//!
//! Must not know: BSON. The handshake is its user's (`client`).

mod connect;
mod handle;
mod reconnect;
mod state;
mod task;

pub(crate) use connect::session_info;
pub use connect::{Address, Connect, Connecting, PeerSession, SocketConnect};
pub use handle::{Outgoing, OutgoingOptions, Receive, Request};
pub use reconnect::{BackOff, Prepare, Reconnecting};
pub use state::OutgoingError;
