//! One member of a replica set.
//!
//! A member drives consensus over the engine's log, talks to the other members, and tells commands what it is at the
//! moment. Commands use [`Member`]: its [`View`], tickets that wait for other members, and requests.
//!
//! - [`config`]: the set's configuration document.
//! - [`view`]: what a member is at the moment.
//! - [`member`]: the handle that commands use.
//! - [`driver`]: the task that runs it.
//! - [`entry_log`]: the engine's log as consensus' entries.
//! - [`oplog`]: the log as operations, for readers.
//! - [`peers`]: connections with other members; [`message`]: what goes through them.
//! - [`stored`]: what a member keeps beside the log.
//! - [`statements`]: which statements of numbered writes were executed.
//! - [`unit_notes`]: what a frame tells of its units besides their records.
//! - [`checkpoint`]: those that frames tell no more of.
//! - [`initial_sync`]: members without data.
//! - [`acks`]: which commits are committed in the set, and who waits for them.
//!
//! Invariants: nothing here blocks a worker that serves clients. No reply tells of a commit before its write concern
//! is met. A member that does not lead accepts no writes.
//!
//! Must not know: commands, plans, documents of users.

pub mod acks;
pub mod checkpoint;
pub mod config;
pub mod driver;
pub mod entry_log;
pub mod initial_sync;
pub mod member;
pub mod message;
mod numbers;
pub mod oplog;
pub mod peers;
pub mod statements;
pub mod stored;
pub mod unit_notes;
pub mod view;

pub use acks::Concern;
pub use config::{MemberConfig, SetConfig, Settings, WriteMode};
pub use driver::{Driver, Host, Parts};
pub use member::{Answer, Member, Request};
pub use statements::{SetCommitter, Statements};
pub use view::{MemberState, PeerStatus, Progress, View};
