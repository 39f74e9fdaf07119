//! Persistent memory: log files that are mapped, and become durable without a call of the kernel.
//!
//! Assumed of it: a line of 64 bytes that was written back, or stored past the cache, is durable once
//! the thread that did it has executed an `sfence` (ADR: the platform brings the memory controller's
//! queues to the medium when power fails); a line that was not may be there or not, each aligned word
//! of 8 bytes as it was or as it is to be.
//!
//! | module | holds |
//! |---|---|
//! | [`file`] | [`DaxFile`]: the medium |
//! | [`mapping`] | address space and what is mapped into it |
//! | [`lines`] | stores, write-backs, the fence |
//! | [`latency`] | memory that is slower than it is |
//! | `sigbus` | what is said when memory can't be reached |

mod file;
mod latency;
pub(crate) mod lines;
mod mapping;
pub(crate) mod sigbus;

pub use file::DaxFile;
pub use latency::{Delayed, Latency};

/// Whether log files are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Dax {
    /// Where `MAP_SYNC` succeeds: only persistent memory can keep what it promises.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always, with ordinary memory standing in for persistent memory: for measurements and tests on
    /// machines without. Nothing then survives a loss of power for certain.
    Simulated,
}
