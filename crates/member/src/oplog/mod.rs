//! The log as operations: what change streams and the `oplog.rs` view are made of.
//!
//! - [`units`]: a frame's units as operations on documents and definitions.
//! - [`reader`]: reads frames for many readers at once, finds them by time, waits for more.
//!
//! The contract with readers:
//! - Positions are indexes of frames; they ascend by one. Each entry has a time of its own. Times ascend, and are the
//!   same on all members. The last one of a frame is the `operationTime` that its writers were told.
//! - Only frames that are committed and applied here are shown ([`position::LogPlace::readable`]).
//! - Frames up to the purged one are gone: a reader that still wants one has lost its place.
//! - Nothing here blocks the worker of a caller: what is not at hand is a ticket.
//!
//! Must not know: how entries are shown to clients.

pub mod position;
pub mod reader;
pub mod units;

pub use position::LogPlace;
pub use reader::{Fetch, LogReader};
pub use units::{Entry, Op, OpKind, What};
