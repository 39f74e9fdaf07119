//! A [`Staging`] over a file of a file system.
//!
//! Its memory is locked, so that a put never waits for or fails on a page that was evicted and must be read again.
//! Its bytes are written before they are mapped, so that a put needs no allocation by the file system.
//! Copy-on-write file systems would allocate on every put (and a failure then is a signal), so there is no staging
//! file on them. A page that the kernel has written back faults again at the next put, which may take a while: a
//! put holds no lock that others wait for.
#![allow(unsafe_code)]

use crate::Staging;
use crate::dax::sigbus::{self, Watched};
use crate::staging::fits;
use crate::sys;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

/// File systems (`statfs.f_type`) that write nothing in place: btrfs, ZFS, bcachefs.
const COPY_ON_WRITE: [u32; 3] = [0x9123_683e, 0x2fc1_2fc1, 0xca45_1a4e];

/// See the module's head. The file must not become shorter: the directory's lock keeps other servers out.
pub(super) struct MappedStaging {
    base: NonNull<u8>,
    len: usize,
    _watched: Watched,
}

// SAFETY: an address and a length; the memory is used through `&mut self` alone.
unsafe impl Send for MappedStaging {}

impl MappedStaging {
    /// The first `len` bytes of a file, which have been written.
    pub(super) fn map(file: &File, len: usize, path: &Path) -> Result<Self> {
        if COPY_ON_WRITE.contains(&sys::file_system_type(file)?) {
            return Err(Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (null, flags) = (std::ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel picks touches nothing.
        let base = unsafe { libc::mmap(null, len, protection, flags, file.as_raw_fd(), 0) };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => return Err(Error::last_os_error()),
        };
        let watched = sigbus::watch(base.as_ptr() as usize, len, path);
        let staging = MappedStaging { base, len, _watched: watched };
        // SAFETY: the mapping just made; its contents stay as they are.
        match unsafe { libc::mlock(base.as_ptr().cast(), len) } {
            0 => Ok(staging),
            _ => Err(Error::last_os_error()),
        }
    }
}

impl Staging for MappedStaging {
    fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, at: usize, parts: &[&[u8]]) -> bool {
        if !fits(self.len, at, parts) {
            return false;
        }
        let mut at = at;
        for part in parts {
            // SAFETY: within the mapping, as just checked. Nobody else has a reference into it: it is reached
            // through `&mut self` alone, and the kernel, which may read it at any time, copes with that.
            unsafe {
                let to = self.base.as_ptr().add(at);
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            }
            at += part.len();
        }
        // What tells of the bytes comes behind them. The processor keeps a process's stores when it dies.
        compiler_fence(Ordering::SeqCst);
        true
    }
}

impl Drop for MappedStaging {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and nobody has a reference into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
