//! The engine's concurrency under a scheduler that runs the threads of a model one at a time and chooses
//! at each lock, atomic and wait who goes on: many interleavings that no machine meets by itself,
//! the same ones each time.
//!
//! `SHUTTLE_ITERATIONS=100000` tries that many schedules of each model, `SHUTTLE_SEED=7` others. A model that
//! fails prints its schedule; `SHUTTLE_REPLAY=…` with the name of the test runs just that one.
//!
//! Memory is sequentially consistent here. What rests on weaker orders is checked by `tests/loom.rs`, here
//! and in the medium's crate.

mod acks;
mod btree;
mod commits;
mod harness;
mod segments;
mod snapshots;
mod transactions;
