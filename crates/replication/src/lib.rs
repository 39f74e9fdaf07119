//! Consensus of a replica set: Raft behind a contract of Kauri's own, free of I/O.
//!
//! The protocol is raft-rs' ([`raft`]). This crate adds what a set needs and what raft-rs lacks: the difference
//! between *written* and *durable* log ends, two commit points, the rule for elections after a power loss, a message
//! format of its own, and checks of every message that arrives.
//!
//! - [`consensus`]: one member, from ticks, messages and proposals to messages and committed entries.
//! - [`log`]: the contract of the log's storage; [`memory_log`] is the one of tests.
//! - [`entry`]: entries. An entry names a *frame* of the engine's log; the frame's bytes are never here.
//! - [`codec`]: messages as bytes. Only this module parses what arrives.
//! - [`reader`]: reads their bytes.
//! - [`guard`]: refuses messages that raft-rs must not be given.
//! - [`quorum`]: majorities, of a set that changes too.
//! - [`simulated`]: a network by seed, for simulations.
//!
//! Invariants: nothing here reads a clock, starts a thread or does I/O. Two members that are given the same calls and
//! the same random numbers do the same. A vote is durable before its message leaves. A message from another member
//! never panics this one.
//!
//! Must not know: commands, documents, sessions, the format of the engine's log.

pub mod codec;
pub mod consensus;
pub mod entry;
pub mod guard;
pub mod log;
pub mod memory_log;
mod power_loss;
pub mod quorum;
pub mod reader;
pub mod simulated;
mod store;
mod translate;

pub use consensus::{Config, Consensus, Output, ProposeError, Role};
pub use entry::{Change, Entry, Frame, Membership, Payload};
pub use guard::Refused;
pub use log::{HardState, Log};
pub use memory_log::MemoryLog;
