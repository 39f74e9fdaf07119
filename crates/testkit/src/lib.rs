//! Crash tests for storage engines on the emulated medium.
//!
//! A *world* is an engine on an emulated directory, with a small catalog like the real one: one document per
//! collection, changed in the same unit as the stores and indexes. *Sessions* write to it: units of one and of many
//! documents, creation and removal of collections and indexes, index builds; in between the engine does
//! maintenance. A *history* records every commit with the events of the emulator's trace at which it began and was
//! promised.
//!
//! Then the power fails, or the process dies, at any point of the trace. A recovery must find a prefix of the
//! history: no less than was promised by then, no more than had begun, each unit whole, nothing that had been
//! deleted, no id assigned twice, and every index as after a rebuild. Writers continue on the recovered state,
//! which crashes again, in its recovery or later.
//!
//! | module | holds |
//! |---|---|
//! | [`dice`] | seeded choices |
//! | [`clock`] | a clock that the test advances |
//! | [`target`] | an engine for crash tests |
//! | [`model`] | the expected contents of an engine; reading its contents |
//! | [`history`] | the commits, and when each was promised |
//! | [`schema`] | collections and indexes as documents of the catalog |
//! | [`world`] | an open engine with its catalog and history |
//! | [`plan`] | units, from reading to their changes |
//! | [`session`] | writers, one step at a time |
//! | [`crash`] | runs, crashes, and the required results of recoveries |
//! | [`damage`] | flipped bits |
//! | [`short`] | short workloads, one operation after the other, and all of them |
//! | [`seeds`] | runs of many seeds |
//! | [`sites`] | disabling one safeguard after the other |

//!
//! A run without threads is a function of its seed, failures included: they say which seed, which
//! event and which image. With threads the trace differs from run to run, but each image is still
//! checked against what that run did.
//!
//! For tests: what goes wrong panics. Knows no engine by name.

pub mod clock;
pub mod crash;
pub mod damage;
pub mod dice;
pub mod history;
pub mod model;
pub mod plan;
pub mod schema;
pub mod seeds;
pub mod session;
pub mod short;
pub mod sites;

pub mod target;
pub mod world;

pub use crash::{Crashes, Run};
pub use dice::Dice;
pub use history::Loss;
pub use target::{CrashTarget, OpenEngine, Work};

/// The seed of this run: `KAURI_SEED`, else a fixed one. Printed, so that a failure can be repeated.
pub fn seed(default: u64) -> u64 {
    let given = std::env::var("KAURI_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(default);
    println!("seed {seed} (KAURI_SEED={seed} repeats it)");
    seed
}
