//! Holding the files still while a backup copies them.

use crate::core::Core;
use kauri_storage::StorageError;

impl Core {
    /// See [`kauri_storage::StorageEngine::hold_files`]. [`Core::let_files_go`] ends it.
    pub fn hold_files(&self) -> Result<(), StorageError> {
        self.files.hold();
        // Whoever appends now has begun before, and others are refused from here on.
        self.head.pass();
        self.files.wait_for_work();
        let synced = self.sync_all("sync.drain");
        if synced.is_err() {
            self.let_files_go();
        }
        synced?;
        self.sync_marks();
        Ok(())
    }

    /// Ends a hold.
    pub fn let_files_go(&self) {
        if self.files.let_go() {
            self.preparer.wake();
            self.cleaner.wake();
        }
    }
}
