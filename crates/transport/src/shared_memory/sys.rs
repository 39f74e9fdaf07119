//! Memory that two processes share, and descriptors sent with the bytes of a Unix domain socket.
//!
//! Position: beside `crate::sys`; the other place with unsafe code.
//!
//! Another process may write to the memory at any time. So it is never borrowed as a slice. Words are read through
//! atomics, and the rest is copied by instructions that the compiler cannot see through. A peer that follows the
//! protocol writes nothing while it is being read, so the copy is correct. From any other peer the copy has
//! arbitrary bytes, which do no harm. The file is sealed against shrinking, so no access can fault.
#![allow(unsafe_code)]

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Most descriptors that are taken from one message; further ones the kernel closes.
pub const DESCRIPTORS_MAX: usize = 4;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A shared mapping of an anonymous file.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, and all access to it is by atomics and [`copy`].
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// New zeroed memory, and the file by which another process can map it. It can neither shrink nor grow.
    pub fn create(length: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a live C string.
        let fd = check(unsafe { libc::memfd_create(c"kauri-session".as_ptr(), flags) })?;
        // SAFETY: the kernel has just given this descriptor to us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let size = libc::off_t::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: takes no pointers.
        check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
        // SAFETY: takes no pointers.
        check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Ok((Self::map_whole(&fd, length)?, fd))
    }

    /// Memory of another process, if it has this length and is sealed.
    pub fn map(fd: &OwnedFd, length: usize) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let seals = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
        let size = std::fs::File::from(fd.try_clone()?).metadata()?.len();
        if seals & SEALS != SEALS || size != length as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("shared memory of {size} bytes with seals {seals:#x}"),
            ));
        }
        Self::map_whole(fd, length)
    }

    fn map_whole(fd: &OwnedFd, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses; the file is as long, and sealed.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMemory { base, length })
    }

    /// Gives up this process's pages from an offset on, a multiple of the page size. Their contents stay in the file,
    /// and come back with the next access.
    pub fn unmap_pages(&self, from: usize) {
        let Some(bytes) = self.length.checked_sub(from) else { return };
        // SAFETY: the range lies within the mapping, which is of a file and shared: no access sees a difference.
        // If it fails the pages stay.
        unsafe {
            libc::madvise(self.base.as_ptr().add(from).cast(), bytes, libc::MADV_DONTNEED);
        }
    }

    /// A word of the memory.
    ///
    /// # Panics
    /// If it does not lie within the memory, or not at a multiple of 4.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < self.length && self.length - offset >= 4);
        // SAFETY: within the mapping, which lives as long as `self`, and aligned, since mappings begin at
        // pages; words are only accessed by atomics.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Copies `bytes` to an offset.
    ///
    /// # Panics
    /// If they don't fit there.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.length && self.length - offset >= bytes.len());
        // SAFETY: both ranges are live, the one within the mapping, and they are not the same memory:
        // nobody has a slice of the mapping.
        unsafe { copy(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len()) };
    }

    /// Appends so many bytes from an offset on.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn read(&self, offset: usize, count: usize, into: &mut Vec<u8>) {
        assert!(offset <= self.length && self.length - offset >= count);
        into.reserve(count);
        // SAFETY: as in `write`; `count` bytes were reserved, and all of them are written.
        unsafe {
            copy(self.base.as_ptr().add(offset), into.as_mut_ptr().add(into.len()), count);
            into.set_len(into.len() + count);
        }
    }
}

/// Copies bytes while another process may write some of them: its writes are copied or not, byte by byte. The
/// compiler must not see that this is a copy, because it may assume that there are no concurrent writes.
///
/// # Safety
///
/// The ranges are valid, and do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's; the instruction copies `rcx` bytes upward, since the direction flag is clear
    // wherever Rust's code runs, and changes nothing else.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") count => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// The same where there is no such instruction.
///
/// # Safety
/// The ranges are valid, and don't overlap.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy(from: *const u8, to: *mut u8, count: usize) {
    for at in 0..count {
        // SAFETY: the caller's. Volatile, so that it stays a copy of each byte.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: our own mapping; nothing that was lent from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A control message with room for [`DESCRIPTORS_MAX`] descriptors.
#[repr(C, align(8))]
struct Control([u8; 64]);

const _: () = {
    // SAFETY: computes a size.
    let space = unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<libc::c_int>()) as u32) };
    assert!(space as usize <= size_of::<Control>());
};

/// Sends `bytes`, or the first of them, with descriptors beside the first byte. Never waits. Unless it
/// fails the descriptors are on their way.
pub fn send_with_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if bytes.is_empty() || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let raw: Vec<libc::c_int> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut control = Control([0; 64]);
    let mut slice = IoSlice::new(bytes);
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = (&raw mut slice).cast();
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    let data_bytes = size_of_val(raw.as_slice()) as u32;
    // SAFETY: the control buffer is aligned and has room for one header and these descriptors, which
    // the sizes were asserted for; the pointers that the macros give point into it.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(data_bytes) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(data_bytes) as _;
        std::ptr::copy_nonoverlapping(raw.as_ptr(), libc::CMSG_DATA(header).cast(), raw.len());
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives bytes into the part of `buffer` that lies between its length and its capacity, makes what came part
/// of it, and takes whatever descriptors come beside them. Waits as the socket does.
pub fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut control = Control([0; 64]);
    let spare = buffer.spare_capacity_mut();
    let mut slice = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the message's pointers are to live memory of the lengths that it says.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let filled = buffer.len() + received;
    // SAFETY: `received` is at most the spare capacity, and those bytes were just written.
    unsafe { buffer.set_len(filled) };
    // SAFETY: the kernel has filled the control buffer; the macros walk within the length that it gave,
    // and each descriptor in it has just been given to us alone.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data: *const libc::c_int = libc::CMSG_DATA(header).cast();
                for index in 0..bytes / size_of::<libc::c_int>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(received)
}

/// Connects to a Unix domain socket. While its listener's queue is full it waits so long, and then would block;
/// `None` waits for ever. A signal interrupts it.
pub fn connect_unix(path: &Path, timeout: Option<Duration>) -> io::Result<UnixStream> {
    connect_unix_as(0, path, timeout)
}

/// The same without waiting: while the listener's queue is full it would block. Nor does the socket wait later.
pub fn connect_unix_now(path: &Path) -> io::Result<UnixStream> {
    connect_unix_as(libc::SOCK_NONBLOCK, path, None)
}

fn connect_unix_as(
    kind: libc::c_int,
    path: &Path,
    timeout: Option<Duration>,
) -> io::Result<UnixStream> {
    // SAFETY: all zero is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let path = path.as_os_str().as_bytes();
    // A zero byte ends it.
    if path.is_empty() || path.len() >= address.sun_path.len() || path.contains(&0) {
        let why = "no path that a Unix domain socket can have";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(path) {
        *slot = *byte as libc::c_char;
    }
    let kind = kind | libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let raw = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the kernel has just given this descriptor to us alone.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(raw) });
    if timeout.is_some() {
        socket.set_write_timeout(timeout)?;
    }
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is live and its size is its type's.
    check(unsafe { libc::connect(raw, (&raw const address).cast(), length) })?;
    if timeout.is_some() {
        socket.set_write_timeout(None)?;
    }
    Ok(socket)
}

/// The user that the process at the other end of a Unix domain socket ran as when it connected.
pub fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to a live ucred and its size.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    })?;
    Ok(peer.uid)
}

/// The user that this process runs as.
pub fn own_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Waits until one of two descriptors is readable, the time is over, or a signal comes; `None` waits for ever. Which
/// are.
pub fn wait_readable(
    first: BorrowedFd<'_>,
    second: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<(bool, bool)> {
    let [first, second] = wait([(first, libc::POLLIN), (second, libc::POLLIN)], timeout)?;
    Ok((first != 0, second != 0))
}

/// Waits until a descriptor is readable or writable, the time is over, or a signal comes. Which it is.
pub fn wait_either(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<(bool, bool)> {
    let [events] = wait([(fd, libc::POLLIN | libc::POLLOUT)], timeout)?;
    let broken = libc::POLLERR | libc::POLLHUP;
    Ok((events & (libc::POLLIN | broken) != 0, events & (libc::POLLOUT | broken) != 0))
}

fn wait<const N: usize>(
    fds: [(BorrowedFd<'_>, libc::c_short); N],
    timeout: Option<Duration>,
) -> io::Result<[libc::c_short; N]> {
    let mut entries =
        fds.map(|(fd, events)| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
    let timeout_ms = timeout.map_or(-1, |timeout| {
        timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as libc::c_int
    });
    // SAFETY: the pointer is to so many live entries.
    let count = unsafe { libc::poll(entries.as_mut_ptr(), N as libc::nfds_t, timeout_ms) };
    if count < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok([0; N]) } else { Err(error) };
    }
    Ok(entries.map(|entry| entry.revents))
}
