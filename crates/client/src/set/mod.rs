//! Replica sets: which servers a set has, which of them is asked, and a connection that follows that one.
//!
//! The rules are those of the public specifications for drivers ("server discovery and monitoring", "server
//! selection", "retryable writes"), for a client that blocks: it looks at the servers only when it needs one.
//!
//! | module | holds |
//! |---|---|
//! | `description` | a server, by its reply to `hello` |
//! | [`topology`] | the known servers, and how a description changes them |
//! | `selection` | the servers that fit a read preference |
//! | [`retry`] | commands that may be repeated, and errors after which they are |
//! | [`follower`] | a connection with the selected server, replaced after a failure |
//! | `find` | asks all servers at once, until one fits |
//!
//! Invariant: all but `find` and `follower` decide without sockets and clocks, so that tables test them.

mod description;
mod find;
pub mod follower;
pub mod retry;
mod selection;
pub mod topology;

pub use crate::options::{ReadMode, ReadPreference, SetOptions, Tags};
pub use description::{Description, Role};
pub use find::Finder;
pub use follower::Follower;
pub use selection::{choose, fitting};
pub use topology::Topology;
