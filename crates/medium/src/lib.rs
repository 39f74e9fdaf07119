//! Where bytes become durable, and the memory through which the engine reads them back.
//!
//! | module | holds |
//! |---|---|
//! | [`medium`] | [`Medium`]: one log file: grow, store, persist, drain, read |
//! | [`directory`] | [`Directory`]: small files replaced atomically, the lock file, opening log files |
//! | [`plain`] | both over a real directory (pread, pwritev, fdatasync) |
//! | [`dax`] | log files in persistent memory, mapped |
//! | `direct` | what the cache does with a mapped file |
//! | [`emulator`] | both in memory: loses what was not drained, in every way a medium may |
//! | [`faults`] | errors on demand, and sites that a test switches off to see a crash test fail |
//! | [`cell`] | an object that readers follow under a guard while it is replaced |
//! | [`epoch`] | guards and deferred reclamation |
//! | [`buffer`] | aligned memory for bytes read at once |
//! | [`cache`] | [`SegmentCache`]: log segments in memory, read by address |
//! | [`staging`] | bytes that outlive the process without a system call |
//! | [`parallel`] | work in parts, on several threads |
//! | [`temporary`] | what queries spill: files without names, gone with the process |
//!
//! Invariants:
//! - What [`Medium::store`] returned for survives the death of the process; what a
//!   [`Medium::drain`] that began later returned for survives the loss of power.
//! - After a failed drain every later drain of that medium fails.
//! - Of a mapped file, what the cache lets be looked at is durable.
//! - Everything unsafe that a log-structured engine needs is fenced in here; the public API is safe.
//!
//! Knows nothing of records, documents or recovery: bytes at offsets only.

#![deny(missing_docs)]

pub mod buffer;
pub mod cache;
pub mod cell;
pub mod dax;
mod direct;
pub mod directory;
pub mod emulator;
pub mod epoch;
mod error;
pub mod faults;
pub mod medium;
pub mod parallel;
pub mod plain;
pub mod staging;
mod sync;
mod sys;
pub mod temporary;

pub use buffer::{Buffer, DIRECT_ALIGN};
pub use cache::{CacheConfig, SegmentCache, SegmentStorer, SegmentWriter};
pub use cell::EpochCell;
pub use dax::{Dax, Delayed, Latency};
pub use direct::Mapped;
pub use directory::{Directory, DirectoryLock};
pub use emulator::{Emulator, EmulatorConfig};
pub use epoch::{EpochDomain, Guard};
pub use error::{Error, IoKind, Result};
pub use faults::{Faults, Site};
pub use medium::{Medium, MediumKind};
pub use staging::Staging;
pub use sys::prefetch;
