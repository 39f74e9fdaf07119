//! The commands: one file each, their registry, and what stands between them and the wire.
//!
//! `dispatch` takes a message to a command and its reply back; `cmds` holds the commands;
//! `server` is what they share. Knows nothing of sockets, of engines by name, or of the process.

pub mod args;
pub mod background;
pub mod client;
pub mod cmds;
pub mod concerns;
pub mod cursors;
pub mod dispatch;
pub mod entry_point;
mod express;
mod fail_command;
pub mod invocation;
pub mod locks;
pub mod ops;
mod parameter_table;
pub mod parameters;
pub mod profiling;
mod read_concern;
pub mod registry;
pub mod reply;
pub mod server;
pub mod sessions;
pub mod spilling;
pub mod startup;
mod usage;
mod write_concern;

pub use entry_point::CommandService;
pub use server::{Server, StartInfo};
