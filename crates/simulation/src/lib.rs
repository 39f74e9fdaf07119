//! A whole server in one thread, determined by a seed.
//!
//! A *world* ([`world`]) has virtual time, an emulated disk, a server on it, and clients. The server is the
//! product's own: sessions, dispatch and the express path, catalog, `pmlog`. Only its sockets, its threads and its
//! disk are emulated ([`node`]). The world gives turns to workers in an order that the seed determines. From time
//! to time the server dies: by the death of its process, by a power loss, or in its recovery.
//!
//! Clients ([`workload`]) send commands and record commands, replies and times ([`history`]). A check ([`check`])
//! decides whether the observations are possible for one server with one copy of the data.
//!
//! Replica sets of whole servers: [`set`].
//!
//! Invariants: a run is a function of its seed ([`Outcome::hash`] distinguishes two runs). Nothing here reads the
//! machine's clock, and no thread is started.
//!
//! For tests.

pub mod check;
pub mod client;
pub mod history;
pub mod node;
pub mod set;
pub mod workload;
pub mod world;

pub use world::{Outcome, run};
