//! Model tests of the engine's concurrency. A scheduler runs the threads of a model one at a time and chooses
//! the next thread at each lock, atomic and wait. It covers many interleavings that a machine does not produce,
//! always the same ones.
//!
//! `SHUTTLE_ITERATIONS=100000` runs that many schedules of each model; `SHUTTLE_SEED=7` chooses other
//! schedules. A model that fails prints its schedule. `SHUTTLE_REPLAY=…` with the name of the test runs only
//! that schedule.
//!
//! Memory is sequentially consistent here. `tests/loom.rs` of this crate and of the medium's crate check weaker
//! orders.

mod acks;
mod btree;
mod commits;
mod harness;
mod segments;
mod snapshots;
mod transactions;
