//! The program's allocator, which counts what each thread allocates and frees (`work::note_allocated`): the memory
//! of an operation is what its worker allocated while it ran.
//!
//! It gives the kernel what has been free for a second, but looks for that only when
//! something else is freed: a server that has nothing to do after a large collection was dropped would keep all of
//! it. So somebody has to look (`memory`).
#![allow(unsafe_code)]

use kauri_base::work::note_allocated;
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

// SAFETY: every call goes to mimalloc as it came; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note_allocated(layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { MiMalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note_allocated(-(layout.size() as i64));
        // SAFETY: as the caller's.
        unsafe { MiMalloc.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note_allocated(layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note_allocated(size as i64 - layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { MiMalloc.realloc(memory, layout, size) }
    }
}

/// `mi_option_purge_delay` of mimalloc 2 and 3, which the crate has no name for.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Has memory given back when it has been free for so long, rather than for a second.
pub fn give_back_after(delay: Duration) {
    // SAFETY: any thread may set an option at any time; mimalloc reads it when it frees.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, delay.as_millis() as i64) }
}

/// Gives the kernel what has been free for a second, whichever thread has freed it.
pub fn give_back() {
    // SAFETY: any thread may call it at any time; it concerns memory that nobody has.
    unsafe { libmimalloc_sys::mi_collect(false) }
}
