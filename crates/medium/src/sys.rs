//! The system calls that std lacks, and the memory of the cache's segments.
//!
//! All `unsafe` code of this crate is here, in `dax/`, in `plain/staging.rs`, in `cache/segment.rs`, or in
//! `cell.rs`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Most slices that one `pwritev` takes (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// Writes some of `parts` at `offset`; answers how many bytes, at least one unless there are none.
pub(crate) fn pwritev(file: &File, parts: &[IoSlice<'_>], offset: u64) -> Result<usize> {
    let count = parts.len().min(SLICES_MAX) as libc::c_int;
    let offset = libc::off_t::try_from(offset).map_err(|_| too_large())?;
    // SAFETY: IoSlice is guaranteed to have the layout of iovec; the slices are borrowed for the
    // call, and the kernel only reads them.
    let written = unsafe { libc::pwritev(file.as_raw_fd(), parts.as_ptr().cast(), count, offset) };
    match written {
        0.. => Ok(written as usize),
        _ => Err(Error::last_os_error()),
    }
}

/// Reads some bytes from `offset`, as far as the kernel has them in memory; `EAGAIN` if it has none,
/// `EOPNOTSUPP` where the file system can't tell.
pub(crate) fn read_in_memory(file: &File, into: &mut [u8], offset: u64) -> Result<usize> {
    let part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let offset = libc::off_t::try_from(offset).map_err(|_| too_large())?;
    // SAFETY: the kernel writes into the slice, which is borrowed for the call, and no further.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset, libc::RWF_NOWAIT) };
    match read {
        0.. => Ok(read as usize),
        _ => Err(Error::last_os_error()),
    }
}

/// Allocates `len` bytes from `offset` and makes the file that long. Signals don't end it: a file system in
/// memory gives up, and back what it has, for any of them.
pub(crate) fn fallocate(file: &File, offset: u64, len: u64) -> Result<()> {
    let offset = libc::off_t::try_from(offset).map_err(|_| too_large())?;
    let len = libc::off_t::try_from(len).map_err(|_| too_large())?;
    again_after_signals(|| {
        // SAFETY: no memory is involved.
        match unsafe { libc::fallocate(file.as_raw_fd(), 0, offset, len) } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    })
}

/// What the call answers when no signal interrupts it.
fn again_after_signals(mut call: impl FnMut() -> Result<()>) -> Result<()> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Locks the file against every other open of it, or fails with `EWOULDBLOCK`.
pub(crate) fn flock_exclusive(file: &File) -> Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Size of the file's file system and what is used of it, in bytes.
pub(crate) fn file_system_space(file: &File) -> Result<(u64, u64)> {
    // SAFETY: all zeros is a valid statvfs: it holds integers only.
    let mut answer: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which lives until after the call.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &mut answer) } {
        0 => {
            let used = answer.f_blocks.saturating_sub(answer.f_bfree);
            Ok((answer.f_blocks * answer.f_frsize, used * answer.f_frsize))
        }
        _ => Err(Error::last_os_error()),
    }
}

/// Of which kind the file's file system is (`statfs.f_type`).
pub(crate) fn file_system_type(file: &File) -> Result<u32> {
    // SAFETY: all zeros is a valid statfs: it holds integers only.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which lives until after the call.
    match unsafe { libc::fstatfs(file.as_raw_fd(), &mut answer) } {
        0 => Ok(answer.f_type as u32),
        _ => Err(Error::last_os_error()),
    }
}

/// What this process may still use of the file's file system, in bytes.
pub(crate) fn file_system_available(file: &File) -> Result<u64> {
    // SAFETY: all zeros is a valid statvfs: it holds integers only.
    let mut answer: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct, which lives until after the call.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &mut answer) } {
        0 => Ok(answer.f_bavail.saturating_mul(answer.f_frsize)),
        _ => Err(Error::last_os_error()),
    }
}

fn too_large() -> Error {
    Error::from_raw_os_error(libc::EFBIG)
}

/// A range of memory of this process's own: address space that takes memory only where it has been
/// touched. Zero where it hasn't, or since it was discarded. (Where the machine allows no overcommit,
/// `vm.overcommit_memory=2`, reserved address space counts as used memory all the same.)
///
/// Holds no promise about who looks at it: its users do (`cache/segment.rs`).
pub(crate) struct Region {
    mapping: ManuallyDrop<Mapping>,
}

/// An anonymous mapping of a [`Region`]'s or a spare one; unmapped when it is dropped.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a Mapping is an address and a length; using the memory behind it is unsafe and argued there.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address that the kernel picks touches nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // Where huge pages are the default, touching one block would take the memory of 128, and
        // giving it back would split them. An old kernel without the advice has none either.
        // SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(base, len, libc::MADV_NOHUGEPAGE) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) => Ok(Mapping { base, len }),
            None => Err(Error::from_raw_os_error(libc::ENOMEM)),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and whoever could look at it is gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Regions shorter than this are *small*: those of logs with small segments.
const SMALL_BELOW: usize = 512 << 10;

/// Mappings of small regions that nobody has, all zero. Clearing one costs a fraction of mapping,
/// touching and unmapping it where several threads run: each of these interrupts all processors.
struct Spares(Vec<Mapping>);

static SPARES: Mutex<Spares> = Mutex::new(Spares(Vec::new()));

impl Spares {
    /// Bytes that are kept at most.
    const BYTES_MAX: usize = 8 << 20;

    fn of_all() -> MutexGuard<'static, Spares> {
        SPARES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&mut self, len: usize) -> Option<Mapping> {
        let at = self.0.iter().position(|spare| spare.len == len)?;
        Some(self.0.swap_remove(at))
    }

    /// Keeps one, unless there are enough: then it comes back.
    fn keep(&mut self, mapping: Mapping) -> Option<Mapping> {
        let bytes: usize = self.0.iter().map(|spare| spare.len).sum();
        if bytes + mapping.len > Spares::BYTES_MAX {
            return Some(mapping);
        }
        self.0.push(mapping);
        None
    }
}

impl Region {
    /// Reserves `len` bytes of address space (a multiple of the page size).
    pub(crate) fn reserve(len: usize) -> Result<Region> {
        let spare = if len < SMALL_BELOW { Spares::of_all().take(len) } else { None };
        let mapping = spare.map_or_else(|| Mapping::new(len), Ok)?;
        Ok(Region { mapping: ManuallyDrop::new(mapping) })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.mapping.len
    }

    /// A range of it, to be discarded.
    pub(crate) fn range(&self, offset: usize, len: usize) -> RegionRange {
        assert!(offset <= self.len() && len <= self.len() - offset, "a range beyond its region");
        // SAFETY: within the mapping.
        let start = unsafe { self.base().add(offset) };
        RegionRange(libc::iovec { iov_base: start.cast(), iov_len: len })
    }

    /// Has the kernel provide memory for a range now rather than page by page when it is touched. What
    /// the range holds stays. A hint: kernels before Linux 5.14 decline.
    pub(crate) fn populate(&self, offset: usize, len: usize) {
        let range = self.range(offset, len);
        if self.len() < SMALL_BELOW {
            return;
        }
        // Huge pages where the range has whole ones: a random read of a record misses fewer address
        // translations. What is discarded of one later is split off.
        // SAFETY: as below.
        unsafe { libc::madvise(range.0.iov_base, range.0.iov_len, libc::MADV_HUGEPAGE) };
        // SAFETY: the range is within the mapping (`range` checks), whose contents populating doesn't
        // change, so whoever else uses it sees no difference.
        unsafe { libc::madvise(range.0.iov_base, range.0.iov_len, libc::MADV_POPULATE_WRITE) };
        // Those that are there stay. When a block is read back into a range that was discarded, the
        // memory of one block is to be taken, not of a huge page.
        // SAFETY: as above.
        unsafe { libc::madvise(range.0.iov_base, range.0.iov_len, libc::MADV_NOHUGEPAGE) };
    }

    /// Gives the memory of a range back: it reads as zero and takes no memory until touched again.
    ///
    /// # Safety
    /// Nobody has a reference into the range (page aligned, within the region), and nobody reads or
    /// writes it while this runs.
    pub(crate) unsafe fn discard(&self, offset: usize, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { discard_range(&self.range(offset, len)) };
    }
}

/// Has the processor fetch the lines of some items, the first of them if they are many. A hint.
#[inline]
pub fn prefetch<T>(items: &[T]) {
    prefetch_lines(items.as_ptr().cast(), size_of_val(items));
}

/// As [`prefetch`], wherever the range is.
#[inline]
pub(crate) fn prefetch_lines(start: *const u8, len: usize) {
    const LINE: usize = 64;
    const LINES_MAX: usize = 20;
    let before = start.addr() % LINE;
    let first = start.wrapping_sub(before);
    for line in 0..(before + len).div_ceil(LINE).min(LINES_MAX) {
        prefetch_line(first.wrapping_add(line * LINE));
    }
}

/// Asks the processor for a line. A hint, which no address makes fail.
#[inline]
fn prefetch_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and it neither faults nor changes memory.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// A range of a [`Region`].
#[repr(transparent)]
pub(crate) struct RegionRange(libc::iovec);

/// As [`Region::discard`] for many ranges. With one system call where the kernel takes it (Linux
/// 6.13 and newer): the processors' address translations are then flushed once and not for each
/// range, which is most of the cost.
///
/// # Safety
/// As for [`Region::discard`], and the regions live.
pub(crate) unsafe fn discard_ranges(mut ranges: &[RegionRange]) {
    static UNSUPPORTED: AtomicBool = AtomicBool::new(false);
    while ranges.len() > 1 && !UNSUPPORTED.load(Ordering::Relaxed) {
        let Some(process) = own_process() else { break };
        let count = ranges.len().min(SLICES_MAX);
        let advised = ranges.as_ptr().cast::<libc::iovec>();
        // SAFETY: RegionRange has the layout of iovec. The ranges are this process's own, and the caller has
        // them for itself.
        let bytes = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                process.as_raw_fd(),
                advised,
                count,
                libc::MADV_DONTNEED,
                0,
            )
        };
        if bytes < 0 {
            UNSUPPORTED.store(true, Ordering::Relaxed);
            break;
        }
        // It may have stopped on the way: what it did of a range is done again.
        let mut bytes = bytes as usize;
        let whole = ranges.iter().take(count).take_while(|range| {
            let done = range.0.iov_len <= bytes;
            bytes = bytes.saturating_sub(range.0.iov_len);
            done
        });
        match whole.count() {
            0 => break,
            done => ranges = &ranges[done..],
        }
    }
    for range in ranges {
        // SAFETY: the caller's promise.
        unsafe { discard_range(range) };
    }
}

/// # Safety
/// As for [`Region::discard`], and the region lives.
unsafe fn discard_range(range: &RegionRange) {
    // SAFETY: the range is within a mapping, and the caller has it for itself.
    let result = unsafe { libc::madvise(range.0.iov_base, range.0.iov_len, libc::MADV_DONTNEED) };
    // It fails for bad addresses only. Then nothing is discarded, which costs memory but no
    // correctness.
    debug_assert_eq!(result, 0, "madvise: {}", Error::last_os_error());
}

/// A handle of this very process; None if the kernel has none, or in a child that was forked: there it
/// would be its parent.
fn own_process() -> Option<&'static OwnedFd> {
    static PROCESS: OnceLock<Option<(u32, OwnedFd)>> = OnceLock::new();
    let id = std::process::id();
    let process = PROCESS.get_or_init(|| {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
        // SAFETY: a new descriptor that nobody else owns.
        (fd >= 0).then(|| (id, unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    });
    process.as_ref().filter(|(of, _)| *of == id).map(|(_, fd)| fd)
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region is not used after this.
        let mapping = unsafe { ManuallyDrop::take(&mut self.mapping) };
        if mapping.len < SMALL_BELOW {
            // SAFETY: the mapping was this region's own, and whoever could look at it is gone.
            unsafe { mapping.base.as_ptr().write_bytes(0, mapping.len) };
            // What comes back is unmapped without the lock.
            let _beyond = Spares::of_all().keep(mapping);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a region that take memory.
    fn resident_pages(region: &Region) -> usize {
        let mut resident = vec![0; region.len() / 4096];
        // SAFETY: the mapping is the region's, and there is a byte for each of its pages.
        let result =
            unsafe { libc::mincore(region.base().cast(), region.len(), resident.as_mut_ptr()) };
        assert_eq!(result, 0);
        resident.iter().filter(|page| *page & 1 != 0).count()
    }

    #[test]
    fn discarded_pages_come_back_one_by_one() {
        const HUGE: usize = 2 << 20;
        let region = Region::reserve(8 * HUGE).unwrap();
        region.populate(0, 8 * HUGE);
        assert!(matches!(resident_pages(&region), 0 | 4096), "all, or an old kernel");
        // SAFETY: nobody else knows the region.
        unsafe { region.discard(0, 8 * HUGE) };
        assert_eq!(resident_pages(&region), 0);
        for huge in 0..8 {
            // SAFETY: within the region, which is this test's alone.
            unsafe { region.base().add(huge * HUGE + HUGE / 2).write(1) };
        }
        assert_eq!(resident_pages(&region), 8);
    }

    #[test]
    fn a_reused_small_region_is_zero() {
        const LEN: usize = 3 * 4096;
        for _ in 0..3 {
            let regions: Vec<Region> = (0..20).map(|_| Region::reserve(LEN).unwrap()).collect();
            for region in &regions {
                // SAFETY: the region is this test's alone, and so is the reference.
                let bytes = unsafe { std::slice::from_raw_parts_mut(region.base(), LEN) };
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(7);
            }
        }
    }

    #[test]
    fn spare_regions_are_handed_out_once_and_limited() {
        let mut spares = Spares(Vec::new());
        let (small, large) = (Mapping::new(4096).unwrap(), Mapping::new(8192).unwrap());
        let (small_at, large_at) = (small.base, large.base);
        assert!(spares.keep(small).is_none() && spares.keep(large).is_none());
        assert_eq!(spares.take(8192).map(|spare| spare.base), Some(large_at));
        assert!(spares.take(8192).is_none());
        assert_eq!(spares.take(4096).map(|spare| spare.base), Some(small_at));
        let full = (0..=Spares::BYTES_MAX >> 18).find(|_| {
            let mapping = Mapping::new(256 << 10).unwrap();
            spares.keep(mapping).is_some()
        });
        assert_eq!(full, Some(Spares::BYTES_MAX >> 18));
    }

    #[test]
    fn discarded_ranges_read_as_zeros_and_others_stay() {
        const PAGE: usize = 4096;
        const PAGES: usize = 3000;
        let region = Region::reserve(PAGES * PAGE).unwrap();
        // SAFETY: the region is this test's alone, and no other reference is used while this is.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.base(), PAGES * PAGE) };
        bytes.fill(7);
        // More than one call takes, with gaps; then a single one.
        let ranges: Vec<RegionRange> =
            (0..PAGES / 2).map(|n| region.range(2 * n * PAGE, PAGE)).collect();
        // SAFETY: `bytes` is not used meanwhile.
        unsafe { discard_ranges(&ranges) };
        // SAFETY: as above.
        unsafe { region.discard(PAGE, PAGE) };
        // SAFETY: as for `bytes`, which is not used any more.
        let bytes = unsafe { std::slice::from_raw_parts(region.base(), PAGES * PAGE) };
        for (number, page) in bytes.chunks(PAGE).enumerate() {
            let expected = if number % 2 == 0 || number == 1 { 0 } else { 7 };
            assert!(page.iter().all(|byte| *byte == expected), "page {number}");
        }
    }

    #[test]
    fn signals_do_not_interrupt_a_call() {
        let run = |mut answers: Vec<libc::c_int>| {
            let done = again_after_signals(|| match answers.pop() {
                None | Some(0) => Ok(()),
                Some(number) => Err(Error::from_raw_os_error(number)),
            });
            (done.map_err(|error| error.raw_os_error()), answers.len())
        };
        assert_eq!(run(vec![0, libc::EINTR, libc::EINTR]), (Ok(()), 0));
        assert_eq!(run(vec![0, libc::ENOSPC, libc::EINTR]), (Err(Some(libc::ENOSPC)), 1));
    }
}
