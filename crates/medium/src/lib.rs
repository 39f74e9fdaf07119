//! Durable bytes, and the memory through which the engine reads them.
//!
//! | module | holds |
//! |---|---|
//! | [`medium`] | [`Medium`]: one log file: grow, store, persist, drain, read |
//! | [`directory`] | [`Directory`]: small files replaced atomically, the lock file, opening log files |
//! | [`plain_file`] | a file of a file system (pread, pwritev, fdatasync) |
//! | [`dax`] | log files in persistent memory, mapped |
//! | [`plain`] | a directory of a file system, with either |
//! | `latency` | added latency |
//! | `direct` | the cache's access to a mapped file |
//! | [`faults`] | injected errors, and sites that a test disables to see a crash test fail |
//! | [`cell`] | an object that readers access under a guard while it is replaced |
//! | [`epoch`] | guards and deferred reclamation |
//! | [`buffer`] | aligned memory for bytes that are read at once |
//! | [`cache`] | [`SegmentCache`]: log segments in memory, read by address |
//! | [`staging`] | bytes that outlive the process without a system call |
//! | [`parallel`] | parallel work on several threads |
//! | [`temporary`] | spilled data of queries: unnamed files, deleted with the process |
//!
//! Invariants:
//! - Bytes survive the death of the process after their [`Medium::store`] has returned. They survive a power loss
//!   after a [`Medium::drain`] that began later has returned.
//! - After a failed drain every later drain of that medium fails.
//! - Of a mapped file, all bytes that the cache makes readable are durable.
//! - All unsafe code that a log-structured engine needs is in this crate; the public API is safe.
//!
//! This crate must not know records, documents or recovery: it handles bytes at offsets.

#![deny(missing_docs)]

pub mod buffer;
pub mod cache;
pub mod cell;
pub mod dax;
mod direct;
pub mod directory;
pub mod epoch;
mod error;
pub mod faults;
mod latency;
pub mod medium;
pub mod parallel;
pub mod plain;
pub mod plain_file;
pub mod staging;
mod sync;
mod sys;
pub mod temporary;

pub use buffer::{Buffer, DIRECT_ALIGN};
pub use cache::{CacheConfig, SegmentCache, SegmentStorer, SegmentWriter};
pub use cell::EpochCell;
pub use dax::Dax;
pub use direct::Mapped;
pub use directory::{Directory, DirectoryLock};
pub use epoch::{EpochDomain, Guard};
pub use error::{Error, IoKind, Result};
pub use faults::{Faults, Site};
pub use latency::{Delayed, Latency};
pub use medium::{Medium, MediumKind};
pub use staging::Staging;
pub use sys::prefetch;
