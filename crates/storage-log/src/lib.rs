//! `pmlog`, the log-structured storage engine. The log is the database: a document is written once,
//! and found through an address table in memory.
//!
//! | module | holds |
//! |---|---|
//! | [`format`] | the on-media format, as `docs/design/on-media-format.md` has it |
//! | `core` | what the parts of an open engine share; the order of locks |
//! | `address`, `slots`, `chunked` | the address table |
//! | `collection`, `index`, `btree` | stores and indexes in memory |
//! | `segments` | which segments are free, how much of each is live |
//! | `head` | segments being filled |
//! | `commit` | from a write unit to records in the log |
//! | `marks` | what is durable, told on the medium |
//! | `staging` | commits that are not in the log's file yet |
//! | `acks`, `flush`, `gather`, `throttle` | written, durable, and who waits for it |
//! | `ahead`, `prepare` | sealing and opening segments, memory ahead |
//! | `kick` | waking threads that wait for work |
//! | `pending` | a replicated log's units until they are committed |
//! | `cleaner` | emptying segments |
//! | `reader`, `recovery` | from the medium back into memory |
//! | `snapshots`, `versions` | held snapshots, and what is kept for them |
//! | `read`, `readahead`, `verified`, `store`, `unit` | reading |
//! | `engine` | the interface |
//! | `attach`, `keys` | building indexes at the start |
//! | `images` | index images |
//! | `memory` | what short memory makes of cache and writes |
//! | `verify`, `repair`, `salvage` | checking a directory, mending it |
//! | `options`, `status` | what it is opened with; figures |
//!
//! Knows nothing of what documents, keys or collections mean. No unsafe.

pub mod btree;
pub mod format;

mod acks;
mod ahead;
mod attach;

mod address;
mod chunked;
mod cleaner;
mod collection;
mod commit;
mod core;
mod engine;
mod flush;
mod gather;
mod head;
#[cfg(test)]
mod hooked;
mod images;
mod index;
mod keys;
mod kick;
mod marks;
mod memory;
mod options;
mod pending;
mod prepare;
mod read;
mod readahead;
mod reader;
mod recovery;
mod repair;
mod salvage;
mod segments;
mod slots;
mod snapshots;
mod staging;
mod status;
mod store;
mod throttle;
mod unit;
mod verified;
mod verify;
mod versions;

pub use engine::PmLog;
pub use options::Options;
pub use repair::{Repaired, repair};
pub use salvage::{Mended, salvage};
pub use verify::{CollectionSize, Damage, Extent, Report, verify, verify_with};

use kauri_base::sync::{self, Mutex, MutexGuard, PoisonError, TryLockError};
use kauri_storage::StorageError;

/// A lock whose holder panicked is taken all the same: what it guards is changed in steps that each
/// leave it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], if nobody has it.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The medium's failure as storage reports it.
fn io_error(error: kauri_medium::Error) -> StorageError {
    match error {
        kauri_medium::Error::NoSpace => StorageError::OutOfDiskSpace,
        error => StorageError::Io(error.to_string()),
    }
}
