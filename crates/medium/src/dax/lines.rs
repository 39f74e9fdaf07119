//! Stores to persistent memory, line by line into the processor's write queues, and the fence that waits for them.
//!
//! A line (64 bytes) that is written as a whole bypasses the cache by non-temporal stores. In lines that are
//! written in part (the first and the last of a range), the bytes are stored as usual and the line is then written
//! back by `clwb`, `clflushopt` or `clflush`, whichever the processor supports at run time. In both cases the bytes
//! are durable (with ADR: the memory controller's queues belong to the persistent domain) after the same thread has
//! executed an `sfence`.
//!
//! A line can be torn at 8 bytes: each aligned word has its old or its new value.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// How a line is written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteBack {
    /// `clwb`: the line may stay in the cache.
    Clwb,
    /// `clflushopt`: it leaves the cache.
    ClflushOpt,
    /// `clflush`: so it does, one line after the other.
    Clflush,
}

impl WriteBack {
    /// The instruction's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WriteBack::Clwb => "clwb",
            WriteBack::ClflushOpt => "clflushopt",
            WriteBack::Clflush => "clflush",
        }
    }
}

/// The lines that a range of addresses touches.
pub(crate) fn lines_of(address: usize, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    (address + len - 1) / LINE_BYTES - address / LINE_BYTES + 1
}

/// What is left of parts that are read one after the other.
struct Source<'p, 'b> {
    parts: &'p [&'b [u8]],
    here: &'b [u8],
}

impl<'p, 'b> Source<'p, 'b> {
    fn new(parts: &'p [&'b [u8]]) -> Self {
        Source { parts, here: &[] }
    }

    /// The next bytes that lie together, at most `max`; empty only at the end.
    fn take(&mut self, max: usize) -> &'b [u8] {
        while self.here.is_empty() {
            let Some((first, rest)) = self.parts.split_first() else { return &[] };
            (self.here, self.parts) = (first, rest);
        }
        let (taken, rest) = self.here.split_at(max.min(self.here.len()));
        self.here = rest;
        taken
    }

    /// The next line if it lies together; nothing is taken otherwise.
    fn take_line(&mut self) -> Option<&'b [u8; LINE_BYTES]> {
        let (line, rest) = self.here.split_first_chunk::<LINE_BYTES>()?;
        self.here = rest;
        Some(line)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LINE_BYTES, Source, WriteBack};
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid, __cpuid_count, __m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128,
    };

    /// What this processor has. Every one with 64 bits has `clflush`.
    pub(crate) fn detect() -> Option<WriteBack> {
        const EXTENDED: u32 = 7;
        if __cpuid(0).eax < EXTENDED {
            return Some(WriteBack::Clflush);
        }
        let features = __cpuid_count(EXTENDED, 0).ebx;
        Some(match (features >> 24 & 1, features >> 23 & 1) {
            (1, _) => WriteBack::Clwb,
            (_, 1) => WriteBack::ClflushOpt,
            _ => WriteBack::Clflush,
        })
    }

    /// Waits until what this thread has written back or stored past the cache is durable, and orders
    /// it before every later store.
    #[inline]
    pub(crate) fn fence() {
        // SAFETY: every processor with 64 bits has it (SSE), and it touches no memory.
        unsafe { _mm_sfence() }
    }

    /// Has one line written back.
    ///
    /// # Safety
    /// `line` is mapped.
    #[inline]
    unsafe fn write_back_line(how: WriteBack, line: *const u8) {
        // SAFETY: the instructions change no memory's contents; the caller says that the address is
        // mapped, and `detect` that the processor has the instruction.
        unsafe {
            match how {
                WriteBack::Clwb => {
                    asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags))
                }
                WriteBack::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                WriteBack::Clflush => {
                    asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags));
                }
            }
        }
    }

    /// Has the lines of a range written back.
    ///
    /// # Safety
    /// The range is mapped.
    pub(crate) unsafe fn write_back(how: WriteBack, start: *const u8, len: usize) {
        let lead = start as usize % LINE_BYTES;
        let mut done = 0;
        while done < lead + len && len > 0 {
            // SAFETY: the line holds a byte of the range, so it is mapped: pages consist of lines.
            unsafe { write_back_line(how, start.wrapping_sub(lead).wrapping_add(done)) };
            done += LINE_BYTES;
        }
    }

    /// Stores a whole line past the cache.
    ///
    /// # Safety
    /// As for [`store`]; `to` is a multiple of [`LINE_BYTES`].
    #[inline]
    unsafe fn stream_line(to: *mut u8, line: &[u8; LINE_BYTES]) {
        let (from, to) = (line.as_ptr().cast::<__m128i>(), to.cast::<__m128i>());
        // SAFETY: four times 16 bytes of a line of 64 at both ends; the target is aligned and the
        // caller's; nobody accesses it before the fence that the caller promises.
        unsafe {
            for quarter in 0..LINE_BYTES / size_of::<__m128i>() {
                _mm_stream_si128(to.add(quarter), _mm_loadu_si128(from.add(quarter)));
            }
        }
    }

    /// Stores some bytes of one line as usual, and has it written back.
    ///
    /// # Safety
    /// As for [`store`]; the bytes lie in one line.
    unsafe fn store_part(how: WriteBack, to: *mut u8, len: usize, source: &mut Source<'_, '_>) {
        let mut done = 0;
        while done < len {
            let bytes = source.take(len - done);
            if bytes.is_empty() {
                break;
            }
            // SAFETY: within the range, which is the caller's alone; parts are borrowed, so they
            // don't overlap with it.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(done), bytes.len()) };
            done += bytes.len();
        }
        if len > 0 {
            // SAFETY: mapped, as the caller says.
            unsafe { write_back_line(how, to) };
        }
    }

    /// Stores `parts`, which have `len` bytes together, at `to`, on their way to the medium.
    ///
    /// # Safety
    /// The range is mapped for writing. Until this thread has executed [`fence`] nobody else, nor this
    /// thread by ordinary means, reads or writes it.
    pub(crate) unsafe fn store(how: WriteBack, to: *mut u8, len: usize, parts: &[&[u8]]) {
        let mut source = Source::new(parts);
        let head = (LINE_BYTES - to as usize % LINE_BYTES) % LINE_BYTES;
        let head = head.min(len);
        // SAFETY: the first bytes of the range, up to a line's end.
        unsafe { store_part(how, to, head, &mut source) };
        let mut done = head;
        let mut gathered = [0; LINE_BYTES];
        while len - done >= LINE_BYTES {
            // SAFETY: within the range.
            let at = unsafe { to.add(done) };
            match source.take_line() {
                // SAFETY: `at` is a line of the range: `head` ended the one before.
                Some(line) => unsafe { stream_line(at, line) },
                None => {
                    gather(&mut gathered, &mut source);
                    // SAFETY: as above.
                    unsafe { stream_line(at, &gathered) };
                }
            }
            done += LINE_BYTES;
        }
        // SAFETY: what is left of the range, less than a line, from a line's beginning.
        unsafe { store_part(how, to.add(done), len - done, &mut source) };
    }

    fn gather(line: &mut [u8; LINE_BYTES], source: &mut Source<'_, '_>) {
        let mut filled = 0;
        while filled < LINE_BYTES {
            let bytes = source.take(LINE_BYTES - filled);
            let Some(here) = line.get_mut(filled..filled + bytes.len()) else { return };
            if bytes.is_empty() {
                return;
            }
            here.copy_from_slice(bytes);
            filled += bytes.len();
        }
    }
}

/// Elsewhere nothing is known of persistent memory, so [`detect`] answers that there is none and the
/// rest is never called.
#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use super::{Source, WriteBack};

    pub(crate) fn detect() -> Option<WriteBack> {
        None
    }

    pub(crate) fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn write_back(_how: WriteBack, _start: *const u8, _len: usize) {}

    /// # Safety
    /// The range is mapped for writing, and nobody else reads or writes it.
    pub(crate) unsafe fn store(_how: WriteBack, to: *mut u8, len: usize, parts: &[&[u8]]) {
        let mut source = Source::new(parts);
        let mut done = 0;
        while done < len {
            let bytes = source.take(len - done);
            let _ = source.take_line();
            // SAFETY: within the range, which is the caller's alone.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(done), bytes.len()) };
            done += bytes.len();
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use elsewhere::{detect, fence, store, write_back};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{detect, fence, store, write_back};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Region;

    #[test]
    fn every_store_path_writes_exactly_its_bytes() {
        let Some(best) = detect() else { return };
        let region = Region::reserve(8192).unwrap();
        let source: Vec<u8> = (0..600u32).map(|n| (n * 7 % 251) as u8 + 1).collect();
        // The others are there where the best one is.
        let mut ways = vec![best, WriteBack::Clflush];
        if best == WriteBack::Clwb {
            ways.push(WriteBack::ClflushOpt);
        }
        for how in ways {
            for offset in [0, 1, 8, 32, 63, 64, 100] {
                for (a, b) in [(0, 0), (1, 1), (32, 64), (32, 200), (100, 0), (64, 64), (3, 500)] {
                    let parts = [&source[..a], &[], &source[a..a + b], &source[..5]];
                    let len = a + b + 5;
                    // SAFETY: the region is this test's alone; no other reference is in use.
                    unsafe {
                        std::ptr::write_bytes(region.base(), 0, 8192);
                        store(how, region.base().add(offset), len, &parts);
                        write_back(how, region.base().add(offset), len);
                    }
                    fence();
                    // SAFETY: as above, and fenced.
                    let bytes = unsafe { std::slice::from_raw_parts(region.base(), 8192) };
                    let expected = parts.concat();
                    assert_eq!(bytes[offset..offset + len], expected, "{how:?} {offset} {a} {b}");
                    assert!(bytes[..offset].iter().all(|byte| *byte == 0));
                    assert!(bytes[offset + len..].iter().all(|byte| *byte == 0));
                }
            }
        }
    }

    #[test]
    fn a_range_counts_every_line_that_it_touches() {
        assert_eq!(lines_of(0, 0), 0);
        assert_eq!(lines_of(0, 64), 1);
        assert_eq!(lines_of(63, 2), 2);
        assert_eq!(lines_of(100, 1024), 17);
    }
}
