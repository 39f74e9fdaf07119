//! A replica set of whole servers in one thread, determined by a seed.
//!
//! Each member is the product's own server, from the bytes of a client's message to the bytes on its disk: sessions,
//! commands, catalog, consensus and `pmlog` ([`process`]). Only sockets, threads, disks and the network between members
//! are emulated. Clients ([`client`], [`workload`], [`definitions`]) send commands as drivers do: they look for the
//! primary, and send numbered writes again while their outcome is not known. The world ([`world`]) kills members, takes
//! power away, pauses them, cuts and delays links, empties disks and sets clocks.
//!
//! At the end everything is whole again. Then the set accepts a write soon, all members tell the same of their data and
//! definitions ([`settle`]), no acknowledged write is lost, none happened twice, and what clients saw of lists is
//! strictly serializable.
//!
//! Invariants: as those of the crate.

pub mod client;
pub mod definitions;
pub mod process;
pub mod settle;
pub mod shared;
pub mod workload;
pub mod world;

pub use shared::Counts;
pub use world::{Outcome, run};
