//! The commands: one file each, their registry, and the path between them and the wire.
//!
//! `dispatch` maps a message to a command and back to a reply; `cmds` has the commands; `server` has what they
//! share. This crate must not know sockets, concrete engines, or the process.

pub mod accepted;
mod admission;
pub mod args;
pub mod background;
pub mod client;
pub mod cluster_parameters;
pub mod cmds;
pub mod concerns;
mod config_store;
pub mod cursors;
pub mod dispatch;
pub mod entry_point;
mod express;
mod fail_command;
mod framing;
pub mod fsync_lock;
pub mod invocation;
#[cfg(feature = "lock-experiment")]
pub mod locks;
pub mod member_host;
pub mod oplog;
pub mod ops;
pub mod parameter_table;
pub mod parameters;
pub mod profiler;
pub mod profiling;
mod read_concern;
pub mod registry;
pub mod reply;
pub mod report;
pub mod server;
pub mod sessions;
mod set;
pub mod spilling;
pub mod startup;
mod time_limit;
mod usage;
mod write_concern;

pub use entry_point::CommandService;
pub use server::{Server, StartInfo};
