//! Crash tests for storage engines on the emulated medium.
//!
//! A *world* is an engine on an emulated directory, with a small catalog kept as the real one is:
//! one document a collection, changed in the same unit as the stores and indexes themselves.
//! *Sessions* write to it: units of one and of many documents, collections and indexes that come and
//! go, index builds; in between the engine maintains itself. Everything that was committed goes into
//! a *history* with the events of the emulator's trace at which it began and was promised.
//!
//! Then the power fails, or the process dies, at any point of the trace. A recovery must find a
//! prefix of the history: no less than was promised by then, no more than had begun, each unit
//! whole, nothing that had been deleted, ids that were given never given again, and every index as
//! a rebuild makes it. What was found is worked on and crashes again, in its recovery or later.
//!
//! | module | holds |
//! |---|---|
//! | [`dice`] | choices by seed |
//! | [`clock`] | time by hand |
//! | [`target`] | an engine, as crash tests see it |
//! | [`model`] | what an engine should hold; reading what it does hold |
//! | [`history`] | what was committed, and what was promised when |
//! | [`schema`] | collections and indexes as documents of the catalog |
//! | [`world`] | an open engine with its catalog and history |
//! | [`plan`] | units, from reading to what they change |
//! | [`session`] | writers, one step at a time |
//! | [`crash`] | runs, crashes, and what recoveries have to find |
//! | [`damage`] | bits that rot |
//! | [`short`] | short workloads, one operation after the other, and all that there are of them |
//! | [`sites`] | taking out one safeguard after the other |

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
