//! Memory regions: memory that a device may access.
//!
//! A region is mapped and pinned once. It may then be split into parts that are lent and used independently; each
//! part is a [`MemoryRegion`], and all keep the registration alive.

use super::device::PdInner;
use super::ffi;
use crate::counters::{add, subtract};
use crate::error::{Error, Result};
use crate::sys::request::{RegionSlice, RemoteAddress};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::BitOr;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// The rights of a region, besides what the device may always do: read bytes to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(i32);

impl Access {
    /// Bytes are only sent from it.
    pub const SEND: Access = Access(0);
    /// The device writes what this process reads or receives.
    pub const LOCAL_WRITE: Access = Access(ffi::ACCESS_LOCAL_WRITE);
    /// Peers write to it. Needs the device's right to write too, which goes with it.
    pub const REMOTE_WRITE: Access = Access(ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_LOCAL_WRITE);
    /// Peers read from it.
    pub const REMOTE_READ: Access = Access(ffi::ACCESS_REMOTE_READ);
    /// Windows on it can be bound, which let one peer in. For windows that are written to it also
    /// needs [`Access::LOCAL_WRITE`].
    pub const WINDOW: Access = Access(ffi::ACCESS_MW_BIND);

    /// Whether all of `other` is allowed.
    pub fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether every peer that has the region's key has access.
    fn is_remote(self) -> bool {
        self.0 & (ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_READ) != 0
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Memory of its own pages, mapped for one registration.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// `len` bytes, rounded up to whole pages, all zero.
    fn new(len: usize) -> Result<Mapping> {
        // SAFETY: takes no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        let len = len.checked_next_multiple_of(page).ok_or(Error::Argument("a region too long"))?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last("mmap"));
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(Error::Argument("a mapping at 0"))?;
        let mapping = Mapping { start, len };
        // A child must not share the pages: at this process's next write they would be copied, and the
        // device would go on with the old ones.
        // SAFETY: the range is the mapping just made.
        if unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
            return Err(Error::last("madvise"));
        }
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever drops it has made sure that nothing refers to it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The owner of an `ibv_mr` and of the memory that it pins.
struct Registration {
    mr: NonNull<ffi::Mr>,
    memory: ManuallyDrop<Mapping>,
    access: Access,
    local_key: u32,
    remote_key: u32,
    pd: Arc<PdInner>,
}

// SAFETY: the registration is only read, and deregistered by whoever drops it last. The bytes are
// touched only as the head of `sys` says.
unsafe impl Send for Registration {}
// SAFETY: the same.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        let counting = &self.pd.device.counting;
        // SAFETY: no request, window or handle refers to the region: each would hold `self`.
        if unsafe { (self.pd.device.library.dereg_mr)(self.mr.as_ptr()) } != 0 {
            // The device may still reach the memory, so it stays.
            add(&counting.leaks, 1);
            return;
        }
        add(&counting.deregistrations, 1);
        subtract(&counting.pinned_bytes, self.memory.len as u64);
        // SAFETY: dropped once, here; the device has just let go of it.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
    }
}

/// A part of a registration, held by requests and windows.
pub struct Share {
    registration: Arc<Registration>,
    offset: usize,
    len: usize,
}

impl Share {
    fn start(&self) -> *mut u8 {
        // `wrapping_add` for the end of an empty part; in bounds otherwise.
        self.registration.memory.start.as_ptr().wrapping_add(self.offset)
    }

    /// The part of this that begins at `offset`, as the device knows it. It must lie within.
    pub fn sge(&self, offset: usize, len: usize) -> ffi::Sge {
        ffi::Sge {
            addr: self.start().wrapping_add(offset).expose_provenance() as u64,
            length: len as u32,
            lkey: self.registration.local_key,
        }
    }

    /// The region as libibverbs knows it, for binding a window.
    pub fn mr(&self) -> *mut ffi::Mr {
        self.registration.mr.as_ptr()
    }

    /// Whether it is of that protection domain.
    pub fn is_of(&self, pd: &Arc<PdInner>) -> bool {
        Arc::ptr_eq(&self.registration.pd, pd)
    }

    /// What it may be used for.
    pub fn access(&self) -> Access {
        self.registration.access
    }
}

/// Pinned memory that a device may reach, or a part of such memory. This handle is the only way to its
/// bytes for this process; requests and windows keep the memory beyond it, for as long as they need it.
pub struct MemoryRegion {
    share: Arc<Share>,
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({} bytes)", self.share.len)
    }
}

/// Maps and registers `len` bytes.
pub fn register(pd: &Arc<PdInner>, len: usize, access: Access) -> Result<MemoryRegion> {
    if len == 0 {
        return Err(Error::Argument("a region without bytes"));
    }
    let memory = Mapping::new(len)?;
    let device = &pd.device;
    // SAFETY: the protection domain is alive; the memory is mapped and stays so until deregistration,
    // which is up to the registration made of both below.
    let mr = unsafe {
        (device.library.reg_mr)(pd.pd.as_ptr(), memory.start.as_ptr().cast(), memory.len, access.0)
    };
    let Some(mr) = NonNull::new(mr) else {
        return Err(registration_error(memory.len));
    };
    add(&device.counting.registrations, 1);
    add(&device.counting.pinned_bytes, memory.len as u64);
    // SAFETY: just registered; libibverbs does not change these fields.
    let (local_key, remote_key) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
    let registration = Registration {
        mr,
        memory: ManuallyDrop::new(memory),
        access,
        local_key,
        remote_key,
        pd: pd.clone(),
    };
    let share = Share { registration: Arc::new(registration), offset: 0, len };
    Ok(MemoryRegion { share: Arc::new(share) })
}

/// Why the registration that has just failed did so: the limit of locked memory has a name of its own.
fn registration_error(bytes: usize) -> Error {
    let error = std::io::Error::last_os_error();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit, which is all that the call writes to.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    let refused = matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM));
    if known && refused && limit.rlim_cur != libc::RLIM_INFINITY {
        return Error::LockedMemory { bytes, limit: limit.rlim_cur };
    }
    Error::Call { name: "ibv_reg_mr", error }
}

impl MemoryRegion {
    /// How many bytes it has.
    #[allow(clippy::len_without_is_empty)] // only a part that was split off can be empty
    pub fn len(&self) -> usize {
        self.share.len
    }

    /// What it may be used for.
    pub fn access(&self) -> Access {
        self.share.access()
    }

    /// Its address, and the key that gives every peer of the protection domain access, within the region's rights.
    pub fn remote(&self) -> RemoteAddress {
        let address = self.share.start().addr() as u64;
        RemoteAddress { address, key: self.share.registration.remote_key }
    }

    /// A part of it, for a request.
    pub fn slice(&self, offset: usize, len: usize) -> Result<RegionSlice<'_>> {
        self.check(offset, len)?;
        Ok(RegionSlice { region: self, offset, len })
    }

    /// All of it, for a request.
    pub fn all(&self) -> RegionSlice<'_> {
        RegionSlice { region: self, offset: 0, len: self.share.len }
    }

    /// Copies bytes out. If a peer may write them, each byte has its value of some moment; bytes that arrived
    /// before a polled completion are there.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len())?;
        // SAFETY: the source lies within the region, the destination is ours and elsewhere. That the
        // device may write meanwhile is dealt with at the head of `sys`.
        unsafe {
            ptr::copy_nonoverlapping(self.share.start().add(offset), into.as_mut_ptr(), into.len());
        }
        Ok(())
    }

    /// The same, to the end of `into`.
    pub fn append_to(&self, offset: usize, len: usize, into: &mut Vec<u8>) -> Result<()> {
        self.check(offset, len)?;
        into.reserve(len);
        // SAFETY: as in `read`; there is room for `len` bytes, which are initialised by the copy.
        unsafe {
            let end = into.as_mut_ptr().add(into.len());
            ptr::copy_nonoverlapping(self.share.start().add(offset), end, len);
            into.set_len(into.len() + len);
        }
        Ok(())
    }

    /// Copies bytes in. Bytes that a posted request sends must not be among them, or it sends either version.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len())?;
        // SAFETY: the destination lies within the region, `&mut self` keeps other threads away; a slice
        // of it can't be alive, since that borrows `self`. The source can't overlap for the same reason.
        unsafe {
            ptr::copy_nonoverlapping(from.as_ptr(), self.share.start().add(offset), from.len());
        }
        Ok(())
    }

    /// Its bytes, for access in place. `None` if a peer may have the key to it, or a request or a window refers to
    /// it.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.share.access().is_remote() {
            return None;
        }
        // Unique also means: what the last request's end has released happened before.
        let share = Arc::get_mut(&mut self.share)?;
        // SAFETY: the bytes are mapped and initialised, no request or window refers to this part (each
        // would hold the share), and none can while `self` is borrowed mutably. Other parts of the
        // registration are other bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(share.start(), share.len) })
    }

    /// Splits it in two at `at`. `Err` with the unchanged region, if `at` is beyond its end or a request or a
    /// window refers to it.
    pub fn split_at(mut self, at: usize) -> Result<(MemoryRegion, MemoryRegion), MemoryRegion> {
        match Arc::get_mut(&mut self.share) {
            Some(share) if at <= share.len => {
                let rest = Share {
                    registration: share.registration.clone(),
                    offset: share.offset + at,
                    len: share.len - at,
                };
                share.len = at;
                Ok((self, MemoryRegion { share: Arc::new(rest) }))
            }
            _ => Err(self),
        }
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.share.len => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, region: self.share.len }),
        }
    }

    pub(crate) fn share(&self) -> &Arc<Share> {
        &self.share
    }
}
