//! A growing file mapped into memory: address space is reserved once, and pages of the file are mapped into it as
//! the file grows.
#![allow(unsafe_code)]

use super::sigbus::{self, Watched};
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address space for one file, the first that is granted. A process has 128 TB in all.
const RESERVED_BYTES: [usize; 3] = [16 << 40, 1 << 40, 64 << 30];
/// So that the kernel can map huge pages where the file's blocks allow it.
const HUGE_BYTES: usize = 2 << 20;

/// Whether a mapping has to be of persistent memory itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// `MAP_SYNC`: what is stored and fenced needs no call of the kernel.
    Synchronous,
    /// Any shared mapping.
    Ordinary,
}

impl Kind {
    fn flags(self) -> libc::c_int {
        match self {
            Kind::Synchronous => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            Kind::Ordinary => libc::MAP_SHARED,
        }
    }
}

/// Whether the file can be mapped in this way. `MAP_SHARED_VALIDATE` makes kernels and file systems
/// that don't know `MAP_SYNC`, or can't keep it for this file, refuse it.
pub(super) fn is_possible(file: &File, kind: Kind) -> Result<bool> {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping, at an address that the kernel picks, that nobody looks at.
    let page = unsafe {
        libc::mmap(std::ptr::null_mut(), PAGE, protection(), kind.flags(), file.as_raw_fd(), 0)
    };
    if page == libc::MAP_FAILED {
        let error = Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV) => Ok(false),
            _ => Err(error),
        };
    }
    // SAFETY: the mapping just made, which nobody knows.
    unsafe { libc::munmap(page, PAGE) };
    Ok(true)
}

fn protection() -> libc::c_int {
    libc::PROT_READ | libc::PROT_WRITE
}

/// See the module's head. Says nothing about who looks at the memory: `cache/segment.rs` does.
///
/// The file must not become shorter, nor be written by another process: the directory's lock keeps
/// other servers out, and a server never shortens its log.
pub(super) struct Mapping {
    /// What was reserved, to be given back.
    reserved: NonNull<libc::c_void>,
    reserved_len: usize,
    base: NonNull<u8>,
    capacity: usize,
    /// How much of the file is mapped, from its beginning.
    len: AtomicUsize,
    kind: Kind,
    _watched: Watched,
}

// SAFETY: addresses and lengths; using the memory behind them is unsafe and argued where it is done.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Address space for the file of this name, and nothing mapped in it.
    pub(super) fn reserve(kind: Kind, path: &Path) -> Result<Mapping> {
        let mut refused = None;
        for capacity in RESERVED_BYTES {
            let len = capacity + HUGE_BYTES;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping without access rights at an address that the kernel picks.
            let start =
                unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
            if start == libc::MAP_FAILED {
                refused = Some(Error::last_os_error());
                continue;
            }
            let aligned = (start as usize).next_multiple_of(HUGE_BYTES) - start as usize;
            // SAFETY: within the reservation, which is longer by HUGE_BYTES than what is used.
            let base = unsafe { start.cast::<u8>().add(aligned) };
            if let (Some(reserved), Some(base)) = (NonNull::new(start), NonNull::new(base)) {
                let len_mapped = AtomicUsize::new(0);
                return Ok(Mapping {
                    reserved,
                    reserved_len: len,
                    base,
                    capacity,
                    len: len_mapped,
                    kind,
                    _watched: sigbus::watch(base.as_ptr() as usize, capacity, path),
                });
            }
        }
        Err(refused.unwrap_or_else(|| Error::from_raw_os_error(libc::ENOMEM)))
    }

    /// Maps the file up to `len`, which it has. Calls follow one another.
    pub(super) fn extend(&self, file: &File, len: u64) -> Result<()> {
        let from = self.len.load(Ordering::Acquire);
        let to = usize::try_from(len).unwrap_or(usize::MAX);
        if to <= from {
            return Ok(());
        }
        if to > self.capacity {
            return Err(Error::from_raw_os_error(libc::EFBIG));
        }
        // The page in which the last mapping ended may be mapped again: it is the same memory.
        let start = from / 4096 * 4096;
        let flags = self.kind.flags() | libc::MAP_FIXED;
        // SAFETY: within the reserved address space, so no other mapping is replaced but this file's
        // own, by itself at the same place.
        let mapped = unsafe {
            let at = self.base.as_ptr().add(start).cast();
            let offset = start as libc::off_t;
            libc::mmap(at, to - start, protection(), flags, file.as_raw_fd(), offset)
        };
        if mapped == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        self.len.store(to, Ordering::Release);
        Ok(())
    }

    /// Where these bytes are, if they are mapped.
    #[inline]
    pub(super) fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        if end > self.len.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: within the mapping, as just checked.
        NonNull::new(unsafe { self.base.as_ptr().add(start) })
    }

    /// Fills page tables for a range, for writing. Only a hint: old kernels decline.
    pub(super) fn populate(&self, offset: u64, len: usize) {
        const PAGE: usize = 4096;
        let Some(start) = self.address(offset, len) else { return };
        let lead = start.as_ptr() as usize % PAGE;
        let start = start.as_ptr().wrapping_sub(lead).cast::<libc::c_void>();
        // SAFETY: mapped; the contents stay as they are.
        unsafe { libc::madvise(start, len + lead, libc::MADV_POPULATE_WRITE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the reservation and all mappings in it are this object's, and whoever could look at
        // them held it.
        unsafe { libc::munmap(self.reserved.as_ptr(), self.reserved_len) };
    }
}
