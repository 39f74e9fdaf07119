//! Tests of transports, sessions and the executor, in one program: it is linked once. Beside it is what needs
//! a process of its own: `memory` and `descriptors` measure and limit it, `log_lines` takes its log, `loom`
//! compiles sources against a model checker's atomics.

#[path = "../common/mod.rs"]
mod common;

mod connections;
mod deferred;
mod executor;
mod fairness;
mod fake;
mod held;
mod outgoing;
mod outgoing_seeded;
mod pieces;
mod requests;
mod steering;
mod system_calls;
