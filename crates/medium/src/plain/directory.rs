//! A data directory on a file system.

use super::staging::MappedStaging;
use crate::dax::{Dax, DaxFile};
use crate::directory::{LOCK_FILE, LockHolder, SPARE_FILE, TEMPORARY_SUFFIX, check_name};
use crate::plain_file::PlainFile;
use crate::{
    Directory, DirectoryLock, Error, Faults, IoKind, Latency, Medium, Result, Site, Staging, sys,
};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SPARE_BLOCK_BYTES: usize = 4096;
/// What is longer is not replaced at a start.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// A [`Directory`] over a directory.
pub struct PlainDirectory {
    path: PathBuf,
    directory: File,
    options: DirectoryOptions,
}

/// How a directory is opened.
#[derive(Clone, Default)]
pub struct DirectoryOptions {
    /// Whether log files are mapped.
    pub dax: Dax,
    /// What is added to the mapped memory's own latency.
    pub latency: Arc<Latency>,
    /// Faults, for tests.
    pub faults: Arc<Faults>,
}

impl PlainDirectory {
    /// Opens a directory, which must exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_with(path, DirectoryOptions::default())
    }

    /// As [`PlainDirectory::open`], with options.
    pub fn open_with(path: impl Into<PathBuf>, options: DirectoryOptions) -> Result<Self> {
        let path = path.into();
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(&path)
            .map_err(|e| Error::from_io(IoKind::Open, &e))?;
        Ok(PlainDirectory { path, directory, options })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file_path(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.path.join(name))
    }

    fn sync_directory(&self, site: Site) -> Result<()> {
        if !self.options.faults.step_enabled(site, "directory") {
            return Ok(());
        }
        self.options.faults.before_io(IoKind::DirectorySync)?;
        self.directory.sync_all().map_err(|e| Error::from_io(IoKind::DirectorySync, &e))
    }

    fn write_temporary(&self, path: &Path, bytes: &[u8], spare: &Path, site: Site) -> Result<()> {
        self.options.faults.before_io(IoKind::FileWrite)?;
        let failed = |kind| move |e: std::io::Error| Error::from_io(kind, &e);
        let file = match write_new(path, bytes).map_err(failed(IoKind::FileWrite)) {
            Err(Error::NoSpace) => {
                let _ = fs::remove_file(path);
                write_over(spare, path, bytes).map_err(failed(IoKind::FileWrite))?
            }
            written => written?,
        };
        if self.options.faults.step_enabled(site, "file") {
            self.options.faults.before_io(IoKind::FileSync)?;
            file.sync_all().map_err(failed(IoKind::FileSync))?;
        }
        Ok(())
    }

    fn write_staging(&self, path: &Path, contents: &[u8]) -> Result<File> {
        if contents.is_empty() {
            return Err(Error::Unsupported);
        }
        let failed = |kind| move |e: std::io::Error| Error::from_io(kind, &e);
        self.options.faults.before_io(IoKind::FileWrite)?;
        let file = options().create(true).truncate(true).open(path);
        let mut file = file.map_err(failed(IoKind::FileWrite))?;
        file.write_all(contents).map_err(failed(IoKind::FileWrite))?;
        self.options.faults.before_io(IoKind::FileSync)?;
        file.sync_all().map_err(failed(IoKind::FileSync))?;
        Ok(file)
    }

    fn open_log_file(&self, path: PathBuf, create: bool) -> Result<Arc<dyn Medium>> {
        self.options.faults.before_io(IoKind::Open)?;
        let file =
            options().create(create).open(&path).map_err(|e| Error::from_io(IoKind::Open, &e))?;
        let plain = PlainFile::new(file, path, Arc::clone(&self.options.faults))?;
        Ok(match DaxFile::open(plain, self.options.dax, &self.options.latency)? {
            Ok(dax) => Arc::new(dax),
            Err(plain) => Arc::new(plain),
        })
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<File> {
    let mut file = options().create(true).truncate(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Writes to `path` in the blocks of the spare file, where the disk has no others.
fn write_over(spare: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<File> {
    let mut file = match options().open(spare) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(std::io::Error::from_raw_os_error(libc::ENOSPC));
        }
        file => file?,
    };
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    fs::rename(spare, path)?;
    Ok(file)
}

/// Keeps blocks for the next file of this length, unless there are some. Where the disk has none there is no spare, and
/// replacing needs room then.
fn keep_spare(spare: &Path, bytes: usize) {
    let wanted = bytes.next_multiple_of(SPARE_BLOCK_BYTES) + SPARE_BLOCK_BYTES;
    if wanted > SPARE_BYTES_MAX {
        return;
    }
    if fs::metadata(spare).is_ok_and(|found| found.len() >= wanted as u64) {
        return;
    }
    if write_new(spare, &vec![0; wanted]).is_err() {
        let _ = fs::remove_file(spare);
    }
}

/// As mongod makes its files: for their owner only.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl Directory for PlainDirectory {
    fn describe(&self) -> String {
        format!("directory {}", self.path.display())
    }

    fn space(&self) -> Option<(u64, u64)> {
        sys::file_system_space(&self.directory).ok()
    }

    fn lock(&self) -> Result<DirectoryLock> {
        self.options.faults.before_io(IoKind::Lock)?;
        let failed = |e: std::io::Error| Error::from_io(IoKind::Lock, &e);
        let mut file = options().create(true).open(self.path.join(LOCK_FILE)).map_err(failed)?;
        let locked = sys::flock_exclusive(&file);
        let mut before = String::new();
        // Whatever is in it: what matters is whether there is anything, and the number if it is one.
        let unclean = file.read_to_string(&mut before).map_or(true, |len| len > 0);
        match locked {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                return Err(Error::AlreadyLocked { pid: before.trim().parse().ok() });
            }
            Err(e) => return Err(failed(e)),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        match writeln!(file, "{}", std::process::id()).map_err(failed) {
            // The lock is held without it, and a server has to start on a full disk.
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => return Err(error),
        }
        file.sync_all().map_err(failed)?;
        self.directory.sync_all().map_err(failed)?;
        Ok(DirectoryLock::new(unclean, Box::new(LockFile { file })))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.options.faults.before_io(IoKind::FileRead)?;
        let failed = |e: std::io::Error| Error::from_io(IoKind::FileRead, &e);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().map_err(failed)?.is_file();
            match entry.file_name().into_string() {
                Ok(name) if is_file && check_name(&name).is_ok() => names.push(name),
                _ => {}
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.file_path(name)?;
        self.options.faults.before_io(IoKind::FileRead)?;
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::from_io(IoKind::FileRead, &e)),
        }
    }

    fn replace_file(&self, name: &str, bytes: &[u8], site: Site) -> Result<()> {
        let path = self.file_path(name)?;
        let temporary = self.path.join(format!("{name}{TEMPORARY_SUFFIX}"));
        let spare = self.path.join(SPARE_FILE);
        self.write_temporary(&temporary, bytes, &spare, site)?;
        self.options.faults.before_io(IoKind::FileRename)?;
        fs::rename(&temporary, &path).map_err(|e| Error::from_io(IoKind::FileRename, &e))?;
        self.sync_directory(site)?;
        keep_spare(&spare, bytes.len());
        Ok(())
    }

    fn remove_file(&self, name: &str, site: Site) -> Result<()> {
        let path = self.file_path(name)?;
        self.options.faults.before_io(IoKind::FileRename)?;
        fs::remove_file(path).map_err(|e| Error::from_io(IoKind::FileRename, &e))?;
        self.sync_directory(site)
    }

    fn rename_file(&self, from: &str, to: &str, site: Site) -> Result<()> {
        let (from, to) = (self.file_path(from)?, self.file_path(to)?);
        self.options.faults.before_io(IoKind::FileRename)?;
        fs::rename(from, to).map_err(|e| Error::from_io(IoKind::FileRename, &e))?;
        self.sync_directory(site)
    }

    fn create_log(&self, name: &str, site: Site) -> Result<Arc<dyn Medium>> {
        let path = self.file_path(name)?;
        let log = self.open_log_file(path, true)?;
        self.sync_directory(site)?;
        Ok(log)
    }

    fn open_log(&self, name: &str) -> Result<Arc<dyn Medium>> {
        let path = self.file_path(name)?;
        self.open_log_file(path, false)
    }

    fn create_staging(&self, name: &str, contents: &[u8]) -> Result<Box<dyn Staging>> {
        let path = self.file_path(name)?;
        let failed = |kind| move |e: std::io::Error| Error::from_io(kind, &e);
        self.options.faults.before_io(IoKind::FileRename)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(IoKind::FileRename)(e)),
            _ => {}
        }
        let made = self.write_staging(&path, contents);
        if made.is_err() {
            // What there is of it takes room that others need more.
            let _ = fs::remove_file(&path);
        }
        self.options.faults.before_io(IoKind::DirectorySync)?;
        self.directory.sync_all().map_err(failed(IoKind::DirectorySync))?;
        let file = made?;
        let staging = MappedStaging::map(&file, contents.len(), &path);
        Ok(Box::new(staging.map_err(failed(IoKind::Open))?))
    }

    fn faults(&self) -> &Arc<Faults> {
        &self.options.faults
    }
}

/// The open lock file; closing it releases the lock.
struct LockFile {
    file: File,
}

impl LockHolder for LockFile {
    fn mark_clean(&self) -> Result<()> {
        let failed = |e: std::io::Error| Error::from_io(IoKind::Lock, &e);
        self.file.set_len(0).map_err(failed)?;
        self.file.sync_all().map_err(failed)
    }
}
