//! Tests of transports, sessions and the executor, in one program so that it is linked once. Some tests need
//! their own process: `memory` and `descriptors` measure and limit it, `log_lines` takes its log. `loom`
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
