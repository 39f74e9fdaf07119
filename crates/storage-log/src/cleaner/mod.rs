//! Emptying segments.

use crate::core::Core;
use crate::lock;
use crate::segments::Purpose;
use kauri_storage::StorageError;
use std::sync::{Condvar, Mutex};

/// The cleaner's own state.
#[derive(Default)]
pub struct Cleaner {}

/// Wakes the cleaner's thread.
#[derive(Default)]
pub struct Kick {
    wanted: Mutex<bool>,
    condition: Condvar,
}

impl Kick {
    /// There may be something to do.
    pub fn kick(&self) {
        *lock(&self.wanted) = true;
        self.condition.notify_one();
    }
}

impl Core {
    /// Cleans until there is a segment for this purpose.
    pub fn clean_for(&self, _purpose: Purpose) -> Result<(), StorageError> {
        Err(StorageError::OutOfDiskSpace)
    }

    /// For a clean shutdown.
    pub fn close_cleaner(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
