//! The data directory of an open engine: its files, its lock, its metadata.

use crate::format::META_FILE;
use crate::format::meta::{Cut, Meta};
use crate::format::segment::Horizon;
use crate::lock;
use kauri_base::sync::{Arc, Mutex};
use kauri_medium::{Directory, DirectoryLock, Faults, Medium};
use kauri_storage::StorageError;

/// See the module's head.
pub struct DataDirectory {
    directory: Arc<dyn Directory>,
    /// Excludes other servers; released by a clean shutdown.
    lock: Mutex<Option<DirectoryLock>>,
    id: [u8; 16],
    /// The metadata file's contents.
    meta: Mutex<Meta>,
    medium: Arc<dyn Medium>,
    faults: Arc<Faults>,
}

impl DataDirectory {
    /// A directory that this engine has taken, with its log file.
    pub fn new(
        directory: Arc<dyn Directory>,
        directory_lock: DirectoryLock,
        meta: Meta,
        medium: Arc<dyn Medium>,
    ) -> Self {
        DataDirectory {
            faults: directory.faults().clone(),
            directory,
            lock: Mutex::new(Some(directory_lock)),
            id: meta.directory,
            meta: Mutex::new(meta),
            medium,
        }
    }

    /// Its id.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// The log file.
    #[inline]
    pub fn medium(&self) -> &dyn Medium {
        &*self.medium
    }

    /// Faults that tests set.
    #[inline]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Where it is, in words.
    pub fn describe(&self) -> String {
        self.directory.describe()
    }

    /// Bytes of its file system, and of these the used ones.
    pub fn space(&self) -> Option<(u64, u64)> {
        self.directory.space()
    }

    /// Notes in the metadata file that the log ends here, with all before it durable and sealed.
    pub fn note_clean(&self, epoch_next: u64, horizon: Horizon) -> Result<(), StorageError> {
        let mut meta = lock(&self.meta);
        meta.clean = true;
        meta.epoch_next = epoch_next;
        meta.horizon = horizon;
        self.directory
            .replace_file(META_FILE, &meta.encode(), "close.meta")
            .map_err(crate::io_error)
    }

    /// Notes in the metadata file that the log ended here, with all before it durable. Later segments have this epoch
    /// or a later one.
    pub fn note_cut(
        &self,
        cut: Cut,
        horizon: Horizon,
        epoch_next: u64,
    ) -> Result<(), StorageError> {
        let new = self.meta_cut(cut, horizon, epoch_next);
        self.directory
            .replace_file(META_FILE, &new.encode(), "truncate.meta")
            .map_err(crate::io_error)?;
        *lock(&self.meta) = new;
        Ok(())
    }

    /// The metadata of a log that ends so.
    pub fn meta_cut(&self, cut: Cut, horizon: Horizon, epoch_next: u64) -> Meta {
        let mut meta = lock(&self.meta).clone();
        // No segment was opened since one with the same epoch.
        meta.cuts.retain(|before| before.epoch_next != cut.epoch_next);
        meta.cuts.push(cut);
        Meta { horizon, epoch_next, clean: false, ..meta }
    }

    /// Lets other servers in, after [`DataDirectory::note_clean`].
    pub fn release_clean(&self) -> Result<(), StorageError> {
        match lock(&self.lock).take() {
            Some(directory_lock) => directory_lock.release_clean().map_err(crate::io_error),
            None => Ok(()),
        }
    }
}
