//! Persistent memory: mapped log files that become durable without a system call.
//!
//! Assumption: a line of 64 bytes that was written back, or stored past the cache, is durable after the same thread
//! has executed an `sfence` (ADR: the platform moves the memory controller's queues to the medium when power
//! fails). Any other line may be durable or not, each aligned word of 8 bytes with its old or its new value.
//!
//! | module | holds |
//! |---|---|
//! | [`file`] | [`DaxFile`]: the medium |
//! | [`mapping`] | address space and what is mapped into it |
//! | [`lines`] | stores, write-backs, the fence |
//! | [`observed`] | memory that reports stores and fences to an observer |
//! | `sigbus` | the message after a failed memory access |

mod file;
pub(crate) mod lines;
mod mapping;
mod observed;
pub(crate) mod sigbus;

pub use file::DaxFile;
pub use observed::{MappingObserver, ObservedMemory};

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
