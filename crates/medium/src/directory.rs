//! [`Directory`]: a data directory for an engine: log files, a few small files that are replaced as a whole, and a
//! lock that excludes a second server.

use crate::{Error, Faults, Medium, Result, Site, Staging};
use kauri_base::sync::Arc;

/// The name of the lock file, as in MongoDB's data directories.
pub const LOCK_FILE: &str = "mongod.lock";

/// A file whose blocks are for replacing a small file on a full disk: else no server could start there, and
/// nothing be deleted. Never listed.
pub(crate) const SPARE_FILE: &str = "kauri.spare";
/// Names that end so are halves of a replacement: never listed, overwritten by the next one.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// A data directory. Names are plain file names: no separators, not `.`, `..` or the lock file's, no
/// `.tmp` ending.
pub trait Directory: Send + Sync {
    /// For logs.
    fn describe(&self) -> String;

    /// Takes the directory for this process until the lock is dropped.
    fn lock(&self) -> Result<DirectoryLock>;

    /// The names of all files, sorted, without the lock file and halves of replacements.
    fn list(&self) -> Result<Vec<String>>;

    /// A small file's contents, or None if there is no such file.
    fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Puts a file of these contents in place of `name`, which need not exist: written beside it,
    /// synced (`site/file`), renamed over it, the directory synced (`site/directory`). After a crash
    /// the file is the old or the new one, never a mixture; once this returned, the new one.
    fn replace_file(&self, name: &str, bytes: &[u8], site: Site) -> Result<()>;

    /// Removes a file, durably (`site/directory`). [`crate::Error::NotFound`] if there is none.
    fn remove_file(&self, name: &str, site: Site) -> Result<()>;

    /// Gives a file another name, durably (`site/directory`): a file of that name is gone. After a crash it has the one
    /// or the other, or both. [`crate::Error::NotFound`] if there is none.
    fn rename_file(&self, from: &str, to: &str, site: Site) -> Result<()>;

    /// Creates an empty log file, its name durable (`site/directory`), or opens it if it is there.
    fn create_log(&self, name: &str, site: Site) -> Result<Arc<dyn Medium>>;

    /// Opens a log file, or answers [`crate::Error::NotFound`].
    fn open_log(&self, name: &str) -> Result<Arc<dyn Medium>>;

    /// A new file of these contents in place of `name`, as memory; of none: without one. From then on, also
    /// if it fails but for [`Error::Io`] of another kind than [`crate::IoKind::Open`], nothing that an earlier one held comes
    /// back. [`Error::Unsupported`] if there is to be none, or never is any here; [`Error::NoSpace`]; of
    /// kind `Open` where it can't be kept in memory.
    fn create_staging(&self, _name: &str, _contents: &[u8]) -> Result<Box<dyn Staging>> {
        Err(Error::Unsupported)
    }

    /// Size of the file system and what is used of it by anybody, in bytes; None if nobody knows.
    fn space(&self) -> Option<(u64, u64)> {
        None
    }

    /// The faults that a test set for this directory and its log files.
    fn faults(&self) -> &Arc<Faults>;
}

/// The directory is this process's. Dropping it lets the next server in.
pub struct DirectoryLock {
    unclean: bool,
    holder: Box<dyn LockHolder>,
}

/// What stands behind a [`DirectoryLock`]; dropping it releases the lock.
pub trait LockHolder: Send + Sync {
    /// Notes that the directory was left in order.
    fn mark_clean(&self) -> Result<()>;
}

impl DirectoryLock {
    /// A lock that was just taken. `unclean`: the process that had it before did not leave in order.
    pub fn new(unclean: bool, holder: Box<dyn LockHolder>) -> Self {
        DirectoryLock { unclean, holder }
    }

    /// Whether the process that had the lock before ended without [`release_clean`].
    ///
    /// [`release_clean`]: DirectoryLock::release_clean
    pub fn was_unclean(&self) -> bool {
        self.unclean
    }

    /// Empties the lock file and lets go: the next server finds a clean shutdown.
    pub fn release_clean(self) -> Result<()> {
        self.holder.mark_clean()
    }
}

/// Whether `name` is one that a directory takes: asked by each [`Directory`].
pub fn check_name(name: &str) -> Result<()> {
    let special = matches!(name, "" | "." | ".." | LOCK_FILE | SPARE_FILE)
        || name.ends_with(TEMPORARY_SUFFIX);
    if special || name.contains(['/', '\0']) { Err(Error::InvalidName) } else { Ok(()) }
}
