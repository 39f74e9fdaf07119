//! A log file on a file system.
//!
//! Growing allocates and does not write. Measured on ext4 (appends of 4 KB, each with fdatasync, on a virtual disk
//! whose flush takes 0.1 ms): into previously written zeros, 103 us and 1.07 device bytes per stored byte; into
//! allocated space, 165 us and 2.0, because each sync commits a journal block that marks the extent as written.
//! With 64 KB per sync: 125 us and 1.01 against 223 us and 1.06. Writing zeros costs one more byte per byte, once.
//! So grouped inserts are written once this way and nearly twice the other way. A reused segment has written
//! extents already and pays neither. If the file system cannot allocate (NFS, some FUSE file systems), zeros are
//! written.

use crate::faults::Faults;
use crate::sync::lock;
use crate::{DIRECT_ALIGN, Error, IoKind, Medium, MediumKind, Result, Site, sys};
use kauri_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kauri_base::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Zeros written at a time where space can't be allocated.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The label of the sync that makes grown space durable where [`Medium::grow`] does that.
pub const GROW_DRAIN: Site = "grow.drain";

/// The syncs of one file. One runs at a time and serves everybody who asked before it began: so
/// nobody is told of success by a sync whose error the kernel reported to another.
#[derive(Default)]
struct Syncs {
    running: bool,
    begun: u64,
    failed: bool,
    completed: u64,
}

/// A [`Medium`] over a file.
pub struct PlainFile {
    file: File,
    path: PathBuf,
    faults: Arc<Faults>,
    /// Whether the kernel tells what it has in memory, as far as is known.
    tells: AtomicBool,
    /// The same file for reads past the kernel's memory, if it can be had so.
    direct: OnceLock<Option<File>>,
    len: AtomicU64,
    growing: Mutex<()>,
    syncs: Mutex<Syncs>,
    synced: Condvar,
}

impl PlainFile {
    pub(crate) fn new(file: File, path: PathBuf, faults: Arc<Faults>) -> Result<Self> {
        let len = file.metadata().map_err(|e| Error::from_io(IoKind::Open, &e))?.len();
        Ok(PlainFile {
            file,
            path,
            faults,
            tells: AtomicBool::new(true),
            direct: OnceLock::new(),
            len: AtomicU64::new(len),
            growing: Mutex::new(()),
            syncs: Mutex::default(),
            synced: Condvar::new(),
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// As [`Medium::grow`], in written bytes that are durable, as is the length, when this returns.
    /// `then` is called with the file before anybody learns of the new length.
    pub(crate) fn grow_durably(
        &self,
        new_len: u64,
        then: &dyn Fn(&File, u64) -> std::io::Result<()>,
    ) -> Result<()> {
        self.grow_by(new_len, &|old_len| {
            // So that lack of space shows at once.
            match sys::fallocate(&self.file, old_len, new_len - old_len) {
                Err(e) if e.raw_os_error() != Some(libc::EOPNOTSUPP) => return Err(e),
                _ => {}
            }
            self.write_zeros(old_len, new_len)?;
            if self.faults.enabled(GROW_DRAIN) {
                self.file.sync_data()?;
            }
            then(&self.file, new_len)
        })
    }

    /// Makes the file longer by what `write` does, which is told the length before.
    fn grow_by(&self, new_len: u64, write: &dyn Fn(u64) -> std::io::Result<()>) -> Result<()> {
        let _growing = lock(&self.growing);
        let old_len = self.len();
        if new_len <= old_len {
            return Ok(());
        }
        self.faults.before_io(IoKind::Grow)?;
        if let Err(error) = write(old_len) {
            // What was allocated of it is given back; if even that fails, nothing uses it.
            let _ = self.file.set_len(old_len);
            return Err(Error::from_io(IoKind::Grow, &error));
        }
        self.len.store(new_len, Ordering::Release);
        Ok(())
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(Error::OutOfBounds),
        }
    }

    fn direct(&self) -> Option<&File> {
        let open = || {
            // By its number, since another file may have its name now.
            let same = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            File::options().read(true).custom_flags(libc::O_DIRECT).open(same).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }

    fn write_zeros(&self, from: u64, to: u64) -> std::io::Result<()> {
        let mut offset = from;
        while offset < to {
            let len = (to - offset).min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..len as usize], offset)?;
            offset += len;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.faults.before_io(IoKind::Drain)?;
        self.file.sync_data().map_err(|e| Error::from_io(IoKind::Drain, &e))
    }
}

impl Medium for PlainFile {
    fn kind(&self) -> MediumKind {
        MediumKind::PlainFile
    }

    fn describe(&self) -> String {
        format!("file {} (pwritev, fdatasync)", self.path.display())
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn grow(&self, new_len: u64) -> Result<()> {
        self.grow_by(new_len, &|old_len| match sys::fallocate(
            &self.file,
            old_len,
            new_len - old_len,
        ) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.write_zeros(old_len, new_len)
            }
            grown => grown,
        })
    }

    fn store(&self, mut offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.check_range(offset, len)?;
        self.faults.before_io(IoKind::Store)?;
        let mut parts = parts.to_vec();
        let mut parts = parts.as_mut_slice();
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match sys::pwritev(&self.file, parts, offset) {
                Ok(0) => return Err(Error::Io { kind: IoKind::Store, errno: libc::EIO }),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut parts, written);
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::from_io(IoKind::Store, &e)),
            }
        }
        Ok(())
    }

    fn persist(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.check_range(offset, len)?;
        self.faults.enabled(site);
        Ok(())
    }

    fn drain(&self, site: Site) -> Result<()> {
        if !self.faults.enabled(site) {
            return Ok(());
        }
        let mut syncs = lock(&self.syncs);
        // A sync that is running may have begun before our bytes were stored: the next one counts.
        let mine = syncs.begun + 1;
        loop {
            if syncs.failed {
                return Err(Error::DrainFailed);
            }
            if syncs.completed >= mine {
                return Ok(());
            }
            if !syncs.running {
                break;
            }
            syncs = self.synced.wait(syncs).unwrap_or_else(PoisonError::into_inner);
        }
        syncs.running = true;
        syncs.begun += 1;
        let number = syncs.begun;
        drop(syncs);
        let result = self.sync();
        let mut syncs = lock(&self.syncs);
        syncs.running = false;
        match result {
            Ok(()) => syncs.completed = number,
            Err(_) => syncs.failed = true,
        }
        drop(syncs);
        self.synced.notify_all();
        result
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check_range(offset, into.len() as u64)?;
        self.faults.before_io(IoKind::Read)?;
        self.file.read_exact_at(into, offset).map_err(|e| read_error(&e))
    }

    fn read_once(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let aligned = offset.is_multiple_of(DIRECT_ALIGN as u64)
            && into.len().is_multiple_of(DIRECT_ALIGN)
            && into.as_ptr().align_offset(DIRECT_ALIGN) == 0;
        let Some(direct) = self.direct().filter(|_| aligned) else {
            return self.read(offset, into);
        };
        self.check_range(offset, into.len() as u64)?;
        self.faults.before_io(IoKind::Read)?;
        match direct.read_exact_at(into, offset) {
            // There are file systems that open files so and then don't read them so, and devices that
            // want more than this alignment.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                self.file.read_exact_at(into, offset).map_err(|e| read_error(&e))
            }
            read => read.map_err(|e| read_error(&e)),
        }
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        if !self.tells.load(Ordering::Relaxed)
            || self.check_range(offset, into.len() as u64).is_err()
        {
            return false;
        }
        match sys::read_in_memory(&self.file, into, offset) {
            Ok(read) => read == into.len(),
            Err(error) => {
                if error.raw_os_error() != Some(libc::EAGAIN) {
                    self.tells.store(false, Ordering::Relaxed);
                }
                false
            }
        }
    }
}

fn read_error(error: &std::io::Error) -> Error {
    match error.kind() {
        // Somebody else made the file shorter.
        std::io::ErrorKind::UnexpectedEof => Error::OutOfBounds,
        _ => Error::from_io(IoKind::Read, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn space_is_written_if_it_cannot_be_allocated() {
        let path = std::env::temp_dir().join(format!("kauri-zeros-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        let log = PlainFile::new(file, path.clone(), Arc::default()).unwrap();
        log.write_zeros(0, 100_000).unwrap();
        log.write_zeros(100_000, 300_001).unwrap();
        let written = std::fs::metadata(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(written.len(), 300_001);
        assert!(written.blocks() * 512 >= 300_001, "not sparse");
    }
}
