//! `pmlog`, the log-structured storage engine. The log is the database: a document is written once and found
//! through an address table in memory.
//!
//! A module uses only modules above it in this table; `scripts/layering` finds circles.
//!
//! | module | holds |
//! |---|---|
//! | [`format`] | the on-media format, as in `docs/design/on-media-format.md` |
//! | `options`, `counters` | options; figures |
//! | `wake`, `progress` | waking threads that wait for work; progress log lines |
//! | `address`, `slots`, `chunked` | the address table |
//! | `segments`, `open_segment`, `reader` | free segments, live bytes of each segment; an open segment; its records |
//! | `collection`, `index`, `btree`, `registry` | stores and indexes in memory |
//! | `versions`, `snapshots` | versions kept for held snapshots; the held snapshots |
//! | `acks`, `throttle`, `gather`, `flushing` | which commits are written and durable, and the waits for both |
//! | `marks`, `durability` | the durable horizon, and the limits of marks and of the cleaner |
//! | `files`, `data_directory` | locking the files; the data directory |
//! | `head` | the order of commits: sequence, place in the log, visibility |
//! | `staging` | commits that are not in the log's file yet |
//! | `on_medium`, `recovered`, `images`, `start` | the log as recovery finds it, index images, and the parts of both for attaching indexes |
//! | `pending_units`, `plan`, `cleaning`, `memory`, `verified`, `keys` | units of a replicated log; a commit's plan; the cleaner's state; memory; checked documents; keys for index builds |
//! | `core` | all these parts; the lock order |
//! | `horizon`, `pressure`, `flush`, `prepare`, `ahead` | what is durable; scarcity; storing and syncing; opening and sealing segments |
//! | `read`, `readahead`, `unit`, `store`, `sorted_data` | reading |
//! | `frame_reader` | frames of a replicated log with their records |
//! | `cleaner`, `commit`, `attach` | freeing segments; from a write unit to records in the log; building indexes at startup |
//! | `cut_off`, `frame_writer`, `replicated_log` | cutting off a replicated log's end; appending frames; the interface |
//! | `backup`, `log_copy` | locking the files for a copy; copying them while writes go on |
//! | `close`, `status` | clean shutdown; `serverStatus` |
//! | `recovery` | from the medium to memory |
//! | `engine` | the interface |
//! | `verify`, `repair`, `salvage` | checking and repairing a directory |
//!
//! This crate must not know the meaning of documents, keys or collections. No unsafe.

pub mod btree;
pub mod format;

mod acks;
mod address;
mod ahead;
mod attach;
mod backup;
mod chunked;
mod cleaner;
mod cleaning;
mod close;
mod collection;
mod commit;
mod core;
mod counters;
mod cut_off;
mod data_directory;
mod durability;
mod engine;
mod files;
mod flush;
mod flushing;
mod frame_reader;
mod frame_writer;
mod frames;
mod gather;
mod head;
#[cfg(test)]
mod hooked;
mod horizon;
mod images;
mod index;
mod install;
mod keys;
mod log_copy;
mod marks;
mod memory;
mod on_medium;
mod open_segment;
mod options;
mod pending_units;
mod plan;
mod prepare;
mod pressure;
mod progress;
mod read;
mod readahead;
mod reader;
mod recovered;
mod recovery;
mod registry;
mod repair;
mod replicated_log;
mod salvage;
mod segments;
mod slots;
mod snapshots;
mod sorted_data;
mod staging;
mod start;
mod status;
mod store;
mod throttle;
mod unit;
mod verified;
mod verify;
mod versions;
mod wake;

pub use engine::PmLog;
pub use install::install_copy;
pub use options::Options;
pub use repair::{Repaired, repair};
pub use salvage::{Mended, salvage};
pub use verify::{CollectionSize, Damage, Extent, Report, verify, verify_with};

use kauri_base::sync::{self, Mutex, MutexGuard, PoisonError, TryLockError};
use kauri_storage::StorageError;

/// Takes a lock even after its holder has panicked: the protected data is changed in steps that each leave it
/// consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Like [`lock`], if the lock is free.
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
